//! The transmitter of a link that is simulated step by step: a constant rate, a trace, or no rate at all.

use std::sync::Arc;

use ropewalk_time::{NANOSECOND, Span, Time};

use crate::serializer::Serializer;
use crate::spec::{Rate, RateTrace};
use crate::trace::OPPORTUNITY_BYTES;

#[derive(Clone, Debug)]
pub(crate) enum Server {
    Constant(Serializer),
    Trace(TraceClock),
    /// Rate 0, or a trace that lets nothing leave.
    Stalled,
}

impl Server {
    /// A server whose trace, if it is one, starts at `now`.
    pub(crate) fn new(rate: &Rate, overhead: u32, now: Time) -> Self {
        match rate {
            Rate::Constant(0) => Server::Stalled,
            Rate::Constant(rate) => {
                let mut serializer = Serializer::new(*rate, overhead);
                serializer.idle_until(now);
                Server::Constant(serializer)
            }
            Rate::Trace(trace) if trace.period().is_zero() => Server::Stalled,
            Rate::Trace(trace) => Server::Trace(TraceClock::new(trace.clone(), overhead, now)),
        }
    }

    /// Sets the rate for packets that start to be sent from `now` on.
    pub(crate) fn set(&mut self, rate: &Rate, overhead: u32, now: Time) {
        match (&mut *self, rate) {
            (Server::Constant(serializer), Rate::Constant(rate)) if *rate > 0 => serializer.set_rate(*rate),
            _ => *self = Server::new(rate, overhead, now),
        }
    }

    /// The queue was empty and nothing was being sent until a packet came at `now`.
    pub(crate) fn idle_until(&mut self, now: Time) {
        match self {
            Server::Constant(serializer) => serializer.idle_until(now),
            // An opportunity at this moment found the queue empty: it is lost.
            Server::Trace(clock) => clock.skip_to_after(now),
            Server::Stalled => {}
        }
    }

    /// Aborts the packet being sent at `now`: the server is free again.
    pub(crate) fn abandon(&mut self, now: Time) {
        match self {
            Server::Constant(serializer) => serializer.idle_until(now),
            // The aborted packet had taken opportunities beyond this moment: they are free again.
            Server::Trace(clock) => clock.seek_after(now),
            Server::Stalled => {}
        }
    }

    /// When the queue's first packet, free to go from `from` on, starts to be sent.
    pub(crate) fn next_start(&self, from: Time) -> Option<Time> {
        match self {
            Server::Constant(_) => Some(from),
            Server::Trace(clock) => Some(clock.next_from(from)),
            Server::Stalled => None,
        }
    }

    /// Starts to send a packet of `len` bytes at `start`; when its last bit leaves.
    pub(crate) fn send(&mut self, start: Time, len: u32) -> Time {
        match self {
            Server::Constant(serializer) => {
                if start > serializer.free_at() {
                    serializer.idle_until(start);
                }
                serializer.send(len)
            }
            Server::Trace(clock) => {
                clock.skip_to(start);
                clock.send(u64::from(len) + u64::from(clock.overhead))
            }
            Server::Stalled => start,
        }
    }

    /// How long from `now` until packets of `bytes` in all are sent, when nothing else is.
    pub(crate) fn drain(&self, now: Time, packets: u64, bytes: u64) -> Span {
        match self {
            Server::Constant(serializer) => serializer.duration(packets, bytes),
            Server::Trace(clock) => {
                let mut clock = clock.clone();
                clock.skip_to(now);
                let bytes = bytes.saturating_add(packets.saturating_mul(clock.overhead.into()));
                if bytes > 0 {
                    clock.send(bytes);
                }
                // The packet after them starts with what is left of the last opportunity, or the next.
                clock.next_from(now).saturating_sub(now)
            }
            Server::Stalled => Span::MAX,
        }
    }
}

/// A position in a trace. An opportunity that is partly used has fewer bytes left.
#[derive(Clone, Debug)]
pub(crate) struct TraceClock {
    trace: Arc<RateTrace>,
    overhead: u32,
    /// When the trace started.
    origin: Time,
    /// When the current period started.
    cycle_start: Time,
    index: usize,
    /// When the next opportunity is, that of `index`.
    next: Time,
    left: u32,
}

impl TraceClock {
    fn new(trace: Arc<RateTrace>, overhead: u32, origin: Time) -> Self {
        let next = origin.saturating_add(trace.at(0));
        TraceClock { trace, overhead, origin, cycle_start: origin, index: 0, next, left: OPPORTUNITY_BYTES }
    }

    /// The opportunity of this index, all of it, is next.
    fn set_index(&mut self, index: usize) {
        self.index = index;
        self.next = self.cycle_start.saturating_add(self.trace.at(index));
        self.left = OPPORTUNITY_BYTES;
    }

    /// When the first opportunity at or after `from` is.
    fn next_from(&self, from: Time) -> Time {
        if self.next >= from {
            return self.next;
        }
        let mut later = self.clone();
        later.skip_to(from);
        later.next
    }

    /// Opportunities before `time` are lost.
    fn skip_to(&mut self, time: Time) {
        if self.next >= time {
            return;
        }
        self.skip_to_after(time - NANOSECOND);
    }

    /// Opportunities up to and at `time` are lost.
    fn skip_to_after(&mut self, time: Time) {
        if self.next <= time {
            self.seek_after(time);
        }
    }

    /// The first opportunity after `time` is next, wherever the clock was.
    fn seek_after(&mut self, time: Time) {
        let (cycle, index) = self.trace.first_after(time.saturating_sub(self.origin));
        self.cycle_start = self.origin.saturating_add(self.trace.period().saturating_mul(cycle));
        // A trace that isn't in order may have none where one should be.
        self.set_index(index.min(self.trace.len() - 1));
    }

    /// Uses opportunities until `bytes` have left; when that is.
    fn send(&mut self, bytes: u64) -> Time {
        let opportunity = u64::from(OPPORTUNITY_BYTES);
        let begun = u64::from(OPPORTUNITY_BYTES - self.left) + bytes;
        // Those that are used, the present one among them; what the last one has left.
        let (used, left) = (begun.div_ceil(opportunity).max(1), begun.next_multiple_of(opportunity) - begun);
        self.advance(used - 1);
        let departure = self.next;
        if left == 0 && bytes > 0 {
            self.advance(1);
        } else if bytes > 0 {
            self.left = left as u32;
        }
        departure
    }

    /// So many opportunities on, that one is next.
    fn advance(&mut self, count: u64) {
        if count > 0 {
            let (index, len) = (self.index as u64 + count, self.trace.len() as u64);
            if index >= len {
                let cycles = self.trace.period().saturating_mul(index / len);
                self.cycle_start = self.cycle_start.saturating_add(cycles);
            }
            self.set_index((index % len) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_time::MILLISECOND;

    use super::*;

    const MS: Span = MILLISECOND;

    fn at(ms: u64) -> Time {
        Time::ZERO + ms * MS
    }

    fn clock(text: &str, origin: Time) -> TraceClock {
        TraceClock::new(Arc::new(RateTrace::parse("t", text).unwrap()), 0, origin)
    }

    #[test]
    fn packets_share_an_opportunity_and_span_several() {
        let mut clock = clock("1\n2\n4\n", Time::ZERO);
        assert_eq!([500, 500, 500, 1, 1500, 1499].map(|n| clock.send(n)), [1, 1, 1, 2, 4, 4].map(at));
        // The period of 4 ms starts again.
        assert_eq!([1500, 4500].map(|n| clock.send(n)), [5, 9].map(at));
    }

    #[test]
    fn the_idle_lose_their_opportunities() {
        let mut clock = clock("1\n1\n2\n4\n", at(10));
        clock.skip_to_after(at(5));
        assert_eq!(clock.next, at(11));
        assert_eq!(clock.send(100), at(11));
        clock.skip_to(at(11));
        assert_eq!(clock.left, 1400);
        clock.skip_to_after(at(11));
        assert_eq!((clock.next, clock.left), (at(12), 1500));
        clock.skip_to_after(at(14));
        assert_eq!(clock.next, at(15));
        clock.skip_to(at(1_000_000));
        assert_eq!(clock.next, at(1_000_000));
    }
}
