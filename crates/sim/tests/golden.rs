//! Golden simulations: the digest of every packet of a run is the same on any machine and in any build.
//!
//! Nothing here reads a file, a clock or the environment, so this test can be compiled for wasm32 as it stands
//! (`cargo test -p ropewalk-sim --test golden --target wasm32-wasip1` with a WASI runner such as Node's) and must find
//! the same digests there. That is how it is meant to be used where the target is installed; so far only native
//! builds have been compared.
//!
//! When the engine's behaviour is changed on purpose, the failure prints the new lines.

mod common;

use common::watch::watch;
use common::{MILLISECOND, SECOND, single, spec};
use ropewalk_link::{Change, ChangeAction, Jitter, JitterShape, Loss, Queue};
use ropewalk_sim::{Background, Direction, EndSpec, RunSpec, Scenario, Times, Traffic, Workload, networks};

/// Name, segments sent and arrived, digest.
const GOLDEN: [(&str, u64, &str); 9] = [
    ("clean minrtt lia", 2975, "195d6109c8be0e75"),
    ("clean linux cubic", 2670, "bc351ebe19d217d8"),
    ("clean single cubic", 2411, "da83956194a68b75"),
    ("normal jitter ecf olia", 3315, "bf2378292668e77b"),
    ("pareto jitter blest balia", 2974, "21c590c7a2c32944"),
    ("uniform jitter daps wvegas", 2857, "5b5d3d21bf2344fa"),
    ("crowded redundant lia", 2998, "46875c79da5f794d"),
    ("marked roundrobin cubic", 2719, "e05a3af66d589d8a"),
    ("web otias reno", 655, "47436fc721d5aa37"),
];

/// Wi-Fi and LTE with all that draws from floating-point functions: jitter of this shape, losses in bursts.
fn rough(shape: JitterShape, keeps_order: bool) -> Scenario {
    let mut scenario = networks::wifi_lte();
    for path in &mut scenario.paths {
        path.down.jitter = Some(Jitter { spread: 3 * MILLISECOND, shape, keeps_order });
        path.down.loss = Loss::GilbertElliott { to_bad: 0.01, to_good: 0.3, loss_good: 0.001, loss_bad: 0.4 };
    }
    scenario
}

/// A shared bottleneck, competitors of every kind, a path that goes and comes back.
fn crowded() -> Scenario {
    let mut scenario = networks::shared_bottleneck();
    let change = |at, action| Change { at, action };
    scenario.paths[1].down.changes =
        vec![change(300 * MILLISECOND, ChangeAction::Down), change(800 * MILLISECOND, ChangeAction::Up)];
    let on_off = Traffic::UdpOnOff {
        rate: 5_000_000,
        packet: 1000,
        on: 100 * MILLISECOND,
        on_shape: Times::Pareto,
        off: 100 * MILLISECOND,
        off_shape: Times::Exponential,
    };
    let sources = [Traffic::TcpSaturated { congestion: "cubic".into() }, on_off];
    scenario.background = sources
        .into_iter()
        .map(|traffic| Background {
            path: 0,
            direction: Direction::Download,
            traffic,
            extra_delay: 3 * MILLISECOND,
            start: 0,
            stop: 20 * SECOND,
        })
        .collect();
    scenario.warmup = 200 * MILLISECOND;
    scenario
}

/// Marks, checksums, an upload and CoDel.
fn marked() -> Scenario {
    let mut scenario = networks::two_equal(20_000_000, 15 * MILLISECOND);
    let ends = EndSpec { ecn: true, checksum: true, ..EndSpec::default() };
    (scenario.client, scenario.server) = (ends.clone(), ends);
    scenario.paths[0].up.queue = Queue::Packets { limit: 200, ecn_threshold: Some(20) };
    scenario.direction = Direction::Upload;
    scenario
}

fn cases() -> Vec<(&'static str, RunSpec)> {
    let web = Workload::Web { objects: vec![20_000; 12], connections: 4, request: 300 };
    vec![
        ("clean minrtt lia", spec(networks::wifi_lte(), "minrtt", "lia")),
        ("clean linux cubic", spec(networks::wifi_lte(), "linux", "cubic")),
        ("clean single cubic", single(networks::wifi_lte(), 0, "cubic")),
        ("normal jitter ecf olia", spec(rough(JitterShape::Normal, false), "ecf", "olia")),
        ("pareto jitter blest balia", spec(rough(JitterShape::Pareto, true), "blest", "balia")),
        ("uniform jitter daps wvegas", spec(rough(JitterShape::Uniform, false), "daps", "wvegas")),
        ("crowded redundant lia", spec(crowded(), "redundant", "lia")),
        ("marked roundrobin cubic", spec(marked(), "roundrobin", "cubic")),
        ("web otias reno", spec(Scenario { workload: web, ..networks::wifi_lte() }, "otias", "reno")),
    ]
}

#[test]
fn digests_are_the_golden_ones() {
    let mut fresh = String::new();
    let mut same = true;
    for (i, (name, spec)) in cases().into_iter().enumerate() {
        let seen = watch(&spec, false);
        fresh += &format!("    ({name:?}, {}, {:?}),\n", seen.segments, seen.digest);
        same &= GOLDEN.get(i) == Some(&(name, seen.segments, seen.digest.as_str()));
    }
    assert!(same, "now it is\n{fresh}");
}

/// The digest tells a run from another that differs in one bit of entropy.
#[test]
fn another_seed_has_another_digest() {
    let spec = spec(networks::one(10_000_000, 10 * MILLISECOND), "minrtt", "reno");
    let other = RunSpec { seed: 2, ..spec.clone() };
    let (first, again, other) = (watch(&spec, false), watch(&spec, false), watch(&other, false));
    assert_eq!(first.digest, again.digest);
    assert_ne!(first.digest, other.digest);
    assert_eq!(first.result.flows, other.result.flows, "only keys and sequence numbers differ");
}
