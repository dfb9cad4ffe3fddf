//! Names are looked up over any uplink that works.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ropewalk_engine::Time;
use ropewalk_host::clock::Clock;

use crate::far::Far;
use crate::stage::{self, PROXY, SERVER, Stage};
use crate::{MIB, SECOND};

/// The last bytes of the addresses of gateways: those of the tests in which they move.
static GATEWAY: [AtomicU8; 2] = [AtomicU8::new(0), AtomicU8::new(0)];

/// The resolver's answer: every name is the server's, in both families, but for those of gateways. Records
/// hold for five seconds.
fn answer(query: &[u8]) -> Vec<u8> {
    let end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let mut message = [&query[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], &query[12..end]].concat();
    let record = match query[end - 3] {
        1 if query[13..].starts_with(b"gateway") => {
            let network = GATEWAY[usize::from(query[20] == b'-')].load(Relaxed);
            [&[1, 0, 1, 0, 0, 0, 5, 0, 4][..], &[10, 1, network, 1]].concat()
        }
        28 => [&[28, 0, 1, 0, 0, 0, 5, 0, 16, 0xfd, 9][..], &[0; 13], &[9]].concat(),
        _ => [&[1, 0, 1, 0, 0, 0, 5, 0, 4][..], &[10, 9, 9, 9]].concat(),
    };
    message.extend([&[0xc0, 12, 0][..], &record].concat());
    message
}

/// A resolver at the server's address, by UDP and by TCP.
fn resolver(stage: &Stage) {
    let at = (SERVER, 53);
    let udp = stage.web.run(|| UdpSocket::bind(at));
    let tcp = stage.web.run(|| TcpListener::bind(at));
    let (udp, tcp) = (udp.unwrap(), tcp.unwrap());
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((len, from)) = udp.recv_from(&mut buffer) {
            let _ = udp.send_to(&answer(&buffer[..len]), from);
        }
    });
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = tcp.accept() {
            let mut query = [0; 512];
            let Ok(len @ 14..) = client.read(&mut query) else { continue };
            let message = answer(&query[2..len]);
            let _ = client.write_all(&[&(message.len() as u16).to_be_bytes()[..], &message].concat());
        }
    });
}

/// `ropewalkd proxy` where programs are told of these resolvers.
fn proxy(stage: &Stage, resolvers: &str, arguments: &[&str]) -> stage::Running {
    let file = stage.path().join("resolv.conf");
    std::fs::write(&file, resolvers).unwrap();
    let script = format!("mount --bind {} /etc/resolv.conf && exec \"$@\"", file.display());
    let wrapped = ["unshare", "-m", "sh", "-c", &script, "sh"];
    stage.start_by(&wrapped, &[&["--json", "--verbose"], arguments].concat())
}

/// Downloads by name; how long it took, seconds.
fn download(stage: &Stage, data: &[u8]) -> f64 {
    let clock = Clock::start();
    let (code, received) =
        stage.curl(&["--proxy", &format!("socks5h://{PROXY}"), "http://web.van.test/data"]);
    assert!(code == 0 && received == data, "{code}, {} bytes: {}", received.len(), stage.log());
    clock.now().as_secs_f64()
}

#[test]
fn names_are_found_over_whichever_uplink_works() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let _server = stage.nginx(true);
    resolver(&stage);
    let lan = stage.neighbour();
    // A host behind the van asks the resolver itself.
    let ask = |what: &str| {
        let query = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x03van\x04test\0\0\x01\0\x01";
        let socket = lan.run(|| UdpSocket::bind("10.2.0.2:0")).unwrap();
        socket.connect((SERVER, 53)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        let clock = Clock::start();
        socket.send(query).unwrap();
        let mut buffer = [0; 512];
        let len = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{what}: {error}: {}", stage.log()));
        assert!(buffer[..len].ends_with(&[10, 9, 9, 9]) && clock.now() < Time::ZERO + SECOND, "{what}");
    };
    let vias = ["--via", "up0,gateway=10.1.0.1", "--via", "up1,gateway=10.1.1.1", "--transparent", "lan0"];
    let running = proxy(&stage, "nameserver 10.9.9.9\n", &vias);
    assert!(download(&stage, &data) < 2.0);
    ask("both uplinks");
    // The kernel's own way leads over the first uplink.
    for link in [0, 1] {
        stage.cut(link);
        ask("at once");
        let seconds = download(&stage, &data);
        assert!(seconds < 4.0, "uplink {link} is cut: {seconds:.1} s: {}", stage.log());
        stage.wait_for_state(link, "dead", 1);
        let seconds = download(&stage, &data);
        assert!(seconds < 2.0, "uplink {link} is dead: {seconds:.1} s: {}", stage.log());
        ask("it is dead");
        stage.mend(link);
        stage.wait_for_state(link, "up", 1);
    }
    // Where datagrams to resolvers are dropped, and where the kernel has no way at all.
    let dropped =
        "table ip no { chain pre { type filter hook prerouting priority -300; udp dport 53 drop; }; }";
    stage.web.check("nft", &[dropped]).unwrap();
    assert!(download(&stage, &data) < 8.0);
    stage.web.check("nft", &["delete table ip no"]).unwrap();
    for family in ["-4", "-6"] {
        stage::ip(&stage.van, &format!("{family} route flush default table main")).unwrap();
    }
    assert!(download(&stage, &data) < 4.0);
    assert!(running.terminate().success());
    for command in ["rule", "route show table 5263"] {
        let left = stage.van.check("ip", &command.split(' ').collect::<Vec<_>>()).unwrap_or_default();
        assert!(!left.contains("5263"), "{command}: {left}");
    }
}

/// A name has addresses in both families, IPv6 first, and the uplink that works has IPv4 alone.
#[test]
fn a_name_is_reached_in_the_family_that_works() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let _server = stage.nginx(true);
    resolver(&stage);
    stage::ip(&stage.van, "-6 address flush dev up1 scope global").unwrap();
    let running = proxy(&stage, "nameserver 10.9.9.9\n", &["--via", "up0", "--via", "up1"]);
    assert!(download(&stage, &data) < 2.0);
    stage.cut(0);
    let seconds = download(&stage, &data);
    assert!(seconds < 6.0, "it is cut: {seconds:.1} s: {}", stage.log());
    stage.wait_for_state(0, "dead", 1);
    let seconds = download(&stage, &data);
    assert!(seconds < 2.0, "it is dead: {seconds:.1} s: {}", stage.log());
    assert!(running.terminate().success());
}

#[test]
fn the_name_of_a_captive_check_is_found_over_each_uplink() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let _server = stage.nginx(true);
    resolver(&stage);
    stage.cut(0);
    let check = ["--captive-check", "http://web.van.test/generate_204"];
    let links = ["--via", "up0", "--via", "up1"];
    let _proxy = proxy(&stage, "nameserver 10.9.9.9\n", &[&links[..], &check].concat());
    stage.wait_for_state(1, "up", 1);
    assert!(download(&stage, &data) < 2.0);
}

#[test]
fn a_gateway_has_a_name() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let _server = stage.nginx(false);
    resolver(&stage);
    let far = Far::start(&stage, &[&format!("{SERVER} 80"), "fd09::9 80"], &[]);
    let gateway = ["--gateway", "gateway.van.test:5124", "--gateway-cookie", &far.cookie];
    let links = ["--via", "up0", "--via", "up1"];
    let _proxy = proxy(&stage, "nameserver 10.9.9.9\n", &[&links[..], &gateway].concat());
    assert!(download(&stage, &data) < 4.0);
    // The server itself has no Multipath TCP.
    for link in 0..2 {
        assert!(stage.received(link) > 100_000, "uplink {link}: {}", stage.log());
    }
}

#[test]
fn a_gateway_that_moves_is_found_as_its_records_age() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let _server = stage.nginx(false);
    resolver(&stage);
    let far = Far::start(&stage, &[&format!("{SERVER} 80"), "fd09::9 80"], &[]);
    let gateway = ["--gateway", "gateway-moves.van.test:5124", "--gateway-cookie", &far.cookie];
    let links = ["--via", "up0", "--via", "up1"];
    let _proxy = proxy(&stage, "nameserver 10.9.9.9\n", &[&links[..], &gateway].concat());
    assert!(download(&stage, &data) < 4.0);
    // It is elsewhere, and where it was nobody answers.
    GATEWAY[1].store(1, Relaxed);
    let gone = "table ip gone { chain pre { type filter hook prerouting priority -300; ip daddr 10.1.0.1 tcp \
                dport 5124 drop; }; }";
    stage.web.check("nft", &[gone]).unwrap();
    let clock = Clock::start();
    loop {
        let by = format!("socks5h://{PROXY}");
        let line = ["--max-time", "2", "--proxy", &by, "http://web.van.test/data"];
        let (code, received) = stage.curl(&line);
        if code == 0 && received == data {
            break;
        }
        assert!(clock.now() < Time::ZERO + 12 * SECOND, "{}", stage.log());
    }
}

#[test]
fn a_resolver_that_only_a_dead_uplink_has_is_replaced_by_another() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let _server = stage.nginx(true);
    resolver(&stage);
    // The first resolver is of the first network alone, as those are that DHCP tells of.
    let _proxy =
        proxy(&stage, "nameserver 10.1.0.77\nnameserver 10.9.9.9\n", &["--via", "up0", "--via", "up1"]);
    stage.cut(0);
    let first = download(&stage, &data);
    let second = download(&stage, &data);
    assert!(first < 5.0 && second < 1.5, "{first:.1} s, then {second:.1} s: {}", stage.log());
}
