//! A gateway's host and a client, in network namespaces with a link for each of two interfaces.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::Clock;
use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::netns::Namespace;
use ropewalk_host::skip::skipped;

pub const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalkd");
pub const PORT: u16 = 80;
pub const BACKEND: u16 = 8080;
pub const SECOND: Span = Span::from_secs(1);

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// A host with two interfaces, 10.0.0.1 and 10.0.1.1, and a client with an interface on each link, 10.0.0.2
/// and 10.0.1.2.
pub struct Stage {
    pub server: Namespace,
    pub client: Namespace,
    pub folder: tempfile::TempDir,
}

impl Stage {
    /// `None`, having said so, where namespaces or the tools are lacking.
    pub fn new() -> Option<Stage> {
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
    pub fn shape(&self, rate: &str) {
        for (namespace, name) in [(&self.server, "eth"), (&self.client, "wan")] {
            for link in 0..2 {
                let line = format!("qdisc add dev {name}{link} root tbf rate {rate} burst 20kb latency 50ms");
                namespace.check("tc", &line.split(' ').collect::<Vec<_>>()).unwrap();
            }
        }
    }

    /// Starts a gateway with these arguments beside the addresses of both links, and waits until it listens.
    pub fn gateway(&self, arguments: &[&str]) -> Gateway {
        let listen = format!("10.0.0.1:{PORT}");
        let to = format!("127.0.0.1:{BACKEND}");
        let mut line =
            vec!["gateway", "--listen", &listen, "--to", &to, "--address", "10.0.1.1", "--log", "debug"];
        line.extend(arguments);
        self.start(&line)
    }

    pub fn start(&self, line: &[&str]) -> Gateway {
        start(&self.server, &self.folder, line)
    }

    /// What the server's kernel has of the gateway: nothing, if it is removed well.
    pub fn traces(&self) -> String {
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
    pub fn curl(&self, url: &str) -> Vec<u8> {
        let copy = self.folder.path().join("copy");
        let _ = fs::remove_file(&copy);
        let line = ["run", "curl", "-sS", "--fail", "--max-time", "30", "-o", copy.to_str().unwrap(), url];
        self.client.check("mptcpize", &line).unwrap();
        fs::read(copy).unwrap()
    }

    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.client.run(kernel::counters).unwrap();
        counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
    }

    /// Bytes that the client received on a link.
    pub fn received(&self, link: &str) -> u64 {
        let path = format!("/sys/class/net/{link}/statistics/rx_bytes");
        let told =
            self.client.command("sh").args(["-c", &format!("ip -s -j link show {link}")]).output().unwrap();
        let value: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        value[0]["stats64"]["rx"]["bytes"].as_u64().unwrap_or_else(|| panic!("{path}"))
    }

    /// A socket of the client's kernel, connected to the gateway.
    pub fn connect(&self) -> socket2::Socket {
        self.try_connect().unwrap()
    }

    pub fn try_connect(&self) -> std::io::Result<socket2::Socket> {
        let patience = Some(Duration::from_secs(10));
        let config = SocketConfig { connect_timeout: patience, ..SocketConfig::default() };
        let socket = kernel::connect(&self.client, None, ([10, 0, 0, 1], PORT).into(), &config)?;
        socket.set_read_timeout(patience)?;
        Ok(socket)
    }

    /// A client connects and is reset, while it connects or after.
    pub fn assert_reset(&self) {
        let error = self.try_connect().and_then(|client| (&client).read(&mut [0; 10])).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }

    /// A TCP server beside the gateway.
    pub fn backend(&self) -> TcpListener {
        self.server.run(|| TcpListener::bind(("127.0.0.1", BACKEND))).unwrap()
    }
}

/// Starts `ropewalk` with these arguments, and waits until it listens.
pub fn start(namespace: &Namespace, folder: &tempfile::TempDir, line: &[&str]) -> Gateway {
    let log = folder.path().join("gateway.log");
    let file = fs::File::create(&log).unwrap();
    let child =
        namespace.command(ROPEWALK).args(line).current_dir(folder.path()).stderr(file).spawn().unwrap();
    let mut gateway = Gateway { child: Ended(child), log };
    gateway.wait_for("listening");
    gateway
}

/// A program that ends with this value.
pub struct Ended(pub Child);

impl Ended {
    pub fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.end();
    }
}

pub struct Gateway {
    pub child: Ended,
    pub log: std::path::PathBuf,
}

impl Gateway {
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log has a text.
    pub fn wait_for(&mut self, what: &str) {
        let clock = Clock::start();
        while !self.log().contains(what) {
            assert!(clock.now() < Time::ZERO + 10 * SECOND, "no `{what}` in the log: {}", self.log());
            if let Ok(Some(status)) = self.child.0.try_wait() {
                assert!(self.log().contains(what), "ended with {status}: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Ends it by SIGTERM; its exit code.
    pub fn end(mut self) -> Option<i32> {
        self.signal("-TERM");
        let clock = Clock::start();
        loop {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(clock.now() < Time::ZERO + 20 * SECOND, "it doesn't end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

pub fn lacks(programs: &[&str]) -> bool {
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
pub fn nginx(stage: &Stage) -> Ended {
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
        assert!(clock.now() < Time::ZERO + 10 * SECOND, "nginx doesn't start");
        std::thread::sleep(Duration::from_millis(10));
    }
    running
}

pub fn ropewalk(arguments: &[&str]) -> Output {
    Command::new(ROPEWALK).args(arguments).output().unwrap()
}
/// A configuration's file; its path.
pub fn file(stage: &Stage, text: &str) -> String {
    let path = stage.folder.path().join("gateway.toml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

pub fn listener(port: u16, more: &str) -> String {
    format!(
        "[[listener]]\nlisten = '10.0.0.1:{port}'\naddresses = ['10.0.1.1']\nto = \
         '127.0.0.1:{BACKEND}'\n{more}\n"
    )
}
