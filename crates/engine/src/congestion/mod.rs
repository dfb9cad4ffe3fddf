//! Congestion controls, one file each, behind [`CongestionControl`].
//!
//! One object serves a whole connection and sees every subflow's [`SubflowMetrics`], since coupled controls
//! need their siblings' windows. It grows windows; the engine detects loss, asks for the new threshold and
//! brings the window down to it (PRR, RFC 6937).
//!
//! The engine says how many segments an ACK delivered, and a control applies its rule to each of them. So a
//! stretch ACK grows the window as much as several ACKs, unless the host counts ACKs
//! ([`AckCounting`]). Windows are whole segments; the control keeps the
//! fraction and drops it at a loss, as Linux drops `snd_cwnd_cnt`.
//!
//! A model-based control ([`CongestionControl::is_model_based`]: BBR) gets samples of the delivery rate
//! instead, sets window and pacing rate with each, and is paced.
//!
//! MPVeno and MPTCPPW are not implemented: 5g-2019 (section I) lists them without a definition.

use std::fmt::Debug;

use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, algorithms};
use crate::{Span, Time};
pub use ack_counting::AckCounting;
pub use siblings::Siblings;

mod ack_counting;
mod additive;
#[cfg(test)]
mod contract_tests;
mod delay;
mod siblings;
#[cfg(test)]
mod testing;

algorithms! {
    /// All built-in controls.
    "congestion control", CongestionControl:
    reno,
    cubic,
    lia,
    olia,
    balia,
    wvegas,
    ewtcp,
    coupled,
    semicoupled,
    rtt_compensator,
    vegas,
    veno,
    mveno,
    bbr,
}

/// The registry entry of a control.
type ControlEntry = Entry<dyn CongestionControl>;

/// An acknowledgement that may grow the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The current time.
    pub now: Time,
    /// Segments that slow start counts: those newly delivered, cumulatively or selectively (Linux's
    /// `acked_sacked`), or what `counting` makes of them.
    pub acked: u32,
    /// What the host counts of an ACK.
    pub counting: AckCounting,
    /// Round-trip time sample, if this ACK gave one.
    pub rtt: Option<Span>,
    /// Segments in flight before this ACK.
    pub prior_in_flight: u32,
    /// Whether the window limited the sender (Linux's `tcp_is_cwnd_limited`). The window grows only then.
    pub cwnd_limited: bool,
    /// Whether this ACK starts a new round trip: the first ACK that delivers a segment sent after the last
    /// round began (draft-ietf-ccwg-bbr 5.5.1). Rounds that begin in Recovery or Cwr aren't seen here, as
    /// `on_ack` isn't called then. (CUBIC's HyStart counts rounds by sequence number, as Linux does.)
    pub round_start: bool,
}

/// What an ACK says of the path (draft-ietf-ccwg-bbr 2.2, 4.1), for a model-based control. Volumes are in
/// segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RateSample {
    /// The current time.
    pub now: Time,
    /// RS.newly_acked.
    pub acked: u32,
    /// RS.rtt: round-trip time sample of the latest segment delivered.
    pub rtt: Option<Span>,
    /// RS.delivery_rate, bytes per second; 0: there is none.
    pub rate: u64,
    /// RS.is_app_limited.
    pub app_limited: bool,
    /// RS.delivered: what was delivered between the sending of the segment and now.
    pub delivered: u64,
    /// RS.prior_delivered: what was delivered by the time the segment was sent.
    pub prior_delivered: u64,
    /// RS.tx_in_flight: what was in flight when the segment was sent.
    pub tx_in_flight: u32,
    /// RS.lost: what was judged lost between the sending of the segment and now.
    pub lost: u32,
    /// C.is_cwnd_limited.
    pub cwnd_limited: bool,
}

/// Segments judged lost (draft-ietf-ccwg-bbr 5.5.10.2), for a model-based control.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LostSegments {
    /// The current time.
    pub now: Time,
    /// How many.
    pub segments: u32,
    /// Where in the subflow's stream they begin and end.
    pub position: u64,
    /// See `position`.
    pub end: u64,
    /// P.tx_in_flight: what was in flight when they were sent.
    pub tx_in_flight: u32,
    /// What was judged lost since, these included.
    pub lost: u32,
    /// P.is_app_limited.
    pub app_limited: bool,
}

/// Why a window is reduced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LossCause {
    /// RACK-TLP or duplicate ACKs.
    FastRetransmit,
    /// The retransmission timer.
    Timeout,
    /// ECN echo.
    Ecn,
}

/// A congestion control for all subflows of one connection. Each call is about one subflow, which it may
/// change where it gets `&mut`; it reads the others as [`Siblings`]. What it remembers of a subflow it
/// finds by the subflow's `id`.
///
/// Call order for a subflow: `subflow_added`, then any of the others, then `subflow_removed`. Within one ACK:
/// what it delivers leaves the counts, round-trip time and rates are sampled, losses are judged
/// (`on_lost`, then `ssthresh`, before anything is sent again), and `on_ack` or `on_sample` comes last.
pub trait CongestionControl: Debug + Send {
    /// The name in the registry.
    fn name(&self) -> &'static str;

    /// A subflow joined; its `cwnd` is the initial window.
    fn subflow_added(&mut self, subflow: &mut SubflowMetrics, siblings: Siblings<'_>, now: Time) {
        let _ = (subflow, siblings, now);
    }

    /// The subflow is gone; its id may be used again.
    fn subflow_removed(&mut self, subflow: &SubflowMetrics, siblings: Siblings<'_>) {
        let _ = (subflow, siblings);
    }

    /// New data was acknowledged in Open, Disorder or Loss, not in Recovery or Cwr: grow its window. Called
    /// also when not `cwnd_limited`, for the samples in it.
    fn on_ack(&mut self, subflow: &mut SubflowMetrics, siblings: Siblings<'_>, ack: &Ack) {
        let _ = (subflow, siblings, ack);
    }

    /// Loss or ECN: the new slow start threshold, in segments, at least 2 unless the source says otherwise.
    /// The engine sets it and reduces the window. A control that isn't model-based hears of a loss only by
    /// this; `totals.lost` counts the segments already, `totals.loss_events` doesn't. A model-based control
    /// is asked as well: its answer is no window, but what those who read `ssthresh` see.
    fn ssthresh(
        &mut self,
        subflow: &SubflowMetrics,
        siblings: Siblings<'_>,
        cause: LossCause,
        now: Time,
    ) -> u32;

    /// The reduction turned out spurious; the engine restores `cwnd` and `ssthresh` itself.
    fn on_undo(&mut self, subflow: &SubflowMetrics, siblings: Siblings<'_>) {
        let _ = (subflow, siblings);
    }

    /// Data is sent again after an idle time of at least one RTO; the engine restarts the window (RFC 5681
    /// 4.1) and `idle` is how long nothing was sent.
    fn on_idle_restart(&mut self, subflow: &SubflowMetrics, siblings: Siblings<'_>, idle: Span) {
        let _ = (subflow, siblings, idle);
    }

    /// Whether the control sets window and pacing rate from a model of the path. Then the engine paces the
    /// subflow by `pacing_rate`, calls [`on_sample`](Self::on_sample) instead of `on_ack`, also in recovery,
    /// calls [`on_lost`](Self::on_lost) and [`before_transmit`](Self::before_transmit), and leaves the window
    /// alone but for a timeout, which leaves what is in flight and one segment. Asked once per subflow.
    fn is_model_based(&self) -> bool {
        false
    }

    /// An ACK delivered something: set its window and pacing rate. Returns whether the control holds
    /// the rate back, so that samples of what is sent next count as application-limited.
    fn on_sample(
        &mut self,
        subflow: &mut SubflowMetrics,
        siblings: Siblings<'_>,
        sample: &RateSample,
    ) -> bool {
        let _ = (subflow, siblings, sample);
        false
    }

    /// Segments were judged lost; `subflow` counts them already.
    fn on_lost(&mut self, subflow: &SubflowMetrics, siblings: Siblings<'_>, lost: &LostSegments) {
        let _ = (subflow, siblings, lost);
    }

    /// Data is about to be sent, and nothing is in flight; `app_limited`: for want of data.
    fn before_transmit(
        &mut self,
        subflow: &mut SubflowMetrics,
        siblings: Siblings<'_>,
        now: Time,
        app_limited: bool,
    ) {
        let _ = (subflow, siblings, now, app_limited);
    }

    /// Internal state for observers: (name, value), e.g. LIA's alpha.
    fn metrics(&self, subflow: &SubflowMetrics, siblings: Siblings<'_>) -> Vec<(&'static str, f64)> {
        let _ = (subflow, siblings);
        Vec::new()
    }
}

/// Grows the window by slow start, up to the threshold (RFC 5681 3.1, Linux's `tcp_slow_start`). Returns the
/// acknowledged segments that count in congestion avoidance.
pub fn slow_start(subflow: &mut SubflowMetrics, ack: &Ack) -> u32 {
    if ack.counting == AckCounting::OneInAvoidance {
        return slow_start_past_threshold(subflow, ack.acked);
    }
    //= RFC 5681 3.1-d
    // A window above the threshold stays: then all of the ACK is for congestion avoidance.
    let target = subflow.cwnd().saturating_add(ack.acked).min(subflow.ssthresh().max(subflow.cwnd()));
    let used = target - subflow.cwnd();
    subflow.set_cwnd(target);
    ack.acked - used
}

/// Slow start of [`AckCounting::OneInAvoidance`].
fn slow_start_past_threshold(subflow: &mut SubflowMetrics, acked: u32) -> u32 {
    if subflow.cwnd() > subflow.ssthresh() {
        return 1;
    }
    subflow.set_cwnd(subflow.cwnd().saturating_add(acked).min(subflow.ssthresh().saturating_add(1)));
    0
}

/// Half the window, at least `floor` segments (RFC 5681 3.1, Equation 4, with the congestion window for the
/// flight size, as Linux does and RFC 9438 4.6 allows).
pub fn half_window(subflow: &SubflowMetrics, floor: u32) -> u32 {
    //= RFC 5681 3.1-f
    (subflow.cwnd() / 2).max(floor)
}

/// What Linux uses unless told otherwise.
pub(crate) const DEFAULT: ControlEntry = cubic::ENTRY;

/// Its name.
pub const DEFAULT_NAME: &str = DEFAULT.name;
