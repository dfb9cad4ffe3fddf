//! `ropewalk perf` as processes in a namespace.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropewalk_host::netns::Namespace;
use serde_json::Value;

pub const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");

/// Held by tests that load the machine, and by those that measure rates beside emulated links.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed leaves nothing behind that would matter to the next.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A namespace in which devices can be made, or `None`, having said why not.
pub fn namespace() -> Option<Namespace> {
    let made = Namespace::new("perf").and_then(|namespace| {
        namespace.check("ip", &["link", "set", "lo", "up"])?;
        namespace.run(|| std::fs::OpenOptions::new().write(true).open("/dev/net/tun").map(drop))?;
        Ok(namespace)
    });
    made.map_err(ropewalk_host::skip::skipped).ok()
}

/// A server or gateway under way; killed if a test fails.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    pub fn start(namespace: &Namespace, arguments: &[&str]) -> Server {
        let mut command = namespace.command(ROPEWALK);
        command.args(["perf", "server"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut line = String::new();
        let errors = child.stderr.as_mut().expect("piped");
        BufReader::new(errors).read_line(&mut line).expect("a line");
        assert!(line.starts_with("listening on "), "{line}");
        Server(child)
    }

    /// `ropewalkd gateway`, which forwards to a server of this namespace; its log goes to `log`.
    pub fn gateway(namespace: &Namespace, listen: SocketAddr, to: &str, log: &Path) -> Server {
        // Another package's program: with the whole workspace it is built beside this one's.
        let program = Path::new(ROPEWALK).with_file_name("ropewalkd");
        assert!(program.exists(), "{} isn't there: cargo build -p ropewalkd", program.display());
        let mut command = namespace.command(program);
        command.args(["gateway", "--listen", &listen.to_string(), "--to", to, "--status", "none"]);
        command.stderr(std::fs::File::create(log).expect("a log"));
        let mut server = Server(command.spawn().expect("the gateway starts"));
        while !std::fs::read_to_string(log).expect("a log").contains("listening") {
            let ended = server.0.try_wait().expect("a child");
            assert!(ended.is_none(), "{}", std::fs::read_to_string(log).expect("a log"));
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Resident memory in KiB and processor time in ticks of 10 ms.
    pub fn usage(&self) -> (u64, u64) {
        let read =
            |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).expect("/proc");
        let status = read("status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        let stat = read("stat");
        let ticks = stat.rsplit(')').next().expect("fields").split_whitespace().skip(11).take(2);
        (
            resident.trim().trim_end_matches(" kB").parse().expect("a number"),
            ticks.map(|ticks| ticks.parse::<u64>().expect("ticks")).sum(),
        )
    }

    /// Waits for its end, and gives what it printed.
    pub fn end(mut self) -> String {
        let mut text = String::new();
        self.0.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        self.0.wait().expect("an end");
        text
    }
}

pub fn client(namespace: &Namespace, arguments: &[&str]) -> Output {
    let mut command = namespace.command("timeout");
    command.args(["20", ROPEWALK, "perf", "client"]).args(arguments);
    command.output().expect("the client runs")
}

pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {}", errors(output)))
}

pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Until a line with a rate is printed.
pub fn wait_for_interval(running: &mut Child) {
    let mut lines = BufReader::new(running.stdout.as_mut().expect("piped")).lines();
    let found = lines.by_ref().map_while(Result::ok).any(|line| line.contains("bit/s"));
    assert!(found, "no interval");
}
