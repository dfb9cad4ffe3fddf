//! The shared contract of all algorithms over the whole engine: every registered scheduler and congestion
//! control, with each of its presets, over several networks. A new one is under test the moment it is
//! registered.
//!
//! Every byte arrives, in a bounded time, on any network and after the death of any path; nothing is sent
//! beyond a window; one path gives what `minrtt` gives; two alike share; the same run twice is the same run.
//! What an algorithm declares as its exception (see [`Exception`]) is left out, by its rule's name.

use crate::common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{MILLISECOND, SECOND, spec, summary};
use ropewalk_engine::registry::{Exception, Registry};
use ropewalk_engine::{Span, Time, congestion, scheduler};
use ropewalk_link::{Change, ChangeAction, Jitter, JitterShape, Loss};
use ropewalk_sim::{Outcome, Recording, RunResult, RunSpec, Scenario, SegmentTrace, Workload, networks, run};

const BYTES: u64 = 300_000;

fn all<T: ?Sized>(registry: &Registry<T>) -> Vec<(String, &'static [Exception])> {
    let mut all = Vec::new();
    for entry in registry.entries() {
        all.push((entry.name.to_string(), entry.exceptions));
        for preset in entry.presets {
            all.push((format!("{}:{}", entry.name, preset.name), entry.exceptions));
        }
    }
    all
}

fn schedulers() -> Vec<(String, &'static [Exception])> {
    all(&scheduler::builtin())
}

fn controls() -> Vec<String> {
    all(&congestion::builtin()).into_iter().map(|(text, _)| text).collect()
}

fn exempt(exceptions: &[Exception], rule: &str) -> bool {
    exceptions.iter().any(|exception| exception.rule == rule)
}

fn sized(mut scenario: Scenario, name: &str) -> Scenario {
    scenario.workload = Workload::Flow { bytes: BYTES };
    scenario.name = name.into();
    scenario
}

/// What is slow, lossy, reordering, narrow, shared, unequal, or one of three.
fn various() -> Vec<Scenario> {
    let path = networks::path;
    let mut lossy = networks::wifi_lte();
    lossy.paths[0].down.loss = Loss::Bernoulli(0.03);
    lossy.paths[1].down.loss =
        Loss::GilbertElliott { to_bad: 0.01, to_good: 0.2, loss_good: 0.0, loss_bad: 0.5 };
    let mut reordering = networks::wifi_lte();
    for path in &mut reordering.paths {
        let jitter = Jitter { spread: 5 * MILLISECOND, shape: JitterShape::Normal, keeps_order: false };
        (path.up.jitter, path.down.jitter) = (Some(jitter), Some(jitter));
    }
    let mut narrow = networks::wifi_lte();
    for end in [&mut narrow.client, &mut narrow.server] {
        (end.send_buffer, end.receive_buffer, end.autotune) = (40_000, 40_000, false);
    }
    let unequal = networks::over(vec![
        path("fibre", 100_000_000, 7 * MILLISECOND, 100),
        path("dsl", 2_000_000, 22 * MILLISECOND, 60),
    ]);
    let mut three = networks::over(vec![
        path("near", 10_000_000, 5 * MILLISECOND, 50),
        path("far", 10_000_000, 150 * MILLISECOND, 50),
        path("spare", 50_000_000, 20 * MILLISECOND, 50),
    ]);
    three.paths[2].backup = true;
    vec![
        sized(networks::wifi_lte(), "wifi-lte"),
        sized(networks::two_equal(20_000_000, 10 * MILLISECOND), "equal"),
        sized(networks::shared_bottleneck(), "shared"),
        sized(lossy, "lossy"),
        sized(reordering, "reordering"),
        sized(narrow, "narrow"),
        sized(unequal, "unequal"),
        sized(three, "three"),
    ]
}

/// The path goes down at `at`, both ways, and up again at `back`.
fn dying(mut scenario: Scenario, path: usize, at: Span, back: Option<Span>) -> Scenario {
    let mut changes = vec![Change::once(Time::ZERO + at, ChangeAction::Down)];
    changes.extend(back.map(|at| Change::once(Time::ZERO + at, ChangeAction::Up)));
    (scenario.paths[path].up.changes, scenario.paths[path].down.changes) = (changes.clone(), changes);
    scenario
}

/// Everything arrived, and no later than `within`.
#[track_caller]
fn arrived(result: &RunResult, within: Span, what: &str) {
    let text = || format!("{what}: {}", summary(result));
    assert_eq!(result.outcome, Outcome::Complete, "{}", text());
    assert_eq!(result.delivered_bytes, BYTES, "{}", text());
    assert!(result.flows.iter().all(|flow| flow.fct.is_some_and(|fct| fct <= within)), "{}", text());
}

/// The slowest path alone would need 1.3 s, and a lost tail a few timeouts more.
const BOUND: Span = Span::from_secs(10);

#[test]
fn every_scheduler_delivers_everything_over_every_network() {
    for scenario in various() {
        for (text, _) in schedulers() {
            let result = run(&spec(scenario.clone(), &text, "cubic"));
            arrived(&result, BOUND, &format!("{text} over {}", scenario.name));
            if scenario.name == "three" {
                assert_eq!(result.paths[2].bytes, 0, "{text} uses a backup");
            }
        }
    }
}

#[test]
fn every_control_delivers_everything_over_every_network() {
    for scenario in various() {
        for text in controls() {
            let result = run(&spec(scenario.clone(), "minrtt", &text));
            arrived(&result, BOUND, &format!("{text} over {}", scenario.name));
        }
    }
}

/// In the handshake, in the middle, near the end; the first path and the second; for good and for a while.
#[test]
fn every_algorithm_outlives_a_path() {
    let base = sized(networks::wifi_lte(), "wifi-lte");
    let mut cases = Vec::new();
    for path in [0, 1] {
        for at in [70, 100, 150] {
            cases.push((path, dying(base.clone(), path, at * MILLISECOND, None)));
        }
        cases.push((path, dying(base.clone(), path, 90 * MILLISECOND, Some(700 * MILLISECOND))));
    }
    for (path, scenario) in &cases {
        let changes = &scenario.paths[*path].down.changes;
        for (text, _) in schedulers() {
            // Plain TCP has no other path: it must only survive the pause.
            if text == "single" && *path == 0 && changes.len() == 1 {
                continue;
            }
            let result = run(&spec(scenario.clone(), &text, "cubic"));
            arrived(&result, BOUND, &format!("{text} with path {path}: {changes:?}"));
        }
        for text in controls() {
            let result = run(&spec(scenario.clone(), "minrtt", &text));
            arrived(&result, BOUND, &format!("{text} with path {path}: {changes:?}"));
        }
    }
}

#[test]
fn every_run_is_the_same_again() {
    let recording = Recording { samples_every: Some(10 * MILLISECOND), segments: true, decisions: true };
    for scenario in various().into_iter().filter(|s| ["lossy", "reordering"].contains(&s.name.as_str())) {
        let twice = |scheduler: &str, control: &str| {
            let spec = RunSpec { recording, ..spec(scenario.clone(), scheduler, control) };
            assert!(run(&spec) == run(&spec), "{scheduler} and {control} over {}", scenario.name);
        };
        for (text, _) in schedulers() {
            twice(&text, "cubic");
        }
        for text in controls() {
            twice("minrtt", &text);
        }
    }
}

fn traced(scenario: &Scenario, scheduler: &str, control: &str) -> RunResult {
    let recording = Recording { samples_every: Some(MILLISECOND), segments: true, decisions: false };
    run(&RunSpec { recording, ..spec(scenario.clone(), scheduler, control) })
}

/// Over one path, every scheduler sends the same bytes at the same moments.
#[test]
fn one_path_is_minrtt_s() {
    let mut scenario = sized(networks::one(20_000_000, 15 * MILLISECOND), "one");
    scenario.paths[0].down.loss = Loss::Bernoulli(0.01);
    let sent = |result: &RunResult| -> Vec<(Time, u64, u32)> {
        result.segments.iter().map(|s: &SegmentTrace| (s.sent, s.offset, s.len)).collect()
    };
    let expected = traced(&scenario, "minrtt", "cubic");
    for (text, exceptions) in schedulers() {
        let own = traced(&scenario, &text, "cubic");
        arrived(&own, BOUND, &text);
        // Queueing ahead changes what a segment holds, and nothing else.
        if !exempt(exceptions, "single-path") && !exempt(exceptions, "cwnd") {
            assert!(sent(&own) == sent(&expected), "{text}: {}", summary(&own));
        }
    }
}

#[test]
fn two_paths_alike_share() {
    let mut scenario = networks::two_equal(20_000_000, 10 * MILLISECOND);
    scenario.workload = Workload::Bulk { duration: 10 * SECOND };
    for (text, exceptions) in schedulers().iter().filter(|(_, e)| !exempt(e, "even-split")) {
        let result = run(&spec(scenario.clone(), text, "reno"));
        let (left, right) = (result.paths[0].bytes, result.paths[1].bytes);
        assert!(left.min(right) * 100 >= (left + right) * 45, "{text} {exceptions:?}: {left} and {right}");
    }
}

/// Before the first loss nothing reduces a window: what is in flight stays within it at every moment.
#[test]
fn nothing_is_sent_beyond_a_window() {
    let mut scenario = sized(networks::wifi_lte(), "wifi-lte");
    for path in &mut scenario.paths {
        path.down.queue = ropewalk_link::Queue::Packets { limit: 10_000, ecn_threshold: None };
    }
    for (text, _) in schedulers() {
        // Penalisation halves a window whatever is in flight. A scheduler without these parameters has none.
        let off = format!("{text}(opportunistic=off, penalise=off)");
        let off = if scheduler::builtin().parse(&off).is_ok() { off } else { text };
        let result = traced(&scenario, &off, "cubic");
        arrived(&result, BOUND, &off);
        let samples: Vec<_> = result.samples.iter().flat_map(|sample| &sample.subflows).collect();
        assert!(samples.len() > 100);
        for sample in samples {
            assert!(sample.in_flight <= sample.cwnd, "{off}: {sample:?}");
        }
    }
}

/// Nor beyond what the receiver has room for: 40,000 bytes from the first that it still misses.
#[test]
fn nothing_is_sent_beyond_the_connection_s_window() {
    let narrow = various().into_iter().find(|scenario| scenario.name == "narrow").expect("narrow");
    for (text, _) in schedulers() {
        let result = traced(&narrow, &text, "cubic");
        let mut arrivals: Vec<&SegmentTrace> =
            result.segments.iter().filter(|s| s.arrived.is_some()).collect();
        arrivals.sort_by_key(|segment| segment.arrived);
        let mut arrivals = arrivals.into_iter().peekable();
        let (mut beyond, mut next, mut closest) = (BTreeMap::<u64, u64>::new(), 0, u64::MAX);
        let mut sent: Vec<&SegmentTrace> = result.segments.iter().collect();
        sent.sort_by_key(|segment| segment.sent);
        for segment in sent {
            while let Some(arrival) = arrivals.next_if(|arrival| arrival.arrived <= Some(segment.sent)) {
                let end = beyond.entry(arrival.offset).or_default();
                *end = (*end).max(arrival.offset + u64::from(arrival.len));
                while let Some(piece) = beyond.first_entry().filter(|piece| *piece.key() <= next) {
                    next = piece.remove().max(next);
                }
            }
            let (end, edge) = (segment.offset + u64::from(segment.len), next + 40_000);
            assert!(end <= edge, "{text}: {segment:?} with {next} bytes in order");
            closest = closest.min(edge - end);
        }
        assert!(closest < 20_000 || text == "single", "{text} never came near the window: {closest}");
    }
}

/// Every decision of every scheduler has its reason, in numbers.
#[test]
fn every_decision_has_its_reason_in_numbers() {
    let recording = Recording { decisions: true, ..Recording::default() };
    let mut networks: Vec<Scenario> = various();
    networks.retain(|scenario| ["wifi-lte", "unequal", "narrow", "lossy"].contains(&scenario.name.as_str()));
    networks.push(dying(networks[0].clone(), 0, 90 * MILLISECOND, None));
    for (text, _) in schedulers() {
        for scenario in &networks {
            let scenario = Arc::new(Scenario { limit: 5 * SECOND, ..scenario.clone() });
            let result = run(&RunSpec { scenario, recording, ..spec(networks[0].clone(), &text, "cubic") });
            assert!(!result.decisions.is_empty(), "{text}");
            for decision in &result.decisions {
                let reason = &decision.reason;
                assert!(reason.chars().any(|c| c.is_ascii_digit()), "{text}: `{reason}`");
                assert!(!reason.contains("{subflow"), "{text}: `{reason}`");
            }
        }
    }
}

/// The kernel's scheduler tries only the subflow that flushes first, and waits when that one's send buffer is
/// full (`sk_stream_memory_free`); a piece that is begun is handed over whole. What a slow path holds stays
/// within that.
#[test]
fn linux_fills_send_buffers_and_no_more() {
    let path = networks::path;
    let mut scenario = networks::over(vec![
        path("fibre", 100_000_000, 7 * MILLISECOND, 100),
        path("dsl", 2_000_000, 22 * MILLISECOND, 60),
    ]);
    scenario.workload = Workload::Flow { bytes: 8 << 20 };
    let recording = Recording { samples_every: Some(10 * MILLISECOND), segments: true, decisions: true };
    let result = run(&RunSpec { recording, ..spec(scenario, "linux", "cubic") });
    assert_eq!(result.outcome, Outcome::Complete);
    let full = result.decisions.iter().filter(|d| d.reason.contains("send buffer is full")).count();
    assert!(full > 10, "{full}");
    let windows = result.samples.iter().filter_map(|sample| sample.subflows.get(1));
    let cwnd = windows.map(|subflow| u64::from(subflow.cwnd)).max().expect("samples");
    // Twice the window in segments of 4,352 bytes; the last burst may go beyond by its pieces.
    let most = 2 * cwnd.max(10) * 4352 + 2 * 32_728;
    let (mut handed, mut largest) = (0, 0);
    for decision in result.decisions.iter().filter(|decision| decision.path == Some(1)) {
        handed += u64::from(decision.bytes);
        let heard = |s: &&SegmentTrace| s.path == 1 && s.acked.is_some_and(|at| at <= decision.at);
        let acked: u64 = result.segments.iter().filter(heard).map(|s| u64::from(s.len)).sum();
        largest = largest.max(handed.saturating_sub(acked));
    }
    assert!(largest > 60_000 && largest <= most, "{largest} of {most}");
}
