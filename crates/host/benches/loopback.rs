//! `cargo bench -p ropewalk-host --bench loopback`: both ends in one process and no kernel, the engine beside smoltcp over
//! its loopback device. Every packet is made in full, with its checksums, and read again with its checksums verified;
//! the MTU is the same. Neither program looks at the bytes.
//!
//! Rounds are interleaved. Printed: the median with the range, and the share of smoltcp's.
//! Arguments: `--rounds N` (default 5), `--megabytes N` (default 1000), `--mtu N` (default 1500, 9000, 65535).

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ropewalk_engine::PathId;
use ropewalk_engine::config::{BufferConfig, ConnectionConfig, EndpointConfig, PathManagerConfig, TcpConfig};
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{congestion, scheduler};
use ropewalk_host::clock::Clock;
use ropewalk_host::entropy::OsEntropy;
use ropewalk_host::world::HostEndpoint;
use ropewalk_wire::{ChecksumMode, ParseMode, encode_into, gso, parse};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Loopback, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

/// Of either's buffers: what smoltcp is fastest with.
const BUFFER: usize = 256 << 10;
const PORT: u16 = 5000;
/// Packets share buffers of so many bytes.
const CHUNK: usize = 256 << 10;
/// Packets that one end sends before the other has its turn.
const BURST: usize = 64;

/// smoltcp's loopback device, with checksums, and another MTU than its 65,535 bytes.
struct Narrow(Loopback, usize);

impl Device for Narrow {
    type RxToken<'a> = <Loopback as Device>::RxToken<'a>;
    type TxToken<'a> = <Loopback as Device>::TxToken<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = self.0.capabilities();
        capabilities.max_transmission_unit = self.1;
        // Its loopback leaves checksums out; a network doesn't.
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }

    fn receive(&mut self, now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        self.0.receive(now)
    }

    fn transmit(&mut self, now: Instant) -> Option<Self::TxToken<'_>> {
        self.0.transmit(now)
    }
}

/// Gbit/s of smoltcp.
fn smoltcp(mtu: usize, bytes: u64) -> f64 {
    let clock = Clock::start();
    let now = || Instant::from_micros((clock.now() / 1000) as i64);
    let mut device = Narrow(Loopback::new(Medium::Ip), mtu);
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
    let (mut sent, mut received) = (0, 0);
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
    received as f64 * 8.0 / clock.now() as f64
}

fn config(multipath: bool) -> ConnectionConfig {
    ConnectionConfig {
        tcp: TcpConfig { time_wait: 0, ..TcpConfig::default() },
        multipath,
        checksum: false,
        send_buffer: BufferConfig::fixed(BUFFER as u64),
        receive_buffer: BufferConfig::fixed(BUFFER as u64),
        scheduler: scheduler::builtin().parse("minrtt").expect("registered"),
        congestion: congestion::builtin().parse("cubic").expect("registered"),
        path_manager: PathManagerConfig::default(),
        trace_decisions: false,
    }
}

/// What `from` has to say, as packets, for `to`. Whether there was anything.
fn carry(
    now: u64,
    from: &mut HostEndpoint,
    to: &mut HostEndpoint,
    buffer: &mut BytesMut,
    burst: &mut Vec<Bytes>,
) -> bool {
    while burst.len() < BURST
        && let Some((_, segment)) = from.poll_transmit(now, BURST as u32)
    {
        for packet in gso::split(segment) {
            if buffer.capacity() < 1 << 16 {
                *buffer = BytesMut::with_capacity(CHUNK);
            }
            encode_into(&packet, ChecksumMode::Full, buffer).expect("the engine's segments can be encoded");
            burst.push(buffer.split().freeze());
        }
    }
    let any = !burst.is_empty();
    for packet in burst.drain(..) {
        let segment = parse(packet, ParseMode::Verify).expect("a packet of ours");
        to.on_segment(now, PathId(0), segment);
    }
    any
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
    let data = Bytes::from(vec![0; 1 << 16]);
    let mut accepted: Option<ConnectionId> = None;
    let (mut sent, mut received) = (0, 0);
    let mut buffer = BytesMut::new();
    let mut burst = Vec::new();
    while received < bytes {
        let now = clock.now();
        let mut busy = carry(now, &mut client, &mut server, &mut buffer, &mut burst);
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
            while let Ok(Some(data)) = server.read(now, id, 1 << 20)
                && !data.is_empty()
            {
                received += data.len() as u64;
            }
        }
        busy |= carry(now, &mut server, &mut client, &mut buffer, &mut burst);
        if !busy {
            client.on_timeout(now);
            server.on_timeout(now);
        }
    }
    received as f64 * 8.0 / clock.now() as f64
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut rounds, mut megabytes) = (5, 1000);
    let mut only = None;
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number follows");
        match argument.as_str() {
            "--rounds" => rounds = number(),
            "--megabytes" => megabytes = number(),
            "--mtu" => only = Some(number()),
            _ => {}
        }
    }
    let bytes = megabytes as u64 * 1_000_000;
    println!("{megabytes} MB, {rounds} interleaved rounds; Gbit/s of payload, median (range)\n");
    println!("{:<8}{:<32} {:>24} {:>12}", "MTU", "", "Gbit/s", "of smoltcp");
    let all = [1500, 9000, 65_535];
    for mtu in only.map_or(all.to_vec(), |mtu| vec![mtu]) {
        type Way = fn(usize, u64) -> f64;
        let ways: [(&str, Way); 3] = [
            ("smoltcp", smoltcp),
            ("engine, plain TCP", |mtu, bytes| engine(false, mtu, bytes)),
            ("engine, Multipath TCP", |mtu, bytes| engine(true, mtu, bytes)),
        ];
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
