//! Packets that have left the queue and haven't arrived. netem has them in its queue, so that its `limit`
//! counts them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ropewalk_time::Time;

/// Times of packets on their way.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayLine {
    /// Departure and arrival of those that haven't left yet, in order of departure.
    leaving: VecDeque<(Time, Time)>,
    /// Arrivals of those on the way.
    inside: BinaryHeap<Reverse<Time>>,
}

impl DelayLine {
    /// A packet leaves the queue at `departure`, not before the last one, and arrives at `arrival`.
    pub(crate) fn push(&mut self, departure: Time, arrival: Time) {
        self.leaving.push_back((departure, arrival));
    }

    /// How many are on the way at `now`, which never moves back.
    pub(crate) fn len(&mut self, now: Time) -> u64 {
        while let Some((departure, arrival)) = self.leaving.front().copied()
            && departure <= now
        {
            self.leaving.pop_front();
            self.inside.push(Reverse(arrival));
        }
        while let Some(Reverse(arrival)) = self.inside.peek()
            && *arrival <= now
        {
            self.inside.pop();
        }
        self.inside.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_time::Time;

    use super::DelayLine;

    #[test]
    fn a_packet_is_inside_from_its_departure_to_its_arrival_in_whatever_order() {
        let mut line = DelayLine::default();
        for (departure, arrival) in [(10, 100), (20, 50), (30, 60)] {
            line.push(Time::from_nanos(departure), Time::from_nanos(arrival));
        }
        let lens: Vec<u64> =
            [0, 10, 20, 49, 50, 60, 99, 100].map(|now| line.len(Time::from_nanos(now))).into();
        assert_eq!(lens, [0, 1, 2, 3, 2, 1, 1, 0]);
    }
}
