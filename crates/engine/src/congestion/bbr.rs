//! `bbr`: BBR version 3. Models the path's bandwidth and round-trip time, and paces at that rate.
//!
//! Source: draft-ietf-ccwg-bbr-05 (Cardwell, Swett, Beshay; 2026). Section numbers are the draft's; names are
//! its names without the prefix `BBR.`. `model` has the path model (sections 5.5, 5.6), `states` the state
//! machine (section 5.3).
//!
//! Rule, with bw in bytes per second, min_rtt in ns, volumes in segments:
//!
//! ```text
//! max_bw      = the greatest delivery rate of this ProbeBW cycle and the one before     (section 5.5.5)
//! min_rtt     = the least round-trip time of 10 s                                       (section 5.3.4.3)
//! bw          = min(max_bw, bw_shortterm)                                               (section 5.5.10.3)
//! pacing_rate = pacing_gain bw 0.99                                                     (section 5.6.2)
//! cwnd       -> cwnd_gain bw min_rtt + extra_acked,                                     (section 5.6.4)
//!               at most inflight_longterm, inflight_shortterm
//!
//! state    pacing_gain cwnd_gain until                                                  (section 5.6.1)
//! Startup  2.77        2         max_bw grows by less than 25 % in three rounds, or a round loses over 2 %
//! Drain    0.5         2         no more than bw min_rtt in flight
//! DOWN     0.9         2         the same, and 15 % of inflight_longterm unused
//! CRUISE   1           2         2 to 3 s or 63 rounds since the last DOWN
//! REFILL   1           2         one round
//! UP       1.25        2.25      as Startup
//! ProbeRTT 1           0.5       200 ms; every 5 s without a lower round-trip time
//! ```
//!
//! A round that loses outside Startup, REFILL and UP lowers bw_shortterm and inflight_shortterm to what was
//! delivered, to no less than 0.7 of what they were. One in UP that loses over 2 % sets inflight_longterm to
//! what was in flight.
//!
//! Uncoupled: each subflow is a BBR flow of its own.
//!
//! Rulings. The end of ACKS_PROBE_STOPPING is one round trip: the max_bw filter advances once per cycle, as
//! the text of section 5.5.6 and Linux have it; the pseudocode would advance it in each round. A cycle
//! without a sample doesn't advance it (Linux). extra_acked's ten rounds are two slots of five, as in Linux.
//! The "discontiguous ranges" of section 5.3.1.3 are lost entries that don't begin where the one before
//! ended. Random waits come from the time at which they are drawn, so that a run repeats exactly. ssthresh is
//! the model's window once Startup is over, as in Linux, for those that ask whether a subflow is in slow
//! start. Section 3.7 leaves ECN open: a round with an echo counts as one with loss.
//!
//! Parameters: `loss` (0.02; 0.001 to 1): LossThresh, the loss rate of a round that ends probing. `beta`
//! (0.7; 0.1 to 1): Beta, what a round with loss leaves at least. `headroom` (0.15; 0 to 0.9): Headroom, the
//! share of inflight_longterm left unused.

mod model;
mod states;
#[cfg(test)]
mod tests;
mod transitions;

use super::siblings::PerSubflow;
use super::{CongestionControl, ControlEntry, LossCause, LostSegments, RateSample, Siblings};
use crate::Time;
use crate::metrics::SubflowMetrics;
use crate::registry::{Exception, Parameter};
use model::Path;

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "bbr",
    summary: "uncoupled: paced at the bandwidth that a model of the path estimates (version 3)",
    source: "draft-ietf-ccwg-bbr-05",
    parameters: &[
        Parameter::number("loss", 0.02, (0.001, 1.0), "loss rate of a round that ends probing, a share"),
        Parameter::number("beta", 0.7, (0.1, 1.0), "what a round with loss leaves at least, a share"),
        Parameter::number("headroom", 0.15, (0.0, 0.9), "share of the long-term window left unused"),
    ],
    exceptions: &[Exception {
        rule: "growth",
        reason: "the least window is four segments (section 5.6.4.3), and the model grows it where the \
                 window isn't the limit",
    }],
    ..ControlEntry::of(|values| {
        let (loss, beta, headroom) =
            (values.number("loss"), values.number("beta"), values.number("headroom"));
        Box::new(Bbr { design: Design { loss, beta, headroom }, paths: PerSubflow::default() })
    })
};

/// Section 2.7.
#[derive(Clone, Copy, Debug)]
struct Design {
    loss: f64,
    beta: f64,
    headroom: f64,
}

#[derive(Debug)]
struct Bbr {
    design: Design,
    paths: PerSubflow<Path>,
}

impl Bbr {
    /// The state of a subflow; a new one if it hasn't been added yet.
    fn path(&mut self, subflow: &SubflowMetrics, now: Time) -> &mut Path {
        let path = self.paths.at(subflow.id);
        if path.design.is_none() {
            *path = Path::new(self.design, subflow, now);
        }
        path
    }
}

impl CongestionControl for Bbr {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn subflow_added(&mut self, subflow: &mut SubflowMetrics, _: Siblings<'_>, now: Time) {
        let path = self.paths.at(subflow.id);
        *path = Path::new(self.design, subflow, now);
        path.init_pacing_rate(subflow);
    }

    fn ssthresh(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>, cause: LossCause, now: Time) -> u32 {
        let path = self.path(subflow, now);
        path.save_cwnd(subflow);
        if cause == LossCause::Ecn {
            path.note_loss(subflow);
        }
        // No threshold: the model responds (section 5.5.10). Whoever asks is told of slow start's end.
        subflow.ssthresh().clamp(2, subflow.cwnd().max(2))
    }

    fn on_undo(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>) {
        self.paths.at(subflow.id).on_spurious_loss(subflow);
    }

    fn is_model_based(&self) -> bool {
        true
    }

    fn on_sample(&mut self, subflow: &mut SubflowMetrics, _: Siblings<'_>, sample: &RateSample) -> bool {
        self.path(subflow, sample.now).on_sample(subflow, sample)
    }

    fn on_lost(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>, lost: &LostSegments) {
        self.path(subflow, lost.now).on_lost(subflow, lost);
    }

    fn before_transmit(
        &mut self,
        subflow: &mut SubflowMetrics,
        _: Siblings<'_>,
        now: Time,
        app_limited: bool,
    ) {
        self.path(subflow, now).before_transmit(subflow, now, app_limited);
    }

    fn metrics(&self, subflow: &SubflowMetrics, _: Siblings<'_>) -> Vec<(&'static str, f64)> {
        self.paths.get(subflow.id).map_or_else(Vec::new, Path::metrics)
    }
}
