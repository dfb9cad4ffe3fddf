//! `blest`: blocking estimation. Skips the slow subflow if it would block the send window.
//!
//! Source: blest-2016 (Ferlin, Alay, Mehani, Boreli, IFIP Networking 2016) V; 5g-2019 III.E.
//!
//! Rule: F is the usable subflow with the least srtt, S `minrtt`'s choice. If they are one, it takes the
//! segment. Else, with RTT the smoothed round-trip times, CWND in segments, MSS in bytes and |M| the whole
//! connection-level send window in bytes,
//!
//! ```text
//! rtts = RTT_S / RTT_F
//! X = MSS_F (CWND_F + (rtts - 1)/2) rtts
//! ```
//!
//! is what F would send during RTT_S. If lambda X > |M| - MSS_S (inflight_S + 1), the segment isn't sent on
//! S; F is waited for. lambda corrects X: head-of-line blocking during an RTT_F raises it by delta, none
//! lowers it by as much. It starts at 1.0.
//!
//! Rulings: rtts is a real number. `delta` is 0.01: the paper studies 0.001, 0.003, 0.005, 0.01 and 0.02
//! (Fig. 7) and names no default. Head-of-line blocking is the send window full with data unsent. One
//! correction per RTT_F that has passed, made when the scheduler next runs; a longer silence counts as one.
//! lambda stays within [0, 10], for a negative one means nothing. While F has no round-trip sample there is
//! no RTT_F and no correction. A wait asks again after RTT_F at the latest. The paper says it eliminates
//! opportunistic retransmission and penalisation: both are off.
//!
//! Readings of the correction, for lambda falls to 0 where nothing is ever blocked, and the rule is
//! `minrtt`'s then: `corrects` = `considered` takes note of an RTT_F only if the slow subflow was considered
//! in it; `floor` is the least lambda; blocking raises lambda by `rise` times delta, which is 4 in the
//! kernel's module (`dyn_lambda_bad` 40, `dyn_lambda_good` 10). In Fig. 7 lambda reaches a steady value above
//! 0.
//!
//! What is the send window: `window` = `receiver` is the window that the receiver leaves; `sender` counts the
//! send buffer as well, where it is smaller. A full send buffer with more to write blocks the connection as a
//! full window does: then F has room and nothing to send. With blest-2016's buffers (1 MiB to send, 2 MiB to
//! receive) nothing else ever blocks.
//!
//! What blocking is: `blocking` = `window` is the send window full with data unsent, as section V has it.
//! `retransmission`: another subflow's data was sent again, which Table II counts, and by which the authors'
//! kernel module corrects. `receiver`: the receiver holds data that it can't deliver, for data before it is
//! on another subflow; sections I and II call this head-of-line blocking.
//!
//! Preset `linux` is the out-of-tree kernel's module, in `blest/linux.rs`.
//!
//! Parameters: `lambda` (1; 0 to 10), `delta` (0.01; 0 to 1), `rise` (1; 0 to 100), `corrects` (`always`;
//! `considered`), `floor` (0; 0 to 10), `window` (`receiver`; `sender`), `blocking` (`window`;
//! `retransmission`, `receiver`), `estimate` (`paper`; `linux`), `opportunistic` and `penalise` (default
//! `off`; preset `linux`: `linux`).

mod linux;
#[cfg(test)]
mod tests;

use super::mechanisms::{LINUX, OFF, opportunistic, penalise, with_mechanisms};
use super::minrtt::send_on;
use super::text::{Kib, Ms, Subflow, no_room, nothing_to_send};
use super::{Decision, Event, Fate, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Kernel, Parameter, Preset};
use crate::{Span, SubflowId, Time};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "blest",
    summary: "skip the slow subflow if it would block the send window",
    source: "blest-2016 V; 5g-2019 III.E",
    parameters: &[
        Parameter::number("lambda", 1.0, (0.0, 10.0), "where the correction of the estimate starts"),
        Parameter::number("delta", 0.01, (0.0, 1.0), "how far one RTT of the fast subflow moves it"),
        Parameter::number("rise", 1.0, (0.0, 100.0), "how many times as far blocking moves it"),
        Parameter::choice(
            "corrects",
            0,
            &["always", "considered"],
            "in every RTT of the fast subflow, or only if the slow one was considered in it",
        ),
        Parameter::number("floor", 0.0, (0.0, 10.0), "the least correction"),
        Parameter::choice(
            "window",
            0,
            &["receiver", "sender"],
            "what the receiver leaves, or the send buffer as well",
        ),
        Parameter::choice(
            "blocking",
            0,
            &["window", "retransmission", "receiver"],
            "a full window, data sent again on another subflow, or data that the receiver can't deliver yet",
        ),
        Parameter::choice("estimate", 0, &["paper", "linux"], "whose estimate, and whose correction"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    presets: &[Preset {
        name: "linux",
        summary: "the out-of-tree kernel's estimate; retransmission and penalisation stay on",
        values: &[("lambda", 1.2), ("estimate", 1.0), ("opportunistic", LINUX), ("penalise", LINUX)],
    }],
    kernels: &[Kernel::MultipathTcp.has().since("0.95")],
    ..Entry::of(|values| {
        let lambda = values.number("lambda");
        if values.number("estimate") == 0.0 {
            let (delta, rise) = (values.number("delta"), values.number("rise"));
            let (always, floor) = (values.number("corrects") == 0.0, values.number("floor"));
            let buffer = values.number("window") == 1.0;
            let blocking = match values.number("blocking") {
                1.0 => Blocking::Retransmission,
                2.0 => Blocking::Receiver,
                _ => Blocking::Window,
            };
            with_mechanisms(
                values,
                Blest { lambda, delta, rise, always, floor, buffer, blocking, since: None, blocked: false },
            )
        } else {
            with_mechanisms(values, linux::BlestLinux::new(lambda))
        }
    })
};

/// What counts as head-of-line blocking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blocking {
    /// The send window is full, with data unsent.
    Window,
    /// Another subflow's data is sent again.
    Retransmission,
    /// The receiver holds data that it can't deliver.
    Receiver,
}

#[derive(Debug)]
struct Blest {
    lambda: f64,
    delta: f64,
    /// How many times delta blocking raises lambda.
    rise: f64,
    /// Whether every RTT_F counts.
    always: bool,
    floor: f64,
    /// Whether the send buffer counts as send window.
    buffer: bool,
    blocking: Blocking,
    /// When the RTT_F began that the next correction is for.
    since: Option<Time>,
    /// Whether there was blocking in it.
    blocked: bool,
}

/// X: the bytes that F sends during RTT_S, if its window is always filled and grows by one per RTT.
#[inline]
fn sent_meanwhile(fast: &SubflowMetrics, slow: &SubflowMetrics) -> f64 {
    let rtts =
        slow.rtt.smoothed.as_nanos() as f64 / fast.rtt.smoothed.max(Span::from_nanos(1)).as_nanos() as f64;
    f64::from(fast.mss) * (f64::from(fast.cwnd()) + (rtts - 1.0) / 2.0) * rtts
}

/// |M|, the send window of the whole connection, bytes. With `buffer`, a full send buffer counts if it is smaller.
#[inline]
fn send_window(view: &View<'_>, buffer: bool) -> u64 {
    if buffer && view.writer_waits {
        return view.send_window.min(view.written.saturating_sub(view.una));
    }
    view.send_window
}

/// What S would leave of the send window: |M| - MSS_S (inflight_S + 1), bytes.
#[inline]
fn left_by(window: u64, slow: &SubflowMetrics) -> f64 {
    window as f64 - f64::from(slow.mss) * (f64::from(slow.in_flight()) + 1.0)
}

/// Whether the receiver has data of `subflow` that it can't deliver: the first unacknowledged data is on
/// another subflow, and the first of `subflow`'s after it has arrived.
fn held_back(view: &View<'_>, subflow: SubflowId) -> bool {
    let Some(mut chunk) = view.in_flight.chunk_after(view.una) else { return false };
    if chunk.carried_by(subflow) {
        return false;
    }
    while let Some(next) = view.in_flight.chunk_after(chunk.offset + u64::from(chunk.len)) {
        if next.last == subflow {
            return view.fate(&next) == Fate::Arrived;
        }
        chunk = next;
    }
    false
}

/// Wait for `fast`, because `slow` would hold too much of the window.
fn wait(
    view: &View<'_>,
    fast: &SubflowMetrics,
    slow: &SubflowMetrics,
    need: f64,
    lambda: f64,
    rationale: &mut Rationale,
) -> Decision {
    rationale.say(|| {
        format!(
            "wait for {}: {} would hold {} of the {} window, {} is needed, lambda={lambda:.2}",
            Subflow(fast.id),
            Subflow(slow.id),
            Kib(u64::from(slow.mss) * (u64::from(slow.in_flight()) + 1)),
            Kib(view.send_window),
            Kib(need as u64),
        )
    });
    Decision::Wait { until: Some(view.now.saturating_add(fast.rtt.smoothed.max(Span::from_nanos(1)))) }
}

/// Send on `slow`: its share of the window leaves the fast one what it needs.
fn fits(slow: &SubflowMetrics, need: f64, left: f64, lambda: f64, rationale: &mut Rationale) -> Decision {
    rationale.say(|| {
        format!(
            "{} at {}: it leaves {} of the window, {} is needed, lambda={lambda:.2}",
            Subflow(slow.id),
            Ms(slow.rtt.smoothed),
            Kib(left as u64),
            Kib(need as u64),
        )
    });
    Decision::Send { subflow: slow.id, bytes: slow.mss }
}

impl Blest {
    /// One correction for each RTT_F that has passed.
    fn correct(&mut self, view: &View<'_>, fast: &SubflowMetrics) {
        if fast.rtt.smoothed == Span::ZERO {
            return;
        }
        self.blocked |= self.blocking == Blocking::Window && view.blocked();
        let since = *self.since.get_or_insert(view.now);
        if view.now.saturating_sub(since) < fast.rtt.smoothed {
            return;
        }
        let step = if self.blocked { self.delta * self.rise } else { -self.delta };
        self.lambda = (self.lambda + step).clamp(self.floor, 10.0);
        self.blocked = false;
        self.since = Some(view.now);
    }
}

impl Scheduler for Blest {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        let front = view.front();
        // Before the question whether anything can be sent: a full window is the blocking that counts.
        if let Some(fast) = front.usable.filter(|_| self.always) {
            self.correct(view, fast);
        }
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        let (Some(fast), Some(slow)) = (front.usable, front.available) else {
            return no_room(view, rationale);
        };
        if fast.id == slow.id {
            return send_on(fast, rationale);
        }
        if !self.always {
            self.correct(view, fast);
        }
        let need = self.lambda * sent_meanwhile(fast, slow);
        let left = left_by(send_window(view, self.buffer), slow);
        if need > left {
            wait(view, fast, slow, need, self.lambda, rationale)
        } else {
            fits(slow, need, left, self.lambda, rationale)
        }
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        self.blocked |= match (self.blocking, event) {
            (Blocking::Window, Event::WindowBlocked) => true,
            (Blocking::Window, Event::BufferBlocked) => self.buffer,
            (Blocking::Retransmission, Event::Reinjected(_)) => true,
            (Blocking::Receiver, Event::Acked { subflow, .. }) => !self.blocked && held_back(view, subflow),
            _ => false,
        };
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("lambda", self.lambda)]
    }
}
