//! Any link, step by step: every packet is queued, sent and in flight, each at its time. Needed for CoDel,
//! traces and scheduled changes; precomputed links are tested against it.
//!
//! A link that goes down loses its queue, the packet being sent and whatever is handed in until it is up
//! again; packets in flight arrive. A packet being sent when the rate changes is sent to its end at the rate
//! it started with. A trace starts with the run, or when a change puts it in force. When the delay shrinks,
//! packets overtake those before, as on a real change of route, unless the jitter keeps the order.

use ropewalk_time::{Span, Time};

use crate::codel::CoDel;
use crate::delay_line::DelayLine;
use crate::impairments::{Delivery, Impairments};
use crate::queue::{Admission, WaitQueue};
use crate::server::Server;
use crate::spec::{ChangeAction, Queue, Schedule};
use crate::stats::LinkStats;
use crate::transit::Transit;
use crate::{LinkSpec, Packet};

#[derive(Debug)]
pub(crate) struct Stepwise<T> {
    pub(crate) transit: Transit<T>,
    pub(crate) stats: LinkStats,
    queue: WaitQueue<T>,
    admission: Admission,
    codel: Option<CoDel>,
    server: Server,
    sending: Option<Sending>,
    impairments: Impairments,
    overhead: u32,
    /// Those in transit, where the limit counts them.
    line: Option<DelayLine>,
    down: bool,
    /// The latest step taken.
    at: Time,
    changes: Schedule,
}

/// The packet being sent. The queue stores it.
#[derive(Clone, Copy, Debug)]
struct Sending {
    start: Time,
    /// When its last bit leaves.
    departure: Time,
    len: u32,
    fate: Delivery,
}

impl<T: Packet> Stepwise<T> {
    pub(crate) fn new(spec: LinkSpec, seed: u64, stream: u64) -> Self {
        let impairments = Impairments::new(&spec, seed, stream);
        let changes = Schedule::new(&spec.changes);
        Stepwise {
            transit: Transit::new(),
            stats: LinkStats::default(),
            queue: WaitQueue::new(),
            admission: Admission::new(spec.queue),
            codel: match spec.queue {
                Queue::CoDel { target, interval, ecn, .. } => Some(CoDel::new(target, interval, ecn)),
                _ => None,
            },
            server: Server::new(&spec.rate, spec.overhead, Time::ZERO),
            sending: None,
            impairments,
            overhead: spec.overhead,
            line: spec.limit_counts_transit.then(DelayLine::default),
            down: false,
            at: Time::ZERO,
            changes,
        }
    }

    pub(crate) fn enqueue(&mut self, now: Time, mut packet: T) {
        let len = packet.wire_len();
        self.stats.packets_in += 1;
        self.stats.bytes_in += u64::from(len);
        self.advance(now);
        if self.down {
            self.stats.dropped_down += 1;
            return;
        }
        let (packets, bytes) = (self.queue.len(), self.queue.bytes());
        // What a trace offered while nothing waited is lost.
        if self.sending.is_none() && self.queue.is_empty() {
            self.server.idle_until(now);
        }
        let waits = self.next_start() != Some(now) || !self.queue.is_empty();
        let full = match &mut self.line {
            Some(line) => {
                let all = line.len(now) + packets + u64::from(self.sending.is_some());
                !self.admission.admits(all, bytes, len)
            }
            None => waits && !self.admission.admits(packets, bytes, len),
        };
        if full {
            self.stats.dropped_queue += 1;
            return;
        }
        if self.admission.marks(packets, bytes) && packet.is_ect() {
            packet.mark_ce();
            self.stats.marked += 1;
        }
        self.queue.push(now, len, packet);
        if waits {
            self.stats.saw_queue(self.queue.len(), self.queue.bytes());
        } else {
            self.advance(now);
        }
    }

    /// Takes every step due by `now`, each at its own time: what leaves first, then changes, then what
    /// starts.
    pub(crate) fn advance(&mut self, now: Time) {
        loop {
            let departure = self.sending.as_ref().map_or(Time::MAX, |sending| sending.departure);
            let change = self.changes.next().unwrap_or(Time::MAX);
            let start =
                if self.queue.is_empty() { Time::MAX } else { self.next_start().unwrap_or(Time::MAX) };
            let step = departure.min(change).min(start);
            if step > now || step == Time::MAX {
                break;
            }
            self.at = step;
            if departure == step {
                self.depart();
            } else if change == step {
                self.change();
            } else {
                self.start();
            }
        }
        self.at = self.at.max(now);
    }

    /// When the queue's first packet starts to be sent, if the link is free and nothing changes.
    fn next_start(&self) -> Option<Time> {
        if self.sending.is_some() || self.down { None } else { self.server.next_start(self.at) }
    }

    fn start(&mut self) {
        let now = self.at;
        let next = match &mut self.codel {
            Some(codel) => codel.dequeue(now, &mut self.queue, &mut self.stats),
            None => self.queue.start_first(),
        };
        if let Some(first) = next {
            self.stats.sojourn = self.stats.sojourn.saturating_add(now - first.since);
            // After CoDel's choice, since what it drops takes no time on the link.
            let departure = self.server.send(now, first.len);
            let fate = self.impairments.draw();
            self.sending = Some(Sending { start: now, departure, len: first.len, fate });
        }
    }

    fn depart(&mut self) {
        let Some(Sending { start, departure, len, fate }) = self.sending.take() else { return };
        let Some(packet) = self.queue.take_started() else { return };
        self.stats.busy = self.stats.busy.saturating_add(departure - start);
        match fate {
            Delivery::Lost => self.stats.dropped_loss += 1,
            Delivery::Arrives { after, copy_after: None } => {
                let arrival = self.impairments.arrival(departure, after);
                self.note_departure(departure, arrival);
                self.transit.push(arrival, len, packet);
            }
            Delivery::Arrives { after, copy_after: Some(copy_after) } => {
                let copy = packet.duplicate();
                let arrival = self.impairments.arrival(departure, after);
                self.note_departure(departure, arrival);
                self.transit.push(arrival, len, packet);
                let arrival = self.impairments.arrival(departure, copy_after);
                self.transit.push(arrival, len, copy);
                self.stats.duplicated += 1;
            }
        }
    }

    fn note_departure(&mut self, departure: Time, arrival: Time) {
        if let Some(line) = &mut self.line {
            line.push(departure, arrival);
        }
    }

    fn change(&mut self) {
        let Some(change) = self.changes.take() else { return };
        let at = change.at;
        match &change.action {
            ChangeAction::Rate(rate) => self.server.set(rate, self.overhead, at),
            ChangeAction::Delay(delay) => self.impairments.delay = *delay,
            ChangeAction::Loss(loss) => self.impairments.loss.set(*loss),
            ChangeAction::Up => self.down = false,
            ChangeAction::Down => {
                self.down = true;
                self.stats.dropped_down += self.queue.clear();
                if let Some(cut) = self.sending.take() {
                    self.stats.busy = self.stats.busy.saturating_add(at - cut.start);
                    // Up again, the link must not wait for a packet that is gone.
                    self.server.abandon(at);
                }
            }
        }
    }

    /// The next arrival or step. A change is a step only when packets wait that it may let go sooner:
    /// otherwise it takes effect when something else happens.
    #[inline(never)]
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let step = match &self.sending {
            Some(sending) => Some(sending.departure),
            None if self.queue.is_empty() => None,
            None => {
                let change = self.changes.next().unwrap_or(Time::MAX);
                Some(self.next_start().unwrap_or(Time::MAX).min(change))
            }
        };
        let step = step.filter(|&step| step < Time::MAX);
        match (self.transit.next_arrival(), step) {
            (Some(arrival), Some(step)) => Some(arrival.min(step)),
            (arrival, step) => arrival.or(step),
        }
    }

    #[inline(never)]
    pub(crate) fn queue_delay(&self, now: Time) -> Span {
        if self.down {
            return Span::MAX;
        }
        let free = self.sending.as_ref().map_or(now, |sending| sending.departure);
        let drain = self.server.drain(free, self.queue.len(), self.queue.bytes());
        (free - now).saturating_add(drain)
    }

    pub(crate) fn queued_packets(&self) -> u64 {
        self.queue.len()
    }

    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.transit.len()
    }
}
