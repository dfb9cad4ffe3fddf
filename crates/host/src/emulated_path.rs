//! One path of the real-time world: a modelled link in each direction, and when packets that have come
//! through them are delivered.
//!
//! A packet that leaves a link on its own is delivered when it arrives. Packets that follow each other
//! closely are delivered together, at the next multiple of [`TOGETHER`], as a network card moderates its
//! interrupts. Otherwise the thread would never sleep from some 200 Mbit/s on: it would take a core from the
//! two ends, and with real-time priority the kernel would stop it for up to 50 ms in a second. The link isn't
//! affected: every packet has its own place in the queue, arrival time and random draws. An engine answers
//! each packet before it gets the next. So does a kernel, unless the link is so fast that this alone would
//! fill a core: a kernel that gets several packets in one acknowledges them at once, and measures the path
//! less often.

use crate::frame::Piece;
use ropewalk_engine::{Span, Time};
use ropewalk_link::{Link, LinkSpec, LinkStats, Rate};

/// What a path does to packets: from client to server and back.
#[derive(Clone, Debug)]
pub struct PathLinks {
    /// Client to server.
    pub up: LinkSpec,
    /// Server to client.
    pub down: LinkSpec,
    /// Index of the shared link that follows.
    pub bottleneck: Option<usize>,
}

/// Longest time that a packet waits for others: well below the 0.3 ms of lateness that make a run void.
const TOGETHER: Span = Span::from_micros(100);
/// It is at most this part of the link's delay, too, so that no round trip grows by more than 2 %.
const OF_DELAY: u64 = 50;
/// On links as fast as this (bit/s) packets that come together are put together for a kernel.
const JOINED_FROM: u64 = 1_000_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct EmulatedPath {
    /// From client to server, and back. Without them the path does nothing to packets.
    directions: Option<[OneWay; 2]>,
    /// Index of the link that it shares with other paths.
    pub(crate) bottleneck: Option<usize>,
}

#[derive(Debug)]
struct OneWay {
    link: Link<Piece>,
    /// How long a packet may wait for others.
    together: Span,
    /// When one was delivered last.
    latest: Time,
    /// Whether packets are put together for a kernel.
    joins: bool,
}

impl EmulatedPath {
    /// A path with links, whose streams of random numbers are `stream` and the next.
    pub(crate) fn emulated(spec: &PathLinks, seed: u64, stream: u64) -> Self {
        let direction = |link: &LinkSpec, stream| OneWay {
            link: Link::new(link.clone(), seed, stream),
            // A shared link takes packets from several paths, each at its moment.
            together: if spec.bottleneck.is_some() {
                Span::ZERO
            } else {
                TOGETHER.min(link.delay / OF_DELAY)
            },
            latest: Time::ZERO,
            joins: matches!(link.rate, Rate::Constant(rate) if rate >= JOINED_FROM),
        };
        EmulatedPath {
            directions: Some([direction(&spec.up, stream), direction(&spec.down, stream + 1)]),
            bottleneck: spec.bottleneck,
        }
    }

    /// Whether it does anything to packets.
    pub(crate) fn has_links(&self) -> bool {
        self.directions.is_some()
    }

    /// The link from the client (side 0) or from the server.
    pub(crate) fn link(&mut self, side: usize) -> Option<&mut Link<Piece>> {
        self.directions.as_mut().map(|directions| &mut directions[side].link)
    }

    /// Whether packets from `side` that come together go on together.
    pub(crate) fn joins(&self, side: usize) -> bool {
        self.directions.as_ref().is_none_or(|directions| directions[side].joins)
    }

    /// What both count.
    pub(crate) fn stats(&self) -> Option<[LinkStats; 2]> {
        self.directions
            .as_ref()
            .map(|directions| directions.each_ref().map(|direction| *direction.link.stats()))
    }

    /// When packets of a link are to be delivered next.
    pub(crate) fn due(&self, side: usize) -> Option<Time> {
        self.directions.as_ref()?[side].due()
    }

    /// Whether it is time to deliver what has come through a link; [`Self::take`] is then to be called until
    /// `None`.
    pub(crate) fn is_due(&self, side: usize, now: Time) -> bool {
        self.due(side).is_some_and(|due| due <= now)
    }

    /// The next packet that has come through a link by `now`, and when it came.
    pub(crate) fn take(&mut self, side: usize, now: Time) -> Option<(Time, Piece)> {
        let direction = &mut self.directions.as_mut()?[side];
        let taken = direction.link.poll_timed(now)?;
        direction.latest = now;
        Some(taken)
    }
}

impl OneWay {
    fn due(&self) -> Option<Time> {
        let arrival = self.link.poll_timeout()?;
        if self.together.is_zero() || arrival >= self.latest + self.together {
            return Some(arrival);
        }
        let slots = arrival.since_origin().div_ceil(self.together);
        Some(Time::ZERO + slots * self.together)
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::{MILLISECOND, NANOSECOND, Span, Time};
    use ropewalk_link::LinkSpec;
    use ropewalk_wire::{Flags, FourTuple, Segment, Seq};

    use super::{EmulatedPath, PathLinks};
    use crate::frame::{Frame, Piece};

    fn packet() -> Piece {
        let tuple = FourTuple::new("10.0.0.1:5".parse().unwrap(), "10.0.0.2:6".parse().unwrap());
        let mut segment = Segment::new(tuple, Seq(1), Seq(1), Flags::ACK);
        segment.payload = vec![0; 1460].into();
        Piece::whole(Frame::of(&segment, &mut ropewalk_wire::pool::Pool::new(1 << 16)).unwrap(), 0)
    }

    fn path(delay: Span, bottleneck: Option<usize>) -> EmulatedPath {
        // A packet of 1500 bytes takes 12 us.
        let link = LinkSpec::plain(1_000_000_000, delay, 100);
        EmulatedPath::emulated(&PathLinks { up: link.clone(), down: link, bottleneck }, 1, 0)
    }

    /// When packets that arrived at these times (nanoseconds) are delivered, by a thread that is never late.
    fn handed_on(path: &mut EmulatedPath, came: &[u64]) -> Vec<u64> {
        for now in came {
            path.link(0).unwrap().enqueue(Time::from_nanos(*now), packet());
        }
        let mut moments = Vec::new();
        while let Some(now) = path.due(0) {
            assert!(!path.is_due(0, now - NANOSECOND) && path.is_due(0, now) && !path.is_due(1, now));
            while path.take(0, now).is_some() {
                moments.push(now.as_nanos());
            }
        }
        moments
    }

    #[test]
    fn packets_on_their_own_are_handed_on_at_their_moment() {
        let moments = handed_on(&mut path(5 * MILLISECOND, None), &[0, 150_000, 300_001]);
        assert_eq!(moments, [5_012_000, 5_162_000, 5_312_001]);
    }

    #[test]
    fn packets_that_follow_closely_are_handed_on_together_and_at_most_a_tenth_of_a_millisecond_late() {
        let moments = handed_on(&mut path(5 * MILLISECOND, None), &[0; 20]);
        // The first leaves at 5.012 ms, the others every 12 us.
        let expected: Vec<u64> = [(5_012_000, 1), (5_100_000, 7), (5_200_000, 8), (5_300_000, 4)]
            .into_iter()
            .flat_map(|(moment, count)| std::iter::repeat_n(moment, count))
            .collect();
        assert_eq!(moments, expected);
    }

    #[test]
    fn a_short_path_and_one_before_a_shared_link_wait_less_or_not_at_all() {
        let exact: Vec<u64> = (1..=20).map(|at| 1_000_000 + at * 12_000).collect();
        assert_eq!(handed_on(&mut path(MILLISECOND, Some(0)), &[0; 20]), exact);
        let short = handed_on(&mut path(MILLISECOND, None), &[0; 20]);
        assert!(
            short.iter().zip(&exact).all(|(moment, exact)| (*exact..exact + 20_000).contains(moment)),
            "{short:?}"
        );
        assert_ne!(short, exact);
        let none: Vec<u64> = (1..=20).map(|at| at * 12_000).collect();
        assert_eq!(handed_on(&mut path(Span::ZERO, None), &[0; 20]), none);
    }
}
