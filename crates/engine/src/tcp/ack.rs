//! Acknowledgements: cumulative and selective (RFC 5681, RFC 2018, RFC 2883), round-trip samples, delivery rate
//! (draft-cheng-iccrg-delivery-rate-estimation) and what they mean for the window.

use ropewalk_wire::{Flags, Payload, SackBlocks, Segment, Seq};

use super::scoreboard::{APP_LIMITED, EVER_RETRANS, LOST, RETRANS, SACKED};
use super::timer::Timer;
use super::{Context, Outcome, State, Subflow};
use crate::congestion::Ack;
use crate::flow::Phase;
use crate::{Nanos, SECOND};

/// What one ACK delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivery {
    /// Segments newly delivered, cumulatively or selectively.
    pub segments: u32,
    /// Latest transmission among them: when, its end, whether it was a retransmission.
    pub latest: Option<(Nanos, u64)>,
    pub rtt: Option<Nanos>,
    /// Delivery-rate state of the latest.
    pub prior: (u64, Nanos, Nanos),
    pub app_limited: bool,
    /// An entry that had never been retransmitted was delivered below the highest sacked: reordering.
    pub reordered: bool,
    /// The cumulative ACK moved over a retransmitted entry.
    pub over_retransmission: bool,
}

impl<P: Payload> Subflow<P> {
    /// Processes the acknowledgement of an acceptable segment; false if it acknowledges what was never sent.
    #[inline]
    pub(super) fn on_ack(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        position: u64,
        outcome: &mut Outcome,
    ) -> bool {
        let ack = self.ack_position(segment.ack);
        if ack > self.snd_nxt {
            //= RFC 9293 3.10.7.4 an ACK of something not yet sent is answered with an ACK
            if ack < 1 << 63 {
                self.ack_now = true;
                return false;
            }
            // Before anything we sent: as old as can be.
            return true;
        }
        // RFC 9293 3.10.7.4: window update, not from old segments.
        if ack >= self.snd_una
            && (position > self.snd_wl1 || (position == self.snd_wl1 && ack >= self.snd_wl2))
        {
            let window = u64::from(segment.window) << self.peer_shift;
            if self.snd_wnd == 0 && window > 0 {
                self.timers.stop(Timer::Persist);
            }
            self.snd_wnd = window;
            self.snd_wl1 = position;
            self.snd_wl2 = ack;
        }
        if ack < self.snd_una {
            return true;
        }
        let advanced = ack > self.snd_una;
        if !advanced && self.rtx.is_empty() {
            return true;
        }
        let prior_in_flight = cx.flows[cx.index].in_flight();
        let mut delivery = Delivery::default();
        if advanced {
            self.cumulative(cx, ack, &mut delivery, outcome);
        }
        let mut dsack = false;
        if !segment.sack.is_empty() && self.sack {
            dsack = self.selective(cx, ack, &segment.sack, &mut delivery);
        }
        if delivery.segments > 0 {
            self.sample(cx, segment, &mut delivery);
            outcome.acked_segments += delivery.segments;
            cx.flow().last_progress = cx.now;
        }
        self.recover(cx, segment, ack, advanced, dsack, &delivery, prior_in_flight, outcome);
        if advanced {
            self.after_advance(cx, outcome);
        }
        true
    }

    /// Pops what `ack` covers.
    #[inline]
    fn cumulative(&mut self, cx: &mut Context<'_>, ack: u64, delivery: &mut Delivery, outcome: &mut Outcome) {
        let mss = cx.flows[cx.index].mss;
        while let Some(entry) = self.rtx.pop_before(ack, mss) {
            let flow = &mut cx.flows[cx.index];
            flow.packets_out -= entry.segments;
            if entry.is(SACKED) {
                flow.sacked_out -= entry.segments;
            } else {
                delivery.segments += entry.segments;
                if entry.position < self.recovery.highest_sacked && !entry.is(EVER_RETRANS) {
                    delivery.reordered = true;
                }
                note_delivered(delivery, &entry, cx.now);
            }
            if entry.is(LOST) {
                flow.lost_out -= entry.segments;
            }
            if entry.is(RETRANS) {
                flow.retrans_out -= entry.segments;
            }
            if entry.is(EVER_RETRANS) {
                delivery.over_retransmission = true;
            }
            outcome.acked_bytes += entry.payload.len() as u64;
        }
        cx.flow().bytes_acked += outcome.acked_bytes;
        self.snd_una = ack;
        self.backoff = 0;
    }

    /// Marks what the SACK blocks cover; returns whether the first is a DSACK (RFC 2883 4).
    fn selective(
        &mut self,
        cx: &mut Context<'_>,
        ack: u64,
        blocks: &SackBlocks,
        delivery: &mut Delivery,
    ) -> bool {
        let unfold = |wire: u32| Seq(wire.wrapping_sub(self.isn)).unfold(self.snd_una);
        let mut list = [(0u64, 0u64); 4];
        let mut count = 0;
        let mut dsack = false;
        for (index, (left, right)) in blocks.as_slice().iter().enumerate() {
            let (left, right) = (unfold(*left), unfold(*right));
            if left >= right || right > self.snd_nxt {
                continue;
            }
            let inside_next = index == 0
                && blocks.as_slice().get(1).is_some_and(|(l, r)| left >= unfold(*l) && right <= unfold(*r));
            if index == 0 && (right <= ack || inside_next) {
                dsack = true;
                self.counters.dsack_received += 1;
                continue;
            }
            if right <= ack {
                continue;
            }
            list[count] = (left.max(ack), right);
            count += 1;
        }
        let mss = cx.flows[cx.index].mss;
        let previous = self.recovery.sack_cache;
        for &(left, right) in &list[..count] {
            // What an earlier ACK reported needn't be walked again.
            let mut from = left;
            for (l, r) in previous {
                if l <= from && from < r {
                    from = r.min(right);
                }
            }
            if from >= right {
                continue;
            }
            let mut index = self.rtx.index_at(from);
            while let Some(entry) = self.rtx.get(index) {
                if entry.position >= right {
                    break;
                }
                if entry.position < from && !entry.is(SACKED) {
                    self.rtx.split(index, from, mss);
                    index += 1;
                    continue;
                }
                if entry.end() > right && !entry.is(SACKED) {
                    self.rtx.split(index, right, mss);
                    if self.rtx.get(index).is_some_and(|entry| entry.end() > right) {
                        break;
                    }
                }
                self.mark_sacked(cx, index, delivery);
                index += 1;
            }
        }
        self.recovery.sack_cache = list;
        dsack
    }

    fn mark_sacked(&mut self, cx: &mut Context<'_>, index: usize, delivery: &mut Delivery) {
        let highest = self.recovery.highest_sacked;
        let entry = self.rtx.get_mut(index);
        if entry.is(SACKED) {
            return;
        }
        let flow = &mut cx.flows[cx.index];
        flow.sacked_out += entry.segments;
        if entry.is(LOST) {
            flow.lost_out -= entry.segments;
        }
        if entry.is(RETRANS) {
            flow.retrans_out -= entry.segments;
        }
        entry.flags = (entry.flags | SACKED) & !(LOST | RETRANS);
        delivery.segments += entry.segments;
        if entry.position < highest && !entry.is(EVER_RETRANS) {
            delivery.reordered = true;
        }
        let end = entry.end();
        let entry = &self.rtx.get(index).cloned();
        if let Some(entry) = entry {
            note_delivered(delivery, entry, cx.now);
        }
        self.recovery.highest_sacked = highest.max(end);
    }

    /// Round-trip time and delivery rate from what was delivered.
    #[inline]
    fn sample(&mut self, cx: &mut Context<'_>, segment: &Segment<P>, delivery: &mut Delivery) {
        let now = cx.now;
        if delivery.rtt.is_none() && delivery.over_retransmission {
            // Karn: only a timestamp can tell which transmission is acknowledged; its clock ticks in ms.
            if let (true, Some(stamp)) = (self.timestamps, segment.timestamps) {
                let ticks = self.timestamp(cx).wrapping_sub(stamp.echo);
                if stamp.echo != 0 && ticks > 0 && ticks < 1 << 20 {
                    delivery.rtt = Some(u64::from(ticks) * crate::MILLISECOND);
                }
            }
        }
        if let Some(rtt) = delivery.rtt {
            let (tcp, flow) = (cx.tcp, &mut cx.flows[cx.index]);
            self.rtt.sample(flow, tcp, now, rtt);
        }
        let flow = &mut cx.flows[cx.index];
        flow.delivered += u64::from(delivery.segments);
        let (prior_delivered, prior_at, first_sent) = delivery.prior;
        if let Some((sent_at, _)) = delivery.latest {
            let send_elapsed = sent_at.saturating_sub(first_sent);
            let ack_elapsed = now.saturating_sub(prior_at);
            let interval = send_elapsed.max(ack_elapsed);
            // Shorter than the least RTT is an artefact of ACK compression.
            if interval > 0 && interval >= flow.min_rtt {
                let segments = flow.delivered - prior_delivered;
                let rate = (segments * u64::from(flow.mss)).saturating_mul(SECOND) / interval;
                if !delivery.app_limited || rate > flow.delivery_rate {
                    flow.delivery_rate = rate;
                }
            }
            self.first_sent_at = sent_at;
        }
        self.delivered_at = now;
    }

    /// Growth in the absence of loss.
    #[inline]
    pub(super) fn grow(&mut self, cx: &mut Context<'_>, delivery: &Delivery, prior_in_flight: u32) {
        let round_start = delivery.prior.0 >= self.round_delivered && delivery.latest.is_some();
        let flow = &cx.flows[cx.index];
        if round_start {
            self.round_delivered = flow.delivered;
        }
        let cwnd_limited =
            prior_in_flight >= flow.cwnd || (flow.in_slow_start() && flow.cwnd < 2 * prior_in_flight);
        let ack = Ack {
            now: cx.now,
            acked: delivery.segments,
            rtt: delivery.rtt,
            prior_in_flight,
            cwnd_limited,
            round_start,
        };
        cx.congestion.on_ack(cx.flows, cx.index, &ack);
    }

    /// Linux's pacing rate: 200 % of cwnd / srtt in slow start, 120 % after (`tcp_update_pacing_rate`). Before
    /// the first sample, as when the SYN was repeated, Linux leaves the division out, which is as if srtt were
    /// its unit, an eighth of a microsecond.
    #[inline]
    pub(super) fn update_pacing(&self, cx: &mut Context<'_>) {
        let sets_own = cx.congestion.sets_pacing_rate();
        let flow = cx.flow();
        if sets_own {
            return;
        }
        let percent = if flow.cwnd < flow.ssthresh / 2 { 200 } else { 120 };
        let window = u64::from(flow.cwnd.max(flow.packets_out)) * u64::from(flow.mss);
        // 10^7 = nanoseconds per second / 100 %.
        flow.pacing_rate = window.saturating_mul(percent * 10_000_000) / flow.srtt.max(125);
    }

    /// Timers and states after `snd_una` moved.
    #[inline]
    fn after_advance(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        self.arm_retransmit(cx);
        self.arm_probe(cx);
        if self.fin_sent && self.snd_una == self.snd_nxt && self.rtx.is_empty() {
            match self.state {
                State::FinWait1 => self.state = State::FinWait2,
                State::Closing => self.enter_time_wait(cx),
                State::LastAck => {
                    self.become_closed();
                    outcome.closed = true;
                }
                _ => {}
            }
        }
    }

    /// Whether the segment carries an ECN echo that counts: once per window of data.
    #[inline]
    pub(super) fn ece_counts(&self, segment: &Segment<P>) -> bool {
        self.ecn && segment.flags.contains(Flags::ECE) && self.snd_una > self.ece_seen_until
    }
}

#[inline]
fn note_delivered<P: Payload>(delivery: &mut Delivery, entry: &super::scoreboard::Entry<P>, now: Nanos) {
    let key = (entry.sent_at, entry.end());
    if delivery.latest.is_none_or(|latest| key > latest) {
        delivery.latest = Some(key);
        delivery.prior = (entry.delivered, entry.delivered_at, entry.first_sent_at);
        delivery.app_limited = entry.is(APP_LIMITED);
        if !entry.is(EVER_RETRANS) {
            delivery.rtt = Some(now.saturating_sub(entry.sent_at));
        }
    }
}

/// Whether a phase lets the window grow by the congestion control's rule.
#[inline]
pub(super) fn grows(phase: Phase) -> bool {
    matches!(phase, Phase::Open | Phase::Disorder | Phase::Loss)
}
