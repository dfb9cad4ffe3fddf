//! Loss detection and recovery: RFC 8985, RFC 6675's and RFC 6582's cases, RFC 6298's timer.

use ropewalk_wire::{Flags, Segment, Timestamps};

use super::super::testing::{End, MSS, plain_config, with_recovery, without_tlp};
use crate::metrics::CaState;
use crate::scheduler::Fate;
use crate::tcp::TcpConfig;
use crate::{MILLISECOND, SECOND, Span, Time};

/// Ten segments of 1000 bytes in flight, positions 1 to 10,000, round-trip time 100 ms.
fn ten_in_flight(tcp: TcpConfig) -> End {
    let mut end = End::open(tcp, 100);
    end.push(20_000);
    let sent = end.sent_data();
    assert_eq!(sent.len(), 10, "the initial window (RFC 6928)");
    assert_eq!((sent[0], sent[9]), ((1, 1000), (9001, 1000)));
    end.now = Time::ZERO + 200 * MILLISECOND;
    end
}

//= test RFC 8985 6.2-f
/// RFC 8985's first example: of three segments the first is lost; the SACK of the others finds it once the
/// reordering window, a quarter of the least round-trip time, is over.
#[test]
fn rack_finds_a_loss_by_time_with_fewer_than_three_sacks() {
    let mut end = End::open(plain_config(), 100);
    end.push(3000);
    assert_eq!(end.sent_data().len(), 3);
    end.now = Time::ZERO + 200 * MILLISECOND;
    end.sack(1, &[(1001, 3001)]);
    assert_eq!(end.sent_data(), []);
    assert_eq!(end.metrics().ca_state(), CaState::Disorder);
    let again = end.wait(400);
    assert_eq!((again.len(), again[0].0, again[0].1.segment.seq.0), (1, 225, 1));
    assert_eq!((end.metrics().ca_state(), end.subflow.counters().fast_retrans), (CaState::Recovery, 1));
}

/// Three segments sacked above the hole: at once, as with three duplicate ACKs.
#[test]
fn three_sacks_find_a_loss_at_once() {
    let mut end = ten_in_flight(plain_config());
    end.sack(1, &[(1001, 2001)]);
    end.sack(1, &[(1001, 3001)]);
    assert_eq!(end.sent_data(), [(10_001, 1000), (11_001, 1000)], "limited transmit (RFC 3042)");
    end.sack(1, &[(1001, 4001)]);
    assert_eq!(end.sent_data(), [(1, 1000)]);
    assert_eq!(end.metrics().ssthresh(), 5);
    assert_eq!(end.subflow.counters().sack_recovery, 1);
}

//= test RFC 8985 6.2-f
/// RFC 8985's second example, a lost retransmission: found when something sent after it is sacked.
#[test]
fn rack_finds_a_lost_retransmission() {
    let mut end = ten_in_flight(plain_config());
    end.sack(1, &[(1001, 4001)]);
    assert_eq!(end.sent_data()[0], (1, 1000));
    end.now = Time::ZERO + 210 * MILLISECOND;
    end.sack(1, &[(1001, 9001)]);
    let new = end.sent_data();
    assert!(!new.is_empty() && new.iter().all(|(seq, _)| *seq > 10_000), "{new:?}");
    // A round trip later what was sent after the retransmission arrives, and the retransmission hasn't.
    end.now = Time::ZERO + 311 * MILLISECOND;
    end.sack(1, &[(1001, 11_001)]);
    assert_eq!(end.sent_data()[0], (1, 1000));
    assert_eq!(end.subflow.counters().lost_retransmit, 1);
}

/// Reordering that was seen keeps the window open although three segments are sacked.
#[test]
fn after_reordering_rack_waits_a_quarter_of_the_round_trip() {
    let mut end = ten_in_flight(plain_config());
    end.sack(1, &[(1001, 2001)]);
    end.ack(2001);
    assert_eq!(end.subflow.counters().sack_reorder, 1);
    end.sent_data();
    end.sack(2001, &[(3001, 7001)]);
    assert!(end.sent_data().iter().all(|(seq, _)| *seq > 10_000), "nothing is lost yet");
    let again = end.wait(300);
    assert_eq!((again[0].0, again[0].1.segment.seq.0), (225, 2001));
}

/// One ACK that tells of two holes at once, the upper first as RFC 2018 wants it, is no reordering.
#[test]
fn the_order_of_sack_blocks_is_not_reordering() {
    let mut end = ten_in_flight(plain_config());
    end.sack(1, &[(8001, 9001), (4001, 5001), (2001, 3001)]);
    assert_eq!(end.subflow.counters().sack_reorder, 0);
    assert_eq!(end.sent_data()[0], (1, 1000));
}

/// Without SACK: the third duplicate ACK (RFC 5681 3.2), new data for the first two (RFC 3042), and each
/// partial ACK brings the next segment (RFC 6582).
#[test]
fn newreno_without_sack() {
    let mut end = ten_in_flight(TcpConfig { sack: false, ..plain_config() });
    end.ack(1);
    end.ack(1);
    assert_eq!(end.sent_data(), [(10_001, 1000), (11_001, 1000)]);
    end.ack(1);
    assert_eq!(end.sent_data(), [(1, 1000)]);
    assert_eq!((end.metrics().ca_state(), end.subflow.counters().reno_recovery), (CaState::Recovery, 1));
    end.now = Time::ZERO + 300 * MILLISECOND;
    end.ack(5001);
    assert_eq!(end.sent_data()[0], (5001, 1000), "a partial ACK");
    end.now = Time::ZERO + 400 * MILLISECOND;
    end.ack(12_001);
    assert_eq!(end.metrics().cwnd(), 5);
    assert_eq!(end.metrics().ca_state(), CaState::Recovery, "held until something above is acknowledged");
    assert!(!end.sent_data().is_empty());
    end.ack(13_001);
    assert_eq!(end.metrics().ca_state(), CaState::Open);
}

//= test RFC 9293 MUST-18 MUST-19
//= test RFC 6298 5-e 3-a
/// The timer: srtt + max(200 ms, 4 rttvar), doubled with each timeout, until a sample ends the backoff.
#[test]
fn the_timeout_backs_off_and_recovers_with_a_sample() {
    let mut end = End::open(without_tlp(), 100);
    end.push(1000);
    let sent = end.wait(3_000);
    let times: Vec<_> = sent.iter().map(|(at, _)| *at).collect();
    // rto = 100 + 4 x 50 = 300 ms.
    assert_eq!(times, [100, 400, 1000, 2200]);
    assert_eq!((end.subflow.counters().timeouts, end.metrics().cwnd()), (3, 1));
    end.ack(1001);
    end.push(1000);
    assert_eq!(end.sent_data().len(), 1);
    // Karn: what was sent again gives no sample, and the backoff stays.
    let again = end.wait(8_000);
    assert_eq!(again[0].0, 3000 + 300 * 8);
}

/// A timeout brings back what has been under way for a round trip, not what was just sent.
#[test]
fn a_timeout_marks_only_what_is_overdue() {
    let mut end = ten_in_flight(without_tlp());
    end.ack(2001);
    end.now = Time::ZERO + 350 * MILLISECOND;
    end.ack(3001);
    let recent = end.sent_data().len() as u32;
    let (lost, timer) = (end.metrics().lost_out(), end.subflow.poll_timeout().unwrap());
    assert_eq!(lost, 0);
    end.wait(timer.as_millis() + 1);
    assert_eq!(end.metrics().ca_state(), CaState::Loss);
    assert!(recent > 0 && end.metrics().lost_out() >= 7);
}

//= test RFC 8985 7.2-a 7.2-b 7.3-c
/// The probe leaves two round trips after the last transmission (and 2 ms for Linux's grain), before the
/// timeout; with one segment in flight it waits for a delayed ACK, but not beyond the timeout.
#[test]
fn a_tail_loss_probe_leaves_after_two_round_trips() {
    let mut end = End::open(plain_config(), 100);
    end.push(4000);
    end.sent_data();
    let sent = end.wait(310);
    let probe: Vec<_> = sent.iter().map(|(at, t)| (*at, t.segment.seq.0)).collect();
    // Two round trips would be 300 + 2; the timeout is due at 100 + 300, later.
    assert_eq!(probe, [(302, 3001)]);
    assert_eq!(end.subflow.counters().loss_probes, 1);
    assert_eq!((end.metrics().ca_state(), end.metrics().cwnd()), (CaState::Open, 10));
}

#[test]
fn a_lone_segments_probe_takes_the_timeouts_place() {
    let mut end = End::open(plain_config(), 100);
    end.push(1000);
    let sent = end.wait(800);
    let times: Vec<_> = sent.iter().map(|(at, t)| (*at, t.segment.seq.0)).collect();
    assert_eq!(times, [(100, 1), (400, 1), (700, 1)], "the probe, then a timeout counted from it");
    assert_eq!((end.subflow.counters().loss_probes, end.subflow.counters().timeouts), (1, 1));
}

//= test RFC 8985 7.4-a 7.4-b
/// A probe that repaired a loss halves the window; one that a DSACK answers doesn't.
#[test]
fn a_probe_that_repaired_a_loss_costs_the_window_its_half() {
    for spurious in [false, true] {
        let mut end = End::open(plain_config(), 100);
        end.push(4000);
        end.wait(310);
        end.now = Time::ZERO + 400 * MILLISECOND;
        if spurious {
            end.ack(4001);
            end.sack(4001, &[(3001, 4001)]);
        } else {
            end.ack(4001);
        }
        end.push(2000);
        assert_eq!(end.sent_data().len(), 2);
        end.now = Time::ZERO + 500 * MILLISECOND;
        end.ack(6001);
        let halved = end.metrics().ssthresh() < u32::MAX;
        assert_eq!(halved, !spurious);
        assert_eq!(end.subflow.counters().loss_probe_recovery, u64::from(!spurious));
        assert_eq!(end.metrics().ca_state(), CaState::Open);
    }
}

/// The end of a flight is lost but for the probe's copy. An ACK of what isn't in order echoes the timestamp
/// of the last segment that was (RFC 7323 4.3), however new what it sacks: the losses are found all the same,
/// not by the timeout.
#[test]
fn a_sacked_probe_finds_what_was_lost_before_it_whatever_its_timestamp_echoes() {
    let mut end = End::open(TcpConfig { timestamps: true, ..plain_config() }, 100);
    end.push(4000);
    let sent = end.sent();
    let echo = sent[0].segment.timestamps.map(|stamp| stamp.value);
    let answer = |end: &mut End, ack: u64, block: Option<(u32, u32)>| {
        let mut segment = end.peer(Flags::default(), ack);
        segment.timestamps = segment.timestamps.zip(echo).map(|(stamp, echo)| Timestamps { echo, ..stamp });
        if let Some((left, right)) = block {
            segment.sack.push(left, right);
        }
        end.receive(segment);
    };
    end.now = Time::ZERO + 200 * MILLISECOND;
    let mss = sent[0].segment.payload.0;
    answer(&mut end, 1 + u64::from(mss), None);
    let probe: Vec<_> = end.wait(410).iter().map(|(at, t)| (*at, t.segment.seq.0)).collect();
    let last = 1 + 4000 / mss * mss;
    assert_eq!(probe, [(402, last)]);
    end.now = Time::ZERO + 502 * MILLISECOND;
    answer(&mut end, 1 + u64::from(mss), Some((last, 4001)));
    assert_eq!(end.sent_data().first(), Some(&(1 + mss, mss)));
    assert_eq!((end.metrics().ca_state(), end.subflow.counters().timeouts), (CaState::Recovery, 0));
}

//= test RFC 2018 8-b
/// A receiver that drops what it sacked: after the timeout everything is sent again.
#[test]
fn a_reneging_receiver_gets_everything_again() {
    let mut end = ten_in_flight(without_tlp());
    end.sack(1, &[(1001, 10_001)]);
    end.sent_data();
    // The hole is filled, and what lies above it is gone.
    end.now = Time::ZERO + 300 * MILLISECOND;
    end.ack(1001);
    let again = end.wait(360);
    assert_eq!(end.subflow.counters().sack_reneging, 1);
    assert!(again.iter().any(|(_, t)| t.segment.seq.0 == 1001), "the head is sent again");
    end.ack(2001);
    assert!(end.sent_data().contains(&(2001, 1000)));
}

/// After a timeout without SACK all that is in flight is lost, what was sent just before it too.
#[test]
fn a_timeout_without_sack_loses_all() {
    let mut end = ten_in_flight(TcpConfig { sack: false, ..without_tlp() });
    // Sent at 100 ms; the timeout is 300 ms.
    assert!(end.wait(390).is_empty());
    end.ack(1);
    end.ack(1);
    assert_eq!(end.sent_data(), [(10_001, 1000), (11_001, 1000)]);
    end.wait(410);
    assert_eq!((end.metrics().ca_state(), end.metrics().lost_out()), (CaState::Loss, 12));
}

/// Without SACK each duplicate ACK stands for a segment that was delivered.
#[test]
fn a_duplicate_ack_without_sack_counts_as_a_delivered_segment() {
    let mut end = ten_in_flight(TcpConfig { sack: false, ..plain_config() });
    let before = end.metrics().totals.delivered;
    end.ack(1);
    end.ack(1);
    assert_eq!((end.metrics().totals.delivered - before, end.metrics().sacked_out()), (2, 2));
}

/// The same before any loss was found: everything is sent again after half a round-trip time, but not within
/// 10 ms.
#[test]
fn reneging_is_noticed_before_recovery_too() {
    let mut end = End::open(without_tlp(), 4);
    end.push(10_000);
    end.sent_data();
    end.now = Time::ZERO + 8 * MILLISECOND;
    end.sack(1, &[(2001, 3001)]);
    end.now = Time::ZERO + 9 * MILLISECOND;
    end.ack(2001);
    end.wait(15);
    assert_eq!(end.subflow.counters().sack_reneging, 0);
    end.wait(21);
    assert_eq!(end.subflow.counters().sack_reneging, 1);
}

/// SACK information on an ACK that arrives late, behind a newer one, still counts.
#[test]
fn an_old_acks_sack_blocks_count() {
    let mut end = ten_in_flight(plain_config());
    end.ack(3001);
    let sacked = end.metrics().sacked_out();
    end.sack(2001, &[(5001, 6001)]);
    assert_eq!((sacked, end.metrics().sacked_out()), (0, 1));
}

//= test RFC 9293 SHLD-8
//= test RFC 3168 6.1.2
/// An echo of congestion halves the window once per window of data, and CWR tells the receiver.
#[test]
fn an_ecn_echo_reduces_once_per_window() {
    let mut end = ten_in_flight(TcpConfig { ecn: true, ..plain_config() });
    for ack in [1001, 2001, 3001] {
        let segment = end.peer(ropewalk_wire::Flags::ECE, ack);
        end.receive(segment);
    }
    assert_eq!((end.metrics().ca_state(), end.metrics().totals.loss_events), (CaState::Cwr, 1));
    let sent = end.sent();
    assert!(sent[0].segment.flags.contains(ropewalk_wire::Flags::CWR));
    assert!(!sent[1..].iter().any(|t| t.segment.flags.contains(ropewalk_wire::Flags::CWR)));
    for ack in 4..=10 {
        end.ack(ack * 1000 + 1);
        end.sent();
    }
    assert_eq!(end.metrics().ca_state(), CaState::Cwr);
    end.ack(11_001);
    assert_eq!((end.metrics().ca_state(), end.metrics().cwnd()), (CaState::Open, 5));
}

/// Nothing grows while the application, not the window, is the limit; and it decays after an RTO of that.
#[test]
fn an_unused_window_neither_grows_nor_stays() {
    let mut end = End::open(plain_config(), 100);
    end.metrics.set_cwnd(40);
    end.metrics.set_ssthresh(30);
    for n in 0..20u64 {
        end.push(1000);
        assert_eq!(end.sent_data().len(), 1);
        end.now += 100 * MILLISECOND;
        end.ack(1 + (n + 1) * 1000);
    }
    // Two seconds are six or seven timeouts of about 300 ms: each takes half of the way to the initial
    // window.
    assert!((10..=12).contains(&end.metrics().cwnd()), "{}", end.metrics().cwnd());
    assert_eq!(end.metrics().ssthresh(), 30, "three quarters of forty");
}

/// An idle time halves the window for each RTO beyond the first.
#[test]
fn an_idle_time_restarts_the_window() {
    let mut end = End::open(plain_config(), 100);
    end.metrics.set_cwnd(80);
    end.push(1000);
    end.sent_data();
    end.now = Time::ZERO + 200 * MILLISECOND;
    end.ack(1001);
    let rto = end.metrics().rto;
    end.now = Time::ZERO + 100 * MILLISECOND + 2 * rto + Span::from_nanos(1);
    end.push(1000);
    end.sent_data();
    assert_eq!(end.metrics().cwnd(), 20);
    end.now += 100 * MILLISECOND;
    end.ack(2001);
    end.now += 60 * SECOND;
    end.push(1000);
    end.sent_data();
    assert_eq!(end.metrics().cwnd(), 10, "never below the initial window");
}

/// Two packets, since each left room for a SACK block, fit into one when they are retransmitted: then they
/// count as one.
#[test]
fn a_retransmission_counts_for_the_packets_that_it_takes() {
    for tail_loss_probe in [false, true] {
        let mut end = End::open(with_recovery(|recovery| recovery.tail_loss_probe = tail_loss_probe), 20);
        end.data(MSS + 1, 100);
        assert_eq!(end.sent().len(), 1, "an ACK with a SACK block");
        end.push(MSS - 5);
        let mut segment = Segment::blank();
        let (mut cx, subflow) = end.split();
        assert!(subflow.poll_transmit(&mut cx, 2, &mut segment).is_some());
        assert_eq!((segment.payload.0, segment.gso_size), (995, 988));
        assert_eq!(end.metrics().packets_out(), 2);
        let repeated = end.wait(1000);
        let first = &repeated.first().expect("a probe or a timeout").1.segment;
        assert_eq!((first.payload.0, first.gso_size), (995, 0));
        assert_eq!(
            (end.metrics().packets_out(), end.metrics().cwnd() >= end.metrics().in_flight()),
            (1, true)
        );
        end.ack(MSS - 4);
        let metrics = end.metrics();
        assert_eq!((metrics.packets_out(), metrics.lost_out(), metrics.retrans_out()), (0, 0, 0));
    }
}

#[test]
fn the_fate_of_each_piece_is_known() {
    let mut end = ten_in_flight(plain_config());
    let fates = |end: &End| [0, 2, 9, 10].map(|segment| end.subflow.fate(segment * 1000 + 500));
    assert_eq!(fates(&end), [Fate::InFlight, Fate::InFlight, Fate::InFlight, Fate::Queued]);
    end.sack(1, &[(1001, 4001)]);
    assert_eq!(fates(&end)[..3], [Fate::Lost, Fate::Arrived, Fate::InFlight]);
    assert_eq!(end.sent_data()[0], (1, 1000));
    assert_eq!(fates(&end)[0], Fate::InFlight, "repeated");
    end.ack(4001);
    assert_eq!(fates(&end)[..2], [Fate::Arrived, Fate::Arrived]);
}

/// What schedulers see of the time: since when something is in flight, when data last left, and how much is
/// known of the path.
#[test]
fn a_subflow_tells_since_when_it_is_busy() {
    let mut end = End::open(plain_config(), 100);
    assert_eq!(
        (end.metrics().rtt.samples, end.metrics().busy_since, end.metrics().last_sent),
        (1, Time::ZERO, Time::ZERO)
    );
    for (at, samples) in [(200, 1), (300, 2)] {
        end.now = Time::ZERO + at * MILLISECOND;
        end.push(1000);
        end.sent_data();
        end.now = Time::ZERO + (at + 10) * MILLISECOND;
        end.push(1000);
        end.sent_data();
        let metrics = end.metrics();
        let times = (metrics.rtt.samples, metrics.busy_since.as_millis(), metrics.last_sent.as_millis());
        assert_eq!(times, (samples, at, at + 10));
        end.now = Time::ZERO + (at + 100) * MILLISECOND;
        let sent = if at == 200 { 2001 } else { 4001 };
        end.ack(sent);
    }
}
