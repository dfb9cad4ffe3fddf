//! Selective acknowledgements (RFC 2018) and DSACKs (RFC 2883).

use std::ops::Range;

use ropewalk_wire::{Payload, SackBlocks, Segment, Seq};

use super::Sender;
use super::ack_summary::{AckSummary, Dsack};
use super::entry::{EVER_RETRANS, LOST, RETRANS, SACKED};
use crate::tcp::common::Common;
use crate::tcp::context::Context;

impl<P: Payload> Sender<P> {
    /// Marks what the SACK blocks cover.
    #[inline]
    pub(super) fn on_sack(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        ack: u64,
        summary: &mut AckSummary,
    ) {
        // The common case: one block of whole segments beyond the ACK.
        if let [(left, right)] = *segment.sack.as_slice() {
            let (left, right) = (self.unfold_sack(common, left), self.unfold_sack(common, right));
            //= RFC 2018 5-b
            if ack <= left
                && left < right
                && right <= self.snd_nxt
                && let Some(range) = self.scoreboard.uniform_range(left, right)
            {
                return self.mark_range(cx, range, summary);
            }
        }
        self.on_sack_blocks(common, cx, &segment.sack, ack, summary);
    }

    /// Marks entries of which some may be marked already.
    #[inline]
    fn mark_range(&mut self, cx: &mut Context<'_>, mut range: Range<usize>, summary: &mut AckSummary) {
        while let Some(index) = self.scoreboard.next_unsacked(range.clone()) {
            self.mark_sacked_inline(cx, index, summary);
            range.start = index + 1;
        }
    }

    /// Marks what any SACK blocks cover.
    #[inline(never)]
    fn on_sack_blocks(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        blocks: &SackBlocks,
        ack: u64,
        summary: &mut AckSummary,
    ) {
        let first = blocks.as_slice().first();
        // One block beyond the ACK is no DSACK.
        if blocks.len() > 1 || first.is_some_and(|first| self.unfold_sack(common, first.0) < ack) {
            summary.dsack = self.dsack(common, cx, blocks, ack);
        }
        if let Some(dsack) = summary.dsack {
            self.undo_mut().on_dsack(dsack.end, dsack.segments);
            // A probe that arrived beside its original says nothing of reordering.
            if !self.tlp.is_duplicated(dsack.end) {
                self.rack.on_dsack(self.snd_una, self.snd_nxt);
            }
        }
        let blocks = self.sorted_blocks(common, &blocks.as_slice()[usize::from(summary.dsack.is_some())..]);
        let previous = std::mem::replace(&mut self.losses_mut().sack_cache, blocks);
        for &(left, right) in blocks.iter().filter(|(_, right)| *right > 0) {
            // What an earlier ACK reported needn't be walked again.
            let mut from = left;
            for (l, r) in previous {
                if l <= from && from < r {
                    from = r.min(right);
                }
            }
            self.mark_positions(cx, (left, right), from, summary);
        }
    }

    /// The valid blocks beyond SND.UNA in order, so that one ACK that reports several holes doesn't look like
    /// reordering; the rest is empty.
    fn sorted_blocks(&self, common: &Common, blocks: &[(u32, u32)]) -> [(u64, u64); 4] {
        // The option space holds four blocks at most (RFC 2018 3).
        let mut list = [(0u64, 0u64); 4];
        let mut count = 0;
        for &(left, right) in blocks {
            let (left, right) = (self.unfold_sack(common, left), self.unfold_sack(common, right));
            // Blocks beyond SND.NXT report what was never sent: the peer is broken or the segment
            // forged (Linux's `tcp_is_sackblock_valid`).
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
        list
    }

    /// Marks the segments that lie from position `left` to `right`; what lies before `from` is known. Splits
    /// super-segments.
    fn mark_positions(
        &mut self,
        cx: &mut Context<'_>,
        (left, right): (u64, u64),
        from: u64,
        summary: &mut AckSummary,
    ) {
        if from >= right {
            return;
        }
        let mut index = self.scoreboard.index_at(from);
        while let Some(entry) = self.scoreboard.get(index) {
            if entry.position >= right {
                break;
            }
            if entry.is(SACKED) {
                index = self.scoreboard.after_sacked(index);
                continue;
            }
            if entry.position < left {
                let cut = entry.segment_end(left, cx.metrics.mss);
                if cut < entry.end().min(right) {
                    self.scoreboard.split(index, cut, cx.metrics);
                }
                index += 1;
                continue;
            }
            if entry.end() > right {
                let cut = entry.segment_begin(right, cx.metrics.mss);
                // The block ends within the first segment, and no part of a segment is marked.
                if cut <= entry.position {
                    break;
                }
                self.scoreboard.split(index, cut, cx.metrics);
            }
            if self.mark_sacked(cx, index, summary) >= right {
                break;
            }
            index += 1;
        }
    }

    #[inline]
    fn unfold_sack(&self, common: &Common, wire: u32) -> u64 {
        Seq(wire.wrapping_sub(common.isn)).unfold(self.snd_una)
    }

    /// The first block is a DSACK if it lies below the cumulative ACK or within the second (RFC 2883 4), and
    /// counts only if so much was sent twice (Linux's guard against duplicates that the network makes).
    #[inline(never)]
    fn dsack(
        &mut self,
        common: &mut Common,
        cx: &Context<'_>,
        blocks: &SackBlocks,
        ack: u64,
    ) -> Option<Dsack> {
        let (left, right) = *blocks.as_slice().first()?;
        let (left, right) = (self.unfold_sack(common, left), self.unfold_sack(common, right));
        if left >= right || right > self.snd_nxt {
            return None;
        }
        if left < ack {
            common.counters.dsack_recv += 1;
        } else {
            let (l, r) = *blocks.as_slice().get(1)?;
            if left < self.unfold_sack(common, l) || right > self.unfold_sack(common, r) {
                return None;
            }
            common.counters.dsack_ofo_recv += 1;
        }
        let metrics = &*cx.metrics;
        let segments = (right - left).div_ceil(u64::from(metrics.mss.max(1))) as u32;
        // More duplicates than retransmissions: the network made some, so none proves a spurious one.
        let dsacked = &mut self.losses.get_or_insert_default().dsacked;
        *dsacked += u64::from(segments);
        if *dsacked > metrics.totals.retransmitted {
            common.counters.dsack_ignored += 1;
            return None;
        }
        Some(Dsack { end: right, segments })
    }

    /// Marks an entry as sacked that isn't, and returns where it ends.
    #[inline(never)]
    fn mark_sacked(&mut self, cx: &mut Context<'_>, index: usize, summary: &mut AckSummary) -> u64 {
        self.mark_sacked_inline(cx, index, summary)
    }

    #[inline(always)]
    fn mark_sacked_inline(&mut self, cx: &mut Context<'_>, index: usize, summary: &mut AckSummary) -> u64 {
        let entry = self.scoreboard.mark_sacked(index);
        let metrics = &mut *cx.metrics;
        //= RFC 5681 3.2-d only what is newly SACKed leaves the network
        metrics.add_marked(SACKED, entry.segments);
        metrics.sub_marked(entry.flags & (LOST | RETRANS), entry.segments);
        entry.flags &= !(LOST | RETRANS);
        summary.newly_sacked = true;
        let (now, min_rtt) = (cx.now, metrics.rtt.min);
        // Sooner than the least round-trip time after a retransmission only
        // the original can have been sacked.
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
}
