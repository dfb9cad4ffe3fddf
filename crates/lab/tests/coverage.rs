//! Do the stated ranges hold the truth ([`ropewalk_lab::advise::coverage`])? 400 links, as docs/sweeps.md
//! has them, with `cargo test --release -p ropewalk-lab --test all ranges_hold -- --ignored --nocapture`, or
//! by `ropewalk advise --self-test`.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use ropewalk_algorithms::Registries;
use ropewalk_lab::advise::{Case, Coverage, Effort, Execution, Quantity, SelfTest, coverage, measured_test};
use ropewalk_lab::compare::{Design, PER_SECOND};
use ropewalk_lab::parallel::{Start, Workers};

fn all(links: usize) -> Coverage {
    let stop = AtomicBool::new(false);
    let execution = Execution { jobs: Workers::ONE, done: &|_| {}, stop: &stop };
    let found = coverage(&Registries::builtin(), links, 0, &(), execution, || {});
    found.expect("both are registered").expect("nobody stops it")
}

#[test]
#[ignore = "400 links take some minutes"]
fn ranges_hold_the_truth_on_400_links() {
    let count = std::env::var("LINKS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let found = all(count);
    println!("| {count} links: tool | {} |", Quantity::ALL.map(Quantity::name).join(" | "));
    println!("|---|---|---|---|---|");
    for (tool, columns) in found.table() {
        let share = |(held, all): (usize, usize)| format!("{:.1} %", held as f64 / all as f64 * 100.0);
        println!("| `{tool}` | {} |", columns.map(|cell| cell.map_or(String::new(), share)).join(" | "));
    }
    for (tool, columns) in found.table() {
        for (held, all) in columns.into_iter().flatten() {
            assert!(held * 100 >= all * 85, "{tool}: {held} of {all}");
        }
    }
}

/// So many threads: `JOBS`, else all there are.
fn threads() -> Workers {
    let count = std::env::var("JOBS").ok().and_then(|text| text.parse().ok());
    let count = count.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    let start: Start = |count, worker| {
        std::thread::scope(|scope| (0..count).for_each(|_| drop(scope.spawn(worker))));
    };
    Workers { count, start }
}

/// `FROM..TO` of the variable `PAIRS`.
fn pairs() -> Range<u64> {
    let text = std::env::var("PAIRS").unwrap_or_else(|_| "0..200".into());
    let ends = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let (from, to) = ends.unwrap_or_else(|| panic!("PAIRS={text}: expected FROM..TO"));
    from..to
}

/// The seed of the pairs: `SEED`.
fn seed() -> u64 {
    std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(5_000_000)
}

/// 200 pairs take a CPU half an hour. In parts: `PAIRS=0..50` of them, with a line of JSON for each appended
/// to the file `LINES`. Pairs that are in that file are taken from there, so that `cat` joins what several
/// machines have made.
#[test]
#[ignore = "200 pairs take a CPU half an hour"]
fn advice_on_measured_pairs_is_near_the_best_in_hindsight() {
    let (pairs, stop) = (pairs(), AtomicBool::new(false));
    let execution = Execution { jobs: threads(), done: &|_| {}, stop: &stop };
    let lines = std::env::var_os("LINES");
    let kept = lines.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    let mut cases: BTreeMap<u64, Case> = BTreeMap::new();
    for line in kept.lines() {
        let (number, case) = serde_json::from_str(line).expect("a pair's number and its case");
        cases.insert(number, case);
    }
    let mut open = std::fs::OpenOptions::new();
    let file = lines.map(|path| open.create(true).append(true).open(path).expect("LINES can be written"));
    let each = |number: u64, case: &Case| {
        println!(
            "{number}: {:+.1} % {} (best {}; TCP {:+.1} %) {:?} {}",
            (case.chosen / case.least - 1.0) * 100.0,
            case.advice,
            case.best,
            (case.best_tcp / case.least - 1.0) * 100.0,
            case.paths,
            case.bytes
        );
        if let Some(mut file) = file.as_ref() {
            let line = format!("{}\n", serde_json::json!([number, case]));
            file.write_all(line.as_bytes()).expect("LINES can be written");
        }
    };
    // As `ropewalk advise` has it by default.
    let effort = Effort { design: Design::Race { segments: PER_SECOND * 5 / 2 }, whole: false };
    let missing: Vec<u64> = pairs.clone().filter(|number| !cases.contains_key(number)).collect();
    let found = measured_test(&Registries::builtin(), &missing, seed(), effort, execution, each);
    let found = found.expect("all are registered").expect("nobody stops it");
    cases.extend(missing.into_iter().zip(found.cases));
    let found = SelfTest { cases: cases.range(pairs).map(|(_, case)| case.clone()).collect() };
    let regret = found.regret(|case| case.chosen);
    let mean = regret.iter().sum::<f64>() / regret.len() as f64;
    let tcp_faster = found.count(|case| case.multipath && case.best_tcp < case.chosen / 1.05);
    let reverse = found.missed();
    println!("{} pairs: mean regret {:.2} %", found.cases.len(), mean * 100.0);
    println!("Multipath TCP where plain TCP is 5 % faster: {tcp_faster}; the reverse: {reverse}");
    assert!(mean <= 0.03 && tcp_faster == 0 && reverse == 0);
}
