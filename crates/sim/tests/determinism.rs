//! The same specification gives the same result, to the last bit and trace.

use crate::common;
use ropewalk_engine::Time;

use common::{MILLISECOND, SECOND, spec, summary};
use ropewalk_link::{Change, ChangeAction, Jitter, JitterShape, Loss};
use ropewalk_sim::{
    Background, Direction, Mode, Recording, RunSpec, Scenario, Times, Traffic, Workload, networks, run,
};

fn background(traffic: Traffic) -> Background {
    Background {
        path: 0,
        direction: Direction::Download,
        traffic,
        extra_delay: 7 * MILLISECOND,
        start: Time::ZERO,
        stop: None,
    }
}

/// Every kind of thing that draws or is timed.
fn rich() -> Scenario {
    let mut scenario = networks::shared_bottleneck();
    for path in &mut scenario.paths {
        path.down.loss = Loss::Bernoulli(0.003);
        let jitter = Jitter { spread: MILLISECOND, shape: JitterShape::Pareto, keeps_order: false };
        path.up.jitter = Some(jitter);
    }
    let change = |at, action| Change::once(at, action);
    scenario.paths[1].down.changes = vec![
        change(Time::ZERO + 400 * MILLISECOND, ChangeAction::Down),
        change(Time::ZERO + 900 * MILLISECOND, ChangeAction::Up),
    ];
    scenario.background = vec![
        background(Traffic::TcpSaturated { congestion: "reno".into() }),
        background(Traffic::TcpLimited {
            congestion: "reno".into(),
            packets_per_second: 157.0,
            packet: 1000,
        }),
        background(Traffic::TcpFlows {
            congestion: "cubic".into(),
            bytes: 50_000,
            pause: 50 * MILLISECOND,
            times: None,
            receive_buffer: None,
        }),
        background(Traffic::UdpOnOff {
            rate: 2_000_000,
            packet: 1000,
            on: 100 * MILLISECOND,
            on_shape: Times::Pareto,
            off: 100 * MILLISECOND,
            off_shape: Times::Exponential,
        }),
    ];
    scenario.warmup = 200 * MILLISECOND;
    scenario.workload = Workload::Flow { bytes: 3 << 20 };
    scenario.limit = 20 * SECOND;
    scenario
}

#[test]
fn a_run_repeats() {
    let recording = Recording { samples_every: Some(10 * MILLISECOND), segments: true, decisions: true };
    for scheduler in ["minrtt", "redundant", "blest", "linux"] {
        for mode in [Mode::Multipath, Mode::SinglePath(1)] {
            let spec = RunSpec { mode, recording, ..spec(rich(), scheduler, "olia") };
            let (first, second) = (run(&spec), run(&spec));
            assert_eq!(first.outcome, ropewalk_sim::Outcome::Complete, "{scheduler}: {}", summary(&first));
            assert_eq!(first, second, "{scheduler}");
        }
    }
}

#[test]
fn recording_changes_nothing() {
    let plain = spec(rich(), "ecf", "lia");
    let recording = Recording { samples_every: Some(MILLISECOND), segments: true, decisions: true };
    let mut recorded = run(&RunSpec { recording, ..plain.clone() });
    let plain = run(&plain);
    assert!(!recorded.segments.is_empty() && !recorded.decisions.is_empty() && !recorded.samples.is_empty());
    recorded.segments.clear();
    recorded.decisions.clear();
    recorded.samples.clear();
    recorded.events = plain.events;
    assert_eq!(recorded, plain);
}

#[test]
fn another_seed_is_another_run() {
    let first = spec(rich(), "minrtt", "lia");
    let second = RunSpec { seed: 2, ..first.clone() };
    assert_ne!(run(&first).flows, run(&second).flows);
}

/// Without randomness, the phase against scheduled changes is what can differ.
#[test]
fn the_start_phase_moves_the_workload_alone() {
    let mut scenario = networks::wifi_lte();
    scenario.paths[0].down.changes = vec![Change::once(
        Time::ZERO + 100 * MILLISECOND,
        ChangeAction::Rate(ropewalk_link::Rate::Constant(5_000_000)),
    )];
    let early = spec(scenario, "minrtt", "lia");
    let late = RunSpec { start_phase: 50 * MILLISECOND, ..early.clone() };
    let (early, late) = (run(&early), run(&late));
    assert_eq!(late.flows[0].start, Time::ZERO);
    assert_ne!(early.flows[0].fct, late.flows[0].fct);
}
