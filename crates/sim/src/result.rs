//! The result of a run: totals always, series and traces if [`crate::Recording`] asks for them.

use ropewalk_engine::mptcp::{OfoStats, Overruled};
use ropewalk_engine::scheduler::Decision;
use ropewalk_engine::{ConnectionStats, Span, Time};

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The workload is complete.
    Complete,
    /// The scenario's limit came first.
    TimeLimit,
    /// A connection failed; the reason.
    Failed(String),
}

/// The result of one run. Times are from the workload's start (connect of its first flow).
#[derive(Clone, PartialEq, Debug)]
pub struct RunResult {
    /// How it ended.
    pub outcome: Outcome,
    /// One per flow, page, frame series or exchange series.
    pub flows: Vec<FlowResult>,
    /// Finished flows of competing traffic that has flows of a size, by source.
    pub competing: Vec<FlowResult>,
    /// From the workload's start to its last byte delivered, or to the limit.
    pub duration: Span,
    /// Payload bytes delivered to the application, all flows.
    pub delivered_bytes: u64,
    /// Delay of each message (CBR frame, request/response exchange, web object), in order.
    pub message_delays: Vec<Span>,
    /// Per path.
    pub paths: Vec<PathResult>,
    /// Connection-level out-of-order queue at the receivers.
    pub ofo: OfoResult,
    /// Sums over the workload's connections.
    pub totals: Totals,
    /// Events that the world handled.
    pub events: u64,
    /// Series, if recorded.
    pub samples: Vec<Sample>,
    /// Segments, if recorded.
    pub segments: Vec<SegmentTrace>,
    /// Decisions, if recorded.
    pub decisions: Vec<DecisionTrace>,
}

impl RunResult {
    /// A result with this outcome and nothing else.
    pub fn new(outcome: Outcome) -> Self {
        RunResult {
            outcome,
            flows: Vec::new(),
            competing: Vec::new(),
            duration: Span::ZERO,
            delivered_bytes: 0,
            message_delays: Vec::new(),
            paths: Vec::new(),
            ofo: OfoResult::default(),
            totals: Totals::default(),
            events: 0,
            samples: Vec::new(),
            segments: Vec::new(),
            decisions: Vec::new(),
        }
    }
}

/// Sums over the workload's connections. What isn't said to be of both ends is the data's sender's.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Totals {
    /// Data segments sent for the first time: what the speed benchmark counts.
    pub data_segments: u64,
    /// Segments retransmitted at subflow level, of both ends.
    pub retransmissions: u64,
    /// Retransmission timeouts, of both ends.
    pub timeouts: u64,
    /// Bytes reinjected by the connection (timeout, failure, close).
    pub reinjected_bytes: u64,
    /// Bytes repeated by opportunistic retransmission.
    pub opportunistic_bytes: u64,
    /// Bytes repeated by the scheduler's design (redundant, cfs).
    pub duplicated_bytes: u64,
    /// Bytes that reached the receiver a second time, at connection level.
    pub received_twice_bytes: u64,
    /// How often a subflow was penalised.
    pub penalisations: u64,
    /// How often the engine overruled the scheduler.
    pub overruled: Overruled,
    /// Time during which new data waited for the connection-level send window.
    pub window_blocked: Span,
}

impl Totals {
    /// Adds a connection at the data's sender.
    pub fn add_sender(&mut self, stats: &ConnectionStats) {
        self.data_segments += stats.data_segments;
        self.retransmissions += stats.retransmissions;
        self.timeouts += stats.timeouts;
        self.reinjected_bytes += stats.reinjected_bytes;
        self.opportunistic_bytes += stats.opportunistic_bytes;
        self.duplicated_bytes += stats.duplicated_bytes;
        self.penalisations += stats.penalisations;
        self.overruled.add(&stats.overruled);
        self.window_blocked += stats.window_blocked;
    }

    /// Adds a connection at the data's receiver.
    pub fn add_receiver(&mut self, stats: &ConnectionStats) {
        self.retransmissions += stats.retransmissions;
        self.timeouts += stats.timeouts;
        self.received_twice_bytes += stats.received_twice_bytes;
    }

    /// Bytes sent a second time at connection level.
    pub fn repeated_bytes(&self) -> u64 {
        self.duplicated_bytes + self.opportunistic_bytes + self.reinjected_bytes
    }
}

/// The receivers' connection-level out-of-order queue, bytes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OfoResult {
    /// The time-weighted mean over the run.
    pub mean: f64,
    /// Its maximum.
    pub max: u64,
    /// Sampled every 10 ms from the workload's start.
    pub samples: Vec<u32>,
    /// Its maximum since the sample before, for each of these; the sample itself once 64 connections were
    /// opened.
    pub peaks: Vec<u32>,
}

impl OfoResult {
    /// The mean and the maximum over a run, from the receivers' connections.
    pub fn over(duration: Span, receivers: impl Iterator<Item = OfoStats>) -> Self {
        let (mut integral, mut max) = (0, 0);
        for queue in receivers {
            integral += queue.integral;
            max = max.max(queue.max);
        }
        OfoResult { mean: integral as f64 / duration.as_nanos().max(1) as f64, max, ..OfoResult::default() }
    }
}

/// One flow (or page).
#[derive(Clone, PartialEq, Debug)]
pub struct FlowResult {
    /// Bytes of payload.
    pub bytes: u64,
    /// Start, from the workload's start.
    pub start: Time,
    /// Flow completion time: from connect to the last byte delivered; none if it isn't complete.
    pub fct: Option<Span>,
}

/// One path's part in a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PathResult {
    /// Its name.
    pub name: String,
    /// Payload bytes sent on it for the workload, repeats included.
    pub bytes: u64,
    /// Of these, bytes that the scheduler duplicated or the connection reinjected here.
    pub repeated: u64,
    /// Data segments sent on it, repeats included.
    pub segments: u64,
    /// Packets lost on its links in the data's direction (queue and random), of the workload.
    pub lost: u64,
    /// Longest queueing delay that its link in the data's direction reached.
    pub queue_delay_max: Span,
    /// Mean queueing delay of the packets that passed (latency under load is this plus the delay).
    pub queue_delay_mean: f64,
    /// Bytes that the link in the data's direction could have carried over the run, by its realised rate.
    pub capacity_bytes: u64,
}

/// The sender's numbers at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// When, from the workload's start.
    pub at: Time,
    /// Which connection of the workload.
    pub connection: u32,
    /// Bytes delivered in order so far.
    pub delivered: u64,
    /// The receiver's out-of-order queue, bytes.
    pub ofo: u64,
    /// Connection-level send window that is left, bytes.
    pub window_left: u64,
    /// Per subflow.
    pub subflows: Vec<SubflowSample>,
    /// The scheduler's own numbers (BLEST's lambda).
    pub scheduler: Vec<(&'static str, f64)>,
}

/// One subflow at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubflowSample {
    /// Index of its path.
    pub path: u16,
    /// Segments.
    pub cwnd: u32,
    /// Segments.
    pub ssthresh: u32,
    /// Segments.
    pub in_flight: u32,
    /// Smoothed RTT.
    pub srtt: Span,
}

/// Why a data segment was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transmission {
    /// First transmission.
    New,
    /// Retransmitted on the same subflow.
    Retransmitted,
    /// Reinjected by the connection on another subflow.
    Reinjected,
    /// Repeated by the scheduler or opportunistically.
    Duplicated,
}

/// One data segment, from sending to acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentTrace {
    /// Which connection of the workload.
    pub connection: u32,
    /// Index of its path.
    pub path: u16,
    /// Stream offset.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// When it left the sender.
    pub sent: Time,
    /// When it arrived; none: lost.
    pub arrived: Option<Time>,
    /// When an ACK or SACK of the subflow covered it; none: never.
    pub acked: Option<Time>,
    /// Why it was sent.
    pub transmission: Transmission,
}

/// One scheduler decision.
#[derive(Clone, PartialEq, Debug)]
pub struct DecisionTrace {
    /// When.
    pub at: Time,
    /// Which connection of the workload.
    pub connection: u32,
    /// What.
    pub decision: Decision,
    /// Index of the path concerned.
    pub path: Option<u16>,
    /// Stream offset concerned.
    pub offset: u64,
    /// Bytes that the engine took.
    pub bytes: u32,
    /// Why, with path names.
    pub reason: String,
}
