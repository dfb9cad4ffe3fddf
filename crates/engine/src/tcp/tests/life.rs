//! Opening and closing: RFC 9293's figures.

use super::super::testing::{End, Pair, plain_config};
use crate::tcp::{State, TcpConfig};

fn pair() -> Pair {
    let mut pair = Pair::new(TcpConfig::default(), TcpConfig::default(), 10);
    pair.run(100);
    assert_eq!(pair.states(), (State::Established, State::Established));
    pair
}

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
        let flow = pair.ends[0].flow();
        assert_eq!((flow.packets_out, flow.sacked_out, flow.lost_out, flow.retrans_out), (0, 0, 0, 0));
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
