//! Simulations whose result is known from arithmetic.

use crate::common;
use ropewalk_engine::{Span, Time};

use common::{MILLISECOND, SECOND, goodput, single, spec};
use ropewalk_link::{Jitter, JitterShape, LinkSpec, Loss, Queue};
use ropewalk_sim::{
    Direction, EndSpec, Middlebox, Outcome, RunSpec, Scenario, Side, Workload, World, networks, run,
};

/// IP and TCP headers with timestamps; the DSS option with a 64-bit mapping and a data ACK.
const TCP_HEADERS: f64 = 20.0 + 20.0 + 12.0;

fn bulk(mut scenario: Scenario, duration: Span) -> Scenario {
    scenario.workload = Workload::Bulk { duration };
    scenario
}

#[test]
fn bulk_on_a_clean_path_fills_it_to_one_percent() {
    for direction in [Direction::Download, Direction::Upload] {
        let mut scenario = bulk(networks::one(50_000_000, 10 * MILLISECOND), 20 * SECOND);
        scenario.direction = direction;
        let result = run(&single(scenario, 0, "reno"));
        assert_eq!(result.outcome, Outcome::Complete);
        let line = 50e6 * (1500.0 - TCP_HEADERS) / 1500.0;
        let share = goodput(&result) / line;
        assert!((0.99..=1.0).contains(&share), "{direction:?}: {share} of {line} bit/s");
        assert_eq!(result.paths[0].capacity_bytes, 125_000_000);
    }
}

/// Bits per second between two moments of a run.
fn goodput_between(spec: &RunSpec, from: u64, to: u64) -> f64 {
    let mut world = World::new(spec).expect("a world");
    assert!(!world.run_until(Time::ZERO + from * SECOND));
    let before = world.delivered_bytes();
    assert!(!world.run_until(Time::ZERO + to * SECOND));
    (world.delivered_bytes() - before) as f64 * 8.0 / (to - from) as f64
}

/// Slow and fast, near and far, past slow start: with a queue of half a window and more the line never idles.
#[test]
fn every_clean_path_is_filled_to_one_percent() {
    let buffers =
        EndSpec { send_buffer: 64 << 20, receive_buffer: 64 << 20, autotune: false, ..EndSpec::default() };
    for (megabits, delay) in [(2, 2), (2, 50), (10, 20), (50, 50), (200, 2), (200, 20)] {
        for control in ["reno", "cubic"] {
            let rate = megabits * 1_000_000;
            let window = rate * 2 * delay / 1000 / 12_000;
            let mut scenario = bulk(
                networks::over(vec![networks::path(
                    "only",
                    rate,
                    delay * MILLISECOND,
                    (window * 3 / 2 + 20) as u32,
                )]),
                60 * SECOND,
            );
            (scenario.client, scenario.server) = (buffers.clone(), buffers.clone());
            let line = rate as f64 * (1500.0 - TCP_HEADERS) / 1500.0;
            let share = goodput_between(&single(scenario, 0, control), 20, 50) / line;
            assert!((0.99..=1.01).contains(&share), "{control}, {megabits} Mbit/s, {delay} ms: {share}");
        }
    }
}

/// The same of two paths' sum: unequal ones, and other controls.
#[test]
fn two_unequal_paths_give_the_sum_to_three_percent() {
    let buffers =
        EndSpec { send_buffer: 64 << 20, receive_buffer: 64 << 20, autotune: false, ..EndSpec::default() };
    for (left, right) in [((20, 10), (20, 10)), ((40, 5), (10, 20)), ((5, 30), (50, 10))] {
        let path = |name, (megabits, delay): (u64, u64)| {
            let window = megabits * 1_000_000 * 2 * delay / 1000 / 12_000;
            networks::path(name, megabits * 1_000_000, delay * MILLISECOND, (window * 3 / 2 + 20) as u32)
        };
        let mut scenario = bulk(networks::over(vec![path("left", left), path("right", right)]), 60 * SECOND);
        (scenario.client, scenario.server) = (buffers.clone(), buffers.clone());
        for (schedulers, control) in [("minrtt", "reno"), ("blest", "cubic"), ("roundrobin", "olia")] {
            let line = (left.0 + right.0) as f64 * 1e6 * (1500.0 - TCP_HEADERS - 24.0) / 1500.0;
            let share = goodput_between(&spec(scenario.clone(), schedulers, control), 20, 50) / line;
            assert!((0.97..=1.03).contains(&share), "{schedulers}, {control}, {left:?} {right:?}: {share}");
        }
    }
}

#[test]
fn two_equal_paths_give_the_sum_to_three_percent() {
    let scenario = bulk(networks::two_equal(50_000_000, 10 * MILLISECOND), 20 * SECOND);
    for scheduler in ["minrtt", "roundrobin", "linux", "blest", "ecf"] {
        let result = run(&spec(scenario.clone(), scheduler, "lia"));
        let line = 2.0 * 50e6 * (1500.0 - TCP_HEADERS - 20.0) / 1500.0;
        let share = goodput(&result) / line;
        assert!((0.97..=1.02).contains(&share), "{scheduler}: {share} of {line} bit/s");
    }
}

/// The Linux kernel's own tests (`simult_flows.sh`): 16 MiB over 10 + 10 and 15 + 5 Mbit/s, netem's queue of
/// 1000 packets; rates count IP bytes.
#[test]
fn sixteen_mebibytes_take_what_the_kernels_tests_allow() {
    let mut slow = Vec::new();
    for (left, right) in [(10, 10), (15, 5)] {
        for (first, second) in [(0, 0), (1, 25), (25, 1)] {
            let mut scenario = networks::over(vec![
                networks::path("left", left * 1_000_000, first * MILLISECOND, 1000),
                networks::path("right", right * 1_000_000, second * MILLISECOND, 1000),
            ]);
            scenario.workload = Workload::Flow { bytes: 16 << 20 };
            for scheduler in ["linux", "minrtt"] {
                let result = run(&spec(scenario.clone(), scheduler, "cubic"));
                let seconds = result.flows[0].fct.expect("complete").as_secs_f64();
                if !(7.05..=7.6).contains(&seconds) {
                    slow.push(format!(
                        "{left}+{right} Mbit/s, {first}/{second} ms, {scheduler}: {seconds} s"
                    ));
                }
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}

/// One segment: connect takes a round trip, the request half, the answer half, and each packet its time.
#[test]
fn a_tiny_download_takes_two_round_trips() {
    let mut scenario = networks::one(10_000_000, 10 * MILLISECOND);
    scenario.workload = Workload::Flow { bytes: 100 };
    let result = run(&single(scenario, 0, "reno"));
    let fct = result.flows[0].fct.expect("complete");
    let sent = |bytes: u64| Span::from_nanos(bytes * 8 * 100);
    let expected = 40 * MILLISECOND + sent(60) + sent(60) + sent(52 + 100) + sent(52 + 100);
    // The third ACK leaves before the request on the same link, and the request's own ACK before the answer.
    assert!((expected..=expected + 2 * sent(52)).contains(&fct), "{fct} against {expected}");
}

#[test]
fn a_path_that_loses_everything_ends_at_the_limit() {
    let mut scenario = networks::one(10_000_000, 10 * MILLISECOND);
    scenario.paths[0].down.loss = Loss::Bernoulli(1.0);
    scenario.limit = 30 * SECOND;
    let result = run(&single(scenario, 0, "reno"));
    assert_ne!(result.outcome, Outcome::Complete);
    assert_eq!(result.flows[0].fct, None);
    assert!(result.duration <= 30 * SECOND);
    assert_eq!(result.delivered_bytes, 0);
}

#[test]
fn what_cannot_be_simulated_says_why() {
    let mut scenario = networks::one(10_000_000, Span::ZERO);
    scenario.paths.clear();
    let result = run(&spec(scenario, "minrtt", "lia"));
    assert_eq!(result.outcome, Outcome::Failed("a scenario needs at least one path".into()));
    let result = run(&single(networks::one(10_000_000, Span::ZERO), 1, "lia"));
    assert_eq!(result.outcome, Outcome::Failed("single path 1: there are 1 paths, counted from 0".into()));
}

/// Every byte is delivered once whatever the network does to packets.
#[test]
fn flows_complete_over_bad_networks() {
    let worse = |link: &mut LinkSpec| {
        link.loss = Loss::GilbertElliott { to_bad: 0.01, to_good: 0.2, loss_good: 0.005, loss_bad: 0.3 };
        link.jitter =
            Some(Jitter { spread: 5 * MILLISECOND, shape: JitterShape::Normal, keeps_order: false });
        link.duplicate = 0.01;
        link.queue = Queue::Packets { limit: 20, ecn_threshold: None };
    };
    for seed in 0..10 {
        let mut scenario = networks::wifi_lte();
        for path in &mut scenario.paths {
            worse(&mut path.up);
            worse(&mut path.down);
        }
        let mut spec = spec(scenario, "minrtt", "lia");
        spec.seed = seed;
        let result = run(&spec);
        assert_eq!(result.outcome, Outcome::Complete, "seed {seed}");
        assert_eq!(result.delivered_bytes, 1 << 20, "seed {seed}");
    }
}

#[test]
fn ecn_marks_keep_the_queue_short_without_losses() {
    let mut scenario = bulk(networks::one(50_000_000, 10 * MILLISECOND), 10 * SECOND);
    scenario.paths[0].down.queue = Queue::Packets { limit: 1000, ecn_threshold: Some(50) };
    let ends = EndSpec { ecn: true, ..EndSpec::default() };
    (scenario.client, scenario.server) = (ends.clone(), ends);
    let result = run(&single(scenario, 0, "reno"));
    assert_eq!(result.paths[0].lost, 0);
    // The mean may not be far beyond the mark: 50 packets of 1500 bytes at 50 Mbit/s are 12 ms.
    let mean = result.paths[0].queue_delay_mean / 1e6;
    assert!((2.0..14.0).contains(&mean), "{mean} ms");
}

/// Counts what leaves the server.
struct Counter(std::sync::Arc<std::sync::atomic::AtomicU64>);

impl Middlebox for Counter {
    fn process(
        &mut self,
        _: Time,
        from: Side,
        _: usize,
        segment: &mut ropewalk_wire::Segment<ropewalk_wire::SyntheticPayload>,
    ) {
        if from == Side::Server {
            self.0.fetch_add(u64::from(segment.payload.0), std::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[test]
fn a_world_can_be_watched_and_stopped() {
    let spec: RunSpec = spec(networks::wifi_lte(), "minrtt", "lia");
    let whole = run(&spec);
    let mut world = World::new(&spec).expect("a world");
    let sent = std::sync::Arc::default();
    world.set_middlebox(Box::new(Counter(std::sync::Arc::clone(&sent))));
    let mut last = 0;
    while !world.run_until(world.now() + 5 * MILLISECOND) {
        assert!(world.delivered_bytes() >= last);
        last = world.delivered_bytes();
    }
    let watched = world.into_result();
    assert_eq!(watched, whole, "steps must not change the run");
    let bytes: u64 = whole.paths.iter().map(|path| path.bytes).sum();
    assert_eq!(sent.load(std::sync::atomic::Ordering::Relaxed), bytes);

    let mut world = World::new(&spec).expect("a world");
    assert!(!world.run_until(Time::ZERO + 60 * MILLISECOND));
    let part = world.into_result();
    assert!(part.delivered_bytes < whole.delivered_bytes);
    assert_eq!(part.flows[0].fct, None);
}
