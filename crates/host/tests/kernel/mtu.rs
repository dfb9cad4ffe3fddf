//! A hop of 1280 bytes behind a kernel that routes: "packet too big" makes the engine's segments on that
//! subflow smaller (RFC 1191, RFC 8201); where the message is lost, the black hole is found by timeouts (RFC
//! 4821).

use std::net::IpAddr;
use std::os::fd::AsRawFd;

use ropewalk_engine::PathId;
use ropewalk_host::kernel;
use ropewalk_host::netns::Namespace;
use ropewalk_host::network::{Side, client_address, server_address};

use crate::harness::{assert_no_errors_but, lacks};
use crate::need_kernel;
use crate::stage::{self, Order, Setup, Stage};

const BYTES: u64 = 4 << 20;
/// On the narrow link. Each end knows the other one's: over IPv6 they would else find them two seconds late,
/// as the link is new, and each timeout would be a long one.
const GATEWAY: &str = "02:00:00:00:00:01";
const NEAR: &str = "02:00:00:00:00:02";

/// An address of the peer's, and the engine's.
fn addresses(engine: Side, v6: bool) -> [IpAddr; 2] {
    let (server, client) = (server_address(v6), client_address(0, v6));
    if engine == Side::Client { [server, client] } else { [client, server] }
}

/// Behind the kernel's end, which becomes a router: the engine's peer, on a narrow link.
fn behind(router: &Namespace, engine: Side, v6: bool, lose_icmp: bool) -> Namespace {
    let peer = Namespace::new("behind").unwrap();
    let descriptor = format!("/proc/{}/fd/{}", std::process::id(), peer.fd().as_raw_fd());
    let run = |space: &Namespace, lines: &[String]| {
        for line in lines {
            let words: Vec<_> = line.split_whitespace().collect();
            space.check("ip", &words).unwrap();
        }
    };
    for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        router.sysctl(key, "1").unwrap();
    }
    for key in ["net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter"] {
        peer.sysctl(key, "0").unwrap();
    }
    let family = if v6 { "-6" } else { "-4" };
    let length = if v6 { 128 } else { 32 };
    let [own, of_engine] = addresses(engine, v6);
    let device = if engine == Side::Client { "lo" } else { "path0" };
    let (gateway, near) = if v6 { ("fd72:1::1", "fd72:1::2") } else { ("192.0.2.1", "192.0.2.2") };
    let nodad = if v6 { " nodad" } else { "" };
    let subnet = if v6 { 64 } else { 24 };
    run(
        router,
        &[
            format!("{family} address del {own}/{length} dev {device}"),
            format!(
                "link add hop address {GATEWAY} type veth peer name hop address {NEAR} netns {descriptor}"
            ),
            format!("{family} address add {gateway}/{subnet} dev hop{nodad}"),
            "link set hop mtu 1280 up".into(),
            format!("{family} neighbor add {near} lladdr {NEAR} dev hop nud permanent"),
            // The route by which packets came back went with the address.
            format!("{family} route replace {of_engine}/{length} dev path0"),
        ],
    );
    run(
        &peer,
        &[
            "link set lo up".into(),
            format!("{family} address add {own}/{length} dev lo{nodad}"),
            format!("{family} address add {near}/{subnet} dev hop{nodad}"),
            "link set hop up".into(),
            format!("{family} neighbor add {gateway} lladdr {GATEWAY} dev hop nud permanent"),
            format!("{family} route add default via {gateway} src {own}"),
        ],
    );
    run(router, &[format!("{family} route add {own}/{length} via {near}")]);
    if lose_icmp {
        for rule in [
            "add table inet hole",
            "add chain inet hole out { type filter hook output priority 0; }",
            "add rule inet hole out meta l4proto { icmp } drop",
            "add rule inet hole out icmpv6 type packet-too-big drop",
        ] {
            router.check("nft", &[rule]).unwrap();
        }
    }
    peer
}

fn send(engine: Side, v6: bool, lose_icmp: bool) {
    let case = format!("engine {engine:?}, IPv6 {v6}, ICMP lost {lose_icmp}");
    let [own, of_engine] = addresses(engine, v6);
    let mut setup = Setup::new(engine, 1);
    if engine == Side::Client {
        (setup.local, setup.remote) = (Some(of_engine), Some(own));
    }
    setup.config.tcp.black_hole_detection = lose_icmp;
    let (stage, (peer, listener)) = Stage::new(setup, |router| {
        let peer = behind(router, engine, v6, lose_icmp);
        let listener = (engine == Side::Client).then(|| stage::listener(&peer));
        (peer, listener)
    });
    let socket = match &listener {
        Some(listener) => stage::accept(listener),
        None => stage::connect(&peer, own, of_engine),
    };
    stage.order(Order::Send(BYTES));
    stage.order(Order::Finish);
    stage::receive(&socket, BYTES);
    stage::expect_end(&socket);
    let info = kernel::info(&socket).unwrap().expect("Multipath TCP");
    assert!(!info.fallback, "{case}");
    drop(socket);
    stage.wait(&case, |seen| seen.closed);
    assert_no_errors_but(&case, &stage::counters(&peer), &[]);
    let seen = stage.end(&case);
    let flow = seen.flows.iter().find(|flow| flow.path == PathId(0)).expect("the subflow");
    // The MTU less IP's and TCP's headers, timestamps, and DSS.
    let header = if v6 { 60 } else { 40 };
    assert!(flow.mss <= 1280 - header - 12 && flow.mss > 400, "{case}: MSS {}", flow.mss);
    if v6 || !lose_icmp {
        assert!(flow.mss >= 1280 - header - 40, "{case}: MSS {}", flow.mss);
    }
}

#[test]
fn packet_too_big_makes_segments_smaller() {
    need_kernel!();
    for engine in [Side::Client, Side::Server] {
        send(engine, false, false);
        send(engine, true, false);
    }
}

fn find(engine: Side, v6: bool) {
    if !lacks(&["nft"]) {
        send(engine, v6, true);
    }
}

#[test]
fn a_black_hole_is_found() {
    need_kernel!();
    find(Side::Client, false);
}

#[test]
fn a_black_hole_is_found_by_a_server() {
    need_kernel!();
    find(Side::Server, false);
}

#[test]
fn a_black_hole_is_found_by_a_server_over_ipv6() {
    need_kernel!();
    find(Side::Server, true);
}

#[test]
fn a_black_hole_is_found_by_a_client_over_ipv6() {
    need_kernel!();
    find(Side::Client, true);
}
