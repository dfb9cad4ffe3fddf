//! What a reload changes for what isn't TCP, and what it leaves alone.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use ropewalk_host::clock::Clock;
use ropewalk_host::netns::Namespace;

use crate::datagrams::Association;
use crate::pair::{Asker, LINKS, Pair, WORLD, WhoAsks};
use crate::stage::{SERVER, ip, wait_until};
use crate::tunnel::{block, status};

const THROUGH: Option<&str> = Some("10.3.0.1");

#[test]
fn a_gateways_list_changes_for_both_carriers_and_breaks_neither() {
    let Some(mut pair) = Pair::start_by_file(&format!("{WORLD} 4433"), &[], LINKS) else { return };
    let list = |ports: &str| format!("addresses = [\"10.1.1.1\"]\nudp = [\"{WORLD} {ports}\"]\n");
    pair.restart_by_file(&list("4433"));
    let Pair { stage, lan, world, .. } = &pair;
    let _servers = [4433, 4434].map(|port| WhoAsks::start(world, &format!("{WORLD}:{port}")));
    let [one, other] = [4433, 4434].map(|port| Asker::new(lan, &format!("{WORLD}:{port}")));
    let Ok(association) = Association::new(stage) else { panic!("{}", pair.logs()) };
    let by_socks = |port: u16| {
        let server: SocketAddr = format!("{WORLD}:{port}").parse().unwrap();
        association.send(0, server, b"who am I?");
        association.answers(server)
    };
    for carrier in ["quic", "stream"] {
        if carrier == "stream" {
            block(stage, true);
            wait_until("a stream is used", || status(stage)["datagrams"]["carrier"] == "stream");
            wait_until("it carries", || one.seen().is_some());
        }
        let ends = || {
            ["go over this link no more", "it is tried again", "by a stream either"]
                .map(|text| stage.log().matches(text).count())
        };
        let before = ends();
        assert_eq!(one.seen().as_deref(), THROUGH, "{carrier}: {}", pair.logs());
        assert_eq!((other.seen(), by_socks(4434)), (None, false), "{carrier}: {}", pair.logs());
        pair.reload_gateway(&list("4433,4434"));
        assert_eq!(other.seen().as_deref(), THROUGH, "{carrier}: {}", pair.logs());
        assert_eq!(one.seen().as_deref(), THROUGH, "{carrier}: {}", pair.logs());
        assert!(by_socks(4434) && by_socks(4433), "{carrier}: {}", pair.logs());
        pair.reload_gateway(&list("4434"));
        assert_eq!((one.seen(), by_socks(4433)), (None, false), "{carrier}: {}", pair.logs());
        assert_eq!(other.seen().as_deref(), THROUGH, "{carrier}: {}", pair.logs());
        // What has nothing to do with it.
        pair.reload_gateway(&(list("4433") + "connections = 999\n"));
        assert_eq!(one.seen().as_deref(), THROUGH, "{carrier}: {}", pair.logs());
        assert_eq!(status(stage)["datagrams"]["carrier"], carrier, "{}", pair.logs());
        assert_eq!(ends(), before, "{carrier}: {}", pair.logs());
    }
    // A proxy that connects anew is served.
    block(stage, false);
    wait_until("UDP is used again", || status(stage)["datagrams"]["carrier"] == "quic");
    assert_eq!(one.seen().as_deref(), THROUGH, "{}", pair.logs());
    // Without a list there is no tunnel, until there is one again.
    pair.reload_gateway("addresses = [\"10.1.1.1\"]\n");
    assert_eq!(one.seen(), None);
    pair.reload_gateway(&list("4433"));
    wait_until("there is a tunnel again", || one.seen().as_deref() == THROUGH);
}

/// Reads what has come, and returns whether there was something.
fn hears(socket: &UdpSocket) -> bool {
    let mut buffer = [0; 2000];
    let mut has_heard = false;
    while socket.recv_from(&mut buffer).is_ok() {
        has_heard = true;
    }
    has_heard
}

fn bound(namespace: &Namespace, address: &str) -> UdpSocket {
    let socket = namespace.run(|| UdpSocket::bind(address)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket
}

#[test]
fn ports_that_are_taken_away_or_given_are_so_for_flows_that_are_there() {
    let file = format!("inbound = [\"udp/5070-5071 to 10.2.0.2\", \"tcp/8022 to 10.2.0.2:22\"]\n\n{LINKS}");
    let Some(mut pair) = Pair::start_by_file(&format!("{WORLD} 4433"), &[], &file) else { return };
    let given = |ports: &str| {
        format!(
            "addresses = [\"10.1.1.1\", \"10.3.0.1\"]\nudp = [\"{WORLD} 4433\"]\n\
             inbound = [\"keys/proxy.pub {ports}\"]\n"
        )
    };
    pair.restart_by_file(&given("udp/5070,tcp/8022"));
    let Pair { stage, lan, world, .. } = &pair;
    let hosts = [5070, 5071].map(|port| bound(lan, &format!("10.2.0.2:{port}")));
    // Another proxy's flows, for the gateway's kernel: they come from inside the tunnel, and keep their
    // ports.
    ip(&stage.web, "address add 198.18.77.77/32 dev lo").unwrap();
    let others = [5070, 5071].map(|port| bound(&stage.web, &format!("198.18.77.77:{port}")));
    let world_socket = bound(world, &format!("{WORLD}:4000"));
    let say = |port: u16| world_socket.send_to(b"hello", format!("10.3.0.1:{port}")).unwrap();
    for other in &others {
        other.send_to(b"hello", format!("{WORLD}:4000")).unwrap();
    }
    assert!(hears(&world_socket));
    say(5070);
    assert!(hears(&hosts[0]) && !hears(&others[0]), "{}", pair.logs());
    say(5071);
    assert!(hears(&others[1]) && !hears(&hosts[1]), "{}", pair.logs());
    let listener = lan.run(|| TcpListener::bind("10.2.0.2:22")).unwrap();
    let mut client = world.run(|| TcpStream::connect("10.3.0.1:8022")).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    client.write_all(b"hello").unwrap();
    served.read_exact(&mut [0; 5]).unwrap();
    // One is given, and the others are taken away.
    pair.reload_gateway(&given("udp/5071"));
    wait_until("it leads to the host", || {
        say(5071);
        hears(&hosts[1])
    });
    hears(&others[1]);
    say(5071);
    assert!(hears(&hosts[1]) && !hears(&others[1]), "{}", pair.logs());
    hears(&hosts[0]);
    say(5070);
    assert!(!hears(&hosts[0]), "{}", pair.logs());
    // The reset may have come already.
    let error = client.write_all(b"hello").and_then(|()| client.read_exact(&mut [0; 1])).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{}", pair.logs());
    // Flows of ports that stay are left alone.
    pair.reload_gateway(&given("udp/5070-5071"));
    wait_until("it leads to the host again", || {
        say(5070);
        hears(&hosts[0])
    });
    hosts[0].send_to(b"back", format!("{WORLD}:4000")).unwrap();
    assert!(hears(&world_socket), "{}", pair.logs());
}

#[test]
fn a_change_of_rules_gives_nothing_a_full_bucket() {
    let rules = |more: &str| {
        format!(
            "{}rate = \"1Mbit/s\"\n\n[[rule]]\nto = [\"{SERVER}\"]\npolicy = \"direct over up1\"\n{more}",
            LINKS.trim_end().to_string() + "\n"
        )
    };
    let Some(pair) = Pair::start_by_file(&format!("{WORLD} 4433"), &[], &rules("")) else { return };
    let Pair { stage, lan, .. } = &pair;
    let server = bound(&stage.web, &format!("{SERVER}:4433"));
    // All that may come while this reads nothing.
    socket2::SockRef::from(&server).set_recv_buffer_size(4 << 20).unwrap();
    let own = bound(lan, "10.2.0.2:0");
    // Sends 800 kB at about 16 Mbit/s, and returns how many arrived, and for how long the bucket filled.
    let flood = || {
        let clock = Clock::start();
        let counting = std::thread::scope(|scope| {
            let counting = scope.spawn(|| {
                let (mut buffer, mut bytes) = ([0; 2000], 0);
                while let Ok(len) = server.recv(&mut buffer) {
                    bytes += len;
                }
                bytes
            });
            for at in 0..800 {
                own.send_to(&[7; 1000], format!("{SERVER}:4433")).unwrap();
                if at % 2 == 0 {
                    sleep(Duration::from_millis(1));
                }
            }
            counting.join().unwrap()
        });
        println!("{counting} bytes");
        (counting as f64, clock.now().as_secs_f64())
    };
    let rules_now = || stage.van.check("nft", &["list", "table", "inet", "ropewalk_proxy"]).unwrap();
    // The rule holds once the flow has its address.
    sleep(Duration::from_millis(1500));
    let (full, seconds) = flood();
    // A bucket of nftables holds its burst, 262 kB, and what comes in a second, 125 kB.
    let most = 262_144.0 + 125_000.0 * (1.0 + seconds) + 20_000.0;
    assert!((200_000.0..most).contains(&full), "{full}: {} {}", rules_now(), pair.logs());
    let clock = Clock::start();
    pair.reload(&rules("\n[[rule]]\nport = [\"7777\"]\npolicy = \"direct over up0\"\n"));
    wait_until("the rules are changed", || rules_now().contains("7777"));
    let (left, _) = flood();
    let most = 125_000.0 * clock.now().as_secs_f64() + 20_000.0;
    assert!(left < most, "{left} of {most}: {}", pair.logs());
}
