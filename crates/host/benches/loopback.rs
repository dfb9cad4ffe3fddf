//! `cargo bench -p ropewalk-host --bench loopback`: both ends in one process and no kernel, the engine beside
//! smoltcp over its loopback device. Every packet is made in full, with its checksums, and read again with
//! its checksums verified; the MTU, the buffers and the bytes are the same. Neither program looks at them.
//! The engine's super-segments are cut into packets, and small packets coalesced into super-segments, in
//! software, as for a device without offload.
//!
//! Rounds are interleaved; the time is the thread's on the processor. Printed: the median with the range, and
//! the share of smoltcp's. Arguments: `--rounds N` (default 15), `--megabytes N` (default 200), `--mtu N`
//! (default 1500, 9000, 65535), `--only TEXT` (just the ways with this in their names).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nix::time::{ClockId, clock_gettime};
use ropewalk_engine::PathId;
use ropewalk_engine::config::{BufferConfig, ConnectionConfig, EndpointConfig, PathManagerConfig, TcpConfig};
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{Span, Time, congestion, scheduler};
use ropewalk_host::clock::Clock;
use ropewalk_host::entropy::OsEntropy;
use ropewalk_host::world::HostEndpoint;
use ropewalk_wire::pool::Pool;
use ropewalk_wire::{Coalescer, encode_packets};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

/// Of either's buffers, for sending and for receiving: what smoltcp is fastest with. What the engine is given
/// to send is as much, and lies still, as its ring does with smoltcp.
const BUFFER: usize = 256 << 10;
const PORT: u16 = 5000;
/// Packets share buffers of so many bytes.
const CHUNK: usize = 256 << 10;
/// Most segments in a super-segment.
const SUPER: u32 = 44;
/// Segments or super-segments that one end sends before the other has its turn.
const TURN: usize = 3;

/// A loopback device for smoltcp. Its own leaves checksums out, has an MTU of 65,535 bytes, and takes fresh
/// memory for each packet; here packets' memory is used again, as the engine's is.
struct Loopback {
    mtu: usize,
    queue: VecDeque<Vec<u8>>,
    free: RefCell<Vec<Vec<u8>>>,
}

struct Received<'a>(Vec<u8>, &'a RefCell<Vec<Vec<u8>>>);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        let result = read(&self.0);
        self.1.borrow_mut().push(self.0);
        result
    }
}

struct Room<'a>(&'a mut VecDeque<Vec<u8>>, &'a RefCell<Vec<Vec<u8>>>);

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = self.1.borrow_mut().pop().unwrap_or_default();
        packet.resize(len, 0);
        let result = write(&mut packet);
        self.0.push_back(packet);
        result
    }
}

impl Device for Loopback {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Room<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = self.mtu;
        capabilities.medium = Medium::Ip;
        capabilities
    }

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Room<'_>)> {
        let packet = self.queue.pop_front()?;
        Some((Received(packet, &self.free), Room(&mut self.queue, &self.free)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_>> {
        Some(Room(&mut self.queue, &self.free))
    }
}

/// Nanoseconds that this thread has computed, so that other programs on the machine count for less.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has the clock");
    Duration::from(time).as_nanos() as f64
}

/// Gbit/s of smoltcp.
fn smoltcp(mtu: usize, bytes: u64) -> f64 {
    let clock = Clock::start();
    let now = || Instant::from_micros(clock.now().since_origin().as_micros() as i64);
    let mut device = Loopback { mtu, queue: VecDeque::new(), free: RefCell::default() };
    let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut device, now());
    let address = IpAddress::v4(127, 0, 0, 1);
    interface.update_ip_addrs(|addresses| {
        addresses.push(IpCidr::new(address, 8)).expect("room for one");
    });
    let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
    let mut sockets = SocketSet::new(Vec::new());
    let server = sockets.add(tcp::Socket::new(buffer(), buffer()));
    let client = sockets.add(tcp::Socket::new(buffer(), buffer()));
    sockets.get_mut::<tcp::Socket<'_>>(server).listen(PORT).expect("a port");
    let socket = sockets.get_mut::<tcp::Socket<'_>>(client);
    socket.set_nagle_enabled(false);
    socket.connect(interface.context(), (address, PORT), 50_000).expect("a socket that is closed");
    let (mut sent, mut received, begun) = (0, 0, cpu());
    while received < bytes {
        interface.poll(now(), &mut device, &mut sockets);
        let socket = sockets.get_mut::<tcp::Socket<'_>>(client);
        if socket.can_send() && sent < bytes {
            let take = |room: &mut [u8]| room.len().min((bytes - sent) as usize);
            sent += socket.send(|room| (take(room), take(room))).expect("it can send") as u64;
        }
        let socket = sockets.get_mut::<tcp::Socket<'_>>(server);
        if socket.can_recv() {
            received += socket.recv(|data| (data.len(), data.len())).expect("it can receive") as u64;
        }
    }
    received as f64 * 8.0 / (cpu() - begun)
}

fn config(multipath: bool) -> ConnectionConfig {
    ConnectionConfig {
        tcp: TcpConfig { time_wait: Span::ZERO, ..TcpConfig::default() },
        multipath,
        checksum: false,
        send_buffer: BufferConfig::fixed(BUFFER as u64),
        receive_buffer: BufferConfig::fixed(BUFFER as u64),
        scheduler: scheduler::builtin().parse("minrtt").expect("registered"),
        congestion: congestion::builtin().parse("cubic").expect("registered"),
        path_manager: PathManagerConfig::default(),
        trace_decisions: false,
        ..ConnectionConfig::default()
    }
}

/// The way from one end to the other.
struct Way {
    pool: Pool,
    ends: Vec<usize>,
    coalescer: Coalescer,
}

impl Way {
    fn new() -> Way {
        Way { pool: Pool::new(CHUNK), ends: Vec::new(), coalescer: Coalescer::new() }
    }

    /// What `from` has to say, as packets, for `to`. Whether there was anything.
    fn carry(&mut self, now: Time, from: &mut HostEndpoint, to: &mut HostEndpoint) -> bool {
        let mut any = false;
        for _ in 0..TURN {
            let Some((path, segment)) = from.poll_transmit(now, SUPER) else { break };
            any = true;
            let buffer = self.pool.room(CHUNK / 2);
            encode_packets(&segment, buffer, &mut self.ends).expect("the engine's segments can be encoded");
            let bytes = buffer.split().freeze();
            let mut start = 0;
            for end in self.ends.drain(..) {
                let deliver = |segment| to.on_segment(now, path, segment);
                self.coalescer.push(&bytes, start..end, deliver).expect("a packet of ours");
                start = end;
            }
        }
        self.coalescer.finish(|segment| to.on_segment(now, PathId(0), segment));
        any
    }
}

/// Gbit/s of the engine.
fn engine(multipath: bool, mtu: usize, bytes: u64) -> f64 {
    let settings = EndpointConfig { default_mtu: mtu as u32, ..EndpointConfig::default() };
    let mut client: HostEndpoint = Endpoint::new(settings.clone(), OsEntropy::new());
    let mut server: HostEndpoint = Endpoint::new(settings, OsEntropy::new());
    let config = Arc::new(config(multipath));
    let remote = SocketAddr::from(([10, 0, 0, 1], PORT));
    let clock = Clock::start();
    server.listen(remote, Arc::clone(&config));
    let local = SocketAddr::from(([10, 0, 0, 2], 0));
    let id = client.connect(clock.now(), PathId(0), local, remote, config).expect("an address is free");
    let data = Bytes::from(vec![0; BUFFER]);
    let mut accepted: Option<ConnectionId> = None;
    let (mut sent, mut received, begun) = (0, 0, cpu());
    let (mut there, mut back) = (Way::new(), Way::new());
    while received < bytes {
        let now = clock.now();
        let mut busy = there.carry(now, &mut client, &mut server);
        let mut writable = false;
        while let Some((_, event)) = client.poll_event() {
            writable |= matches!(event, Event::Connected { .. } | Event::Writable);
        }
        while writable && sent < bytes {
            let len = data.len().min((bytes - sent) as usize);
            let taken = client.write(now, id, data.slice(..len)).expect("the connection is open");
            sent += taken as u64;
            writable = taken == len;
        }
        while let Some((id, event)) = server.poll_event() {
            if matches!(event, Event::Accepted { .. }) {
                accepted = Some(id);
            }
        }
        if let Some(id) = accepted {
            while let Ok(Some(data)) = server.read_piece(now, id, usize::MAX)
                && !data.is_empty()
            {
                received += data.len() as u64;
            }
        }
        busy |= back.carry(now, &mut server, &mut client);
        if !busy {
            client.on_timeout(now);
            server.on_timeout(now);
        }
    }
    received as f64 * 8.0 / (cpu() - begun)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut rounds, mut megabytes) = (15, 200);
    let (mut only, mut named) = (None, String::new());
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number follows");
        match argument.as_str() {
            "--only" => named = arguments.next().expect("a part of a name follows"),
            "--rounds" => rounds = number(),
            "--megabytes" => megabytes = number(),
            "--mtu" => only = Some(number()),
            _ => {}
        }
    }
    let bytes = megabytes as u64 * 1_000_000;
    println!(
        "{megabytes} MB, {rounds} interleaved rounds; Gbit/s of payload and processor time, median (range)\n"
    );
    println!("{:<8}{:<32} {:>24} {:>12}", "MTU", "", "Gbit/s", "of smoltcp");
    let all = [1500, 9000, 65_535];
    for mtu in only.map_or(all.to_vec(), |mtu| vec![mtu]) {
        type Run = fn(usize, u64) -> f64;
        let mut ways: Vec<(&str, Run)> = vec![
            ("smoltcp", smoltcp),
            ("engine, plain TCP", |mtu, bytes| engine(false, mtu, bytes)),
            ("engine, Multipath TCP", |mtu, bytes| engine(true, mtu, bytes)),
        ];
        ways.retain(|(name, _)| name.contains(&named));
        let mut rates = vec![Vec::new(); ways.len()];
        for _ in 0..rounds {
            for (rates, (_, way)) in rates.iter_mut().zip(&ways) {
                rates.push(way(mtu, bytes));
            }
        }
        let mut yardstick = 0.0;
        for (rates, (name, _)) in rates.iter_mut().zip(&ways) {
            rates.sort_by(f64::total_cmp);
            let median = rates[rates.len() / 2];
            if yardstick == 0.0 {
                yardstick = median;
            }
            let range = format!("{median:.2} ({:.2} .. {:.2})", rates[0], rates[rates.len() - 1]);
            println!("{mtu:<8}{name:<32} {range:>24} {:>12.2}", median / yardstick);
        }
    }
}
