//! A link: the machine that a [`LinkSpec`] describes. Packets go in at one end and come out at the other,
//! later, perhaps twice or never. It has no clock: time is handed in, and never goes backwards.
//!
//! Within one nanosecond, things happen in this order: a packet's last bit leaves; a scheduled change takes
//! effect; the next packet starts to be sent; new packets are queued. A packet's rate, delay, jitter and loss
//! are those in force when it starts to be sent.
//!
//! Two implementations give the same packets at the same times: `ahead` computes everything when a packet is
//! queued, and serves links of constant rate with a drop-tail queue and no changes; `stepwise` serves the
//! rest.

use ropewalk_time::{Span, Time};

use crate::precomputed::Precomputed;
use crate::stats::LinkStats;
use crate::stepwise::Stepwise;
use crate::transit::Arrival;
use crate::{LinkSpec, Queue, Rate};

/// What a link carries.
pub trait Packet {
    /// Bytes on the wire from the IP header on; a link adds its own `overhead` per packet.
    fn wire_len(&self) -> u32;
    /// Whether the IP header says ECN-capable (ECT(0), ECT(1) or CE; RFC 3168 section 5).
    fn is_ect(&self) -> bool;
    /// Sets Congestion Experienced.
    fn mark_ce(&mut self);
    /// A copy, for a link that duplicates.
    fn duplicate(&self) -> Self;
}

/// One direction of a path. The origin of `now` is the start of the run, as that of the scheduled
/// changes, and it must not go backwards from call to call.
#[derive(Debug)]
pub struct Link<T> {
    machine: Machine<T>,
}

// Precomputed links are common, and links are few: a box would cost a pointer per packet.
#[expect(clippy::large_enum_variant)]
#[derive(Debug)]
enum Machine<T> {
    Precomputed(Precomputed<T>),
    Stepwise(Box<Stepwise<T>>),
}

impl<T: Packet> Link<T> {
    /// A link by `spec`. Its draws depend on `seed` and `stream` alone: give each link of a run its own
    /// stream.
    ///
    /// Any value is accepted: changes are put in order of time, probabilities beyond 0 to 1 are cut, a trace
    /// without opportunities or a rate of 0 never sends.
    pub fn new(spec: LinkSpec, seed: u64, stream: u64) -> Self {
        let machine = match spec.rate {
            // CoDel decides when a packet leaves the queue, a change may come while it waits:
            // neither is known when it is queued.
            Rate::Constant(rate)
                if rate > 0 && spec.changes.is_empty() && !matches!(spec.queue, Queue::CoDel { .. }) =>
            {
                Machine::Precomputed(Precomputed::new(rate, &spec, seed, stream))
            }
            _ => Machine::Stepwise(Box::new(Stepwise::new(spec, seed, stream))),
        };
        Link { machine }
    }

    /// The same link, simulated step by step: what the precomputed one is tested and measured against.
    pub fn stepwise(spec: LinkSpec, seed: u64, stream: u64) -> Self {
        Link { machine: Machine::Stepwise(Box::new(Stepwise::new(spec, seed, stream))) }
    }

    /// Hands a packet in. It may be dropped at once: the queue is full, or the link is down.
    // Inlined, so that a packet is written once, into the queue.
    #[inline(always)]
    pub fn enqueue(&mut self, now: Time, packet: T) {
        match &mut self.machine {
            Machine::Precomputed(link) => link.enqueue(now, packet),
            Machine::Stepwise(link) => link.enqueue(now, packet),
        }
    }

    /// When [`poll`](Self::poll) is to be called next; `None`: not before another packet is handed in. It may
    /// be for an internal step, with nothing to deliver. Calling earlier, or later, changes no packet's
    /// arrival.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.machine {
            Machine::Precomputed(link) => link.transit.next_arrival(),
            Machine::Stepwise(link) => link.poll_timeout(),
        }
    }

    /// The next packet that has arrived by `now`, by arrival and then by the order of departure; call until
    /// `None`.
    #[inline]
    pub fn poll(&mut self, now: Time) -> Option<T> {
        self.next_arrival(now).map(|arrival| arrival.packet)
    }

    /// As [`poll`](Self::poll), without moving the packet; [`drop_due`](Self::drop_due) then removes it.
    #[inline]
    pub fn due(&mut self, now: Time) -> Option<&mut T> {
        match &mut self.machine {
            Machine::Precomputed(link) => link.transit.due(now),
            Machine::Stepwise(link) => {
                link.advance(now);
                link.transit.due(now)
            }
        }
    }

    /// Removes the packet that [`due`](Self::due) has just returned.
    #[inline]
    pub fn drop_due(&mut self) {
        let (transit, stats) = match &mut self.machine {
            Machine::Precomputed(link) => (&mut link.transit, &mut link.stats),
            Machine::Stepwise(link) => (&mut link.transit, &mut link.stats),
        };
        stats.packets_delivered += 1;
        stats.bytes_delivered += u64::from(transit.drop_due());
    }

    /// As [`poll`](Self::poll), with the exact time of arrival, at most `now`.
    #[inline]
    pub fn poll_timed(&mut self, now: Time) -> Option<(Time, T)> {
        self.next_arrival(now).map(|arrival| (arrival.at, arrival.packet))
    }

    #[inline]
    fn next_arrival(&mut self, now: Time) -> Option<Arrival<T>> {
        let (transit, stats) = match &mut self.machine {
            Machine::Precomputed(link) => (&mut link.transit, &mut link.stats),
            Machine::Stepwise(link) => {
                link.advance(now);
                (&mut link.transit, &mut link.stats)
            }
        };
        let arrival = transit.pop(now)?;
        stats.packets_delivered += 1;
        stats.bytes_delivered += u64::from(arrival.len);
        Some(arrival)
    }

    /// The least delay of a packet that is queued from now on, if packets arrive in order and at times that
    /// [`upcoming_at`](Self::upcoming_at) knows; else `None`.
    pub fn lookahead(&self) -> Option<Span> {
        match &self.machine {
            Machine::Precomputed(link) => link.constant_delay(),
            Machine::Stepwise(_) => None,
        }
    }

    /// The least delay of a packet that is queued from now on, if its arrival is known from the moment on
    /// when it is queued; else `None`. Such a link may be handed packets for times before what was taken
    /// out last.
    pub fn least_delay(&self) -> Option<Span> {
        match &self.machine {
            Machine::Precomputed(link) => Some(link.least_delay()),
            Machine::Stepwise(_) => None,
        }
    }

    /// The `index`-th packet from now and when it arrives, on links with a [`lookahead`](Self::lookahead).
    #[inline]
    pub fn upcoming_at(&self, index: usize) -> Option<(Time, &T)> {
        match &self.machine {
            Machine::Precomputed(link) => {
                link.transit.in_order()?.get(index).map(|arrival| (arrival.at, &arrival.packet))
            }
            Machine::Stepwise(_) => None,
        }
    }

    /// Removes the first `count` packets, which the caller has read with [`upcoming_at`](Self::upcoming_at).
    pub fn drop_upcoming(&mut self, count: usize) {
        if let Machine::Precomputed(link) = &mut self.machine {
            link.stats.packets_delivered += count as u64;
            link.stats.bytes_delivered += link.transit.drop_first(count);
        }
    }

    /// The counters.
    pub fn stats(&self) -> &LinkStats {
        match &self.machine {
            Machine::Precomputed(link) => &link.stats,
            Machine::Stepwise(link) => &link.stats,
        }
    }

    /// Packets in the queue at `now`, the one being sent not counted.
    pub fn queued_packets(&mut self, now: Time) -> u64 {
        match &mut self.machine {
            Machine::Precomputed(link) => {
                link.advance(now);
                link.queued_packets()
            }
            Machine::Stepwise(link) => {
                link.advance(now);
                link.queued_packets()
            }
        }
    }

    /// IP bytes in the queue at `now`, the packet being sent not counted.
    pub fn queued_bytes(&mut self, now: Time) -> u64 {
        match &mut self.machine {
            Machine::Precomputed(link) => {
                link.advance(now);
                link.queued_bytes()
            }
            Machine::Stepwise(link) => {
                link.advance(now);
                link.queued_bytes()
            }
        }
    }

    /// How long a packet handed in at `now` would wait before it starts to be sent, by the rate in force;
    /// [`Span::MAX`] when that never happens at this rate, or while the link is down.
    pub fn queue_delay(&mut self, now: Time) -> Span {
        match &mut self.machine {
            Machine::Precomputed(link) => link.queue_delay(now),
            Machine::Stepwise(link) => {
                link.advance(now);
                link.queue_delay(now)
            }
        }
    }

    /// Packets that have left the queue and not arrived. A link that computes ahead counts the queue's too.
    #[inline]
    pub fn in_flight(&self) -> usize {
        match &self.machine {
            Machine::Precomputed(link) => link.transit.len(),
            Machine::Stepwise(link) => link.in_flight(),
        }
    }
}
