//! Ports of the gateway's addresses that lead to hosts behind the proxy.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::Duration;

use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::Clock;
use socket2::{Domain, Socket, Type};

use crate::pair::{Asker, LINKS, Pair, WORLD, WhoAsks};
use crate::stage::{ip, wait_until};
use crate::tunnel::Echo;

const MIB: usize = 1 << 20;

#[test]
fn ports_of_the_gateway_lead_to_hosts_behind_the_proxy() {
    let asked = |list: &str| format!("inbound = [{list}]\n\n{LINKS}");
    let all = asked(
        "\"udp/5070 to 10.2.0.2:5071\", \"tcp/8022 to 10.2.0.2:22\", \"udp/5080-5081 to 10.2.0.1\", \
         \"udp/5090 to 10.2.0.2\", \"udp/5073 to 10.2.0.2\"",
    );
    // The gateway doesn't give 5090, and the proxy doesn't ask for 5072.
    let given = ["--inbound", "KEYS/proxy.pub udp/5070-5073,tcp/8022,udp/5080-5081"];
    let Some(pair) = Pair::start_by_file(&format!("{WORLD} 4433"), &given, &all) else { return };
    let Pair { stage, lan, world, .. } = &pair;
    ip(world, "route add 10.1.0.0/16 via 10.3.0.1").unwrap();
    let _hosts = [
        WhoAsks::start(lan, "10.2.0.2:5071"),
        WhoAsks::start(lan, "10.2.0.2:5072"),
        WhoAsks::start(lan, "10.2.0.2:5090"),
        // The proxy's host itself.
        WhoAsks::start(&stage.van, "10.2.0.1:5081"),
        WhoAsks::start(&stage.van, "0.0.0.0:5072"),
    ];
    let seen = |server: &str| Asker::new(world, server).seen();
    // Hosts see who asks.
    let old = Asker::new(world, "10.1.0.1:5070");
    assert_eq!(old.seen().as_deref(), Some(WORLD), "{}", pair.logs());
    assert_eq!(seen("10.1.1.1:5070").as_deref(), Some(WORLD), "{}", pair.logs());
    assert_eq!(seen("10.1.0.1:5081").as_deref(), Some(WORLD), "{}", pair.logs());
    for server in ["10.1.0.1:5072", "10.1.0.1:5090"] {
        assert_eq!(seen(server), None, "{server}");
    }
    // Datagrams that go in parts, to whom the gateway's list doesn't name.
    ip(world, "address add 10.3.0.7/24 dev eth0").unwrap();
    let _echo = Echo::start(lan, "10.2.0.2:5073");
    let large = Asker::from(world, "10.3.0.7:0", "10.1.0.1:5073");
    assert_eq!(large.answer(&[7; 5000]).map(|got| got.len()), Some(5000), "{}", pair.logs());
    // TCP, with a cut in the middle.
    let listener = lan.run(|| TcpListener::bind("10.2.0.2:22")).unwrap();
    let serving = std::thread::spawn(move || {
        let (mut client, peer) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 16];
        let mut left = 8 * MIB;
        while left > 0 {
            let len = client.read(&mut buffer).unwrap();
            assert!(len > 0);
            client.write_all(&buffer[..len]).unwrap();
            left -= len;
        }
        peer
    });
    let mut client = world.run(|| TcpStream::connect("10.1.0.1:8022")).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let mut writer = client.try_clone().unwrap();
    let data: Vec<u8> = (0..8 * MIB as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    let sent = data.clone();
    let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut received = vec![0; data.len()];
    client.read_exact(&mut received[..MIB]).unwrap();
    stage.cut(0);
    client.read_exact(&mut received[MIB..]).unwrap();
    assert!(received == data, "{}", pair.logs());
    writing.join().unwrap();
    assert_eq!(serving.join().unwrap().ip().to_string(), WORLD);
    stage.mend(0);
    // A reload leads nothing new to the host; who is there goes on.
    pair.reload(&asked("\"tcp/8022 to 10.2.0.2:22\""));
    assert_eq!(old.seen().as_deref(), Some(WORLD), "{}", pair.logs());
    assert_eq!(seen("10.1.0.1:5070"), None);
    // The host's own flows from such a port go where the gateway's list says, and nowhere else.
    let (code, said) = pair.check(&asked("\"tcp/8022 to 10.2.0.2:22\", \"tcp/8000-9000 to 10.2.0.2\""));
    assert!(code == 2 && said.contains("`tcp/8000-9000` leads to a host already"), "{code}: {said}");
}

#[test]
fn a_gateway_started_anew_leads_ports_to_the_same_proxy() {
    let file = format!("inbound = [\"udp/5070 to 10.2.0.2\"]\n\n{LINKS}");
    let given = ["--inbound", "KEYS/proxy.pub udp/5070"];
    let Some(mut pair) = Pair::start_by_file(&format!("{WORLD} 4433"), &given, &file) else { return };
    ip(&pair.world, "route add 10.1.0.0/16 via 10.3.0.1").unwrap();
    let _host = WhoAsks::start(&pair.lan, "10.2.0.2:5070");
    let asker = Asker::new(&pair.world, "10.1.0.1:5070");
    assert_eq!(asker.seen().as_deref(), Some(WORLD), "{}", pair.logs());
    let file = |inbound: &str| {
        format!("addresses = [\"10.1.1.1\"]\nudp = [\"{WORLD} 4433\"]\ninbound = [{inbound}]\n")
    };
    pair.restart_by_file(&file("\"keys/proxy.pub udp/5070\""));
    let clock = Clock::start();
    while asker.seen().is_none() {
        assert!(clock.now() < Time::ZERO + Span::from_secs(10), "{}", pair.logs());
        sleep(Duration::from_millis(50));
    }
    // A reload gives more ports, and takes them away.
    let other = || Asker::new(&pair.world, "10.1.0.1:5071").seen();
    assert_eq!(other(), None);
    pair.reload_gateway(&file("\"keys/proxy.pub udp/5070-5071\""));
    pair.reload(&format!("inbound = [\"udp/5070-5071 to 10.2.0.2\"]\n\n{LINKS}"));
    let _another = WhoAsks::start(&pair.lan, "10.2.0.2:5071");
    wait_until("the new port leads there", || other().is_some());
    assert_eq!(asker.seen().as_deref(), Some(WORLD), "{}", pair.logs());
    pair.reload_gateway(&file("\"keys/proxy.pub udp/5070\""));
    wait_until("it leads there no more", || other().is_none());
    assert_eq!(asker.seen().as_deref(), Some(WORLD), "{}", pair.logs());
}

#[test]
fn answers_leave_by_the_uplink_of_the_address_that_was_asked() {
    let file = format!("inbound = [\"udp/5070 to 10.2.0.2\", \"tcp/8022 to 10.2.0.2:22\"]\n\n{LINKS}");
    let Some(mut pair) = Pair::start_by_file(&format!("{WORLD} 4433"), &[], &file) else { return };
    // The gateway's second uplink to a host at a distance; its default route is the first.
    let there = format!("/proc/{}/fd/{}", std::process::id(), pair.world.fd().as_raw_fd());
    for (namespace, line) in [
        (&pair.stage.web, "link add wan1 type veth peer name eth1"),
        (&pair.stage.web, &*format!("link set eth1 netns {there}")),
        (&pair.stage.web, "address add 10.4.0.1/24 dev wan1"),
        (&pair.stage.web, "link set wan1 up"),
        (&pair.world, "address add 10.4.0.2/24 dev eth1"),
        (&pair.world, "address add 10.8.0.2/32 dev lo"),
        (&pair.world, "link set eth1 up"),
        (&pair.stage.web, "route add default via 10.3.0.2 dev wan0 metric 1"),
        (&pair.stage.web, "route add default via 10.4.0.2 dev wan1 metric 700"),
    ] {
        ip(namespace, line).unwrap();
    }
    // No network takes what has another's address.
    let filter = "table ip away { chain away { type filter hook prerouting priority -300; \
                  iifname eth0 ip saddr 10.4.0.1 drop; }; }";
    pair.world.check("nft", &[filter]).unwrap();
    pair.restart_by_file(&format!(
        "addresses = [\"10.1.1.1\", \"10.3.0.1\", \"10.4.0.1\"]\nudp = [\"{WORLD} 4433\"]\n\
         inbound = [\"keys/proxy.pub udp/5070,tcp/8022\"]\n"
    ));
    let Pair { lan, world, .. } = &pair;
    let _host = WhoAsks::start(lan, "10.2.0.2:5070");
    for (own, server) in
        [("10.8.0.2:0", "10.4.0.1:5070"), ("10.8.0.2:0", "10.3.0.1:5070"), ("10.4.0.2:0", "10.4.0.1:5070")]
    {
        let seen = Asker::from(world, own, server).seen();
        assert_eq!(seen.as_deref(), own.strip_suffix(":0"), "{server}: {}", pair.logs());
    }
    let listener = lan.run(|| TcpListener::bind("10.2.0.2:22")).unwrap();
    let socket = world.run(|| Socket::new(Domain::IPV4, Type::STREAM, None)).unwrap();
    socket.bind(&"10.8.0.2:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    let server = "10.4.0.1:8022".parse::<SocketAddr>().unwrap();
    let connected = socket.connect_timeout(&server.into(), Duration::from_secs(3));
    assert!(connected.is_ok(), "{connected:?} {}", pair.logs());
    assert_eq!(listener.accept().unwrap().1.ip().to_string(), "10.8.0.2");
    // The tunnel's own packets: a version of QUIC that nobody has is answered.
    let mut initial = [0; 1200];
    initial[..7].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1]);
    let answer = Asker::from(world, "10.8.0.2:0", "10.4.0.1:5124").answer(&initial);
    assert!(answer.is_some_and(|bytes| bytes[1..5] == [0; 4]), "{}", pair.logs());
}
