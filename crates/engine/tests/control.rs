//! Control options, RFC 8684 3.4 to 3.6: ADD_ADDR, REMOVE_ADDR and MP_FASTCLOSE.

use crate::common;

use bytes::Bytes;
use common::{Log, Net, PathScript, SERVER_ADDRESS, client_address};
use ropewalk_engine::PathId;
use ropewalk_engine::config::{ConnectionConfig, LocalEndpoint};
use ropewalk_engine::mptcp::Event;
use ropewalk_wire::{AddAddr, Flags, MpCapable, MpJoin, Segment};

fn announcing(port: Option<u16>) -> Net {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10)]);
    let mut settings: ConnectionConfig = common::config("minrtt", "lia", 1);
    settings.path_manager.endpoints = vec![LocalEndpoint {
        address: client_address(77),
        port,
        path: PathId(0),
        id: 7,
        signal: true,
        subflow: false,
        backup: false,
    }];
    net.ends[1].listen(SERVER_ADDRESS, std::sync::Arc::new(settings));
    net
}

fn add_addr(segment: &Segment<Bytes>) -> Option<AddAddr> {
    segment.rare.as_deref()?.add_addr
}

fn is_join(segment: &Segment<Bytes>) -> bool {
    matches!(segment.rare.as_deref().and_then(|rare| rare.mp_join), Some(MpJoin::Syn { .. }))
}

//= test RFC 8684 3.4.1-b 3.4.1-c
/// The first two announcements are lost. There are three in all, and one echo with the same content but no
/// HMAC.
#[test]
fn an_announcement_is_repeated_until_its_echo() {
    let mut net = announcing(Some(4000));
    let log = Log::default();
    let told = log.clone();
    let mut lost = 0;
    net.tamper = Some(Box::new(move |from, segment| {
        told.borrow_mut().push((from, segment.clone()));
        let announced = add_addr(segment).is_some_and(|add| !add.echo);
        lost += u32::from(announced);
        !announced || lost > 2
    }));
    net.transfer_some(20_000);
    net.pass(60_000);
    let log = log.borrow();
    let said: Vec<_> = log.iter().filter_map(|(from, segment)| Some((*from, add_addr(segment)?))).collect();
    let (announced, echoes): (Vec<(usize, AddAddr)>, Vec<_>) =
        said.iter().copied().partition(|(_, add)| !add.echo);
    assert_eq!((announced.len(), echoes.len()), (3, 1), "{said:?}");
    assert!(announced.iter().all(|said| *said == announced[0] && said.0 == 1 && said.1.hmac.is_some()));
    assert_eq!(echoes[0], (0, AddAddr { echo: true, hmac: None, ..announced[0].1 }));
}

//= test RFC 8684 3.9.1-1
//= test RFC 8684 3.4.1-5 3.9.1-2
#[test]
fn without_a_port_the_connections_port_is_meant() {
    for (port, expected) in [(None, SERVER_ADDRESS.port()), (Some(4000), 4000)] {
        let mut net = announcing(port);
        let log = net.log();
        net.transfer_some(20_000);
        net.pass(200);
        let log = log.borrow();
        let join = log.iter().find(|(from, segment)| *from == 0 && is_join(segment)).expect("a join");
        assert_eq!((join.1.tuple.dst, join.1.tuple.dst_port), (client_address(77), expected));
    }
    // Nor has a join to the first address another port.
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10); 2]);
    let log = net.log();
    net.transfer_some(20_000);
    let log = log.borrow();
    let join = log.iter().find(|(_, segment)| is_join(segment)).expect("a join");
    assert_eq!(join.1.tuple.destination(), SERVER_ADDRESS);
}

//= test RFC 8684 3.4.1-d
#[test]
fn an_id_that_is_known_opens_nothing_new() {
    let mut net = announcing(None);
    let log = net.log();
    net.transfer_some(20_000);
    net.pass(50);
    let announcement =
        log.borrow().iter().find(|(_, segment)| add_addr(segment).is_some()).expect("one").1.clone();
    assert_eq!(net.counter(0, "MPTcpExtMPJoinSynTx"), 1);
    for _ in 0..10 {
        let mut again = announcement.clone();
        again.seq = net.next_seq(&log, 1);
        // As if it were sent now.
        let latest = log.borrow().iter().rfind(|(_, sent)| sent.tuple == again.tuple).expect("one").1.clone();
        (again.ack, again.timestamps) = (latest.ack, latest.timestamps);
        net.inject(0, again);
        assert!(!net.take(0).iter().any(is_join));
    }
    assert_eq!(net.counter(0, "MPTcpExtAddAddr"), 11, "they were read");
}

//= test RFC 8684 3.5-a
#[test]
fn an_abort_says_the_peers_key_and_resets_every_subflow() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10), PathScript::clean(20)]);
    let log = net.log();
    net.transfer_some(20_000);
    net.pass(300);
    let client = net.client;
    net.ends[0].abort(net.now, client);
    let sent = net.take(0);
    let key = log.borrow().iter().find_map(|(_, segment)| match segment.rare.as_deref()?.mp_capable? {
        MpCapable { receiver_key: Some(key), .. } => Some(key),
        _ => None,
    });
    let said = sent.iter().filter_map(|segment| Some(segment.rare.as_deref()?.mp_fastclose?.receiver_key));
    assert_eq!(said.collect::<Vec<_>>(), [key.expect("a key")]);
    assert_eq!(sent.iter().filter(|segment| segment.flags.contains(Flags::RST)).count(), 2);
    let first = sent
        .into_iter()
        .find(|segment| segment.rare.as_deref().is_some_and(|rare| rare.mp_fastclose.is_some()));
    net.inject(1, first.expect("one"));
    net.pass(10);
    assert!(net.events.iter().any(|(end, event)| *end == 1 && matches!(event, Event::Reset { .. })));
}
