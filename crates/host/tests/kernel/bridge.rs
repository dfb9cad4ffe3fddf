//! iperf3 over the engine: the kernel's iperf3 speaks Multipath TCP to an engine, which hands each
//! connection's stream to an ordinary iperf3 server over a local TCP socket of the kernel's, and back. Both
//! directions.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ropewalk_engine::config::ConnectionConfig;
use ropewalk_engine::endpoint::ConnectionId;
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::Clock;
use ropewalk_host::experiment::PORT;
use ropewalk_host::netns::Namespace;
use ropewalk_host::network::{Side, server_v4};
use ropewalk_host::world::{App, HostEndpoint, PathLinks};
use ropewalk_link::LinkSpec;
use serde_json::Value;

use crate::harness::lacks;
use crate::need_kernel;
use crate::programs::Running;
use crate::stage::{PATIENCE, Setup, Stage};

const BYTES: u64 = 12 << 20;
/// Where the ordinary iperf3 listens, in a namespace of its own.
const BEHIND: u16 = 5201;
/// How often local sockets are looked at.
const TICK: Span = Span::from_micros(500);

/// What came of a connection.
#[derive(Clone, Debug, Default)]
struct Bridged {
    multipath: bool,
    /// Most subflows at the same time.
    subflows: usize,
    /// Bytes from the kernel's client, and to it.
    from_client: u64,
    to_client: u64,
    closed: bool,
}

/// A connection of the engine's with its local socket.
struct Pair {
    socket: TcpStream,
    number: usize,
    /// Read from one and not yet taken by the other.
    inward: Bytes,
    outward: Bytes,
    client_ended: bool,
    server_ended: bool,
}

/// The program on the engine.
struct Bridge {
    config: Arc<ConnectionConfig>,
    namespace: Arc<Namespace>,
    pairs: BTreeMap<ConnectionId, Pair>,
    all: Arc<Mutex<Vec<Bridged>>>,
    next_look: Time,
}

impl Bridge {
    fn accept(&mut self, id: ConnectionId) {
        let behind = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), BEHIND);
        let socket = self.namespace.run(|| TcpStream::connect(behind)).expect("iperf3 listens");
        socket.set_nonblocking(true).expect("a socket");
        let mut all = self.all.lock().expect("no panic under the lock");
        let pair = Pair {
            socket,
            number: all.len(),
            inward: Bytes::new(),
            outward: Bytes::new(),
            client_ended: false,
            server_ended: false,
        };
        all.push(Bridged::default());
        self.pairs.insert(id, pair);
    }

    fn relay(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId) {
        let Some(pair) = self.pairs.get_mut(&id) else { return };
        let mut all = self.all.lock().expect("no panic under the lock");
        let bridged = &mut all[pair.number];
        if let Some(connection) = endpoint.connection(id) {
            bridged.multipath = connection.is_multipath();
            let usable = connection.subflow_metrics().iter().filter(|flow| flow.usable()).count();
            bridged.subflows = bridged.subflows.max(usable);
        }
        // What the client says goes to the server behind.
        while !pair.client_ended {
            if pair.inward.is_empty() {
                match endpoint.read_piece(now, id, 1 << 20) {
                    Ok(Some(data)) if data.is_empty() => {
                        pair.client_ended = true;
                        // It may be gone already.
                        let _ = pair.socket.shutdown(Shutdown::Write);
                        break;
                    }
                    Ok(Some(data)) => {
                        bridged.from_client += data.len() as u64;
                        pair.inward = data;
                    }
                    Ok(None) | Err(_) => break,
                }
            }
            match pair.socket.write(&pair.inward) {
                Ok(taken) => drop(pair.inward.split_to(taken)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => pair.inward.clear(),
            }
        }
        // What it answers goes back.
        let mut buffer = vec![0; 1 << 16];
        while !pair.server_ended || !pair.outward.is_empty() {
            if pair.outward.is_empty() {
                match pair.socket.read(&mut buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // It may end while there is more for it: what still comes is taken, and counted.
                    Ok(0) | Err(_) => {
                        pair.server_ended = true;
                        endpoint.shutdown(now, id);
                        break;
                    }
                    Ok(len) => pair.outward = Bytes::copy_from_slice(&buffer[..len]),
                }
            }
            match endpoint.write(now, id, pair.outward.clone()) {
                Ok(0) => break,
                Ok(taken) => {
                    bridged.to_client += taken as u64;
                    drop(pair.outward.split_to(taken));
                }
                Err(_) => pair.outward.clear(),
            }
        }
    }
}

impl App for Bridge {
    fn start(&mut self, _: Time, endpoint: &mut HostEndpoint) {
        endpoint.listen(SocketAddr::new(server_v4().into(), PORT), Arc::clone(&self.config));
    }

    fn on_event(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId, event: Event) {
        if matches!(event, Event::Accepted { .. }) {
            self.accept(id);
        }
        self.relay(now, endpoint, id);
        if event == Event::Closed
            && let Some(pair) = self.pairs.remove(&id)
        {
            self.all.lock().expect("no panic under the lock")[pair.number].closed = true;
        }
    }

    fn wake(&self) -> Option<Time> {
        Some(self.next_look)
    }

    fn on_wake(&mut self, now: Time, endpoint: &mut HostEndpoint) {
        self.next_look = now + TICK;
        let ids: Vec<_> = self.pairs.keys().copied().collect();
        for id in ids {
            self.relay(now, endpoint, id);
        }
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// An ordinary iperf3 server for one measurement, listening.
fn serve(namespace: &Namespace) -> Running {
    namespace.check("ip", &["link", "set", "lo", "up"]).unwrap();
    let mut command = namespace.command("iperf3");
    command.args(["-s", "-1", "-p", &BEHIND.to_string()]).stdout(Stdio::null());
    let running = Running(command.spawn().unwrap());
    let begin = Clock::start();
    while !namespace.check("ss", &["-Htln"]).unwrap().contains(&format!(":{BEHIND}")) {
        assert!(Duration::from(begin.now().since_origin()) < PATIENCE, "iperf3 doesn't listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    running
}

fn client(stage: &Stage, arguments: &[&str]) -> Child {
    let mut command = stage.kernel.command("timeout");
    command.args(["40", "mptcpize", "run", "iperf3", "-J", "-c", &server_v4().to_string()]);
    command.args(["-p", &PORT.to_string()]).args(arguments);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn measure(name: &str, arguments: &[&str]) {
    let behind = Arc::new(Namespace::new("behind").unwrap());
    let _server = serve(&behind);
    let all: Arc<Mutex<Vec<Bridged>>> = Arc::default();
    let bridge = Bridge {
        config: Arc::new(crate::harness::config()),
        namespace: Arc::clone(&behind),
        pairs: BTreeMap::new(),
        all: Arc::clone(&all),
        next_look: Time::ZERO,
    };
    // Slow enough for either path to be of use.
    let link = LinkSpec::plain(60_000_000, Span::from_millis(5), 200);
    let links = vec![PathLinks { up: link.clone(), down: link, bottleneck: None }; 2];
    let setup = Setup { app: Some(Box::new(bridge)), links: Some(links), ..Setup::new(Side::Server, 2) };
    let (stage, ()) = Stage::new(setup, |_| ());
    let output = client(&stage, arguments).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name}: {text}");
    let result: Value = serde_json::from_str(&text).unwrap();
    let bytes = |sum: &str| result["end"][sum]["bytes"].as_u64().unwrap();
    println!("{name}: {} sent, {} received", bytes("sum_sent"), bytes("sum_received"));
    // The word that it is over may overtake what is still in buffers.
    assert!(bytes("sum_sent") >= BYTES && bytes("sum_received") > 0, "{name}: {text}");
    stage.wait_kernel("the connections' end", |_| {
        let all = all.lock().expect("no panic under the lock");
        all.len() == 2 && all.iter().all(|bridged| bridged.closed)
    });
    // Its control connection and the stream, each with two subflows.
    let all = all.lock().expect("no panic under the lock").clone();
    for bridged in &all {
        assert!(bridged.multipath && bridged.subflows == 2, "{name}: {all:?} {:?}", stage.counters());
    }
    let down = arguments.contains(&"-R");
    let relayed: u64 =
        all.iter().map(|bridged| if down { bridged.to_client } else { bridged.from_client }).sum();
    assert!(relayed >= BYTES, "{name}: {all:?}");
    let connections = all.len() as u64;
    assert_eq!(
        (stage.counter("MPCapableSYNTX"), stage.counter("MPJoinSynAckRx")),
        (connections, connections)
    );
    let carried = if down { &stage.carried.engine } else { &stage.carried.kernel };
    let shares: Vec<u64> =
        carried[..2].iter().map(|bytes| bytes.load(std::sync::atomic::Ordering::Relaxed)).collect();
    assert!(shares.iter().all(|bytes| *bytes > BYTES / 10), "{name}: {shares:?} bytes over the paths");
    stage.end(name);
}

#[test]
fn iperf3_sends_through_the_engine() {
    need_kernel!();
    if !lacks(&["iperf3", "mptcpize"]) {
        measure("iperf3", &["-n", &BYTES.to_string()]);
    }
}

#[test]
fn iperf3_receives_through_the_engine() {
    need_kernel!();
    if !lacks(&["iperf3", "mptcpize"]) {
        measure("iperf3 -R", &["-R", "-n", &BYTES.to_string()]);
    }
}
