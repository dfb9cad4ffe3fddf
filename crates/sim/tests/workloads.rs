//! Workloads, background traffic and what is recorded of them, end to end.

use crate::common;
use ropewalk_engine::{Span, Time};

use common::{MILLISECOND, SECOND, goodput, single, spec, summary};
use ropewalk_link::{Change, ChangeAction, Loss};
use ropewalk_sim::{
    Background, Direction, Mode, Outcome, Recording, RunSpec, SpecError, Times, Traffic, Transfer,
    Transmission, Workload, networks, run,
};

#[test]
fn a_web_page_arrives_object_by_object() {
    for direction in [Direction::Download, Direction::Upload] {
        let mut scenario = networks::wifi_lte();
        let objects: Vec<u64> = (1..=30).map(|i| i * 2000).collect();
        let total: u64 = objects.iter().sum();
        scenario.workload = Workload::Web { objects, connections: 6, request: 400, persistent: true };
        scenario.direction = direction;
        let result = run(&spec(scenario, "minrtt", "lia"));
        assert_eq!(result.outcome, Outcome::Complete);
        assert_eq!(result.delivered_bytes, total);
        assert_eq!(result.message_delays.len(), 30);
        let fct = result.flows[0].fct.expect("complete");
        assert_eq!(fct, result.duration);
        // A connect and five objects one after another take a round trip each at least.
        assert!(fct > 6 * 20 * MILLISECOND, "{fct}");
        assert!(result.message_delays.iter().all(|&delay| delay >= 20 * MILLISECOND && delay < fct));
    }
}

#[test]
fn flows_at_once_share_the_paths() {
    let mut scenario = networks::wifi_lte();
    scenario.workload = Workload::Flows { count: 20, bytes: 100_000 };
    let result = run(&spec(scenario, "minrtt", "lia"));
    assert_eq!(result.outcome, Outcome::Complete);
    assert_eq!(result.flows.len(), 20);
    assert!(result.flows.iter().all(|flow| flow.fct.is_some()));
    assert_eq!(result.delivered_bytes, 2_000_000);
}

#[test]
fn frames_well_below_the_rate_take_the_delay_and_their_time() {
    let mut scenario = networks::one(20_000_000, 10 * MILLISECOND);
    scenario.workload =
        Workload::Cbr { frame: 5 << 10, rate: 1_000_000, key: None, duration: 10 * SECOND, deadline: None };
    assert_eq!(scenario.workload.frames(), Some(245));
    let result = run(&single(scenario, 0, "reno"));
    assert_eq!(result.outcome, Outcome::Complete);
    // 40.96 ms between frames.
    assert_eq!(result.message_delays.len(), 245);
    let least = 10 * MILLISECOND + Span::from_nanos((5120 + 4 * 52) * 8 * 50);
    for &delay in &result.message_delays {
        assert!((least..least + MILLISECOND).contains(&delay), "{delay} against {least}");
    }
}

#[test]
fn exchanges_take_a_round_trip_each() {
    let mut scenario = networks::one(100_000_000, 10 * MILLISECOND);
    scenario.workload =
        Workload::RequestResponse { request: 200, response: 2000, count: 50, think: 5 * MILLISECOND };
    let result = run(&spec(scenario, "minrtt", "lia"));
    assert_eq!(result.outcome, Outcome::Complete);
    assert_eq!(result.message_delays.len(), 50);
    for &delay in &result.message_delays {
        assert!((20 * MILLISECOND..21 * MILLISECOND).contains(&delay), "{delay}");
    }
}

#[test]
fn a_saturated_rival_takes_about_half() {
    let mut scenario = networks::one(20_000_000, 10 * MILLISECOND);
    scenario.workload = Workload::Bulk { duration: 60 * SECOND };
    scenario.warmup = SECOND;
    scenario.background = vec![Background {
        path: 0,
        direction: Direction::Download,
        traffic: Traffic::TcpSaturated { congestion: "reno".into() },
        extra_delay: Span::ZERO,
        start: Time::ZERO,
        stop: None,
    }];
    let shared = run(&single(scenario.clone(), 0, "reno"));
    let share = goodput(&shared) / 20e6;
    assert!((0.3..0.7).contains(&share), "{share}: {}", summary(&shared));
    // Gone after a tenth of the time, it leaves the rest.
    scenario.background[0].stop = Some(Time::ZERO + 6 * SECOND);
    let left = run(&single(scenario, 0, "reno"));
    let share = goodput(&left) / 20e6;
    assert!(share > 0.85, "{share}: {}", summary(&left));
}

#[test]
fn a_saturated_multipath_rival_takes_about_half_of_every_path() {
    let mut scenario = networks::two_equal(20_000_000, 10 * MILLISECOND);
    scenario.workload = Workload::Bulk { duration: 30 * SECOND };
    scenario.warmup = SECOND;
    let rival = |scheduler: &str, path| Background {
        path,
        direction: Direction::Download,
        traffic: Traffic::MptcpSaturated { scheduler: scheduler.into(), congestion: "cubic".into() },
        extra_delay: Span::ZERO,
        start: Time::ZERO,
        stop: None,
    };
    for (scheduler, path) in [("minrtt", 0), ("ropewalk", 1)] {
        scenario.background = vec![rival(scheduler, path)];
        let shared = run(&spec(scenario.clone(), "minrtt", "cubic"));
        let share = goodput(&shared) / 40e6;
        assert!((0.35..0.65).contains(&share), "{scheduler}: {share}: {}", summary(&shared));
        // Plain TCP finds it on either path.
        for path in 0..2 {
            let alone = run(&single(scenario.clone(), path, "cubic"));
            let share = goodput(&alone) / 20e6;
            assert!((0.25..0.75).contains(&share), "{scheduler}: {share}: {}", summary(&alone));
        }
    }
    scenario.background = vec![rival("no-such", 0)];
    assert!(ropewalk_sim::World::new(&spec(scenario, "minrtt", "cubic")).is_err());
}

#[test]
fn datagrams_take_their_rate() {
    let mut scenario = networks::one(10_000_000, 10 * MILLISECOND);
    scenario.workload = Workload::Bulk { duration: 60 * SECOND };
    scenario.background = vec![Background {
        path: 0,
        direction: Direction::Download,
        traffic: Traffic::UdpOnOff {
            rate: 5_000_000,
            packet: 1000,
            on: 50 * MILLISECOND,
            on_shape: Times::Pareto,
            off: 50 * MILLISECOND,
            off_shape: Times::Exponential,
        },
        extra_delay: Span::ZERO,
        start: Time::ZERO,
        stop: None,
    }];
    let result = run(&single(scenario, 0, "cubic"));
    let share = goodput(&result) / 10e6;
    // On half of the time at half of the rate: three quarters are left, less headers and what losses cost.
    assert!((0.6..0.8).contains(&share), "{share}: {}", summary(&result));
}

#[test]
fn a_bottleneck_bounds_both_paths() {
    let mut scenario = networks::shared_bottleneck();
    scenario.workload = Workload::Bulk { duration: 10 * SECOND };
    let result = run(&spec(scenario, "minrtt", "lia"));
    let share = goodput(&result) / 50e6;
    assert!((0.85..0.97).contains(&share), "{share}: {}", summary(&result));
    assert!(result.paths.iter().all(|path| path.bytes > 0));
}

/// A path that dies mid-flow: what it held is sent again elsewhere and the flow completes.
#[test]
fn a_flow_outlives_a_path() {
    let mut scenario = networks::wifi_lte();
    scenario.workload = Workload::Flow { bytes: 8 << 20 };
    let down = Change::once(Time::ZERO + 500 * MILLISECOND, ChangeAction::Down);
    scenario.paths[0].down.changes = vec![down.clone()];
    scenario.paths[0].up.changes = vec![down];
    for scheduler in ["minrtt", "linux", "redundant"] {
        let result = run(&spec(scenario.clone(), scheduler, "lia"));
        assert_eq!(result.outcome, Outcome::Complete, "{scheduler}: {}", summary(&result));
        assert_eq!(result.delivered_bytes, 8 << 20);
        if scheduler != "redundant" {
            assert!(result.totals.reinjected_bytes > 0, "{scheduler}");
        }
        assert!(result.paths[0].lost > 0);
    }
}

#[test]
fn a_backup_path_carries_nothing_while_the_other_works() {
    let mut scenario = networks::wifi_lte();
    scenario.paths[1].backup = true;
    for scheduler in ["minrtt", "linux", "blest"] {
        let result = run(&spec(scenario.clone(), scheduler, "lia"));
        assert_eq!(result.outcome, Outcome::Complete);
        assert_eq!(result.paths[1].bytes, 0, "{scheduler}");
    }
}

#[test]
fn every_byte_sent_is_accounted_for() {
    let mut scenario = networks::wifi_lte();
    scenario.paths[1].down.loss = Loss::Bernoulli(0.01);
    scenario.workload = Workload::Flow { bytes: 2 << 20 };
    let recording = Recording { samples_every: Some(10 * MILLISECOND), segments: true, decisions: false };
    for scheduler in ["minrtt", "redundant", "cfs"] {
        let result = run(&RunSpec { recording, ..spec(scenario.clone(), scheduler, "lia") });
        let sum = |keep: &dyn Fn(&Transmission) -> bool| -> u64 {
            result.segments.iter().filter(|s| keep(&s.transmission)).map(|s| u64::from(s.len)).sum()
        };
        let all: u64 = result.paths.iter().map(|path| path.bytes).sum();
        assert_eq!(sum(&|_| true), all, "{scheduler}: traces against meters");
        assert_eq!(sum(&|f| *f == Transmission::New), 2 << 20, "{scheduler}: new bytes");
        let lost = result.segments.iter().filter(|s| s.arrived.is_none()).count() as u64;
        let counted: u64 = result.paths.iter().map(|path| path.lost).sum();
        assert!(lost >= counted, "{scheduler}: {lost} traces without arrival, {counted} lost on links");
        let retransmitted =
            result.segments.iter().filter(|s| s.transmission == Transmission::Retransmitted).count() as u64;
        assert_eq!(retransmitted, result.totals.retransmissions, "{scheduler}");
        let wished = sum(&|f| *f == Transmission::Duplicated);
        assert_eq!(
            wished,
            result.totals.duplicated_bytes + result.totals.opportunistic_bytes,
            "{scheduler}: by wish"
        );
        assert_eq!(
            sum(&|f| *f == Transmission::Reinjected),
            result.totals.reinjected_bytes,
            "{scheduler}: by need"
        );
        for segment in &result.segments {
            assert!(segment.arrived.is_none_or(|at| at > segment.sent));
            assert!(segment.acked.is_none_or(|at| at > segment.sent));
        }
    }
}

#[test]
fn samples_without_time_between_them_are_refused() {
    let recording = Recording { samples_every: Some(Span::ZERO), ..Recording::default() };
    let spec = RunSpec { recording, ..spec(networks::one(1_000_000, MILLISECOND), "minrtt", "lia") };
    assert_eq!(spec.check(), Err(SpecError::NoInterval));
}

#[test]
fn decisions_name_paths_and_series_have_their_interval() {
    let recording = Recording { samples_every: Some(10 * MILLISECOND), segments: false, decisions: true };
    let result = run(&RunSpec { recording, ..spec(networks::wifi_lte(), "blest", "lia") });
    assert!(result.decisions.iter().any(|decision| decision.reason.contains("wifi")));
    assert!(result.decisions.iter().all(|decision| !decision.reason.contains("{subflow")));
    let times: Vec<Time> = result.samples.iter().map(|sample| sample.at).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 10 * MILLISECOND), "{times:?}");
    assert_eq!(result.ofo.samples.len() as u64, result.duration / (10 * MILLISECOND) + 1);
    let last = result.samples.last().expect("samples");
    assert!(last.subflows.len() == 2 && last.subflows.iter().all(|subflow| subflow.srtt > Span::ZERO));
}

/// On one path in order, nothing waits out of order; over unequal paths something does.
#[test]
fn the_out_of_order_queue_is_measured() {
    let alone = run(&single(networks::wifi_lte(), 0, "lia"));
    assert_eq!((alone.ofo.max, alone.ofo.mean), (0, 0.0));
    let both = run(&spec(networks::wifi_lte(), "roundrobin", "lia"));
    assert!(both.ofo.max > 0 && both.ofo.mean > 0.0);
    assert!(both.ofo.mean < both.ofo.max as f64);
    assert!(both.ofo.samples.iter().any(|&bytes| bytes > 0));
    assert!(both.ofo.samples.iter().all(|&bytes| u64::from(bytes) <= both.ofo.max));
    // The maximum of each 10 ms: never below the sample at their end, and at times above.
    assert_eq!(both.ofo.peaks.len(), both.ofo.samples.len());
    let mut pairs = both.ofo.peaks.iter().zip(&both.ofo.samples);
    assert!(pairs.all(|(peak, sample)| peak >= sample) && both.ofo.peaks != both.ofo.samples);
    assert_eq!(both.ofo.peaks.iter().max().map(|&most| u64::from(most)), Some(both.ofo.max));
}

#[test]
fn latency_under_load_shows_in_the_queue() {
    let mut scenario = networks::one(10_000_000, 10 * MILLISECOND);
    scenario.workload = Workload::Bulk { duration: 20 * SECOND };
    let result = run(&single(scenario, 0, "reno"));
    let path = &result.paths[0];
    // Reno fills the 100 packets: 120 ms, and the one on the link.
    assert!((115 * MILLISECOND..122 * MILLISECOND).contains(&path.queue_delay_max), "{path:?}");
    assert!(path.queue_delay_mean > 20e6 && path.queue_delay_mean < 115e6, "{path:?}");
    assert!(path.lost > 0);
}

#[test]
fn single_path_uses_no_other() {
    let result = run(&RunSpec { mode: Mode::SinglePath(1), ..spec(networks::wifi_lte(), "minrtt", "lia") });
    assert_eq!(result.outcome, Outcome::Complete);
    assert_eq!(result.paths[0].bytes, 0);
    assert_eq!(result.paths[1].bytes, 1 << 20);
}

/// Frames over a fast path and a slow one that loses some.
fn frames(scheduler: &str, deadline: Option<Span>) -> ropewalk_sim::RunResult {
    let mut scenario = networks::wifi_lte();
    scenario.workload =
        Workload::Cbr { frame: 9_000, rate: 6_000_000, key: None, duration: 2 * SECOND, deadline };
    scenario.paths[0].down.loss = Loss::Bernoulli(0.01);
    run(&spec(scenario, scheduler, "cubic"))
}

#[test]
fn deadlines_of_frames_are_for_schedulers_that_ask() {
    let [without, with] = [None, Some(100 * MILLISECOND)].map(|deadline| frames("minrtt", deadline));
    assert_eq!(summary(&without), summary(&with), "others don't notice");
    let [never, soon, far] =
        [None, Some(30 * MILLISECOND), Some(10 * SECOND)].map(|deadline| frames("xlink", deadline));
    assert_eq!(far.totals.duplicated_bytes, 0, "all arrives in time");
    assert!(soon.totals.duplicated_bytes > 0 && never.totals.duplicated_bytes > 0);
}

/// A window's worth takes a round trip: a competing flow with a small receive buffer can't fill the path.
#[test]
fn a_competing_flows_receive_buffer_bounds_its_rate() {
    let time = |receive_buffer: Option<u64>| {
        let mut scenario = networks::wifi_lte();
        scenario.workload = Workload::Flow { bytes: 1000 };
        scenario.background = vec![Background {
            path: 0,
            direction: Direction::Download,
            traffic: Traffic::TcpFlows {
                congestion: "reno".into(),
                bytes: 500_000,
                pause: Span::ZERO,
                times: Some(1),
                receive_buffer,
            },
            extra_delay: 100 * MILLISECOND,
            start: Time::ZERO,
            stop: None,
        }];
        run(&spec(scenario, "minrtt", "lia")).competing[0].fct.expect("complete")
    };
    let (small, grown) = (time(Some(10_000)), time(None));
    // 50 windows, each of a round trip with the extra delay.
    assert!(small > 50 * 100 * MILLISECOND && grown < small / 4, "{small} {grown}");
}

/// A result's times count from the workload's start, those of transfers that never began as well.
#[test]
fn a_transfer_beyond_the_limit_starts_when_it_would() {
    let mut scenario = networks::wifi_lte();
    let transfer = |start| Transfer { start, bytes: 1000, direction: Direction::Upload };
    scenario.workload = Workload::Transfers(vec![transfer(Span::ZERO), transfer(3 * SECOND)]);
    (scenario.warmup, scenario.limit) = (SECOND, 2 * SECOND);
    let result = run(&spec(scenario, "minrtt", "cubic"));
    let late = &result.flows[1];
    assert_eq!((late.start, late.fct), (Time::ZERO + 3 * SECOND, None));
}
