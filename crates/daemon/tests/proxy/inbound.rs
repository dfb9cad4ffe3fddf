//! Ports of the gateway's addresses that lead to hosts behind the proxy.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::Clock;

use crate::pair::{Asker, LINKS, Pair, WORLD, WhoAsks};
use crate::stage::{Running, ip, wait_until};

const MIB: usize = 1 << 20;

#[test]
fn ports_of_the_gateway_lead_to_hosts_behind_the_proxy() {
    let asked = |list: &str| format!("inbound = [{list}]\n\n{LINKS}");
    let all = asked(
        "\"udp/5070 to 10.2.0.2:5071\", \"tcp/8022 to 10.2.0.2:22\", \"udp/5080-5081 to 10.2.0.1\", \
         \"udp/5090 to 10.2.0.2\"",
    );
    // The gateway doesn't give 5090, and the proxy doesn't ask for 5072.
    let given = ["--inbound", "KEYS/proxy.pub udp/5070-5072,tcp/8022,udp/5080-5081"];
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
    pair.far = None;
    let file = |inbound: &str| {
        let text = format!(
            "[[listener]]\nlisten = \"10.1.0.1:5124\"\naddresses = [\"10.1.1.1\"]\n\
             convert = [\"{WORLD} 80\"]\n\
             udp = [\"{WORLD} 4433\"]\nkey = \"keys/gateway.key\"\nproxies = [\"keys/proxy.pub\"]\n\
             inbound = [{inbound}]\n"
        );
        let path = pair.stage.path().join("gateway.toml");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let path = file("\"keys/proxy.pub udp/5070\"");
    let mut command = pair.stage.web.command(env!("CARGO_BIN_EXE_ropewalkd"));
    command.args(["gateway", "--config", &path, "--log", "debug"]);
    let gateway = Running::start(command);
    let clock = Clock::start();
    while asker.seen().is_none() {
        assert!(clock.now() < Time::ZERO + Span::from_secs(10), "{}", pair.logs());
        sleep(Duration::from_millis(50));
    }
    // A reload gives more ports, and takes them away.
    let other = || Asker::new(&pair.world, "10.1.0.1:5071").seen();
    assert_eq!(other(), None);
    file("\"keys/proxy.pub udp/5070-5071\"");
    gateway.signal("-HUP");
    pair.reload(&format!("inbound = [\"udp/5070-5071 to 10.2.0.2\"]\n\n{LINKS}"));
    let _another = WhoAsks::start(&pair.lan, "10.2.0.2:5071");
    wait_until("the new port leads there", || other().is_some());
    assert_eq!(asker.seen().as_deref(), Some(WORLD), "{}", pair.logs());
    file("\"keys/proxy.pub udp/5070\"");
    gateway.signal("-HUP");
    wait_until("it leads there no more", || other().is_none());
    assert_eq!(asker.seen().as_deref(), Some(WORLD), "{}", pair.logs());
}
