//! What isn't TCP, of a network behind the proxy: by the tunnel to the gateway, over both uplinks.

use std::net::UdpSocket;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::Clock;
use ropewalk_host::netns::Namespace;
use serde_json::Value;

use crate::encrypted::keys;
use crate::far::{Far, gateway};
use crate::pair::{Asker, LINKS, Pair, WORLD, WhoAsks};
use crate::quic::download;
use crate::stage::{SERVER, Stage, wait_until};

/// Answers what comes to a socket of the server's, until it is dropped.
pub struct Echo {
    stop: Arc<AtomicBool>,
    answering: Option<JoinHandle<Vec<String>>>,
}

impl Echo {
    pub fn start(namespace: &Namespace, address: &str) -> Echo {
        let socket = namespace.run(|| UdpSocket::bind(address)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let answering = std::thread::spawn(move || {
            let (mut buffer, mut peers) = (vec![0; 1 << 16], Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                let Ok((len, peer)) = socket.recv_from(&mut buffer) else { continue };
                if !peers.contains(&peer.ip().to_string()) {
                    peers.push(peer.ip().to_string());
                }
                let _ = socket.send_to(&buffer[..len], peer);
            }
            peers
        });
        Echo { stop, answering: Some(answering) }
    }

    /// Who has sent something.
    fn peers(mut self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.answering.take().unwrap().join().unwrap()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Sends `count` datagrams of 160 bytes, one each 20 ms, and returns when each came back, ms after it was
/// sent.
fn voice(lan: &Namespace, count: u32, mut at: impl FnMut(u32)) -> (Vec<Option<f64>>, f64) {
    let socket = lan.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    socket.connect(format!("{WORLD}:4433")).unwrap();
    let receiver = socket.try_clone().unwrap();
    let clock = Arc::new(Clock::start());
    let own = Arc::clone(&clock);
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let receiving = std::thread::spawn(move || {
        let (mut times, mut buffer) = (vec![None; count as usize], [0; 2000]);
        let (mut last, mut gap) = (None, Span::ZERO);
        while let Ok(len) = receiver.recv(&mut buffer) {
            assert_eq!(len, 160);
            let number = u32::from_be_bytes(*buffer.first_chunk().unwrap());
            let sent = Time::from_nanos(u64::from_be_bytes(buffer[4..12].try_into().unwrap()));
            let now = own.now();
            assert!(times[number as usize].is_none(), "{number} came twice");
            times[number as usize] = Some((now - sent).as_millis_f64());
            gap = gap.max(last.map_or(Span::ZERO, |last| now - last));
            last = Some(now);
        }
        (times, gap.as_millis_f64())
    });
    let start = clock.now();
    for number in 0..count {
        at(number);
        let due = start + Span::from_millis(20 * u64::from(number));
        sleep(due.saturating_sub(clock.now()).into());
        let mut datagram = [0; 160];
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        datagram[4..12].copy_from_slice(&clock.now().as_nanos().to_be_bytes());
        let _ = socket.send(&datagram);
    }
    receiving.join().unwrap()
}

#[test]
fn a_whole_network_is_heard_over_both_uplinks_while_one_is_cut() {
    let Some(pair) = Pair::start(&format!("{WORLD} 4433")) else { return };
    let Pair { stage, lan, world, .. } = &pair;
    let echo = Echo::start(world, &format!("{WORLD}:4433"));
    // Ping, in both families, with packets that are larger than the tunnel's.
    for (address, size) in
        [(WORLD, "56"), (WORLD, "1352"), (WORLD, "4000"), ("fd03::2", "56"), ("fd03::2", "3000")]
    {
        let output = lan.check("ping", &["-c", "3", "-i", "0.2", "-W", "2", "-s", size, address]);
        assert!(output.is_ok(), "{address} {size}: {output:?}: {}", pair.logs());
    }
    // The network is told how large packets may be.
    let output = lan.command("ping").args(["-c", "1", "-M", "do", "-s", "1472", WORLD]).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("mtu = 1380") || text.contains("mtu=1380"), "{text}");
    // A call of 16 s beside a ping by IPv6, with a cut of 8 s in silence.
    let mut ping = lan.command("ping");
    ping.args(["-6", "-q", "-c", "400", "-i", "0.04", "-W", "1", "fd03::2"]).stdout(Stdio::piped());
    let ping = ping.spawn().unwrap();
    let (times, gap) = voice(lan, 800, |number| match number {
        200 => stage.cut(0),
        600 => stage.mend(0),
        _ => {}
    });
    let late = times.iter().filter(|time| time.is_none_or(|time| time > 150.0)).count();
    println!("voice: {late} of 800 lost or late, longest gap {gap:.1} ms");
    assert!(late == 0 && gap < 500.0, "{late} lost or late, gap {gap} ms: {}", pair.logs());
    let told = String::from_utf8_lossy(&ping.wait_with_output().unwrap().stdout).into_owned();
    let received = told.split(", ").find_map(|part| part.strip_suffix(" received")?.parse::<u32>().ok());
    println!("ping by IPv6: {received:?} of 400");
    assert!(received >= Some(396), "{told}: {}", pair.logs());
    // The server has seen the gateway alone.
    assert_eq!(echo.peers(), ["10.3.0.1"], "{}", pair.logs());
    // What the gateway doesn't let out isn't heard: another port, another server.
    let other = Echo::start(world, &format!("{WORLD}:4434"));
    let socket = lan.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    socket.send_to(b"hello", format!("{WORLD}:4434")).unwrap();
    sleep(Duration::from_millis(500));
    assert!(other.peers().is_empty());
    let output = lan.check("ping", &["-c", "1", "-W", "1", SERVER]);
    assert!(output.is_err(), "the gateway's own address isn't listed");
}

#[test]
fn a_download_by_quic_uses_both_uplinks_and_goes_on_while_one_is_cut() {
    let Some(pair) = Pair::start(&format!("{WORLD} 4433")) else { return };
    let Pair { stage, lan, world, .. } = &pair;
    let server = format!("{WORLD}:4433").parse().unwrap();
    let before = [stage.received(0), stage.received(1)];
    let bytes = 12 << 20;
    let got = download((lan, world), server, bytes, |_| {});
    println!("download: {got:?}");
    assert_eq!(got.bytes, bytes, "{}", pair.logs());
    for (link, before) in before.into_iter().enumerate() {
        let share = (stage.received(link) - before) as f64 / bytes as f64;
        assert!(share > 0.2, "uplink {link} carried {share:.2} of the bytes: {}", pair.logs());
    }
    let mut is_cut = false;
    let got = download((lan, world), server, bytes, |bytes| {
        if bytes > 4 << 20 && !std::mem::replace(&mut is_cut, true) {
            stage.cut(0);
        }
    });
    println!("download with a cut: {got:?}");
    assert!(got.bytes == bytes && got.gap < 1.0, "{got:?}: {}", pair.logs());
    // The proxy's status counts repairs.
    assert!(status(stage)["datagrams"]["packets_repaired"].is_u64(), "{}", pair.logs());
}

#[test]
fn a_gateway_that_is_started_anew_serves_at_once() {
    let Some(mut pair) = Pair::start(&format!("{WORLD} 4433")) else { return };
    // Its packets' numbers begin anew, far behind those of before.
    let many = ["-c", "100", "-i", "0.002", "-W", "2", WORLD];
    assert!(pair.lan.check("ping", &many).is_ok(), "{}", pair.logs());
    pair.far = None;
    pair.far = Some(Pair::gateway(&pair.stage, &pair.gateway));
    let clock = Clock::start();
    while pair.lan.check("ping", &["-c", "1", "-W", "1", WORLD]).is_err() {
        assert!(clock.now() < Time::ZERO + Span::from_secs(8), "{}", pair.logs());
    }
}

#[test]
fn a_call_that_goes_on_while_the_proxy_is_started_anew_enters_its_tunnel() {
    let Some(mut pair) = Pair::start_by_file(&format!("{WORLD} 4433"), &[], LINKS) else { return };
    let _server = WhoAsks::start(&pair.world, &format!("{WORLD}:4433"));
    let call = Asker::new(&pair.lan, &format!("{WORLD}:4433"));
    let through = Some("10.3.0.1");
    assert_eq!(call.seen().as_deref(), through, "{}", pair.logs());
    pair.restart_proxy(|pair| {
        // Whoever's router it is: flows are forwarded all the same.
        pair.stage.van.check("sysctl", &["-qw", "net.ipv4.ip_forward=1"]).unwrap();
        assert_eq!(call.seen(), None);
    });
    wait_until("it is heard again", || call.seen().as_deref() == through);
}

#[test]
fn a_link_that_stands_by_carries_datagrams_when_it_is_needed() {
    let udp = format!("{WORLD} 4433");
    let Some(pair) = Pair::start_with(&udp, &["--policy", "active-standby"]) else { return };
    let Pair { stage, lan, world, .. } = &pair;
    // The gateway is told once a second.
    sleep(Duration::from_millis(1500));
    let (before, bytes) = (stage.received(1), 4 << 20);
    let got = download((lan, world), format!("{WORLD}:4433").parse().unwrap(), bytes, |_| {});
    let share = (stage.received(1) - before) as f64 / bytes as f64;
    assert!(got.bytes == bytes && share < 0.1, "{got:?}, {share:.2} over the other: {}", pair.logs());
    stage.cut(0);
    assert!(lan.check("ping", &["-c", "3", "-i", "0.2", "-W", "2", WORLD]).is_ok(), "{}", pair.logs());
}

/// What the one says of itself that has the stage's socket for it.
pub fn status(stage: &Stage) -> Value {
    let socket = stage.path().join("status").display().to_string();
    let line = ["status", "--socket", &socket, "--json"];
    serde_json::from_str(&stage.van.check(env!("CARGO_BIN_EXE_ropewalkd"), &line).unwrap()).unwrap()
}

/// Whether datagrams for the gateway are dropped before it.
pub fn block(stage: &Stage, is_blocked: bool) {
    let rules: &[&str] = match is_blocked {
        true => &[
            "add table inet blocked",
            "add chain inet blocked input { type filter hook input priority -300; }",
            "add rule inet blocked input udp dport 5124 drop",
        ],
        false => &["delete table inet blocked"],
    };
    for rule in rules {
        let done = stage.web.check("nft", &[rule]);
        assert!(done.is_ok(), "{rule}: {done:?}");
    }
}

#[test]
fn a_stream_carries_it_where_udp_is_blocked_and_udp_later() {
    // A stream that carries datagrams isn't one that stands still.
    let more = ["--stalled", "1 s"];
    let Some(pair) = Pair::start_with(&format!("{WORLD} 4433"), &more) else { return };
    let Pair { stage, lan, world, .. } = &pair;
    let _echo = Echo::start(world, &format!("{WORLD}:4433"));
    let ping = || lan.check("ping", &["-c", "1", "-W", "1", WORLD]);
    assert!(ping().is_ok(), "{}", pair.logs());
    block(stage, true);
    let clock = Clock::start();
    while ping().is_err() {
        assert!(clock.now() < Time::ZERO + Span::from_secs(6), "{}", pair.logs());
    }
    println!("a stream after {} ms", clock.now().as_millis());
    assert!(stage.log().contains("datagrams go by a stream"), "{}", pair.logs());
    let (times, gap) = voice(lan, 200, |_| {});
    let late = times.iter().filter(|time| time.is_none_or(|time| time > 150.0)).count();
    assert!(late == 0, "{late} lost or late, gap {gap} ms: {}", pair.logs());
    assert!(!stage.log().contains("took nothing of what waited for it"), "{}", pair.logs());
    assert_eq!(status(stage)["datagrams"]["carrier"], "stream", "{}", pair.logs());
    let socket = stage.path().join("status").display().to_string();
    let shown = crate::ropewalk(&["status", "--socket", &socket]).1;
    assert!(shown.contains("datagrams go by a stream, nothing comes by UDP: packets sent "), "{shown}");
    block(stage, false);
    wait_until("UDP is used again", || stage.log().contains("datagrams go by UDP again"));
    assert!(ping().is_ok(), "{}", pair.logs());
    assert_eq!(status(stage)["datagrams"]["carrier"], "quic", "{}", pair.logs());
}

/// The tunnel moves to what the file names now, and a stream's gateway is known by its name.
#[test]
fn a_tunnel_follows_the_gateways_name_by_udp_and_by_the_stream() {
    let names = "10.1.0.1 gateway.test other.test\n";
    let Some(pair) = Pair::start_by_name(&format!("{WORLD} 4433"), names) else { return };
    let ping = || pair.lan.check("ping", &["-c", "1", "-W", "1", WORLD]).is_ok();
    wait_until("it carries", ping);
    block(&pair.stage, true);
    let streams = || pair.stage.log().matches("datagrams go by a stream").count();
    wait_until("a stream carries", || streams() == 1 && ping());
    pair.reload_replaced("gateway.test", "other.test");
    wait_until("a stream to the other carries", || streams() == 2 && ping());
    block(&pair.stage, false);
    let ups = || pair.stage.log().matches("\"gateway\":\"other.test:5124\"").count();
    // The stream's line has the name, too.
    wait_until("both links are connected to the other", || ups() >= 3);
    wait_until("it carries on", ping);
}

#[test]
fn a_gateways_address_that_nobody_has_is_passed_over() {
    let names = "fd01:0::99 gateway.test\n10.1.0.1 gateway.test\n";
    let Some(pair) = Pair::start_by_name(&format!("{WORLD} 4433"), names) else { return };
    let ping = || pair.lan.check("ping", &["-c", "1", "-W", "1", WORLD]).is_ok();
    wait_until("it carries", ping);
    assert_eq!(status(&pair.stage)["datagrams"]["carrier"], "quic", "{}", pair.logs());
}

/// Hosts on which IPv6 is switched off.
#[test]
fn a_tunnel_between_hosts_without_ipv6_carries_ipv4() {
    let off = |namespace: &Namespace| namespace.sysctl("net.ipv6.conf.all.disable_ipv6", "1").unwrap();
    let udp = format!("{WORLD} 4433");
    let Some(mut pair) = Pair::start_by_file_after(|stage| off(&stage.van), &udp, &[], LINKS) else { return };
    let ping = |pair: &Pair| pair.lan.check("ping", &["-c", "1", "-W", "1", WORLD]).is_ok();
    wait_until("it carries", || ping(&pair));
    off(&pair.stage.web);
    pair.restart_by_file(&format!("addresses = [\"10.1.1.1\"]\nudp = [\"{udp}\"]\n"));
    wait_until("it carries again", || ping(&pair));
    let log = pair.logs();
    assert!(!log.contains("can't be led") && !log.contains("can't be repaired"), "{log}");
}

#[test]
fn a_gateway_without_udp_counts_streams_for_it_as_denied() {
    let Some(stage) = Stage::new() else { return };
    let folder = stage.path().join("keys").display().to_string();
    keys(&folder, &[]);
    let file = |name: &str| format!("{folder}/{name}");
    let _lan = stage.neighbour();
    let (own, proxys, allowed) = (file("gateway.key"), file("proxy.pub"), format!("{SERVER} 80"));
    let socket = stage.path().join("status").display().to_string();
    let line = ["--key", &own, "--proxy", &proxys, "--convert", &allowed, "--status", &socket];
    let _far = gateway(&stage, &line);
    let (key, certificate) = (file("proxy.key"), file("gateway.pub"));
    let line = ["--json", "--transparent", "lan0", "--gateway", "10.1.0.1:5124"];
    let _proxy =
        stage.proxy(&[&line[..], &["--gateway-key", &key, "--gateway-certificate", &certificate]].concat());
    wait_until("the proxy hears of it", || stage.log().contains("no datagrams by a stream either"));
    let status = status(&stage);
    // It isn't asked all the time.
    let denied = status["connections_denied"].as_u64();
    assert!((1..=3).contains(&denied.unwrap()), "{status}");
    assert!(Far::log(&stage).contains("denied"), "{}", Far::log(&stage));
}
