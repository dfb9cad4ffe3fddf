//! Observing every packet changes nothing else: no counter and no number of the result.

use crate::common;
use ropewalk_engine::Time;

use common::watch::watch;
use common::{MILLISECOND, SECOND, single, spec};
use ropewalk_link::{Jitter, JitterShape, Loss};
use ropewalk_sim::{Direction, EndSpec, RunResult, RunSpec, Scenario, Side, Workload, World, networks};

/// The result and both ends' counters of a run without observers, whose segments are carried at once.
fn unwatched(mut world: World) -> (RunResult, [Vec<(String, u64)>; 2]) {
    world.run_until(Time::MAX);
    let counters = [Side::Client, Side::Server]
        .map(|side| world.counters(side).into_iter().filter(|(_, value)| *value > 0).collect());
    (world.into_result(), counters)
}

fn cases() -> Vec<(&'static str, RunSpec)> {
    let bulk = |mut scenario: Scenario| {
        scenario.workload = Workload::Bulk { duration: 3 * SECOND };
        scenario
    };
    let clean = || bulk(networks::two_equal(20_000_000, 15 * MILLISECOND));
    let mut lossy = clean();
    let mut rough = clean();
    for path in &mut rough.paths {
        let jitter = Jitter { spread: 3 * MILLISECOND, shape: JitterShape::Normal, keeps_order: false };
        path.down.jitter = Some(jitter);
    }
    for path in &mut lossy.paths {
        (path.down.loss, path.up.loss) = (Loss::Bernoulli(0.01), Loss::Bernoulli(0.005));
    }
    // Acknowledgements overtake each other too, and what is lost among them is sent again.
    let mut wild = rough.clone();
    for path in &mut wild.paths {
        path.up.jitter = path.down.jitter;
        (path.down.loss, path.up.loss) = (Loss::Bernoulli(0.02), Loss::Bernoulli(0.01));
    }
    let mut checked = Scenario { direction: Direction::Upload, ..clean() };
    let ends = EndSpec { ecn: true, checksum: true, ..EndSpec::default() };
    (checked.client, checked.server) = (ends.clone(), ends);
    let mut flows = clean();
    flows.workload = Workload::Flows { count: 40, bytes: 200_000 };
    let web = Workload::Web { objects: vec![20_000; 12], connections: 4, request: 300, persistent: true };
    vec![
        ("clean", spec(clean(), "minrtt", "lia")),
        ("queueing ahead", spec(clean(), "linux", "cubic")),
        ("one path", single(clean(), 0, "cubic")),
        ("losses", spec(lossy.clone(), "minrtt", "olia")),
        ("losses, twice over", spec(lossy, "redundant", "lia")),
        ("reordering", spec(rough, "ecf", "balia")),
        ("reordering both ways, with losses", spec(wild.clone(), "minrtt", "lia")),
        ("reordering on one path, up", single(Scenario { direction: Direction::Upload, ..wild }, 0, "cubic")),
        ("checksums and marks, up", spec(checked, "roundrobin", "cubic")),
        ("many", spec(flows, "minrtt", "lia")),
        ("web", spec(Scenario { workload: web, ..networks::wifi_lte() }, "blest", "lia")),
    ]
}

/// Watched, each segment is fetched on its own. Unwatched, an endpoint hands out all that it has at once.
#[test]
fn observing_changes_nothing() {
    for (name, spec) in cases() {
        let seen = watch(&spec, false);
        let (result, counters) = unwatched(World::new(&spec).expect("it can be simulated"));
        assert_eq!((seen.result, seen.counters), (result, counters), "{name}");
    }
}
