//! A kernel's receiver whose memory is full of data that it can't deliver yet.
//!
//! The window that a kernel offers counts bytes, and supposes that each takes as much memory as those before
//! did. Data after a gap that comes in smaller segments takes more. Once that is more than the connection's
//! receive buffer, Linux (6.18 here) leaves everything that comes on the subflows, also what fills the gap:
//! nothing that a peer may send ends that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk_engine::config::LINUX_SEGMENT_OVERHEAD;
use ropewalk_engine::{Span, Time};
use ropewalk_host::frame::Piece;
use ropewalk_host::network::Side;
use ropewalk_host::transfer::Direction;
use ropewalk_host::world::{Middlebox, Verdict};

use crate::harness::{Case, OUTSIDE_THE_WINDOW, run};
use crate::need_kernel;

const MIB: u64 = 1 << 20;
/// Data that path 0 carries before, bytes: enough for the second subflow to be joined, and little enough that
/// few segments are lost.
const PASSED: u64 = 2000;
/// For how long path 0 loses all data, nanoseconds.
const OUTAGE: Span = Span::from_micros(1_500_000);

/// Lets the first data pass. Then path 0 loses all data for a while.
struct Gap {
    up: bool,
    passed: u64,
    since: Option<Time>,
    lost: Arc<AtomicU64>,
}

impl Middlebox for Gap {
    fn on_packet(&mut self, now: Time, up: bool, packet: &Piece) -> Verdict {
        let Ok(segment) = packet.segment() else { return Verdict::Pass };
        if up != self.up || segment.payload.is_empty() {
            return Verdict::Pass;
        }
        self.passed += segment.payload.len() as u64;
        if packet.path != 0 || (self.since.is_none() && self.passed < PASSED) {
            return Verdict::Pass;
        }
        if now >= *self.since.get_or_insert(now) + OUTAGE {
            return Verdict::Pass;
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
        Verdict::Drop
    }
}

#[test]
fn data_after_a_gap_leaves_the_kernel_memory_for_what_fills_it() {
    need_kernel!();
    for engine in [Side::Client, Side::Server] {
        let way = if engine == Side::Client { Direction::Upload } else { Direction::Download };
        let lost = Arc::new(AtomicU64::new(0));
        let gap = Gap { up: engine == Side::Client, passed: 0, since: None, lost: Arc::clone(&lost) };
        let mut case = Case { middlebox: Some(Box::new(gap)), ..Case::new(engine, 2, way, 8 * MIB) };
        case.kernel.receive_buffer = Some(100 << 10);
        // Path 1 has small segments. A segment takes the kernel about 1 KB of memory, however short it is.
        case.kernel.commands = vec!["link set dev path1 mtu 300".into()];
        case.config.peer_segment_overhead = LINUX_SEGMENT_OVERHEAD;
        let name = format!("engine {engine:?}");
        let report = run(case);
        report.multipath_but(&name, 2, &OUTSIDE_THE_WINDOW);
        assert!(lost.load(Ordering::Relaxed) > 0, "{name}");
        assert!(report.counter("OFOQueue") > 0, "{name}: {:?}", report.mptcp());
    }
}
