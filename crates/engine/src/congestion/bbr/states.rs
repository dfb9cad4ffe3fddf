//! The states of the state machine, and what they remember: sections 3.3 and 5.3.

use crate::{Span, Time};

/// Where the flow is (section 3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum State {
    #[default]
    Startup,
    Drain,
    ProbeDown,
    ProbeCruise,
    ProbeRefill,
    ProbeUp,
    ProbeRtt,
}

impl State {
    /// Section 5.6.1.
    pub fn pacing_gain(self) -> f64 {
        match self {
            State::Startup => 2.77,
            State::Drain => 0.5,
            State::ProbeDown => 0.9,
            State::ProbeUp => 1.25,
            State::ProbeCruise | State::ProbeRefill | State::ProbeRtt => 1.0,
        }
    }

    /// Section 5.6.1.
    pub fn cwnd_gain(self) -> f64 {
        match self {
            State::ProbeUp => 2.25,
            State::ProbeRtt => 0.5,
            _ => 2.0,
        }
    }

    /// BBRIsProbingBW (section 5.3.3.6).
    pub fn is_probing(self) -> bool {
        matches!(self, State::Startup | State::ProbeRefill | State::ProbeUp)
    }

    /// IsInAProbeBWState (section 5.3.3.6).
    pub fn is_probe_bw(self) -> bool {
        matches!(self, State::ProbeDown | State::ProbeCruise | State::ProbeRefill | State::ProbeUp)
    }
}

/// What the samples that arrive were sent in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum AckPhase {
    #[default]
    Init,
    Refilling,
    Starting,
    Feedback,
    Stopping,
}

/// Probing for bandwidth (section 5.3.3).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
    /// Of the subflow: makes the waits of two differ.
    pub id: u64,
    pub ack_phase: AckPhase,
    /// bw_probe_samples: a loss still says something of the probe.
    pub samples: bool,
    pub rounds_since: u64,
    pub wait: Span,
    pub cycle_at: Time,
    pub up_rounds: u32,
    pub up_acks: u64,
    /// probe_up_cnt; 0: infinite.
    pub up_count: u64,
}

impl Probe {
    pub fn new(id: u64) -> Self {
        Probe { id, ..Probe::default() }
    }
}

/// Probing for the round-trip time (section 5.3.4).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeRtt {
    pub min_delay: Span,
    pub min_at: Time,
    pub expired: bool,
    pub done_at: Option<Time>,
    pub round_done: bool,
}

impl ProbeRtt {
    pub fn new(now: Time) -> Self {
        ProbeRtt { min_delay: Span::MAX, min_at: now, ..ProbeRtt::default() }
    }
}
