//! Do the stated ranges hold the truth ([`ropewalk_lab::advise::coverage`])? 400 links with
//! `cargo test --release -p ropewalk-lab --test all coverage -- --ignored --nocapture`, or by `ropewalk advise --self-test`.

use std::sync::atomic::AtomicBool;

use ropewalk_algorithms::Registries;
use ropewalk_lab::advise::{Coverage, Effort, Execution, Quantity, coverage, measured_test};
use ropewalk_lab::compare::{Design, PER_SECOND};
use ropewalk_lab::parallel::Workers;

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
    for (tool, columns) in found.table() {
        let cells = Quantity::ALL.iter().zip(columns).filter_map(|(quantity, cell)| {
            let (held, all) = cell?;
            Some(format!("{} {held}/{all} = {:.1} %", quantity.name(), held as f64 / all as f64 * 100.0))
        });
        println!("{tool:30} {}", cells.collect::<Vec<_>>().join(", "));
    }
    for (tool, columns) in found.table() {
        for (held, all) in columns.into_iter().flatten() {
            assert!(held * 100 >= all * 85, "{tool}: {held} of {all}");
        }
    }
}

#[test]
#[ignore = "200 pairs take an hour"]
fn advice_on_measured_pairs_is_near_the_best_in_hindsight() {
    let pairs = std::env::var("PAIRS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let stop = AtomicBool::new(false);
    let execution = Execution { jobs: Workers::ONE, done: &|_| {}, stop: &stop };
    // As `ropewalk advise` has it by default.
    let effort = Effort { design: Design::Race { segments: PER_SECOND * 5 / 2 }, whole: false };
    let each = |case: &ropewalk_lab::advise::Case| {
        println!(
            "{:+.1} % {} (best {}; TCP {:+.1} %) {:?} {}",
            (case.chosen / case.least - 1.0) * 100.0,
            case.advice,
            case.best,
            (case.best_tcp / case.least - 1.0) * 100.0,
            case.paths,
            case.bytes
        );
    };
    let found = measured_test(&Registries::builtin(), pairs, 5_000_000, effort, execution, each);
    let found = found.expect("all are registered").expect("nobody stops it");
    let regret = found.regret(|case| case.chosen);
    let mean = regret.iter().sum::<f64>() / regret.len() as f64;
    let tcp_faster =
        found.cases.iter().filter(|case| case.multipath && case.best_tcp < case.chosen / 1.05).count();
    println!("mean regret {:.2} %", mean * 100.0);
    println!("Multipath TCP where plain TCP is 5 % faster: {tcp_faster}; the reverse: {}", found.missed());
}
