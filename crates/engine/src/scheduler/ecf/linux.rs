//! ECF as the out-of-tree Linux kernel computes it (net/mptcp/mptcp_ecf.c, MPTCP 0.95).
//!
//! It differs from the paper in every number. k is memory: what the connection's buffer holds less what its
//! subflows' hold, and less the payload of what subflows have delivered and no DATA_ACK has acknowledged; it
//! counts as one window at least. sigma is twice RTTVAR. And as written products have 32 bits: a window times
//! a round-trip time in microseconds overflows from a few dozen segments on, so that the inequalities compare
//! remainders.
//!
//! Rulings: `linux-64-bits` doesn't overflow, and `linux-payload` counts unsent payload as well. A segment's
//! memory is a parameter, for both buffers. A wait has no time of its own: the next ACK asks again.

use crate::metrics::SubflowMetrics;
use crate::scheduler::minrtt::minrtt_or_wait;
use crate::scheduler::text::{Kib, Subflow};
use crate::scheduler::{Decision, Rationale, Scheduler, View};

#[derive(Debug)]
pub(super) struct EcfLinux {
    /// The kernel's r_beta, 1/beta.
    divisor: f64,
    wide: bool,
    /// Memory of a segment; none: payload counts.
    memory: Option<u32>,
    /// The kernel's switching_margin.
    waiting: bool,
}

impl EcfLinux {
    pub(super) fn new(beta: f64, wide: bool, memory: Option<u32>) -> Self {
        EcfLinux { divisor: if beta > 0.0 { 1.0 / beta } else { 1e9 }, wide, memory, waiting: false }
    }

    /// A product as the kernel has it.
    fn product(&self, a: u64, b: u64) -> f64 {
        if self.wide {
            u128::from(a).saturating_mul(u128::from(b)) as f64
        } else {
            f64::from((a as u32).wrapping_mul(b as u32))
        }
    }

    /// What the connection's buffer holds beyond what its subflows' hold, bytes.
    fn unsent(&self, view: &View<'_>, mss: u64) -> u64 {
        let Some(memory) = self.memory.map(u64::from) else { return view.unsent };
        let segments = |bytes: u64| bytes.div_ceil(mss);
        let sent = segments(view.next_offset.saturating_sub(view.una));
        let on_subflows: u64 = view
            .subflows
            .iter()
            .map(|subflow| u64::from(subflow.packets_out()) + u64::from(subflow.queued_segments()))
            .sum();
        let held = (segments(view.unsent) + sent).saturating_mul(memory);
        // Of data that was delivered and has no DATA_ACK yet the module takes off only the payload:
        // its overhead still counts as unsent.
        held.saturating_sub(on_subflows * memory + sent.saturating_sub(on_subflows) * mss)
    }

    fn weigh(
        &mut self,
        view: &View<'_>,
        fast: &SubflowMetrics,
        slow: &SubflowMetrics,
        rationale: &mut Rationale,
    ) -> Decision {
        let mss = u64::from(slow.mss.max(1));
        let unsent = self.unsent(view, mss);
        let window = |subflow: &SubflowMetrics| u64::from(subflow.cwnd()) * mss;
        let (window_f, window_s) = (window(fast), window(slow));
        let (srtt_f, srtt_s) = (fast.rtt.smoothed.as_micros(), slow.rtt.smoothed.as_micros());
        let delta = (2 * fast.rtt.var.max(slow.rtt.var)).as_micros();
        let left = self.product(srtt_f, unsent.max(window_f).saturating_add(window_f));
        let right = self.product(window_f, srtt_s.saturating_add(delta));
        let margin = if self.waiting { 1.0 } else { 0.0 };
        if self.divisor * left >= (self.divisor + margin) * right {
            self.waiting = false;
            rationale.say(|| {
                format!("{} as well: {} is too much for {}", Subflow(slow.id), Kib(unsent), Subflow(fast.id))
            });
            return Decision::Send { subflow: slow.id, bytes: slow.mss };
        }
        let alone = self.product(srtt_s, unsent.max(window_s));
        let waited = self.product(window_s, (2 * srtt_f).saturating_add(delta));
        if alone < waited {
            rationale
                .say(|| format!("{}: it takes {} sooner than waiting does", Subflow(slow.id), Kib(unsent)));
            return Decision::Send { subflow: slow.id, bytes: slow.mss };
        }
        self.waiting = true;
        rationale.say(|| format!("wait for {}: it finishes {} sooner", Subflow(fast.id), Kib(unsent)));
        Decision::Wait { until: None }
    }
}

impl Scheduler for EcfLinux {
    fn name(&self) -> &'static str {
        super::ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        minrtt_or_wait(view, rationale, |fast, slow, rationale| self.weigh(view, fast, slow, rationale))
    }

    fn waits_while_blocked(&mut self, view: &View<'_>) -> bool {
        let front = view.front();
        match (front.usable, front.available) {
            (Some(fast), Some(slow)) if fast.id != slow.id => {
                matches!(self.weigh(view, fast, slow, &mut Rationale::default()), Decision::Wait { .. })
            }
            _ => false,
        }
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("waiting", f64::from(u8::from(self.waiting)))]
    }
}
