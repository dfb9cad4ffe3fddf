//! Acknowledgements (RFC 5681 3.2): what they take off the scoreboard, the round-trip and delivery-rate
//! samples that they give, and the growth of the window.

use crate::Span;
use ropewalk_wire::{Flags, Payload, Segment};

use super::ack_summary::AckSummary;
use super::rtt::{echo, timestamp_rtt};
use super::{Sender, cwnd_validation};
use crate::config::{AckCounting, WindowLimit};
use crate::congestion::{Ack, RateSample};
use crate::tcp::common::Common;
use crate::tcp::context::{Context, Outcome, clock};
use crate::tcp::timer::Timer;

impl<P: Payload> Sender<P> {
    /// Processes the acknowledgement of an acceptable segment at `position`.
    #[inline(always)]
    pub fn process_ack(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        position: u64,
        outcome: &mut Outcome,
    ) {
        let ack = self.ack_position(common, segment.ack);
        if ack == self.snd_una && self.scoreboard.is_empty() && segment.sack.is_empty() {
            // All that a receiver of data gets.
            self.update_window(common, segment, position, ack);
        } else {
            self.process_ack_of_data(common, cx, segment, position, ack, outcome);
        }
    }

    /// The same, while something is in flight or there are SACK blocks.
    #[inline(never)]
    fn process_ack_of_data(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        position: u64,
        ack: u64,
        outcome: &mut Outcome,
    ) {
        // ACKs beyond SND.NXT were refused before. For one below SND.UNA the difference wraps.
        let old = ack.wrapping_sub(self.snd_una) > self.snd_nxt - self.snd_una;
        // An old ACK was overtaken by a later one. Its SACK blocks may still be news.
        if old && segment.sack.is_empty() {
            return;
        }
        // Before anything that was sent, `unfold` goes below zero.
        let ack = if ack >= 1 << 63 { 0 } else { ack };
        let advanced = !old && ack > self.snd_una;
        let window_moved = !old && self.update_window(common, segment, position, ack);
        if !advanced && self.scoreboard.is_empty() && segment.sack.is_empty() {
            return;
        }
        // RFC 5681 2. One that also moves the window is a window update, so not counted.
        let duplicate = !advanced
            && !old
            && !window_moved
            && segment.payload.is_empty()
            //= RFC 8684 3-1 3.4.1-13 4-2 one that carries ADD_ADDR or the like says nothing of the network
            && segment.rare.is_none()
            && !segment.flags.contains(Flags::FIN)
            && !self.scoreboard.is_empty();
        // Written where it stays: it is large, and copying what was just written stalls.
        let mut summary = AckSummary { prior_in_flight: cx.metrics.in_flight(), ..AckSummary::default() };
        if advanced {
            // Linux tags SACK blocks first. In this order blocks that the ACK covers are skipped at once.
            self.on_cumulative_ack(common, cx, segment, ack, &mut summary);
        }
        (summary.advanced, summary.duplicate) = (advanced, duplicate);
        summary.ece = common.negotiated.ecn && segment.flags.contains(Flags::ECE);
        if !segment.sack.is_empty() && common.negotiated.sack {
            self.on_sack(common, cx, segment, ack, &mut summary);
        }
        self.on_ack(common, cx, segment, ack, &mut summary, outcome);
    }

    /// What follows from an ACK: RACK, the samples of round-trip time and delivery rate, recovery, the growth
    /// of the window, and timers.
    #[inline]
    fn on_ack(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        ack: u64,
        summary: &mut AckSummary,
        outcome: &mut Outcome,
    ) {
        if summary.segments > 0 {
            self.note_reordering(cx, summary);
            if self.rack.on_delivered(cx.now, summary, common.negotiated.sack) {
                common.counters.sack_reorder += 1;
            }
            self.sample(common, cx, segment, summary);
        }
        outcome.acked_bytes += summary.bytes;
        self.recover(common, cx, segment, ack, summary, outcome);
        //= RFC 5681 3.2-c without SACK a duplicate ACK lets another segment be sent (RFC 3042)
        outcome.acked_segments += summary.segments;
        // After reneging `alert` has set a short timeout, which has to stand.
        // After `recover`: the phase that it leaves decides whether a probe is armed (RFC 8985 7.2).
        if summary.advanced && !summary.reneged {
            //= RFC 6298 5-c
            self.arm_retransmit(common, cx);
            self.arm_probe(common, cx);
        }
    }

    /// RFC 9293 3.10.7.4: takes the window, but not from an old segment. Returns whether it changed.
    #[inline(always)]
    fn update_window(&mut self, common: &mut Common, segment: &Segment<P>, position: u64, ack: u64) -> bool {
        if ack < self.snd_una || !self.window.may_be_set_by(position, ack) {
            return false;
        }
        let size = common.peer_window(segment.window);
        let moved = size != self.window.size();
        if self.window.set(size, position, ack) {
            common.timers.stop(Timer::Persist);
        }
        moved
    }

    /// Takes what `ack` covers off the scoreboard, and adds it to `summary`.
    #[inline]
    fn on_cumulative_ack(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        ack: u64,
        summary: &mut AckSummary,
    ) {
        let (offset, now) = (cx.timestamp_offset, cx.now);
        let metrics = &mut *cx.metrics;
        let min_rtt = metrics.rtt.min;
        let echo = echo(common, segment);
        //= RFC 8985 6.2-b not if an earlier transmission may have arrived
        //= RFC 2018 8-a only a cumulative ACK takes anything off the scoreboard
        self.scoreboard.cumulative_ack(ack, metrics, summary, |sent_at| {
            let earlier = echo.is_some_and(|echo| (echo.wrapping_sub(clock(offset, sent_at)) as i32) < 0);
            // What is acknowledged sooner than the least round-trip time was the
            // original (RFC 8985 6.2 step 2).
            !earlier && now.saturating_sub(sent_at) >= min_rtt
        });
        if !common.negotiated.sack {
            // Duplicate ACKs have reported some of it already.
            let removed = summary.removed;
            summary.segments = removed.saturating_sub(metrics.sacked_out()).max(removed.min(1));
            // One segment filled the hole, and no duplicate stood for it (`tcp_remove_reno_sacks`).
            let left = metrics.sacked_out().saturating_sub(removed.saturating_sub(1));
            metrics.assume_sacked(left);
        }
        metrics.totals.bytes_acked += summary.bytes;
        self.snd_una = ack;
        // R2 (RFC 9293 3.8.3) counts timeouts without progress. As in Linux SACKs alone aren't progress, and
        // the backoff stays until there is a sample.
        self.timeouts = 0;
        // The smaller segments arrive: their size is what the path takes.
        if self.black_hole().is_suspected() {
            self.on_mtu_confirmed(common);
        }
    }

    /// Samples round-trip time and delivery rate.
    #[inline]
    fn sample(
        &mut self,
        common: &Common,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        summary: &mut AckSummary,
    ) {
        let now = cx.now;
        //= RFC 6298 3-a
        //= RFC 9293 MUST-18
        // Karn: what was retransmitted gives no sample, but a timestamp can tell which transmission arrived.
        let first_acked = summary.first_acked.filter(|_| !summary.over_retransmission);
        // A SACK gives a sample as well, as in Linux: the cumulative ACK may stand still before a hole.
        let (rtt, last) = match first_acked.or(summary.first_sacked) {
            Some(first_at) => (Some(now.saturating_sub(first_at)), Some(now.saturating_sub(summary.last_at))),
            None => {
                // Timestamps are only the second choice, as in Linux: middleboxes
                // and peers may corrupt the echo.
                //= RFC 7323 4.1-a
                let rtt = if summary.advanced { timestamp_rtt(common, cx, segment) } else { None };
                (rtt, rtt)
            }
        };
        summary.last_rtt = last;
        let metrics = &mut *cx.metrics;
        if let (Some(rtt), Some(last)) = (rtt, last) {
            //= RFC 6298 3-b
            self.rtt.sample(metrics, &cx.tcp.rto, now, rtt, last);
            //= RFC 6298 5 the backoff holds until there is a sample
            self.backoff = 0;
        }
        metrics.totals.delivered += u64::from(summary.segments);
        metrics.last_progress = now;
        (summary.round_start, summary.delivery_rate) =
            self.rate.on_delivered(metrics, now, &summary.latest_sent);
    }

    /// Growth of the window while nothing is lost.
    #[inline]
    pub(super) fn grow(&mut self, cx: &mut Context<'_>, summary: &AckSummary) {
        let prior_in_flight = summary.prior_in_flight;
        let counting = cx.tcp.cwnd.ack_counting;
        let acked = match counting {
            AckCounting::Segments => summary.segments,
            AckCounting::OneInAvoidance => summary.removed,
            AckCounting::One => summary.segments.min(1),
        };
        let ack = Ack {
            now: cx.now,
            acked,
            counting,
            rtt: summary.last_rtt,
            prior_in_flight,
            cwnd_limited: match cx.tcp.cwnd.window_limit {
                WindowLimit::PerWindow => self.cwnd_validation.is_cwnd_limited(cx.metrics),
                WindowLimit::PerAck => {
                    // What a DATA_ACK before this ACK has let out is in flight as well.
                    cwnd_validation::was_full(cx.metrics, prior_in_flight + cx.metrics.queued_segments())
                }
                WindowLimit::Always => true,
            },
            round_start: summary.round_start,
        };
        cx.congestion.on_ack(cx.metrics, cx.siblings, &ack);
    }

    /// Feeds a model-based congestion control with what an ACK says of the path.
    #[cold]
    #[inline(never)]
    pub(super) fn update_model(&mut self, cx: &mut Context<'_>, summary: &AckSummary) {
        let metrics = &*cx.metrics;
        let of = &summary.latest_sent;
        let delivered = of.flight.delivered_since(metrics);
        let sample = RateSample {
            now: cx.now,
            acked: summary.segments,
            rtt: summary.last_rtt,
            rate: summary.delivery_rate,
            app_limited: of.app_limited,
            delivered,
            prior_delivered: metrics.totals.delivered - delivered,
            tx_in_flight: of.flight.in_flight,
            lost: of.flight.lost_since(metrics),
            cwnd_limited: self.cwnd_validation.was_full(),
        };
        if cx.congestion.on_sample(cx.metrics, cx.siblings, &sample) {
            self.rate.on_app_limited(cx.metrics);
        }
    }

    /// Linux's pacing rate: 200 % of cwnd / srtt in slow start, 120 % after (`tcp_update_pacing_rate`).
    /// Before the first sample Linux leaves the division out, as if srtt were its unit, an eighth of a
    /// microsecond.
    #[inline]
    pub(super) fn update_pacing(&self, cx: &mut Context<'_>) {
        if self.is_paced() {
            return;
        }
        let metrics = &mut *cx.metrics;
        // From half the threshold on the next round trip would pass it: that is paced
        // as congestion avoidance already.
        let percent: u64 = if metrics.cwnd() < metrics.ssthresh() / 2 { 200 } else { 120 };
        // After a reduction more may be out than the window admits.
        let window = u64::from(metrics.cwnd().max(metrics.packets_out())) * u64::from(metrics.mss);
        let srtt = metrics.rtt.smoothed.max(Span::from_nanos(125));
        // 10 ms = 1 s / 100 %.
        metrics.rate.pacing = (percent * Span::from_millis(10)).saturating_mul(window) / srtt;
    }
}
