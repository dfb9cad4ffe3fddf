//! Tests of CUBIC against hand-computed windows.

use super::*;
use crate::congestion::testing::{OnList, ack, assert_close, build, subflow, subflows};
use crate::testing::WithoutSender as _;

fn metric(control: &dyn CongestionControl, subflows: &[SubflowMetrics], name: &str) -> f64 {
    let found = control.metrics_on(subflows, 0).into_iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no metric {name}")).1
}

fn at(now: Time, acked: u32) -> Ack {
    Ack { now, ..ack(acked) }
}

/// Loses at `cwnd` and returns what the engine then sets.
fn lose(
    control: &mut dyn CongestionControl,
    subflows: &mut [SubflowMetrics],
    cwnd: u32,
    cause: LossCause,
) -> u32 {
    subflows[0].set_cwnd(cwnd);
    let ssthresh = control.ssthresh_on(subflows, 0, cause, Time::ZERO);
    subflows[0].set_ssthresh(ssthresh);
    subflows[0].set_cwnd(ssthresh);
    ssthresh
}

/// Acknowledges whole windows, one segment at a time, evenly over each round trip, until `end`.
fn run(control: &mut dyn CongestionControl, subflows: &mut [SubflowMetrics], start: Time, end: Time) {
    let mut now = start;
    while now < end {
        control.ack_on(subflows, 0, &at(now, 1));
        now += subflows[0].rtt.smoothed / u64::from(subflows[0].cwnd());
    }
}

#[test]
fn the_curve_at_hand_computed_points() {
    // W_max 100, cwnd_epoch 70, C 0.4: K = cbrt(30 / 0.4) = cbrt(75) = 4.217163326508746 s;
    // W(0) = 70, W(K) = 100, W(2K) = 130, W(K + 1 s) = 100.4.
    let k = libm::cbrt(75.0);
    assert_close(k, 4.217163326508746);
    assert_close(w_cubic(0.4, 0.0, k, 100.0), 70.0);
    assert_close(w_cubic(0.4, k, k, 100.0), 100.0);
    assert_close(w_cubic(0.4, 2.0 * k, k, 100.0), 130.0);
    assert_close(w_cubic(0.4, k + 1.0, k, 100.0), 100.4);
}

#[test]
fn a_loss_leaves_seven_tenths_and_sets_k() {
    let mut subflows = subflows(&[subflow(100, 100)]);
    let mut cubic = build("cubic");
    assert_eq!(lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit), 70);
    assert_close(metric(&*cubic, &subflows, "w_max"), 100.0);
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO + SECOND, 1));
    assert_close(metric(&*cubic, &subflows, "k"), 4.217163326508746);
    assert_eq!(lose(&mut *cubic, &mut subflows, 2, LossCause::FastRetransmit), 2);
}

#[test]
fn fast_convergence_gives_up_window() {
    // A loss at 80, below W_max = 100: W_max = 80 * 1.7 / 2 = 68.
    let mut subflows = subflows(&[subflow(100, 100)]);
    for (spec, expected) in [("cubic", 68.0), ("cubic(fast-convergence=false)", 80.0)] {
        let mut cubic = build(spec);
        lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
        lose(&mut *cubic, &mut subflows, 80, LossCause::FastRetransmit);
        assert_close(metric(&*cubic, &subflows, "w_max"), expected);
        lose(&mut *cubic, &mut subflows, 80, LossCause::FastRetransmit);
        assert_close(metric(&*cubic, &subflows, "w_max"), 80.0);
        lose(&mut *cubic, &mut subflows, 80, LossCause::FastRetransmit);
        assert_close(metric(&*cubic, &subflows, "w_max"), 80.0);
    }
}

#[test]
fn one_step_of_the_equation() {
    // A stage that starts at cwnd 70 with W_max 100, RTT 100 ms; t = 0: target = W(0.1) =
    // 100 + 0.4 (0.1 - 4.217163)^3 = 72.08384; so an ACK of 70 segments earns 2.08384.
    let mut subflows = subflows(&[subflow(100, 100)]);
    let mut cubic = build("cubic(reno-friendly=false)");
    lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO + SECOND, 70));
    assert_eq!(subflows[0].cwnd(), 72);
    // The fraction is kept: the window is at its target, and stays there while the time does.
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO + SECOND, 5000));
    assert_eq!(subflows[0].cwnd(), 72);
    // 100 ms later: W(0.2) = 100 + 0.4 (0.2 - 4.217163)^3 = 74.0692; (74.0692 - 72.08384) / 72 per
    // segment: 0.91616 are missing for the next, 33.2 segments' worth.
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO + SECOND + 100 * MILLISECOND, 33));
    assert_eq!(subflows[0].cwnd(), 72);
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO + SECOND + 100 * MILLISECOND, 1));
    assert_eq!(subflows[0].cwnd(), 73);
}

#[test]
fn the_window_follows_the_curve_through_its_plateau() {
    let mut subflows = subflows(&[subflow(100, 100)]);
    let mut cubic = build("cubic(reno-friendly=false)");
    lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
    // t = 1 s: 100 + 0.4 (-3.217163)^3 = 86.68; t = 4.217 s: 100; t = 6.217 s: 103.2.
    for (start, end, expected) in [(0, 1000, 86), (1000, 4217, 100), (4217, 6217, 103)] {
        run(&mut *cubic, &mut subflows, Time::ZERO + start * MILLISECOND, Time::ZERO + end * MILLISECOND);
        assert!(subflows[0].cwnd().abs_diff(expected) <= 1, "at {end} ms: {}", subflows[0].cwnd());
    }
}

#[test]
fn the_window_grows_by_at_most_half_in_a_round_trip() {
    // An hour into the stage the curve is far above: 1.5 cwnd bounds the target.
    let mut subflows = subflows(&[subflow(100, 100)]);
    let mut cubic = build("cubic");
    lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO, 1));
    let before = subflows[0].cwnd();
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO + 3600 * SECOND, before));
    assert_eq!(subflows[0].cwnd(), before + before / 2);
}

#[test]
fn reno_friendly_at_a_short_round_trip() {
    // RTT 10 ms, cwnd 10, W_max 14.28: W_est leads. From 7 (0.7 of 10) it gains 0.529 a round trip up to
    // cwnd_prior = 10 (5.7 round trips), then 1: after 20 round trips about 10 + 14.3 = 24.3.
    let mut list = subflows(&[subflow(10, 10)]);
    let mut cubic = build("cubic");
    lose(&mut *cubic, &mut list, 10, LossCause::FastRetransmit);
    run(&mut *cubic, &mut list, Time::ZERO, Time::ZERO + 200 * MILLISECOND);
    assert!((22..=25).contains(&list[0].cwnd()), "{}", list[0].cwnd());
    // Linux's alpha stays: 7 + 20 * 0.529 = 17.6.
    let mut list = subflows(&[subflow(10, 10)]);
    let mut cubic = build("cubic(reno-alpha-one=false)");
    lose(&mut *cubic, &mut list, 10, LossCause::FastRetransmit);
    run(&mut *cubic, &mut list, Time::ZERO, Time::ZERO + 200 * MILLISECOND);
    assert!((16..=18).contains(&list[0].cwnd()), "{}", list[0].cwnd());
    // Without it the curve alone: 10 + 0.4 (0.2 - 1.96)^3 = 7.8.
    let mut list = subflows(&[subflow(10, 10)]);
    let mut cubic = build("cubic(reno-friendly=false)");
    lose(&mut *cubic, &mut list, 10, LossCause::FastRetransmit);
    run(&mut *cubic, &mut list, Time::ZERO, Time::ZERO + 200 * MILLISECOND);
    assert_eq!(list[0].cwnd(), 7);
}

#[test]
fn w_est_gains_alpha_per_window() {
    // alpha = 3 * 0.3 / 1.7 = 0.52941; a whole window of 7 acknowledged: 7 + 0.52941.
    let mut subflows = subflows(&[subflow(10, 10)]);
    let mut cubic = build("cubic");
    lose(&mut *cubic, &mut subflows, 10, LossCause::FastRetransmit);
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO, 7));
    assert_close(metric(&*cubic, &subflows, "w_est"), 7.0 + 0.9 / 1.7);
    assert_eq!(subflows[0].cwnd(), 7, "half a segment more");
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO, 7));
    assert_eq!(subflows[0].cwnd(), 8, "7 + 2 x 0.52941");
}

#[test]
fn a_timeout_forgets_w_max() {
    let mut subflows = subflows(&[subflow(100, 100)]);
    let mut cubic = build("cubic");
    lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
    assert_eq!(lose(&mut *cubic, &mut subflows, 100, LossCause::Timeout), 70);
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO + SECOND, 1));
    assert_close(metric(&*cubic, &subflows, "k"), 0.0);
    assert_close(metric(&*cubic, &subflows, "w_max"), 0.0);
}

#[test]
fn an_undo_brings_the_curve_back() {
    let mut subflows = subflows(&[subflow(100, 100)]);
    let mut cubic = build("cubic");
    lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO + SECOND, 1));
    let before = cubic.metrics_on(&subflows, 0);
    lose(&mut *cubic, &mut subflows, 80, LossCause::FastRetransmit);
    assert_ne!(cubic.metrics_on(&subflows, 0), before);
    cubic.undo_on(&subflows, 0);
    assert_eq!(cubic.metrics_on(&subflows, 0), before);
    // A second undo has nothing to bring back.
    cubic.undo_on(&subflows, 0);
    assert_eq!(cubic.metrics_on(&subflows, 0), before);
}

#[test]
fn idle_and_application_limited_time_does_not_count() {
    let trace = |pause: fn(&mut dyn CongestionControl, &mut [SubflowMetrics])| {
        let mut subflows = subflows(&[subflow(100, 100)]);
        let mut cubic = build("cubic");
        lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
        run(&mut *cubic, &mut subflows, Time::ZERO, Time::ZERO + SECOND);
        pause(&mut *cubic, &mut subflows);
        run(&mut *cubic, &mut subflows, Time::ZERO + 11 * SECOND, Time::ZERO + 12 * SECOND);
        subflows[0].cwnd()
    };
    let idle = trace(|cubic, subflows| cubic.idle_restart_on(subflows, 0, 10 * SECOND));
    let limited = trace(|cubic, subflows| {
        for second in 1..=11 {
            cubic.ack_on(subflows, 0, &Ack { cwnd_limited: false, ..at(Time::ZERO + second * SECOND, 5) });
        }
    });
    let counted = trace(|_, _| ());
    // t = 2 s: 100 + 0.4 (-2.217)^3 = 95.6; counted, 12 s: far past the plateau.
    assert!((94..=96).contains(&idle), "{idle}");
    assert!((94..=96).contains(&limited), "{limited}");
    assert!(counted > 150, "{counted}");
}

#[test]
fn before_any_loss_linux_grows_by_five_percent() {
    // ssthresh from HyStart at 100, no loss yet, t = 0: W(0.1) = 100.0004, or 5 % of 100.
    for (spec, expected) in [("cubic(reno-friendly=false)", 100), ("cubic:linux(reno-friendly=false)", 105)] {
        let mut subflows = subflows(&[subflow(100, 100)]);
        let mut cubic = build(spec);
        cubic.ack_on(&mut subflows, 0, &at(Time::ZERO, 100));
        assert_eq!(subflows[0].cwnd(), expected, "{spec}");
    }
}

#[test]
fn linux_looks_ahead_by_the_least_round_trip_time() {
    // srtt 1 s, least 100 ms; cwnd 70, W_max 100: W(1) = 86.68 and W(0.1) = 72.08.
    for (spec, expected) in [("cubic", 86), ("cubic:linux", 72)] {
        let mut subflows = subflows(&[subflow(100, 1000)]);
        let mut cubic = build(spec);
        cubic.ack_on(&mut subflows, 0, &Ack { rtt: Some(100 * MILLISECOND), ..at(Time::ZERO, 0) });
        lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
        cubic.ack_on(&mut subflows, 0, &at(Time::ZERO, 70));
        assert_eq!(subflows[0].cwnd(), expected, "{spec}");
    }
}

#[test]
fn for_a_second_after_a_stage_began_no_sample_counts_as_the_least() {
    // As above, a second into the stage: W(2) = 95.6 with srtt ahead, W(1.1) = 87.9 with the least.
    for (sampled, expected) in [(2 * SECOND - Span::from_nanos(1), 95), (2 * SECOND, 87)] {
        let mut subflows = subflows(&[subflow(100, 1000)]);
        let mut cubic = build("cubic:linux");
        lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
        cubic.ack_on(&mut subflows, 0, &at(Time::ZERO + SECOND, 1));
        cubic.ack_on(&mut subflows, 0, &Ack { rtt: Some(100 * MILLISECOND), ..at(Time::ZERO + sampled, 0) });
        cubic.ack_on(&mut subflows, 0, &at(Time::ZERO + 2 * SECOND, 70));
        assert_eq!(subflows[0].cwnd(), expected, "{sampled}");
    }
}

#[test]
fn slow_start_begins_no_stage() {
    let mut subflows = subflows(&[subflow(100, 100)]);
    let mut cubic = build("cubic");
    lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
    subflows[0].set_cwnd(60);
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO, 10));
    assert_eq!((subflows[0].cwnd(), metric(&*cubic, &subflows, "k")), (70, 0.0));
    cubic.ack_on(&mut subflows, 0, &at(Time::ZERO, 1));
    assert_close(metric(&*cubic, &subflows, "k"), 4.217163326508746);
}

/// Slow start over a path of 100 ms, `gap` between ACKs and the sample of the j-th ACK in its round.
fn slow_start_exit(spec: &str, first: u32, gap: Span, rtt: fn(u32, u32) -> Span) -> u32 {
    let mut subflows = subflows(&[subflow(first, 100)]);
    subflows[0].set_ssthresh(u32::MAX);
    let mut cubic = build(spec);
    cubic.added_on(&mut subflows, 0, Time::ZERO);
    for round in 1..=5 {
        let start = u64::from(round) * 100 * MILLISECOND;
        for j in 0..subflows[0].cwnd() {
            let now = start + u64::from(j) * gap;
            let round_start = j == 0;
            subflows[0].totals.delivered += 1;
            let in_flight = subflows[0].cwnd() - 1;
            subflows[0].set_packets_out(in_flight);
            cubic.ack_on(
                &mut subflows,
                0,
                &Ack { rtt: Some(rtt(round, j)), round_start, ..at(Time::ZERO + now, 1) },
            );
            if subflows[0].ssthresh() != u32::MAX {
                return subflows[0].ssthresh();
            }
        }
    }
    u32::MAX
}

#[test]
fn hystart_ends_slow_start_with_a_long_train() {
    // ACKs 1 ms apart; a round's train must last more than 50 ms: the round that starts at 40 has only
    // 40 ACKs, the next starts at 80 and ends slow start with the ACK 51 ms in, before it is counted.
    let constant = |_, _| 100 * MILLISECOND;
    assert_eq!(slow_start_exit("cubic", 40, MILLISECOND, constant), 80 + 51);
    assert_eq!(slow_start_exit("cubic(hystart=false)", 40, MILLISECOND, constant), u32::MAX);
    // 3 ms apart is no train.
    assert_eq!(slow_start_exit("cubic", 40, 3 * MILLISECOND, constant), u32::MAX);
}

#[test]
fn hystart_has_linux_s_clock_and_allows_for_bursts() {
    // 2.0009 ms are 2 ms by a clock of microseconds, and the gap from there to 4.001 ms is longer.
    let hear = |train: &mut HyStart, now, rate| train.on_ack(&at(now, 1), 40 * MILLISECOND, rate, HYSTART);
    let mut train = HyStart::default();
    assert!(!hear(&mut train, Time::from_nanos(2_000_900), 0));
    assert_eq!(train.last_ack, Time::ZERO + 2 * MILLISECOND);
    assert!(!hear(&mut train, Time::from_nanos(4_001_000), 0));
    assert_eq!(train.last_ack, Time::ZERO + 2 * MILLISECOND, "the train is over");
    assert_eq!((burst_time(0), burst_time(1_000_000)), (Span::ZERO, MILLISECOND));
    assert_eq!(burst_time(1_000_000_000), Span::from_nanos(262_144));
    // More than half of 40 ms, and of the burst's 1 ms, in steps of 0.1 ms.
    for (rate, step) in [(0, 201), (1_000_000, 206), (1_000_000_000, 202)] {
        let mut train = HyStart::default();
        let found = (1..600).find(|step| hear(&mut train, Time::ZERO + *step * MILLISECOND / 10, rate));
        assert_eq!(found, Some(step), "{rate}");
    }
}

#[test]
fn hystart_ends_slow_start_with_a_longer_delay() {
    // Least 100 ms: the limit is 12.5 ms more. In round 2 every sample is 113 ms: the ninth ends it.
    let late = |round, _| if round == 1 { 100 * MILLISECOND } else { 113 * MILLISECOND };
    assert_eq!(slow_start_exit("cubic", 20, 3 * MILLISECOND, late), 40 + 8);
    let slightly = |round, _| if round == 1 { 100 * MILLISECOND } else { Span::from_micros(112500) };
    assert_eq!(slow_start_exit("cubic", 20, 3 * MILLISECOND, slightly), u32::MAX);
    // One early sample keeps the round's least down.
    let one_low = |round, j| if round == 1 || j == 3 { 100 * MILLISECOND } else { 130 * MILLISECOND };
    assert_eq!(slow_start_exit("cubic", 20, 3 * MILLISECOND, one_low), u32::MAX);
}

/// Linux 3.14: a clock of milliseconds, no allowance, and a sixteenth of the least round-trip time.
#[test]
fn hystart_of_2014_ticks_in_milliseconds_and_ends_with_a_shorter_delay() {
    let hear =
        |train: &mut HyStart, now| train.on_ack(&at(now, 1), 40 * MILLISECOND, 1_000_000, HYSTART_3_14);
    let mut train = HyStart::default();
    assert!(!hear(&mut train, Time::from_nanos(2_900_000)));
    assert_eq!(train.last_ack, Time::ZERO + 2 * MILLISECOND);
    assert!(!hear(&mut train, Time::from_nanos(4_900_000)));
    assert_eq!(train.last_ack, Time::ZERO + 4 * MILLISECOND, "2 ms later by its clock");
    let mut train = HyStart::default();
    assert_eq!((1..600).find(|step| hear(&mut train, Time::ZERO + *step * MILLISECOND / 10)), Some(210));
    // Least 100 ms: 6.25 ms more. The round begins after its first ACK.
    for (later, exit) in [(106_250_000, u32::MAX), (106_250_001, 40 + 9)] {
        let late = if later == 106_250_000 {
            |round, _| if round == 1 { 100 * MILLISECOND } else { Span::from_micros(106250) }
        } else {
            |round, _| if round == 1 { 100 * MILLISECOND } else { Span::from_nanos(106_250_001) }
        };
        assert_eq!(slow_start_exit("cubic:linux-3.14", 20, 3 * MILLISECOND, late), exit);
    }
}

#[test]
fn hystart_of_2014_judges_a_round_by_its_first_eight_samples() {
    // Eight samples of 150 ms, then one of 100 ms, which is the least so far. The round begins after its
    // first ACK.
    let early = |round, j| if round == 1 || j >= 9 { 100 * MILLISECOND } else { 150 * MILLISECOND };
    assert_eq!(slow_start_exit("cubic:linux-3.14", 20, 3 * MILLISECOND, early), 40 + 9);
    let early = |round, j| if round == 1 || j >= 8 { 100 * MILLISECOND } else { 150 * MILLISECOND };
    assert_eq!(slow_start_exit("cubic:linux", 20, 3 * MILLISECOND, early), u32::MAX);
}

/// 4.19's bound is an eighth of the least round-trip time, 3.14's a sixteenth; both rounds begin by sequence.
#[test]
fn hystart_of_2018_allows_twice_the_delay() {
    for (spec, exit) in [("cubic:linux-3.14", 40 + 9), ("cubic:linux-4.19", u32::MAX)] {
        let late = |round, _| if round == 1 { 100 * MILLISECOND } else { 110 * MILLISECOND };
        assert_eq!(slow_start_exit(spec, 20, 3 * MILLISECOND, late), exit, "{spec}");
    }
    let late = |round, _| if round == 1 { 100 * MILLISECOND } else { 113 * MILLISECOND };
    assert_eq!(slow_start_exit("cubic:linux-4.19", 20, 3 * MILLISECOND, late), 40 + 9);
}

/// Before a loss a window grows by a twentieth of a segment per segment. ACKs of two segments make a tenth
/// each, so that a segment takes ten ACKs, and one more.
#[test]
fn a_host_that_counts_acks_corrects_for_delayed_ones_and_takes_one_more() {
    for (counting, acks) in [(AckCounting::Segments, 10), (AckCounting::OneInAvoidance, 11)] {
        let mut subflows = subflows(&[subflow(100, 50)]);
        subflows[0].set_ssthresh(10);
        let mut cubic = build("cubic:linux-3.14");
        let grown = (1..).find(|_| {
            cubic.ack_on(&mut subflows, 0, &Ack { counting, ..ack(2) });
            subflows[0].cwnd() == 101
        });
        assert_eq!(grown, Some(acks));
    }
}

/// ACKs of two segments: W_est grows by an ACK's share, not by two segments'.
#[test]
fn a_host_that_counts_acks_follows_reno_by_them() {
    let estimate = |counting| {
        let mut subflows = subflows(&[subflow(100, 50)]);
        let mut cubic = build("cubic:linux-3.14");
        lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
        subflows[0].set_ssthresh(10);
        cubic.ack_on(&mut subflows, 0, &Ack { counting, ..ack(2) });
        metric(&*cubic, &subflows, "w_est") - 70.0
    };
    assert_close(estimate(AckCounting::Segments), 2.0 * estimate(AckCounting::OneInAvoidance));
}

#[test]
fn hystart_waits_for_a_window_of_sixteen() {
    // Rounds of 4 and 8 are not judged; the round that starts at 16 is.
    let late = |round, _| if round == 1 { 100 * MILLISECOND } else { 150 * MILLISECOND };
    assert_eq!(slow_start_exit("cubic", 4, 3 * MILLISECOND, late), 16 + 8);
}
