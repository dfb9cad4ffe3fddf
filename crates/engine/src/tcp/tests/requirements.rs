//! Single statements of RFC 9293 that no worked example shows.

use ropewalk_wire::{Flags, MpPrio, Segment, Seq, SyntheticPayload};

use super::super::testing::{End, MSS, plain_config, without_tlp};
use crate::tcp::{Kind, State, TcpConfig};
use crate::{MILLISECOND, SECOND, Time};

fn mss(segment: &Segment<SyntheticPayload>) -> Option<u16> {
    segment.rare.as_deref()?.mss
}

//= test RFC 9293 SHLD-5 MUST-65 MUST-67
/// 1000 on a path of 1040 bytes, whatever options there will be; in both SYNs, and nowhere else.
#[test]
fn the_mss_stands_in_syns_and_nowhere_else() {
    for tcp in [plain_config(), TcpConfig::default()] {
        let mut client = End::client(tcp.clone());
        let syn = client.sent().remove(0).segment;
        let mut server = End::server(tcp, Time::ZERO, &syn);
        let syn_ack = server.sent().remove(0).segment;
        assert_eq!((mss(&syn), mss(&syn_ack)), (Some(1000), Some(1000)));
        assert!(client.receive(syn_ack).established);
        client.push(5000);
        client.close();
        let sent = client.sent();
        assert!(sent.len() >= 5 && sent.iter().all(|sent| mss(&sent.segment).is_none()));
    }
}

//= test RFC 9293 MUST-16
/// The peer takes 600, the path 1040, timestamps cost 12 of either.
#[test]
fn segments_fit_the_peer_the_path_and_their_options() {
    for (timestamps, theirs, expected) in
        [(false, 600, 600), (true, 600, 588), (false, 9000, 1000), (true, 9000, 988)]
    {
        let mut end = End::client(TcpConfig { timestamps, ..plain_config() });
        end.sent();
        end.now = Time::ZERO + 100 * MILLISECOND;
        let mut syn_ack = end.syn_ack();
        syn_ack.rare_mut().mss = Some(theirs);
        assert!(end.receive(syn_ack).established);
        end.sent();
        end.push(3000);
        let sent = end.sent();
        assert_eq!(sent[0].segment.payload.0, expected);
        let most = usize::from(theirs.min(1000)) + 40;
        assert!(sent.iter().all(|sent| sent.segment.wire_len() <= most));
    }
}

//= test RFC 9293 SHLD-28
#[test]
fn small_writes_share_a_segment() {
    let mut end = End::open(plain_config(), 100);
    for _ in 0..25 {
        end.push(100);
    }
    assert_eq!(end.sent_data(), [(1, 1000), (1001, 1000), (2001, 500)]);
}

//= test RFC 9293 MUST-60 MUST-61
/// Nobody has to ask for it: everything leaves at once, and the segment that empties the queue says PSH.
#[test]
fn the_last_segment_pushes() {
    let mut end = End::open(plain_config(), 100);
    end.push(2500);
    let pushes = |end: &mut End| -> Vec<_> {
        end.sent().iter().map(|sent| sent.segment.flags.contains(Flags::PSH)).collect()
    };
    assert_eq!(pushes(&mut end), [false, false, true]);
    // The next piece of the stream that this subflow has doesn't go on where the last ended.
    end.push(1500);
    end.subflow.push(&mut end.metrics, 9000, ropewalk_wire::SyntheticPayload(1500));
    assert_eq!(pushes(&mut end), [false, true, false, true]);
    // The connection has more, only not yet here.
    end.more = true;
    end.push(1500);
    assert_eq!(pushes(&mut end), [false, false]);
}

//= test RFC 9293 SHLD-7 MUST-17
#[test]
fn nagle_holds_a_short_segment_back_where_it_is_on() {
    for nagle in [true, false] {
        let mut end = End::open(TcpConfig { nagle, ..plain_config() }, 100);
        end.push(100);
        assert_eq!(end.sent_data(), [(1, 100)], "nothing is in flight");
        end.push(100);
        end.push(1000);
        let now = if nagle { vec![(101, 1000)] } else { vec![(101, 1000), (1101, 100)] };
        assert_eq!(end.sent_data(), now);
        end.now += 100 * MILLISECOND;
        end.ack(1101);
        assert_eq!(end.sent_data(), if nagle { vec![(1101, 100)] } else { vec![] });
    }
}

//= test RFC 9293 MUST-58 MUST-59
#[test]
fn one_ack_stands_for_all_that_waited() {
    let mut end = End::open(plain_config(), 20);
    for n in 0..10 {
        end.data(1 + n * MSS, MSS as u32);
    }
    let sent = end.sent();
    assert_eq!((sent.len(), sent[0].segment.ack), (1, Seq(10_001)));
}

//= test RFC 9293 MUST-1
#[test]
fn a_window_field_has_no_sign() {
    for (window, segments) in [(0x7fff, 32), (0x8000, 32), (0xffff, 65)] {
        assert_eq!(usize::from(window) / 1000, segments);
        let mut fresh = End::open(plain_config(), 100);
        fresh.metrics.set_cwnd(100);
        let mut ack = fresh.peer(Flags::default(), 1);
        ack.window = window;
        fresh.receive(ack);
        fresh.push(100_000);
        assert_eq!(fresh.sent_data().len(), segments, "{window:#x}");
    }
}

//= test RFC 9293 REC-1
#[test]
fn a_window_may_have_thirty_bits() {
    let mut end = End::client(TcpConfig { window_scaling: true, ..plain_config() });
    end.sent();
    let mut syn_ack = end.syn_ack();
    syn_ack.rare_mut().window_scale = Some(14);
    assert!(end.receive(syn_ack).established);
    end.ack(1);
    assert_eq!(end.subflow.peer_window(), 65_535 << 14);
}

//= test RFC 9293 SHLD-15 SHLD-16
/// Eight segments are under way when the peer takes all but two back: those are repeated, the rest and what
/// is new wait.
#[test]
fn behind_a_shrunk_edge_old_data_is_repeated_and_nothing_goes_beyond() {
    let mut end = End::open(without_tlp(), 100);
    end.push(8000);
    assert_eq!(end.sent_data().len(), 8);
    end.now += 100 * MILLISECOND;
    let shrink = |end: &mut End, ack: u64, window: u16| {
        let mut segment = end.peer(Flags::default(), ack);
        segment.window = window;
        end.receive(segment);
    };
    shrink(&mut end, 1, 2000);
    end.push(4000);
    assert_eq!(end.sent_data(), []);
    let sent = end.wait(1500);
    assert!(!sent.is_empty() && sent.iter().all(|(_, sent)| sent.segment.seq == Seq(1)), "{sent:?}");
    shrink(&mut end, 1001, 1000);
    assert_eq!(end.sent_data(), [(1001, 1000)]);
    shrink(&mut end, 2001, 60_000);
    let again = end.wait(3000);
    assert_eq!(again.first().map(|(_, sent)| sent.segment.seq), Some(Seq(2001)));
    end.ack(8001);
    assert!(end.sent_data().contains(&(8001, 1000)));
}

//= test RFC 9293 MUST-37
/// For an hour of answers, far beyond the retries of a silent peer.
#[test]
fn a_closed_window_may_last() {
    let mut end = End::open(TcpConfig { retries: 3, ..plain_config() }, 100);
    let close = |end: &mut End| {
        let mut segment = end.peer(Flags::default(), 1);
        segment.window = 0;
        end.receive(segment);
    };
    close(&mut end);
    end.push(3000);
    end.sent();
    for n in 0..40 {
        let next = end.subflow.poll_timeout().expect("a probe is due");
        let sent = end.wait(next.since_origin().div_ceil(MILLISECOND));
        assert_eq!(sent.len(), 1, "probe {n}");
        close(&mut end);
    }
    assert!(end.now > Time::ZERO + 3600 * SECOND);
    assert_eq!(end.state(), State::Established);
}

//= test RFC 9293 MUST-66
#[test]
fn a_closed_window_hears_a_reset() {
    let mut end = End::open(plain_config(), 20);
    end.data(1, 1000);
    end.sent();
    end.receive.limit = 0;
    end.subflow.receiver.set_edge(end.subflow.rcv_nxt());
    let reset = end.peer(Flags::RST, 1);
    assert!(end.receive(reset).reset);
}

//= test RFC 9293 SHLD-2
#[test]
fn a_reset_may_carry_data() {
    let mut end = End::open(plain_config(), 20);
    let mut reset = end.peer(Flags::RST, 1);
    reset.payload = SyntheticPayload(40);
    assert!(end.receive(reset).reset);
    assert_eq!((end.state(), end.read()), (State::Closed, 0));
}

//= test RFC 9293 MUST-12
#[test]
fn an_abort_is_a_reset_and_a_close_a_fin() {
    let mut end = End::open(plain_config(), 20);
    end.push(1000);
    end.close();
    let sent = end.sent();
    assert!(sent.iter().any(|sent| sent.segment.flags.contains(Flags::FIN)));
    assert!(!sent.iter().any(|sent| sent.segment.flags.contains(Flags::RST)));
    let mut end = End::open(plain_config(), 20);
    end.push(1000);
    end.subflow.abort();
    let sent = end.sent();
    assert_eq!((sent.len(), sent[0].kind), (1, Kind::Rst));
    assert!(!sent[0].segment.flags.contains(Flags::FIN));
}

/// Once both sides have closed, a reset says nothing that the peer doesn't know (RFC 9293 3.10.5).
#[test]
fn an_abort_after_both_have_closed_is_silent() {
    let mut end = End::open(plain_config(), 20);
    let fin = end.peer(Flags::FIN, 1);
    end.receive(fin);
    end.close();
    end.sent();
    assert_eq!(end.state(), State::LastAck);
    end.subflow.abort();
    assert!(end.sent().is_empty());
}

//= test RFC 9293 MUST-37
/// What waits for a closed window is repeated for as long as the peer answers, but not if it is silent, nor
/// once the application has closed the connection.
#[test]
fn a_closed_window_is_waited_for_while_the_peer_answers_and_somebody_cares() {
    for (answers, abandoned, data) in
        [(true, false, 0), (false, false, 0), (true, true, 0), (true, false, 500), (true, true, 500)]
    {
        let mut end = End::open(plain_config(), 20);
        end.abandoned = abandoned;
        let mut closed = end.peer(Flags::ACK, 1);
        closed.window = 0;
        end.receive(closed.clone());
        end.push(data);
        end.close();
        let mut sent = 0;
        for _ in 0..2000 {
            let now = end.now.as_millis();
            sent += end.wait(now + 5_000).len();
            if answers {
                end.receive(closed.clone());
            }
        }
        let stays = answers && !abandoned;
        assert_eq!(end.state() != State::Closed, stays, "{answers}, {abandoned}, {data}: {sent}");
        assert!(sent > 8, "{sent}");
    }
}

//= test RFC 9293 SHLD-11
#[test]
fn by_default_data_is_repeated_for_more_than_a_hundred_seconds() {
    let mut end = End::open(plain_config(), 100);
    end.push(1000);
    let sent = end.wait(7_200_000);
    assert_eq!(sent.last().map(|(_, sent)| sent.kind), Some(Kind::Rst));
    let repeated = sent.iter().rev().find(|(_, sent)| sent.kind == Kind::Data).map(|(at, _)| *at);
    assert!(repeated.is_some_and(|at| at > 100_000), "{repeated:?} ms");
}

//= test RFC 9293 MUST-25
#[test]
fn by_default_silence_is_left_alone() {
    let mut end = End::open(plain_config(), 100);
    assert!(end.wait(30 * 86_400_000).is_empty());
    assert_eq!(end.state(), State::Established);
    end.push(1000);
    assert_eq!(end.sent_data().len(), 1);
}

//= test RFC 8684 3-1 3.4.1-13 4-2
/// Without SACK, the third duplicate ACK says that a segment is lost; not if the duplicates are there for an
/// option.
#[test]
fn an_ack_with_an_option_is_no_duplicate() {
    for (option, expected) in [(false, 1), (true, 0)] {
        let mut end = End::open(TcpConfig { sack: false, ..without_tlp() }, 100);
        end.push(8000);
        assert_eq!(end.sent_data().len(), 8);
        for _ in 0..4 {
            let mut ack = end.peer(Flags::ACK, 1);
            if option {
                ack.rare_mut().mp_prio = Some(MpPrio { backup: true });
            }
            end.receive(ack);
        }
        let repeated = end.sent_data().iter().filter(|(seq, _)| *seq == 1).count();
        assert_eq!(repeated, expected, "option: {option}");
    }
}
