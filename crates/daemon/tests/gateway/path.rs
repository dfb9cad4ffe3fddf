//! A client of the kernel's and the gateway's host, and a middlebox between them that a test programs: IPv4
//! and IPv6.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ropewalk_engine::Time;
use ropewalk_host::clock::Clock;
use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::netns::Namespace;
use ropewalk_host::skip::skipped;
use ropewalk_host::tun::{Offload, Tun};
use ropewalk_wire::{ChecksumMode, ParseMode, Segment, encode_into, parse};
use socket2::Socket;

use super::stage::*;

/// Which way a segment goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To the gateway.
    Up,
    /// To the client.
    Down,
}

/// How long a client waits where all bytes have to come, and where it may be in vain.
pub const LONG: Duration = Duration::from_secs(10);
pub const SHORT: Duration = Duration::from_millis(500);

pub const WAYS: [Way; 2] = [Way::Up, Way::Down];

/// What is done with the segments of a way: the segment's number on it, and what goes on instead.
pub type Work = Box<dyn FnMut(Way, usize, Segment<Bytes>) -> Vec<Segment<Bytes>> + Send>;

/// A client and a gateway's host, each with a TUN device, and a thread that carries packets between the two.
pub struct Path {
    pub server: Namespace,
    pub client: Namespace,
    work: Arc<Mutex<(Work, [usize; 2])>>,
    stop: Arc<AtomicBool>,
    carrier: Option<JoinHandle<()>>,
    folder: tempfile::TempDir,
}

impl Drop for Path {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.carrier.take().map(JoinHandle::join);
    }
}

fn forward(tun: &Tun, segment: &Segment<Bytes>) {
    let mut packet = BytesMut::new();
    if encode_into(segment, ChecksumMode::Full, &mut packet).is_ok() {
        // A full queue loses it, as a router's would.
        let _ = tun.send(&[IoSlice::new(&packet)]);
    }
}

/// Carries packets until it is told to stop.
fn carry(tuns: [Tun; 2], work: &Mutex<(Work, [usize; 2])>, stop: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        let mut is_idle = true;
        for (at, way) in WAYS.into_iter().enumerate() {
            while let Ok(len) = tuns[at].receive(&mut buffer) {
                is_idle = false;
                let packet = Bytes::copy_from_slice(&buffer[..len]);
                let Ok(segment) = parse(packet, ParseMode::Verify) else { continue };
                let mut guard = work.lock().unwrap();
                let (work, numbers) = &mut *guard;
                let number = numbers[at];
                numbers[at] += 1;
                work(way, number, segment).iter().for_each(|segment| forward(&tuns[1 - at], segment));
            }
        }
        if is_idle {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

pub fn pass() -> Work {
    Box::new(|_, _, segment| vec![segment])
}

impl Path {
    pub fn new() -> Option<Path> {
        let made = || -> io::Result<Path> {
            let (server, client) = (Namespace::new("server")?, Namespace::new("client")?);
            let mut tuns = Vec::new();
            for (namespace, host) in [(&client, 2), (&server, 1)] {
                tuns.push(namespace.run(|| Tun::create("path", Offload::None))?);
                for line in [
                    "link set lo up".into(),
                    "link set path up".into(),
                    format!("address add 10.98.0.{host}/24 dev path"),
                    format!("address add fd98::{host}/64 dev path nodad"),
                ] {
                    namespace.check("ip", &line.split(' ').collect::<Vec<_>>())?;
                }
            }
            server.sysctl("net.ipv6.conf.all.forwarding", "1")?;
            // A client whose only subflow was reset waits for another, a minute if nothing is said.
            client.sysctl("net.mptcp.close_timeout", "1")?;
            client.check("ip", &["mptcp", "limits", "set", "subflows", "4", "add_addr_accepted", "4"])?;
            let Ok(tuns) = <[Tun; 2]>::try_from(tuns) else { unreachable!("two were made") };
            let work = Arc::new(Mutex::new((pass(), [0; 2])));
            let stop = Arc::new(AtomicBool::new(false));
            let (shared, stopped) = (Arc::clone(&work), Arc::clone(&stop));
            let carrier = Some(std::thread::spawn(move || carry(tuns, &shared, &stopped)));
            Ok(Path { server, client, work, stop, carrier, folder: tempfile::tempdir()? })
        };
        made().map_err(skipped).ok()
    }

    /// From now on the middlebox does this.
    pub fn set(&self, work: Work) {
        *self.work.lock().unwrap() = (work, [0; 2]);
    }

    /// A gateway at both addresses, with more said of its listeners.
    pub fn gateway(&self, more: &str) -> Gateway {
        let listener =
            |listen: &str| format!("[[listener]]\nlisten = '{listen}'\nto = '127.0.0.1:{BACKEND}'\n{more}\n");
        let text = format!(
            "[gateway]\nstatus = 'status'\ndrain = '0.2 s'\n{}{}",
            listener("10.98.0.1:80"),
            listener("[fd98::1]:80")
        );
        let path = self.folder.path().join("gateway.toml");
        std::fs::write(&path, text).unwrap();
        start(&self.server, &self.folder, &["gateway", "--config", path.to_str().unwrap(), "--log", "debug"])
    }

    /// What the gateway tells of itself.
    fn status(&self) -> serde_json::Value {
        let socket = self.folder.path().join("status");
        let told = ropewalk(&["status", "--socket", socket.to_str().unwrap(), "--json"]);
        serde_json::from_slice(&told.stdout).unwrap()
    }

    /// A counter of the gateway's.
    pub fn mib(&self, name: &str) -> u64 {
        self.status()["mib"][name].as_u64().unwrap_or(0)
    }

    /// One of the counts in the gateway's status.
    pub fn count(&self, name: &str) -> u64 {
        self.status()[name].as_u64().unwrap_or_else(|| panic!("no count {name}"))
    }

    /// How many connections the gateway has.
    pub fn connections(&self) -> usize {
        self.status()["connections"].as_array().map_or(0, Vec::len)
    }

    pub fn backend(&self) -> TcpListener {
        self.server.run(|| TcpListener::bind(("127.0.0.1", BACKEND))).unwrap()
    }

    pub fn connect(&self, gateway: SocketAddr, patience: Duration) -> io::Result<Socket> {
        let connect_timeout = Some(Duration::from_secs(10));
        let config = SocketConfig { connect_timeout, ..SocketConfig::default() };
        let socket = kernel::connect(&self.client, None, gateway, &config)?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        Ok(socket)
    }

    /// Sends `data` to a server that sends it back. What came back, or why it didn't; a stall is
    /// `WouldBlock`, bytes that weren't sent `InvalidData`, whatever becomes of the connection.
    pub fn echo(
        &self,
        backend: &TcpListener,
        gateway: SocketAddr,
        data: &[u8],
        patience: Duration,
    ) -> io::Result<Vec<u8>> {
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let client = self.connect(gateway, patience)?;
            let failed = &failed;
            let serving = scope.spawn(|| -> io::Result<()> {
                // A connection that was reset in its handshake may never get here.
                backend.set_nonblocking(true)?;
                let mut tries = 0..1000;
                let (mut socket, _) = loop {
                    match backend.accept() {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries.next().is_some() => {
                            std::thread::sleep(Duration::from_millis(2));
                        }
                        accepted => break accepted?,
                    }
                };
                socket.set_nonblocking(false)?;
                socket.set_read_timeout(Some(Duration::from_millis(100)))?;
                socket.set_write_timeout(Some(patience))?;
                let (mut received, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
                loop {
                    match socket.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(len) => {
                            received.extend_from_slice(&buffer[..len]);
                            // Linux repeats data whose DATA_ACKs were stripped; after the fallback that is
                            // new data: docs/threats.md.
                            if !data.starts_with(&received) {
                                let differs = received.iter().zip(data).position(|(got, sent)| got != sent);
                                let told = format!("others than were sent, from {differs:?} on");
                                return Err(io::Error::new(io::ErrorKind::InvalidData, told));
                            }
                        }
                        // The gateway keeps a connection without a subflow for a while: the client may join
                        // again.
                        Err(error)
                            if error.kind() == io::ErrorKind::WouldBlock
                                && !failed.load(Ordering::Relaxed) => {}
                        Err(error) => return Err(error),
                    }
                }
                assert!(received == data, "it ended after {} bytes", received.len());
                socket.write_all(&received)
            });
            let exchange = || -> io::Result<Vec<u8>> {
                (&client).write_all(data)?;
                client.shutdown(Shutdown::Write)?;
                let mut received = Vec::new();
                (&client).read_to_end(&mut received)?;
                // The kernel ends a connection that has lost its last subflow without an error.
                if received.len() < data.len() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(received)
            };
            let exchanged = exchange();
            failed.store(exchanged.is_err(), Ordering::Relaxed);
            drop(client);
            let served = serving.join().unwrap();
            match (exchanged, served) {
                // The client may not have noticed.
                (_, Err(error)) if error.kind() == io::ErrorKind::InvalidData => Err(error),
                (exchanged, served) => exchanged.and_then(|received| served.map(|()| received)),
            }
        })
    }
}

pub fn gateways() -> [SocketAddr; 2] {
    ["10.98.0.1:80", "[fd98::1]:80"].map(|address| address.parse().unwrap())
}

/// The client's further address of each family.
pub const FURTHER: [&str; 2] = ["10.98.0.3", "fd98::3"];

/// Waits for something.
pub fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !done() {
        assert!(clock.now() < Time::ZERO + 20 * SECOND, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Gives the client its further addresses. No connection begins at them: IPv6 takes none that is deprecated.
pub fn add_addresses(path: &Path) {
    path.client.check("ip", &["address", "add", "10.98.0.3/24", "dev", "path"]).unwrap();
    path.client
        .check("ip", &["address", "add", "fd98::3/64", "dev", "path", "nodad", "preferred_lft", "0"])
        .unwrap();
}

/// Makes a further address an endpoint of the client's path manager, and returns its number.
pub fn endpoint(path: &Path, address: &str, kind: &str) -> String {
    path.client.check("ip", &["mptcp", "endpoint", "add", address, "dev", "path", kind]).unwrap();
    let endpoints = path.client.check("ip", &["mptcp", "endpoint"]).unwrap();
    let line = endpoints.lines().find(|line| line.starts_with(address)).expect("the endpoint");
    line.split_whitespace().nth(2).expect("its number").to_string()
}

pub fn delete_endpoint(path: &Path, id: &str) {
    path.client.check("ip", &["mptcp", "endpoint", "delete", "id", id]).unwrap();
}

/// A client's connection through the gateway, and its end at the server.
pub fn open(path: &Path, backend: &TcpListener, gateway: SocketAddr) -> (Socket, TcpStream) {
    let client = path.connect(gateway, LONG).unwrap();
    let (server, _) = backend.accept().unwrap();
    server.set_read_timeout(Some(LONG)).unwrap();
    exchange(&client, &server);
    (client, server)
}

/// Data to the server and back.
pub fn exchange(mut client: &Socket, mut server: &TcpStream) {
    let data = pattern(30_000);
    let mut received = vec![0; data.len()];
    client.write_all(&data).unwrap();
    server.read_exact(&mut received).unwrap();
    assert!(received == data, "wrong bytes at the server");
    server.write_all(&data).unwrap();
    client.read_exact(&mut received).unwrap();
    assert!(received == data, "wrong bytes at the client");
}

pub fn further_subflows(client: &Socket) -> u8 {
    kernel::info(client).unwrap().map_or(0, |info| info.extra_subflows)
}
