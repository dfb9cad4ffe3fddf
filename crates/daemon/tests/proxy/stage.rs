//! A van with two uplinks, and a web server behind both: two network namespaces, two pairs of veth devices.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::Clock;
use ropewalk_host::netns::Namespace;
use ropewalk_host::skip::skipped;

/// The server's address.
pub const SERVER: &str = "10.9.9.9";
/// Where the proxy listens.
pub const PROXY: &str = "127.0.0.1:1080";

/// A program that ends with the test.
#[derive(Debug)]
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        Running(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Waits for its end.
    pub fn wait(mut self) -> std::process::ExitStatus {
        self.0.wait().unwrap()
    }

    /// Asks it to end, and waits for that.
    pub fn terminate(self) -> std::process::ExitStatus {
        self.signal("-TERM");
        self.wait()
    }
}

/// The two ends.
#[derive(Debug)]
pub struct Stage {
    pub van: Namespace,
    pub web: Namespace,
    pub folder: tempfile::TempDir,
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !condition() {
        assert!(clock.now() < Time::ZERO + Span::from_secs(15), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn namespaces() -> io::Result<(Namespace, Namespace)> {
    let (van, web) = (Namespace::new("van")?, Namespace::new("web")?);
    for key in ["net.ipv4.conf.default.rp_filter", "net.ipv4.conf.all.rp_filter"] {
        web.sysctl(key, "0")?;
    }
    for (namespace, lines) in [
        (&van, &["link set lo up"][..]),
        (
            &web,
            &["link set lo up", "address add 10.9.9.9/32 dev lo", "-6 address add fd09::9/128 dev lo nodad"],
        ),
    ] {
        lines.iter().try_for_each(|line| ip(namespace, line))?;
        namespace.sysctl("net.ipv6.conf.default.accept_dad", "0")?;
    }
    for link in 0..2 {
        add_uplink(&van, &web, link)?;
    }
    ip(&web, "mptcp limits set subflows 4 add_addr_accepted 4")?;
    Ok((van, web))
}

/// An uplink of the van's, which has its devices no more.
pub fn add_uplink(van: &Namespace, web: &Namespace, link: usize) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let there = format!("/proc/{}/fd/{}", std::process::id(), web.fd().as_raw_fd());
    ip(van, &format!("link add up{link} type veth peer name down{link}"))?;
    ip(van, &format!("link set down{link} netns {there}"))?;
    for (namespace, device, host) in [(van, format!("up{link}"), 2), (web, format!("down{link}"), 1)] {
        ip(namespace, &format!("address add 10.1.{link}.{host}/24 dev {device}"))?;
        ip(namespace, &format!("-6 address add fd01:{link}::{host}/64 dev {device} nodad"))?;
        ip(namespace, &format!("link set {device} up"))?;
        let shape = format!("qdisc add dev {device} root tbf rate 40mbit burst 64k latency 60ms");
        namespace.check("tc", &shape.split_whitespace().collect::<Vec<_>>())?;
    }
    add_route(van, link)
}

pub fn ip(namespace: &Namespace, line: &str) -> io::Result<()> {
    namespace.check("ip", &line.split_whitespace().collect::<Vec<_>>()).map(drop)
}

/// The van's default routes over an uplink.
pub fn add_route(van: &Namespace, link: usize) -> io::Result<()> {
    ip(van, &format!("route add default via 10.1.{link}.1 dev up{link} metric {}", 100 + link))?;
    ip(van, &format!("-6 route add default via fd01:{link}::1 dev up{link} metric {}", 100 + link))
}

impl Stage {
    /// `None`, and it is said, where there can be none.
    pub fn new() -> Option<Stage> {
        let (van, web) = namespaces().map_err(skipped).ok()?;
        for program in ["curl", "nginx", "mptcpize", "nft", "tc"] {
            if Command::new("which")
                .arg(program)
                .stdout(Stdio::null())
                .status()
                .is_ok_and(|one| !one.success())
            {
                skipped(format!("{program} isn't installed"));
                return None;
            }
        }
        Some(Stage { van, web, folder: tempfile::tempdir().unwrap() })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// nginx in the server's namespace, by the kernel's Multipath TCP or by TCP; it serves the folder's
    /// `www`.
    pub fn nginx(&self, multipath: bool) -> Running {
        let folder = self.path().display();
        let configuration = format!(
            "daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log \
             {folder}/error.log;\n\
             events {{ worker_connections 512; }}\n\
             http {{ types {{ text/html html; text/css css; text/javascript js; image/svg+xml svg; }}\n\
             access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/p;\n\
             fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n\
             server {{ listen 80; listen [::]:80; root {folder}/www;\n\
             location = /generate_204 {{ return 204; }} }}\n\
             server {{ listen 8080; return 302 http://portal.invalid/; }} }}\n"
        );
        std::fs::create_dir_all(self.path().join("www")).unwrap();
        let file = self.path().join("nginx.conf");
        std::fs::write(&file, configuration).unwrap();
        let program = if multipath { "mptcpize" } else { "nginx" };
        let mut command = self.web.command(program);
        if multipath {
            command.args(["run", "nginx"]);
        }
        command.arg("-c").arg(&file).arg("-p").arg(self.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Running::start(command);
        wait_until("nginx listens", || {
            self.web.check("ss", &["-Hltn", "sport = :80"]).is_ok_and(|text| text.contains(":80"))
        });
        server
    }

    /// Writes a file that nginx serves.
    pub fn serve(&self, name: &str, len: usize) -> Vec<u8> {
        std::fs::create_dir_all(self.path().join("www")).unwrap();
        let data: Vec<u8> = (0..len as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        std::fs::write(self.path().join("www").join(name), &data).unwrap();
        data
    }

    /// `ropewalkd proxy` over both uplinks.
    pub fn proxy(&self, arguments: &[&str]) -> Running {
        self.proxy_over(["up0", "up1"], arguments)
    }

    /// The same with more said of the uplinks.
    pub fn proxy_over(&self, [one, other]: [&str; 2], arguments: &[&str]) -> Running {
        self.start(&[&["--via", one, "--via", other], arguments].concat())
    }

    /// `ropewalkd proxy` with these arguments.
    pub fn start(&self, arguments: &[&str]) -> Running {
        self.start_by(&[], arguments)
    }

    /// The same, run by another program.
    pub fn start_by(&self, by: &[&str], arguments: &[&str]) -> Running {
        let line = [by, &[env!("CARGO_BIN_EXE_ropewalkd"), "proxy"], arguments].concat();
        let mut command = self.van.command(line[0]);
        command.args(&line[1..]);
        let log =
            std::fs::File::options().create(true).append(true).open(self.path().join("proxy.log")).unwrap();
        let proxy = Running::start({
            command.stderr(log);
            command
        });
        wait_until("the proxy listens", || {
            self.van.check("ss", &["-Hltn", "sport = :1080"]).is_ok_and(|text| text.contains(":1080"))
        });
        proxy
    }

    /// Waits until the proxy's log has a text: a client may be told before the log is written.
    pub fn wait_for_log(&self, words: &str) {
        wait_until(words, || self.log().contains(words));
    }

    /// What the proxy logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("proxy.log")).unwrap_or_default()
    }

    /// curl in the van: its exit code, and what it received.
    pub fn curl(&self, arguments: &[&str]) -> (i32, Vec<u8>) {
        let output =
            self.van.command("curl").args(["-sS", "--max-time", "30"]).args(arguments).output().unwrap();
        (output.status.code().unwrap_or(-1), output.stdout)
    }

    /// Bytes that the van received over an uplink.
    pub fn received(&self, link: usize) -> u64 {
        let text = self.van.check("ip", &["-s", "-j", "link", "show", "dev", &format!("up{link}")]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value[0]["stats64"]["rx"]["bytes"].as_u64().unwrap()
    }
}

/// A download under way.
#[derive(Debug)]
pub struct Download {
    curl: Running,
    clock: Clock,
    pub received: Vec<u8>,
    /// When data came, and how much there was then.
    pub times: Vec<(Time, usize)>,
}

impl Download {
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Reads what comes until `enough`, or the end.
    pub fn read_until(&mut self, mut enough: impl FnMut(&Download) -> bool) {
        use std::io::Read;
        let mut buffer = vec![0; 64 << 10];
        while !enough(self) {
            let len = self.curl.0.stdout.as_mut().unwrap().read(&mut buffer).unwrap();
            if len == 0 {
                return;
            }
            self.received.extend_from_slice(&buffer[..len]);
            self.times.push((self.clock.now(), self.received.len()));
        }
    }

    /// Waits for curl's end: whether it took what came for all.
    pub fn succeeded(mut self) -> bool {
        self.curl.0.wait().unwrap().success()
    }

    /// The longest time without data after `from`, ns.
    pub fn longest_gap(&self, from: Time) -> Span {
        let after = self.times.iter().map(|(at, _)| *at).skip_while(|at| *at < from);
        let mut last = from;
        after.fold(Span::ZERO, |longest, at| {
            let gap = at - last;
            last = at;
            longest.max(gap)
        })
    }
}

impl Stage {
    /// curl in the van, whose output is read as it comes.
    pub fn download(&self, url: &str) -> Download {
        let mut command = self.van.command("curl");
        let by = format!("socks5h://{PROXY}");
        command.args(["-sS", "--no-buffer", "--max-time", "60", "--proxy", &by, url]).stdout(Stdio::piped());
        let curl = Running::start(command);
        Download { curl, clock: Clock::start(), received: Vec::new(), times: Vec::new() }
    }

    /// Cuts an uplink without a sign of it: nothing gets through, and the devices stay up.
    pub fn cut(&self, link: usize) {
        let script = format!(
            "table netdev cut{link} {{ chain cut {{ type filter hook ingress device down{link} priority 0; \
             policy drop; }}; }}"
        );
        self.web.check("nft", &[&script]).unwrap();
        self.van.check("nft", &[&script.replace("device down", "device up")]).unwrap();
    }

    /// Undoes [`Stage::cut`].
    pub fn mend(&self, link: usize) {
        let script = format!("delete table netdev cut{link}");
        self.web.check("nft", &[&script]).unwrap();
        self.van.check("nft", &[&script]).unwrap();
    }

    /// A host behind the van, which knows nothing of a proxy.
    pub fn neighbour(&self) -> Namespace {
        use std::os::fd::AsRawFd;
        let lan = Namespace::new("lan").unwrap();
        let there = format!("/proc/{}/fd/{}", std::process::id(), lan.fd().as_raw_fd());
        for (namespace, line) in [
            (&self.van, "link add lan0 type veth peer name eth0"),
            (&self.van, &format!("link set eth0 netns {there}")),
            (&self.van, "address add 10.2.0.1/24 dev lan0"),
            (&self.van, "link set lan0 up"),
            (&lan, "address add 10.2.0.2/24 dev eth0"),
            (&lan, "link set eth0 up"),
            (&lan, "route add default via 10.2.0.1"),
        ] {
            ip(namespace, line).unwrap();
        }
        lan
    }

    /// Waits until the log says so often that a link is in a state.
    pub fn wait_for_state(&self, link: usize, state: &str, times: usize) {
        let line =
            |line: &&str| line.contains(&format!("\"up{link}\"")) && line.contains(&format!("\"{state}\""));
        wait_until(&format!("up{link} is {state}"), || self.log().lines().filter(line).count() >= times);
    }
}
