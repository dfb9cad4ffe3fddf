//! The retransmission queue and SACK scoreboard (RFC 2018, RFC 6675), with the log of transmissions in order
//! of time that RACK reads (RFC 8985 6.2).
//!
//! Entries are in order of sequence. A cumulative ACK removes them from the front, a SACK block finds them by
//! binary search. Where all entries have one length, a division finds an entry. A bitmap says which are
//! sacked.
//!
//! The log has one (position, time) per transmission. Obsolete records are skipped at the front, so that loss
//! detection costs a constant per transmission. The log isn't kept while everything was sent once, since the
//! entries are then in order of time as well, nor after some windows without a retransmission.

use std::collections::VecDeque;
use std::ops::Range;

use ropewalk_wire::Payload;

use super::ack_summary::AckSummary;
use super::entry::{APP_LIMITED, EVER_RETRANS, Entry, FIN, LOST, RETRANS, SACKED};
use super::rate::{Flight, Stamp};
use super::sack_bitmap::SackBitmap;
use crate::Time;
use crate::metrics::SubflowMetrics;

/// First capacity: an initial window and what follows it.
const FIRST_ENTRIES: usize = 16;

/// Not a position: the log is kept.
const LOGGED: u64 = u64::MAX;

/// Windows without a retransmission after which the log is dropped. Building it anew costs a walk over all
/// entries.
const QUIET_WINDOWS: u64 = if cfg!(test) { 1 } else { 8 };

/// Everything that was sent and isn't cumulatively acknowledged.
#[derive(Debug)]
pub(crate) struct Scoreboard<P> {
    entries: VecDeque<Entry<P>>,
    /// The log is the entries from this position on, or [`LOGGED`] if it is kept in `log`.
    implicit_from: u64,
    log: VecDeque<(u64, Time)>,
    /// From this position on the log has each entry once and in order.
    in_order_from: u64,
    /// No entry before this position is lost without a retransmission in flight.
    lost_hint: u64,
    /// Number of entries that were removed, which is the number of the first.
    removed: u64,
    /// The length of all entries from position `uniform_from` on.
    unit: u64,
    uniform_from: u64,
    sacked: SackBitmap,
}

impl<P: Payload> Scoreboard<P> {
    pub fn new() -> Self {
        Scoreboard {
            entries: VecDeque::new(),
            implicit_from: LOGGED,
            log: VecDeque::new(),
            in_order_from: 0,
            lost_hint: 0,
            removed: 0,
            unit: 0,
            uniform_from: 0,
            sacked: SackBitmap::default(),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn back_index(&self) -> Option<usize> {
        self.entries.len().checked_sub(1)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Entry<P>> {
        self.entries.iter()
    }

    pub fn get_mut(&mut self, index: usize) -> &mut Entry<P> {
        &mut self.entries[index]
    }

    pub fn get(&self, index: usize) -> Option<&Entry<P>> {
        self.entries.get(index)
    }

    /// The entry that holds a connection-level offset. Offsets rise with positions, but for repetitions of
    /// other subflows' data and data that was sent ahead: then all are searched.
    pub fn find_tag(&self, offset: u64) -> Option<&Entry<P>> {
        let holds =
            |entry: &&Entry<P>| entry.tag <= offset && offset < entry.tag + entry.payload.len() as u64;
        let guess = self.entries.partition_point(|entry| entry.tag + entry.payload.len() as u64 <= offset);
        let guessed = self.entries.get(guess).filter(holds);
        guessed.or_else(|| self.entries.iter().find(holds))
    }

    /// Appends what was sent for the first time.
    // Inlined: an entry is written once, where it stays.
    #[inline(always)]
    pub fn push(&mut self, entry: Entry<P>) {
        if self.entries.is_empty() {
            if self.entries.capacity() == 0 {
                self.entries.reserve(FIRST_ENTRIES);
            }
            debug_assert!(self.log.is_empty());
            self.implicit_from = entry.position;
        }
        if self.implicit_from == LOGGED {
            self.log.push_back((entry.position, entry.sent_at));
        }
        let len = entry.payload.len() as u64;
        if len != self.unit {
            (self.unit, self.uniform_from) = (len, entry.position);
        }
        self.sacked.on_push(self.removed + self.entries.len() as u64, self.removed);
        self.entries.push_back(entry);
    }

    /// A FIN was sent.
    #[cold]
    #[inline(never)]
    pub fn push_fin(&mut self, position: u64, sent_at: Time, rate: Stamp, flight: Flight) {
        let payload = P::default();
        // A lone FIN doesn't fill the path, so its sample must not lower the rate.
        let flags = FIN | APP_LIMITED;
        let (tag, lead, mapped, segments) = (0, 0, 0, 1);
        let Flight { delivered, in_flight, lost } = flight;
        self.push(Entry {
            position,
            tag,
            payload,
            flags,
            lead,
            mapped,
            segments,
            delivered,
            in_flight,
            lost,
            sent_at,
            rate,
        });
    }

    /// Where the last entry ends.
    fn end(&self) -> u64 {
        self.entries.back().map_or(0, Entry::end)
    }

    /// Marks an entry as sacked, in the bitmap as well.
    #[inline]
    pub fn mark_sacked(&mut self, index: usize) -> &mut Entry<P> {
        if !self.sacked.is_known() && self.is_uniform() {
            self.build_bitmap();
        }
        self.sacked.set(self.removed + index as u64);
        let entry = &mut self.entries[index];
        entry.flags |= SACKED;
        entry
    }

    #[cold]
    fn build_bitmap(&mut self) {
        self.sacked.make_room(self.entries.len());
        for (number, entry) in (self.removed..).zip(&self.entries) {
            if entry.is(SACKED) {
                self.sacked.set(number);
            }
        }
    }

    /// Whether all entries have one length.
    #[inline]
    fn is_uniform(&self) -> bool {
        self.unit > 0 && self.entries.front().is_some_and(|first| first.position >= self.uniform_from)
    }

    /// The entry that begins at `position`, if all have one length and the bitmap is in use.
    #[inline]
    fn uniform_index(&self, position: u64) -> Option<usize> {
        let first = self.entries.front()?.position;
        let offset = position.checked_sub(first).filter(|_| self.is_uniform())?;
        let index = offset / self.unit;
        let exact = index * self.unit == offset && index < self.entries.len() as u64;
        (exact && self.sacked.is_known()).then_some(index as usize)
    }

    /// The entries that a range covers exactly, for [`next_unsacked`](Self::next_unsacked), if all have one
    /// length.
    #[inline]
    pub fn uniform_range(&self, left: u64, right: u64) -> Option<Range<usize>> {
        let start = self.uniform_index(left)?;
        let count = (right - left) / self.unit;
        let end = start + count as usize;
        (count * self.unit == right - left && end <= self.entries.len()).then_some(start..end)
    }

    /// The first entry after a sacked one that may be unsacked.
    #[inline]
    pub fn after_sacked(&self, index: usize) -> usize {
        if !self.sacked.is_known() {
            return index + 1;
        }
        self.next_unsacked(index + 1..self.entries.len()).unwrap_or(self.entries.len())
    }

    /// The first entry in a range that isn't sacked. The bitmap must be in use.
    #[inline]
    pub fn next_unsacked(&self, range: Range<usize>) -> Option<usize> {
        let end = self.removed + range.end as u64;
        let number = self.sacked.first_clear(self.removed + range.start as u64, end);
        (number < end).then(|| (number - self.removed) as usize)
    }

    /// Logs the retransmission of an entry, whose `sent_at` is set already.
    pub fn log_retransmission(&mut self, index: usize) {
        self.keep_log(Some(index));
        self.on_disorder();
        let entry = &self.entries[index];
        self.log.push_back((entry.position, entry.sent_at));
    }

    /// The log isn't in the order of the entries for some windows.
    fn on_disorder(&mut self) {
        let (first, end) = (self.entries.front().map_or(0, |first| first.position), self.end());
        self.in_order_from = end + QUIET_WINDOWS * (end - first);
    }

    /// Keeps the log from now on, if it isn't kept yet; without the entry `but`, which is about to be logged.
    fn keep_log(&mut self, but: Option<usize>) {
        if self.implicit_from != LOGGED {
            self.build_log(but);
        }
    }

    #[cold]
    fn build_log(&mut self, but: Option<usize>) {
        let from = std::mem::replace(&mut self.implicit_from, LOGGED);
        let entries = self.entries.iter().enumerate();
        let logged = entries.filter(|(index, entry)| entry.position >= from && Some(*index) != but);
        self.log.extend(logged.map(|(_, entry)| (entry.position, entry.sent_at)));
    }

    /// Removes what `una` covers, adds it to `summary`, and corrects the counts in `metrics`.
    /// `is_unambiguous` says for a retransmitted segment, by the time that it was last sent, whether that
    /// transmission is the one that arrived.
    #[inline]
    pub fn cumulative_ack(
        &mut self,
        una: u64,
        metrics: &mut SubflowMetrics,
        summary: &mut AckSummary,
        is_unambiguous: impl Fn(Time) -> bool,
    ) {
        // The first part of the ring; what is beyond its end is the next run.
        while let [first, ..] = self.entries.as_slices().0
            && first.position < una
        {
            let (mut run, mut segments, mut last) = (0, 0, first);
            for entry in self.entries.as_slices().0 {
                if entry.flags & !APP_LIMITED != 0 || entry.end() > una {
                    break;
                }
                (run, segments, last) = (run + 1, segments + entry.segments, entry);
            }
            if run == 0 {
                self.acknowledge_first(una, metrics, summary, &is_unambiguous);
                continue;
            }
            summary.removed += segments;
            let end = last.end();
            summary.bytes += end - first.position;
            summary.first_acked.get_or_insert(first.sent_at);
            summary.last_at = last.sent_at;
            summary.deliver_originals(first, last, segments);
            for _ in 0..run {
                self.entries.pop_front();
            }
            self.removed += run;
            if end == una {
                break;
            }
        }
        metrics.sub_packets_out(summary.removed);
        self.trim_log(una);
    }

    /// Removes the first entry, whatever is known of it, as far as `una` covers it.
    #[inline(never)]
    fn acknowledge_first(
        &mut self,
        una: u64,
        metrics: &mut SubflowMetrics,
        summary: &mut AckSummary,
        is_unambiguous: impl Fn(Time) -> bool,
    ) {
        // An ACK may end within a super-segment, or within a segment that the peer holds only in part.
        if self.entries.front().is_some_and(|first| first.end() > una) {
            self.split(0, una, metrics);
        }
        let Some(entry) = self.entries.front() else { return };
        summary.removed += entry.segments;
        // A FIN takes a sequence number, but is no data.
        summary.bytes += entry.payload.len() as u64;
        metrics.sub_marked(entry.flags, entry.segments);
        summary.over_retransmission |= entry.is(EVER_RETRANS);
        // What was sacked was counted as delivered when its SACK came.
        if !entry.is(SACKED) {
            if entry.is(EVER_RETRANS) {
                summary.deliver_retransmitted(entry, is_unambiguous(entry.sent_at));
            } else {
                summary.first_acked.get_or_insert(entry.sent_at);
                summary.last_at = entry.sent_at;
                summary.deliver_originals(entry, entry, entry.segments);
            }
        }
        self.entries.pop_front();
        self.removed += 1;
    }

    /// Forgets transmissions of what lies before `una`, and the whole log where the entries say the same.
    #[inline]
    fn trim_log(&mut self, una: u64) {
        if self.implicit_from == LOGGED {
            self.trim_kept_log(una);
        }
    }

    #[inline(never)]
    fn trim_kept_log(&mut self, una: u64) {
        if una >= self.in_order_from {
            self.drop_log(una);
            return;
        }
        while let Some((position, _)) = self.log.front() {
            if *position >= una {
                break;
            }
            self.log.pop_front();
        }
    }

    /// Cuts an entry in two at `position`, which lies inside it.
    pub fn split(&mut self, index: usize, position: u64, metrics: &mut SubflowMetrics) {
        self.keep_log(None);
        let entry = &mut self.entries[index];
        let cut = (position - entry.position) as usize;
        let len = entry.payload.len();
        if cut == 0 || cut > len || (cut == len && entry.flags & FIN == 0) {
            return;
        }
        if entry.mapped == 0 {
            // What is longer than a mapping can be was never sent with one.
            entry.mapped = u16::try_from(len).unwrap_or(0);
        }
        let mut rest = entry.clone();
        if entry.mapped > 0 {
            rest.lead += cut as u16;
        }
        rest.position = position;
        rest.tag = entry.tag + cut as u64;
        rest.payload = entry.payload.slice(cut, len);
        entry.payload = entry.payload.slice(0, cut);
        entry.flags &= !FIN;
        // The counts of segments must add up, or in-flight would drift; and a piece that counted for none
        // would never be sent again. Cut where segments don't end, the pieces may be more than there were.
        let before = (cut as u32).div_ceil(metrics.mss.max(1)).min(entry.segments);
        rest.segments = (entry.segments - before).max(1);
        let more = before + rest.segments - entry.segments;
        entry.segments = before;
        metrics.add_packets_out(more);
        metrics.add_marked(entry.flags, more);
        let logged = (rest.position, rest.sent_at);
        self.entries.insert(index + 1, rest);
        // Lengths and numbers are regular again from the next new entry on.
        self.uniform_from = self.end();
        self.sacked.forget();
        self.on_disorder();
        let at = self.log.partition_point(|(_, sent_at)| *sent_at <= logged.1);
        self.log.insert(at, logged);
    }

    /// Index of the entry that holds `position`, or of the first after it.
    pub fn index_at(&self, position: u64) -> usize {
        let Some(first) = self.entries.front() else { return 0 };
        if position < first.end() {
            return 0;
        }
        // Entries are of one size mostly, so that a division finds the right one.
        let guess = (position - first.position) / first.payload.len().max(1) as u64;
        match self.entries.get(guess as usize) {
            Some(entry) if entry.position <= position && position < entry.end() => guess as usize,
            _ => self.entries.partition_point(|entry| entry.end() <= position),
        }
    }

    /// The oldest transmission that may be lost: its entry is neither acknowledged nor sacked nor marked
    /// lost, and wasn't retransmitted since.
    pub fn oldest_transmission(&mut self) -> Option<usize> {
        if self.implicit_from != LOGGED {
            return self.oldest_implicit();
        }
        while let Some((position, sent_at)) = self.log.front().copied() {
            if position >= self.in_order_from {
                self.drop_log(position);
                return self.oldest_implicit();
            }
            let index = self.index_at(position);
            match self.entries.get(index) {
                Some(entry)
                    if entry.position == position
                        && entry.sent_at == sent_at
                        && !entry.is(SACKED)
                        && (!entry.is(LOST) || entry.is(RETRANS)) =>
                {
                    return Some(index);
                }
                _ => {
                    self.log.pop_front();
                }
            }
        }
        None
    }

    /// Drops the log: from `position` on the entries say the same.
    #[cold]
    fn drop_log(&mut self, position: u64) {
        self.log.clear();
        self.implicit_from = position;
    }

    /// The same while the log isn't kept.
    #[inline]
    fn oldest_implicit(&mut self) -> Option<usize> {
        let first = self.entries.front()?;
        let from = self.implicit_from;
        let mut index = 0;
        // The common case is the first entry.
        if first.position < from || first.is(SACKED | LOST) {
            let even = self.uniform_index(from.max(first.position));
            let next = even.and_then(|index| self.next_unsacked(index..self.entries.len()));
            index = next.unwrap_or_else(|| self.index_at(from));
        }
        while let Some(entry) = self.entries.get(index) {
            if !entry.is(SACKED) && (!entry.is(LOST) || entry.is(RETRANS)) {
                self.implicit_from = entry.position;
                return Some(index);
            }
            self.implicit_from = entry.end();
            index += 1;
        }
        None
    }

    /// The first entry that is lost and has no retransmission in flight.
    pub fn next_lost(&mut self) -> Option<usize> {
        let mut index = self.index_at(self.lost_hint);
        while let Some(entry) = self.entries.get(index) {
            if entry.is(LOST) && !entry.is(RETRANS) {
                self.lost_hint = entry.position;
                return Some(index);
            }
            index += 1;
        }
        self.lost_hint = self.entries.back().map_or(self.lost_hint, Entry::end);
        None
    }

    /// The entry at `position` was marked lost.
    pub fn on_lost(&mut self, position: u64) {
        self.lost_hint = self.lost_hint.min(position);
    }

    /// Unmarks all that is lost: nothing was.
    pub fn unmark_lost(&mut self) {
        self.keep_log(None);
        self.on_disorder();
        for entry in &mut self.entries {
            // RACK looks at it again, with the time of its transmission.
            if entry.is(LOST) && !entry.is(RETRANS) && !entry.is(SACKED) {
                self.log.push_back((entry.position, entry.sent_at));
            }
            entry.flags &= !LOST;
        }
        self.log.make_contiguous().sort_by_key(|(position, sent_at)| (*sent_at, *position));
        self.lost_hint = u64::MAX;
    }

    /// Unmarks all that is sacked.
    pub fn forget_sacks(&mut self) {
        self.keep_log(None);
        self.on_disorder();
        self.sacked.forget();
        for entry in &mut self.entries {
            if entry.is(SACKED) {
                entry.flags &= !SACKED;
                // The log skipped it while it counted as delivered. RACK has to judge it again.
                self.log.push_back((entry.position, entry.sent_at));
            }
        }
        self.log.make_contiguous().sort_by_key(|(position, sent_at)| (*sent_at, *position));
    }

    /// Counts the packets of an entry anew before it is retransmitted (Linux's `tcp_adjust_pcount`). They may
    /// be fewer than at first: new data leaves room for SACK blocks, and the MSS may have grown.
    pub fn recount_entry(&mut self, index: usize, metrics: &mut SubflowMetrics) {
        let entry = &mut self.entries[index];
        let segments = (entry.payload.len() as u32).div_ceil(metrics.mss.max(1)).max(1);
        let before = std::mem::replace(&mut entry.segments, segments);
        if segments == before {
            return;
        }
        metrics.sub_packets_out(before);
        metrics.sub_marked(entry.flags, before);
        metrics.add_packets_out(segments);
        metrics.add_marked(entry.flags, segments);
    }

    /// Counts segments anew after the MSS changed.
    pub fn recount(&mut self, metrics: &mut SubflowMetrics) {
        metrics.clear_out();
        for entry in &mut self.entries {
            entry.segments = (entry.payload.len() as u32).div_ceil(metrics.mss.max(1)).max(1);
            metrics.add_packets_out(entry.segments);
            metrics.add_marked(entry.flags, entry.segments);
        }
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.log.clear();
        self.implicit_from = LOGGED;
        self.unit = 0;
        self.sacked.forget();
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.log.shrink_to_fit();
        if self.entries.is_empty() {
            self.sacked = SackBitmap::default();
        }
    }
}

#[cfg(test)]
mod tests;
