//! Starts, ends, and what comes between: two starts at once, a start while another drains, signals in
//! mid-start, SIGKILL, and other programs that undo the set-up. After each a daemon serves or has exited with
//! a reason, and nothing is left.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use ropewalk_engine::Time;
use ropewalk_host::clock::Clock;

use super::stage::*;

/// A gateway or a proxy, from its start to its end.
struct Daemon {
    child: Ended,
    log: PathBuf,
    /// It was sent a signal that ends it.
    is_told: bool,
}

impl Daemon {
    fn start(stage: &Stage, name: &str, line: &[&str]) -> Daemon {
        let log = stage.folder.path().join(name);
        let mut command = stage.server.command(ROPEWALK);
        // A group of its own, as a shell gives it one.
        command.args(line).stderr(File::create(&log).unwrap()).process_group(0);
        Daemon { child: Ended(command.spawn().unwrap()), log, is_told: false }
    }

    fn gateway(stage: &Stage, name: &str, more: &[&str]) -> Daemon {
        let listen =
            ["gateway", "--listen", "10.0.0.1:80", "--address", "10.0.1.1", "--to", "127.0.0.1:8080"];
        Daemon::start(stage, name, &[&listen[..], &["--status", "none"], more].concat())
    }

    fn proxy(stage: &Stage, name: &str) -> Daemon {
        let via = ["proxy", "--via", "eth0,gateway=10.0.0.2", "--via", "eth1,gateway=10.0.1.2"];
        Daemon::start(stage, name, &[&via[..], &["--drain", "1 s", "--status", "none"]].concat())
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal to it, or, as Ctrl-C, to all that it has started.
    fn signal(&mut self, name: &str, to_group: bool) {
        let pid = self.child.0.id();
        let target = if to_group { format!("-{pid}") } else { pid.to_string() };
        // It may have ended.
        let _ = Command::new("kill").args([name, "--", &target]).stderr(std::process::Stdio::null()).status();
        self.is_told |= name != "-HUP";
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.0.try_wait().unwrap()
    }

    fn wait_for(&mut self, what: &str) {
        let clock = Clock::start();
        while !self.text().contains(what) {
            assert!(clock.now() < Time::ZERO + 15 * SECOND, "no `{what}`: {}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait(&mut self) -> ExitStatus {
        let clock = Clock::start();
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(clock.now() < Time::ZERO + 20 * SECOND, "it doesn't end: {}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn leftovers(stage: &Stage) -> String {
    let more = [
        "ip route show table all proto 212; ip -6 route show table all proto 212",
        "ip -6 rule | grep -v 'lookup \\(local\\|main\\|default\\)' || true",
        "grep -H 1 /proc/sys/net/ipv6/conf/*/forwarding /proc/sys/net/ipv6/conf/*/force_forwarding || true",
        "grep -H 1 /proc/sys/net/ipv4/conf/all/forwarding || true",
    ];
    let more = more.iter().map(|line| stage.server.check("sh", &["-c", line]).unwrap());
    stage.traces() + &more.collect::<String>()
}

/// A gateway whose connections are ending is waited for: the next one serves when it has gone.
#[test]
fn a_start_waits_for_one_that_drains() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    let mut first = Daemon::gateway(&stage, "first", &["--drain", "20 s"]);
    first.wait_for("listening");
    let client = stage.connect();
    (&client).write_all(b"question").unwrap();
    let (mut server, _) = backend.accept().unwrap();
    server.read_exact(&mut [0; 8]).unwrap();
    first.signal("-TERM", false);
    first.wait_for("draining");
    let mut second = Daemon::gateway(&stage, "second", &[]);
    second.wait_for("lets its connections end: waiting");
    // One that waits ends at once if it is told to, and has done nothing.
    let mut third = Daemon::gateway(&stage, "third", &[]);
    third.wait_for("waiting");
    third.signal("-TERM", false);
    assert!(third.wait().success(), "{}", third.text());
    server.write_all(b"answer").unwrap();
    drop(server);
    let mut received = Vec::new();
    (&client).read_to_end(&mut received).unwrap();
    assert_eq!(received, b"answer", "{}", second.text());
    drop(client);
    assert!(first.wait().success(), "{}", first.text());
    second.wait_for("listening");
    let client = stage.connect();
    (&client).write_all(b"question").unwrap();
    backend.accept().unwrap().0.read_exact(&mut [0; 8]).unwrap();
    drop(client);
    second.signal("-TERM", false);
    assert!(second.wait().success(), "{}", second.text());
    assert_eq!(leftovers(&stage), "", "something is left");
}

/// Several queues can be attached to a device: those of another process aren't.
#[test]
fn a_running_gateway_of_several_cores_keeps_its_devices() {
    let Some(stage) = Stage::new() else { return };
    let mut first = Daemon::gateway(&stage, "first", &["--cores", "2"]);
    first.wait_for("listening");
    for cores in ["1", "2"] {
        let mut second = Daemon::gateway(&stage, "second", &["--cores", cores]);
        assert_eq!(second.wait().code(), Some(1), "{}", second.text());
        assert!(second.text().contains("another gateway is running"), "{}", second.text());
    }
    first.signal("-TERM", false);
    assert!(first.wait().success());
    assert_eq!(leftovers(&stage), "", "something is left");
}

/// What can't be repaired ends a daemon, with the reason.
#[test]
fn a_daemon_whose_device_is_removed_says_so_and_ends() {
    let Some(stage) = Stage::new() else { return };
    for (device, is_gateway) in [("rope-gw1", true), ("ropeproxy0", false)] {
        let mut daemon = match is_gateway {
            true => Daemon::gateway(&stage, "gateway", &[]),
            false => Daemon::proxy(&stage, "proxy"),
        };
        daemon.wait_for("listening");
        let clock = Clock::start();
        stage.server.check("ip", &["link", "delete", device]).unwrap();
        let status = daemon.wait();
        assert!(clock.now() < Time::ZERO + 5 * SECOND, "{}", clock.now());
        let told = daemon.text();
        assert_eq!(status.code(), Some(1), "{told}");
        assert!(told.contains(&format!("removed or renamed the device {device}")), "{told}");
        assert_eq!(leftovers(&stage), "", "something is left: {told}");
    }
}

/// An interface goes down at any moment of the start: the gateway serves on the other address, and on both
/// when it is up again.
#[test]
fn an_interface_that_goes_down_at_the_start_ends_nothing() {
    let Some(stage) = Stage::new() else { return };
    let _backend = stage.backend();
    let route = "route replace default via 10.0.1.2 dev eth1 metric 200";
    let ip = |line: &str| stage.server.check("ip", &line.split(' ').collect::<Vec<_>>()).unwrap();
    ip("route add default via 10.0.0.2 dev eth0");
    ip(route);
    for delay in (0..240).step_by(12) {
        let mut gateway = Daemon::gateway(&stage, "gateway", &["--drain", "1 s"]);
        std::thread::sleep(Duration::from_millis(delay));
        ip("link set eth1 down");
        gateway.wait_for("listening");
        drop(stage.connect());
        ip("link set eth1 up");
        ip(route);
        let clock = Clock::start();
        let answers = || stage.server.check("ip", &["route", "show", "table", "7101"]).unwrap_or_default();
        while !answers().contains("default via 10.0.1.2") {
            assert!(
                clock.now() < Time::ZERO + 5 * SECOND,
                "after {delay} ms: no route for answers: {}",
                gateway.text()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        gateway.signal("-TERM", false);
        assert!(gateway.wait().success(), "after {delay} ms: {}", gateway.text());
    }
    assert_eq!(leftovers(&stage), "", "something is left");
}

/// Rules of nftables, or routes, are flushed after a daemon was killed: what it had switched on is switched
/// off all the same.
#[test]
fn what_a_killed_daemon_switched_on_is_switched_off_whatever_was_flushed_since() {
    let Some(stage) = Stage::new() else { return };
    let sysctls = "cat /proc/sys/net/ipv4/conf/eth*/forwarding";
    let forwarding = || stage.server.check("sh", &["-c", sysctls]).unwrap();
    for flush in
        ["nft flush ruleset", "ip route flush table all proto 211; ip route flush table all proto 212"]
    {
        for name in NAMES {
            let start = || match name {
                "gateway" => Daemon::gateway(&stage, name, &[]),
                _ => Daemon::proxy(&stage, name),
            };
            let mut daemon = start();
            daemon.wait_for("listening");
            assert_eq!(forwarding(), "1\n1\n");
            daemon.signal("-KILL", false);
            daemon.wait();
            stage.server.check("sh", &["-c", flush]).unwrap();
            let mut next = start();
            next.wait_for("listening");
            next.signal("-TERM", false);
            assert!(next.wait().success(), "{}", next.text());
            assert_eq!(forwarding(), "0\n0\n", "{name}, {flush}: {}", next.text());
            assert_eq!(leftovers(&stage), "", "{name}, {flush}: something is left");
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
}

/// The daemons of a sequence, by kind: gateways, proxies.
type Daemons = [Vec<Daemon>; 2];

const NAMES: [&str; 2] = ["gateway", "proxy"];

fn start(stage: &Stage, daemons: &mut Daemons, kind: usize) {
    let name = format!("{}{}", NAMES[kind], daemons[kind].len());
    daemons[kind].push(if kind == 0 {
        Daemon::gateway(stage, &name, &["--drain", "1 s"])
    } else {
        Daemon::proxy(stage, &name)
    });
}

/// Whether a download by way of the gateway, or of the proxy, comes to its end.
fn serves(stage: &Stage, kind: usize) -> bool {
    let (namespace, line) = match kind {
        0 => (&stage.client, &["http://10.0.0.1/file"][..]),
        _ => (&stage.server, &["--proxy", "socks5h://127.0.0.1:1080", "http://10.0.0.2:8081/"][..]),
    };
    namespace
        .check("curl", &[&["-sS", "--fail", "--max-time", "2", "-o", "/dev/null"], line].concat())
        .is_ok()
}

fn assert_serves(stage: &Stage, kind: usize, story: &dyn Fn() -> String) {
    let clock = Clock::start();
    while !serves(stage, kind) {
        assert!(
            clock.now() < Time::ZERO + 10 * SECOND,
            "the {} listens and doesn't serve: {}",
            NAMES[kind],
            story()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until each has begun to listen or has ended, and checks which.
fn settle(stage: &Stage, daemons: &mut Daemons, what: &str) {
    for (kind, daemons) in daemons.iter_mut().enumerate() {
        let story = |all: &[Daemon]| {
            all.iter().map(|one| format!("\n--- {}\n{}", one.log.display(), one.text())).collect::<String>()
        };
        let clock = Clock::start();
        loop {
            let is_open = |one: &mut Daemon| {
                one.ended().is_none() && (one.is_told || !one.text().contains("listening"))
            };
            if !daemons.iter_mut().any(is_open) {
                break;
            }
            assert!(
                clock.now() < Time::ZERO + 30 * SECOND,
                "{what}: neither listening nor ended: {}",
                story(daemons)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut running = 0;
        for one in daemons.iter_mut() {
            match one.ended() {
                None => running += 1,
                Some(status) if status.signal().is_some() => assert!(one.is_told, "{what}: {status}"),
                Some(status) => {
                    let told = one.text();
                    assert!(one.is_told || !status.success(), "{what}: it ended by itself: {told}");
                    let has_reason = status.success() || told.contains("rror");
                    assert!(has_reason, "{what}: {status} without a reason: {told}");
                }
            }
        }
        assert!(running < 2, "{what}: {running} at once: {}", story(daemons));
        if running == 1 {
            assert_serves(stage, kind, &|| format!("{what}{}", story(daemons)));
        }
    }
}

fn is_killed(one: &mut Daemon) -> bool {
    one.ended().is_some_and(|status| status.signal().is_some())
}

fn sequence(stage: &Stage, random: &mut Random, what: &str) {
    let mut daemons: Daemons = [Vec::new(), Vec::new()];
    let mut held = Vec::new();
    let mut events = Vec::new();
    for _ in 0..3 + random.below(5) {
        let kind = usize::from(random.below(3) == 2);
        let alive: Vec<usize> =
            (0..daemons[kind].len()).filter(|at| daemons[kind][*at].ended().is_none()).collect();
        let chosen =
            if alive.is_empty() { None } else { Some(alive[random.below(alive.len() as u64) as usize]) };
        let mut pause = [0, 5, 20, 60, 150, 400, 900][random.below(7) as usize];
        match (random.below(10), chosen) {
            (0..=3, _) | (_, None) => {
                events.push(format!("start {}", NAMES[kind]));
                start(stage, &mut daemons, kind);
            }
            (way @ 4..=7, Some(at)) => {
                let (signal, to_group) =
                    [("-KILL", false), ("-TERM", false), ("-INT", true), ("-KILL", false)][way as usize - 4];
                events.push(format!("{signal} {}{at}", NAMES[kind]));
                daemons[kind][at].signal(signal, to_group);
            }
            (8, Some(_)) => {
                events.push("hold a connection".into());
                held.extend(stage.try_connect().ok());
            }
            (_, Some(_)) => {
                events.push("nft flush ruleset".into());
                let _ = stage.server.check("nft", &["flush", "ruleset"]);
                pause = 1500;
            }
        }
        events.push(format!("{pause} ms"));
        std::thread::sleep(Duration::from_millis(pause));
    }
    let what = format!("{what}: {}", events.join(", "));
    settle(stage, &mut daemons, &what);
    drop(held);
    // What killed ones left goes with the next.
    for kind in 0..2 {
        for one in &mut daemons[kind] {
            if one.ended().is_none() {
                one.signal("-TERM", false);
            }
        }
        daemons[kind].iter_mut().for_each(|one| _ = one.wait());
        if daemons[kind].iter_mut().any(is_killed) {
            start(stage, &mut daemons, kind);
            let last = daemons[kind].last_mut().unwrap();
            last.wait_for("listening");
            last.signal("-TERM", false);
            assert!(last.wait().success(), "{what}: {}", last.text());
        }
    }
    let logs: String =
        daemons.iter().flatten().map(|one| format!("\n--- {}\n{}", one.log.display(), one.text())).collect();
    assert_eq!(leftovers(stage), "", "{what}: something is left{logs}");
}

/// `ROPEWALK_SEQUENCES=200` makes it longer, `ROPEWALK_SEED` another.
#[test]
fn whatever_is_started_and_ended_serves_or_says_why_not_and_leaves_nothing() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (count, seed) = (number("ROPEWALK_SEQUENCES").unwrap_or(6), number("ROPEWALK_SEED").unwrap_or(1));
    let Some(stage) = Stage::new() else { return };
    if lacks(&["nginx", "curl"]) {
        return;
    }
    fs::write(stage.folder.path().join("file"), pattern(50_000)).unwrap();
    let _nginx = nginx(&stage);
    let far = stage.client.run(|| TcpListener::bind("10.0.0.2:8081")).unwrap();
    std::thread::spawn(move || {
        for mut client in far.incoming().flatten() {
            let _ = client.read(&mut [0; 1000]);
            let _ = client.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    for at in 0..count {
        // Each can be run again alone.
        let seed = seed + at;
        println!("seed {seed}");
        sequence(&stage, &mut Random(seed), &format!("ROPEWALK_SEED={seed} ROPEWALK_SEQUENCES=1"));
    }
}
