//! A middlebox between a client of the kernel's and the gateway, which alters, strips, splits, repeats or loses segments: IPv4 and IPv6.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::netns::Namespace;
use ropewalk_host::skip::skipped;
use ropewalk_host::tun::{Offload, Tun};
use ropewalk_wire::{ChecksumMode, ParseMode, Segment, encode_into, parse};

use super::stage::*;

/// Which way a segment goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// To the gateway.
    Up,
    /// To the client.
    Down,
}

/// How long a client waits where all bytes have to come, and where it may be in vain.
const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(500);

const WAYS: [Way; 2] = [Way::Up, Way::Down];

/// What is done with the segments of a way: the segment's number on it, and what goes on instead.
type Work = Box<dyn FnMut(Way, usize, Segment<Bytes>) -> Vec<Segment<Bytes>> + Send>;

/// A client and a gateway's host, each with a TUN device, and a thread that carries packets between the two.
struct Path {
    server: Namespace,
    client: Namespace,
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

fn pass() -> Work {
    Box::new(|_, _, segment| vec![segment])
}

impl Path {
    fn new() -> Option<Path> {
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
    fn set(&self, work: Work) {
        *self.work.lock().unwrap() = (work, [0; 2]);
    }

    /// A gateway at both addresses, with more said of its listeners.
    fn gateway(&self, more: &str) -> Gateway {
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

    fn mib(&self, name: &str) -> u64 {
        let socket = self.folder.path().join("status");
        let told = ropewalk(&["status", "--socket", socket.to_str().unwrap(), "--json"]);
        let state: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        state["mib"][name].as_u64().unwrap_or(0)
    }

    fn backend(&self) -> TcpListener {
        self.server.run(|| TcpListener::bind(("127.0.0.1", BACKEND))).unwrap()
    }

    fn connect(&self, gateway: SocketAddr, patience: Duration) -> io::Result<socket2::Socket> {
        let connect_timeout = Some(Duration::from_secs(10));
        let config = SocketConfig { connect_timeout, ..SocketConfig::default() };
        let socket = kernel::connect(&self.client, None, gateway, &config)?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        Ok(socket)
    }

    /// Sends `data` to a server that sends it back. What came back, or why it didn't; a stall is `WouldBlock`, bytes that weren't sent
    /// `InvalidData`, whatever becomes of the connection.
    fn echo(
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
                            // Linux repeats data whose DATA_ACKs were stripped; after the fallback that is new data: docs/threats.md.
                            if !data.starts_with(&received) {
                                let differs = received.iter().zip(data).position(|(got, sent)| got != sent);
                                let told = format!("others than were sent, from {differs:?} on");
                                return Err(io::Error::new(io::ErrorKind::InvalidData, told));
                            }
                        }
                        // The gateway keeps a connection without a subflow for a while: the client may join again.
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

fn gateways() -> [SocketAddr; 2] {
    ["10.98.0.1:80", "[fd98::1]:80"].map(|address| address.parse().unwrap())
}

/// Takes every Multipath TCP option away.
fn strip(segment: &mut Segment<Bytes>) {
    segment.dss = None;
    if let Some(rare) = &mut segment.rare {
        rare.mp_capable = None;
        rare.mp_join = None;
        rare.add_addr = None;
        rare.remove_addr = None;
        rare.mp_prio = None;
        rare.mp_fail = None;
        rare.fastclose = None;
        rare.mp_tcprst = None;
    }
}

#[test]
fn options_stripped_from_any_packet_on_bring_the_client_no_wrong_byte() {
    let Some(path) = Path::new() else { return };
    let (gateway, backend, data) = (path.gateway(""), path.backend(), pattern(60_000));
    let mut whole = 0;
    for address in gateways() {
        for from in [0, 1, 2, 4] {
            for (up, down) in [(true, false), (false, true), (true, true)] {
                if address.is_ipv6() && up != down {
                    continue;
                }
                path.set(Box::new(move |way, number, mut segment| {
                    if number >= from && (way == Way::Up && up || way == Way::Down && down) {
                        strip(&mut segment);
                    }
                    vec![segment]
                }));
                if let Ok(received) = path.echo(&backend, address, &data, SHORT) {
                    assert!(received == data, "{address}, from {from}, {up}, {down}: wrong bytes");
                    whole += 1;
                } else {
                    // The gateway's first DSS answers the first data: without it either end falls back.
                    let is_early = from == 0 || from <= 2 && up;
                    assert!(!is_early, "{address}, from {from}, {up}, {down}: it is TCP: {}", gateway.log());
                }
            }
        }
        path.set(pass());
        assert!(path.echo(&backend, address, &data, LONG).unwrap() == data, "{}", gateway.log());
    }
    assert!(whole >= 10, "{whole} of 16 came through: {}", gateway.log());
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn altered_data_is_never_delivered() {
    let Some(path) = Path::new() else { return };
    path.client.sysctl("net.mptcp.checksum_enabled", "1").unwrap();
    let (gateway, backend, data) = (path.gateway("checksum = true"), path.backend(), pattern(200_000));
    for address in gateways() {
        for altered in WAYS {
            let done = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&done);
            let mut first = None;
            path.set(Box::new(move |way, number, mut segment| {
                let mapping = segment.dss.as_ref().and_then(|dss| dss.mapping).map(|mapping| mapping.dsn);
                if way == altered {
                    first = first.or(mapping);
                }
                // Not of the first mapping: before a valid checksum Linux falls back to TCP, and takes what comes.
                if way == altered
                    && number > 20
                    && mapping.is_some_and(|dsn| Some(dsn) != first)
                    && segment.payload.len() > 100
                    && counted.load(Ordering::Relaxed) == 0
                {
                    let mut payload = segment.payload.to_vec();
                    payload[50] ^= 0x20;
                    segment.payload = payload.into();
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                vec![segment]
            }));
            let errors = path.mib("MPTcpExtDataCsumErr");
            // The client may be reset, or wait in vain: docs/threats.md, "Not held". The server gets an error, or what was sent.
            match path.echo(&backend, address, &data, SHORT) {
                Ok(received) => {
                    assert!(received == data, "{address}, {altered:?}: altered data were delivered")
                }
                Err(error) => {
                    let is_altered = error.kind() == io::ErrorKind::InvalidData;
                    assert!(!is_altered, "{address}, {altered:?}: the server got {error}: {}", gateway.log());
                }
            }
            assert_eq!(done.load(Ordering::Relaxed), 1, "{address}, {altered:?}: nothing was altered");
            if altered == Way::Up {
                assert_eq!(path.mib("MPTcpExtDataCsumErr"), errors + 1, "{address}: {}", gateway.log());
            }
        }
        path.set(pass());
        assert!(path.echo(&backend, address, &data, LONG).unwrap() == data);
    }
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn segments_that_are_split_or_repeated_change_nothing() {
    let Some(path) = Path::new() else { return };
    let (gateway, backend, data) = (path.gateway(""), path.backend(), pattern(200_000));
    for address in gateways() {
        // Each half has the whole's options, and so a mapping that is longer than itself.
        path.set(Box::new(|_, number, mut segment| {
            let len = segment.payload.len();
            if len < 2 || number % 3 == 0 {
                return vec![segment];
            }
            let mut second = segment.clone();
            second.payload = segment.payload.split_off(len / 2);
            second.seq = segment.seq.plus(segment.payload.len() as u32);
            vec![segment, second]
        }));
        assert!(path.echo(&backend, address, &data, LONG).unwrap() == data, "split: {}", gateway.log());
        path.set(Box::new(|_, _, segment| vec![segment.clone(), segment]));
        assert!(path.echo(&backend, address, &data, LONG).unwrap() == data, "repeated: {}", gateway.log());
    }
    assert_eq!(path.mib("MPTcpExtMPFallbackTokenInit"), 0);
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn lost_ends_of_the_streams_are_repeated() {
    let Some(path) = Path::new() else { return };
    let (gateway, backend, data) = (path.gateway(""), path.backend(), pattern(20_000));
    for address in gateways() {
        for lost in WAYS {
            for most in [1, 2, 3] {
                let mut dropped = 0;
                path.set(Box::new(move |way, _, segment| {
                    let is_fin = segment.dss.is_some_and(|dss| dss.data_fin);
                    if way == lost && is_fin && dropped < most {
                        dropped += 1;
                        return vec![];
                    }
                    vec![segment]
                }));
                let received = path.echo(&backend, address, &data, LONG).unwrap();
                assert!(received == data, "{address}, {lost:?}, {most}: {}", gateway.log());
            }
        }
    }
    assert_eq!(gateway.end(), Some(0));
}
