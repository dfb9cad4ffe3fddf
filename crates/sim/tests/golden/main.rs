//! Golden simulations: digests of whole runs, which are the same on any machine and in any build.
//!
//! Each case has a line in a table: name, segments sent and arrived, digest of every packet, digest of the
//! result, digest of both ends' counters. Result and counters come from a run without observers, as in
//! experiments.
//!
//! Nothing here reads a clock or needs a file at run time, so that this test can be compiled for wasm32 as it
//! stands (`cargo test -p ropewalk-sim --test golden --target wasm32-wasip1` with a WASI runner such as
//! Node's) and must find the same digests there. So far only native builds have been compared.
//!
//! If behaviour changes on purpose, `UPDATE_GOLDEN=1 cargo test -p ropewalk-sim --test golden` writes the
//! tables anew.

mod cases;
#[path = "../common/mod.rs"]
mod common;

use cases::Case;
use common::spec;
use common::watch::{Seen, digest_of, watch, watch_world};
use ropewalk_engine::{Span, Time};
use ropewalk_sim::{Outcome, RunResult, RunSpec, Side, World, networks};

/// Compares cases with their table.
macro_rules! check {
    ($name:literal, $cases:expr) => {
        compare(concat!($name, ".txt"), include_str!(concat!($name, ".txt")), $cases)
    };
}

#[test]
fn networks_and_workloads() {
    check!("networks", cases::networks());
}

#[test]
fn many_connections() {
    check!("many", cases::many());
}

#[test]
fn every_scheduler() {
    check!("schedulers", cases::schedulers());
}

#[test]
fn every_congestion_control() {
    check!("controls", cases::controls());
}

#[test]
fn middleboxes() {
    check!("middleboxes", cases::middleboxes());
}

/// Runs that differ in one bit of entropy have different digests.
#[test]
fn another_seed_has_another_digest() {
    let spec = spec(networks::one(10_000_000, Span::from_millis(10)), "minrtt", "reno");
    let other = RunSpec { seed: 2, ..spec.clone() };
    let (first, again, other) = (watch(&spec, false), watch(&spec, false), watch(&other, false));
    assert_eq!(first.digest, again.digest);
    assert_ne!(first.digest, other.digest);
    assert_eq!(first.result.flows, other.result.flows, "only keys and sequence numbers differ");
}

fn compare(file: &str, table: &str, cases: Vec<Case>) {
    let fresh: Vec<String> = cases.iter().map(line).collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path = format!("{}/tests/golden/{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, fresh.join("\n") + "\n").expect("the table can be written");
        return;
    }
    let known: Vec<&str> = table.lines().collect();
    let changed: Vec<&String> = fresh.iter().filter(|line| !known.contains(&line.as_str())).collect();
    assert!(
        changed.is_empty(),
        "{file}: {} of {} lines are now\n{changed:#?}\nIf that is meant, as for a new algorithm: \
         UPDATE_GOLDEN=1 cargo test -p ropewalk-sim --test golden",
        changed.len(),
        fresh.len()
    );
    assert_eq!(known.len(), fresh.len(), "{file} has lines without a case");
}

/// A case's line: it is run twice, watched and unwatched.
fn line(case: &Case) -> String {
    let world = || {
        let mut world = World::new(&case.spec).expect("it can be simulated");
        if let Some(middlebox) = case.middlebox {
            world.set_middlebox(Box::new(middlebox));
        }
        world
    };
    let Seen { segments, digest, .. } = watch_world(world(), &case.spec);
    let mut world = world();
    world.run_until(Time::MAX);
    let counters = [Side::Client, Side::Server].map(|side| {
        let counters = world.counters(side).into_iter().filter(|(_, value)| *value > 0);
        counters.map(|(name, value)| format!("{name} {value}\n")).collect::<String>()
    });
    let result = world.into_result();
    assert!(
        !matches!(result.outcome, Outcome::Failed(_)) || case.may_fail,
        "{}: {:?}",
        case.name,
        result.outcome
    );
    let (result, counters) = (digest_of(&numbers(&result)), digest_of(&counters.concat()));
    format!("{:42} {segments:6} {digest} {result} {counters}", case.name)
}

/// All numbers of a result, as text.
fn numbers(result: &RunResult) -> String {
    let outcome = match result.outcome {
        Outcome::Complete => "complete",
        Outcome::TimeLimit => "time limit",
        Outcome::Failed(_) => "failed",
    };
    let flow = |flow: &ropewalk_sim::FlowResult| (flow.bytes, flow.start, flow.fct);
    let flows: Vec<_> = result.flows.iter().map(flow).collect();
    let competing: Vec<_> = result.competing.iter().map(flow).collect();
    let path = |path: &ropewalk_sim::PathResult| {
        let queue = (path.queue_delay_max, path.queue_delay_mean);
        (path.bytes, path.segments, path.lost, queue, path.capacity_bytes)
    };
    let paths: Vec<_> = result.paths.iter().map(path).collect();
    let totals = [
        result.duration.as_nanos(),
        result.delivered_bytes,
        result.ofo.max,
        result.totals.retransmissions,
        result.totals.timeouts,
        result.totals.reinjected_bytes,
        result.totals.opportunistic_bytes,
        result.totals.duplicated_bytes,
        result.totals.received_twice_bytes,
        result.totals.penalisations,
        result.totals.window_blocked.as_nanos(),
        result.totals.data_segments,
        result.events,
    ];
    let series = (&result.message_delays, result.ofo.mean, &result.ofo.samples);
    format!("{outcome} {flows:?} {competing:?} {paths:?} {totals:?} {series:?}")
}
