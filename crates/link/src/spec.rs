//! What a link is: plain data, validated where it is parsed.

use std::sync::Arc;

use ropewalk_time::{Span, Time};

/// One direction of a path.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkSpec {
    /// How fast packets leave the queue.
    pub rate: Rate,
    /// One-way propagation delay.
    pub delay: Span,
    /// Variation of the delay.
    pub jitter: Option<Jitter>,
    /// Random loss, drawn as a packet leaves the queue (so that lost packets use capacity, as on a radio
    /// link; netem draws at the queue's entry). A packet leaves the queue when it starts to be sent.
    pub loss: Loss,
    /// The queue before the link.
    pub queue: Queue,
    /// Probability that a packet is delivered twice, 0 to 1. The copy takes no capacity; its jitter is its
    /// own.
    pub duplicate: f64,
    /// Bytes added to each packet's IP length when its time on the link is counted (14 + 4 + 8 + 12 for
    /// Ethernet with preamble and gap); 0: rates count IP bytes.
    pub overhead: u32,
    /// Whether a queue's limit in packets counts all that hasn't arrived yet, the packet being sent and those
    /// in transit too: netem's `limit` where one qdisc has both the rate and the delay.
    pub limit_counts_transit: bool,
    /// What changes, and when; taken in order of time, those of one moment as listed.
    pub changes: Vec<Change>,
}

/// How fast a link sends.
#[derive(Clone, PartialEq, Debug)]
pub enum Rate {
    /// Bits per second, of IP bytes plus `overhead`; `u64::MAX`: no limit.
    Constant(u64),
    /// Delivery opportunities of a recorded link.
    Trace(Arc<RateTrace>),
}

/// A mahimahi trace: each entry is the millisecond at which 1500 bytes may leave. Several entries may
/// share a millisecond; the trace repeats at its last entry's time. A packet may use the rest of an
/// opportunity; what an empty queue leaves unused is lost, and a packet that comes at the very moment of an
/// opportunity is too late for it. Its clock starts with the run, or with the change that puts it in force.
#[derive(Clone, PartialEq, Debug)]
pub struct RateTrace {
    /// Where it was read from, for messages.
    pub name: String,
    /// Milliseconds, in order.
    pub(crate) recorded: Arc<[u32]>,
    /// How it is used, if not as it was recorded.
    pub(crate) moved: Option<Moved>,
}

/// A trace begun elsewhere, and faster or slower: recordings may be hundreds of megabytes, and have many
/// variants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Moved {
    /// The opportunity that is the first.
    pub first: usize,
    /// The time at which it begins, milliseconds.
    pub begins: u32,
    /// By what times are divided.
    pub factor: f64,
}

/// Variation of the delay, drawn for each packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Jitter {
    /// The spread: half-width (uniform), standard deviation (normal, Pareto).
    pub spread: Span,
    /// The distribution.
    pub shape: JitterShape,
    /// True: a packet never overtakes the one before it (its arrival is at least the former's). False:
    /// netem's meaning, each packet delayed on its own.
    pub keeps_order: bool,
}

/// Distribution of jitter about the delay. A draw that would make the delay negative counts as 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JitterShape {
    /// Uniform in delay +- spread.
    Uniform,
    /// Normal; unbounded, where netem's table ends at 4 spreads.
    Normal,
    /// Pareto, shape 3, cut at 4 spreads as netem's table is, with mean 0 and standard deviation `spread`
    /// after the cut (netem scales before it, and so gets 0.82 of the spread it is asked for).
    Pareto,
}

/// Random loss.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Loss {
    /// None.
    None,
    /// Each packet with this probability.
    Bernoulli(f64),
    /// Gilbert-Elliott: a two-state chain stepped per packet, after its loss is drawn. It starts in either
    /// state with its share in the long run.
    GilbertElliott {
        /// P(good -> bad).
        to_bad: f64,
        /// P(bad -> good).
        to_good: f64,
        /// Loss in the good state.
        loss_good: f64,
        /// Loss in the bad state.
        loss_bad: f64,
    },
}

/// The queue before a link. Limits and thresholds don't count the packet being sent, and a packet that finds
/// the link free never waits. ECN: ECN-capable packets are marked where the entry says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Queue {
    /// Drop-tail, limit in packets.
    Packets {
        /// The limit.
        limit: u32,
        /// Marks a packet that finds this many, or more, in the queue.
        ecn_threshold: Option<u32>,
    },
    /// Drop-tail, limit in IP bytes.
    Bytes {
        /// The limit.
        limit: u64,
        /// Marks a packet that finds this many bytes, or more, in the queue.
        ecn_threshold: Option<u64>,
    },
    /// CoDel (RFC 8289).
    CoDel {
        /// Hard limit in packets.
        limit: u32,
        /// Target sojourn time.
        target: Span,
        /// Interval.
        interval: Span,
        /// Mark ECN-capable packets instead of dropping.
        ecn: bool,
    },
}

/// A scheduled change.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// When, from the start of the run.
    pub at: Time,
    /// What.
    pub action: ChangeAction,
    /// Whether it happens again and again, so long after the last time; zero counts as once.
    pub every: Option<Span>,
}

impl Change {
    /// One that happens once.
    pub fn once(at: Time, action: ChangeAction) -> Self {
        Change { at, action, every: None }
    }

    /// The next time, of one that repeats.
    pub fn again(&self) -> Option<Change> {
        let every = self.every.filter(|every| !every.is_zero())?;
        Some(Change { at: self.at.checked_add(every)?, ..self.clone() })
    }
}

/// Changes in order of time, and those that repeat again and again; of one moment, in the order in which they
/// were listed.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// What is to come, the next one last.
    coming: Vec<(usize, Change)>,
}

impl Schedule {
    pub(crate) fn new(changes: &[Change]) -> Self {
        let mut coming: Vec<(usize, Change)> = changes.iter().cloned().enumerate().collect();
        coming.sort_by_key(|(listed, change)| std::cmp::Reverse((change.at, *listed)));
        Schedule { coming }
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.coming.last().map(|(_, change)| change.at)
    }

    /// Takes the next one.
    pub(crate) fn take(&mut self) -> Option<Change> {
        let (listed, change) = self.coming.pop()?;
        if let Some(again) = change.again() {
            let place = self.coming.partition_point(|(other, later)| (later.at, *other) > (again.at, listed));
            self.coming.insert(place, (listed, again));
        }
        Some(change)
    }
}

/// What changes.
#[derive(Clone, PartialEq, Debug)]
pub enum ChangeAction {
    /// A new rate, for packets that start to be sent from then on. The packet being sent ends at the old
    /// rate.
    Rate(Rate),
    /// A new delay, for packets that leave the queue from then on. A shorter one lets them overtake those
    /// before, unless the jitter keeps the order.
    Delay(Span),
    /// A new loss model.
    Loss(Loss),
    /// The link loses its queue, the packet being sent, and all that is handed in until it is up. Whatever is
    /// in flight arrives.
    Down,
    /// The link works again.
    Up,
}

impl LinkSpec {
    /// A plain link: `rate` bits per second, `delay` one way, a drop-tail queue of `queue` packets.
    pub fn plain(rate: u64, delay: Span, queue: u32) -> Self {
        LinkSpec {
            rate: Rate::Constant(rate),
            delay,
            jitter: None,
            loss: Loss::None,
            queue: Queue::Packets { limit: queue, ecn_threshold: None },
            duplicate: 0.0,
            overhead: 0,
            limit_counts_transit: false,
            changes: Vec::new(),
        }
    }
}
