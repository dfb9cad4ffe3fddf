//! Attacks by others and by the peer: forged joins and announcements, floods, segments from off the path.
//! Existing connections are unaffected, and memory stays bounded.

use crate::common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use common::{Log, Net, PathScript, SERVER_ADDRESS, bytes, client_address};
use ropewalk_engine::mptcp::{Event, add_addr_hmac};
use ropewalk_engine::{MILLISECOND, Time};
use ropewalk_wire::{AddAddr, Flags, FourTuple, MpCapable, MpFastClose, MpJoin, Segment, Seq};

fn two_paths() -> Vec<PathScript> {
    vec![PathScript::clean(10), PathScript::clean(20)]
}

fn joined(net: &Net, end: usize) -> usize {
    let added = |(at, event): &&(usize, Event)| *at == end && matches!(event, Event::SubflowAdded { .. });
    net.events.iter().filter(added).count()
}

fn is_reset(net: &Net) -> bool {
    net.events.iter().any(|(_, event)| matches!(event, Event::Reset { .. }))
}

fn join(segment: &mut Segment<Bytes>) -> Option<&mut MpJoin> {
    segment.rare.as_mut()?.mp_join.as_mut()
}

/// Both keys, as the client's third ACK had them: the client's, the server's.
fn keys(log: &Log) -> (u64, u64) {
    let known = |(_, segment): &(usize, Segment<Bytes>)| match segment.rare.as_deref()?.mp_capable? {
        MpCapable { sender_key: Some(client), receiver_key: Some(server), .. } => Some((client, server)),
        _ => None,
    };
    log.borrow().iter().find_map(known).expect("a third ACK")
}

/// An ACK as an end would send it next on its first subflow.
fn last_ack(log: &Log, from: usize) -> Segment<Bytes> {
    let log = log.borrow();
    let first = log[0].1.tuple;
    let own = if from == 0 { first } else { first.reversed() };
    let sent = log.iter().filter(|(end, segment)| *end == from && segment.tuple == own);
    let next = sent.clone().map(|(_, segment)| segment.seq.plus(segment.sequence_len()));
    let next = next.reduce(|a, b| if (b.0.wrapping_sub(a.0) as i32) > 0 { b } else { a });
    let mut acks =
        sent.rev().filter(|(_, segment)| segment.payload.is_empty() && segment.flags == Flags::ACK);
    let mut ack = acks.next().expect("an ACK").1.clone();
    ack.seq = next.expect("some were sent");
    ack
}

/// A server with one connected client over one path, everything that was sent, and a short transfer done.
fn established_after_transfer() -> (Net, Log) {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10)]);
    let log = net.log();
    net.transfer_some(20_000);
    net.reply(bytes(4, 3000));
    net.pass(100);
    (net, log)
}

/// The connection still works.
#[track_caller]
fn unharmed(net: &mut Net) {
    net.transfer_some(30_000);
    assert!(net.delivered_all(), "bytes differ");
    let told = net.received[0].len();
    net.reply(bytes(9, 5000));
    assert_eq!(net.received[0].len(), told + 5000);
    assert!(!is_reset(net), "{:?}", net.events);
}

//= test RFC 8684 3.2-8 3.9.3-2 3.6-a 3.2-9
#[test]
fn a_wrong_hmac_on_the_joins_syn_ack_costs_the_join() {
    let mut net = Net::new("minrtt", "lia", two_paths());
    let log = net.log();
    let (told, mut spoiled) = (log.clone(), false);
    net.tamper = Some(Box::new(move |from, segment| {
        if from == 1
            && !spoiled
            && let Some(MpJoin::SynAck { hmac, .. }) = join(segment)
        {
            *hmac ^= 1 << 17;
            spoiled = true;
        }
        told.borrow_mut().push((from, segment.clone()));
        true
    }));
    net.transfer_some(20_000);
    net.pass(100);
    assert_eq!((joined(&net, 0), joined(&net, 1)), (0, 0));
    assert_eq!(net.counter(0, "MPTcpExtMPJoinSynAckHMacFailure"), 1);
    let refused = log.borrow().iter().any(|(from, segment)| {
        let reason = segment.rare.as_deref().and_then(|rare| rare.mp_tcprst);
        *from == 0 && segment.flags.contains(Flags::RST) && reason.is_some_and(|reset| reset.reason == 1)
    });
    assert!(refused, "RST with MP_TCPRST's \"MPTCP-specific error\"");
    // The join is tried again, without interference.
    net.pass(2000);
    assert_eq!((joined(&net, 0), joined(&net, 1)), (1, 1));
    unharmed(&mut net);
}

//= test RFC 8684 3.2-10 3.9.3-2 3.6-a 3.2-9 3.6-2 3.9.3-3
#[test]
fn a_wrong_hmac_on_the_joins_third_ack_costs_the_join() {
    let mut net = Net::new("minrtt", "lia", two_paths());
    let log = net.log();
    let told = log.clone();
    let mut spoiled = false;
    net.tamper = Some(Box::new(move |from, segment| {
        if from == 0
            && !spoiled
            && let Some(MpJoin::Ack { hmac }) = join(segment)
        {
            hmac[19] ^= 1;
            spoiled = true;
        }
        told.borrow_mut().push((from, segment.clone()));
        true
    }));
    net.transfer_some(20_000);
    net.pass(100);
    assert_eq!(joined(&net, 1), 0);
    assert_eq!(net.counter(1, "MPTcpExtMPJoinAckHMacFailure"), 1);
    let refused = log.borrow().iter().any(|(from, segment)| {
        *from == 1
            && segment.flags.contains(Flags::RST)
            && segment.rare.as_deref().is_some_and(|rare| rare.mp_tcprst.is_some())
    });
    assert!(refused, "RST with a reason");
    // The server's refusal is final.
    net.pass(20_000);
    assert_eq!((joined(&net, 0), joined(&net, 1)), (0, 0));
    unharmed(&mut net);
}

fn attacker(number: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)), number)
}

fn join_syn(from: SocketAddr, token: u32) -> Segment<Bytes> {
    let mut syn = Segment::new(FourTuple::new(from, SERVER_ADDRESS), Seq(1000), Seq(0), Flags::SYN);
    syn.window = 65_535;
    syn.rare_mut().mp_join = Some(MpJoin::Syn { backup: false, address_id: 9, token, nonce: 5 });
    syn
}

//= test RFC 8684 3.2-7
#[test]
fn guessed_tokens_are_refused_and_leave_no_state() {
    let (mut net, _) = established_after_transfer();
    for guess in 0..5000_u32 {
        net.inject(1, join_syn(attacker(1 + guess as u16), guess.wrapping_mul(0x9e37_79b9)));
        let answers = net.take(1);
        assert_eq!(answers.len(), 1);
        assert!(answers[0].flags.contains(Flags::RST));
        let reason = answers[0].rare.as_deref().and_then(|rare| rare.mp_tcprst).map(|reset| reset.reason);
        assert_eq!(reason, Some(1));
    }
    assert_eq!(net.ends[1].counters().join_no_token, 5000);
    assert_eq!(net.ends[1].len(), 1);
    let server = net.ends[1].connection(net.server.expect("accepted")).expect("open");
    assert_eq!(server.subflow_metrics().len(), 1, "a slot was taken");
    unharmed(&mut net);
}

/// Answers that nobody polls are bounded, too.
#[test]
fn refusals_that_nobody_sends_do_not_pile_up() {
    let (mut net, _) = established_after_transfer();
    for guess in 0..5000_u32 {
        net.inject(1, join_syn(attacker(1 + guess as u16), guess));
    }
    assert_eq!(net.take(1).len(), 1024);
}

/// An attacker that saw the token but not the keys: each forged join is refused, its slot is freed, and the
/// honest join still works.
#[test]
fn a_flood_of_joins_with_bad_hmacs_does_not_keep_the_honest_one_out() {
    let mut net = Net::new("minrtt", "lia", two_paths());
    let log = net.log();
    // The honest join waits: its SYNs are lost for now.
    let told = log.clone();
    net.tamper = Some(Box::new(move |from, segment| {
        told.borrow_mut().push((from, segment.clone()));
        !matches!(join(segment), Some(MpJoin::Syn { .. }))
    }));
    net.transfer_some(20_000);
    let token = log.borrow().iter().find_map(|(_, segment)| match segment.rare.as_deref()?.mp_join? {
        MpJoin::Syn { token, .. } => Some(token),
        _ => None,
    });
    let token = token.expect("a join");
    for number in 1..2000 {
        net.inject(1, join_syn(attacker(number), token));
        let answer = net.take(1).remove(0);
        assert!(answer.flags.contains(Flags::SYN), "{number}: {answer:?}");
        let tuple = FourTuple::new(attacker(number), SERVER_ADDRESS);
        let mut third = Segment::new(tuple, Seq(1001), answer.seq.plus(1), Flags::ACK);
        third.rare_mut().mp_join = Some(MpJoin::Ack { hmac: [number as u8; 20] });
        net.inject(1, third);
        assert!(net.take(1).iter().any(|segment| segment.flags.contains(Flags::RST)), "{number}");
    }
    assert_eq!(net.counter(1, "MPTcpExtMPJoinAckHMacFailure"), 1999);
    let server = net.ends[1].connection(net.server.expect("accepted")).expect("open");
    assert!(server.subflow_metrics().len() <= 10, "{} slots", server.subflow_metrics().len());
    net.tamper = None;
    net.pass(5000);
    assert_eq!(joined(&net, 1), 1);
    unharmed(&mut net);
}

/// An announcement of an address by the server, with this HMAC.
fn announcement(log: &Log, option: AddAddr) -> Segment<Bytes> {
    let mut segment = last_ack(log, 1);
    segment.timestamps = None;
    segment.sack.truncate(0);
    segment.rare_mut().add_addr = Some(option);
    segment
}

fn address(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0a63_0000 + number))
}

/// Announced by the server with the right HMAC.
fn honest(log: &Log, number: u32, id: u8, port: Option<u16>) -> AddAddr {
    let (client, server) = keys(log);
    let hmac = Some(add_addr_hmac(server, client, id, address(number), port));
    AddAddr { echo: false, address_id: id, address: address(number), port, hmac }
}

fn join_syns(segments: &[Segment<Bytes>]) -> usize {
    segments
        .iter()
        .filter(|segment| matches!(join(&mut (*segment).clone()), Some(MpJoin::Syn { .. })))
        .count()
}

//= test RFC 8684 3.4.1-6
#[test]
fn an_announcement_with_any_bit_changed_is_ignored() {
    let (mut net, log) = established_after_transfer();
    let right = honest(&log, 1, 5, Some(4000));
    let mut wrong = vec![
        AddAddr { hmac: None, ..right },
        AddAddr { port: None, ..right },
        AddAddr { address: address(2), ..right },
    ];
    wrong.extend((0..64).map(|bit| AddAddr { hmac: right.hmac.map(|hmac| hmac ^ (1 << bit)), ..right }));
    wrong.extend((0..8).map(|bit| AddAddr { address_id: right.address_id ^ (1 << bit), ..right }));
    wrong.extend((0..16).map(|bit| AddAddr { port: right.port.map(|port| port ^ (1 << bit)), ..right }));
    wrong.extend((0..32).map(|bit| AddAddr { address: address(1 ^ (1 << bit)), ..right }));
    for (count, option) in wrong.iter().enumerate() {
        net.inject(0, announcement(&log, *option));
        let sent = net.take(0);
        assert_eq!(join_syns(&sent), 0, "{option:?}");
        let echo =
            |segment: &Segment<Bytes>| segment.rare.as_deref().is_some_and(|rare| rare.add_addr.is_some());
        assert!(!sent.iter().any(echo), "echoed {option:?}");
        let client = net.ends[0].connection(net.client).expect("open");
        assert_eq!(client.stats(net.now).add_addr_hmac_failures, count as u64 + 1, "{option:?}");
    }
    net.inject(0, announcement(&log, right));
    assert_eq!(join_syns(&net.take(0)), 1, "the honest one is joined");
    unharmed(&mut net);
}

//= test RFC 8684 3.4.1-4
//= test RFC 8684 3.2-a
/// The peer announces addresses without end. There are no more joins than the limits allow, and no more
/// echoes than fit.
#[test]
fn a_flood_of_announcements_is_bounded() {
    let (mut net, log) = established_after_transfer();
    for number in 0..20_000_u32 {
        net.inject(0, announcement(&log, honest(&log, number, 1 + (number % 255) as u8, None)));
    }
    let sent = net.take(0);
    let echoes =
        sent.iter().filter(|segment| segment.rare.as_deref().is_some_and(|rare| rare.add_addr.is_some()));
    assert_eq!(echoes.count(), 16);
    assert_eq!(join_syns(&sent), 8, "`subflows` and `add_addr_accepted` are 8");
    let client = net.ends[0].connection(net.client).expect("open");
    assert!(client.subflow_metrics().len() <= 9);
    // The peer's other addresses don't answer: those joins fail, and the connection goes on.
    unharmed(&mut net);
}

//= test RFC 8684 3.5-b
#[test]
fn a_fastclose_with_the_wrong_key_is_ignored() {
    let (mut net, log) = established_after_transfer();
    let (client, server) = keys(&log);
    for key in [client ^ 1, server, 0] {
        let mut segment = last_ack(&log, 1);
        segment.rare_mut().mp_fastclose = Some(MpFastClose { receiver_key: key });
        net.inject(0, segment);
        let _ = net.take(0);
    }
    unharmed(&mut net);
}

//= test RFC 8684 3.5-c
#[test]
fn a_fastclose_with_the_right_key_ends_every_subflow() {
    let mut net = Net::new("minrtt", "lia", two_paths());
    let log = net.log();
    net.transfer_some(20_000);
    net.pass(200);
    assert_eq!(joined(&net, 0), 1);
    let mut segment = last_ack(&log, 1);
    segment.rare_mut().mp_fastclose = Some(MpFastClose { receiver_key: keys(&log).0 });
    net.inject(0, segment);
    let resets = net.take(0);
    assert_eq!(resets.iter().filter(|segment| segment.flags.contains(Flags::RST)).count(), 2, "{resets:?}");
    net.pass(10);
    assert!(net.ends[0].is_empty() && is_reset(&net));
}

//= test RFC 8684 3-3 3.4.1-1 3.4.2-6
/// RFC 5961 3.2, 4.2, 5.2: an attacker that guesses the four-tuple but not the sequence numbers.
#[test]
fn segments_from_off_the_path_do_no_harm() {
    let (mut net, log) = established_after_transfer();
    // What a blind attacker would need: the next number that the client expects, and what it has sent.
    let model = last_ack(&log, 1);
    let next = model.seq;
    let forged = |seq: Seq, ack: Seq, flags| Segment {
        timestamps: None,
        dss: None,
        ..{
            let mut segment = Segment::new(model.tuple, seq, ack, flags);
            segment.window = 1;
            segment
        }
    };
    let challenge = |sent: &[Segment<Bytes>]| {
        assert!(
            sent.iter().all(|segment| segment.flags == Flags::ACK && segment.payload.is_empty()),
            "{sent:?}"
        );
        sent.len()
    };
    let rst = |seq| forged(seq, Seq(0), Flags::RST);
    // In the window but not exact: a challenge. Outside: nothing.
    for (reset, answers) in [
        (rst(next.plus(1)), 1),
        (rst(next.plus(5000)), 1),
        (rst(Seq(next.0.wrapping_sub(1))), 0),
        (rst(next.plus(1 << 30)), 0),
    ] {
        net.pass(1000);
        net.inject(0, reset);
        assert_eq!(challenge(&net.take(0)), answers);
    }
    for flags in [Flags::SYN, Flags::SYN.with(Flags::ACK)] {
        net.pass(1000);
        net.inject(0, forged(next, model.ack, flags));
        assert_eq!(challenge(&net.take(0)), 1);
    }
    // Data at the right place, acknowledging what was never sent or long ago.
    for ack in [model.ack.plus(1 << 20), Seq(model.ack.0.wrapping_sub(1 << 30))] {
        net.pass(1000);
        let mut data = forged(next, ack, Flags::ACK);
        data.payload = bytes(1, 100);
        net.inject(0, data);
        challenge(&net.take(0));
    }
    unharmed(&mut net);
}

/// The same while opening: only a sender that has seen the SYN can answer it.
#[test]
fn a_forged_answer_to_a_syn_is_refused() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10)]);
    let syn = net.take(0).remove(0);
    let tuple = syn.tuple.reversed();
    for ack in [syn.seq, syn.seq.plus(2), Seq(syn.seq.0.wrapping_sub(1))] {
        let mut answer = Segment::new(tuple, Seq(77), ack, Flags::SYN.with(Flags::ACK));
        answer.window = 1000;
        net.inject(0, answer);
        let refused = net.take(0);
        assert!(refused.iter().all(|segment| segment.flags.contains(Flags::RST) && segment.seq == ack));
        assert_eq!(refused.len(), 1);
        net.inject(0, Segment::new(tuple, Seq(0), ack, Flags::RST.with(Flags::ACK)));
        assert!(net.take(0).is_empty());
    }
    // Without an ACK, a RST in SYN-SENT says nothing.
    net.inject(0, Segment::new(tuple, Seq(0), Seq(0), Flags::RST));
    // The SYN was taken off the network: its repetition opens the connection.
    unharmed(&mut net);
    assert!(net.now > Time::ZERO + 900 * MILLISECOND);
    assert!(net.client_multipath());
}

/// A peer maps data far beyond the window, or never fills a gap: memory is bounded by the buffer.
#[test]
fn data_beyond_the_window_is_not_kept() {
    let (mut net, log) = established_after_transfer();
    let model = last_ack(&log, 0);
    let dss = model.dss.expect("a DATA_ACK");
    let own = log.borrow().iter().rev().find_map(|(from, segment)| {
        let mapping = segment.dss.filter(|_| *from == 0)?.mapping?;
        Some(mapping)
    });
    let mut mapping = own.expect("data of the client");
    let first = mapping.dsn.wrapping_add(u64::from(mapping.len));
    let (mut seq, mut ssn) = (model.seq, mapping.ssn + u32::from(mapping.len));
    net.reads[1] = false;
    let server = net.server.expect("accepted");
    for piece in 0..20_000_u64 {
        // A hole of one byte, then everything far apart, at last far beyond any window.
        mapping.dsn = first.wrapping_add(1 + piece * 2000);
        (mapping.ssn, mapping.len) = (ssn, 1000);
        let mut segment = model.clone();
        segment.seq = seq;
        segment.dss = Some(ropewalk_wire::Dss { mapping: Some(mapping), ..dss });
        segment.payload = bytes(piece as u8, 1000);
        net.inject(1, segment);
        let _ = net.take(1);
        (seq, ssn) = (seq.plus(1000), ssn + 1000);
    }
    let connection = net.ends[1].connection(server).expect("open");
    let kept = connection.ofo_bytes();
    assert!((500_000..=2 << 20).contains(&kept), "{kept} bytes are kept of 20 MB; the buffer is 1 MiB");
    assert!(net.received[1].len() == 20_000, "nothing of it is in order");
}

//= test RFC 7323 7-a
/// The timestamps of connections that are opened at the same moment begin at different values, so that none
/// tells how long the host has been up.
#[test]
fn timestamps_hide_the_hosts_clock() {
    let first_of_each = |port| {
        let ends = [SocketAddr::new(client_address(0), port), SERVER_ADDRESS];
        let mut net = Net::between(ends, |_| {}, "minrtt", "lia", vec![PathScript::clean(10)]);
        let log = net.log();
        net.transfer_some(2_000);
        let log = log.borrow();
        let first = |from| {
            let sent = log.iter().find(|(end, _)| *end == from).expect("a segment");
            sent.1.timestamps.expect("timestamps").value
        };
        [first(0), first(1)]
    };
    let [a, b] = [first_of_each(1111), first_of_each(2222)];
    let values = [a[0], a[1], b[0], b[1]];
    let far = |x: u32, y: u32| x.wrapping_sub(y).min(y.wrapping_sub(x)) > 100_000;
    for (index, value) in values.iter().enumerate() {
        assert!(far(*value, 0), "{values:?}");
        assert!(values[..index].iter().all(|other| far(*other, *value)), "{values:?}");
    }
}
