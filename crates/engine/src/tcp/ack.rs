//! Acknowledgements: cumulative and selective (RFC 5681, RFC 2018, RFC 2883), the round-trip and delivery-rate
//! samples that they give, and the growth of the window.

use std::ops::Range;

use ropewalk_wire::{Flags, Payload, SackBlocks, Segment, Seq};

use super::rate::Sample;
use super::scoreboard::{APP_LIMITED, EVER_RETRANS, LOST, Mark, RETRANS, SACKED};
use super::timer::Timer;
use super::{Context, Outcome, State, Subflow, clock};
use crate::congestion::Ack;
use crate::{MILLISECOND, Nanos};

/// A DSACK (RFC 2883).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Dsack {
    /// Where the duplicate ends.
    pub end: u64,
    /// How many segments it comes to.
    pub segments: u32,
}

/// What one ACK says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivery {
    /// Segments newly delivered, cumulatively or selectively.
    pub segments: u32,
    /// The cumulative ACK moved.
    pub advanced: bool,
    /// Something was newly sacked.
    pub newly_sacked: bool,
    /// Something that was never sent again was delivered, of what was sent before the recovery began.
    pub original: bool,
    /// The cumulative ACK moved over something that was sent again.
    pub over_retransmission: bool,
    /// A duplicate ACK in RFC 5681's sense: nothing but the same number again.
    pub duplicate: bool,
    /// The peer echoes a congestion mark.
    pub ece: bool,
    /// A retransmission was judged lost.
    pub lost_retransmission: bool,
    pub dsack: Option<Dsack>,
    /// Sample of the first and the last segment that was newly acknowledged, and of the first newly sacked.
    pub first_rtt: Option<Nanos>,
    pub last_rtt: Option<Nanos>,
    pub sacked_rtt: Option<Nanos>,
    pub rate: Sample,
    /// A round trip began with it.
    pub round_start: bool,
    /// What was sacked isn't there any more: the timer is set already.
    pub reneged: bool,
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
        if ack == self.snd_una && self.rtx.is_empty() && segment.sack.is_empty() {
            // A receiver of data hears nothing else.
            self.update_window(segment, position, ack);
            return true;
        }
        self.take_ack(cx, segment, position, ack, outcome)
    }

    #[inline(never)]
    pub(super) fn take_ack(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        position: u64,
        ack: u64,
        outcome: &mut Outcome,
    ) -> bool {
        // Before anything we sent, `unfold` goes below zero.
        let old = ack < self.snd_una || ack >= 1 << 63;
        if ack > self.snd_nxt && !old {
            //= RFC 9293 3.10.7.4 an ACK of something not yet sent is answered with an ACK
            self.challenge(cx);
            return false;
        }
        //= RFC 5961 5.2 an ACK older than the largest window ever seen is challenged
        if old && self.snd_una.wrapping_sub(ack) > self.max_window {
            self.challenge(cx);
            return false;
        }
        if old && segment.sack.is_empty() {
            return true;
        }
        let ack = if ack >= 1 << 63 { 0 } else { ack };
        let mut delivery = Delivery { advanced: ack > self.snd_una, ..Delivery::default() };
        let window_moved = self.update_window(segment, position, ack);
        if !delivery.advanced && self.rtx.is_empty() && segment.sack.is_empty() {
            return true;
        }
        delivery.ece = self.ecn && segment.flags.contains(Flags::ECE);
        delivery.duplicate = !delivery.advanced
            && !old
            && !window_moved
            && segment.payload.is_empty()
            //= RFC 8684 3-1 3.4.1-13 4-2 one that carries an option for its own sake says nothing of the network
            && segment.rare.is_none()
            && !segment.flags.contains(Flags::FIN)
            && !self.rtx.is_empty();
        let prior_in_flight = cx.metrics[cx.index].in_flight();
        if delivery.advanced {
            self.cumulative(cx, segment, ack, &mut delivery, outcome);
        }
        if !segment.sack.is_empty() && self.sack {
            self.selective(cx, segment, ack, &mut delivery);
        }
        if delivery.segments > 0 {
            self.sample(cx, segment, &mut delivery);
            outcome.acked_segments += delivery.segments;
            cx.metrics().last_progress = cx.now;
        }
        self.recover(cx, segment, ack, &mut delivery, prior_in_flight, outcome);
        if delivery.advanced {
            if !delivery.reneged {
                self.arm_retransmit(cx);
                self.arm_probe(cx);
            }
            self.after_advance(cx, outcome);
        }
        true
    }

    /// RFC 9293 3.10.7.4: takes the window, but not from an old segment. Returns whether it changed.
    #[inline]
    pub(super) fn update_window(&mut self, segment: &Segment<P>, position: u64, ack: u64) -> bool {
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

    /// Pops what `ack` covers.
    #[inline]
    fn cumulative(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        ack: u64,
        delivery: &mut Delivery,
        outcome: &mut Outcome,
    ) {
        let (mut entries, mut popped) = (0, 0);
        while let Some(entry) = self.rtx.covered(entries, ack, &mut cx.metrics[cx.index]) {
            entries += 1;
            popped += entry.segments;
            outcome.acked_bytes += entry.payload.len() as u64;
            let metrics = &mut cx.metrics[cx.index];
            metrics.packets_out -= entry.segments;
            if entry.is(LOST) {
                metrics.lost_out -= entry.segments;
            }
            if entry.is(RETRANS) {
                metrics.retrans_out -= entry.segments;
            }
            if entry.is(EVER_RETRANS) {
                delivery.over_retransmission = true;
            }
            if entry.is(SACKED) {
                metrics.sacked_out -= entry.segments;
            } else {
                delivery.segments += entry.segments;
                let mark = entry.mark();
                let rtt = self.note_delivered(cx, segment, delivery, &mark, true);
                if let Some(rtt) = rtt {
                    delivery.first_rtt.get_or_insert(rtt);
                    delivery.last_rtt = Some(rtt);
                }
            }
        }
        self.rtx.drop_before(entries, ack);
        if !self.sack {
            // Duplicate ACKs have told of some of it already.
            let metrics = cx.metrics();
            delivery.segments = popped.saturating_sub(metrics.sacked_out).max(popped.min(1));
            let left = metrics.sacked_out.saturating_sub(popped.saturating_sub(1));
            metrics.sacked_out = left.min(metrics.packets_out - metrics.lost_out);
        }
        cx.metrics().bytes_acked += outcome.acked_bytes;
        self.snd_una = ack;
        self.retransmits = 0;
        self.settle_black_hole();
    }

    /// Marks what the SACK blocks cover.
    #[inline]
    fn selective(&mut self, cx: &mut Context<'_>, segment: &Segment<P>, ack: u64, delivery: &mut Delivery) {
        // Mostly one block of whole segments beyond the ACK.
        if let [(left, right)] = *segment.sack.as_slice() {
            let (left, right) = (self.unfold_sack(left), self.unfold_sack(right));
            if ack <= left
                && left < right
                && right <= self.snd_nxt
                && let Some(range) = self.rtx.even_range(left, right)
            {
                return self.mark_range(cx, segment, range, delivery);
            }
        }
        self.selective_any(cx, segment, ack, delivery);
    }

    /// Marks entries of which some may be marked already.
    #[inline]
    fn mark_range(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        mut range: Range<usize>,
        delivery: &mut Delivery,
    ) {
        while let Some(index) = self.rtx.next_unsacked(range.clone()) {
            self.mark_sacked_here(cx, segment, index, delivery);
            range.start = index + 1;
        }
    }

    /// The same, whatever they cover.
    #[inline(never)]
    fn selective_any(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        ack: u64,
        delivery: &mut Delivery,
    ) {
        let blocks = &segment.sack;
        // One block beyond the ACK is no DSACK.
        if blocks.len() > 1 || blocks.as_slice().first().is_some_and(|first| self.unfold_sack(first.0) < ack)
        {
            delivery.dsack = self.dsack(cx, blocks, ack);
        }
        if let Some(dsack) = delivery.dsack {
            self.undo.on_dsack(dsack.end, dsack.segments);
            let of_probe = self.tlp.retransmitted && dsack.end == self.tlp.high;
            if !of_probe {
                self.rack.on_dsack(self.snd_una, self.snd_nxt);
            }
        }
        // In order, so that what one ACK tells of several holes doesn't look like reordering.
        let mut list = [(0u64, 0u64); 4];
        let mut count = 0;
        for &(left, right) in &blocks.as_slice()[usize::from(delivery.dsack.is_some())..] {
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
                if self.mark_sacked(cx, segment, index, delivery) >= right {
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
    fn mark_sacked(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        index: usize,
        delivery: &mut Delivery,
    ) -> u64 {
        self.mark_sacked_here(cx, segment, index, delivery)
    }

    #[inline(always)]
    fn mark_sacked_here(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        index: usize,
        delivery: &mut Delivery,
    ) -> u64 {
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
        delivery.segments += entry.segments;
        delivery.newly_sacked = true;
        let mark = entry.mark();
        let rtt = self.note_delivered(cx, segment, delivery, &mark, false);
        if let Some(rtt) = rtt {
            delivery.sacked_rtt.get_or_insert(rtt);
            if delivery.first_rtt.is_none() {
                delivery.last_rtt = Some(rtt);
            }
        }
        mark.end
    }

    /// Something was delivered, `in_order` or not: reordering, RACK and the delivery rate learn of it. Returns its round-trip time if
    /// there is no doubt which transmission arrived.
    // What is handed over is read in other pieces than it was written in: as a call it would wait for that.
    #[inline(always)]
    fn note_delivered(
        &mut self,
        cx: &Context<'_>,
        segment: &Segment<P>,
        delivery: &mut Delivery,
        mark: &Mark,
        in_order: bool,
    ) -> Option<Nanos> {
        let rtt = cx.now.saturating_sub(mark.sent_at);
        delivery.rate.take(mark.sent_at, mark.end, mark.rate, mark.flags & APP_LIMITED != 0);
        if mark.flags & EVER_RETRANS == 0 {
            // RFC 8985 6.2 step 3.
            if mark.end > self.rack.fack {
                self.rack.fack = mark.end;
            } else if mark.end < self.rack.fack && self.sack {
                self.counters.sack_reorder += u64::from(!self.rack.reordering_seen);
                self.rack.reordering_seen = true;
            }
            delivery.original |= mark.end <= self.recovery.high;
            self.rack.advance(mark.sent_at, mark.end, rtt);
            return Some(rtt);
        }
        self.rack.fack = self.rack.fack.max(mark.end);
        // RFC 8985 6.2 step 2: not if it may have been an earlier transmission that arrived.
        let sent = clock(cx.tcp, mark.sent_at);
        let earlier = in_order
            && self.timestamps
            && segment.timestamps.is_some_and(|stamp| (stamp.echo.wrapping_sub(sent) as i32) < 0);
        if !earlier && rtt >= cx.metrics[cx.index].min_rtt {
            self.rack.advance(mark.sent_at, mark.end, rtt);
        }
        None
    }

    /// Round-trip time and delivery rate from what was delivered.
    #[inline]
    fn sample(&mut self, cx: &mut Context<'_>, segment: &Segment<P>, delivery: &mut Delivery) {
        let now = cx.now;
        //= RFC 9293 MUST-18
        // Karn: what was sent again gives no sample, but a timestamp can tell which transmission arrived.
        let mut rtt = if delivery.over_retransmission { None } else { delivery.first_rtt };
        rtt = rtt.or(delivery.sacked_rtt);
        if rtt.is_none() && delivery.advanced {
            rtt = self.timestamp_rtt(cx, segment);
            delivery.last_rtt = rtt;
        }
        if let Some(rtt) = rtt {
            let (tcp, metrics) = (cx.tcp, &mut cx.metrics[cx.index]);
            self.rtt.sample(metrics, tcp, now, rtt, delivery.last_rtt.unwrap_or(rtt));
            //= RFC 6298 5.7 the backoff holds until there is a sample
            self.backoff = 0;
        }
        let metrics = &mut cx.metrics[cx.index];
        metrics.delivered += u64::from(delivery.segments);
        delivery.round_start = self.rate.on_delivered(metrics, now, &delivery.rate);
    }

    /// The round-trip time by the timestamp that the segment echoes (RFC 7323 4); its clock ticks in milliseconds.
    #[inline(never)]
    pub(super) fn timestamp_rtt(&self, cx: &Context<'_>, segment: &Segment<P>) -> Option<Nanos> {
        let stamp = segment.timestamps.filter(|stamp| self.timestamps && stamp.echo != 0)?;
        let ticks = self.timestamp(cx).wrapping_sub(stamp.echo);
        (ticks < 1 << 20).then(|| u64::from(ticks.max(1)) * MILLISECOND)
    }

    /// Growth in the absence of loss.
    #[inline]
    pub(super) fn grow(&mut self, cx: &mut Context<'_>, delivery: &Delivery, prior_in_flight: u32) {
        let ack = Ack {
            now: cx.now,
            acked: delivery.segments,
            rtt: delivery.last_rtt,
            prior_in_flight,
            cwnd_limited: self.usage.limited(&cx.metrics[cx.index]),
            round_start: delivery.round_start,
        };
        cx.congestion.on_ack(cx.metrics, cx.index, &ack);
    }

    /// Linux's pacing rate: 200 % of cwnd / srtt in slow start, 120 % after (`tcp_update_pacing_rate`). Before
    /// the first sample, as when the SYN was repeated, Linux leaves the division out, which is as if srtt were
    /// its unit, an eighth of a microsecond.
    #[inline]
    pub(super) fn update_pacing(&self, cx: &mut Context<'_>) {
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
