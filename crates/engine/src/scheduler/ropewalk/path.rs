//! What `ropewalk` keeps of one subflow: how much its link has still to send, and when a segment given to it
//! would arrive. The link's rate is the engine's estimate.

use crate::metrics::SubflowMetrics;
use crate::{Span, Time};

/// Segments that a link of unknown rate is taken to send in a round trip: the usual initial window.
const ASSUMED_SEGMENTS: f64 = 10.0;

/// One subflow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    /// When the link will have sent what it was given.
    free_at: f64,
    /// When new data was last given to it.
    last_sent: Time,
    /// Since when it has had something in flight.
    busy_since: Time,
    /// In this decision: whether it is silent.
    pub silent: bool,
    /// In this decision, where new data is placed: [`Path::arrival`].
    pub arrival: f64,
    /// Everything from this offset on that it carries has been repeated elsewhere.
    pub taken_from: u64,
    /// Bytes of that.
    pub taken: u64,
    /// Data before this offset needs no look any more for being late on this subflow.
    pub late_until: u64,
}

impl Path {
    pub fn new() -> Self {
        Path { taken_from: u64::MAX, ..Path::default() }
    }

    /// New data goes to it, which nothing was repeated of.
    #[inline]
    pub fn on_new(&mut self, subflow: &SubflowMetrics, now: Time) {
        self.taken_from = u64::MAX;
        self.taken = 0;
        self.on_sent(subflow, now);
    }

    /// A segment goes to it.
    #[inline]
    pub fn on_sent(&mut self, subflow: &SubflowMetrics, now: Time) {
        if subflow.packets_out() == 0 && subflow.queued_bytes == 0 {
            self.busy_since = now;
        }
        self.last_sent = now;
        let cost = f64::from(subflow.mss) * self.cost(subflow);
        self.free_at = float(now.as_nanos()) + self.queue(subflow, now) + cost;
    }

    /// Nanoseconds that the link takes for a byte.
    #[inline]
    pub fn cost(&self, subflow: &SubflowMetrics) -> f64 {
        if subflow.rate.link_byte_time > 0.0 {
            return subflow.rate.link_byte_time;
        }
        float(subflow.rtt.smoothed.as_nanos()) / (ASSUMED_SEGMENTS * f64::from(subflow.mss.max(1)))
    }

    /// When it will count as silent, if nothing comes back until then: later than an ACK should take.
    #[inline]
    pub fn silent_at(&self, subflow: &SubflowMetrics) -> Time {
        subflow.last_progress.max(self.busy_since) + subflow.rtt.smoothed + ack_slack(subflow)
    }

    /// Nanoseconds that the link has still to send. It can't be more than all that is in flight; and what is
    /// in flight beyond a round trip's worth waits in the queue.
    #[inline]
    fn queue(&self, subflow: &SubflowMetrics, now: Time) -> f64 {
        let flying = f64::from(subflow.in_flight()) * f64::from(subflow.mss) + float(subflow.queued_bytes);
        let all = flying * self.cost(subflow);
        let left = max(self.free_at - float(now.as_nanos()), all - float(subflow.rtt.min.as_nanos()));
        min(max(left, 0.0), all)
    }

    /// Nanoseconds until a segment arrives that is given to it as soon as its window has room: meanwhile the
    /// queue gets shorter. Half the least round trip is the way.
    #[inline(always)]
    pub fn arrival(&self, subflow: &SubflowMetrics, now: Time) -> f64 {
        let wait = max(self.queue(subflow, now), self.room_in(subflow, now));
        float(subflow.rtt.min.as_nanos()) / 2.0 + wait + f64::from(subflow.mss) * self.cost(subflow)
    }

    /// Nanoseconds until the last chunk arrives that it carries and that isn't repeated, which was sent at
    /// `sent_at`; below zero: it has arrived.
    #[inline]
    pub fn last_arrives(&self, subflow: &SubflowMetrics, now: Time, sent_at: Time, doubt: bool) -> f64 {
        if subflow.rtt.smoothed == Span::ZERO {
            return f64::INFINITY;
        }
        if doubt && subflow.rate.link_byte_time <= 0.0 {
            // New data counts on an unknown link. What it carries doesn't: a segment in a round trip.
            let flying =
                f64::from(subflow.in_flight()) * f64::from(subflow.mss) + float(subflow.queued_bytes);
            return (flying - float(self.taken)) / f64::from(subflow.mss.max(1))
                * float(subflow.rtt.smoothed.as_nanos());
        }
        let queue = self.queue(subflow, now) - float(self.taken) * self.cost(subflow);
        float(subflow.rtt.min.as_nanos()) / 2.0 + queue.max(float(sent_at.as_nanos()) - float(now.as_nanos()))
    }

    /// Nanoseconds until its window has room again: the oldest segment of a full window left as long before
    /// the latest as the link took for the others.
    #[inline]
    pub fn room_in(&self, subflow: &SubflowMetrics, now: Time) -> f64 {
        if subflow.window_space() > 0 {
            return 0.0;
        }
        let flying = f64::from(subflow.in_flight()) * f64::from(subflow.mss);
        let spread = min(flying * self.cost(subflow), float(subflow.rtt.smoothed.as_nanos()));
        let room_at = float(self.last_sent.as_nanos()) + float(subflow.rtt.smoothed.as_nanos()) - spread;
        max(room_at - float(now.as_nanos()), 0.0)
    }

    /// Bytes of data given to it from now on that can arrive until `left` nanoseconds after
    /// [`Path::arrival`]: what its link carries, and what its window admits round by round.
    #[inline]
    pub fn delivers(&self, subflow: &SubflowMetrics, left: f64) -> f64 {
        let mss = f64::from(subflow.mss);
        let rounds = left / float(subflow.rtt.smoothed.as_nanos());
        let window = f64::from(subflow.cwnd()) * mss;
        // The rest of this window, then whole ones.
        let space = f64::from(subflow.window_space());
        let first = if space > 0.0 { space * mss } else { window * min(rounds, 1.0) };
        let grown = if subflow.in_slow_start() {
            // 2 + 4 + 8 ... windows, by whole rounds.
            window * 2.0 * (f64::from(1u32 << (rounds as u32).min(16)) - 1.0)
        } else {
            window * rounds
        };
        min(first + grown, mss + left / max(self.cost(subflow), 1e-9))
    }
}

/// As `as f64`, which takes several instructions for a `u64` and one for an `i64`.
#[inline]
fn float(value: u64) -> f64 {
    value as i64 as f64
}

/// As `f64::max`, which takes several instructions because of NaN.
#[inline]
fn max(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// As `f64::min`.
#[inline]
fn min(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// How much later than usual an ACK may come.
#[inline]
pub(super) fn ack_slack(subflow: &SubflowMetrics) -> Span {
    // The variation that is assumed before a second sample says nothing of this path.
    let assumed = subflow.rtt.samples < 2;
    let variation = if assumed { subflow.rtt.smoothed / 2 } else { 4 * subflow.rtt.var };
    variation.max(subflow.rtt.smoothed / 8).max(Span::from_millis(2))
}
