//! What one link does in the second under way, and whether it is full: for the recorder, and for policies
//! that go on to the next link then.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Sample;
use crate::proxy::link_settings::Rates;

/// The least round-trip time of so many seconds is the one without a queue.
const REMEMBERED: usize = 60;
/// A link is full while the round-trip times of its data are longer than that by this share, and by this
/// time, seconds.
const QUEUED: (f32, f32) = (0.15, 0.005);
/// How long a link has to be full in a second, for its rate to be known.
const LEAST_FULL: Duration = Duration::from_millis(250);
/// In how many looks of a second a link has to be full to count as full where that decides: single round-trip
/// times may be long for other reasons.
const MOSTLY_FULL: u32 = 4;
/// Fewest bytes in flight where there is a queue: TCP's initial window. Where a program sends now and then,
/// its pauses are in the round-trip times that the receiver measures.
const LEAST_IN_FLIGHT: f64 = 14_000.0;
/// Data of a full link come without gaps: these make up less than this share of the time.
const GAPS: f64 = 0.5;
/// A gap is longer than so many full packets take at the rate that is carried.
const GAP_PACKETS: f64 = 3.0 * 1500.0 * 8.0;
/// Traffic one way of which the other way's is this share, at least, isn't only its ACKs.
const ACKS: u64 = 10;
/// A direction that carries this share of its most may be what is full.
const NEARLY: f64 = 0.7;
/// How a direction's most is forgotten, each second.
const FORGOTTEN: f64 = 0.99;
/// A queue that is this share of its usual most may overflow.
const NEARLY_FULL: f32 = 0.7;
/// Looks with data and without such a queue after which losses are the link's own: those of a queue that
/// overflowed, and those of an outage, are repaired by then.
const CALM: u32 = 5;
/// An answer that comes later than this share and this time, seconds, tells of a pause.
const PAUSED: (f32, f32) = (1.0, 0.15);

/// What the data of one direction tells in a look.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Heard {
    /// Its round-trip times, seconds.
    pub rtts: Vec<f32>,
    /// Full-sized packets that were sent, and how many of them were lost.
    pub packets: (u64, u64),
}

impl Heard {
    fn longest(&self) -> Option<f32> {
        self.rtts.iter().copied().reduce(f32::max)
    }
}

/// One direction.
#[derive(Debug, Default)]
struct Flowing {
    /// Looks since it wasn't full.
    run: u32,
    /// Those of this second in which it was.
    looks: u32,
    /// The last of them.
    last: (u64, Duration),
    /// Bytes, and time, of those that had full ones before and after.
    full: (u64, Duration),
    /// Looks in a row with data and without a queue that might overflow.
    calm: u32,
    /// Packets sent and lost while there were enough of these.
    packets: (u64, u64),
    /// What it carried in the last look, and the most that it carried, bits per second.
    rate: f64,
    most: f64,
}

impl Flowing {
    fn look(&mut self, bytes: u64, time: Duration, is_full: bool) {
        if !is_full {
            self.run = 0;
            return;
        }
        // The first and the last of a run may be full in part.
        if self.run >= 2 {
            self.full = (self.full.0 + self.last.0, self.full.1 + self.last.1);
        }
        self.run += 1;
        self.looks += 1;
        self.last = (bytes, time);
    }

    /// Counts the packets sent and lost since the last look.
    fn hear(&mut self, packets: (u64, u64), is_calm: bool) {
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        if self.calm > CALM {
            self.packets = (self.packets.0 + packets.0, self.packets.1 + packets.1);
        }
    }

    /// The rate while it was full.
    fn second(&mut self) -> Option<u64> {
        self.most *= FORGOTTEN;
        self.looks = 0;
        let (bytes, time) = std::mem::take(&mut self.full);
        (time >= LEAST_FULL).then(|| bits_per_s(bytes, time) as u64)
    }
}

fn bits_per_s(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8.0 / time.as_secs_f64().max(1e-3)
}

/// A link that was full has room once all links together have carried less than this share of what it carried
/// then, for so many seconds: what another link has taken over would come back otherwise.
const ROOM: (f64, u32) = (0.9, 3);

/// Whether a link is full, from one second to the next.
#[derive(Debug, Default)]
pub(super) struct Fullness {
    /// What it carried when it was full last, bits per second down and up; 0: it wasn't in this direction.
    carried: (u64, u64),
    /// Seconds with room.
    calm: u32,
    is_full: bool,
}

impl Fullness {
    /// Takes in a second of the link, whether it was full for most of it, and what all links carried in it.
    pub(super) fn second(&mut self, (sample, was_full): (&Sample, bool), (down, up): (u64, u64)) -> bool {
        self.carried.0 = sample.full_down.unwrap_or(self.carried.0);
        self.carried.1 = sample.full_up.unwrap_or(self.carried.1);
        if was_full {
            // Its rate then, if it wasn't full for long enough at a time to know it better.
            match self.carried {
                (0, 0) if sample.down >= sample.up => self.carried.0 = sample.down,
                (0, 0) => self.carried.1 = sample.up,
                _ => {}
            }
            (self.is_full, self.calm) = (true, 0);
        } else if self.is_full {
            let fills = |all: u64, own: u64| own > 0 && all as f64 >= own as f64 * ROOM.0;
            let is_calm = !fills(down, self.carried.0) && !fills(up, self.carried.1);
            self.calm = if is_calm { self.calm + 1 } else { 0 };
            if self.calm >= ROOM.1 {
                *self = Fullness::default();
            }
        }
        self.is_full
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// Bytes sent and received, and when.
    counted: Option<((u64, u64), Instant)>,
    /// The least round-trip times of the seconds before, and of this one.
    least: VecDeque<f32>,
    now: Option<f32>,
    /// The longest round-trip times of data in those seconds.
    longest: VecDeque<f32>,
    /// The same without those that had a queue.
    rtt: Option<f32>,
    loaded_rtt: Option<f32>,
    down: Flowing,
    up: Flowing,
    probes: (u16, u16),
}

fn least(values: impl IntoIterator<Item = f32>) -> Option<f32> {
    values.into_iter().reduce(f32::min)
}

impl Gauge {
    /// The round-trip time without a queue.
    fn base(&self) -> Option<f32> {
        least(self.least.iter().copied().chain(self.now))
    }

    /// By how much round-trip times with a queue are longer.
    fn queue(&self) -> f32 {
        self.base().map_or(QUEUED.1, |base| (base * QUEUED.0).max(QUEUED.1))
    }

    /// The round-trip time beyond which the queue before the link may overflow, by the upper quartile of the
    /// seconds' longest ones: a single one may be long for another reason.
    fn nearly_full(&self) -> f32 {
        let mut longest: Vec<f32> = self.longest.iter().copied().chain(self.loaded_rtt).collect();
        longest.sort_by(f32::total_cmp);
        let usual = longest.get(longest.len() * 3 / 4).copied();
        let base = self.base().unwrap_or_default();
        base + usual.map_or(0.0, |usual| (usual - base) * NEARLY_FULL).max(self.queue())
    }

    /// How long nothing has to come to count as a gap: what is shorter is no queue in round-trip times
    /// either.
    pub(super) fn long_gap(&self) -> Duration {
        let packets = (GAP_PACKETS / self.down.rate.max(1.0)).min(1.0);
        Duration::from_secs_f64(f64::from(self.queue()).max(packets))
    }

    /// Takes in what has passed in all, how long there were gaps in what was received, and what data tells
    /// each way.
    pub(super) fn look(
        &mut self,
        now: Instant,
        (sent, received): (u64, u64),
        gaps: Duration,
        (down, up): (&Heard, &Heard),
        limit: Option<Rates>,
    ) {
        let Some((before, at)) = self.counted.replace(((sent, received), now)) else { return };
        let time = now.duration_since(at);
        let passed = (received.saturating_sub(before.1), sent.saturating_sub(before.0));
        let shortest = least(down.rtts.iter().chain(&up.rtts).copied());
        self.now = least(shortest.into_iter().chain(self.now));
        let most = down.longest().into_iter().chain(up.longest());
        self.loaded_rtt = most.chain(self.loaded_rtt).reduce(f32::max);
        let is_long = |rtt: f32| rtt > self.base().map_or(f32::INFINITY, |base| base + self.queue());
        let rates = (bits_per_s(passed.0, time), bits_per_s(passed.1, time));
        let is_queued = |heard: &Heard, rate: f64| {
            let in_flight = |longest: f32| f64::from(longest) * rate / 8.0;
            heard.longest().is_some_and(|longest| is_long(longest) && in_flight(longest) >= LEAST_IN_FLIGHT)
        };
        let is_steady = gaps.as_secs_f64() < time.as_secs_f64() * GAPS;
        let queued = (is_queued(down, rates.0) && is_steady, is_queued(up, rates.1));
        let high = self.nearly_full();
        let calm = [down, up].map(|heard| heard.longest().is_some_and(|longest| longest <= high));
        self.rtt = least(shortest.filter(|rtt| !is_long(*rtt)).into_iter().chain(self.rtt));
        let share = (rates.0 / self.down.most.max(1.0), rates.1 / self.up.most.max(1.0));
        // A round-trip time tells of both queues: which it is, is a guess where much goes both ways.
        let is_down = passed.1 < passed.0 / ACKS
            || passed.0 >= passed.1 / ACKS && (share.0 >= share.1 || share.0 >= NEARLY);
        let is_up = passed.0 < passed.1 / ACKS
            || passed.1 >= passed.0 / ACKS && (share.1 > share.0 || share.1 >= NEARLY);
        let is_queued = queued.0 || queued.1;
        let is_at =
            |carried: f64, limit: Option<u64>| limit.is_some_and(|limit| carried >= limit as f64 * 0.9);
        let full_down = is_queued && is_down || is_at(rates.0, limit.map(|limit| limit.down));
        let full_up = is_queued && is_up || is_at(rates.1, limit.map(|limit| limit.up));
        self.down.look(passed.0, time, full_down && passed.0 > 0);
        self.up.look(passed.1, time, full_up && passed.1 > 0);
        self.down.hear(down.packets, calm[0] && passed.0 > 0);
        self.up.hear(up.packets, calm[1] && passed.1 > 0);
        for (direction, rate) in [(&mut self.down, rates.0), (&mut self.up, rates.1)] {
            direction.rate = rate;
            direction.most = direction.most.max(rate);
        }
    }

    /// Takes in how a probe ended; the time that it was held up, in seconds, if it was. `busy`: it was sent
    /// while data came, and may have waited in their queue.
    pub(super) fn note_probe(&mut self, rtt: Option<f32>, lost: bool, busy: bool) -> Option<f32> {
        let base = self.base();
        self.probes.1 += u16::from(lost);
        let rtt = rtt?;
        self.probes.0 += 1;
        if busy && base.is_none_or(|base| rtt > base) {
            return None;
        }
        let held = base.map_or(0.0, |base| rtt - base);
        if base.is_some_and(|base| held > PAUSED.1 && held > base * PAUSED.0) {
            return Some(held);
        }
        // Where no data come there is no queue: packets take another way now.
        if held > self.queue() {
            self.least.clear();
            self.now = None;
        }
        self.now = least(self.now.into_iter().chain([rtt]));
        self.rtt = least(self.rtt.into_iter().chain([rtt]));
        None
    }

    /// The second is over: all but what was carried, and whether the link worked. And whether it was full for
    /// most of it.
    pub(super) fn second(&mut self) -> (Sample, bool) {
        let was_full = self.down.looks.max(self.up.looks) >= MOSTLY_FULL;
        if let Some(rtt) = self.now.take() {
            if self.least.len() == REMEMBERED {
                self.least.pop_front();
            }
            self.least.push_back(rtt);
        }
        if let Some(longest) = self.loaded_rtt {
            if self.longest.len() == REMEMBERED {
                self.longest.pop_front();
            }
            self.longest.push_back(longest);
        }
        let sample = Sample {
            full_down: self.down.second(),
            full_up: self.up.second(),
            packets_down: std::mem::take(&mut self.down.packets),
            packets_up: std::mem::take(&mut self.up.packets),
            rtt: self.rtt.take(),
            loaded_rtt: self.loaded_rtt.take(),
            probes: std::mem::take(&mut self.probes),
            ..Sample::default()
        };
        (sample, was_full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(rtt: f32) -> Heard {
        Heard { rtts: vec![rtt], ..Heard::default() }
    }

    /// A second in which a link carries so many Mbit/s down and up, with data's round-trip times in ms.
    fn second(gauge: &mut Gauge, start: Instant, at: u64, rates: (u64, u64), rtt: f32) -> Sample {
        second_with_gaps(gauge, start, at, rates, rtt, Duration::ZERO)
    }

    fn second_with_gaps(
        gauge: &mut Gauge,
        start: Instant,
        at: u64,
        rates: (u64, u64),
        rtt: f32,
        gaps: Duration,
    ) -> Sample {
        let looks = gauge.counted.map_or((0, 0), |(counted, _)| counted);
        for look in 1..=10 {
            let bytes = (looks.0 + rates.1 * 12_500 * look, looks.1 + rates.0 * 12_500 * look);
            let now = start + Duration::from_millis(at * 1000 + look * 100);
            gauge.look(now, bytes, gaps, (&heard(rtt / 1e3), &Heard::default()), None);
        }
        gauge.second().0
    }

    #[test]
    fn a_link_is_full_where_a_queue_grows() {
        let (mut gauge, start) = (Gauge::default(), Instant::now());
        gauge.look(start, (0, 0), Duration::ZERO, (&Heard::default(), &Heard::default()), None);
        // Paced by whoever sends.
        let paced = second(&mut gauge, start, 0, (5, 0), 40.0);
        assert_eq!((paced.full_down, paced.rtt), (None, Some(0.04)));
        second(&mut gauge, start, 1, (20, 1), 90.0);
        let full = second(&mut gauge, start, 2, (20, 1), 90.0);
        assert_eq!((full.full_down, full.full_up), (Some(20_000_000), None));
        assert_eq!((full.loaded_rtt, full.rtt), (Some(0.09), None));
        let after = second(&mut gauge, start, 3, (5, 0), 41.0);
        assert_eq!(after.full_down, None);
        // A probe, which meets no queue, takes longer now: so do data, without a queue.
        assert_eq!(gauge.note_probe(Some(0.08), false, false), None);
        let other_way = second(&mut gauge, start, 4, (5, 0), 82.0);
        assert_eq!((other_way.full_down, other_way.rtt), (None, Some(0.08)));
    }

    #[test]
    fn a_program_that_sends_now_and_then_fills_no_link() {
        let (mut gauge, start) = (Gauge::default(), Instant::now());
        gauge.look(start, (0, 0), Duration::ZERO, (&Heard::default(), &Heard::default()), None);
        second(&mut gauge, start, 0, (1, 0), 30.0);
        // Frames of 33 kB each 33 ms: what the receiver measures has the pause in it.
        let frames = second_with_gaps(&mut gauge, start, 1, (8, 0), 60.0, Duration::from_millis(84));
        assert_eq!((frames.full_down, frames.rtt), (None, None));
        // Speech: a packet each 20 ms.
        let speech = second(&mut gauge, start, 2, (1, 0), 50.0);
        assert_eq!(speech.full_down, None);
        assert_eq!(gauge.long_gap(), Duration::from_millis(36));
        assert_eq!(second(&mut gauge, start, 3, (8, 0), 60.0).full_down, Some(8_000_000));
        assert!((4..=5).contains(&gauge.long_gap().as_millis()), "{:?}", gauge.long_gap());
    }

    #[test]
    fn a_part_of_a_second_tells_the_rate_too() {
        let (mut gauge, start) = (Gauge::default(), Instant::now());
        let ms = Duration::from_millis;
        gauge.look(start, (0, 0), Duration::ZERO, (&heard(0.04), &Heard::default()), None);
        let mut received = 0;
        for look in 1..=10u64 {
            // 16 Mbit/s for 600 ms, and less in the looks at both ends.
            received += match look {
                3 | 8 => 100_000,
                4..=7 => 200_000,
                _ => 0,
            };
            let rtt = if (3..=8).contains(&look) { 0.08 } else { 0.04 };
            gauge.look(
                start + ms(100 * look),
                (0, received),
                Duration::ZERO,
                (&heard(rtt), &Heard::default()),
                None,
            );
        }
        assert_eq!(gauge.second().0.full_down, Some(16_000_000));
    }

    #[test]
    fn a_probe_beside_data_tells_of_their_queue() {
        let (mut gauge, start) = (Gauge::default(), Instant::now());
        assert_eq!((gauge.note_probe(Some(0.5), false, true), gauge.base()), (None, None));
        gauge.look(start, (0, 0), Duration::ZERO, (&Heard::default(), &Heard::default()), None);
        second(&mut gauge, start, 0, (8, 0), 40.0);
        // Neither another way nor a pause.
        for rtt in [0.16, 0.5] {
            assert_eq!(gauge.note_probe(Some(rtt), false, true), None);
        }
        assert_eq!((gauge.base(), gauge.second().0.probes), (Some(0.04), (2, 0)));
        assert_eq!(gauge.note_probe(Some(0.5), false, false), Some(0.46));
        assert_eq!(gauge.note_probe(Some(0.03), false, true), None);
        assert_eq!(gauge.base(), Some(0.03));
    }

    #[test]
    fn losses_are_the_link_s_where_no_queue_may_have_overflowed_just_before_nor_an_outage_was() {
        let (mut gauge, start) = (Gauge::default(), Instant::now());
        gauge.look(start, (0, 0), Duration::ZERO, (&heard(0.04), &Heard::default()), None);
        let mut at = 0;
        let mut look = |bytes: u64, rtt: f32, lost: u64| {
            at += 1;
            let received = gauge.counted.map_or(0, |(counted, _)| counted.1) + bytes;
            let down = Heard { packets: (100, lost), ..heard(rtt) };
            let now = start + Duration::from_millis(100 * at);
            gauge.look(now, (0, received), Duration::ZERO, (&down, &Heard::default()), None);
            let found = gauge.down.packets;
            if at % 10 == 0 {
                let sample = gauge.second().0;
                assert_eq!((sample.packets_down, sample.packets_up), (found, (0, 0)));
            }
            found
        };
        // A queue that grows to 160 ms and overflows, and is half as long then.
        for (rtt, lost) in [0.04, 0.08, 0.12, 0.16, 0.2, 0.2, 0.12, 0.12, 0.12, 0.12].map(|rtt| (rtt, 9)) {
            assert_eq!(look(150_000, rtt, lost), (0, 0));
        }
        let found: Vec<_> = (0..10).map(|_| look(150_000, 0.12, 1)).collect();
        assert_eq!((found[0], found[1], found[9]), ((0, 0), (100, 1), (900, 9)));
        // No data arrives: an outage.
        assert_eq!((look(0, 0.12, 0), look(150_000, 0.12, 50)), ((0, 0), (0, 0)));
    }

    #[test]
    fn a_link_stays_full_while_others_carry_what_it_cant() {
        let (full, not) = (Sample { full_down: Some(10), ..Sample::default() }, Sample::default());
        let mut fullness = Fullness::default();
        let mut second =
            |sample: &Sample, all| fullness.second((sample, sample.full_down.is_some()), (all, 0));
        assert!(!second(&not, 9) && second(&full, 10) && second(&not, 15) && second(&not, 9));
        // A pause, and less than it carries.
        assert!(second(&not, 0) && second(&not, 12) && second(&not, 8) && second(&not, 8));
        assert!(!second(&not, 8) && !second(&not, 12));
    }

    #[test]
    fn a_stated_rate_that_is_reached_is_full() {
        let (mut gauge, start) = (Gauge::default(), Instant::now());
        let limit = Some(Rates { down: 20_000_000, up: 1_000_000 });
        for look in 0..=12 {
            let now = start + Duration::from_millis(100 * look);
            gauge.look(now, (0, look * 245_000), Duration::ZERO, (&heard(0.02), &Heard::default()), limit);
        }
        assert_eq!(gauge.second().0.full_down, Some(19_600_000));
    }
}
