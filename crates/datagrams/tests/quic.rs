//! Downloads by a real implementation of QUIC (`quinn-proto`), over two ends of a tunnel and modelled links.

mod model;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use model::{Happened, MS, Way, Wire};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint, EndpointConfig,
    Event, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
};
use ropewalk_datagrams::SECOND;

/// Of the tunnel.
const MTU: usize = 1380;
const ADDRESSES: [SocketAddrV4; 2] = [
    SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 5000),
    SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 2), 443),
];

/// The port of a call, and its timer.
const VOICE: u8 = 77;
const TALK: usize = 2;

/// A UDP packet from this side, with this ECN field.
fn datagram(side: usize, port: u16, ecn: Option<EcnCodepoint>, data: &[u8]) -> Bytes {
    let (from, to) = (ADDRESSES[side], ADDRESSES[1 - side]);
    let mut bytes = Vec::new();
    let builder = etherparse::PacketBuilder::ipv4(from.ip().octets(), to.ip().octets(), 64);
    builder.udp(port, to.port()).write(&mut bytes, data).unwrap();
    let ecn = ecn.map_or(0, |ecn| ecn as u8);
    bytes[1] |= ecn;
    let sum = u16::from_be_bytes([bytes[10], bytes[11]]) - u16::from(ecn);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.into()
}

/// One end of the download: side 0 gets, side 1 sends.
struct Host {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    stream: Option<StreamId>,
    left: usize,
    got: usize,
    timer: u64,
    out: VecDeque<(Option<EcnCodepoint>, Vec<u8>)>,
}

struct Download {
    /// How long each packet of a call beside it took, of 50 a second; `None`: it hasn't come.
    voice: Vec<Option<u64>>,
    wire: Wire<usize>,
    base: Instant,
    hosts: [Host; 2],
}

fn endpoints(seed: u8) -> (Endpoint, Endpoint, ClientConfig) {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let certificate = key.cert.der().clone();
    let secret = rustls::pki_types::PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let mut crypto = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], secret.into())
        .unwrap();
    crypto.max_early_data_size = u32::MAX;
    let server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(crypto).unwrap()));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(8 << 20)).receive_window(VarInt::from_u32(16 << 20));
    client.transport_config(Arc::new(transport));
    let endpoint = |seed: u8, server: Option<ServerConfig>| {
        let mut config = EndpointConfig::default();
        config.rng_seed(Some([seed; 32]));
        Endpoint::new(Arc::new(config), server.map(Arc::new), true, None)
    };
    (endpoint(2 * seed, None), endpoint(2 * seed + 1, Some(server)), client)
}

impl Download {
    #[expect(
        clippy::disallowed_methods,
        reason = "`quinn-proto` wants times of that clock; only differences count"
    )]
    fn new(links: Vec<Way>, seed: u8, bytes: usize, begin: u64) -> Download {
        let (client, server, config) = endpoints(seed);
        let host = |endpoint: Endpoint, left: usize| Host {
            endpoint,
            connection: None,
            stream: None,
            left,
            got: 0,
            timer: u64::MAX,
            out: VecDeque::new(),
        };
        let base = Instant::now();
        let mut one = Download {
            voice: Vec::new(),
            wire: Wire::new(links),
            base,
            hosts: [host(client, 0), host(server, bytes)],
        };
        one.wire.at(begin, 0);
        while let Some(Happened::Packet(..)) = one.wire.next(u64::MAX) {}
        let now = one.instant(begin);
        let to = SocketAddr::V4(ADDRESSES[1]);
        let connection = one.hosts[0].endpoint.connect(now, config, to, "localhost").unwrap();
        one.hosts[0].connection = Some(connection);
        one.drive(0);
        one
    }

    fn instant(&self, at: u64) -> Instant {
        self.base + Duration::from_nanos(at)
    }

    fn receive(&mut self, side: usize, packet: &[u8]) {
        let now = self.instant(self.wire.now);
        let host = &mut self.hosts[side];
        let from = SocketAddr::V4(ADDRESSES[1 - side]);
        let ecn = EcnCodepoint::from_bits(packet[1]);
        let mut buffer = Vec::new();
        match host.endpoint.handle(now, from, None, ecn, BytesMut::from(&packet[28..]), &mut buffer) {
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted =
                    host.endpoint.accept(incoming, now, &mut buffer, None).map_err(|_| ()).unwrap();
                host.connection = Some(accepted);
            }
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                host.connection.as_mut().unwrap().1.handle_event(event);
            }
            Some(DatagramEvent::Response(transmit)) => {
                host.out.push_back((transmit.ecn, buffer[..transmit.size].to_vec()))
            }
            None => {}
        }
        self.drive(side);
    }

    fn drive(&mut self, side: usize) {
        let at = self.wire.now;
        let now = self.instant(at);
        let host = &mut self.hosts[side];
        if let Some((handle, connection)) = &mut host.connection {
            if connection.poll_timeout().is_some_and(|due| due <= now) {
                connection.handle_timeout(now);
            }
            while let Some(event) = connection.poll() {
                match event {
                    Event::Connected if side == 1 => host.stream = connection.streams().open(Dir::Uni),
                    Event::Stream(StreamEvent::Opened { dir }) => {
                        host.stream = connection.streams().accept(dir)
                    }
                    Event::ConnectionLost { reason } => panic!("{reason}"),
                    _ => {}
                }
            }
            if let Some(stream) = host.stream {
                if side == 1 {
                    while host.left > 0 {
                        let chunk = vec![7; host.left.min(1 << 16)];
                        match connection.send_stream(stream).write(&chunk) {
                            Ok(count) => host.left -= count,
                            Err(_) => break,
                        }
                    }
                } else {
                    let mut receive = connection.recv_stream(stream);
                    if let Ok(mut chunks) = receive.read(true) {
                        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                            host.got += chunk.bytes.len();
                        }
                        let _ = chunks.finalize();
                    }
                }
            }
            loop {
                let mut buffer = Vec::new();
                while let Some(transmit) = connection.poll_transmit(now, 10, &mut buffer) {
                    let size = transmit.segment_size.unwrap_or(transmit.size).max(1);
                    let sent = buffer[..transmit.size].chunks(size).map(<[u8]>::to_vec);
                    host.out.extend(sent.map(|data| (transmit.ecn, data)));
                    buffer.clear();
                }
                let Some(event) = connection.poll_endpoint_events() else { break };
                if let Some(event) = host.endpoint.handle_event(*handle, event) {
                    connection.handle_event(event);
                }
            }
            if let Some(due) = connection.poll_timeout() {
                let due = due.saturating_duration_since(self.base).as_nanos() as u64;
                if due != host.timer {
                    host.timer = due;
                    self.wire.at(due.max(at), side);
                }
            }
        }
        for (ecn, data) in std::mem::take(&mut self.hosts[side].out) {
            // Their discovery of MTUs tries such.
            if data.len() + 28 > MTU {
                continue;
            }
            self.wire.put(side, datagram(side, ADDRESSES[side].port(), ecn, &data));
        }
    }

    fn talk(&mut self) {
        let mut data = vec![0; 160];
        data[..8].copy_from_slice(&(self.voice.len() as u64).to_be_bytes());
        data[8..16].copy_from_slice(&self.wire.now.to_be_bytes());
        self.voice.push(None);
        self.wire.put(1, datagram(1, VOICE.into(), None, &data));
        self.wire.at(self.wire.now + 20 * MS, TALK);
    }

    fn hear(&mut self, packet: &[u8]) {
        let word = |at: usize| u64::from_be_bytes(packet[at..at + 8].try_into().unwrap());
        self.voice[word(28) as usize] = Some(self.wire.now - word(36));
    }

    /// Mbit/s, until all has come.
    fn run(&mut self, bytes: usize) -> f64 {
        let (begin, until) = (self.wire.now, self.wire.now + 60 * SECOND);
        while self.hosts[0].got < bytes {
            match self.wire.next(until) {
                Some(Happened::Packet(0, packet)) if packet[21] == VOICE => self.hear(&packet),
                Some(Happened::Packet(side, packet)) => self.receive(side, &packet),
                Some(Happened::Timer(TALK)) => self.talk(),
                Some(Happened::Timer(side)) => self.drive(side),
                None => break,
            }
        }
        self.hosts[0].got as f64 * 8e-6 / ((self.wire.now - begin) as f64 / 1e9)
    }

    /// What the sender and the tunnel have counted.
    fn told(&self) -> String {
        let Some((_, sender)) = &self.hosts[1].connection else { return String::new() };
        let path = sender.stats().path;
        let links = self.wire.tunnels[1].link_stats();
        let links: Vec<String> = links
            .iter()
            .map(|one| {
                format!("[{} kB/s queue {} us, {} lost]", one.rate / 1000, one.queue / 1000, one.sent.2)
            })
            .collect();
        format!(
            "{} ms: {} got, window {}, {} lost, {} events, {} ms; {} wait; {:?}; skipped {}; {}",
            self.wire.now / MS,
            self.hosts[0].got,
            path.cwnd,
            path.lost_packets,
            path.congestion_events,
            path.rtt.as_millis(),
            self.wire.tunnels[1].waiting(),
            self.wire.tunnels[1].stats(),
            self.wire.tunnels[0].stats().skipped,
            links.join(" "),
        )
    }
}

fn mbit(links: Vec<Way>, seed: u8, bytes: usize) -> f64 {
    let mut one = Download::new(links, seed, bytes, 2 * SECOND);
    let mbit = one.run(bytes);
    println!("{mbit:.1} Mbit/s; {}", one.told());
    mbit
}

/// The links of the benchmark: 40 Mbit/s, 45 ms, 0.5 % lost; 60 Mbit/s, 50 ms. Half of all servers clear the
/// second bit of their first packet (RFC 9287).
#[test]
fn a_download_uses_both_links_however_its_connection_begins() {
    for seed in 0..6 {
        let links = vec![Way::new(40, 45, 5_000, seed * 7919), Way::new(60, 50, 0, seed + 1)];
        let got = mbit(links, seed as u8, 30_000_000);
        assert!(got > 62.0, "{got:.1} Mbit/s with seed {seed}");
    }
}

#[test]
fn a_download_is_never_slower_than_by_the_better_link() {
    for (one, other) in [
        // Rates ten times apart, round-trip times four times apart, up to 2 % lost.
        (Way::new(50, 20, 0, 1), Way::new(5, 80, 0, 2)),
        (Way::new(40, 30, 20_000, 3), Way::new(40, 120, 0, 4)),
        (Way::new(60, 20, 10_000, 5), Way::new(6, 20, 0, 6)),
    ] {
        let alone = mbit(vec![one.clone()], 1, 15_000_000);
        let both = mbit(vec![one, other], 1, 15_000_000);
        assert!(both > 0.95 * alone, "{both:.1} Mbit/s by both, {alone:.1} by one");
    }
}

/// How long the packets of a call beside a download took, in order, and how many are lost.
fn beside(seed: u8) -> (Vec<u64>, usize) {
    let bytes = 60_000_000;
    let links = vec![Way::new(40, 45, 5_000, u64::from(seed) * 7919), Way::new(60, 50, 0, 1)];
    let mut one = Download::new(links, seed, bytes, 2 * SECOND);
    one.talk();
    let mbit = one.run(bytes);
    // The last ones are still under way.
    one.voice.truncate(one.voice.len() - 5);
    let mut came: Vec<u64> = one.voice.iter().copied().flatten().collect();
    came.sort_unstable();
    let lost = one.voice.len() - came.len();
    println!(
        "p99 {:.1} ms, {lost} lost of {}; {mbit:.1} Mbit/s; {}",
        p99(&came),
        one.voice.len(),
        one.told()
    );
    (came, lost)
}

/// The 99th percentile, ms.
fn p99(sorted: &[u64]) -> f64 {
    sorted[sorted.len() * 99 / 100] as f64 / 1e6
}

#[test]
fn a_call_beside_a_download_is_heard() {
    let (mut took, mut lost) = (Vec::new(), 0);
    for seed in 0..3 {
        let (of_one, lost_of_one) = beside(seed);
        took.extend(of_one);
        lost += lost_of_one;
    }
    took.sort_unstable();
    assert!(p99(&took) <= 35.0 && lost == 0, "p99 {:.1} ms, {lost} lost", p99(&took));
}
