//! Closed windows, silent peers, exhausted retries, paths that take less than they did.

use ropewalk_wire::{Flags, Seq};

use super::super::testing::{End, plain_config, without_tlp};
use crate::SECOND;
use crate::config::KeepAliveConfig;
use crate::metrics::CaState;
use crate::tcp::{Kind, State, TcpConfig};

fn close_window(end: &mut End, ack: u64) {
    let mut segment = end.peer(Flags::default(), ack);
    segment.window = 0;
    end.receive(segment);
}

//= test RFC 9293 MUST-36 SHLD-29 SHLD-30
/// A closed window is probed after an RTO and then at doubling intervals, for as long as the peer answers.
#[test]
fn a_closed_window_is_probed_with_backoff() {
    let mut end = End::open(plain_config(), 100);
    close_window(&mut end, 1);
    end.push(3000);
    let mut times = Vec::new();
    for _ in 0..5 {
        let sent = end.wait(end.now.as_millis() + 1);
        assert!(sent.is_empty());
        let next = end.subflow.poll_timeout().expect("a probe is due");
        let sent = end.wait(next.as_millis());
        let probe = sent.last().map(|(at, t)| (*at, t.segment.seq, t.segment.payload.0));
        times.push(probe.expect("a probe"));
        close_window(&mut end, 1);
    }
    let at: Vec<_> = times.iter().map(|(at, ..)| *at).collect();
    // RTO = 300 ms: each interval is double the last.
    let gaps: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.windows(2).all(|pair| pair[1].abs_diff(2 * pair[0]) <= 4), "{at:?}");
    assert!(times.iter().all(|(_, seq, len)| (*seq, *len) == (Seq(0), 0)), "one number below, no data");
    assert_eq!(end.subflow.counters().window_probes, 5);
    end.ack(1);
    assert_eq!(end.sent_data().len(), 3, "the window is open again");
}

/// Probes that nobody answers end the connection, with a reset.
#[test]
fn unanswered_probes_give_up() {
    let mut end = End::open(TcpConfig { retries: 3, ..plain_config() }, 100);
    close_window(&mut end, 1);
    end.push(3000);
    let sent = end.wait(60_000);
    assert_eq!(sent.iter().filter(|(_, t)| t.kind == Kind::Ack).count(), 3);
    assert_eq!(sent.last().map(|(_, t)| t.kind), Some(Kind::Rst));
    assert_eq!((end.state(), end.subflow.counters().abort_on_timeout), (State::Closed, 1));
}

//= test RFC 9293 MUST-38
/// A window smaller than a segment isn't filled while data is in flight.
#[test]
fn a_silly_window_is_not_filled() {
    let mut end = End::open(plain_config(), 100);
    let mut segment = end.peer(Flags::default(), 1);
    segment.window = 1500;
    end.receive(segment);
    end.push(3000);
    assert_eq!(end.sent_data(), [(1, 1000)]);
}

//= test RFC 9293 MUST-34 MUST-35
/// The peer took back what it had offered: of what is lost only the first is sent again.
#[test]
fn a_window_that_shrinks_is_survived() {
    let mut end = End::open(without_tlp(), 100);
    end.push(5000);
    assert_eq!(end.sent_data().len(), 5);
    close_window(&mut end, 1);
    let sent = end.wait(3000);
    assert!(!sent.is_empty() && sent.iter().all(|(_, t)| t.segment.seq == Seq(1)), "{sent:?}");
    end.ack(5001);
    assert_eq!(end.metrics().packets_out(), 0);
}

//= test RFC 9293 MUST-24 MUST-26 MUST-27 MUST-28 MUST-29 SHLD-12
/// Keep-alives: after the idle time, at intervals, and then the connection is given up.
#[test]
fn a_silent_peer_is_probed_and_given_up() {
    let tcp = TcpConfig {
        keep_alive: KeepAliveConfig { idle: Some(100 * SECOND), interval: 10 * SECOND, probes: 3 },
        ..plain_config()
    };
    let mut end = End::open(tcp, 100);
    let sent = end.wait(105_000);
    assert_eq!((sent.len(), sent[0].1.segment.seq), (1, Seq(0)));
    end.ack(1);
    assert!(end.wait(200_000).is_empty(), "it has answered");
    let sent = end.wait(400_000);
    let kinds: Vec<_> = sent.iter().map(|(at, t)| (at / 1000, t.kind)).collect();
    assert_eq!(kinds, [(205, Kind::Ack), (215, Kind::Ack), (225, Kind::Ack), (235, Kind::Rst)]);
    assert_eq!((end.state(), end.subflow.counters().keep_alives), (State::Closed, 4));
}

//= test RFC 9293 MUST-20 MUST-21
#[test]
fn exhausted_retries_reset_the_connection() {
    let tcp = TcpConfig { retries: 4, ..without_tlp() };
    let mut end = End::open(tcp, 100);
    end.push(1000);
    let sent = end.wait(60_000);
    assert_eq!(sent.iter().filter(|(_, t)| t.kind == Kind::Data).count(), 5, "the first and four more");
    assert_eq!(sent.last().map(|(_, t)| t.kind), Some(Kind::Rst));
    assert_eq!((end.state(), end.subflow.counters().abort_on_timeout), (State::Closed, 1));
}

//= test RFC 9293 MUST-22
#[test]
fn an_unanswered_syn_gives_up_in_silence() {
    let mut end = End::client(TcpConfig { syn_retries: 2, ..plain_config() });
    let sent = end.wait(60_000);
    let times: Vec<_> = sent.iter().map(|(at, t)| (*at, t.kind)).collect();
    assert_eq!(times, [(0, Kind::Syn), (1000, Kind::Syn), (3000, Kind::Syn)]);
    assert_eq!((end.state(), end.subflow.counters().syn_retrans), (State::Closed, 2));
}

//= test RFC 9293 MUST-23
/// Three minutes and more, if one is willing to wait.
#[test]
fn seven_retransmissions_of_a_syn_last_for_four_minutes() {
    let mut end = End::client(TcpConfig { syn_retries: 7, ..plain_config() });
    let sent = end.wait(180_000);
    assert_eq!((sent.len(), end.state()), (8, State::SynSent));
    end.wait(256_000);
    assert_eq!(end.state(), State::Closed);
}

//= test RFC 9293 MUST-54
/// A smaller MTU is believed about something in flight only (RFC 5927 4.1); what is too long is sent again in
/// pieces, without a smaller window.
#[test]
fn packet_too_big_needs_a_number_in_flight() {
    let mut end = End::open(plain_config(), 100);
    end.push(4000);
    assert_eq!(end.sent_data().len(), 4);
    let too_big = |end: &mut End, seq: u32, mtu: u32| {
        let (mut cx, subflow) = end.split();
        subflow.on_too_big(&mut cx, Seq(seq), mtu)
    };
    assert!(!too_big(&mut end, 4001, 740) && !too_big(&mut end, 0, 740), "not in flight");
    assert!(!too_big(&mut end, 1, 1500), "never larger");
    assert!(too_big(&mut end, 1, 740));
    assert_eq!(
        (end.metrics().mss, end.metrics().packets_out(), end.metrics().ca_state()),
        (700, 8, CaState::Loss)
    );
    assert_eq!((end.metrics().cwnd(), end.metrics().ssthresh()), (10, u32::MAX));
    let sent = end.sent_data();
    assert_eq!(sent[..4], [(1, 700), (701, 300), (1001, 700), (1701, 300)]);
    end.ack(4001);
    assert_eq!(
        (end.metrics().packets_out(), end.metrics().lost_out(), end.metrics().retrans_out()),
        (0, 0, 0)
    );
    assert!(!too_big(&mut end, 4001, 100), "nothing is in flight");
    assert_eq!(end.metrics().mss, 700);
    // Less than every host takes isn't believed.
    end.push(700);
    assert_eq!(end.sent_data(), [(4001, 700)]);
    assert!(too_big(&mut end, 4001, 100));
    assert_eq!(end.metrics().mss, 552 - 40);
}

/// Full segments vanish, small ones pass: found after three timeouts.
#[test]
fn a_black_hole_is_found() {
    let tcp = TcpConfig { black_hole_detection: true, ..without_tlp() };
    let mut end = End::open(tcp, 100);
    end.push(3000);
    let sent = end.wait(4_000);
    let lens: Vec<_> = sent.iter().skip(3).map(|(_, t)| t.segment.payload.0).collect();
    assert_eq!(lens, [1000, 1000, 512]);
    end.ack(513);
    assert_eq!(end.metrics().mss, 512);
    let counters = end.subflow.counters();
    assert_eq!((counters.mtu_fail, counters.mtu_success), (1, 1));
}

/// A path that is down for long is no black hole: the size comes back.
#[test]
fn a_dead_path_is_no_black_hole() {
    let tcp = TcpConfig { black_hole_detection: true, ..without_tlp() };
    let mut end = End::open(tcp, 100);
    end.push(3000);
    end.wait(20_000);
    assert_eq!(end.metrics().mss, 1000);
    end.ack(3001);
    assert_eq!(end.metrics().packets_out(), 0);
}
