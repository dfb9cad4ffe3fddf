//! Random operations over random networks. A case is a network, the settings of two endpoints and the
//! operations; judges check every segment and every state.
//! `ROPEWALK_CASES=6000 cargo test --release -p ropewalk-engine --test random` runs that many cases;
//! `ROPEWALK_HUNT=all` lists what fails, each made as simple as it can be, and `ROPEWALK_HUNT=17` shows every
//! packet of case 17.

mod case;
mod fault;
mod judge;
mod network;
#[path = "../common/split_mix.rs"]
mod split_mix;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use case::Case;
use fault::Fault;
use judge::{Judge, Verdict, verdict};
use world::{Outcome, Report, World};

fn run(case: &Case, fault: Option<Fault>, trace: bool) -> Result<Report, Verdict> {
    catch_unwind(AssertUnwindSafe(|| World::new(case, fault, trace).run())).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        let text = text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(verdict(Judge::Panic, text.unwrap_or_default()))
    })
}

/// Runs a case twice: the same case gives the same packets.
fn try_case(case: &Case) -> Result<Report, Verdict> {
    let first = run(case, None, false)?;
    let again = run(case, None, false)?;
    if first.digest != again.digest || first.packets != again.packets {
        return Err(verdict(
            Judge::NotDeterministic,
            format!("{} packets, and then {}", first.packets, again.packets),
        ));
    }
    Ok(first)
}

/// Cases beyond the usual number that are always run. They cover a super-segment that grows at a piece that
/// another subflow has delivered meanwhile, the smaller window of a repeated segment, a SYN/ACK that answers
/// the first of several SYNs, a checksum that fails during a join, a buffer of less than two segments,
/// MP_FAIL on an ACK at the right edge of the window, a timeout without SACK after data beyond a gap, options
/// that vanish while a join is half-open, a DATA_FIN lost three times after an outage, and a mapping around
/// an earlier one.
const KEPT: [u64; 11] = [2111, 3816, 4093, 7246, 7311, 8285, 11_359, 14_140, 19_250, 19_311, 32_662];

fn cases() -> u64 {
    std::env::var("ROPEWALK_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(512)
}

/// The simplest case found that the same judge objects to.
fn simplify(case: Case, judge: Judge) -> (Case, Verdict) {
    let mut best = (case, verdict(judge, String::new()));
    let mut found = true;
    while found {
        found = false;
        for simpler in best.0.simpler() {
            if let Err(verdict) = run(&simpler, None, false)
                && verdict.judge == judge
            {
                best = (simpler, verdict);
                found = true;
                break;
            }
        }
    }
    best
}

#[test]
fn random_operations_over_random_networks() {
    let hunt = std::env::var("ROPEWALK_HUNT").ok();
    if let Some(number) = hunt.as_ref().and_then(|hunt| hunt.parse().ok()) {
        let case = Case::new(number);
        if let Err(found) = run(&case, None, false) {
            let (case, _) = simplify(case, found.judge);
            eprintln!("{case:#?}");
            let verdict = run(&case, None, true).err();
            eprintln!("{verdict:#?}");
        } else {
            eprintln!("{case:#?}");
            let _ = run(&case, None, true);
        }
        return;
    }
    let mut outcomes: BTreeMap<Outcome, u64> = BTreeMap::new();
    let mut failures = Vec::new();
    let (mut packets, mut slowest) = (0, (0.0, 0));
    for number in (0..cases()).chain(KEPT.into_iter().filter(|kept| *kept >= cases())) {
        let case = Case::new(number);
        if hunt.is_some() {
            eprint!("{number} ");
        }
        match try_case(&case) {
            Ok(report) => {
                *outcomes.entry(report.outcome).or_default() += 1;
                packets += report.packets;
                if report.outcome <= Outcome::FinishedAfterFallback && report.share > slowest.0 {
                    slowest = (report.share, number);
                }
            }
            Err(verdict) => failures.push((number, verdict)),
        }
    }
    println!("{} cases, {packets} packets: {outcomes:?}", cases());
    println!("slowest: case {} took {:.2} of its bound", slowest.1, slowest.0);
    let mut by_judge: BTreeMap<Judge, Vec<u64>> = BTreeMap::new();
    for (number, verdict) in &failures {
        by_judge.entry(verdict.judge).or_default().push(*number);
    }
    if hunt.is_some() {
        eprintln!("\n{by_judge:?}");
        for (number, verdict) in &failures {
            eprintln!("case {number}: {:?}: {}", verdict.judge, verdict.detail);
        }
    }
    if let Some((number, verdict)) = failures.first() {
        panic!("{} cases fail: {by_judge:?}\ncase {number}: {verdict:#?}", failures.len());
    }
    assert!(outcomes.get(&Outcome::Finished).is_some_and(|count| *count * 2 > cases()), "{outcomes:?}");
}

/// The results of fixed cases: outcome, packets, and a digest of every packet and of all events. If it
/// changes on purpose, `UPDATE_GOLDEN=1 cargo test -p ropewalk-engine --test random` writes the table anew.
#[test]
fn digests_are_the_golden_ones() {
    let line = |number| {
        let report = run(&Case::golden(number), None, false).expect("no judge objects");
        format!(
            "{number:4} {:21} {:5} {:016x}",
            format!("{:?}", report.outcome),
            report.packets,
            report.digest
        )
    };
    let fresh: Vec<String> = (0..1500).map(line).collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/random/golden.txt");
        std::fs::write(path, fresh.join("\n") + "\n").expect("the table can be written");
        return;
    }
    let known: Vec<&str> = include_str!("golden.txt").lines().collect();
    let changed: Vec<_> = fresh.iter().zip(&known).filter(|(fresh, known)| fresh != *known).collect();
    assert!(changed.is_empty(), "{} cases (now, then): {changed:#?}", changed.len());
    assert_eq!(known.len(), fresh.len());
}

#[test]
fn planted_faults_are_found() {
    for fault in Fault::ALL {
        let mut found: BTreeMap<Judge, u64> = BTreeMap::new();
        for number in 0..60 {
            if let Err(verdict) = run(&Case::new(number), Some(fault), false) {
                *found.entry(verdict.judge).or_default() += 1;
            }
        }
        println!("{fault:?}: {found:?}");
        assert!(found.contains_key(&fault.found_by()), "{fault:?} was missed: {found:?}");
    }
}
