//! Helpers for the tests of schedulers, public as [`crate::testing`]: single decisions ([`Scene`]) and whole
//! model connections ([`Model`]).

mod application;
mod model;
mod pipe;
mod placement;

use std::collections::BTreeMap;

pub use model::Model;
pub use pipe::Pipe;
pub use placement::{Placement, run};

use super::{Chunk, Decision, InFlight, Message, Rationale, Scheduler, View, builtin};
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::tcp::WithoutSender as _;
use crate::{MILLISECOND, PathId, Span, SubflowId, Time};

/// Payload bytes per segment unless a test says otherwise.
pub const MSS: u32 = 1000;

/// Builds a scheduler of Ropewalk's from its specification.
///
/// # Panics
/// If there is none.
pub fn build(text: &str) -> Box<dyn Scheduler> {
    match builtin().parse(text) {
        Ok(spec) => spec.build(),
        Err(error) => panic!("{error}"),
    }
}

/// Chunks in flight, by offset.
#[derive(Debug, Default)]
pub struct Chunks(
    /// By offset.
    pub BTreeMap<u64, Chunk>,
);

impl InFlight for Chunks {
    fn chunk_after(&self, offset: u64) -> Option<Chunk> {
        let holds = |chunk: &&Chunk| chunk.offset + u64::from(chunk.len) > offset;
        let before = self.0.range(..=offset).next_back().map(|(_, chunk)| chunk).filter(holds);
        before.or_else(|| self.0.range(offset..).next().map(|(_, chunk)| chunk)).copied()
    }

    fn chunk_before(&self, offset: u64) -> Option<Chunk> {
        self.0.range(..offset).next_back().map(|(_, chunk)| *chunk)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// A usable subflow: srtt in ms, cwnd and in flight in segments.
pub fn subflow(id: u8, srtt_ms: u64, cwnd: u32, in_flight: u32) -> SubflowMetrics {
    let mut subflow = SubflowMetrics::new(SubflowId(id), PathId(u16::from(id)));
    subflow.state = SubflowStatus::Usable;
    subflow.mss = MSS;
    subflow.set_cwnd(cwnd);
    subflow.set_packets_out(in_flight);
    set_rtt(&mut subflow, srtt_ms * MILLISECOND);
    subflow.rate.pacing = u64::from(cwnd) * u64::from(MSS) * 1200 / srtt_ms;
    subflow
}

/// Sets all round-trip times of a subflow to one value.
pub fn set_rtt(subflow: &mut SubflowMetrics, rtt: Span) {
    subflow.rtt.smoothed = rtt;
    subflow.rtt.min = rtt;
    subflow.rtt.max = rtt;
    subflow.rtt.latest = rtt;
    subflow.rtt.samples = if rtt == Span::ZERO { 0 } else { 10 };
}

/// A usable subflow that has just joined and has no round-trip sample yet.
pub fn unmeasured(id: u8, cwnd: u32, in_flight: u32) -> SubflowMetrics {
    let mut subflow = subflow(id, 1, cwnd, in_flight);
    set_rtt(&mut subflow, Span::ZERO);
    subflow
}

/// The state of a connection at one moment, for tests of single decisions.
#[derive(Debug)]
pub struct Scene {
    /// The time.
    pub now: Time,
    /// The subflows.
    pub subflows: Vec<SubflowMetrics>,
    /// Bytes that wait, unassigned.
    pub unsent: u64,
    /// Offset of the first of them.
    pub next_offset: u64,
    /// Offset of the first byte that isn't acknowledged.
    pub una: u64,
    /// The connection-level send window, bytes from `una`.
    pub send_window: u64,
    /// Bytes that the application wrote; none: all up to the last unsent one.
    pub written: Option<u64>,
    /// The flow's size, if the application said it.
    pub declared_size: Option<u64>,
    /// Whether the application has more to write.
    pub writer_waits: bool,
    /// What is in flight at connection level.
    pub chunks: Chunks,
    /// The messages that the application marked, in order.
    pub messages: Vec<Message>,
}

impl InFlight for Scene {
    fn chunk_after(&self, offset: u64) -> Option<Chunk> {
        self.chunks.chunk_after(offset)
    }

    fn chunk_before(&self, offset: u64) -> Option<Chunk> {
        self.chunks.chunk_before(offset)
    }

    fn message_at(&self, offset: u64) -> Option<Message> {
        self.messages.iter().find(|message| (message.start..message.end).contains(&offset)).copied()
    }

    fn len(&self) -> usize {
        self.chunks.len()
    }
}

impl Scene {
    /// A megabyte unsent, nothing in flight at connection level, an unlimited window.
    pub fn new(subflows: Vec<SubflowMetrics>) -> Self {
        Scene {
            now: Time::ZERO,
            subflows,
            unsent: 1_000_000,
            next_offset: 0,
            una: 0,
            send_window: 1 << 40,
            written: None,
            declared_size: None,
            writer_waits: false,
            chunks: Chunks::default(),
            messages: Vec::new(),
        }
    }

    /// As the scheduler sees it.
    pub fn view(&self) -> View<'_> {
        View {
            now: self.now,
            subflows: &self.subflows,
            unsent: self.unsent,
            next_offset: self.next_offset,
            una: self.una,
            send_window: self.send_window,
            window_left: (self.una + self.send_window).saturating_sub(self.next_offset),
            written: self.written.unwrap_or(self.next_offset + self.unsent),
            declared_size: self.declared_size,
            closed: false,
            writer_waits: self.writer_waits,
            send_buffer: 1 << 40,
            send_buffer_max: 1 << 40,
            in_flight: self,
            fates: &(),
        }
    }

    /// The scheduler's decision.
    pub fn ask(&self, scheduler: &mut dyn Scheduler) -> Decision {
        scheduler.select(&self.view(), &mut Rationale::default())
    }

    /// The scheduler's decision, as the subflow it sends or queues on; `None` for a wait or a repeat.
    pub fn chosen(&self, scheduler: &mut dyn Scheduler) -> Option<u8> {
        match self.ask(scheduler) {
            Decision::Send { subflow, .. }
            | Decision::SendAt { subflow, .. }
            | Decision::Queue { subflow, .. } => Some(subflow.0),
            _ => None,
        }
    }

    /// The reason for the scheduler's decision.
    pub fn reason(&self, scheduler: &mut dyn Scheduler) -> String {
        let mut rationale = Rationale::listening();
        scheduler.select(&self.view(), &mut rationale);
        rationale.take()
    }
}
