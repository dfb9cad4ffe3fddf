//! Packets that are ready for this end's device.
//!
//! Packets of a flow that is kept in order wait behind a lost one until that is sent again: at 100 Mbit/s up
//! to a megabyte. Delivered at once they overrun the receiver: a UDP socket of Linux holds 208 KiB by
//! default, some ninety packets with what the kernel adds to each. So they are delivered at twice the rate at
//! which they arrived. The rate doubles every 40 ms, so that the queue gets empty though new packets join it.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{MILLISECOND, SECOND};

/// Bytes that may always be delivered at once.
const BURST: usize = 32_000;
/// Packets that have waited are delivered so many times as fast as they arrived.
const SPEED_UP: f64 = 2.0;
/// After such a time the rate doubles.
const DOUBLED_AFTER: u64 = 40 * MILLISECOND;
/// A timer that is late by no more doesn't lower the rate.
const LATE: u64 = MILLISECOND;

/// Packets that are ready for this end's device.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    urgent: VecDeque<Bytes>,
    in_order: VecDeque<Bytes>,
    /// Bytes per second at which those in order are delivered; `None`: at once.
    pace: Option<f64>,
    /// When it was set, or last doubled.
    since: u64,
    /// When the next one of those may be delivered.
    next: u64,
    /// Packets that were handed to it.
    pub count: u64,
}

impl Handover {
    /// A packet of a flow that isn't kept in order.
    pub fn push(&mut self, packet: Bytes) {
        self.count += 1;
        self.urgent.push_back(packet);
    }

    /// A packet whose flow is kept in order.
    pub fn push_in_order(&mut self, packet: Bytes) {
        self.count += 1;
        self.in_order.push_back(packet);
    }

    /// So many bytes of those pushed last have waited for a packet before them; the first for this time.
    pub fn have_waited(&mut self, now: u64, bytes: usize, time: u64) {
        if bytes > BURST {
            let pace = SPEED_UP * bytes as f64 * SECOND as f64 / time.max(MILLISECOND) as f64;
            if self.pace.is_none_or(|old| old < pace) {
                (self.pace, self.since) = (Some(pace), now);
            }
        }
    }

    /// The next packet that may be delivered.
    pub fn pop(&mut self, now: u64) -> Option<Bytes> {
        if let Some(packet) = self.urgent.pop_front() {
            return Some(packet);
        }
        let Some(pace) = &mut self.pace else { return self.in_order.pop_front() };
        if self.next > now {
            return None;
        }
        if now.saturating_sub(self.since) > DOUBLED_AFTER {
            (*pace, self.since) = (2.0 * *pace, now);
        }
        let pace = *pace;
        let Some(packet) = self.in_order.pop_front() else {
            self.pace = None;
            return None;
        };
        let takes = (packet.len() as f64 / pace * SECOND as f64) as u64;
        self.next = self.next.max(now.saturating_sub(LATE)) + takes;
        Some(packet)
    }

    /// When the next packet may be delivered.
    pub fn next_timeout(&self) -> Option<u64> {
        let is_empty = self.urgent.is_empty() && self.in_order.is_empty();
        (!is_empty).then_some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Bytes = Bytes::from_static(&[0; 1000]);

    #[test]
    fn packets_that_waited_are_delivered_twice_as_fast_as_they_arrived() {
        let mut handover = Handover::default();
        (0..600).for_each(|_| handover.push_in_order(PACKET));
        handover.have_waited(SECOND, 600_000, 60 * MILLISECOND);
        let (mut now, mut counts) = (SECOND, Vec::new());
        while let Some(next) = handover.next_timeout() {
            now = now.max(next);
            let before = counts.len();
            while handover.pop(now).is_some() {
                counts.push(now);
            }
            assert!(counts.len() - before <= 41, "{} at once", counts.len() - before);
            now += MILLISECOND;
        }
        assert_eq!(counts.len(), 600);
        let took = counts[599] - SECOND;
        assert!((28..32).contains(&(took / MILLISECOND)), "{took} ns");
        // And after that as they come.
        (0..50).for_each(|_| handover.push_in_order(PACKET));
        assert_eq!(std::iter::from_fn(|| handover.pop(now)).count(), 50);
    }

    #[test]
    fn a_short_wait_and_urgent_packets_go_at_once() {
        let mut handover = Handover::default();
        (0..30).for_each(|_| handover.push_in_order(PACKET));
        handover.have_waited(0, 30_000, MILLISECOND);
        assert_eq!(std::iter::from_fn(|| handover.pop(0)).count(), 30);
        (0..600).for_each(|_| handover.push_in_order(PACKET));
        handover.have_waited(SECOND, 600_000, 60 * MILLISECOND);
        while handover.pop(SECOND).is_some() {}
        handover.push(Bytes::from_static(b"call"));
        assert_eq!(handover.pop(SECOND), Some(Bytes::from_static(b"call")));
        assert!(handover.pop(SECOND).is_none());
    }
}
