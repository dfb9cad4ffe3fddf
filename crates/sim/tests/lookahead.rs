//! Many connections are processed in batches, and with few the sides take turns. The result is that of
//! processing events in order of time: every number of the result, every counter of both ends.

use crate::common;
use ropewalk_engine::{Span, Time};

use common::{MILLISECOND, SECOND, single, spec};
use proptest::prelude::*;
use ropewalk_link::{Jitter, JitterShape, LinkSpec, Loss, Queue};
use ropewalk_sim::{Direction, EndSpec, RunResult, RunSpec, Scenario, Side, Workload, World, networks};

type Seen = (RunResult, [Vec<(String, u64)>; 2]);

/// Result and counters of a run that is stopped at some times on the way, and how many events were handled in
/// batches.
fn run(spec: &RunSpec, ahead: bool, stops: &[Time]) -> (Seen, u64) {
    let mut world = World::new(spec).expect("it can be simulated");
    if !ahead {
        world.step_by_step();
    }
    let mut delivered = Vec::new();
    for stop in stops {
        world.run_until(*stop);
        delivered.push((format!("at {}", world.now()), world.delivered_bytes()));
    }
    world.run_until(Time::MAX);
    let events = world.events_ahead();
    let mut counters = [Side::Client, Side::Server]
        .map(|side| world.counters(side).into_iter().filter(|(_, value)| *value > 0).collect::<Vec<_>>());
    counters[0].extend(delivered);
    ((world.into_result(), counters), events)
}

/// Two paths shared by this many connections.
fn shared(count: u32, rate: u64, delay: Span, queue: u32) -> Scenario {
    let mut scenario = networks::over(vec![
        networks::path("left", rate * u64::from(count), delay, queue * count),
        networks::path("right", rate * u64::from(count), delay, queue * count),
    ]);
    scenario.workload = Workload::Flows { count, bytes: 100_000 };
    scenario.limit = 20 * SECOND;
    scenario
}

fn endless(scenario: Scenario, limit: Span) -> Scenario {
    let Workload::Flows { count, .. } = scenario.workload else { return scenario };
    Scenario { workload: Workload::Flows { count, bytes: 1 << 40 }, limit, ..scenario }
}

fn cases() -> Vec<(&'static str, RunSpec)> {
    let plain = || shared(100, 2_000_000, 10 * MILLISECOND, 20);
    let mut lossy = plain();
    for path in &mut lossy.paths {
        (path.down.loss, path.up.loss) = (Loss::Bernoulli(0.02), Loss::Bernoulli(0.01));
    }
    let mut wild = lossy.clone();
    for path in &mut wild.paths {
        path.down.loss = Loss::GilbertElliott { to_bad: 0.02, to_good: 0.2, loss_good: 0.01, loss_bad: 0.8 };
    }
    let mut uneven = endless(plain(), 2 * SECOND);
    uneven.paths[1].down = LinkSpec::plain(50_000_000, 40 * MILLISECOND, 300);
    let mut marked = Scenario { direction: Direction::Upload, ..endless(plain(), SECOND) };
    let ends = EndSpec { ecn: true, ..EndSpec::default() };
    (marked.client, marked.server) = (ends.clone(), ends);
    marked.paths[0].up.queue = Queue::Packets { limit: 400, ecn_threshold: Some(200) };
    let mut starved = endless(plain(), 3 * SECOND);
    for path in &mut starved.paths {
        path.down.queue = Queue::Packets { limit: 60, ecn_threshold: None };
    }
    // Packets that take no time, links of very different length, and more subflows than most have.
    let mut quick = endless(plain(), SECOND);
    quick.paths[0].down = LinkSpec::plain(u64::MAX, 5 * MILLISECOND, 100);
    quick.paths[1].up = LinkSpec::plain(100_000_000, Span::from_nanos(1), 1000);
    let paths = (0..6).map(|i| networks::path(&format!("path {i}"), 50_000_000, 7 * MILLISECOND, 500));
    let mut wide = Scenario { paths: paths.collect(), ..endless(plain(), SECOND) };
    wide.paths[5].down.loss = Loss::Bernoulli(1.0);
    // One path never delivers: joins are tried again and again while other flows are under way.
    let mut half = plain();
    half.workload = Workload::Flows { count: 100, bytes: 400_000 };
    half.limit = 100 * SECOND;
    half.paths[1].down.loss = Loss::Bernoulli(1.0);
    let web = Workload::Web { objects: vec![20_000; 200], connections: 100, request: 300, persistent: true };
    let web = Scenario { workload: web, ..plain() };
    vec![
        ("no time at all", spec(quick, "minrtt", "lia")),
        ("many paths", spec(wide, "minrtt", "olia")),
        ("one path is dead, to the end", spec(half, "minrtt", "lia")),
        ("a page, to the end", spec(web, "minrtt", "lia")),
        ("each its part", spec(endless(plain(), 2 * SECOND), "minrtt", "lia")),
        ("flows that end", spec(plain(), "minrtt", "lia")),
        ("losses, to the end", spec(lossy.clone(), "linux", "cubic")),
        ("losses", spec(endless(lossy.clone(), 2 * SECOND), "minrtt", "olia")),
        ("losses in bursts", spec(wild, "ecf", "lia")),
        ("repeated", spec(endless(lossy.clone(), SECOND), "redundant", "lia")),
        ("uneven", spec(uneven, "blest", "balia")),
        ("one path", single(endless(lossy, 2 * SECOND), 0, "cubic")),
        ("up, with marks", spec(marked, "roundrobin", "cubic")),
        ("timeouts", spec(starved, "minrtt", "lia")),
    ]
}

#[test]
fn batches_equal_order_of_time() {
    for (name, spec) in cases() {
        let (plain, none) = run(&spec, false, &[]);
        let (ahead, events) = run(&spec, true, &[]);
        assert_eq!(none, 0, "{name}");
        assert_eq!(ahead, plain, "{name}");
        println!("{name}: {events} of {} events, {:?}", plain.0.events, plain.0.outcome);
        let few = ["end", "many", "timeouts", "time at all"].iter().any(|odd| name.contains(odd));
        if !few {
            assert!(events > plain.0.events / 2, "{name}: {events} of {}", plain.0.events);
        }
    }
}

/// Few connections: what runs in turns, and whether that is most of it.
fn few() -> Vec<(&'static str, RunSpec, bool)> {
    let paths = || {
        let (left, right) = (100_000_000, 30_000_000);
        networks::over(vec![
            networks::path("left", left, 10 * MILLISECOND, 100),
            networks::path("right", right, 25 * MILLISECOND, 100),
        ])
    };
    let bulk = |scenario| Scenario { workload: Workload::Bulk { duration: 2 * SECOND }, ..scenario };
    let jitter = |shape| {
        let mut scenario = bulk(paths());
        for path in &mut scenario.paths {
            path.down.jitter = Some(Jitter { spread: 3 * MILLISECOND, shape, keeps_order: false });
            path.down.duplicate = 0.01;
        }
        scenario
    };
    let mut lossy = bulk(paths());
    for path in &mut lossy.paths {
        (path.down.loss, path.up.loss) = (Loss::Bernoulli(0.02), Loss::Bernoulli(0.01));
    }
    let upload = Scenario { direction: Direction::Upload, ..jitter(JitterShape::Normal) };
    let mut both = jitter(JitterShape::Uniform);
    for path in &mut both.paths {
        path.up.jitter = path.down.jitter;
    }
    let flows = |count, bytes| Scenario { workload: Workload::Flows { count, bytes }, ..paths() };
    let mut cut = flows(3, 3_000_000);
    cut.limit = SECOND;
    let mut silent = bulk(paths());
    silent.limit = 2000 * SECOND;
    silent.workload = Workload::Bulk { duration: 2000 * SECOND };
    silent.paths.truncate(1);
    let mut dead = silent.clone();
    dead.paths[0].up.loss = Loss::Bernoulli(1.0);
    // It goes silent once it is open.
    silent.paths[0].down.loss =
        Loss::GilbertElliott { to_bad: 0.01, to_good: 0.0, loss_good: 0.0, loss_bad: 1.0 };
    vec![
        ("bulk", spec(bulk(paths()), "minrtt", "lia"), true),
        ("losses", spec(lossy, "ecf", "olia"), true),
        ("jitter", spec(jitter(JitterShape::Normal), "minrtt", "cubic"), true),
        ("jitter, up", spec(upload, "blest", "lia"), true),
        ("jitter both ways", spec(both, "minrtt", "lia"), false),
        ("one path", single(bulk(paths()), 1, "bbr"), true),
        ("a flow", spec(flows(1, 3_000_000), "redundant", "lia"), true),
        ("a small flow", spec(flows(1, 2000), "minrtt", "lia"), false),
        ("flows", spec(flows(40, 200_000), "roundrobin", "balia"), false),
        ("flows that are cut off", spec(cut, "linux", "cubic"), false),
        ("nobody answers", single(dead, 0, "cubic"), false),
        ("an end falls silent", single(silent, 0, "cubic"), false),
    ]
}

#[test]
fn turns_equal_order_of_time() {
    for (name, spec, most) in few() {
        let (plain, none) = run(&spec, false, &[]);
        let (turns, events) = run(&spec, true, &[]);
        assert_eq!((none, &turns), (0, &plain), "{name}");
        println!("{name}: {events} of {} events, {:?}", plain.0.events, plain.0.outcome);
        assert!(!most || events > plain.0.events / 2, "{name}: {events} of {}", plain.0.events);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Random links and loads, stopped at random times.
    #[test]
    fn turns_equal_order_of_time_on_random_networks(
        count in 1u32..4,
        bytes in prop_oneof![Just(None), (1000u64..2_000_000).prop_map(Some)],
        links in proptest::collection::vec(
            (1_000_000u64..50_000_000, 0u64..30, 2u32..60, 0u32..4, 0u64..8),
            1..4,
        ),
        algorithms in (0usize..4, 0usize..3),
        upload: bool,
        stops in proptest::collection::vec(0u64..2_000, 0..4),
        seed in 0u64..1000,
    ) {
        let paths = links.iter().zip(["one", "two", "three"]).map(|((rate, delay, queue, ..), name)| {
            networks::path(name, *rate, *delay * MILLISECOND, *queue)
        });
        let mut scenario = networks::over(paths.collect());
        for (path, (.., loss, spread)) in scenario.paths.iter_mut().zip(&links) {
            path.down.loss = Loss::Bernoulli(f64::from(*loss) * 0.01);
            let shape = JitterShape::Pareto;
            let jitter = Jitter { spread: *spread * MILLISECOND, shape, keeps_order: loss % 2 == 0 };
            path.down.jitter = (*spread > 3).then_some(jitter);
        }
        scenario.workload = match bytes {
            Some(bytes) => Workload::Flows { count, bytes },
            None => Workload::Bulk { duration: SECOND },
        };
        scenario.limit = 2 * SECOND;
        scenario.direction = if upload { Direction::Upload } else { Direction::Download };
        let scheduler = ["minrtt", "linux", "redundant", "ecf"][algorithms.0];
        let mut spec = spec(scenario, scheduler, ["lia", "cubic", "balia"][algorithms.1]);
        spec.seed = seed;
        let stop = |millis| Time::from_nanos(seed) + millis * MILLISECOND;
        let mut stops: Vec<_> = stops.into_iter().map(stop).collect();
        stops.sort_unstable();
        let (plain, _) = run(&spec, false, &stops);
        let (turns, _) = run(&spec, true, &stops);
        prop_assert_eq!(turns, plain);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Random links and loads, stopped at random times.
    #[test]
    fn batches_equal_order_of_time_on_random_networks(
        count in 65u32..200,
        bytes in prop_oneof![Just(1u64 << 40), 20_000u64..200_000],
        links in proptest::collection::vec((200_000u64..5_000_000, 1u64..30, 2u32..60, 0u32..4), 1..4),
        algorithms in (0usize..4, 0usize..3),
        upload: bool,
        stops in proptest::collection::vec(0u64..3_000, 0..4),
        seed in 0u64..1000,
    ) {
        let paths = links.iter().zip(["one", "two", "three"]).map(|((rate, delay, queue, _), name)| {
            networks::path(name, rate * u64::from(count), *delay * MILLISECOND, queue * count)
        });
        let mut scenario = networks::over(paths.collect());
        for (path, link) in scenario.paths.iter_mut().zip(&links) {
            path.down.loss = Loss::Bernoulli(f64::from(link.3) * 0.01);
        }
        scenario.workload = Workload::Flows { count, bytes };
        scenario.limit = 2 * SECOND;
        scenario.direction = if upload { Direction::Upload } else { Direction::Download };
        let scheduler = ["minrtt", "linux", "redundant", "ecf"][algorithms.0];
        let mut spec = spec(scenario, scheduler, ["lia", "cubic", "balia"][algorithms.1]);
        spec.seed = seed;
        let stop = |millis| Time::from_nanos(seed) + millis * MILLISECOND;
        let mut stops: Vec<_> = stops.into_iter().map(stop).collect();
        stops.sort_unstable();
        let (plain, _) = run(&spec, false, &stops);
        let (ahead, _) = run(&spec, true, &stops);
        prop_assert_eq!(ahead, plain);
    }
}
