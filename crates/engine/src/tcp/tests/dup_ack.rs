//! Loss detection by counting, and what else a host of 2014 does: RFC 6675, RFC 5827, FACK, Linux 3.14.

use ropewalk_wire::{Flags, Segment, SyntheticPayload};

use super::super::testing::{End, with_cwnd, with_recovery};
use crate::config::{LossDetection, RecoveryConfig, WindowLimit};
use crate::metrics::CaState;
use crate::tcp::TcpConfig;
use crate::{MILLISECOND, Span, Time};

fn counting() -> TcpConfig {
    counting_with(|_| ())
}

fn counting_with(change: impl FnOnce(&mut RecoveryConfig)) -> TcpConfig {
    with_recovery(|recovery| {
        recovery.loss_detection = LossDetection::DuplicateAcks;
        change(recovery);
    })
}

/// Ten segments of 1000 bytes in flight, positions 1 to 10,000, round-trip time 100 ms; nothing more to send.
fn ten_in_flight(tcp: TcpConfig) -> End {
    ten_in_flight_of(tcp, 10_000)
}

fn ten_in_flight_of(tcp: TcpConfig, bytes: u64) -> End {
    let mut end = End::open(tcp, 100);
    end.push(bytes);
    assert_eq!(end.sent_data().len(), 10);
    end.now = Time::ZERO + 200 * MILLISECOND;
    end
}

/// FACK: the highest sacked segment counts with all below it, so that one SACK is enough if it lies far
/// ahead.
#[test]
fn a_hole_is_lost_once_it_is_more_than_the_threshold_behind() {
    let mut end = ten_in_flight(counting());
    end.sack(1, &[(3001, 4001)]);
    let lost = |end: &End| end.metrics().lost_out();
    assert_eq!((lost(&end), end.metrics().ca_state()), (1, CaState::Recovery), "four up to the highest");
    let mut end = ten_in_flight(counting());
    end.sack(1, &[(2001, 3001)]);
    assert_eq!((lost(&end), end.metrics().ca_state()), (0, CaState::Disorder), "three");
    assert_eq!(end.sent_data(), []);
    end.sack(1, &[(2001, 3001), (5001, 6001)]);
    assert_eq!(lost(&end), 2, "the first two of six are more than three behind; the third is sacked");
    assert_eq!(end.sent_data()[0], (1, 1000));
}

/// By time the same hole is found when a quarter of the round-trip time is over; by counting never.
#[test]
fn fewer_than_the_threshold_wait_for_the_timeout() {
    let mut end = ten_in_flight(counting_with(|recovery| recovery.tail_loss_probe = false));
    end.sack(1, &[(1001, 2001)]);
    let again = end.wait(600);
    assert_eq!((end.subflow.counters().fast_retrans, end.subflow.counters().timeouts), (0, 1));
    assert_eq!(again[0].1.segment.seq.0, 1);
}

/// Thirty segments in flight, of which the ninth is sacked: the first six are lost. Then another one is
/// sacked that wasn't retransmitted.
fn late(position: u32) -> End {
    let mut tcp = counting();
    tcp.cwnd.initial_window = 30;
    let mut end = End::open(tcp, 100);
    end.push(30_000);
    assert_eq!(end.sent_data().len(), 30);
    end.now = Time::ZERO + 200 * MILLISECOND;
    end.sack(1, &[(8001, 9001)]);
    assert_eq!(end.metrics().lost_out(), 6);
    end.sack(1, &[(position, position + 1000), (8001, 9001)]);
    end
}

/// The seventh comes after the ninth: late by three, the threshold. With FACK the twentieth sacked says that
/// 17 are lost, of which two are sacked.
#[test]
fn a_segment_late_by_the_threshold_keeps_forward_acknowledgement() {
    let mut end = late(6001);
    end.sack(1, &[(19_001, 20_001), (6001, 7001), (8001, 9001)]);
    assert_eq!(end.metrics().lost_out(), 15);
}

/// The fifth comes after the ninth: late by five, which is the threshold from now on, and sacked segments
/// count. Three don't reach it; the sixth says that what lies before more than one sacked segment is lost.
#[test]
fn a_segment_late_by_more_raises_the_threshold_and_then_sacked_segments_count() {
    let mut end = late(4001);
    end.sack(1, &[(19_001, 20_001), (4001, 5001), (8001, 9001)]);
    assert_eq!(end.metrics().lost_out(), 5, "the first four, and the sixth");
    end.sack(1, &[(19_001, 23_001), (4001, 5001), (8001, 9001)]);
    assert_eq!(
        (end.metrics().sacked_out(), end.metrics().lost_out()),
        (6, 7),
        "the eighth lies before five sacked ones"
    );
    end.sack(1, &[(19_001, 25_001), (4001, 5001), (8001, 9001)]);
    assert_eq!(
        (end.metrics().sacked_out(), end.metrics().lost_out()),
        (8, 17),
        "what lies before more than three sacked ones"
    );
}

/// Nothing is in flight, and the first of ten came last, after the ninth: late by nine.
fn late_by_nine() -> End {
    let mut end = ten_in_flight(counting());
    end.sack(1, &[(8001, 9001)]);
    end.ack(1001);
    end.ack(10_001);
    assert_eq!((end.metrics().ca_state(), end.metrics().packets_out()), (CaState::Open, 0));
    end
}

/// Twenty segments more, of which the first is missing: how many that came after it are sacked when it is
/// lost.
fn sacked_until_recovery(mut end: End) -> Option<u32> {
    let (first, mss) = (end.subflow.snd_nxt() as u32, end.metrics().mss);
    end.metrics.set_cwnd(20);
    end.push(u64::from(20 * mss));
    assert_eq!(end.sent_data().len(), 20);
    end.now += 100 * MILLISECOND;
    (1..20).find(|sacked| {
        end.sack(first.into(), &[(first + mss, first + mss + sacked * mss)]);
        assert!(end.metrics().lost_out() <= 1);
        end.metrics().ca_state() == CaState::Recovery
    })
}

#[test]
fn as_many_sacked_as_the_threshold_begin_recovery() {
    assert_eq!(sacked_until_recovery(late_by_nine()), Some(9));
    let mut end = ten_in_flight(counting());
    end.ack(10_001);
    assert_eq!(sacked_until_recovery(end), Some(3), "with the one below them four");
}

/// The first of ten was retransmitted, but the echoed timestamp is that of the original, which came after the
/// ninth.
#[test]
fn an_original_that_comes_after_its_retransmission_is_late_too() {
    let mut tcp = counting();
    tcp.timestamps = true;
    let mut end = ten_in_flight_of(tcp, 9880);
    end.sack(1, &[(8 * 988 + 1, 9 * 988 + 1)]);
    assert_eq!(end.sent_data()[0], (1, 988));
    end.now += 10 * MILLISECOND;
    let mut ack = end.peer(Flags::default(), 989);
    ack.timestamps.as_mut().unwrap().echo = 100;
    end.receive(ack);
    end.ack(9881);
    assert_eq!((end.metrics().ca_state(), end.metrics().packets_out()), (CaState::Open, 0));
    assert_eq!(sacked_until_recovery(end), Some(9));
}

/// Eight segments are in flight, fewer than the threshold: half of them sacked is enough, unless something
/// new can be sent.
#[test]
fn half_of_the_window_is_enough_if_nothing_new_can_be_sent() {
    for (sacked, more, cwnd, lost) in
        [(3, false, 10, 0), (4, false, 10, 1), (4, true, 10, 0), (4, true, 4, 1)]
    {
        let mut end = late_by_nine();
        end.push(8000);
        assert_eq!(end.sent_data().len(), 8);
        end.now += 100 * MILLISECOND;
        end.more = more;
        end.metrics.set_cwnd(cwnd);
        end.sack(10_001, &[(11_001, 11_001 + 1000 * sacked)]);
        assert_eq!(end.metrics().lost_out(), lost, "{sacked} {more} {cwnd}");
    }
}

/// In recovery each ACK that says something new counts, a partial one and one with data, but only beyond the
/// threshold.
#[test]
fn in_recovery_any_news_beyond_the_threshold_marks() {
    let recovering = || {
        let mut end = ten_in_flight(counting());
        end.sack(1, &[(3001, 4001)]);
        assert_eq!((end.metrics().lost_out(), end.metrics().ca_state()), (1, CaState::Recovery));
        end.sent_data();
        end
    };
    let mut end = recovering();
    end.ack(1001);
    assert_eq!(end.metrics().lost_out(), 0, "three up to the highest");
    let mut end = recovering();
    end.sack(1001, &[(3001, 6001)]);
    assert_eq!(end.metrics().lost_out(), 2, "five");
    let mut end = recovering();
    let mut data = end.peer(Flags::default(), 1);
    data.payload = SyntheticPayload(100);
    data.sack.push(3001, 6001);
    end.receive(data);
    assert_eq!(end.metrics().lost_out(), 3, "six");
}

/// What was sent after a timeout isn't counted before recovery from it is over.
#[test]
fn nothing_is_counted_in_recovery_from_a_timeout() {
    let mut end =
        End::open(counting_with(|recovery| (recovery.tail_loss_probe, recovery.undo) = (false, false)), 100);
    end.push(30_000);
    end.sent_data();
    end.now = end.subflow.poll_timeout().unwrap();
    let (mut cx, subflow) = end.split();
    subflow.on_timeout(&mut cx);
    assert_eq!(end.sent_data(), [(1, 1000)]);
    end.now += 100 * MILLISECOND;
    end.ack(9001);
    let sent = end.sent_data();
    assert!(sent[0].0 == 9001 && sent.contains(&(14_001, 1000)), "{sent:?}");
    end.now += 100 * MILLISECOND;
    end.sack(9001, &[(14_001, 15_001)]);
    assert_eq!((end.metrics().ca_state(), end.metrics().lost_out()), (CaState::Loss, 1));
}

/// A first entry of more segments than are lost is lost as a whole.
#[test]
fn a_super_segment_at_the_head_is_lost_as_a_whole() {
    let mut end = End::open(counting(), 100);
    end.push(8000);
    for _ in 0..2 {
        let (mut cx, subflow) = end.split();
        assert!(subflow.poll_transmit(&mut cx, 4, &mut Segment::blank()).is_some());
    }
    assert_eq!((end.metrics().packets_out(), end.sent_data().len()), (8, 0));
    end.now = Time::ZERO + 200 * MILLISECOND;
    end.sack(1, &[(4001, 5001)]);
    assert_eq!((end.metrics().ca_state(), end.metrics().lost_out()), (CaState::Recovery, 4));
}

/// Any late segment ends early retransmit.
#[test]
fn a_late_segment_ends_early_retransmit() {
    let tcp = counting_with(|recovery| {
        (recovery.early_retransmit, recovery.tail_loss_probe) = (true, false);
    });
    let mut end = End::open(tcp, 100);
    end.push(3000);
    end.sent_data();
    end.now = Time::ZERO + 200 * MILLISECOND;
    end.sack(1, &[(1001, 2001)]);
    end.ack(3001);
    end.push(3000);
    end.sent_data();
    end.now = Time::ZERO + 300 * MILLISECOND;
    end.sack(3001, &[(4001, 5001)]);
    assert!(end.wait(390).is_empty());
}

/// Early retransmit doesn't wait where the timeout would come first.
#[test]
fn early_retransmit_is_at_once_if_the_timeout_comes_before_it() {
    let tcp = counting_with(|recovery| {
        (recovery.early_retransmit, recovery.tail_loss_probe) = (true, false);
    });
    let mut end = End::open(tcp, 100);
    end.push(3000);
    end.sent_data();
    let timeout = end.subflow.poll_timeout().unwrap();
    end.now = timeout - 20 * MILLISECOND;
    end.sack(1, &[(1001, 2001)]);
    assert_eq!(end.sent_data(), [(1, 1000)]);
    assert_eq!((end.metrics().ca_state(), end.subflow.counters().timeouts), (CaState::Recovery, 0));
}

/// A timeout that turns out spurious is undone, unless something outstanding was retransmitted before. A tail
/// loss probe is no such retransmission.
#[test]
fn a_timeout_after_retransmissions_is_not_undone() {
    let cases = [(false, 1, 1), (false, 2, 0), (true, 1, 1), (true, 2, 0)];
    for (segments, (probe, timeouts, undone)) in [1, 10].into_iter().flat_map(|n| cases.map(|case| (n, case)))
    {
        let mut tcp = counting_with(|recovery| recovery.tail_loss_probe = probe);
        tcp.timestamps = true;
        let mut end = End::open(tcp, 100);
        end.push(segments * 988);
        assert_eq!(end.sent_data().len() as u64, segments);
        let time_out = |end: &mut End| {
            end.now = end.subflow.poll_timeout().unwrap();
            let (mut cx, subflow) = end.split();
            subflow.on_timeout(&mut cx);
            end.sent_data()
        };
        if probe {
            assert_eq!(time_out(&mut end), [(segments as u32 * 988 - 987, 988)], "the last one again");
            assert_eq!((end.subflow.counters().loss_probes, end.subflow.counters().timeouts), (1, 0));
        }
        for _ in 0..timeouts {
            assert_eq!(time_out(&mut end), [(1, 988)]);
        }
        let mut ack = end.peer(Flags::default(), 989);
        ack.timestamps.as_mut().unwrap().echo = 100;
        end.receive(ack);
        assert_eq!(end.subflow.counters().loss_undo, undone, "{segments} {probe} {timeouts}");
    }
}

/// Where the threshold was raised, SACKs alone let the window grow.
#[test]
fn the_window_grows_out_of_order_once_the_threshold_is_raised() {
    let mut end = ten_in_flight(counting());
    end.sack(1, &[(2001, 3001)]);
    assert_eq!(end.metrics().cwnd(), 10);
    end.sack(1, &[(8001, 9001), (2001, 3001)]);
    assert_eq!(end.metrics().ca_state(), CaState::Recovery);
    // Nothing was retransmitted yet, so the first was late: by nine.
    end.ack(1001);
    assert_eq!((end.metrics().ca_state(), end.subflow.counters().partial_undo), (CaState::Disorder, 1));
    let before = end.metrics().cwnd();
    end.sack(1001, &[(9001, 10_001), (8001, 9001), (2001, 3001)]);
    assert_eq!(end.metrics().cwnd(), before + 1);
}

/// A retransmission is lost if something is sacked that was first sent after it.
#[test]
fn a_lost_retransmission_is_found_by_what_was_sent_after_it() {
    let mut end = End::open(counting(), 100);
    end.push(20_000);
    end.sent_data();
    end.now = Time::ZERO + 200 * MILLISECOND;
    end.sack(1, &[(1001, 5001)]);
    assert_eq!(end.sent_data()[0], (1, 1000));
    end.now = Time::ZERO + 210 * MILLISECOND;
    end.sack(1, &[(1001, 10_001)]);
    assert!(end.sent_data().iter().all(|(seq, _)| *seq > 10_000));
    end.now = Time::ZERO + 310 * MILLISECOND;
    end.sack(1, &[(1001, 11_001)]);
    assert_eq!(end.sent_data()[0], (1, 1000));
    assert_eq!(end.subflow.counters().lost_retransmit, 1);
}

/// Twelve segments, of which the first is missing and ten are sacked: it is retransmitted, and new ones are
/// sent. What was sent at the same moment says nothing of the retransmission, and nothing does where the
/// threshold was raised.
#[test]
fn a_retransmission_is_lost_only_by_what_was_sent_later_and_without_a_raised_threshold() {
    for (mut end, lost) in [(End::open(counting(), 100), 1), (late_by_nine(), 0)] {
        let first = end.subflow.snd_nxt() as u32;
        let sack = |end: &mut End, to| {
            end.now += 100 * MILLISECOND;
            end.sack(first.into(), &[(first + 1000, first + to)]);
            end.sent_data()
        };
        end.metrics.set_cwnd(12);
        end.push(30_000);
        end.sent_data();
        let sent = sack(&mut end, 11_000);
        assert_eq!(sent[..2], [(first, 1000), (first + 12_000, 1000)]);
        let last = sent[sent.len() - 1].0 - first;
        let later = sack(&mut end, last + 1000);
        assert_eq!((later[0].0, end.subflow.counters().lost_retransmit), (first + last + 1000, 0));
        sack(&mut end, last + 2000);
        assert_eq!(end.subflow.counters().lost_retransmit, lost);
    }
}

/// Early retransmit: of three segments the first is missing and nothing more is to be sent; a quarter of the
/// round-trip time later it is sent again. With more than three in flight it waits for the threshold.
#[test]
fn early_retransmit_needs_no_threshold_for_less_than_four_segments() {
    for (early, segments, when) in [(true, 3, Some(225)), (false, 3, None), (true, 4, None)] {
        let tcp = counting_with(|recovery| {
            (recovery.early_retransmit, recovery.tail_loss_probe) = (early, false);
        });
        let mut end = End::open(tcp, 100);
        end.push(segments * 1000);
        end.sent_data();
        end.now = Time::ZERO + 200 * MILLISECOND;
        end.sack(1, &[(1001, 2001)]);
        let again = end.wait(399).first().map(|(at, sent)| (*at, sent.segment.seq.0));
        assert_eq!(again, when.map(|at| (at, 1)), "{early} {segments}");
    }
}

/// With a round-trip time of 4 ms a quarter is less than early retransmit's shortest wait, 2 ms.
#[test]
fn early_retransmit_waits_for_two_milliseconds_at_least() {
    let tcp = counting_with(|recovery| {
        (recovery.early_retransmit, recovery.tail_loss_probe) = (true, false);
    });
    let mut end = End::open(tcp, 4);
    end.push(3000);
    end.sent_data();
    end.now = Time::ZERO + 8 * MILLISECOND;
    end.sack(1, &[(1001, 2001)]);
    assert_eq!(end.wait(20).first().map(|(at, sent)| (*at, sent.segment.seq.0)), Some((10, 1)));
}

/// The missing segment arrives while early retransmit waits: nothing is sent again.
#[test]
fn early_retransmit_is_called_off_by_progress() {
    let tcp = counting_with(|recovery| {
        (recovery.early_retransmit, recovery.tail_loss_probe) = (true, false);
    });
    let mut end = End::open(tcp, 100);
    end.push(3000);
    end.sent_data();
    end.now = Time::ZERO + 200 * MILLISECOND;
    end.sack(1, &[(1001, 2001)]);
    end.now = Time::ZERO + 210 * MILLISECOND;
    end.ack(3001);
    end.push(1000);
    assert_eq!(end.sent_data(), [(3001, 1000)]);
    assert!(end.wait(399).is_empty());
}

/// The timeout is as near as early retransmit, but nothing is sacked.
#[test]
fn early_retransmit_needs_a_sack() {
    let tcp = counting_with(|recovery| {
        (recovery.early_retransmit, recovery.tail_loss_probe) = (true, false);
    });
    let mut end = End::open(tcp, 100);
    end.push(3000);
    end.sent_data();
    end.now = end.subflow.poll_timeout().unwrap() - 20 * MILLISECOND;
    end.ack(1);
    assert_eq!(end.sent_data(), []);
}

/// The SYN was repeated, so that there is no round-trip time yet: a host that counts sends no tail loss
/// probe.
#[test]
fn a_probe_waits_for_a_round_trip_time_where_losses_are_counted() {
    for (loss_detection, probes) in [(LossDetection::DuplicateAcks, 0), (LossDetection::Rack, 1)] {
        let mut end = End::client(with_recovery(|recovery| recovery.loss_detection = loss_detection));
        assert_eq!(end.wait(1500).len(), 2, "SYNs");
        let syn_ack = end.syn_ack();
        assert!(end.receive(syn_ack).established);
        assert_eq!(end.metrics().rtt.smoothed, Span::ZERO);
        end.push(2000);
        end.wait(4000);
        assert_eq!(end.subflow.counters().loss_probes, probes, "{loss_detection:?}");
    }
}

/// A timeout takes everything for lost that isn't sacked, however recently it was sent.
#[test]
fn a_timeout_marks_everything() {
    let mut end = End::open(counting_with(|recovery| recovery.tail_loss_probe = false), 100);
    end.push(20_000);
    assert_eq!(end.sent_data().len(), 10);
    end.now = Time::ZERO + 350 * MILLISECOND;
    end.ack(3001);
    end.sent_data();
    end.sack(3001, &[(4001, 5001)]);
    let outstanding = end.metrics().packets_out();
    end.now = end.subflow.poll_timeout().unwrap();
    let (mut cx, subflow) = end.split();
    subflow.on_timeout(&mut cx);
    assert_eq!(end.metrics().ca_state(), CaState::Loss);
    assert_eq!(end.metrics().lost_out(), outstanding - 1);
    assert_eq!(end.sent_data(), [(3001, 1000)]);
}

/// A timeout leaves one segment of window, or one beyond what is still in flight.
#[test]
fn a_timeout_leaves_one_segment_or_one_more_than_is_in_flight() {
    for one in [false, true] {
        let tcp = with_recovery(|recovery| {
            (recovery.tail_loss_probe, recovery.loss_window_one) = (false, one);
        });
        let mut end = End::open(tcp, 100);
        end.push(20_000);
        end.sent_data();
        end.now = Time::ZERO + 350 * MILLISECOND;
        end.ack(3001);
        end.now = Time::ZERO + 560 * MILLISECOND;
        assert!(!end.sent_data().is_empty(), "these aren't overdue at the timeout");
        end.now = end.subflow.poll_timeout().unwrap();
        let (mut cx, subflow) = end.split();
        subflow.on_timeout(&mut cx);
        let in_flight = end.metrics().in_flight();
        assert!(end.metrics().ca_state() == CaState::Loss && in_flight > 0);
        assert_eq!(end.metrics().cwnd(), if one { 1 } else { in_flight + 1 });
    }
}

/// PRR's slow start in every ACK below the threshold, or only in those that advance without a new loss.
#[test]
fn prr_grows_by_one_more_where_it_always_starts_slowly() {
    let window = |prr_slow_start| {
        let mut end = ten_in_flight(counting_with(|recovery| recovery.prr_slow_start = prr_slow_start));
        end.sack(1, &[(8001, 9001)]);
        assert_eq!(end.metrics().lost_out(), 6, "nine up to the highest, less three");
        (end.metrics().in_flight(), end.metrics().cwnd())
    };
    assert_eq!(window(false), (3, 4));
    assert_eq!(window(true), (3, 5));
}

/// The window grows for an ACK that finds it full, or for each in a window of data that filled it.
#[test]
fn the_window_is_the_limit_by_ack_or_by_window() {
    for (window_limit, grown) in
        [(WindowLimit::PerWindow, 12), (WindowLimit::PerAck, 11), (WindowLimit::Always, 12)]
    {
        let mut end = End::open(with_cwnd(|cwnd| cwnd.window_limit = window_limit), 100);
        end.push(10_000);
        end.sent_data();
        end.now = Time::ZERO + 200 * MILLISECOND;
        end.ack(1001);
        assert_eq!(end.metrics().cwnd(), 11, "ten of ten in flight");
        // Seven are left when five more are acknowledged.
        end.ack(3001);
        end.ack(4001);
        let before = end.metrics().cwnd();
        end.ack(5001);
        assert_eq!(end.metrics().cwnd() - before + 11, grown, "{window_limit:?}");
    }
}

/// Three of ten segments are in flight: the window grows where nothing asks whether it is used.
#[test]
fn an_unused_window_grows_only_where_that_is_chosen() {
    for (window_limit, grown) in
        [(WindowLimit::PerWindow, 10), (WindowLimit::PerAck, 10), (WindowLimit::Always, 13)]
    {
        let mut end = End::open(with_cwnd(|cwnd| cwnd.window_limit = window_limit), 100);
        end.push(3_000);
        end.sent_data();
        end.now = Time::ZERO + 200 * MILLISECOND;
        end.ack(3001);
        assert_eq!(end.metrics().cwnd(), grown, "{window_limit:?}");
    }
}

/// A threshold from the route's cache: slow start ends there.
#[test]
fn slow_start_ends_at_a_cached_threshold() {
    let mut end = End::open(with_cwnd(|cwnd| cwnd.initial_ssthresh = 12), 100);
    assert_eq!(end.metrics().ssthresh(), 12);
    end.push(40_000);
    end.sent_data();
    end.now = Time::ZERO + 200 * MILLISECOND;
    end.ack(8001);
    assert!(end.metrics().cwnd() <= 13, "{}", end.metrics().cwnd());
}

/// The ninth of ten segments is a hole that is not yet lost, one below the highest SACK.
#[test]
fn a_hole_that_is_not_lost_is_retransmitted_once_nothing_else_is_left() {
    for forward in [false, true] {
        let mut end = ten_in_flight(counting_with(|recovery| recovery.forward_retransmit = forward));
        end.sack(1, &[(1001, 8001), (9001, 10_001)]);
        assert_eq!((end.metrics().lost_out(), end.metrics().ca_state()), (1, CaState::Recovery));
        let expected: &[(u32, u32)] = if forward { &[(1, 1000), (8001, 1000)] } else { &[(1, 1000)] };
        assert_eq!(end.sent_data(), expected, "{forward}");
        assert_eq!(end.metrics().retrans_out(), expected.len() as u32);
        // Counted as lost later, it stays in flight.
        end.ack(10_001);
        assert_eq!(
            (end.metrics().retrans_out(), end.metrics().lost_out(), end.metrics().packets_out()),
            (0, 0, 0)
        );
    }
}
