//! What befalls a packet as it leaves the queue: lost or not, how long it is under way, whether a copy follows.
//! Drawn in the order in which packets leave the queue, each thing from a stream of its own, so that both
//! implementations of a link draw alike.

use crate::Nanos;
use crate::jitter::JitterProcess;
use crate::loss::LossProcess;
use crate::random::{Chance, Purpose, Stream};
use crate::spec::LinkSpec;

#[derive(Clone, Debug)]
pub(crate) struct Fates {
    pub(crate) delay: Nanos,
    pub(crate) loss: LossProcess,
    jitter: Option<JitterProcess>,
    keeps_order: bool,
    duplicate: Chance,
    duplicates: Stream,
    latest_arrival: Nanos,
}

/// One packet's fate: its delays from its last bit's departure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Lost,
    Arrives {
        after: Nanos,
        /// The same of the copy, when there is one. It takes no capacity, and its jitter is its own.
        copy_after: Option<Nanos>,
    },
}

impl Fates {
    pub(crate) fn new(spec: &LinkSpec, seed: u64, stream: u64) -> Self {
        Fates {
            delay: spec.delay,
            loss: LossProcess::new(spec.loss, Stream::new(seed, stream, Purpose::Loss)),
            jitter: spec.jitter.map(|j| JitterProcess::new(j, Stream::new(seed, stream, Purpose::Jitter))),
            keeps_order: spec.jitter.is_some_and(|jitter| jitter.keeps_order),
            duplicate: Chance::new(spec.duplicate),
            duplicates: Stream::new(seed, stream, Purpose::Duplicate),
            latest_arrival: 0,
        }
    }

    /// The delay of every packet, where nothing is left to chance: no packet draws anything.
    pub(crate) fn certain(&self) -> Option<Nanos> {
        let certain = self.loss.never() && self.jitter.is_none() && self.duplicate == Chance::Never;
        certain.then_some(self.delay)
    }

    /// The delay of every packet that arrives, each of them once.
    pub(crate) fn constant(&self) -> Option<Nanos> {
        (self.jitter.is_none() && self.duplicate == Chance::Never).then_some(self.delay)
    }

    /// The next packet's fate.
    #[inline]
    pub(crate) fn draw(&mut self) -> Fate {
        if self.loss.draw() {
            return Fate::Lost;
        }
        let after = self.draw_delay();
        let copy_after = self.duplicate.happens(&mut self.duplicates).then(|| self.draw_delay());
        Fate::Arrives { after, copy_after }
    }

    #[inline]
    fn draw_delay(&mut self) -> Nanos {
        match &mut self.jitter {
            Some(jitter) => jitter.draw(self.delay),
            None => self.delay,
        }
    }

    /// When a packet whose last bit left at `departure` arrives. To be called in order of departure.
    #[inline]
    pub(crate) fn arrival(&mut self, departure: Nanos, after: Nanos) -> Nanos {
        let arrival = departure.saturating_add(after);
        if self.keeps_order {
            self.latest_arrival = self.latest_arrival.max(arrival);
            return self.latest_arrival;
        }
        arrival
    }
}
