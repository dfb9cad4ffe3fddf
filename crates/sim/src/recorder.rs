//! Records of a run, if asked for: what became of every data segment, and every scheduler decision.

use std::collections::{BTreeMap, HashMap};

use ropewalk_engine::mptcp::DecisionRecord;
use ropewalk_engine::scheduler::with_names;
use ropewalk_engine::{PathId, SubflowId, Time};
use ropewalk_wire::{Flags, FourTuple, Segment, SyntheticPayload};

use crate::Side;
use crate::observer::SegmentObserver;
use crate::result::{DecisionTrace, SegmentTrace, Transmission};
use crate::spec::Recording;

/// No trace.
pub(crate) const UNTRACED: u32 = u32::MAX;

/// See the module.
pub(crate) struct Recorder {
    recording: Recording,
    pub(crate) data_from: Side,
    /// By the tuple of the data's direction.
    subflows: HashMap<FourTuple, Subflow>,
    connections: BTreeMap<u32, SentRanges>,
    /// Bytes that schedulers had repeated when last asked.
    repeated: u64,
    pub(crate) segments: Vec<SegmentTrace>,
    pub(crate) decisions: Vec<DecisionTrace>,
    pub(crate) observer: Option<Box<dyn SegmentObserver>>,
}

/// One subflow as its segments show it.
#[derive(Debug)]
struct Subflow {
    connection: Option<u32>,
    isn: u32,
    /// Highest position sent, from the ISN, unwrapped.
    sent: u64,
    /// By end position: traces that no acknowledgement covers yet.
    unacked: BTreeMap<(u64, u32), u64>,
}

/// The ranges of a connection's stream that were sent already.
#[derive(Debug, Default)]
struct SentRanges {
    /// The data sequence number that offsets count from: the first one seen.
    base: Option<u64>,
    /// Disjoint ranges, start to end, by signed distance from the base.
    ranges: BTreeMap<i64, i64>,
    /// The least distance seen: offset 0.
    least: i64,
}

impl SentRanges {
    /// Adds a range. Returns whether any of it was there already.
    fn add(&mut self, start: i64, end: i64) -> bool {
        self.least = self.least.min(start);
        let (mut start, mut end) = (start, end);
        let mut overlaps = false;
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back() {
            if to < start {
                break;
            }
            overlaps |= to > start && from < end;
            start = start.min(from);
            end = end.max(to);
            self.ranges.remove(&from);
        }
        self.ranges.insert(start, end);
        overlaps
    }
}

/// A position near `near` that has these low 32 bits.
fn unfold(low: u32, near: u64) -> u64 {
    let distance = low.wrapping_sub(near as u32) as i32;
    near.saturating_add_signed(i64::from(distance))
}

impl Recorder {
    pub(crate) fn new(recording: Recording, data_from: Side) -> Self {
        Recorder {
            recording,
            data_from,
            subflows: HashMap::new(),
            connections: BTreeMap::new(),
            repeated: 0,
            segments: Vec::new(),
            decisions: Vec::new(),
            observer: None,
        }
    }

    /// Notifies the observer of a segment that was sent.
    pub(crate) fn notify_sent(
        &mut self,
        now: Time,
        side: Side,
        path: PathId,
        trace: u32,
        segment: &Segment<SyntheticPayload>,
    ) {
        if let Some(observer) = &mut self.observer {
            let trace = (trace != UNTRACED).then_some(trace);
            observer.on_sent(now, side, usize::from(path.0), trace, segment);
        }
    }

    /// Notifies the observer of a segment that arrived.
    pub(crate) fn notify_arrived(
        &mut self,
        now: Time,
        side: Side,
        path: PathId,
        segment: &Segment<SyntheticPayload>,
    ) {
        if let Some(observer) = &mut self.observer {
            observer.on_arrived(now, side, usize::from(path.0), segment);
        }
    }

    /// A subflow belongs to this connection; its tuple in either direction.
    pub(crate) fn subflow(&mut self, connection: u32, tuple: FourTuple) {
        for tuple in [tuple, tuple.reversed()] {
            if let Some(subflow) = self.subflows.get_mut(&tuple) {
                subflow.connection = Some(connection);
            }
        }
    }

    /// A segment left `side`. Returns the number of its trace.
    pub(crate) fn sent(
        &mut self,
        now: Time,
        side: Side,
        path: u16,
        segment: &Segment<SyntheticPayload>,
    ) -> u32 {
        if !self.recording.segments || side != self.data_from {
            return UNTRACED;
        }
        if segment.flags.contains(Flags::SYN) {
            let fresh = Subflow { connection: None, isn: segment.seq.0, sent: 0, unacked: BTreeMap::new() };
            self.subflows.entry(segment.tuple).or_insert(fresh);
        }
        if segment.payload.0 == 0 {
            return UNTRACED;
        }
        let Some(subflow) = self.subflows.get_mut(&segment.tuple) else { return UNTRACED };
        let connection = subflow.connection.unwrap_or(0);
        let start = unfold(segment.seq.0.wrapping_sub(subflow.isn), subflow.sent);
        let end = start + u64::from(segment.payload.0);
        let repeated = start < subflow.sent;
        subflow.sent = subflow.sent.max(end);
        let sent_ranges = self.connections.entry(connection).or_default();
        let number = segment.dss.as_ref().and_then(|dss| dss.mapping.as_ref()).map_or(start, |mapping| {
            if mapping.dsn_is_64 {
                mapping.dsn
            } else {
                let known =
                    sent_ranges.base.map_or(mapping.dsn, |base| base.wrapping_add_signed(sent_ranges.least));
                unfold(mapping.dsn as u32, known)
            }
        });
        let base = *sent_ranges.base.get_or_insert(number);
        let distance = number.wrapping_sub(base) as i64;
        let elsewhere = sent_ranges.add(distance, distance + i64::from(segment.payload.0));
        let transmission = match (repeated, elsewhere) {
            (true, _) => Transmission::Retransmitted,
            (false, true) => Transmission::Reinjected,
            (false, false) => Transmission::New,
        };
        let trace = self.segments.len() as u32;
        subflow.unacked.insert((end, trace), start);
        self.segments.push(SegmentTrace {
            connection,
            path,
            // Converted to an offset at the end, when the least distance is known.
            offset: distance as u64,
            len: segment.payload.0,
            sent: now,
            arrived: None,
            acked: None,
            transmission,
        });
        trace
    }

    /// A segment came out of the network at `side`.
    pub(crate) fn arrived(&mut self, now: Time, side: Side, trace: u32, segment: &Segment<SyntheticPayload>) {
        if side != self.data_from {
            if let Some(trace) = self.segments.get_mut(trace as usize) {
                // A duplicate's second arrival says nothing new.
                trace.arrived.get_or_insert(now);
            }
            return;
        }
        if !segment.flags.contains(Flags::ACK) {
            return;
        }
        let Some(subflow) = self.subflows.get_mut(&segment.tuple.reversed()) else { return };
        let position = |number: u32, near: u64| unfold(number.wrapping_sub(subflow.isn), near);
        let ack = position(segment.ack.0, subflow.sent);
        let blocks: Vec<_> = segment
            .sack
            .as_slice()
            .iter()
            .map(|&(left, right)| (position(left, ack), position(right, ack)))
            .collect();
        let segments = &mut self.segments;
        let mut mark = |trace: u32| {
            if let Some(trace) = segments.get_mut(trace as usize) {
                trace.acked = Some(now);
            }
        };
        let later = subflow.unacked.split_off(&(ack + 1, 0));
        for &(_, trace) in subflow.unacked.keys() {
            mark(trace);
        }
        subflow.unacked = later;
        for (left, right) in blocks {
            let covered: Vec<_> = subflow
                .unacked
                .range((left, 0)..=(right, u32::MAX))
                .filter(|&(_, &start)| start >= left)
                .map(|(&key, _)| key)
                .collect();
            for key in covered {
                subflow.unacked.remove(&key);
                mark(key.1);
            }
        }
    }

    /// A scheduler decided. `paths` gives each subflow's path; `names` each path's name.
    pub(crate) fn decision(
        &mut self,
        connection: u32,
        record: &DecisionRecord,
        path_of: impl Fn(SubflowId) -> Option<PathId>,
        names: &[String],
    ) {
        let DecisionRecord { at, decision, offset, bytes, .. } = *record;
        let reason = &record.reason;
        let path = decision.subflow().and_then(&path_of).map(|path| path.0);
        if self.recording.decisions {
            let reason = with_names(reason, |index| {
                let path = path_of(SubflowId(index))?;
                names.get(path.0 as usize).map(String::as_str)
            });
            self.decisions.push(DecisionTrace { at, connection, decision, path, offset, bytes, reason });
        }
    }

    /// Whether a segment was sent again on another subflow, by the connection or by its scheduler.
    pub(crate) fn may_be_duplicate(&self, trace: u32) -> bool {
        self.segments.get(trace as usize).is_some_and(|trace| trace.transmission == Transmission::Reinjected)
    }

    /// Decides which: the scheduler if the bytes that it has repeated have grown.
    pub(crate) fn classify_duplicate(&mut self, trace: u32, repeated: u64) {
        if repeated > self.repeated
            && let Some(trace) = self.segments.get_mut(trace as usize)
        {
            trace.transmission = Transmission::Duplicated;
        }
        self.repeated = repeated;
    }

    /// The traces, with times from `begin` on and offsets from the stream's start.
    pub(crate) fn finish(mut self, begin: Time) -> (Vec<SegmentTrace>, Vec<DecisionTrace>) {
        let warmup = begin.since_origin();
        for trace in &mut self.segments {
            let least = self.connections.get(&trace.connection).map_or(0, |sent_ranges| sent_ranges.least);
            trace.offset = (trace.offset as i64).wrapping_sub(least) as u64;
            trace.sent = trace.sent.saturating_back(warmup);
            trace.arrived = trace.arrived.map(|at| at.saturating_back(warmup));
            trace.acked = trace.acked.map(|at| at.saturating_back(warmup));
        }
        for decision in &mut self.decisions {
            decision.at = decision.at.saturating_back(warmup);
        }
        (self.segments, self.decisions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_wire::Seq;

    #[test]
    fn ranges_join_and_overlaps_show() {
        let mut sent_ranges = SentRanges::default();
        assert!(!sent_ranges.add(0, 10));
        assert!(!sent_ranges.add(10, 20));
        assert!(!sent_ranges.add(40, 50));
        assert_eq!(sent_ranges.ranges.len(), 2);
        assert!(sent_ranges.add(15, 45));
        assert_eq!(sent_ranges.ranges.iter().collect::<Vec<_>>(), [(&0, &50)]);
        assert!(sent_ranges.add(3, 4));
        assert!(!sent_ranges.add(-10, 0));
        assert_eq!(sent_ranges.least, -10);
    }

    fn tuple() -> FourTuple {
        FourTuple::new("192.0.2.1:5000".parse().expect("one"), "10.0.0.2:10000".parse().expect("one"))
    }

    #[test]
    fn a_segment_lives_through_loss_and_retransmission() {
        let at = Time::from_nanos;
        let recording = Recording { segments: true, ..Recording::default() };
        let mut recorder = Recorder::new(recording, Side::Server);
        // Starts just before the wrap.
        let isn = Seq(u32::MAX - 5);
        let syn = Segment::new(tuple(), isn, Seq(0), Flags::SYN.with(Flags::ACK));
        assert_eq!(recorder.sent(at(1), Side::Server, 0, &syn), UNTRACED);
        recorder.subflow(7, tuple().reversed());
        let data = |position: u32| {
            let mut segment = Segment::new(tuple(), isn.plus(position), Seq(0), Flags::ACK);
            segment.payload = SyntheticPayload(100);
            segment
        };
        let first = recorder.sent(at(10), Side::Server, 0, &data(1));
        let second = recorder.sent(at(11), Side::Server, 0, &data(101));
        recorder.arrived(at(20), Side::Client, second, &data(101));
        let mut sack = Segment::new(tuple().reversed(), Seq(0), isn.plus(1), Flags::ACK);
        sack.sack.push(isn.plus(101).0, isn.plus(201).0);
        recorder.arrived(at(30), Side::Server, UNTRACED, &sack);
        let again = recorder.sent(at(31), Side::Server, 0, &data(1));
        recorder.arrived(at(40), Side::Client, again, &data(1));
        let ack = Segment::new(tuple().reversed(), Seq(0), isn.plus(201), Flags::ACK);
        recorder.arrived(at(50), Side::Server, UNTRACED, &ack);
        assert_eq!((first, second, again), (0, 1, 2));
        let (segments, _) = recorder.finish(at(10));
        let trace = |offset, sent, arrived, acked, transmission| SegmentTrace {
            connection: 7,
            path: 0,
            offset,
            len: 100,
            sent,
            arrived,
            acked,
            transmission,
        };
        assert_eq!(
            segments,
            [
                // The acknowledgement covers the range, so the first copy counts as acknowledged too.
                trace(0, at(0), None, Some(at(40)), Transmission::New),
                trace(100, at(1), Some(at(10)), Some(at(20)), Transmission::New),
                trace(0, at(21), Some(at(30)), Some(at(40)), Transmission::Retransmitted),
            ]
        );
    }
}
