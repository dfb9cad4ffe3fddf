//! `ropewalk gateway` in network namespaces, with the kernel's Multipath TCP, curl and nginx as its clients and servers.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use ropewalk_host::clock::Clock;
use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::netns::Namespace;
use ropewalk_host::skip::skipped;

const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");
const PORT: u16 = 80;
const BACKEND: u16 = 8080;
const SECOND: u64 = 1_000_000_000;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// A host with two interfaces, 10.0.0.1 and 10.0.1.1, and a client with an interface on each link, 10.0.0.2 and 10.0.1.2.
struct Stage {
    server: Namespace,
    client: Namespace,
    folder: tempfile::TempDir,
}

impl Stage {
    /// `None`, having said so, where namespaces or the tools are lacking.
    fn new() -> Option<Stage> {
        let made = Namespace::new("server").and_then(|server| {
            let client = Namespace::new("client")?;
            for namespace in [&server, &client] {
                namespace.check("ip", &["link", "set", "lo", "up"])?;
            }
            let pid = client.command("sleep").arg("60").spawn()?;
            let mut holder = Ended(pid);
            let pid = holder.0.id().to_string();
            for link in ["0", "1"] {
                let (near, far) = (format!("eth{link}"), format!("wan{link}"));
                server.check(
                    "ip",
                    &["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &pid],
                )?;
                for (namespace, name, host) in [(&server, &near, 1), (&client, &far, 2)] {
                    namespace
                        .check("ip", &["address", "add", &format!("10.0.{link}.{host}/24"), "dev", name])?;
                    namespace.check("ip", &["link", "set", name, "up"])?;
                }
            }
            holder.end();
            client.check("ip", &["mptcp", "limits", "set", "subflows", "4", "add_addr_accepted", "4"])?;
            server.check("nft", &["list", "ruleset"])?;
            server.run(|| fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun"))?;
            Ok(Stage { server, client, folder: tempfile::tempdir()? })
        });
        made.map_err(skipped).ok()
    }

    /// Slows both links, so that a transfer takes a while on each.
    fn shape(&self, rate: &str) {
        for (namespace, name) in [(&self.server, "eth"), (&self.client, "wan")] {
            for link in 0..2 {
                let line = format!("qdisc add dev {name}{link} root tbf rate {rate} burst 20kb latency 50ms");
                namespace.check("tc", &line.split(' ').collect::<Vec<_>>()).unwrap();
            }
        }
    }

    /// Starts a gateway with these arguments beside the addresses of both links, and waits until it listens.
    fn gateway(&self, arguments: &[&str]) -> Gateway {
        let listen = format!("10.0.0.1:{PORT}");
        let to = format!("127.0.0.1:{BACKEND}");
        let mut line =
            vec!["gateway", "--listen", &listen, "--to", &to, "--address", "10.0.1.1", "--log", "debug"];
        line.extend(arguments);
        self.start(&line)
    }

    fn start(&self, line: &[&str]) -> Gateway {
        let log = self.folder.path().join("gateway.log");
        let file = fs::File::create(&log).unwrap();
        let child = self.server.command(ROPEWALK).args(line).stderr(file).spawn().unwrap();
        let mut gateway = Gateway { child: Ended(child), log };
        gateway.wait_for("listening");
        gateway
    }

    /// What the server's kernel has of the gateway: nothing, if it is removed well.
    fn traces(&self) -> String {
        let all: &[&[&str]] = &[
            &["nft", "list", "tables"],
            &["ip", "-o", "link", "show", "type", "tun"],
            &["ip", "route", "show", "table", "all", "proto", "211"],
            &["sh", "-c", "ip rule | grep -v 'lookup \\(local\\|main\\|default\\)' || true"],
            &["sh", "-c", "grep -H 1 /proc/sys/net/ipv4/conf/eth*/forwarding || true"],
        ];
        all.iter().map(|line| self.server.check(line[0], &line[1..]).unwrap()).collect()
    }

    /// Downloads by curl, whose kernel speaks Multipath TCP; the body.
    fn curl(&self, url: &str) -> Vec<u8> {
        let copy = self.folder.path().join("copy");
        let _ = fs::remove_file(&copy);
        let line = ["run", "curl", "-sS", "--fail", "--max-time", "30", "-o", copy.to_str().unwrap(), url];
        self.client.check("mptcpize", &line).unwrap();
        fs::read(copy).unwrap()
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.client.run(kernel::counters).unwrap();
        counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
    }

    /// Bytes that the client received on a link.
    fn received(&self, link: &str) -> u64 {
        let path = format!("/sys/class/net/{link}/statistics/rx_bytes");
        let told =
            self.client.command("sh").args(["-c", &format!("ip -s -j link show {link}")]).output().unwrap();
        let value: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        value[0]["stats64"]["rx"]["bytes"].as_u64().unwrap_or_else(|| panic!("{path}"))
    }

    /// A socket of the client's kernel, connected to the gateway.
    fn connect(&self) -> socket2::Socket {
        self.try_connect().unwrap()
    }

    fn try_connect(&self) -> std::io::Result<socket2::Socket> {
        let patience = Some(Duration::from_secs(10));
        let config = SocketConfig { connect_timeout: patience, ..SocketConfig::default() };
        let socket = kernel::connect(&self.client, None, ([10, 0, 0, 1], PORT).into(), &config)?;
        socket.set_read_timeout(patience)?;
        Ok(socket)
    }

    /// A client connects and is reset, while it connects or after.
    fn assert_reset(&self) {
        let error = self.try_connect().and_then(|client| (&client).read(&mut [0; 10])).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }

    /// A TCP server beside the gateway.
    fn backend(&self) -> TcpListener {
        self.server.run(|| TcpListener::bind(("127.0.0.1", BACKEND))).unwrap()
    }
}

/// A program that ends with this value.
struct Ended(Child);

impl Ended {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.end();
    }
}

struct Gateway {
    child: Ended,
    log: std::path::PathBuf,
}

impl Gateway {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log has a text.
    fn wait_for(&mut self, what: &str) {
        let clock = Clock::start();
        while !self.log().contains(what) {
            assert!(clock.now() < 10 * SECOND, "no `{what}` in the log: {}", self.log());
            if let Ok(Some(status)) = self.child.0.try_wait() {
                assert!(self.log().contains(what), "ended with {status}: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Ends it by SIGTERM; its exit code.
    fn end(mut self) -> Option<i32> {
        self.signal("-TERM");
        let clock = Clock::start();
        loop {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(clock.now() < 20 * SECOND, "it doesn't end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn lacks(programs: &[&str]) -> bool {
    let is_missing = |name: &&&str| {
        Command::new(name).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    };
    let missing = programs.iter().find(is_missing);
    if let Some(name) = missing {
        skipped(format!("{name} isn't installed"));
    }
    missing.is_some()
}

/// nginx with a folder of files, at the backend's port.
fn nginx(stage: &Stage) -> Ended {
    let folder = stage.folder.path();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {}/{name};", folder.display()))
        .concat();
    let settings = format!(
        "daemon off; master_process off; pid {0}/pid; error_log stderr; events {{}} \
         http {{ access_log off; {temporary} server {{ listen 127.0.0.1:{BACKEND}; root {0}; }} }}",
        folder.display()
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, settings).unwrap();
    let mut command = stage.server.command("nginx");
    let child = command.arg("-c").arg(&file).args(["-e", "stderr"]).stderr(Stdio::null()).spawn().unwrap();
    let running = Ended(child);
    let clock = Clock::start();
    while !folder.join("pid").exists() {
        assert!(clock.now() < 10 * SECOND, "nginx doesn't start");
        std::thread::sleep(Duration::from_millis(10));
    }
    running
}

fn ropewalk(arguments: &[&str]) -> Output {
    Command::new(ROPEWALK).args(arguments).output().unwrap()
}

#[test]
fn curl_downloads_from_nginx_over_two_links() {
    let Some(stage) = Stage::new() else { return };
    if lacks(&["nginx", "curl", "mptcpize", "tc"]) {
        return;
    }
    let file = pattern(6_000_000);
    fs::write(stage.folder.path().join("file"), &file).unwrap();
    let _nginx = nginx(&stage);
    stage.shape("40mbit");
    let gateway = stage.gateway(&[]);
    // What a dry run shows is what is there.
    assert!(stage.traces().contains("ropewalk_gateway"), "{}", stage.traces());
    assert!(stage.curl("http://10.0.0.1/file") == file, "the copy differs");
    assert_eq!(stage.counter("MPTcpExtMPJoinSynAckRx"), 1, "one join, to the announced address");
    assert_eq!(stage.counter("MPTcpExtAddAddr"), 1);
    let links = [stage.received("wan0"), stage.received("wan1")];
    assert!(links.iter().all(|bytes| *bytes > 1_000_000), "{links:?}");
    // The announced address takes connections, too; and plain TCP clients, and this host itself, are served.
    assert!(stage.curl("http://10.0.1.1/file") == file, "the copy differs");
    let plain = ["-sS", "--fail", "--max-time", "20", "-o", "/dev/null", "-w", "%{size_download}"];
    for (namespace, url) in [(&stage.client, "http://10.0.0.1/file"), (&stage.server, "http://10.0.1.1/file")]
    {
        let size = namespace.check("curl", &[&plain[..], &[url]].concat()).unwrap();
        assert_eq!(size, file.len().to_string(), "{url}");
    }
    // Other ports are the kernel's as before.
    let refused = stage.client.check("curl", &["-sS", "--max-time", "5", "http://10.0.0.1:81/"]);
    assert!(
        refused.is_err_and(
            |error| error.to_string().contains("refused") || error.to_string().contains("connect")
        )
    );
    assert_eq!(gateway.end(), Some(0));
    assert_eq!(stage.traces(), "", "something is left");
}

#[test]
fn what_a_killed_gateway_leaves_is_removed_by_the_next() {
    let Some(stage) = Stage::new() else { return };
    let mut first = stage.gateway(&[]);
    let mut second = stage.server.command(ROPEWALK);
    let output = second.args(["gateway", "--listen", "10.0.0.1:80", "--to", "127.0.0.1:1"]).output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("another gateway"), "{told}");
    assert!(stage.traces().contains("ropewalk_gateway"), "the second has removed what the first uses");
    first.child.end();
    let left = stage.traces();
    assert!(left.contains("ropewalk_gateway") && left.contains("forwarding"), "{left}");
    let mut third = stage.gateway(&[]);
    third.wait_for("an earlier gateway");
    assert_eq!(third.end(), Some(0));
    assert_eq!(stage.traces(), "", "something is left");
}

#[test]
fn a_side_that_closes_or_resets_does_so_at_the_other_end() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    let mut gateway = stage.gateway(&[]);
    let (question, answer) = (pattern(300_000), pattern(400_000));
    std::thread::scope(|scope| {
        // The client closes first, and still gets the answer.
        let serving = scope.spawn(|| {
            let (mut socket, _) = backend.accept().unwrap();
            let mut received = Vec::new();
            socket.read_to_end(&mut received).unwrap();
            socket.write_all(&answer).unwrap();
            (received, socket)
        });
        let client = stage.connect();
        (&client).write_all(&question).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        let (served, socket) = serving.join().unwrap();
        drop(socket);
        (&client).read_to_end(&mut received).unwrap();
        assert!(served == question && received == answer);
    });
    gateway.wait_for("end=\"closed\"");
    // The server resets: so does the gateway.
    let client = stage.connect();
    (&client).write_all(b"question").unwrap();
    let (socket, _) = backend.accept().unwrap();
    // Data that it hasn't read makes its close a reset.
    std::thread::sleep(Duration::from_millis(100));
    drop(socket);
    let error = (&client).read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    gateway.wait_for("end=\"the TCP connection: ");
    // The client resets: the server doesn't take what it has for all.
    let client = stage.connect();
    (&client).write_all(b"question").unwrap();
    let (mut socket, _) = backend.accept().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.write_all(b"answer").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    client.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    let mut received = Vec::new();
    let error = socket.read_to_end(&mut received).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    gateway.wait_for("end=\"the Multipath TCP connection: ");
    // Nobody listens at the server's port: the client is reset, and the gateway goes on.
    drop(backend);
    stage.assert_reset();
    gateway.wait_for("can't be reached");
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn a_slow_server_slows_its_client() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    let gateway = stage.gateway(&[]);
    let sent = pattern(60_000_000);
    let client = stage.connect();
    let written = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let written = &written;
        let (sent, client) = (&sent, &client);
        scope.spawn(move || {
            for piece in sent.chunks(100_000) {
                (&mut &*client).write_all(piece).unwrap();
                written.fetch_add(piece.len(), std::sync::atomic::Ordering::Relaxed);
            }
            client.shutdown(Shutdown::Write).unwrap();
        });
        let (mut socket, _) = backend.accept().unwrap();
        std::thread::sleep(Duration::from_millis(700));
        let first = written.load(std::sync::atomic::Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        let second = written.load(std::sync::atomic::Ordering::Relaxed);
        // Buffers of three hosts are full by now.
        assert!(first == second && second < sent.len(), "{first}, then {second} bytes were taken");
        let mut received = Vec::new();
        socket.read_to_end(&mut received).unwrap();
        assert!(received == *sent, "{} bytes arrived, or others", received.len());
    });
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn sigterm_drains_and_has_a_limit() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    for (limit, ends_by_itself) in [("20 s", true), ("0.3 s", false)] {
        let mut gateway = stage.gateway(&["--drain", limit]);
        let client = stage.connect();
        (&client).write_all(b"question").unwrap();
        let (mut socket, _) = backend.accept().unwrap();
        socket.read_exact(&mut [0; 8]).unwrap();
        gateway.signal("-TERM");
        gateway.wait_for("draining");
        if ends_by_itself {
            // The connection goes on as if nothing was.
            std::thread::sleep(Duration::from_millis(300));
            socket.write_all(b"answer").unwrap();
            drop(socket);
            let mut received = Vec::new();
            (&client).read_to_end(&mut received).unwrap();
            assert_eq!(received, b"answer");
            drop(client);
        } else {
            let error = (&client).read(&mut [0; 10]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        assert_eq!(gateway.end(), Some(0), "{limit}");
        assert_eq!(stage.traces(), "", "something is left");
    }
}

#[test]
fn a_dry_run_shows_the_rules_and_does_nothing() {
    let Some(stage) = Stage::new() else { return };
    let mut command = stage.server.command(ROPEWALK);
    command.args(["gateway", "--listen", "10.0.0.1:443", "--to", "127.0.0.1:8443", "--dry-run"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("ip daddr 10.0.0.1 tcp dport { 443 } notrack ip daddr set 10.126.64.1"),
        "{shown}"
    );
    assert!(shown.contains("ip address add 10.126.64.0/31 dev rope-gw0"), "{shown}");
    assert_eq!(stage.traces(), "");
    let json = command.arg("--json").output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(value["devices"][0]["public"], "10.0.0.1");
    assert!(value["removal"].as_array().is_some_and(|steps| steps.len() >= 2), "{value}");
}

#[test]
fn settings_that_cannot_be_used_are_refused_in_words() {
    let rows: [(&[&str], &str); 6] = [
        (&["--listen", "10.0.0.1", "--to", "127.0.0.1:80"], "an address and a port"),
        (&["--listen", "10.0.0.1:0", "--to", "127.0.0.1:80"], "an address and a port"),
        (&["--listen", "10.0.0.1:80", "--to", "localhost"], "--to"),
        (&["--listen", "10.0.0.1:80", "--to", "127.0.0.1:80", "--address", "x"], "without a port"),
        (&["--listen", "10.0.0.1:80", "--to", "127.0.0.1:80", "--scheduler", "blets"], "blest"),
        (&["--listen", "10.0.0.1:80", "--to", "127.0.0.1:80", "--drain", "5 x"], "--drain"),
    ];
    for (arguments, expected) in rows {
        let output = ropewalk(&[&["gateway"], arguments].concat());
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
    // What only the host can refuse.
    for (listen, expected) in [
        ("127.0.0.1:80", "no client reaches it"),
        ("0.0.0.0:80", "every address"),
        ("203.0.113.77:80", "no address of this host"),
    ] {
        let output = ropewalk(&["gateway", "--listen", listen, "--to", "127.0.0.1:80", "--dry-run"]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{listen}: {told}");
        assert!(told.contains(expected), "{listen}: {told}");
    }
}

/// A configuration's file; its path.
fn file(stage: &Stage, text: &str) -> String {
    let path = stage.folder.path().join("gateway.toml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn listener(port: u16, more: &str) -> String {
    format!(
        "[[listener]]\nlisten = '10.0.0.1:{port}'\naddresses = ['10.0.1.1']\nto = '127.0.0.1:{BACKEND}'\n{more}\n"
    )
}

#[test]
fn sighup_changes_listeners_and_cuts_no_connection() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    let path = file(&stage, &listener(PORT, "scheduler = 'blest'"));
    let mut gateway = stage.start(&["gateway", "--config", &path, "--log", "debug"]);
    let client = stage.connect();
    (&client).write_all(b"question").unwrap();
    let (mut first, _) = backend.accept().unwrap();
    first.read_exact(&mut [0; 8]).unwrap();
    let reloaded = |gateway: &mut Gateway, text: &str, expected: &str| {
        let before = gateway.log().len();
        file(&stage, text);
        gateway.signal("-HUP");
        let clock = Clock::start();
        while !gateway.log()[before..].contains(expected) {
            assert!(clock.now() < 10 * SECOND, "no `{expected}`: {}", gateway.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    // The listener has other settings, and there is one more.
    let text = listener(PORT, "proxy-protocol = 'v1'") + &listener(81, "proxy-protocol = 'v2'");
    reloaded(&mut gateway, &text, "configuration read again");
    for (port, expected) in
        [(PORT, &b"PROXY TCP4 10.0.0.2 10.0.0.1 "[..]), (81, b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c")]
    {
        let config = SocketConfig::default();
        let second = kernel::connect(&stage.client, None, ([10, 0, 0, 1], port).into(), &config).unwrap();
        (&second).write_all(b"question").unwrap();
        let (mut socket, _) = backend.accept().unwrap();
        let mut header = vec![0; expected.len()];
        socket.read_exact(&mut header).unwrap();
        assert_eq!(header, expected, "port {port}");
    }
    // Mistakes change nothing.
    reloaded(&mut gateway, "[[listener]]\nlisten = 7\n", "gateway.toml:2:10: expected a text in quotes");
    reloaded(&mut gateway, &text.replace("10.0.1.1", "10.0.0.7"), "needs a restart");
    // A listener goes; the first connection goes on.
    reloaded(&mut gateway, &listener(81, ""), "configuration read again");
    let refused =
        kernel::connect(&stage.client, None, ([10, 0, 0, 1], PORT).into(), &SocketConfig::default());
    assert!(refused.is_err());
    first.write_all(b"answer").unwrap();
    drop(first);
    let mut received = Vec::new();
    (&client).read_to_end(&mut received).unwrap();
    assert_eq!(received, b"answer");
    drop(client);
    assert_eq!(gateway.end(), Some(0));
    assert_eq!(stage.traces(), "", "something is left");
}

#[test]
fn limits_reset_what_is_too_much() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    let path = file(&stage, &listener(PORT, "connections = 2\nsubflows = 0"));
    let gateway = stage.start(&["gateway", "--config", &path, "--log", "debug"]);
    let open = [stage.connect(), stage.connect()];
    let servers = [backend.accept().unwrap(), backend.accept().unwrap()];
    stage.assert_reset();
    drop((open, servers));
    // A place is free again.
    let clock = Clock::start();
    loop {
        let next = stage.try_connect();
        let _ = next.and_then(|next| (&next).write_all(b"question").map(|()| next));
        backend.set_nonblocking(true).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        if backend.accept().is_ok() {
            break;
        }
        assert!(clock.now() < 10 * SECOND, "{}", gateway.log());
    }
    assert_eq!(stage.counter("MPTcpExtMPJoinSynAckRx"), 0, "no join is allowed");
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn a_configuration_is_checked_without_root() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("g.toml");
    let check = |text: &str| {
        fs::write(&path, text).unwrap();
        ropewalk(&["gateway", "--check", "--config", path.to_str().unwrap()])
    };
    let good = check(&listener(80, ""));
    assert_eq!(
        (good.status.code(), text(&good.stdout).as_str()),
        (Some(0), "1 listener: nothing is wrong\n")
    );
    let bad = check(&listener(80, "schedular = 'blest'"));
    assert_eq!(bad.status.code(), Some(2));
    let told = text(&bad.stderr);
    assert!(told.contains("g.toml:5:1") && told.contains("did you mean `scheduler`?"), "{told}");
    let schema = ropewalk(&["gateway", "--schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).unwrap();
    assert_eq!(schema["properties"]["listener"]["items"]["required"], serde_json::json!(["listen", "to"]));
}

#[test]
fn status_and_metrics_tell_of_connections_and_why() {
    let Some(stage) = Stage::new() else { return };
    if lacks(&["tc", "curl"]) {
        return;
    }
    stage.shape("10mbit");
    let backend = stage.backend();
    let socket = stage.folder.path().join("status");
    let path = socket.to_str().unwrap();
    let more = ["--scheduler", "blest", "--status", path, "--metrics", "127.0.0.1:9464"];
    let gateway = stage.gateway(&more);
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let client = stage.connect();
    let (mut server, _) = backend.accept().unwrap();
    let received = std::thread::scope(|scope| {
        let client = &client;
        let reading = scope.spawn(move || {
            let mut received = Vec::new();
            (&mut &*client).read_to_end(&mut received).unwrap();
            received.len()
        });
        let writing = scope.spawn(move || server.write_all(&pattern(4_000_000)).unwrap());
        let clock = Clock::start();
        // While data flows: two subflows, and decisions with their reasons.
        loop {
            let told = ropewalk(&["status", "--socket", path, "--json"]);
            assert!(told.status.success(), "{}", text(&told.stderr));
            let state: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
            let one = &state["connections"][0];
            let subflows = one["subflows"].as_array().map_or(0, Vec::len);
            let reasons = one["decisions"].as_array().map_or(0, Vec::len);
            if subflows == 2 && reasons > 0 {
                assert_eq!((&one["scheduler"], &one["multipath"]), (&"blest".into(), &true.into()));
                assert_eq!(
                    (&one["subflows"][1]["interface"], &one["to"]),
                    (&"eth1".into(), &"127.0.0.1:8080".into())
                );
                assert!(one["subflows"][0]["srtt_s"].as_f64() > Some(0.0), "{one}");
                assert!(one["decisions"][0]["why"].as_str().is_some_and(|why| !why.is_empty()), "{one}");
                assert_eq!(state["mib"]["MPTcpExtMPCapableSYNRX"], 1);
                break;
            }
            assert!(clock.now() < 3 * SECOND, "{state:#}");
        }
        let shown = text(&ropewalk(&["status", "--socket", path]).stdout);
        assert!(shown.contains("scheduler blest") && shown.contains("eth1  10.0.1.1:80 -> 10.0."), "{shown}");
        let metrics =
            stage.server.check("curl", &["-sS", "--fail", "http://127.0.0.1:9464/metrics"]).unwrap();
        for line in [
            "ropewalk_gateway_accepted_total 1",
            "ropewalk_gateway_connections{scheduler=\"blest\"} 1",
            "ropewalk_subflows{interface=\"eth1\"} 1",
            "ropewalk_MPTcpExtMPCapableSYNRX 1",
        ] {
            assert!(metrics.lines().any(|known| known == line), "no `{line}`: {metrics}");
        }
        writing.join().unwrap();
        reading.join().unwrap()
    });
    assert_eq!(received, 4_000_000);
    // The gateway has nothing but CAP_NET_ADMIN.
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.child.0.id())).unwrap();
    let bits = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map(|bits| bits.trim().to_string())
    };
    assert_eq!(bits("CapEff:").as_deref(), Some("0000000000001000"), "{status}");
    drop(client);
    assert_eq!(gateway.end(), Some(0));
    assert!(!socket.exists());
    let nobody = ropewalk(&["status", "--socket", path]);
    assert_eq!(nobody.status.code(), Some(1));
}
