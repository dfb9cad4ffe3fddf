//! A drop-tail link of constant rate that never changes. A packet's departure and arrival are computed when
//! it is queued, so the only pending event is the next arrival. The queue holds only the times at which its
//! packets start to be sent.

use std::collections::VecDeque;

use ropewalk_time::{Span, Time};

use crate::delay_line::DelayLine;
use crate::impairments::{Delivery, Impairments};
use crate::queue::Admission;
use crate::serializer::Serializer;
use crate::stats::LinkStats;
use crate::transit::Transit;
use crate::{LinkSpec, Packet};

#[derive(Debug)]
pub(crate) struct Precomputed<T> {
    pub(crate) transit: Transit<T>,
    pub(crate) stats: LinkStats,
    serializer: Serializer,
    admission: Admission,
    waiting: VecDeque<Waiting>,
    waiting_bytes: u64,
    impairments: Impairments,
    /// See [`Impairments::fixed_delay`].
    fixed_delay: Option<Span>,
    /// Those in transit, where the limit counts them.
    line: Option<Box<DelayLine>>,
    /// When the duplicate of the packet that is being queued arrives.
    copy: Option<Time>,
}

/// A packet in the queue: when it leaves it, and its size.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    start: Time,
    len: u32,
}

impl<T: Packet> Precomputed<T> {
    /// `rate` in bits per second, not 0.
    pub(crate) fn new(rate: u64, spec: &LinkSpec, seed: u64, stream: u64) -> Self {
        let impairments = Impairments::new(spec, seed, stream);
        Precomputed {
            transit: Transit::new(),
            stats: LinkStats::default(),
            serializer: Serializer::new(rate, spec.overhead),
            admission: Admission::new(spec.queue),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            fixed_delay: impairments.fixed_delay(),
            line: spec.limit_counts_transit.then(Box::default),
            copy: None,
            impairments,
        }
    }

    #[inline(always)]
    pub(crate) fn enqueue(&mut self, now: Time, mut packet: T) {
        let len = packet.wire_len();
        self.stats.packets_in += 1;
        self.stats.bytes_in += u64::from(len);
        self.advance(now);
        let marks = self.admission.marks(self.waiting.len() as u64, self.waiting_bytes);
        let free_at = self.serializer.free_at();
        if let Some(line) = &mut self.line {
            // netem's `limit` counts the packet being sent as well.
            let all = line.len(now) + self.waiting.len() as u64 + u64::from(free_at > now);
            if !self.admission.admits(all, self.waiting_bytes, len) {
                self.stats.dropped_queue += 1;
                return;
            }
        }
        let start = if free_at > now {
            if !self.admission.admits(self.waiting.len() as u64, self.waiting_bytes, len) {
                self.stats.dropped_queue += 1;
                return;
            }
            self.waiting.push_back(Waiting { start: free_at, len });
            self.waiting_bytes += u64::from(len);
            self.stats.saw_queue(self.waiting.len() as u64, self.waiting_bytes);
            self.stats.sojourn = self.stats.sojourn.saturating_add(free_at - now);
            free_at
        } else {
            self.serializer.idle_until(now);
            now
        };
        if marks && packet.is_ect() {
            packet.mark_ce();
            self.stats.marked += 1;
        }
        let departure = self.serializer.send(len);
        // What was sent before had departed by `start`: the sum is at most `departure`.
        self.stats.busy += departure - start;
        let arrival = match self.fixed_delay {
            Some(delay) => departure.saturating_add(delay),
            None => match self.draw(departure) {
                Some(arrival) => arrival,
                // A lost packet has taken its time on the link.
                None => return,
            },
        };
        if let Some(line) = &mut self.line {
            line.push(departure, arrival);
        }
        if let Some(copy) = self.copy.take() {
            self.push_with_copy(arrival, copy, len, packet);
        } else {
            self.transit.push(arrival, len, packet);
        }
    }

    /// When the packet that departs then arrives, if it does. Sets `copy` if it is duplicated.
    #[inline(never)]
    fn draw(&mut self, departure: Time) -> Option<Time> {
        match self.impairments.draw() {
            Delivery::Lost => {
                self.stats.dropped_loss += 1;
                None
            }
            Delivery::Arrives { after, copy_after } => {
                let arrival = self.impairments.arrival(departure, after);
                if let Some(copy_after) = copy_after {
                    self.copy = Some(self.impairments.arrival(departure, copy_after));
                }
                Some(arrival)
            }
        }
    }

    #[cold]
    fn push_with_copy(&mut self, arrival: Time, copy_arrival: Time, len: u32, packet: T) {
        let copy = packet.duplicate();
        self.transit.push(arrival, len, packet);
        self.transit.push(copy_arrival, len, copy);
        self.stats.duplicated += 1;
    }

    /// Packets that have started to be sent by `now` are no longer in the queue.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time) {
        while let Some(first) = self.waiting.front()
            && first.start <= now
        {
            self.waiting_bytes -= u64::from(first.len);
            self.waiting.pop_front();
        }
    }

    /// See [`Impairments::constant_delay`].
    pub(crate) fn constant_delay(&self) -> Option<Span> {
        self.impairments.constant_delay()
    }

    /// See [`Impairments::least_delay`].
    pub(crate) fn least_delay(&self) -> Span {
        self.impairments.least_delay()
    }

    pub(crate) fn queue_delay(&self, now: Time) -> Span {
        self.serializer.free_at().saturating_sub(now)
    }

    pub(crate) fn queued_packets(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub(crate) fn queued_bytes(&self) -> u64 {
        self.waiting_bytes
    }
}
