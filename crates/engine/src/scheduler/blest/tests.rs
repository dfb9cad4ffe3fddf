//! BLEST at hand-computed points, and its figure 6.

use super::linux::{Extremes, linger, segments_during};
use super::*;
use crate::scheduler::testing::{MSS, Model, Pipe, Scene, build, run, subflow, unmeasured};
use crate::testing::WithoutSender as _;
use crate::{MILLISECOND, SubflowId};

/// F: 10 ms, cwnd 10, full; S: 40 ms with `in_flight` segments; a window of `window` bytes.
fn scene(in_flight: u32, window: u64) -> Scene {
    let mut scene = Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 40, 20, in_flight)]);
    scene.send_window = window;
    scene
}

#[test]
fn x_is_an_arithmetic_series() {
    // rtts = 4: windows of 10, 11, 12 and 13 segments: 46.
    let scene = scene(0, 0);
    assert_eq!(sent_meanwhile(&scene.subflows[0], &scene.subflows[1]), 46_000.0);
    // rtts = 2.5: (10 + 0.75) 2.5 = 26.875 segments.
    assert_eq!(sent_meanwhile(&subflow(0, 40, 10, 0), &subflow(1, 100, 10, 0)), 26_875.0);
}

#[test]
fn both_sides_of_the_inequality() {
    // lambda X = 46,000 > |M| - 1000 (3 + 1) up to |M| = 49,999.
    assert_eq!(scene(3, 49_999).chosen(&mut *build("blest")), None);
    assert_eq!(scene(3, 50_000).chosen(&mut *build("blest")), Some(1));
    // lambda 1.02: 46,920.
    assert_eq!(scene(3, 50_919).chosen(&mut *build("blest(lambda=1.02)")), None);
    assert_eq!(scene(3, 50_920).chosen(&mut *build("blest(lambda=1.02)")), Some(1));
    // lambda 0 is minrtt, as long as S itself fits.
    assert_eq!(scene(3, 4_000).chosen(&mut *build("blest(lambda=0)")), Some(1));
    assert_eq!(scene(3, 3_999).chosen(&mut *build("blest(lambda=0)")), None);
}

#[test]
fn the_window_counts_whole_whatever_is_in_it() {
    let mut scene = scene(3, 50_000);
    scene.una = 7_000;
    scene.next_offset = 56_000;
    assert_eq!(scene.chosen(&mut *build("blest")), Some(1));
}

#[test]
fn the_reason_has_the_numbers() {
    let scene = scene(3, 49_999);
    assert_eq!(
        scene.reason(&mut *build("blest(lambda=1.02)")),
        "wait for {subflow 0}: {subflow 1} would hold 3.9 KiB of the 48.8 KiB window, 45.8 KiB is needed, \
         lambda=1.02"
    );
}

#[test]
fn a_wait_ends_after_the_fast_rtt() {
    let mut scene = scene(3, 49_999);
    scene.now = Time::from_nanos(5);
    assert_eq!(
        scene.ask(&mut *build("blest")),
        Decision::Wait { until: Some(Time::ZERO + 10 * MILLISECOND + Span::from_nanos(5)) }
    );
}

fn lambda(blest: &dyn Scheduler) -> f64 {
    blest.metrics()[0].1
}

#[test]
fn lambda_moves_once_per_fast_rtt() {
    let blest = &mut *build("blest(delta=0.5, lambda=2)");
    let mut scene = scene(0, 1 << 30);
    let mut after = |scene: &mut Scene, ms: u64, blocked: bool| {
        scene.now = Time::ZERO + ms * MILLISECOND;
        if blocked {
            blest.on_event(&scene.view(), Event::WindowBlocked);
        }
        scene.ask(blest);
        lambda(blest)
    };
    assert_eq!(after(&mut scene, 100, false), 2.0, "the first RTT begins");
    assert_eq!(after(&mut scene, 109, true), 2.0, "not over yet");
    assert_eq!(after(&mut scene, 110, false), 2.5, "it was blocked in it");
    assert_eq!(after(&mut scene, 119, false), 2.5);
    assert_eq!(after(&mut scene, 120, false), 2.0, "it wasn't");
    assert_eq!(after(&mut scene, 500, false), 1.5, "a long silence counts once");
    for step in 0..5 {
        after(&mut scene, 600 + step * 10, false);
    }
    assert_eq!(after(&mut scene, 700, false), 0.0, "never below nothing");
    for step in 0..30 {
        after(&mut scene, 800 + step * 10, true);
    }
    assert_eq!(after(&mut scene, 2000, true), 10.0);
}

/// With `rise=4`, as in the kernel's module, lambda returns to where it was if one RTT of the fast subflow in
/// five is blocked.
#[test]
fn blocking_may_move_lambda_further_than_its_absence() {
    let blest = &mut *build("blest(delta=0.25, rise=4)");
    let mut scene = scene(0, 1 << 30);
    let mut seen = Vec::new();
    for round in 1..=11 {
        scene.now = Time::ZERO + round * 10 * MILLISECOND;
        scene.ask(blest);
        seen.push(lambda(blest));
        if round % 5 == 1 {
            blest.on_event(&scene.view(), Event::WindowBlocked);
        }
    }
    assert_eq!(seen, [1.0, 2.0, 1.75, 1.5, 1.25, 1.0, 2.0, 1.75, 1.5, 1.25, 1.0]);
}

#[test]
fn lambda_waits_for_the_fast_subflows_first_sample() {
    for (text, lambda_0) in [("blest", 1.0), ("blest:linux", 1.2)] {
        let blest = &mut *build(text);
        let mut scene = scene(0, 1 << 30);
        scene.subflows.push(unmeasured(2, 10, 0));
        for now in 0..500 {
            scene.now = Time::from_nanos(now);
            assert_eq!(scene.chosen(blest), Some(2), "{text}: so that it gets a sample");
        }
        assert_eq!(lambda(blest), lambda_0, "{text}: 500 ns are no round trips");
        scene.subflows[2].set_packets_out(10);
        scene.now = Time::from_nanos(501);
        assert_eq!(scene.chosen(blest), Some(1), "{text}: full, and nothing to weigh it by");
    }
}

#[test]
fn a_window_that_stays_full_counts_in_each_rtt() {
    let blest = &mut *build("blest");
    let mut scene = scene(0, 0);
    for (ms, expected) in [(0, 1.0), (10, 1.01), (20, 1.02)] {
        scene.now = Time::ZERO + ms * MILLISECOND;
        scene.ask(blest);
        assert!((lambda(blest) - expected).abs() < 1e-9, "{}", lambda(blest));
    }
}

#[test]
fn unlike_minrtt_it_keeps_the_window_free_for_the_fast_subflow() {
    // X = 10 segments of 10, 11, .. over 10 RTTs: 145; a window of 20 leaves S none.
    let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
    let of = |text| Model::new(&pipes, 300_000).window(20_000).run(&mut *build(text));
    let (blest, minrtt) = (of("blest"), of("minrtt(opportunistic=off, penalise=off)"));
    assert_eq!(blest.bytes_on(1), 0);
    assert!(minrtt.bytes_on(1) > 0);
    assert!(blest.completed < minrtt.completed, "{:?} {:?}", blest.completed, minrtt.completed);
}

#[test]
fn like_minrtt_where_the_window_is_wide() {
    let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
    assert_eq!(run("blest", &pipes, 300).placements, run("minrtt", &pipes, 300).placements);
}

/// How many segments in a row S is given, from `held` in flight on, before BLEST skips it.
fn admitted(cwnd_f: u32, ratio: f64, window: u64, lambda: f64, held: u32) -> u32 {
    let mut slow = subflow(1, 10, 64, held);
    slow.rtt.smoothed = Span::from_nanos((ratio * 10.0 * MILLISECOND.as_nanos() as f64) as u64);
    let mut scene = Scene::new(vec![subflow(0, 10, cwnd_f, cwnd_f), slow]);
    scene.send_window = window * u64::from(MSS);
    let blest = &mut *build(&format!("blest(lambda={lambda})"));
    while scene.chosen(blest) == Some(1) && scene.subflows[1].packets_out() < 64 {
        let slow = &mut scene.subflows[1];
        slow.set_packets_out(slow.packets_out() + 1);
    }
    scene.subflows[1].packets_out() - held
}

/// Figure 6 of blest-2016: F takes segments 0..10, S gets 11 and 12, F advances with 13..20, S gets 21..23,
/// F 24..32. No parameters are given with it.
///
/// F takes eleven before S is asked, so that its cwnd is 11 then. S is given 2, and later 3. The search is
/// over F's cwnd later, the ratio of RTTs, |M|, lambda later, and whether S's first two are acknowledged by
/// then (what the printed segments leave open). It finds:
///
/// - one state throughout (cwnd 11, lambda 1): none, for the inequality has one answer;
/// - F's cwnd nine later, as 24..32 suggests: with S's two acknowledged none; with them in flight only
///   ratios between 1 and 2, for instance 1.5 and |M| = 19: X = 16.9, then 13.9 segments;
/// - cwnd 11 and lambda lowered by one delta, S's two acknowledged: many, for instance rtts = 3 and
///   |M| = 38 with delta = 0.03: lambda X = 36, then 34.9 segments.
#[test]
fn figure_6_needs_a_smaller_fast_window_or_a_lambda_that_has_fallen() {
    let (mut same_state, mut nine, mut lower_lambda) = (0, Vec::new(), Vec::new());
    for quarters in 4..=24 {
        let ratio = f64::from(quarters) / 4.0;
        for window in 13..=160 {
            if admitted(11, ratio, window, 1.0, 0) != 2 {
                continue;
            }
            for held in [0, 2] {
                same_state += u32::from(admitted(11, ratio, window, 1.0, held) == 3);
                if admitted(9, ratio, window, 1.0, held) == 3 {
                    nine.push((ratio, window, held));
                }
            }
            for delta in [0.001, 0.003, 0.005, 0.01, 0.02, 0.03] {
                if admitted(11, ratio, window, 1.0 - delta, 0) == 3 {
                    lower_lambda.push((ratio, window, delta));
                }
            }
        }
    }
    assert_eq!(same_state, 0);
    assert!(nine.contains(&(1.5, 19, 2)), "{nine:?}");
    assert!(nine.iter().all(|(ratio, _, held)| *held == 2 && *ratio > 1.0 && *ratio < 2.0), "{nine:?}");
    assert!(lower_lambda.contains(&(3.0, 38, 0.03)), "{lower_lambda:?}");
    assert!(lower_lambda.iter().any(|(_, _, delta)| *delta <= 0.02), "with a delta that the paper studies");
}

#[test]
fn linux_the_linger_grows_with_the_fill() {
    let seen = Extremes { min: 40 * MILLISECOND, max: 80 * MILLISECOND };
    // 40 + 40 (4 + 1)/20 = 50 ms
    assert_eq!(linger(&subflow(1, 40, 20, 4), seen), 50 * MILLISECOND);
    assert_eq!(linger(&subflow(1, 40, 20, 18), seen), 78 * MILLISECOND);
    assert_eq!(linger(&subflow(1, 40, 20, 19), seen), 80 * MILLISECOND);
    assert_eq!(linger(&subflow(1, 60, 20, 4), seen), 60 * MILLISECOND, "no less than its srtt");
}

#[test]
fn linux_rounds_of_the_mean_rtt() {
    let seen = Extremes { min: 8 * MILLISECOND, max: 12 * MILLISECOND };
    let mut fast = subflow(0, 10, 10, 10);
    let segments = |fast: &SubflowMetrics, ms: u64| segments_during(fast, seen, ms * MILLISECOND);
    // Initial slow start: 25 ms are 3 rounds: 10 + 20 + 40.
    assert_eq!(segments(&fast, 25), 70);
    assert_eq!(segments(&fast, 1000), 10 * 65_535, "16 rounds at most");
    // Later: (10 + (3 - 1)/2) 3, from ssthresh + 1 if that is more; halves are cut off.
    fast.set_ssthresh(5);
    assert_eq!(segments(&fast, 25), 33);
    assert_eq!(segments(&fast, 35), 44);
    fast.set_ssthresh(20);
    assert_eq!(segments(&fast, 25), 66);
    assert_eq!(segments_during(&fast, Extremes::default(), Span::from_nanos(1)), 21, "no sample: one round");
}

#[test]
fn linux_both_sides_of_the_inequality() {
    // Linger 40 ms, F's RTT 10: 5 rounds of 10 + 2: 60 segments; with lambda 1.2 less 0.01 at once: 71,400.
    let mut scene = scene(3, 75_399);
    scene.subflows[0].set_ssthresh(5);
    scene.now = Time::ZERO + 40 * MILLISECOND;
    assert_eq!(scene.chosen(&mut *build("blest:linux")), None);
    scene.send_window = 75_400;
    assert_eq!(scene.chosen(&mut *build("blest:linux")), Some(1));
    scene.send_window = 75_800;
    assert_eq!(scene.chosen(&mut *build("blest:linux(lambda=1.3)")), None);
    // lambda 1.0 stays: 60,000 = 64,000 - 4,000.
    scene.send_window = 64_000;
    assert_eq!(scene.chosen(&mut *build("blest:linux(lambda=1.0)")), Some(1));
    scene.send_window = 63_999;
    assert_eq!(scene.chosen(&mut *build("blest:linux(lambda=1.0)")), None);
}

#[test]
fn linux_lambda_moves_once_per_least_srtt_of_the_slow() {
    let blest = &mut *build("blest:linux");
    let mut scene = scene(0, 1 << 30);
    let mut after = |ms: u64, blocked: bool| {
        scene.now = Time::ZERO + ms * MILLISECOND;
        if blocked {
            // The fast subflow has room, and the window hasn't.
            scene.subflows[0].set_packets_out(9);
            assert!(!blest.waits_while_blocked(&scene.view()));
            scene.subflows[0].set_packets_out(10);
        }
        scene.ask(blest);
        (lambda(blest) * 1000.0) as i32
    };
    assert_eq!(after(39, false), 1200);
    assert_eq!(after(40, false), 1190);
    assert_eq!(after(79, true), 1190);
    assert_eq!(after(80, false), 1230);
    assert_eq!(after(120, true), 1270);
    assert_eq!(after(160, true), 1300, "1.3 at most");
    for step in 0..40 {
        after(200 + step * 40, false);
    }
    assert_eq!(after(2000, false), 1000, "1.0 at least");
}

#[test]
fn linux_remembers_extremes_and_forgets_them_with_the_subflow() {
    let blest = &mut *build("blest:linux");
    let mut scene = scene(19, 1 << 30);
    scene.subflows[1].rtt.smoothed = 400 * MILLISECOND;
    scene.ask(blest);
    scene.subflows[1].rtt.smoothed = 40 * MILLISECOND;
    // The 20th in flight fills the window: it lingers 400 ms: 16 rounds of slow start.
    scene.send_window = 1 << 20;
    assert_eq!(scene.chosen(blest), None);
    blest.on_event(&scene.view(), Event::SubflowRemoved(SubflowId(1)));
    assert_eq!(scene.chosen(blest), Some(1), "40 ms: 5 rounds, 310 segments");
}

/// With a floor lambda stays above it; where only considered round trips count, those in which F had room
/// don't.
#[test]
fn the_correction_has_a_floor_and_may_skip_round_trips() {
    let quiet = |text: &str, in_flight: u32| {
        let blest = &mut *build(text);
        let mut scene = Scene::new(vec![subflow(0, 10, 10, in_flight), subflow(1, 40, 20, 3)]);
        scene.send_window = 1_000_000;
        for step in 1..10 {
            scene.now = Time::ZERO + step * 10 * MILLISECOND;
            scene.chosen(blest);
        }
        lambda(blest)
    };
    // Eight round trips without blocking, 0.1 each. With ten of ten in flight F is full, and S is considered.
    assert!((quiet("blest(delta=0.1)", 10) - 0.2).abs() < 1e-9);
    assert_eq!(quiet("blest(delta=0.1, floor=0.6)", 10), 0.6);
    assert!((quiet("blest(delta=0.1, corrects=considered)", 10) - 0.2).abs() < 1e-9);
    assert!((quiet("blest(delta=0.1)", 9) - 0.2).abs() < 1e-9);
    assert_eq!(quiet("blest(delta=0.1, corrects=considered)", 9), 1.0, "S was never considered");
}

/// The send buffer is full and the writer has more: what it holds is the send window, however large the
/// receiver's is.
#[test]
fn a_full_send_buffer_is_the_send_window() {
    let full = |in_flight: u32, buffer: u64| {
        let mut scene = scene(in_flight, 1 << 30);
        (scene.una, scene.next_offset, scene.unsent) = (0, buffer - 1000, 1000);
        (scene.written, scene.writer_waits) = (Some(buffer), true);
        scene
    };
    // X = 46,000; the slow one would hold 1000 (3 + 1).
    for (name, small, large) in [("blest(window=sender)", None, Some(1)), ("blest", Some(1), Some(1))] {
        assert_eq!(full(3, 49_999).chosen(&mut *build(name)), small, "{name}");
        assert_eq!(full(3, 50_000).chosen(&mut *build(name)), large, "{name}");
    }
}

#[test]
fn a_full_send_buffer_blocks_where_it_counts() {
    for (name, after) in
        [("blest(delta=0.5, lambda=2, window=sender)", 2.5), ("blest(delta=0.5, lambda=2)", 1.5)]
    {
        let blest = &mut *build(name);
        let mut scene = scene(0, 1 << 30);
        scene.now = Time::ZERO + 100 * MILLISECOND;
        scene.ask(blest);
        blest.on_event(&scene.view(), Event::BufferBlocked);
        scene.now = Time::ZERO + 110 * MILLISECOND;
        scene.ask(blest);
        assert_eq!(lambda(blest), after, "{name}");
    }
}

/// The data from some offset on has arrived on its subflow.
struct From(u64);

impl crate::scheduler::Fates for From {
    fn fate(&self, _subflow: SubflowId, offset: u64) -> Fate {
        if offset >= self.0 { Fate::Arrived } else { Fate::InFlight }
    }
}

/// F carries from 2000 on, S what is before it; F acknowledges what has arrived.
fn acknowledged(blest: &mut dyn Scheduler, first_on: u8, arrived_from: u64) -> f64 {
    let mut scene = scene(3, 1 << 30);
    for (offset, subflow) in [(0, first_on), (1000, 1), (2000, 0), (3000, 0)] {
        let (carriers, last) = (1 << subflow, SubflowId(subflow));
        let chunk = crate::scheduler::Chunk { offset, len: 1000, carriers, last, sent_at: Time::ZERO };
        scene.chunks.0.insert(offset, chunk);
    }
    scene.now = Time::ZERO + 100 * MILLISECOND;
    scene.ask(blest);
    let view = View { fates: &From(arrived_from), ..scene.view() };
    blest.on_event(&view, Event::Acked { subflow: SubflowId(0), segments: 1 });
    scene.now = Time::ZERO + 110 * MILLISECOND;
    scene.ask(blest);
    lambda(blest)
}

#[test]
fn the_receiver_is_blocked_if_it_holds_data_behind_another_subflows() {
    let of = |blocking: &str, first_on, arrived_from| {
        let blest = &mut *build(&format!("blest(delta=0.5, blocking={blocking})"));
        acknowledged(blest, first_on, arrived_from)
    };
    assert_eq!(of("receiver", 1, 2000), 1.5, "F's data has arrived, S's before it hasn't");
    assert_eq!(of("receiver", 1, 3000), 0.5, "F's first hasn't arrived either");
    assert_eq!(of("receiver", 0, 2000), 0.5, "the first is F's own");
    assert_eq!(of("window", 1, 2000), 0.5);
    assert_eq!(of("retransmission", 1, 2000), 0.5);
}

#[test]
fn a_retransmission_is_blocking_where_it_is_read_so() {
    for (blocking, expected) in [("retransmission", 1.5), ("window", 0.5), ("receiver", 0.5)] {
        let blest = &mut *build(&format!("blest(delta=0.5, blocking={blocking})"));
        let mut scene = scene(0, 1 << 30);
        scene.now = Time::ZERO + 100 * MILLISECOND;
        scene.ask(blest);
        blest.on_event(&scene.view(), Event::Reinjected(SubflowId(0)));
        scene.now = Time::ZERO + 110 * MILLISECOND;
        scene.ask(blest);
        assert_eq!(lambda(blest), expected, "{blocking}");
    }
}
