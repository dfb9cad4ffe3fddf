//! Acknowledgements: cumulative and selective (RFC 5681, RFC 2018, RFC 2883), the round-trip and delivery-rate
//! samples that they give, and the growth of the window.

use std::ops::Range;

use ropewalk_wire::{Flags, Payload, SackBlocks, Segment, Seq};

use super::ack_summary::{AckSummary, Dsack};
use super::entry::{EVER_RETRANS, LOST, RETRANS, SACKED};
use crate::congestion::Ack;
use crate::tcp::context::clock;
use crate::tcp::timer::Timer;
use crate::tcp::{Context, Outcome, State, Subflow};
use crate::{MILLISECOND, Nanos};

impl<P: Payload> Subflow<P> {
    /// Processes the acknowledgement of an acceptable segment; false if it acknowledges what was never sent.
    #[inline]
    pub(in crate::tcp) fn process_ack(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        position: u64,
        outcome: &mut Outcome,
    ) -> bool {
        let ack = self.ack_position(segment.ack);
        if ack == self.snd_una && self.rtx.is_empty() && segment.sack.is_empty() {
            // A receiver of data hears nothing else.
            self.update_window(segment, position, ack);
            return true;
        }
        self.process_report(cx, segment, position, ack, outcome)
    }

    /// The same, while something is in flight or SACK blocks are there.
    #[inline(never)]
    fn process_report(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        position: u64,
        ack: u64,
        outcome: &mut Outcome,
    ) -> bool {
        let outside = ack.wrapping_sub(self.snd_una) > self.snd_nxt - self.snd_una;
        if outside && let Some(acceptable) = self.judge_outside_ack(cx, segment, ack) {
            return acceptable;
        }
        // Before anything we sent, `unfold` goes below zero.
        let ack = if ack >= 1 << 63 { 0 } else { ack };
        let advanced = !outside && ack > self.snd_una;
        let window_moved = !outside && self.update_window(segment, position, ack);
        if !advanced && self.rtx.is_empty() && segment.sack.is_empty() {
            return true;
        }
        let duplicate = !advanced
            && !outside
            && !window_moved
            && segment.payload.is_empty()
            //= RFC 8684 3-1 3.4.1-13 4-2 one that carries an option for its own sake says nothing of the network
            && segment.rare.is_none()
            && !segment.flags.contains(Flags::FIN)
            && !self.rtx.is_empty();
        let prior_in_flight = cx.metrics[cx.index].in_flight();
        let mut summary =
            if advanced { self.on_cumulative_ack(cx, segment, ack) } else { AckSummary::default() };
        (summary.advanced, summary.duplicate) = (advanced, duplicate);
        summary.ece = self.ecn && segment.flags.contains(Flags::ECE);
        if !segment.sack.is_empty() && self.sack {
            self.on_sack(cx, segment, ack, &mut summary);
        }
        self.on_ack(cx, segment, ack, &mut summary, prior_in_flight, outcome);
        true
    }

    /// An ACK of nothing that is in flight: whether it is acceptable, or `None` if its SACK blocks still count.
    #[cold]
    pub(in crate::tcp) fn judge_outside_ack(
        &mut self,
        cx: &Context<'_>,
        segment: &Segment<P>,
        ack: u64,
    ) -> Option<bool> {
        let old = ack < self.snd_una || ack >= 1 << 63;
        //= RFC 9293 3.10.7.4 an ACK of something not yet sent is answered with an ACK
        //= RFC 5961 5.2 an ACK older than the largest window ever seen is challenged
        if !old || self.snd_una.wrapping_sub(ack) > self.max_window {
            self.challenge(cx);
            return Some(false);
        }
        segment.sack.is_empty().then_some(true)
    }

    /// What follows from an ACK: RACK, the samples of round-trip time and delivery rate, recovery, the growth of the window,
    /// timers, and states.
    #[inline]
    fn on_ack(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        ack: u64,
        summary: &mut AckSummary,
        prior_in_flight: u32,
        outcome: &mut Outcome,
    ) {
        if summary.segments > 0 {
            let reordered = summary.first_original_end.is_some_and(|end| end < self.rack.fack);
            if self.rack.on_delivered(cx.now, summary, reordered && self.sack) {
                self.counters.sack_reorder += 1;
            }
            self.sample(cx, segment, summary);
            cx.metrics().last_progress = cx.now;
        }
        outcome.acked_bytes += summary.bytes;
        self.recover(cx, segment, ack, summary, prior_in_flight, outcome);
        //= RFC 5681 3.2 without SACK a duplicate ACK stands for a segment too, so that another may leave (RFC 3042)
        outcome.acked_segments += summary.segments;
        if summary.advanced {
            if !summary.reneged {
                self.arm_retransmit(cx);
                self.arm_probe(cx);
            }
            self.after_advance(cx, outcome);
        }
    }

    /// RFC 9293 3.10.7.4: takes the window, but not from an old segment. Returns whether it changed.
    #[inline]
    pub(in crate::tcp) fn update_window(&mut self, segment: &Segment<P>, position: u64, ack: u64) -> bool {
        if ack < self.snd_una
            || !(position > self.snd_wl1 || (position == self.snd_wl1 && ack >= self.snd_wl2))
        {
            return false;
        }
        //= RFC 9293 MUST-34 smaller or larger than the last
        let window = u64::from(segment.window) << self.peer_shift;
        let moved = window != self.snd_wnd;
        if window > 0 && self.persist_backoff + u32::from(self.snd_wnd == 0) > 0 {
            self.timers.stop(Timer::Persist);
            self.persist_backoff = 0;
        }
        self.snd_wnd = window;
        self.max_window = self.max_window.max(window);
        self.snd_wl1 = position;
        self.snd_wl2 = ack;
        moved
    }

    /// Takes what `ack` covers off the scoreboard.
    #[inline]
    fn on_cumulative_ack(&mut self, cx: &mut Context<'_>, segment: &Segment<P>, ack: u64) -> AckSummary {
        let (tcp, now) = (cx.tcp, cx.now);
        let metrics = &mut cx.metrics[cx.index];
        let min_rtt = metrics.min_rtt;
        let echo = segment.timestamps.filter(|_| self.timestamps).map(|stamp| stamp.echo);
        // RFC 8985 6.2 step 2: not if it may have been an earlier transmission that arrived.
        let mut summary = self.rtx.cumulative_ack(ack, metrics, |sent_at| {
            let earlier = echo.is_some_and(|echo| (echo.wrapping_sub(clock(tcp, sent_at)) as i32) < 0);
            !earlier && now.saturating_sub(sent_at) >= min_rtt
        });
        if !self.sack {
            // Duplicate ACKs have told of some of it already.
            let removed = summary.removed;
            summary.segments = removed.saturating_sub(metrics.sacked_out).max(removed.min(1));
            let left = metrics.sacked_out.saturating_sub(removed.saturating_sub(1));
            metrics.sacked_out = left.min(metrics.packets_out - metrics.lost_out);
        }
        metrics.bytes_acked += summary.bytes;
        self.snd_una = ack;
        self.retransmits = 0;
        self.on_mtu_confirmed();
        summary
    }

    /// Marks what the SACK blocks cover.
    #[inline]
    fn on_sack(&mut self, cx: &mut Context<'_>, segment: &Segment<P>, ack: u64, summary: &mut AckSummary) {
        // Mostly one block of whole segments beyond the ACK.
        if let [(left, right)] = *segment.sack.as_slice() {
            let (left, right) = (self.unfold_sack(left), self.unfold_sack(right));
            if ack <= left
                && left < right
                && right <= self.snd_nxt
                && let Some(range) = self.rtx.even_range(left, right)
            {
                return self.mark_range(cx, range, summary);
            }
        }
        self.on_any_sack(cx, segment, ack, summary);
    }

    /// Marks entries of which some may be marked already.
    #[inline]
    fn mark_range(&mut self, cx: &mut Context<'_>, mut range: Range<usize>, summary: &mut AckSummary) {
        while let Some(index) = self.rtx.next_unsacked(range.clone()) {
            self.mark_sacked_here(cx, index, summary);
            range.start = index + 1;
        }
    }

    /// The same, whatever they cover.
    #[inline(never)]
    fn on_any_sack(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        ack: u64,
        summary: &mut AckSummary,
    ) {
        let blocks = &segment.sack;
        // One block beyond the ACK is no DSACK.
        if blocks.len() > 1 || blocks.as_slice().first().is_some_and(|first| self.unfold_sack(first.0) < ack)
        {
            summary.dsack = self.dsack(cx, blocks, ack);
        }
        if let Some(dsack) = summary.dsack {
            self.undo.on_dsack(dsack.end, dsack.segments);
            let of_probe = self.tlp.retransmitted && dsack.end == self.tlp.high;
            if !of_probe {
                self.rack.on_dsack(self.snd_una, self.snd_nxt);
            }
        }
        // In order, so that what one ACK tells of several holes doesn't look like reordering.
        let mut list = [(0u64, 0u64); 4];
        let mut count = 0;
        for &(left, right) in &blocks.as_slice()[usize::from(summary.dsack.is_some())..] {
            let (left, right) = (self.unfold_sack(left), self.unfold_sack(right));
            if left >= right || right > self.snd_nxt || right <= self.snd_una {
                continue;
            }
            let mut at = count;
            while at > 0 && list[at - 1].0 >= left {
                list[at] = list[at - 1];
                at -= 1;
            }
            list[at] = (left.max(self.snd_una), right);
            count += 1;
        }
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
                if entry.is(SACKED) {
                    index += 1;
                    continue;
                }
                if entry.position < from {
                    self.rtx.split(index, from, cx.metrics());
                    index += 1;
                    continue;
                }
                if entry.end() > right {
                    self.rtx.split(index, right, cx.metrics());
                    if self.rtx.get(index).is_some_and(|entry| entry.end() > right) {
                        break;
                    }
                }
                if self.mark_sacked(cx, index, summary) >= right {
                    break;
                }
                index += 1;
            }
        }
        self.recovery.sack_cache = list;
    }

    #[inline]
    fn unfold_sack(&self, wire: u32) -> u64 {
        Seq(wire.wrapping_sub(self.isn)).unfold(self.snd_una)
    }

    /// The first block is a DSACK if it lies below the cumulative ACK or within the second (RFC 2883 4), and counts
    /// only if so much was sent twice (Linux's guard against duplicates that the network makes).
    #[inline(never)]
    fn dsack(&mut self, cx: &Context<'_>, blocks: &SackBlocks, ack: u64) -> Option<Dsack> {
        let (left, right) = *blocks.as_slice().first()?;
        let (left, right) = (self.unfold_sack(left), self.unfold_sack(right));
        if left >= right || right > self.snd_nxt {
            return None;
        }
        if left < ack {
            self.counters.dsack_recv += 1;
        } else {
            let (l, r) = *blocks.as_slice().get(1)?;
            if left < self.unfold_sack(l) || right > self.unfold_sack(r) {
                return None;
            }
            self.counters.dsack_ofo_recv += 1;
        }
        let metrics = &cx.metrics[cx.index];
        let segments = (right - left).div_ceil(u64::from(metrics.mss.max(1))) as u32;
        self.dsacked += u64::from(segments);
        if self.dsacked > metrics.retrans_total {
            self.counters.dsack_ignored += 1;
            return None;
        }
        Some(Dsack { end: right, segments })
    }

    /// One that wasn't before; where it ends.
    #[inline(never)]
    fn mark_sacked(&mut self, cx: &mut Context<'_>, index: usize, summary: &mut AckSummary) -> u64 {
        self.mark_sacked_here(cx, index, summary)
    }

    #[inline(always)]
    fn mark_sacked_here(&mut self, cx: &mut Context<'_>, index: usize, summary: &mut AckSummary) -> u64 {
        let entry = self.rtx.mark_sacked(index);
        let metrics = &mut cx.metrics[cx.index];
        metrics.sacked_out += entry.segments;
        if entry.is(LOST) {
            metrics.lost_out -= entry.segments;
        }
        if entry.is(RETRANS) {
            metrics.retrans_out -= entry.segments;
        }
        entry.flags &= !(LOST | RETRANS);
        summary.newly_sacked = true;
        let (now, min_rtt) = (cx.now, metrics.min_rtt);
        if entry.is(EVER_RETRANS) {
            summary.deliver_retransmitted(entry, now.saturating_sub(entry.sent_at) >= min_rtt);
        } else {
            summary.deliver_originals(entry, entry, entry.segments);
            summary.first_sacked.get_or_insert(entry.sent_at);
            if summary.first_acked.is_none() {
                summary.last_at = entry.sent_at;
            }
        }
        entry.end()
    }

    /// Round-trip time and delivery rate from what was delivered.
    #[inline]
    fn sample(&mut self, cx: &mut Context<'_>, segment: &Segment<P>, summary: &mut AckSummary) {
        let now = cx.now;
        //= RFC 9293 MUST-18
        // Karn: what was sent again gives no sample, but a timestamp can tell which transmission arrived.
        let first_acked = summary.first_acked.filter(|_| !summary.over_retransmission);
        let (rtt, last) = match first_acked.or(summary.first_sacked) {
            Some(first_at) => (Some(now.saturating_sub(first_at)), Some(now.saturating_sub(summary.last_at))),
            None => {
                let rtt = if summary.advanced { self.timestamp_rtt(cx, segment) } else { None };
                (rtt, rtt)
            }
        };
        summary.last_rtt = last;
        if let (Some(rtt), Some(last)) = (rtt, last) {
            let (tcp, metrics) = (cx.tcp, &mut cx.metrics[cx.index]);
            self.rtt.sample(metrics, tcp, now, rtt, last);
            //= RFC 6298 5.7 the backoff holds until there is a sample
            self.backoff = 0;
        }
        let metrics = &mut cx.metrics[cx.index];
        metrics.delivered += u64::from(summary.segments);
        summary.round_start = self.rate.on_delivered(metrics, now, &summary.rate);
    }

    /// The round-trip time by the timestamp that the segment echoes (RFC 7323 4); its clock ticks in milliseconds.
    #[inline(never)]
    pub(in crate::tcp) fn timestamp_rtt(&self, cx: &Context<'_>, segment: &Segment<P>) -> Option<Nanos> {
        let stamp = segment.timestamps.filter(|stamp| self.timestamps && stamp.echo != 0)?;
        let ticks = self.timestamp(cx).wrapping_sub(stamp.echo);
        (ticks < 1 << 20).then(|| u64::from(ticks.max(1)) * MILLISECOND)
    }

    /// Growth in the absence of loss.
    #[inline]
    pub(in crate::tcp) fn grow(&mut self, cx: &mut Context<'_>, summary: &AckSummary, prior_in_flight: u32) {
        let ack = Ack {
            now: cx.now,
            acked: summary.segments,
            rtt: summary.last_rtt,
            prior_in_flight,
            cwnd_limited: self.cwnd_validation.limited(&cx.metrics[cx.index]),
            round_start: summary.round_start,
        };
        cx.congestion.on_ack(cx.metrics, cx.index, &ack);
    }

    /// Linux's pacing rate: 200 % of cwnd / srtt in slow start, 120 % after (`tcp_update_pacing_rate`). Before
    /// the first sample, as when the SYN was repeated, Linux leaves the division out, which is as if srtt were
    /// its unit, an eighth of a microsecond.
    #[inline]
    pub(in crate::tcp) fn update_pacing(&self, cx: &mut Context<'_>) {
        let sets_own = cx.congestion.sets_pacing_rate();
        let metrics = cx.metrics();
        if sets_own {
            return;
        }
        let percent = if metrics.cwnd < metrics.ssthresh / 2 { 200 } else { 120 };
        let window = u64::from(metrics.cwnd.max(metrics.packets_out)) * u64::from(metrics.mss);
        // 10^7 = nanoseconds per second / 100 %.
        metrics.pacing_rate = window.saturating_mul(percent * 10_000_000) / metrics.srtt.max(125);
    }

    /// States after `snd_una` moved.
    #[inline]
    fn after_advance(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
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
}
