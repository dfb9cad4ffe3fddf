//! Opening and closing: RFC 9293's figures.

use crate::Time;
use ropewalk_wire::{Flags, Seq, Timestamps};

use super::super::testing::{End, Pair, Sent, plain_config};
use crate::tcp::{Kind, State, TcpConfig};

fn pair() -> Pair {
    let mut pair = Pair::new(TcpConfig::default(), TcpConfig::default(), 10);
    pair.run(100);
    assert_eq!(pair.states(), (State::Established, State::Established));
    pair
}

//= test RFC 9293 MUST-13
//= test RFC 9293 3.6 figure 12
#[test]
fn a_normal_close() {
    let mut pair = pair();
    pair.ends[0].close();
    pair.run(25);
    assert_eq!(pair.states(), (State::FinWait2, State::CloseWait));
    pair.ends[1].close();
    pair.run(15);
    assert_eq!(pair.states(), (State::TimeWait, State::LastAck));
    pair.run(15);
    assert_eq!(pair.states(), (State::TimeWait, State::Closed));
    pair.run(61_000);
    assert_eq!(pair.states().0, State::Closed, "after twice the segment lifetime");
}

//= test RFC 9293 3.6 figure 13
#[test]
fn a_simultaneous_close() {
    let mut pair = pair();
    pair.ends[0].close();
    pair.ends[1].close();
    pair.run(15);
    assert_eq!(pair.states(), (State::Closing, State::Closing));
    pair.run(10);
    assert_eq!(pair.states(), (State::TimeWait, State::TimeWait));
}

//= test RFC 9293 MUST-10
//= test RFC 9293 3.5 figure 7
/// Both open at once: SYNs cross, both answer with SYN/ACK, both are open.
#[test]
fn a_simultaneous_open() {
    for tcp in [TcpConfig::default(), plain_config()] {
        let mut ends = [End::client(tcp.clone()), End::client(tcp)];
        ends[0].push(3000);
        let mut pair = Pair::joined(ends, 10);
        pair.run(15);
        assert_eq!(pair.states(), (State::SynReceived, State::SynReceived));
        pair.run(200);
        assert_eq!(pair.states(), (State::Established, State::Established));
        assert_eq!(pair.read, [0, 3000]);
        assert_eq!(pair.ends[0].subflow.counters().syn_retrans, 0);
    }
}

//= test RFC 9293 3.5 figure 8
/// An old SYN/ACK in SYN-SENT is answered with a RST of its own number, and the open goes on.
#[test]
fn an_old_syn_ack_is_refused() {
    let mut end = End::client(plain_config());
    end.sent();
    let mut old = end.syn_ack();
    old.ack = Seq(777);
    assert!(!end.receive(old).established);
    let sent = end.sent();
    assert_eq!((sent.len(), sent[0].kind, sent[0].segment.seq), (1, Kind::Rst, Seq(777)));
    assert!(!sent[0].segment.flags.contains(Flags::ACK));
    assert_eq!(end.state(), State::SynSent);
    let syn_ack = end.syn_ack();
    assert!(end.receive(syn_ack).established);
}

/// In SYN-RECEIVED an ACK of what was never sent is refused, a repeated SYN answered again.
#[test]
fn the_passive_side_refuses_and_repeats() {
    let mut client = End::client(plain_config());
    let syn = client.sent().remove(0).segment;
    let mut server = End::server(plain_config(), Time::ZERO, &syn);
    assert_eq!(server.sent()[0].kind, Kind::SynAck);
    let mut wrong = server.peer(Flags::default(), 900);
    wrong.window = 1000;
    server.receive(wrong);
    let sent = server.sent();
    assert_eq!((sent[0].kind, sent[0].segment.seq), (Kind::Rst, Seq(900)));
    server.receive(syn);
    assert_eq!(server.sent()[0].kind, Kind::SynAck);
    server.ack(1);
    assert_eq!(server.state(), State::Established);
}

//= test RFC 9293 MUST-18
/// After a repeated SYN without timestamps nothing is known of the round trip: three seconds (RFC 6298 5.7).
#[test]
fn a_repeated_syn_gives_no_sample() {
    for timestamps in [false, true] {
        let mut end = End::client(TcpConfig { timestamps, ..plain_config() });
        end.wait(1500);
        let mut syn_ack = end.syn_ack();
        if timestamps {
            syn_ack.timestamps = Some(Timestamps { value: 1, echo: 1000 });
        }
        assert!(end.receive(syn_ack).established);
        let expected = if timestamps { (500, 1500) } else { (0, 3000) };
        assert_eq!((end.metrics().rtt.smoothed.as_millis(), end.metrics().rto.as_millis()), expected);
        assert_eq!(end.metrics().cwnd(), 10, "one repeat is forgiven");
    }
}

/// A retransmitted FIN in TIME-WAIT is acknowledged, and the wait begins anew.
#[test]
fn time_wait_answers_the_last_fin_again() {
    let mut pair = pair();
    pair.ends[1].close();
    pair.run(25);
    pair.ends[0].close();
    pair.run(5);
    let mut end = End::open(plain_config(), 20);
    end.close();
    end.sent();
    let fin = end.peer(Flags::FIN, 2);
    end.receive(fin.clone());
    assert_eq!((end.state(), end.sent().len()), (State::TimeWait, 1));
    end.wait(50_000);
    end.receive(fin);
    assert_eq!(end.sent().len(), 1);
    end.wait(100_000);
    assert_eq!(end.state(), State::TimeWait);
    end.wait(120_000);
    assert_eq!(end.state(), State::Closed);
}

/// A closed side still receives (RFC 9293 3.6, case 1).
#[test]
fn half_closed_it_still_receives() {
    let mut pair = pair();
    pair.ends[0].push(5000);
    pair.ends[0].close();
    pair.run(100);
    assert_eq!((pair.read, pair.states()), ([0, 5000], (State::FinWait2, State::CloseWait)));
    pair.ends[1].push(70_000);
    pair.run(400);
    assert_eq!(pair.read, [70_000, 5000]);
    pair.ends[1].close();
    pair.run(100);
    assert_eq!(pair.states(), (State::TimeWait, State::Closed));
}

/// Every tenth segment of the sender is lost, and every eleventh ACK.
#[test]
fn everything_arrives_once_over_a_lossy_path() {
    for tcp in [TcpConfig::default(), plain_config(), TcpConfig { sack: false, ..plain_config() }] {
        let mut pair = Pair::new(tcp.clone(), tcp, 10);
        pair.lose = |from, n| n % if from == 0 { 10 } else { 11 } == 0;
        pair.run(5_000);
        pair.ends[0].push(400_000);
        pair.ends[0].close();
        pair.run(60_000);
        assert_eq!(pair.read, [0, 400_000]);
        let metrics = pair.ends[0].metrics();
        assert_eq!(
            (metrics.packets_out(), metrics.sacked_out(), metrics.lost_out(), metrics.retrans_out()),
            (0, 0, 0, 0)
        );
    }
}

/// Data both ways on one connection, and nothing is acknowledged twice.
#[test]
fn two_ends_that_opened_by_script_talk() {
    let mut ends = [End::open(plain_config(), 20), End::open(plain_config(), 20)];
    ends[0].push(30_000);
    ends[1].push(20_000);
    let mut pair = Pair::joined(ends, 10);
    pair.run(500);
    assert_eq!(pair.read, [20_000, 30_000]);
    assert_eq!(pair.ends[1].subflow.counters().retrans_segs, 0);
}

/// The positions, lengths and FINs of what was sent.
fn data_and_fins(sent: &[Sent]) -> Vec<(u32, u32, bool)> {
    let what = |sent: &Sent| {
        let segment = &sent.segment;
        (segment.seq.0, segment.payload.0, segment.flags.contains(Flags::FIN))
    };
    sent.iter().map(what).collect()
}

#[test]
fn the_last_data_carries_the_fin() {
    let mut end = End::open(plain_config(), 20);
    end.push(2500);
    end.close();
    let sent = end.sent();
    assert_eq!(data_and_fins(&sent), [(1, 1000, false), (1001, 1000, false), (2001, 500, true)]);
    assert_eq!(end.state(), State::FinWait1);
    // The last data and its FIN are lost: they are sent again together, and the FIN alone once the data is
    // acknowledged.
    end.ack(2001);
    let start = end.now.as_millis();
    let again: Vec<_> = end.wait(start + 1000).into_iter().map(|(_, sent)| sent).collect();
    assert_eq!(data_and_fins(&again)[0], (2001, 500, true));
    end.ack(2501);
    assert_eq!(end.state(), State::FinWait1, "the FIN isn't acknowledged");
    let start = end.now.as_millis();
    let fin: Vec<_> = end.wait(start + 2000).into_iter().map(|(_, sent)| sent).collect();
    assert_eq!(data_and_fins(&fin)[0], (2501, 0, true));
    end.ack(2502);
    assert_eq!(end.state(), State::FinWait2);
}

#[test]
fn a_fin_that_the_window_has_no_room_for_comes_alone() {
    for (window, fins) in [(500, vec![(1, 500, false), (501, 0, true)]), (501, vec![(1, 500, true)])] {
        let mut end = End::open(plain_config(), 20);
        let mut ack = end.peer(Flags::ACK, 1);
        ack.window = window;
        end.receive(ack);
        end.push(500);
        end.close();
        assert_eq!(data_and_fins(&end.sent()), fins, "{window} bytes");
    }
}
