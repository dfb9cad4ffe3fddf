//! Tail loss probes (RFC 8985 7), with Linux's timer: two round trips after the last transmission or ACK, plus the
//! least RTO when a lone segment may meet a delayed ACK, never later than the RTO itself. The probe is new data if
//! there is any, else the last segment again; one is out at a time.

use ropewalk_wire::{Payload, Segment};

use super::ack_summary::AckSummary;
use super::entry::SACKED;
use crate::MILLISECOND;
use crate::metrics::CaState;
use crate::tcp::timer::Timer;
use crate::tcp::{Context, Subflow, Transmit};

/// What Linux adds to two round trips for its timers' grain (`TCP_TIMEOUT_MIN`).
const GRAIN: u64 = 2 * MILLISECOND;

/// The probe that is out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tlp {
    /// TLP.end_seq: what was sent when the probe left; 0: none is out.
    pub high: u64,
    /// TLP.is_retrans.
    pub retransmitted: bool,
}

impl<P: Payload> Subflow<P> {
    /// Arms the probe, after the retransmission timer (RFC 8985 7.2).
    #[inline(always)]
    pub(in crate::tcp) fn arm_probe(&mut self, cx: &Context<'_>) {
        let metrics = &cx.metrics[cx.index];
        if !cx.tcp.tail_loss_probe
            || !self.sack
            || self.rtx.is_empty()
            || self.tlp.high != 0
            || !matches!(metrics.ca_state, CaState::Open | CaState::Cwr)
        {
            self.timers.stop(Timer::Probe);
            return;
        }
        let allowance = if metrics.packets_out == 1 { cx.tcp.min_rto } else { GRAIN };
        let wait = if metrics.srtt == 0 { cx.tcp.initial_rto } else { 2 * metrics.srtt + allowance };
        let probe = cx.now + wait;
        let rto = self.timers.get(Timer::Retransmit).unwrap_or(probe);
        self.timers.set(Timer::Probe, probe.min(rto));
    }

    /// The probe is due (RFC 8985 7.3): it goes out at the next opportunity, and the RTO counts from now.
    #[cold]
    pub(in crate::tcp) fn on_probe_timer(&mut self, cx: &Context<'_>) {
        if self.rtx.is_empty() || self.tlp.high != 0 {
            return;
        }
        self.probe_pending = true;
        self.arm_retransmit(cx);
    }

    /// Whether a probe is due for which the subflow's queue has no new data.
    #[inline]
    pub(crate) fn lacks_probe_data(&self) -> bool {
        self.probe_pending && self.queue.is_empty()
    }

    #[cold]
    pub(in crate::tcp) fn transmit_probe(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Segment<P>,
    ) -> Option<Transmit> {
        if self.rtx.is_empty() {
            return None;
        }
        if let Some(transmit) = self.transmit_new(cx, 1, true, out) {
            self.note_probe(false);
            return Some(transmit);
        }
        let index = self.rtx.back_index()?;
        let mss = cx.metrics[cx.index].mss;
        let entry = self.rtx.get(index)?;
        if entry.is(SACKED) {
            return None;
        }
        let index = if entry.payload.len() as u64 > u64::from(mss) {
            let at = entry.end() - u64::from(mss);
            self.rtx.split(index, at, cx.metrics());
            index + 1
        } else {
            index
        };
        self.note_probe(true);
        Some(self.send_again(cx, index, out))
    }

    fn note_probe(&mut self, retransmitted: bool) {
        self.tlp = Tlp { high: self.snd_nxt, retransmitted };
        self.counters.loss_probes += 1;
        self.timers.stop(Timer::Probe);
    }

    /// What an ACK says of the probe (RFC 8985 7.4): whether it repaired a loss, which costs the window its half.
    #[inline(never)]
    pub(in crate::tcp) fn on_probe_ack(&mut self, cx: &mut Context<'_>, ack: u64, summary: &AckSummary) {
        if ack < self.tlp.high {
            return;
        }
        if !self.tlp.retransmitted || summary.dsack.is_some_and(|dsack| dsack.end == self.tlp.high) {
            // New data needed no repair; a DSACK says that the original arrived too.
            self.tlp.high = 0;
        } else if ack > self.tlp.high {
            self.counters.loss_probe_recovery += 1;
            self.begin_reduction(cx, crate::congestion::LossCause::FastRetransmit);
            cx.metrics().ca_state = CaState::Cwr;
            self.end_reduction(cx);
            self.keep_open(cx);
        } else if summary.duplicate && !summary.newly_sacked {
            self.tlp.high = 0;
        }
    }
}
