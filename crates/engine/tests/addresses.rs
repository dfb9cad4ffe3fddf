//! Connection attempts that an endpoint refuses or ignores: addresses that are no host's, and MP_CAPABLE of
//! an unknown version.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use ropewalk_engine::config::{BufferConfig, ConnectionConfig, EndpointConfig, PathManagerConfig, TcpConfig};
use ropewalk_engine::endpoint::{ConnectError, Endpoint};
use ropewalk_engine::{Entropy, PathId, Time, congestion, scheduler};
use ropewalk_wire::{Flags, FourTuple, MpCapable, Segment, Seq};

#[derive(Debug)]
struct Counter(u64);

impl Entropy for Counter {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }
}

fn config() -> Arc<ConnectionConfig> {
    Arc::new(ConnectionConfig {
        tcp: TcpConfig::default(),
        multipath: true,
        checksum: false,
        send_buffer: BufferConfig::fixed(1 << 20),
        receive_buffer: BufferConfig::fixed(1 << 20),
        scheduler: scheduler::builtin().parse("minrtt").expect("a scheduler"),
        congestion: congestion::builtin().parse("reno").expect("a congestion control"),
        path_manager: PathManagerConfig::default(),
        trace_decisions: false,
        ..ConnectionConfig::default()
    })
}

fn endpoint() -> Endpoint<Bytes, Counter> {
    Endpoint::new(EndpointConfig::default(), Counter(1))
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

//= test RFC 9293 MUST-46
#[test]
fn nothing_is_opened_to_or_from_an_address_of_no_host() {
    let host = "192.0.2.1:1000";
    for (local, remote, wrong) in [
        (host, "255.255.255.255:80", "255.255.255.255"),
        (host, "224.0.0.1:80", "224.0.0.1"),
        (host, "0.0.0.0:80", "0.0.0.0"),
        ("239.1.2.3:1000", "192.0.2.2:80", "239.1.2.3"),
        ("[2001:db8::1]:1000", "[ff02::1]:80", "ff02::1"),
        ("[::]:1000", "[2001:db8::2]:80", "::"),
    ] {
        let mut client = endpoint();
        let refused = client.connect(Time::ZERO, PathId(0), address(local), address(remote), config());
        assert_eq!(refused, Err(ConnectError::NotAHost(wrong.parse().expect("an address"))));
        assert!(client.is_empty());
    }
    assert!(
        endpoint().connect(Time::ZERO, PathId(0), address(host), address("192.0.2.2:80"), config()).is_ok()
    );
}

/// The answer to a SYN of a listener for all addresses.
fn answer(source: &str, destination: &str, capable: Option<MpCapable>) -> Option<Segment<Bytes>> {
    let mut server = endpoint();
    let any = if destination.starts_with('[') { "[::]:80" } else { "0.0.0.0:80" };
    server.listen(address(any), config());
    let tuple = FourTuple::new(address(source), address(destination));
    let mut syn = Segment::new(tuple, Seq(7), Seq(0), Flags::SYN);
    syn.rare_mut().mp_capable = capable;
    server.on_segment(Time::ZERO, PathId(0), syn);
    server.poll_transmit(Time::ZERO, 1).map(|(_, segment)| segment)
}

//= test RFC 9293 MUST-57 MUST-63
#[test]
fn a_syn_to_or_from_an_address_of_no_host_gets_no_answer() {
    for (source, destination) in [
        ("192.0.2.1:1000", "255.255.255.255:80"),
        ("192.0.2.1:1000", "224.0.0.1:80"),
        ("255.255.255.255:1000", "192.0.2.2:80"),
        ("224.0.0.5:1000", "192.0.2.2:80"),
        ("0.0.0.0:1000", "192.0.2.2:80"),
        ("[ff02::1]:1000", "[2001:db8::2]:80"),
        ("[2001:db8::1]:1000", "[ff02::1]:80"),
    ] {
        assert_eq!(answer(source, destination, None), None, "{source} > {destination}");
    }
    let served = answer("192.0.2.1:1000", "192.0.2.2:80", None).expect("a SYN/ACK");
    assert!(served.flags.contains(Flags::SYN.with(Flags::ACK)));
}

//= test RFC 8684 3.1-1 3.1-2 3.1-13 3.1-17 3.1-25 3.1-27
#[test]
fn an_mp_capable_of_another_kind_is_as_none() {
    let known = MpCapable { version: 1, hmac_sha256: true, ..MpCapable::default() };
    let taken = |capable| {
        let answer = answer("192.0.2.1:1000", "192.0.2.2:80", Some(capable)).expect("a SYN/ACK");
        answer.rare.is_some_and(|rare| rare.mp_capable.is_some())
    };
    assert!(taken(known));
    assert!(!taken(MpCapable { version: 0, ..known }));
    assert!(!taken(MpCapable { version: 2, ..known }));
    assert!(!taken(MpCapable { extensibility: true, ..known }));
    assert!(!taken(MpCapable { hmac_sha256: false, ..known }));
    let plain = answer("192.0.2.1:1000", "192.0.2.2:80", None).expect("a SYN/ACK");
    assert!(plain.rare.is_none_or(|rare| rare.mp_capable.is_none()), "none was offered");
}

#[test]
fn local_ports_are_taken_in_turn_from_the_first() {
    let ports = |first_port| {
        let settings =
            EndpointConfig { local_ports: 40_000..=40_002, first_port, ..EndpointConfig::default() };
        let mut client = Endpoint::<Bytes, Counter>::new(settings, Counter(1));
        let (local, remote) = (address("192.0.2.1:0"), address("192.0.2.2:80"));
        let mut taken = Vec::new();
        while client.connect(Time::ZERO, PathId(0), local, remote, config()).is_ok() {
            let syn = client.poll_transmit(Time::ZERO, 1).expect("a SYN").1;
            taken.push(syn.tuple.src_port);
        }
        taken
    };
    assert_eq!(ports(0), [40_000, 40_001, 40_002]);
    assert_eq!(ports(5), [40_002, 40_000, 40_001]);
}
