//! Loss, delay, jitter and duplication. They are drawn in the order in which packets leave the queue, each
//! from a stream of its own, so that both implementations of a link draw the same values.

use ropewalk_time::{Span, Time};

use crate::jitter::JitterProcess;
use crate::loss::LossProcess;
use crate::random::{Chance, Purpose, Stream};
use crate::spec::LinkSpec;

#[derive(Clone, Debug)]
pub(crate) struct Impairments {
    pub(crate) delay: Span,
    pub(crate) loss: LossProcess,
    jitter: Option<JitterProcess>,
    keeps_order: bool,
    duplicate: Chance,
    duplicates: Stream,
    latest_arrival: Time,
}

/// What happens to a packet; delays count from the departure of its last bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    Lost,
    Arrives {
        after: Span,
        /// The delay of a duplicate, which takes no capacity and has jitter of its own.
        copy_after: Option<Span>,
    },
}

impl Impairments {
    pub(crate) fn new(spec: &LinkSpec, seed: u64, stream: u64) -> Self {
        Impairments {
            delay: spec.delay,
            loss: LossProcess::new(spec.loss, Stream::new(seed, stream, Purpose::Loss)),
            jitter: spec.jitter.map(|j| JitterProcess::new(j, Stream::new(seed, stream, Purpose::Jitter))),
            keeps_order: spec.jitter.is_some_and(|jitter| jitter.keeps_order),
            duplicate: Chance::new(spec.duplicate),
            duplicates: Stream::new(seed, stream, Purpose::Duplicate),
            latest_arrival: Time::ZERO,
        }
    }

    /// The delay of every packet, if nothing is random.
    pub(crate) fn fixed_delay(&self) -> Option<Span> {
        let fixed = self.loss.never() && self.jitter.is_none() && self.duplicate == Chance::Never;
        fixed.then_some(self.delay)
    }

    /// The delay of every packet that arrives, if it is constant and no packet is duplicated.
    pub(crate) fn constant_delay(&self) -> Option<Span> {
        (self.jitter.is_none() && self.duplicate == Chance::Never).then_some(self.delay)
    }

    /// No packet takes less than this after its departure.
    pub(crate) fn least_delay(&self) -> Span {
        // Jitter can take all of the delay away.
        if self.jitter.is_none() { self.delay } else { Span::ZERO }
    }

    /// Draws for the next packet.
    #[inline]
    pub(crate) fn draw(&mut self) -> Delivery {
        if self.loss.draw() {
            return Delivery::Lost;
        }
        let after = self.draw_delay();
        // After the packet's own delay, in both implementations: the order of draws decides what they give.
        let copy_after = self.duplicate.happens(&mut self.duplicates).then(|| self.draw_delay());
        Delivery::Arrives { after, copy_after }
    }

    #[inline]
    fn draw_delay(&mut self) -> Span {
        match &mut self.jitter {
            Some(jitter) => jitter.draw(self.delay),
            None => self.delay,
        }
    }

    /// When a packet whose last bit left at `departure` arrives. Must be called in order of departure.
    #[inline]
    pub(crate) fn arrival(&mut self, departure: Time, after: Span) -> Time {
        let arrival = departure.saturating_add(after);
        if self.keeps_order {
            self.latest_arrival = self.latest_arrival.max(arrival);
            return self.latest_arrival;
        }
        arrival
    }
}
