//! A transfer so long that every number with 32 bits wraps, twice.

use crate::common;
use ropewalk_engine::Span;

use common::{SECOND, single, spec};
use ropewalk_sim::{Mode, Outcome, RunSpec, Scenario, Workload, networks, run};

/// More than twice 2^32.
const BYTES: u64 = 10_000_000_000;

fn scenario() -> Scenario {
    let paths = vec![
        networks::path("wide", 10_000_000_000, Span::from_micros(500), 1000),
        networks::path("narrow", 200_000_000, Span::from_micros(500), 100),
    ];
    let mut scenario = networks::over(paths);
    for path in &mut scenario.paths {
        path.mtu = 9000;
    }
    scenario.workload = Workload::Flow { bytes: BYTES };
    scenario.limit = 60 * SECOND;
    scenario
}

fn arrives(spec: &RunSpec) {
    let result = run(spec);
    assert_eq!((result.outcome, result.delivered_bytes), (Outcome::Complete, BYTES), "{:?}", spec.mode);
    // Subflow sequence numbers: the wide path's alone wrap twice. The line rate bounds the time from below.
    assert!(result.paths[0].bytes > 2 << 32, "{} over the wide path", result.paths[0].bytes);
    let seconds = result.flows[0].fct.expect("complete").as_secs_f64();
    assert!((7.9..12.0).contains(&seconds), "{:?}: {seconds} s", spec.mode);
}

#[test]
fn ten_gigabytes_over_one_subflow() {
    let spec = single(scenario(), 0, "cubic");
    assert_eq!(spec.mode, Mode::SinglePath(0));
    arrives(&spec);
}

#[test]
fn ten_gigabytes_over_two_subflows() {
    arrives(&spec(scenario(), "minrtt", "cubic"));
}
