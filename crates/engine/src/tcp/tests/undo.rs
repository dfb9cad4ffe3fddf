//! Spurious reductions and how they are found out: RFC 3522, RFC 3708, RFC 5682.

use ropewalk_wire::{Flags, Timestamps};

use super::super::testing::{End, plain_config, without_tlp};
use crate::metrics::CaState;
use crate::tcp::TcpConfig;
use crate::{MILLISECOND, Time};

fn no_probe(timestamps: bool) -> TcpConfig {
    TcpConfig { timestamps, ..without_tlp() }
}

/// Ten segments in flight and a timeout; returns the end just after the head was sent again.
fn after_a_timeout(timestamps: bool) -> End {
    let mut end = End::open(no_probe(timestamps), 100);
    end.push(10_000);
    let again = end.wait(410);
    let last = again.last().expect("a retransmission");
    assert_eq!((again.len(), last.0, last.1.segment.seq.0), (11, 400, 1));
    assert_eq!(
        (end.metrics().ca_state(), end.metrics().cwnd(), end.metrics().ssthresh()),
        (CaState::Loss, 1, 5)
    );
    end
}

//= test RFC 5682 3
/// A delay spike: the ACKs of the originals come after the timeout. The first ACK covers something that was
/// never sent again, so that the timeout was spurious.
#[test]
fn f_rto_finds_a_spurious_timeout() {
    let mut end = after_a_timeout(false);
    let mss = end.metrics().mss;
    end.ack(1 + 2 * u64::from(mss));
    assert_eq!((end.metrics().ca_state(), end.metrics().cwnd() >= 10), (CaState::Open, true));
    assert_eq!(end.metrics().lost_out(), 0);
    assert_eq!(end.subflow.counters().spurious_rtos, 1);
    assert_eq!(end.sent_data(), [], "nothing is sent again");
}

//= test RFC 5682 3.1
/// The first ACK covers only the head: step 2.b sends new data, and the next ACK, for data that was never
/// sent again, proves the timeout spurious.
#[test]
fn f_rto_sends_new_data_before_it_goes_on() {
    let mut end = after_a_timeout(false);
    end.push(5000);
    end.ack(1001);
    let sent = end.sent_data();
    assert!(!sent.is_empty() && sent.iter().all(|(seq, _)| *seq > 10_000), "{sent:?}");
    end.ack(2001);
    assert_eq!((end.metrics().ca_state(), end.subflow.counters().spurious_rtos), (CaState::Open, 1));
}

/// The same with a real loss: a duplicate ACK follows, and everything is sent again.
#[test]
fn f_rto_goes_on_after_a_real_loss() {
    let mut end = after_a_timeout(false);
    end.push(5000);
    end.ack(1001);
    let new = end.sent_data();
    end.sack(1001, &[(10_001, 11_001)]);
    assert_eq!((end.metrics().ca_state(), new.len()), (CaState::Loss, 2));
    assert_eq!(end.sent_data()[0], (1001, 1000));
    assert_eq!(end.subflow.counters().spurious_rtos, 0);
}

//= test RFC 3522 3.2
/// Eifel: the first ACK after the timeout echoes a time before the retransmission.
#[test]
fn eifel_finds_a_spurious_timeout_by_the_timestamp() {
    for echo in [100, 400, 0] {
        let mut end = after_a_timeout(true);
        let mss = end.metrics().mss;
        let mut segment = end.peer(Flags::default(), 1 + u64::from(mss));
        segment.timestamps = Some(Timestamps { value: 600_000, echo });
        end.receive(segment);
        let original = echo == 100;
        assert_eq!(
            end.metrics().ca_state(),
            if original { CaState::Open } else { CaState::Loss },
            "echo {echo}"
        );
        assert_eq!(end.subflow.counters().loss_undo, u64::from(original));
        assert_eq!(end.metrics().cwnd() >= 10, original);
    }
}

//= test RFC 3708 2
/// A reordered segment is sent again by mistake; its DSACK undoes the reduction.
#[test]
fn a_dsack_for_every_retransmission_undoes_the_reduction() {
    let mut end = End::open(plain_config(), 100);
    end.push(10_000);
    end.sent_data();
    end.now = Time::ZERO + 200 * MILLISECOND;
    end.sack(1, &[(1001, 4001)]);
    assert_eq!(end.sent_data(), [(1, 1000)]);
    assert_eq!((end.metrics().ca_state(), end.metrics().ssthresh()), (CaState::Recovery, 5));
    // The original arrives, and everything else.
    end.now = Time::ZERO + 210 * MILLISECOND;
    end.ack(5001);
    assert_eq!(end.metrics().ca_state(), CaState::Recovery);
    end.now = Time::ZERO + 300 * MILLISECOND;
    end.sack(10_001, &[(1, 1001)]);
    assert_eq!((end.metrics().ca_state(), end.metrics().ssthresh()), (CaState::Open, u32::MAX));
    assert!(end.metrics().cwnd() >= 10);
    let counters = end.subflow.counters();
    assert_eq!((counters.dsack_recv, counters.full_undo + counters.dsack_undo), (1, 1));
}

/// The network doubled a segment: its DSACK undoes nothing and widens nothing.
#[test]
fn a_dsack_of_what_was_sent_once_is_ignored() {
    let mut end = End::open(plain_config(), 100);
    end.push(10_000);
    end.sent_data();
    end.now = Time::ZERO + 200 * MILLISECOND;
    let before = end.subflow.sender.reordering_window(end.metrics());
    end.sack(5001, &[(1, 1001)]);
    assert_eq!(end.subflow.counters().dsack_ignored, 1);
    assert_eq!(end.subflow.sender.reordering_window(end.metrics()), before);
}

/// A partial ACK that echoes the time of an original, with no retransmission in flight.
#[test]
fn a_partial_ack_of_an_original_undoes_fast_recovery() {
    let mut end = End::open(no_probe(true), 100);
    let mss = u64::from(end.metrics().mss);
    end.push(10 * mss);
    end.sent_data();
    end.now = Time::ZERO + 200 * MILLISECOND;
    let at = |n: u64| (1 + n * mss) as u32;
    let mut segment = end.peer(Flags::default(), 1);
    segment.sack.push(at(1), at(4));
    segment.timestamps = Some(Timestamps { value: 600_000, echo: 100 });
    end.receive(segment);
    assert_eq!(end.sent_data().len(), 1);
    let mut segment = end.peer(Flags::default(), u64::from(at(4)));
    segment.timestamps = Some(Timestamps { value: 600_001, echo: 100 });
    end.receive(segment);
    assert_eq!((end.metrics().ca_state(), end.metrics().ssthresh()), (CaState::Open, u32::MAX));
    assert!(end.metrics().cwnd() >= 10);
    assert_eq!(end.subflow.counters().partial_undo, 1);
    assert!(end.subflow.sender.reordering_seen());
}
