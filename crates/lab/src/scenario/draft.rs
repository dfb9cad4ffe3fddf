//! A partly specified link; the rest comes from the level above or from defaults. Both the scenario file and
//! `--path` fill it in.

use std::sync::Arc;

use ropewalk_engine::{Span, Time};
use ropewalk_link::{Change, ChangeAction, Jitter, JitterShape, LinkSpec, Loss, Queue, Rate, RateTrace};
use ropewalk_sim::MTUS;

/// A queue whose limit may be in a unit that needs the link's rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum QueueDraft {
    /// Drop-tail, packets.
    Packets { limit: u32, ecn_threshold: Option<u32> },
    /// Drop-tail, bytes.
    Bytes { limit: u64, ecn_threshold: Option<u64> },
    /// Drop-tail, time at the link's rate.
    Time { limit: Span, ecn_threshold: Option<Span> },
    /// CoDel.
    CoDel { limit: u32, target: Span, interval: Span, ecn: bool },
}

/// CoDel with RFC 8289's parameters.
pub const CODEL: QueueDraft = QueueDraft::CoDel {
    limit: 1000,
    target: Span::from_millis(5),
    interval: Span::from_millis(100),
    ecn: false,
};

/// Most paths of a scenario: as many subflows as Linux allows a connection.
pub const MOST_PATHS: usize = 8;

/// Largest IP packets that are allowed, bytes.
pub(super) const MTU_RANGE: (u64, u64) = (*MTUS.start() as u64, *MTUS.end() as u64);

/// The given properties of one direction of a link.
#[derive(Clone, Debug, Default)]
pub struct LinkDraft {
    pub rate: Option<Rate>,
    /// One way.
    pub delay: Option<Span>,
    /// One way.
    pub spread: Option<Span>,
    pub shape: Option<JitterShape>,
    pub reordering: Option<bool>,
    pub loss: Option<Loss>,
    pub queue: Option<QueueDraft>,
    pub duplicate: Option<f64>,
    pub overhead: Option<u32>,
    pub netem_limit: Option<bool>,
    pub changes: Option<Vec<Change>>,
}

impl LinkDraft {
    /// Takes missing properties from `above`. A delay given here has its own jitter, or none.
    pub fn or(self, above: &LinkDraft) -> LinkDraft {
        let spread = if self.delay.is_some() { self.spread } else { self.spread.or(above.spread) };
        LinkDraft {
            rate: self.rate.or_else(|| above.rate.clone()),
            delay: self.delay.or(above.delay),
            spread,
            shape: self.shape.or(above.shape),
            reordering: self.reordering.or(above.reordering),
            loss: self.loss.or(above.loss),
            queue: self.queue.or(above.queue),
            duplicate: self.duplicate.or(above.duplicate),
            overhead: self.overhead.or(above.overhead),
            netem_limit: self.netem_limit.or(above.netem_limit),
            changes: self.changes.or_else(|| above.changes.clone()),
        }
    }

    /// The link, with defaults for missing properties; `rtt` is the path's, for the default queue.
    pub fn finish(self, rtt: Span, mtu: u32) -> LinkSpec {
        let rate = self.rate.unwrap_or(Rate::Constant(u64::MAX));
        let bits_per_second = mean_rate(&rate);
        let queue = match self.queue {
            None => Queue::Packets { limit: default_queue(bits_per_second, rtt, mtu), ecn_threshold: None },
            Some(QueueDraft::Packets { limit, ecn_threshold }) => Queue::Packets { limit, ecn_threshold },
            Some(QueueDraft::Bytes { limit, ecn_threshold }) => Queue::Bytes { limit, ecn_threshold },
            Some(QueueDraft::Time { limit, ecn_threshold }) => Queue::Bytes {
                limit: bytes_in(bits_per_second, limit).max(u64::from(mtu)),
                ecn_threshold: ecn_threshold.map(|time| bytes_in(bits_per_second, time)),
            },
            Some(QueueDraft::CoDel { limit, target, interval, ecn }) => {
                Queue::CoDel { limit, target, interval, ecn }
            }
        };
        let jitter = self.spread.filter(|spread| !spread.is_zero()).map(|spread| Jitter {
            spread,
            shape: self.shape.unwrap_or(JitterShape::Uniform),
            keeps_order: !self.reordering.unwrap_or(false),
        });
        let mut changes = self.changes.unwrap_or_default();
        changes.sort_by_key(|change| change.at);
        LinkSpec {
            rate,
            delay: self.delay.unwrap_or_default(),
            jitter,
            loss: self.loss.unwrap_or(Loss::None),
            queue,
            duplicate: self.duplicate.unwrap_or(0.0),
            overhead: self.overhead.unwrap_or(0),
            limit_counts_transit: self.netem_limit.unwrap_or(false),
            changes,
        }
    }
}

/// Bits per second; a trace's mean.
pub fn mean_rate(rate: &Rate) -> u64 {
    match rate {
        Rate::Constant(rate) => *rate,
        Rate::Trace(trace) => trace_rate(trace),
    }
}

/// A trace's mean rate, bits per second.
pub fn trace_rate(trace: &Arc<RateTrace>) -> u64 {
    trace.mean_rate()
}

fn bytes_in(bits_per_second: u64, time: Span) -> u64 {
    (u128::from(bits_per_second) * u128::from(time.as_nanos()) / 8_000_000_000).min(u128::from(u64::MAX))
        as u64
}

/// One bandwidth-delay product, at least 64 packets and at most 100,000.
fn default_queue(bits_per_second: u64, rtt: Span, mtu: u32) -> u32 {
    let packets = bytes_in(bits_per_second, rtt).div_ceil(u64::from(mtu.max(1)));
    packets.clamp(64, 100_000) as u32
}

/// Loss in bursts of a mean length: Gilbert's model with all lost in the bad state.
pub fn bursts(loss: f64, mean_length: f64) -> Loss {
    let to_good = 1.0 / mean_length;
    // Stationary share of the bad state = to_bad / (to_bad + to_good) = loss.
    let to_bad = if loss >= 1.0 { 1.0 } else { (loss * to_good / (1.0 - loss)).min(1.0) };
    Loss::GilbertElliott { to_bad, to_good, loss_good: 0.0, loss_bad: 1.0 }
}

/// A change that takes a link down at `at` or brings it back.
pub fn link_state(at: Time, up: bool) -> Change {
    Change::once(at, if up { ChangeAction::Up } else { ChangeAction::Down })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_queue_is_a_bandwidth_delay_product() {
        let draft = LinkDraft { rate: Some(Rate::Constant(100_000_000)), ..LinkDraft::default() };
        // 100 Mbit/s x 120 ms = 1.5 MB = 1000 packets of 1500 bytes.
        assert_eq!(
            draft.clone().finish(Span::from_millis(120), 1500).queue,
            Queue::Packets { limit: 1000, ecn_threshold: None }
        );
        assert_eq!(
            draft.finish(Span::from_micros(1), 1500).queue,
            Queue::Packets { limit: 64, ecn_threshold: None }
        );
    }

    #[test]
    fn a_queue_in_time_counts_at_the_links_rate() {
        let draft = LinkDraft {
            rate: Some(Rate::Constant(8_000_000)),
            queue: Some(QueueDraft::Time { limit: Span::from_millis(200), ecn_threshold: None }),
            ..LinkDraft::default()
        };
        assert_eq!(
            draft.finish(Span::ZERO, 1500).queue,
            Queue::Bytes { limit: 200_000, ecn_threshold: None }
        );
    }

    #[test]
    fn bursts_keep_the_mean_loss() {
        let Loss::GilbertElliott { to_bad, to_good, .. } = bursts(0.01, 5.0) else { panic!() };
        assert!((to_bad / (to_bad + to_good) - 0.01).abs() < 1e-12);
        assert_eq!(to_good, 0.2);
    }

    #[test]
    fn a_delay_given_here_has_its_own_jitter() {
        let ms = |time| Some(Span::from_millis(time));
        let above = LinkDraft { delay: ms(10), spread: ms(5), ..LinkDraft::default() };
        let own = LinkDraft { delay: ms(7), ..LinkDraft::default() };
        assert_eq!(own.or(&above).spread, None);
        assert_eq!(LinkDraft::default().or(&above).spread, ms(5));
    }
}
