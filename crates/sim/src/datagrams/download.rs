//! A download as QUIC does it: RFC 9002's losses by packets that arrived later, CUBIC (RFC 9438).

use ropewalk_engine::{Span, Time};
use std::collections::VecDeque;

/// A packet is lost when one has come that was sent so many later (RFC 9002 6.1.1).
const REORDERING: u64 = 3;
/// Packets of the initial window.
const INITIAL_WINDOW: f64 = 10.0;
/// Without any acknowledgement for so long, everything is lost.
const PERSISTENT: Span = Span::from_millis(400);
/// CUBIC's decrease, and its growth (RFC 9438 5).
const BETA: f64 = 0.7;
const C: f64 = 0.4;

/// Its sender. Packets are numbered; what is lost isn't told apart from new data.
#[derive(Debug)]
pub(super) struct Sender {
    /// The congestion window, packets.
    cwnd: f64,
    ssthresh: f64,
    /// The window before the last decrease, and when that was.
    w_max: f64,
    epoch: Time,
    next: u64,
    /// Numbers of packets in flight, and when they were sent.
    in_flight: VecDeque<(u64, Time)>,
    last_ack: Time,
}

impl Sender {
    pub(super) fn new(now: Time) -> Sender {
        Sender {
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            epoch: now,
            next: 0,
            in_flight: VecDeque::new(),
            last_ack: now,
        }
    }

    /// The number of a packet that may be sent now.
    pub(super) fn send(&mut self, now: Time) -> Option<u64> {
        if self.in_flight.len() as f64 >= self.cwnd {
            return None;
        }
        self.in_flight.push_back((self.next, now));
        self.next += 1;
        Some(self.next - 1)
    }

    /// An acknowledgement, of all for which `has_come`.
    pub(super) fn on_ack(&mut self, now: Time, has_come: impl Fn(u64) -> bool) {
        let mut largest = None;
        let before = self.in_flight.len();
        self.in_flight.retain(|(number, _)| {
            let came = has_come(*number);
            if came {
                largest = Some(*number);
            }
            !came
        });
        let Some(largest) = largest else { return };
        self.last_ack = now;
        for _ in self.in_flight.len()..before {
            self.grow(now);
        }
        while let Some((number, sent)) = self.in_flight.front().copied()
            && number + REORDERING <= largest
        {
            self.in_flight.pop_front();
            // Once a round trip.
            if sent >= self.epoch {
                self.w_max = self.cwnd;
                self.cwnd = (self.cwnd * BETA).max(2.0);
                self.ssthresh = self.cwnd;
                self.epoch = now;
            }
        }
    }

    fn grow(&mut self, now: Time) {
        if self.cwnd < self.ssthresh {
            self.cwnd += 1.0;
            return;
        }
        let since = (now - self.epoch).as_secs_f64() - libm::cbrt(self.w_max * (1.0 - BETA) / C);
        let target = C * since * since * since + self.w_max;
        let reno = 3.0 * (1.0 - BETA) / (1.0 + BETA) / self.cwnd;
        self.cwnd += ((target - self.cwnd) / self.cwnd).max(reno).min(0.5);
    }

    /// When everything is lost unless an acknowledgement comes before.
    pub(super) fn timeout(&self) -> Option<Time> {
        self.in_flight.back().map(|(_, sent)| self.last_ack.max(*sent) + PERSISTENT)
    }

    pub(super) fn on_timeout(&mut self, now: Time) {
        if self.timeout().is_some_and(|at| at <= now) {
            self.in_flight.clear();
            self.ssthresh = (self.cwnd / 2.0).max(2.0);
            self.cwnd = 2.0;
            self.last_ack = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many milliseconds after the start.
    fn after(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn a_window_doubles_in_a_round_trip_and_shrinks_once_for_one_loss() {
        let mut sender = Sender::new(Time::ZERO);
        let mut now = Time::ZERO;
        let mut round = |sender: &mut Sender, lost: &[u64]| {
            let sent: Vec<u64> = std::iter::from_fn(|| sender.send(now)).collect();
            now += Span::from_millis(50);
            sender.on_ack(now, |number| !lost.contains(&number));
            sent.len()
        };
        assert_eq!([round(&mut sender, &[]), round(&mut sender, &[])], [10, 20]);
        assert_eq!(round(&mut sender, &[31, 33]), 40);
        // 78 have become 0.7 of it.
        assert_eq!(round(&mut sender, &[]), 55);
    }

    #[test]
    fn it_begins_again_after_silence() {
        let mut sender = Sender::new(Time::ZERO);
        while sender.send(Time::ZERO).is_some() {}
        sender.on_timeout(after(399));
        assert_eq!(sender.send(after(399)), None);
        sender.on_timeout(after(400));
        assert_eq!(sender.send(after(400)), Some(10));
        assert_eq!((sender.send(after(400)), sender.send(after(400))), (Some(11), None));
    }
}
