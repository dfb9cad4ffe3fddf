//! Super-segments made of the application's writes: data of small writes is copied once, data of large writes
//! never. Received data can be read as it arrived.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk_engine::config::{BufferConfig, ConnectionConfig, EndpointConfig, PathManagerConfig, TcpConfig};
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{Entropy, PathId, Span, Time, congestion, scheduler};
use ropewalk_wire::{Payload, SyntheticPayload};

/// Bytes that were copied to join pieces.
static JOINED: AtomicUsize = AtomicUsize::new(0);

/// A length that counts what joining costs.
#[derive(Clone, Default, Debug)]
struct Counted(SyntheticPayload);

impl Payload for Counted {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn slice(&self, start: usize, end: usize) -> Self {
        Counted(self.0.slice(start, end))
    }

    fn join(pieces: &[Self]) -> Self {
        let whole = SyntheticPayload(pieces.iter().map(|piece| piece.0.0).sum());
        if pieces.len() > 1 {
            JOINED.fetch_add(whole.len(), Ordering::Relaxed);
        }
        Counted(whole)
    }

    fn ones_complement_sum(&self) -> Option<u16> {
        None
    }
}

#[derive(Debug)]
struct Steps(u64);

impl Entropy for Steps {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }
}

const TOTAL: usize = 8 << 20;
const MAX_SEGMENTS: u32 = 44;

/// Sends all in writes of `write` bytes, or of what fills super-segments of that. Returns the bytes that were
/// copied for it, the (super-)segments with data and the largest one's bytes.
fn copied(scheduler: &str, write: usize, is_aligned: bool) -> (usize, usize, usize) {
    JOINED.store(0, Ordering::Relaxed);
    let config = Arc::new(ConnectionConfig {
        tcp: TcpConfig::default(),
        multipath: true,
        checksum: false,
        send_buffer: BufferConfig::fixed(1 << 20),
        receive_buffer: BufferConfig::fixed(1 << 20),
        scheduler: scheduler::builtin().parse(scheduler).expect("a scheduler"),
        congestion: congestion::builtin().parse("cubic").expect("a congestion control"),
        path_manager: PathManagerConfig::default(),
        trace_decisions: false,
        ..ConnectionConfig::default()
    });
    let server_address: SocketAddr = "10.0.0.1:80".parse().expect("an address");
    let mut ends = [
        Endpoint::<Counted, _>::new(EndpointConfig::default(), Steps(1)),
        Endpoint::new(EndpointConfig::default(), Steps(2)),
    ];
    ends[1].listen(server_address, Arc::clone(&config));
    let local = "10.0.0.2:0".parse().expect("an address");
    let client = ends[0].connect(Time::ZERO, PathId(0), local, server_address, config).expect("a connection");
    let mut server: Option<ConnectionId> = None;
    let (mut written, mut received, mut now) = (0, 0, Time::ZERO);
    let (mut largest, mut segments) = (0, 0);
    while received < TOTAL {
        now += Span::from_micros(100);
        assert!(now < Time::from_nanos(60_000_000_000), "stalled at {received} bytes");
        for end in 0..2 {
            ends[end].on_timeout(now);
            while let Some((path, segment)) = ends[end].poll_transmit(now, MAX_SEGMENTS) {
                largest = largest.max(segment.payload.len());
                segments += usize::from(!segment.payload.is_empty());
                ends[1 - end].on_segment(now, path, segment);
            }
        }
        while let Some((id, event)) = ends[1].poll_event() {
            if let Event::Accepted { .. } = event {
                server = Some(id);
            }
        }
        while ends[0].poll_event().is_some() {}
        while written < TOTAL {
            let write = match is_aligned {
                true => ends[0].aligned_bytes(client, write as u64, MAX_SEGMENTS) as usize,
                false => write,
            };
            match ends[0].write(now, client, Counted(SyntheticPayload(write.min(TOTAL - written) as u32))) {
                Ok(0) | Err(_) => break,
                Ok(taken) => written += taken,
            }
        }
        while let Some(id) = server
            && let Ok(Some(data)) = ends[1].read_piece(now, id, 1 << 20)
            && !data.is_empty()
        {
            received += data.len();
        }
    }
    (JOINED.load(Ordering::Relaxed), segments, largest)
}

#[test]
fn no_byte_is_copied_needlessly_for_a_super_segment() {
    // One gives a subflow a segment at a time, the other a lone subflow many.
    for scheduler in ["minrtt", "ropewalk"] {
        let (joined, _, largest) = copied(scheduler, 3_000, false);
        assert!(largest > 40_000, "{scheduler}: super-segments of {largest} bytes at most");
        assert!(joined <= 2 * TOTAL, "{scheduler}: {joined} bytes were copied to send {TOTAL}");
        for write in [64 << 10, 100_000, 256 << 10] {
            let (joined, segments, largest) = copied(scheduler, write, false);
            let case = format!("{scheduler}, writes of {write}: {segments} of {largest} bytes at most");
            assert!(largest > 40_000, "{case}");
            // At the end of each write one segment spans two writes.
            assert!(joined <= TOTAL / 8, "{case}, {joined} bytes were copied to send {TOTAL}");
            assert!(segments <= 3 * TOTAL / largest + 2 * TOTAL / write, "{case}");
        }
        let (joined, segments, largest) = copied(scheduler, 256 << 10, true);
        let case = format!("{scheduler}, aligned writes: {segments} of {largest} bytes at most");
        assert!(largest > 40_000, "{case}");
        assert!(joined <= TOTAL / 50, "{case}, {joined} bytes were copied to send {TOTAL}");
        assert!(segments <= 5 * TOTAL / (4 * largest), "{case}");
    }
}
