//! Real programs over the engine: curl from the kernel fetches from and sends to an engine that answers HTTP;
//! the engine fetches from nginx. `mptcpize` makes their sockets Multipath TCP.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use bytes::Bytes;
use ropewalk_host::clock::Clock;
use ropewalk_host::experiment::PORT;
use ropewalk_host::netns::Namespace;
use ropewalk_host::network::{Side, server_v4};
use ropewalk_host::transfer::pattern;

use crate::harness::lacks;
use crate::need_kernel;
use crate::stage::{Order, PATIENCE, Setup, Stage, assert_pattern};

const BYTES: u64 = 16 << 20;

/// A folder of this test's own, gone with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ropewalk-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// A file of the pattern's bytes.
    fn file(&self, bytes: u64) -> PathBuf {
        let path = self.0.join("file");
        let all: Vec<u8> = pattern().iter().copied().take(65_521).cycle().take(bytes as usize).collect();
        std::fs::write(&path, all).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program that ends with this value.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn curl(stage: &Stage, arguments: &[&str]) -> Child {
    let mut command = stage.kernel.command("mptcpize");
    command.args(["run", "curl", "-s", "-S", "--fail", "--max-time", "20"]).args(arguments);
    command.arg(format!("http://{}:{PORT}/file", server_v4()));
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn head_len(received: &[u8]) -> Option<usize> {
    received.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

#[test]
fn curl_fetches_from_the_engine() {
    need_kernel!();
    if lacks(&["curl", "mptcpize"]) {
        return;
    }
    let (stage, ()) = Stage::new(Setup::new(Side::Server, 2), |_| ());
    let curl = curl(&stage, &[]);
    stage.wait("the request", |seen| seen.received.ends_with(b"\r\n\r\n"));
    assert!(stage.seen().received.starts_with(b"GET /file HTTP/1.1\r\n"));
    stage.wait_subflows(2);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\nConnection: close\r\n\r\n");
    stage.order(Order::Say(Bytes::from(head)));
    stage.order(Order::Send(BYTES));
    stage.order(Order::Finish);
    let output = curl.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(output.stdout.len() as u64, BYTES);
    assert_pattern(&output.stdout);
    assert_eq!((stage.counter("MPCapableSYNTX"), stage.counter("MPJoinSynAckRx")), (1, 1));
    assert!(stage.end("curl").multipath);
}

#[test]
fn curl_sends_to_the_engine() {
    need_kernel!();
    if lacks(&["curl", "mptcpize"]) {
        return;
    }
    let folder = Folder::new("curl");
    let file = folder.file(BYTES);
    let (stage, ()) = Stage::new(Setup::new(Side::Server, 2), |_| ());
    let curl = curl(&stage, &["-H", "Expect:", "-T", &file.display().to_string()]);
    stage.wait("the file", |seen| {
        head_len(&seen.received[..seen.received.len().min(2000)])
            .is_some_and(|head| (seen.received.len() - head) as u64 == BYTES)
    });
    stage.order(Order::Say(Bytes::from_static(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")));
    stage.order(Order::Finish);
    assert!(curl.wait_with_output().unwrap().status.success());
    assert_eq!((stage.counter("MPCapableSYNTX"), stage.counter("MPJoinSynAckRx")), (1, 1));
    let seen = stage.end("curl -T");
    assert!(seen.multipath);
    assert_pattern(&seen.received[head_len(&seen.received).unwrap()..]);
}

/// Starts nginx in the namespace with a folder to serve, and waits until it listens.
fn nginx(space: &Namespace, folder: &Folder) -> Running {
    let root = folder.0.display();
    let settings = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/errors;
         events {{ }}
         http {{
             access_log off; sendfile on; default_type application/octet-stream;
             client_body_temp_path {root}/a; proxy_temp_path {root}/b; fastcgi_temp_path {root}/c;
             uwsgi_temp_path {root}/d; scgi_temp_path {root}/e;
             server {{ listen {PORT}; root {root}; }}
         }}"
    );
    let path = folder.0.join("nginx.conf");
    std::fs::write(&path, settings).unwrap();
    let mut command = space.command("mptcpize");
    command.args(["run", "nginx", "-c"]).arg(&path).arg("-e").arg(folder.0.join("errors"));
    let running = Running(command.spawn().unwrap());
    let begin = Clock::start();
    while !space.check("ss", &["-HMln"]).unwrap().contains(&format!(":{PORT}")) {
        let errors = std::fs::read_to_string(folder.0.join("errors")).unwrap_or_default();
        assert!(Duration::from(begin.now().since_origin()) < PATIENCE, "nginx doesn't listen: {errors}");
        std::thread::sleep(Duration::from_millis(10));
    }
    running
}

#[test]
fn the_engine_fetches_from_nginx() {
    need_kernel!();
    if lacks(&["nginx", "mptcpize"]) {
        return;
    }
    let folder = Folder::new("nginx");
    folder.file(BYTES);
    let (stage, _nginx) = Stage::new(Setup::new(Side::Client, 2), |space| nginx(space, &folder));
    stage.order(Order::Say(Bytes::from_static(b"GET /file HTTP/1.1\r\nHost: engine\r\n\r\n")));
    let whole = |seen: &crate::stage::Seen| {
        let head = head_len(&seen.received[..seen.received.len().min(2000)])?;
        ((seen.received.len() - head) as u64 == BYTES).then_some(head)
    };
    stage.wait("the file", |seen| whole(seen).is_some());
    stage.wait_subflows(2);
    let sockets = stage.kernel.check("ss", &["-MniH", "state", "established"]).unwrap();
    assert!(sockets.contains("subflows:1") && !sockets.contains("fallback"), "{sockets}");
    // Once more over the same connection, with both subflows from the start.
    let head = whole(&stage.seen()).unwrap();
    stage.order(Order::Say(Bytes::from_static(
        b"GET /file HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n",
    )));
    stage.wait("the end", |seen| seen.peer_closed);
    stage.order(Order::Finish);
    stage.wait("the close", |seen| seen.closed);
    let seen = stage.end("nginx");
    assert!(seen.multipath);
    let (first, second) = seen.received.split_at(head + BYTES as usize);
    assert!(first.starts_with(b"HTTP/1.1 200 OK\r\nServer: nginx"));
    assert_pattern(&first[head..]);
    assert_pattern(&second[head_len(second).unwrap()..]);
    assert!(seen.flows.iter().all(|flow| flow.totals.delivered > 0), "{:?}", seen.flows);
}
