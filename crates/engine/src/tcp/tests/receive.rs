//! The receive side: when it acknowledges, what it reports, what it refuses (RFC 5681 4.2, 2018, 2883, 7323,
//! 5961).

use ropewalk_wire::{Flags, Seq, Timestamps};

use super::super::testing::{End, MSS, plain_config};
use crate::tcp::{Kind, State, TcpConfig};
use crate::{MILLISECOND, Time};

/// An end that has had its quick ACKs.
fn open_past_quick_acks(tcp: TcpConfig) -> (End, u64) {
    let mut end = End::open(TcpConfig { quick_acks: 2, ..tcp }, 20);
    let mut seq = 1;
    for _ in 0..2 {
        end.data(seq, MSS as u32);
        assert_eq!(end.sent().len(), 1, "quick at the start");
        seq += MSS;
    }
    (end, seq)
}

//= test RFC 9293 SHLD-18 SHLD-19 MUST-40
#[test]
fn every_second_full_segment_is_acknowledged_and_a_lone_one_after_forty_milliseconds() {
    let (mut end, seq) = open_past_quick_acks(plain_config());
    end.data(seq, MSS as u32);
    assert!(end.sent().is_empty());
    end.data(seq + MSS, MSS as u32);
    let sent = end.sent();
    assert_eq!((sent.len(), sent[0].segment.ack), (1, Seq((seq + 2 * MSS) as u32)));
    end.data(seq + 2 * MSS, MSS as u32);
    let start = end.now.as_millis();
    let later = end.wait(start + 100);
    assert_eq!((later.len(), later[0].0), (1, start + 40));
    assert_eq!(end.subflow.counters().delayed_acks, 1);
}

/// A short segment ends what the peer had to say: acknowledged as soon as all is read, unless our own data is
/// likely to follow.
#[test]
fn a_short_segment_is_acknowledged_when_all_is_read_unless_the_ends_take_turns() {
    let (mut end, seq) = open_past_quick_acks(plain_config());
    end.data(seq, 100);
    assert!(end.sent().is_empty(), "the application hasn't read");
    assert!(end.subflow.on_all_read());
    assert_eq!(end.sent().len(), 1);
    assert!(!end.subflow.on_all_read(), "it is acknowledged");
    // An answer makes it a conversation.
    end.push(100);
    assert_eq!(end.sent_data().len(), 1);
    end.ack(101);
    end.data(seq + 100, 100);
    assert!(!end.subflow.on_all_read() && end.sent().is_empty(), "the answer will carry it");
    end.push(100);
    let sent = end.sent();
    assert_eq!((sent.len(), sent[0].segment.ack), (1, Seq((seq + 200) as u32)));
}

/// The answer to a request carries its ACK, if it comes within 5 ms. A second request before that is
/// acknowledged at once.
#[test]
fn the_first_request_is_acknowledged_with_its_answer() {
    let tcp = TcpConfig { answer_time: Some(5 * MILLISECOND), ..plain_config() };
    for answered in [true, false] {
        let mut end = End::open(tcp.clone(), 20);
        end.data(1, 100);
        assert!(!end.subflow.on_all_read() && end.sent().is_empty());
        if answered {
            end.push(100);
            let sent = end.sent();
            assert_eq!((sent.len(), sent[0].segment.ack), (1, Seq(101)));
            continue;
        }
        let start = end.now.as_millis();
        let later = end.wait(start + 100);
        assert_eq!((later.len(), later[0].0), (1, start + 5), "no answer came");
        end.data(101, 100);
        end.data(201, 100);
        assert_eq!(end.sent().len(), 1, "a client may wait for it (Nagle's algorithm)");
    }
}

#[test]
fn a_full_segment_with_psh_is_acknowledged_when_all_is_read_and_nothing_waits_out_of_order() {
    let (mut end, seq) = open_past_quick_acks(plain_config());
    end.data(seq, MSS as u32);
    assert!(!end.subflow.on_all_read() && end.sent().is_empty(), "more may follow");
    let pushed = |end: &mut End, seq: u64| {
        let mut segment = end.peer(Flags::PSH, end.subflow.snd_nxt());
        segment.seq = Seq(seq as u32);
        segment.payload = ropewalk_wire::SyntheticPayload(MSS as u32);
        end.receive(segment);
    };
    pushed(&mut end, seq + MSS);
    assert_eq!(end.sent().len(), 1, "the second of two");
    pushed(&mut end, seq + 2 * MSS);
    assert!(end.sent().is_empty() && end.subflow.on_all_read());
    assert_eq!(end.sent().len(), 1);
    pushed(&mut end, seq + 4 * MSS);
    assert_eq!(end.sent().len(), 1, "a gap");
    pushed(&mut end, seq + 5 * MSS);
    assert!(!end.subflow.on_all_read(), "the gap is still there");
}

#[test]
fn while_the_window_grows_every_segment_is_acknowledged() {
    let (mut end, seq) = open_past_quick_acks(plain_config());
    for n in 0..4 {
        end.data(seq + n * MSS, MSS as u32);
        assert!(end.subflow.on_window_growth());
        assert_eq!(end.sent().len(), 1);
    }
    end.data(seq + 4 * MSS, MSS as u32);
    assert!(end.sent().is_empty());
}

/// A lower one counts at once, a higher one an eighth; what an ACK echoes is measured once, by a full-sized
/// segment, and less than the clock's millisecond isn't.
#[test]
fn a_receiver_s_round_trip_time_falls_at_once() {
    let (mut end, mut seq) =
        open_past_quick_acks(TcpConfig { window_scaling: false, ..TcpConfig::default() });
    end.now = Time::ZERO + 1000 * MILLISECOND;
    let mut sample = |end: &mut End, len: u64, echo: u32| {
        let mut segment = end.peer(Flags::default(), 1);
        segment.seq = Seq(seq as u32);
        segment.payload = ropewalk_wire::SyntheticPayload(len as u32);
        segment.timestamps = Some(Timestamps { value: 501_000, echo });
        seq += len;
        end.receive(segment);
        end.subflow.receive_rtt() / MILLISECOND
    };
    let clock = end.tcp.timestamp_offset.unwrap_or(0).wrapping_add(1000);
    assert_eq!(sample(&mut end, MSS, clock - 40), 40);
    assert_eq!(sample(&mut end, MSS, clock - 40), 40);
    assert_eq!(sample(&mut end, MSS, clock - 48), 41, "40 - 5 + 6");
    assert_eq!(sample(&mut end, MSS, clock - 20), 20);
    assert_eq!(sample(&mut end, MSS - 1, clock - 10), 20);
    assert_eq!(sample(&mut end, MSS, clock), 20);
}

//= test RFC 9293 SHLD-31
//= test RFC 5681 3.2-a 3.2-b
#[test]
fn out_of_order_data_and_the_filling_of_a_gap_are_acknowledged_at_once() {
    let (mut end, seq) = open_past_quick_acks(plain_config());
    end.data(seq + MSS, MSS as u32);
    let sent = end.sent();
    let right = (seq + 2 * MSS) as u32;
    assert_eq!(sent[0].segment.sack.as_slice(), [((seq + MSS) as u32, right)]);
    end.data(seq, MSS as u32);
    let sent = end.sent();
    assert_eq!((sent[0].segment.ack, sent[0].segment.sack.is_empty()), (Seq(right), true));
    assert_eq!(end.subflow.counters().ofo_queue, 1);
}

//= test RFC 2018 4-e
/// The ACKs of the first two segments were lost, and the first comes again: a DSACK, once, below the
/// cumulative ACK.
#[test]
fn a_duplicate_below_the_cumulative_ack_is_reported() {
    let (mut end, seq) = open_past_quick_acks(plain_config());
    end.data(1, MSS as u32);
    let sent = end.sent();
    assert_eq!(sent[0].segment.ack, Seq(seq as u32));
    assert_eq!(sent[0].segment.sack.as_slice(), [(1, 1 + MSS as u32)]);
    end.data(seq, 10);
    assert!(end.sent()[0].segment.sack.is_empty());
    let counters = end.subflow.counters();
    assert_eq!((counters.dsack_old_sent, counters.delayed_ack_lost), (1, 1));
}

//= test RFC 2018 4-e
/// The first of three is lost, the third comes twice: the DSACK stands before the block that holds it.
#[test]
fn a_duplicate_above_the_cumulative_ack_is_reported_before_its_block() {
    let (mut end, seq) = open_past_quick_acks(plain_config());
    end.data(seq + MSS, MSS as u32);
    end.data(seq + 2 * MSS, MSS as u32);
    end.sent();
    end.data(seq + 2 * MSS, MSS as u32);
    let at = |n: u64| (seq + n * MSS) as u32;
    assert_eq!(end.sent()[0].segment.sack.as_slice(), [(at(2), at(3)), (at(1), at(3))]);
    assert_eq!(end.subflow.counters().dsack_ofo_sent, 1);
}

//= test RFC 7323 4.3-a
/// Of two segments that one ACK covers, the earlier's timestamp is echoed; a segment beyond a gap doesn't
/// count.
#[test]
fn the_echo_is_of_the_first_segment_that_an_ack_covers() {
    let (mut end, seq) = open_past_quick_acks(TcpConfig { window_scaling: false, ..TcpConfig::default() });
    let stamped = |end: &mut End, seq: u64, value: u32| {
        let mut segment = end.peer(Flags::default(), 1);
        segment.seq = Seq(seq as u32);
        segment.payload = ropewalk_wire::SyntheticPayload(MSS as u32);
        segment.timestamps = Some(Timestamps { value, echo: 0 });
        end.receive(segment);
        end.sent().last().map(|t| t.segment.timestamps.expect("a timestamp").echo)
    };
    let base = 600_000;
    assert_eq!(stamped(&mut end, seq, base + 1), None);
    assert_eq!(stamped(&mut end, seq + MSS, base + 2), Some(base + 1));
    // RFC 7323's figure: B is missing, C comes, then B.
    assert_eq!(stamped(&mut end, seq + 3 * MSS, base + 4), Some(base + 1));
    assert_eq!(stamped(&mut end, seq + 2 * MSS, base + 3), Some(base + 3));
}

//= test RFC 7323 5.3-a
/// A segment with an older timestamp is dropped and answered; a reset isn't subject to it.
#[test]
fn an_old_timestamp_drops_a_segment() {
    let (mut end, seq) = open_past_quick_acks(TcpConfig { window_scaling: false, ..TcpConfig::default() });
    let mut segment = end.peer(Flags::default(), 1);
    segment.payload = ropewalk_wire::SyntheticPayload(100);
    segment.timestamps = Some(Timestamps { value: 400_000, echo: 0 });
    end.receive(segment.clone());
    assert_eq!((end.subflow.rcv_nxt(), end.sent().len()), (seq, 1));
    assert_eq!(end.subflow.counters().paws_drops, 1);
    segment.payload = ropewalk_wire::SyntheticPayload(0);
    segment.flags = Flags::RST;
    assert!(end.receive(segment).reset);
}

//= test RFC 5961 3.2-a 3.2-b
/// Only the exact next number resets; one further in the window is challenged, one outside ignored.
#[test]
fn a_blind_reset_needs_the_exact_number() {
    let (mut end, seq) = open_past_quick_acks(plain_config());
    for (offset, answers) in [(1, 1), (59_999, 1), (70_000, 0), (u64::MAX, 0)] {
        let mut segment = end.peer(Flags::RST, 1);
        segment.seq = Seq(seq.wrapping_add(offset) as u32);
        assert!(!end.receive(segment).reset);
        let sent = end.sent();
        assert_eq!(sent.len(), answers, "offset {offset}");
        assert!(sent.iter().all(|t| t.kind == Kind::Ack && t.segment.ack == Seq(seq as u32)));
    }
    let reset = end.peer(Flags::RST, 1);
    assert!(end.receive(reset).reset);
    assert_eq!(end.state(), State::Closed);
}

//= test RFC 5961 4.2-a
/// A SYN is challenged wherever it stands, and no more than ten a second are.
#[test]
fn a_blind_syn_is_challenged_at_a_limited_rate() {
    let (mut end, seq) = open_past_quick_acks(plain_config());
    let mut answers = 0;
    for n in 0..30 {
        let mut segment = end.peer(Flags::SYN, 1);
        segment.seq = Seq((seq + n * 100_000) as u32);
        end.receive(segment);
        answers += end.sent().len();
    }
    assert_eq!((end.state(), answers), (State::Established, 10));
    let counters = end.subflow.counters();
    assert_eq!((counters.syn_challenge, counters.challenge_acks, counters.challenges_skipped), (30, 10, 20));
}

//= test RFC 5961 5.2-a
/// Data with an ACK from the future, or older than any window, isn't taken.
#[test]
fn blind_data_needs_a_plausible_ack() {
    let (mut end, seq) = open_past_quick_acks(plain_config());
    for ack in [5000u32, 1u32.wrapping_sub(100_000)] {
        let mut segment = end.peer(Flags::default(), 1);
        segment.ack = Seq(ack);
        segment.payload = ropewalk_wire::SyntheticPayload(100);
        end.receive(segment);
        assert_eq!(end.sent().len(), 1, "{ack}");
    }
    assert_eq!((end.subflow.counters().challenge_acks, end.subflow.rcv_nxt()), (2, seq));
    // One that is merely old is fine.
    let mut segment = end.peer(Flags::default(), 1);
    segment.ack = Seq(1u32.wrapping_sub(60_000));
    segment.payload = ropewalk_wire::SyntheticPayload(100);
    end.receive(segment);
    assert_eq!(end.subflow.rcv_nxt(), seq + 100);
}

/// Two ends that disagree about numbers don't answer each other for ever.
#[test]
fn answers_to_empty_segments_outside_the_window_are_limited() {
    let (mut end, seq) = open_past_quick_acks(plain_config());
    let mut answers = 0;
    for _ in 0..20 {
        let mut segment = end.peer(Flags::default(), 1);
        segment.seq = Seq((seq + 200_000) as u32);
        end.receive(segment);
        answers += end.sent().len();
        end.now += 100 * MILLISECOND;
    }
    assert_eq!((answers, end.subflow.counters().ack_skipped_seq), (4, 16));
}

/// A closed window accepts no data, but ACKs, RSTs, and a FIN without data.
#[test]
fn a_closed_window_takes_no_data() {
    let (mut end, seq) = open_past_quick_acks(plain_config());
    end.receive.limit = 0;
    end.subflow.receiver.set_edge(seq);
    end.push(100);
    assert_eq!(end.sent_data().len(), 1);
    let mut segment = end.peer(Flags::default(), 101);
    segment.payload = ropewalk_wire::SyntheticPayload(1);
    end.receive(segment);
    assert_eq!((end.subflow.rcv_nxt(), end.subflow.snd_una()), (seq, 101));
    assert_eq!(end.sent()[0].segment.window, 0);
    assert_eq!(end.subflow.counters().to_zero_window, 1);
    let fin = end.peer(Flags::FIN, 101);
    assert!(end.receive(fin).fin);
}

//= test RFC 9293 SHLD-8
//= test RFC 3168 6.1.3
/// A mark is echoed on every ACK until CWR comes.
#[test]
fn a_congestion_mark_is_echoed_until_the_sender_has_heard() {
    let (mut end, seq) = open_past_quick_acks(TcpConfig { ecn: true, ..plain_config() });
    let mut segment = end.peer(Flags::default(), 1);
    segment.ecn = ropewalk_wire::Ecn::Ce;
    segment.payload = ropewalk_wire::SyntheticPayload(MSS as u32);
    end.receive(segment);
    assert!(end.sent()[0].segment.flags.contains(Flags::ECE), "at once");
    end.data(seq + MSS, MSS as u32);
    assert!(end.sent()[0].segment.flags.contains(Flags::ECE));
    let mut segment = end.peer(Flags::CWR, 1);
    segment.payload = ropewalk_wire::SyntheticPayload(MSS as u32);
    end.receive(segment);
    assert!(!end.sent()[0].segment.flags.contains(Flags::ECE));
}

/// A window counts once when it closes, and once when it opens again. The handshake's first window isn't one
/// that opens.
#[test]
fn closed_windows_are_counted() {
    let (mut end, _) = open_past_quick_acks(plain_config());
    let mut counts_with = |limit: u64| {
        end.receive.limit = limit;
        end.subflow.request_ack();
        assert_eq!(end.sent().len(), 1);
        let counters = end.subflow.counters();
        (counters.to_zero_window, counters.from_zero_window)
    };
    assert_eq!(counts_with(60_000), (0, 0));
    assert_eq!(counts_with(0), (1, 0));
    assert_eq!(counts_with(0), (1, 0));
    assert_eq!(counts_with(60_000), (1, 1));
    assert_eq!(counts_with(60_000), (1, 1));
}

/// An ACK that is due soon anyway goes at once; a later one stays where it was, or comes forward.
#[test]
fn a_delayed_ack_that_waits_already_is_not_put_off() {
    use crate::tcp::timer::Timer;
    let delay = 40;
    for (due, requested, then) in [(10, true, 10), (11, false, 11), (40, false, 40), (90, false, 40)] {
        let mut end = End::open(TcpConfig { quick_acks: 0, ..plain_config() }, 100);
        let now = end.now;
        let at = |ms: u64| now + ms * MILLISECOND;
        end.subflow.common.timers.set(Timer::DelayedAck, at(due));
        end.data(1, 100);
        assert_eq!(end.subflow.receiver.is_ack_requested(), requested, "due in {due} of {delay} ms");
        assert_eq!(end.subflow.common.timers.get(Timer::DelayedAck), Some(at(then)), "due in {due}");
    }
}

/// Reordered segments fill a gap within half a round-trip time, or have an older timestamp than those that
/// overtook them. Here two segments are lost, and one further on.
#[test]
fn gaps_that_fill_late_are_counted() {
    let (mut end, seq) = open_past_quick_acks(TcpConfig { window_scaling: false, ..TcpConfig::default() });
    end.now = Time::ZERO + 1000 * MILLISECOND;
    let clock = end.tcp.timestamp_offset.unwrap_or(0).wrapping_add(1000);
    // A segment that was sent at this time of the peer's clock, in milliseconds; how many have filled late.
    let arrives = |end: &mut End, n: u64, sent: u32, echo: u32| {
        let mut segment = end.peer(Flags::default(), 1);
        segment.seq = Seq((seq + n * MSS) as u32);
        segment.payload = ropewalk_wire::SyntheticPayload(MSS as u32);
        segment.timestamps = Some(Timestamps { value: 501_000 + sent, echo });
        end.receive(segment);
        end.subflow.counters().late_gaps_filled
    };
    // A round-trip time of 40 ms, as a receiver of data sees it.
    arrives(&mut end, 0, 0, clock - 40);
    assert_eq!(end.subflow.receive_rtt() / MILLISECOND, 40);
    arrives(&mut end, 2, 2, clock);
    end.now += 19 * MILLISECOND;
    assert_eq!(arrives(&mut end, 1, 50, clock), 0, "too soon");
    for n in [5, 7] {
        arrives(&mut end, n, 50 + n as u32, clock);
    }
    end.now += 40 * MILLISECOND;
    assert_eq!(arrives(&mut end, 3, 56, clock), 0, "what the network held up is older");
    for (n, counted) in [(4, 1), (6, 2)] {
        assert_eq!(arrives(&mut end, n, 100, clock), counted, "{n}");
    }
    arrives(&mut end, 9, 101, clock);
    assert_eq!(arrives(&mut end, 8, 101, clock), 2, "a new gap");
}
