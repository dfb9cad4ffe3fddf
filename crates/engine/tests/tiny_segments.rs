//! Memory that a peer can make the engine use with one-byte segments out of order, each in a large buffer of
//! its own as a device driver delivers them.
//!
//! One test in a binary of its own: the counting allocator is global, and counts other threads too.

mod common;

use std::alloc::System;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use common::{SplitMix64, config};
use ropewalk_engine::config::{BufferConfig, EndpointConfig};
use ropewalk_engine::endpoint::Endpoint;
use ropewalk_engine::{PathId, Time};
use ropewalk_wire::pool::Pool;
use ropewalk_wire::{Flags, FourTuple, Segment, Seq};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), 80);
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 1000);
const WINDOW: u64 = 1 << 20;

/// A client played by the test, connected to a server over plain TCP.
struct Peer {
    server: Endpoint<Bytes, SplitMix64>,
    tuple: FourTuple,
    /// What it acknowledges.
    ack: Seq,
}

impl Peer {
    fn connected() -> Peer {
        let mut server = Endpoint::new(EndpointConfig::default(), SplitMix64(2));
        let mut config = config("minrtt", "lia", 1);
        config.receive_buffer = BufferConfig::fixed(WINDOW);
        server.listen(SERVER, Arc::new(config));
        let tuple = FourTuple::new(CLIENT, SERVER);
        let mut syn = Segment::new(tuple, Seq(0), Seq(0), Flags::SYN);
        syn.rare_mut().window_scale = Some(7);
        server.on_segment(Time::ZERO, PathId(0), syn);
        let ack = server.poll_transmit(Time::ZERO, 1).expect("a SYN/ACK").1.seq.plus(1);
        let mut peer = Peer { server, tuple, ack };
        peer.send(1, Bytes::new());
        peer
    }

    fn send(&mut self, position: u64, payload: Bytes) {
        let mut segment = Segment::new(self.tuple, Seq(position as u32), self.ack, Flags::ACK);
        (segment.window, segment.payload) = (65_535, payload);
        self.server.on_segment(Time::from_nanos(1_000_000), PathId(0), segment);
        while self.server.poll_transmit(Time::from_nanos(1_000_000), 1).is_some() {}
    }

    fn counter(&self, wanted: &str) -> u64 {
        self.server.mib().into_iter().find(|(name, _)| name == wanted).map_or(0, |(_, value)| value)
    }
}

/// Memory in use now and not before `work`, which fills it.
fn taken(work: impl FnOnce(&mut Peer, &mut dyn FnMut(usize) -> Bytes)) -> (Peer, u64) {
    let mut peer = Peer::connected();
    let region = Region::new(COUNTING);
    let mut pool = Pool::new(512 << 10);
    work(&mut peer, &mut |len| {
        let buffer = pool.room(64 << 10);
        buffer.resize(len, 7);
        let segment = buffer.split().freeze();
        // What others send goes through the same memory.
        buffer.reserve(0);
        let _ = pool.room(512 << 10);
        segment
    });
    drop(pool);
    let change = region.change();
    (peer, (change.bytes_allocated - change.bytes_deallocated) as u64)
}

#[test]
fn one_byte_segments_take_no_more_memory_than_the_buffer_allows() {
    // Every other byte, so that no two are contiguous.
    let (peer, memory) = taken(|peer, segment| (0..6000).for_each(|n| peer.send(3 + 2 * n, segment(1))));
    assert!(memory < 3 * WINDOW, "{memory} bytes for 6,000 one-byte segments out of order");
    assert!(peer.counter("TcpExtTCPOFODrop") < 5600, "what fits the window that was offered is kept");

    let (peer, memory) = taken(|peer, segment| (0..30_000).for_each(|n| peer.send(3 + 2 * n, segment(1))));
    assert!(memory < 3 * WINDOW, "{memory} bytes for 30,000 one-byte segments out of order");
    assert!(peer.counter("TcpExtTCPOFODrop") > 20_000);

    // From the end to the beginning: each byte arrives just before the stored ones.
    let (mut peer, memory) =
        taken(|peer, segment| (0..30_000).rev().for_each(|n| peer.send(3 + 2 * n, segment(1))));
    assert!(memory < 3 * WINDOW, "{memory} bytes for 30,000 one-byte segments in reverse");
    // The first bytes are there; single bytes fill the gaps.
    let before = peer.counter("TcpExtTCPOFODrop");
    (0..1000).for_each(|n| peer.send(1 + n, Bytes::from_static(&[7])));
    assert_eq!(peer.counter("TcpExtTCPOFODrop"), before);

    // The data is in order, but the application doesn't read. The first few pieces stay as they arrived.
    let (_, memory) = taken(|peer, segment| (0..50_000).for_each(|n| peer.send(1 + n, segment(1))));
    assert!(memory < 17 * (512 << 10), "{memory} bytes for 50,000 bytes that nobody reads");
}
