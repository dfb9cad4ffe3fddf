//! The two ends of a pair with a tunnel, a host behind the proxy, and one beyond the gateway.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ropewalk_host::netns::Namespace;

use crate::encrypted::keys;
use crate::far::{Far, gateway, started};
use crate::stage::{Running, SERVER, Stage, ip, wait_until};

/// A server beyond the gateway, which has no route but to the gateway.
pub const WORLD: &str = "10.3.0.2";
/// The links of a file.
pub const LINKS: &str = "[[link]]\ninterface = \"up0\"\n\n[[link]]\ninterface = \"up1\"\n\n";

/// The two ends of a pair, and a host behind the proxy.
pub struct Pair {
    pub stage: Stage,
    pub lan: Namespace,
    pub world: Namespace,
    pub gateway: Vec<String>,
    pub far: Option<Running>,
    proxy: Option<Running>,
}

impl Pair {
    /// `None`, and it is said, where there can be none. `udp`: what the gateway lets out.
    pub fn start(udp: &str) -> Option<Pair> {
        Pair::start_with(udp, &[])
    }

    /// The same with more said to the proxy.
    pub fn start_with(udp: &str, more: &[&str]) -> Option<Pair> {
        Pair::start_by(udp, &[], 2, |stage, folder| {
            let socket = stage.path().join("status").display().to_string();
            let (key, certificate) = (format!("{folder}/proxy.key"), format!("{folder}/gateway.pub"));
            let line = ["--status", &socket, "--json", "--transparent", "lan0", "--gateway", "10.1.0.1:5124"];
            let keys = ["--gateway-key", &key, "--gateway-certificate", &certificate];
            stage.proxy(&[&line[..], &keys, more].concat())
        })
    }

    /// The same with a file of the proxy's, of which links and rules are said. `gateway`: more said to that.
    pub fn start_by_file(udp: &str, gateway: &[&str], file: &str) -> Option<Pair> {
        Pair::start_by_file_after(|_| (), udp, gateway, file)
    }

    /// The same, after something was done to the network.
    pub fn start_by_file_after(
        prepare: impl Fn(&Stage),
        udp: &str,
        gateway: &[&str],
        file: &str,
    ) -> Option<Pair> {
        Pair::start_by(udp, gateway, file.matches("[[link]]").count(), |stage, _| {
            prepare(stage);
            let path = write_file(stage, file);
            stage.start(&["--config", &path, "--json", "--verbose"])
        })
    }

    /// The same with a gateway that has names in the proxy's /etc/hosts; its file has `gateway.test`.
    pub fn start_by_name(udp: &str, known: &str) -> Option<Pair> {
        Pair::start_by(udp, &[], 2, |stage, _| {
            let hosts = stage.path().join("hosts").display().to_string();
            std::fs::write(&hosts, known).unwrap();
            let path = write_file(stage, LINKS);
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, text.replace("10.1.0.1:5124", "gateway.test:5124")).unwrap();
            let with_hosts = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
            let by = ["unshare", "--mount", "sh", "-c", with_hosts, &hosts];
            stage.start_by(&by, &["--config", &path, "--json", "--verbose"])
        })
    }

    fn start_by(
        udp: &str,
        more: &[&str],
        links: usize,
        proxy: impl Fn(&Stage, &str) -> Running,
    ) -> Option<Pair> {
        let stage = Stage::new()?;
        let folder = stage.path().join("keys").display().to_string();
        keys(&folder, &[]);
        let lan = stage.neighbour();
        for (namespace, line) in [
            (&stage.van, "-6 address add fd02::1/64 dev lan0 nodad"),
            (&lan, "-6 address add fd02::2/64 dev eth0 nodad"),
            (&lan, "-6 route add default via fd02::1"),
        ] {
            ip(namespace, line).unwrap();
        }
        let world = world(&stage);
        let (own, proxys) = (format!("{folder}/gateway.key"), format!("{folder}/proxy.pub"));
        let allowed = format!("{SERVER} 80");
        let line =
            ["--key", &own, "--proxy", &proxys, "--convert", &allowed, "--udp", udp, "--udp", "fd03::2"];
        let far_line: Vec<String> =
            line.iter().chain(more).map(|word| word.replace("KEYS", &folder)).collect();
        let far = Pair::gateway(&stage, &far_line);
        let proxy = proxy(&stage, &folder);
        let pair = Pair { stage, lan, world, gateway: far_line, far: Some(far), proxy: Some(proxy) };
        pair.wait_for_tunnel(links);
        Some(pair)
    }

    /// Has a gateway with a file take the place of the one that there is. What the file says of the listener:
    /// `more`.
    pub fn restart_by_file(&mut self, more: &str) {
        self.far = None;
        write_gateways_file(&self.stage, more);
        let path = self.stage.path().join("gateway.toml").display().to_string();
        let ups = || self.stage.log().matches("datagrams go over this link\"").count();
        let before = ups();
        self.far = Some(started(&self.stage, &["--config", &path, "--log", "debug"]));
        wait_until("the tunnel is there again", || ups() >= before + 2);
    }

    /// Has that gateway read another file.
    pub fn reload_gateway(&self, more: &str) {
        let read = || Far::log(&self.stage).matches("configuration read again").count();
        let before = read();
        write_gateways_file(&self.stage, more);
        self.far.as_ref().unwrap().signal("-HUP");
        wait_until("the gateway's file is read", || read() > before);
    }

    /// Has the proxy read another file.
    pub fn reload(&self, file: &str) {
        write_file(&self.stage, file);
        self.read_again();
    }

    /// Has the proxy read its file with another text in the place of one.
    pub fn reload_replaced(&self, from: &str, to: &str) {
        let path = self.stage.path().join("proxy.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(from, to)).unwrap();
        self.read_again();
    }

    fn read_again(&self) {
        let read = || self.stage.log().matches("configuration read again").count();
        let before = read();
        self.proxy.as_ref().unwrap().signal("-HUP");
        wait_until("the file is read", || read() > before);
    }

    /// Ends the proxy, which was started by a file, does something, and starts it again.
    pub fn restart_proxy(&mut self, meanwhile: impl FnOnce(&Pair)) {
        let ups = || self.stage.log().matches("datagrams go over this link\"").count();
        let before = ups();
        assert!(self.proxy.take().unwrap().terminate().success());
        meanwhile(self);
        let path = self.stage.path().join("proxy.toml").display().to_string();
        self.proxy = Some(self.stage.start(&["--config", &path, "--json", "--verbose"]));
        let ups = || self.stage.log().matches("datagrams go over this link\"").count();
        wait_until("the tunnel is there again", || ups() >= before + 2);
    }

    /// What `--check` says of another file: its exit code and what it writes.
    pub fn check(&self, file: &str) -> (i32, String) {
        let path = write_file(&self.stage, file);
        let line = ["proxy", "--check", "--config", &path];
        let output = self.stage.van.command(env!("CARGO_BIN_EXE_ropewalkd")).args(line).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
    }

    pub fn gateway(stage: &Stage, line: &[String]) -> Running {
        gateway(stage, &line.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub fn wait_for_tunnel(&self, links: usize) {
        wait_until("the tunnel is there", || {
            let log = self.stage.log();
            log.contains("datagrams go through the gateway")
                && log.matches("datagrams go over this link\"").count() >= links
        });
    }

    pub fn logs(&self) -> String {
        format!("{} {}", self.stage.log(), Far::log(&self.stage))
    }
}

fn world(stage: &Stage) -> Namespace {
    use std::os::fd::AsRawFd;
    let world = Namespace::new("world").unwrap();
    let there = format!("/proc/{}/fd/{}", std::process::id(), world.fd().as_raw_fd());
    for (namespace, line) in [
        (&stage.web, "link add wan0 type veth peer name eth0"),
        (&stage.web, &*format!("link set eth0 netns {there}")),
        (&stage.web, "address add 10.3.0.1/24 dev wan0"),
        (&stage.web, "-6 address add fd03::1/64 dev wan0 nodad"),
        (&stage.web, "link set wan0 up"),
        (&world, "address add 10.3.0.2/24 dev eth0"),
        (&world, "-6 address add fd03::2/64 dev eth0 nodad"),
        (&world, "link set eth0 up"),
    ] {
        ip(namespace, line).unwrap();
    }
    world
}

/// Writes the gateway's file: what a pair needs, and the rest.
fn write_gateways_file(stage: &Stage, rest: &str) {
    let text = format!(
        "[[listener]]\nlisten = \"10.1.0.1:5124\"\nconvert = [\"{WORLD} 80\"]\nkey = \"keys/gateway.key\"\n\
         proxies = [\"keys/proxy.pub\"]\n{rest}\n"
    );
    std::fs::write(stage.path().join("gateway.toml"), text).unwrap();
}

/// Writes the proxy's file: what a pair needs, and the rest.
fn write_file(stage: &Stage, rest: &str) -> String {
    let path = stage.path().join("proxy.toml").display().to_string();
    let folder = stage.path().display();
    let text = format!(
        "[proxy]\nstatus = \"{folder}/status\"\nusage = \"{folder}/usage.json\"\ntransparent = [\"lan0\"]\n\
         gateway = [\"10.1.0.1:5124\"]\ngateway-key = \"keys/proxy.key\"\n\
         gateway-certificate = [\"keys/gateway.pub\"]\n\n{rest}"
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// A server that tells who asks, until it is dropped.
pub struct WhoAsks(Arc<AtomicBool>);

impl WhoAsks {
    pub fn start(namespace: &Namespace, address: &str) -> WhoAsks {
        let socket = namespace.run(|| UdpSocket::bind(address)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut buffer = [0; 2000];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((_, peer)) = socket.recv_from(&mut buffer) else { continue };
                let _ = socket.send_to(peer.ip().to_string().as_bytes(), peer);
            }
        });
        WhoAsks(stop)
    }
}

impl Drop for WhoAsks {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A program that asks such a server.
pub struct Asker(UdpSocket);

impl Asker {
    pub fn new(namespace: &Namespace, server: &str) -> Asker {
        Asker::from(namespace, if server.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" }, server)
    }

    /// The same from an address of its own.
    pub fn from(namespace: &Namespace, own: &str, server: &str) -> Asker {
        let socket = namespace.run(|| UdpSocket::bind(own)).unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        Asker(socket)
    }

    /// Asks, and waits for no answer.
    pub fn send(&self) {
        let _ = self.0.send(b"who am I?");
    }

    /// The address that the server sees; `None` if it doesn't answer, asked twice: datagrams may be lost.
    pub fn seen(&self) -> Option<String> {
        self.answer(b"who am I?").map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    /// What comes back for a datagram.
    pub fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 1 << 16];
        (0..2).find_map(|_| {
            self.0.send(question).ok()?;
            self.0.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())
        })
    }
}
