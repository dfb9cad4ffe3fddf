//! Real programs through the tunnel, with an uplink that is cut for 4 s. docs/peers.md has the record.
//!
//! They are ping, traceroute, dig (Debian's bind9-dnsutils), wg (wireguard-tools) and wireguard-go, which `go
//! install golang.zx2c4.com/wireguard@latest` makes under the name `wireguard`; and Chromium, with a server
//! of HTTP/3 (`http3`, made by `go build`, with quic-go). For the call aiortc (PyPI); PYTHON names the Python
//! that has it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use ropewalk_host::clock::Clock;
use ropewalk_host::netns::Namespace;

use crate::pair::{LINKS, Pair, WORLD};
use crate::stage::{Running, ip, wait_until};

const MIB: usize = 1 << 20;
/// Where the domain name server listens: queries to port 53 don't go through the tunnel.
const DNS: &str = "5300";

/// Cuts an uplink from the second second to the sixth, and does something meanwhile.
fn with_cut<T: Send>(pair: &Pair, program: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let running = scope.spawn(program);
        sleep(Duration::from_secs(2));
        pair.stage.cut(0);
        sleep(Duration::from_secs(4));
        pair.stage.mend(0);
        running.join().unwrap()
    })
}

fn first_line(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap_or_else(|_| panic!("{program} is needed"));
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_string()
}

/// Answers every query with an address.
fn answer_queries(world: &Namespace) {
    let socket = world.run(|| UdpSocket::bind(format!("{WORLD}:{DNS}"))).unwrap();
    std::thread::spawn(move || {
        let mut query = [0; 2000];
        while let Ok((len, from)) = socket.recv_from(&mut query) {
            // The header, and the question: names' lengths end with 0, and four bytes follow.
            let Some(end) = query[12..len].iter().position(|byte| *byte == 0).map(|at| 12 + at + 5) else {
                continue;
            };
            let header = [&query[..2], &[0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]].concat();
            let address = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1];
            let _ = socket.send_to(&[&header, &query[12..end], &address].concat(), from);
        }
    });
}

/// One end of a WireGuard tunnel.
fn wireguard(pair: &Pair, namespace: &Namespace, own: u8) -> Running {
    let folder = pair.stage.path();
    let (name, other) = (format!("wg{own}-{}", std::process::id() % 100_000), 3 - own);
    let mut command = namespace.command("wireguard");
    command.args(["-f", &name]).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running::start(command);
    wait_until("wireguard-go is there", || namespace.check("wg", &["show", &name]).is_ok());
    let key = folder.join(format!("wg{own}.key")).display().to_string();
    let peer = std::fs::read_to_string(folder.join(format!("wg{other}.pub"))).unwrap();
    let mut line =
        vec!["set", &name, "private-key", &key, "peer", peer.trim(), "allowed-ips", "10.99.0.0/24"];
    let endpoint = format!("{WORLD}:51820");
    match own {
        1 => line.splice(2..2, ["listen-port", "51820"]).for_each(drop),
        _ => line.extend(["endpoint", &endpoint]),
    }
    namespace.check("wg", &line).unwrap();
    ip(namespace, &format!("address add 10.99.0.{own}/24 dev {name}")).unwrap();
    ip(namespace, &format!("link set {name} mtu 1300 up")).unwrap();
    running
}

#[test]
#[ignore = "needs dig, traceroute, wg and wireguard-go: see the head"]
fn real_programs_go_on_while_a_link_is_cut() {
    let udp = format!("{WORLD} {DNS},51820,33434-33534");
    let Some(pair) = Pair::start_by_file(&udp, &[], LINKS) else { return };
    let Pair { lan, world, .. } = &pair;
    let traceroute = |kind: &str| {
        let output = lan.check("traceroute", &["-n", kind, "-q", "1", "-w", "1", "-m", "6", WORLD]).unwrap();
        let hops: Vec<String> = output
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().nth(1))
            .map(String::from)
            .collect();
        println!("{}: {kind} {hops:?}", first_line("traceroute", &["-V"]));
        assert_eq!(hops.last().map(String::as_str), Some(WORLD), "{output}: {}", pair.logs());
    };
    traceroute("-I");
    traceroute("-4");
    let output =
        with_cut(&pair, || lan.check("ping", &["-c", "400", "-i", "0.02", "-W", "1", WORLD]).unwrap());
    let told: Vec<&str> =
        output.lines().filter(|line| line.contains("received") || line.contains("rtt")).collect();
    println!("{}: {told:?}", first_line("ping", &["-V"]));
    assert!(output.contains("400 received"), "{told:?}: {}", pair.logs());
    answer_queries(world);
    let times = with_cut(&pair, || {
        let start = Clock::start();
        let mut times = Vec::new();
        while start.now().as_secs_f64() < 8.0 {
            let clock = Clock::start();
            let server = format!("@{WORLD}");
            let line = ["-p", DNS, &server, "+short", "+tries=1", "+time=2", "example.org", "A"];
            let answered = lan.check("dig", &line).is_ok_and(|text| text.trim() == "192.0.2.1");
            times.push(answered.then(|| clock.now().as_secs_f64()));
        }
        times
    });
    let lost = times.iter().filter(|time| time.is_none()).count();
    let longest = times.iter().flatten().copied().fold(0.0, f64::max);
    println!("{}: {} queries, {lost} lost, longest {longest:.3} s", first_line("dig", &["-v"]), times.len());
    assert!(lost == 0 && longest < 1.0, "{}", pair.logs());
    for own in [1, 2] {
        let folder = pair.stage.path().display();
        let script = format!("umask 077; wg genkey > {folder}/wg{own}.key; wg pubkey < {folder}/wg{own}.key");
        let made = Command::new("sh").args(["-c", &script]).output().unwrap();
        std::fs::write(pair.stage.path().join(format!("wg{own}.pub")), made.stdout).unwrap();
    }
    let _ends = [wireguard(&pair, world, 1), wireguard(&pair, lan, 2)];
    wait_until("WireGuard's ends know each other", || {
        lan.check("ping", &["-c", "1", "-W", "1", "10.99.0.1"]).is_ok()
    });
    let output =
        with_cut(&pair, || lan.check("ping", &["-c", "400", "-i", "0.02", "-W", "1", "10.99.0.1"]).unwrap());
    let told: Vec<&str> =
        output.lines().filter(|line| line.contains("received") || line.contains("rtt")).collect();
    println!("{}, ping inside: {told:?}", first_line("wg", &["--version"]));
    assert!(output.contains("400 received"), "{told:?}: {}", pair.logs());
    // TCP inside, for as long as there is the cut and two seconds more.
    let listener = world.run(|| TcpListener::bind("10.99.0.1:80")).unwrap();
    let serving = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let piece = vec![7; 1 << 16];
        while client.write_all(&piece).is_ok() {}
    });
    let (bytes, gap) = with_cut(&pair, || {
        let mut client = lan.run(|| TcpStream::connect("10.99.0.1:80")).unwrap();
        let (clock, mut buffer) = (Clock::start(), vec![0; 1 << 16]);
        let (mut bytes, mut last, mut gap) = (0, 0.0, 0.0_f64);
        while clock.now().as_secs_f64() < 8.0 {
            bytes += client.read(&mut buffer).unwrap();
            let now = clock.now().as_secs_f64();
            gap = gap.max(now - last);
            last = now;
        }
        (bytes, gap)
    });
    serving.join().unwrap();
    println!("TCP inside: {} MiB in 8 s, longest gap {gap:.3} s", bytes / MIB);
    assert!(bytes > 8 * MIB && gap < 2.0, "{}", pair.logs());
}

#[test]
#[ignore = "needs chromium and go: see the head"]
fn chromium_goes_on_by_http3_while_a_link_is_cut() {
    let Some(pair) = Pair::start_by_file(&format!("{WORLD} 4433"), &[], LINKS) else { return };
    let (folder, address) = (pair.stage.path(), format!("{WORLD}:4433"));
    let (program, log) = (folder.join("http3"), folder.join("http3.log"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/proxy/http3");
    let built = Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(source).status();
    assert!(built.is_ok_and(|status| status.success()), "go is needed");
    let mut server = pair.world.command(&program);
    server.arg(&address).stdout(std::fs::File::create(&log).unwrap());
    let _server = Running::start(server);
    let said = |what: &str| -> Option<String> {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().find_map(|line| Some(line.strip_prefix(what)?.trim().to_string()))
    };
    wait_until("the server has a key", || said("key").is_some());
    let mut chromium = pair.lan.command("chromium");
    chromium.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-quic"]);
    chromium.arg(format!("--user-data-dir={}", folder.join("chromium").display()));
    chromium.arg(format!("--origin-to-force-quic-on={address}"));
    chromium.arg(format!("--ignore-certificate-errors-spki-list={}", said("key").unwrap()));
    chromium.args(["--remote-debugging-port=0", &format!("https://{address}/")]).stderr(Stdio::null());
    let _chromium = Running::start(chromium);
    with_cut(&pair, || wait_until("the page has told", || said("done").is_some()));
    let done = said("done").unwrap();
    println!("{}: {done}", first_line("chromium", &["--version"]));
    let value = |name: &str| -> String {
        let found = done.split('&').find_map(|one| one.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().to_string()
    };
    let (bytes, gap): (usize, u32) = (value("bytes").parse().unwrap(), value("gap").parse().unwrap());
    assert!(bytes > 8 * MIB && gap < 2000 && value("by") == "h3", "{done}: {}", pair.logs());
}

#[test]
#[ignore = "needs aiortc: see the head"]
fn a_call_by_webrtc_goes_on_while_a_link_is_cut() {
    let Some(pair) = Pair::start_by_file(&format!("{WORLD} 1024-65535"), &[], LINKS) else { return };
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/proxy/call.py");
    let folder = pair.stage.path().display().to_string();
    let end = |namespace: &Namespace, role: &str| {
        let mut command = namespace.command(&python);
        command.args([script, role, &folder, "8"]).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let answering = end(&pair.world, "answer");
    let offering = end(&pair.lan, "offer");
    let told = with_cut(&pair, || {
        [offering, answering].map(|one| {
            let output = one.wait_with_output().unwrap();
            assert!(output.status.success(), "aiortc is needed");
            String::from_utf8_lossy(&output.stdout).trim().to_string()
        })
    });
    println!("aiortc: {told:?}");
    for heard in told {
        let numbers: Vec<u32> = heard.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [came, sent, gap] = numbers[..] else { panic!("{heard}") };
        assert!(came + 2 >= sent && sent > 350 && gap < 200, "{heard}: {}", pair.logs());
    }
}
