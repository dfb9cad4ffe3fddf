//! Packet schedulers, one file each, behind [`Scheduler`].
//!
//! The engine calls [`Scheduler::select`] whenever something could be sent: after a write, an
//! acknowledgement, a loss, a timeout, when a subflow joins or leaves, and at the time that a wait named. It
//! calls again after each decision that sent something, until the answer is [`Decision::Wait`].
//!
//! Stream positions are connection-level byte offsets from the first byte of data, in 64 bits that never
//! wrap (DSN = IDSN + 1 + offset).

pub(crate) mod contract;
mod earliest;
mod fate;
mod mechanisms;
mod message;
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::fmt::Debug;

pub use fate::{Fate, Fates, Reinjection};
pub use mechanisms::{Mechanisms, Rule};
pub use message::Message;
pub use text::{Reason, ReasonPart, with_names};

use crate::metrics::{CaState, SubflowMetrics};
use crate::registry::{Entry, algorithms};
use crate::{Span, SubflowId, Time};

algorithms! {
    /// All built-in schedulers.
    "scheduler", Scheduler:
    minrtt,
    roundrobin,
    redundant,
    linux,
    blest,
    ecf,
    cfs,
    daps,
    daps_two_path,
    otias,
    rtt_gate,
    capacity,
    cp,
    hsr,
    lws,
    lts,
    f2p_dps,
    freeze,
    single,
    sttf,
    qaware,
    raven,
    peekaboo,
    xlink,
    olaps,
    ropewalk,
}

/// A scheduler's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Decision {
    /// Send new data on `subflow`: up to `bytes` from the first unassigned byte. The engine clips it to the
    /// data there is, the connection-level window, the subflow's cwnd and the path's burst.
    Send {
        /// The subflow.
        subflow: SubflowId,
        /// Most bytes.
        bytes: u32,
    },
    /// Send new data that starts at `offset`, and leave data before it for later (DAPS, F2P-DPS). The engine
    /// clips as for `Send`. If `offset` is assigned or not yet written, it takes the first unassigned byte
    /// after it, or else the first unassigned byte.
    SendAt {
        /// The subflow.
        subflow: SubflowId,
        /// Stream offset.
        offset: u64,
        /// Most bytes.
        bytes: u32,
    },
    /// Queue new data on `subflow`, to be sent when its window allows. It isn't clipped to cwnd (OTIAS).
    Queue {
        /// The subflow.
        subflow: SubflowId,
        /// Most bytes.
        bytes: u32,
    },
    /// Repeat on `subflow` the chunk that starts at `offset`, which another subflow carries. Clipped to the
    /// chunk and to the subflow's cwnd; ignored if the data is acknowledged or the subflow sent it already.
    Duplicate {
        /// The subflow.
        subflow: SubflowId,
        /// Stream offset of the chunk.
        offset: u64,
        /// Why, for the counters.
        purpose: Purpose,
    },
    /// Take back what waits in a subflow's queue and was never sent ([`Decision::Queue`]): it is unassigned
    /// again. What another subflow carries too stays. Once per subflow and moment: a second time nothing
    /// happens.
    Withdraw {
        /// The subflow.
        subflow: SubflowId,
    },
    /// Send nothing now, although something could be sent. The scheduler is asked again at the next event,
    /// and at `until` at the latest. If no event could end the wait, because nothing is in flight on any
    /// subflow, the engine sends by `minrtt`: no scheduler can stall a connection.
    Wait {
        /// When to ask again at the latest.
        until: Option<Time>,
    },
}

impl Decision {
    /// Its kind as one word: `send`, `send-at`, `queue`, `duplicate`, `withdraw` or `wait`.
    pub fn name(&self) -> &'static str {
        match self {
            Decision::Send { .. } => "send",
            Decision::SendAt { .. } => "send-at",
            Decision::Queue { .. } => "queue",
            Decision::Duplicate { .. } => "duplicate",
            Decision::Withdraw { .. } => "withdraw",
            Decision::Wait { .. } => "wait",
        }
    }

    /// The subflow that it names; a wait names none.
    pub fn subflow(&self) -> Option<SubflowId> {
        match *self {
            Decision::Send { subflow, .. }
            | Decision::SendAt { subflow, .. }
            | Decision::Queue { subflow, .. }
            | Decision::Duplicate { subflow, .. }
            | Decision::Withdraw { subflow } => Some(subflow),
            Decision::Wait { .. } => None,
        }
    }
}

/// Why data is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Purpose {
    /// Redundancy by design (redundant, cfs).
    Redundant,
    /// Opportunistic retransmission: the first unacknowledged data blocks the connection-level window.
    Opportunistic,
}

/// A range of stream bytes in flight at connection level: sent on some subflow, not yet acknowledged by a
/// DATA_ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Stream offset of its first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// Bit i: subflow i carries or carried it.
    pub carriers: u32,
    /// The subflow it was last sent on.
    pub last: SubflowId,
    /// When it was last sent (or queued).
    pub sent_at: Time,
}

impl Chunk {
    /// Whether it was ever given to `subflow`.
    #[inline]
    pub fn carried_by(&self, subflow: SubflowId) -> bool {
        self.carriers & (1 << subflow.0) != 0
    }
}

/// Read access to the chunks in flight, in order of offset, and to the messages of the stream.
pub trait InFlight {
    /// The first chunk that ends after `offset`.
    fn chunk_after(&self, offset: u64) -> Option<Chunk>;
    /// The last chunk that begins before `offset`. By default none is found.
    fn chunk_before(&self, offset: u64) -> Option<Chunk> {
        let _ = offset;
        None
    }
    /// The message that the byte at `offset` belongs to: [`View::message`]. By default none is marked.
    fn message_at(&self, offset: u64) -> Option<Message> {
        let _ = offset;
        None
    }
    /// How many chunks there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A scheduler's read-only view of the connection.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The current time.
    pub now: Time,
    /// Every subflow slot of the connection, by [`SubflowId`]; closed ones included.
    pub subflows: &'a [SubflowMetrics],
    /// Bytes written by the application and not yet assigned to a subflow.
    pub unsent: u64,
    /// Offset of the first unassigned byte.
    pub next_offset: u64,
    /// Offset of the first byte not acknowledged at data level.
    pub una: u64,
    /// The connection-level send window, in bytes from `una` (the mirror of the receiver's buffer).
    pub send_window: u64,
    /// Bytes left of the send window: `una + send_window - highest assigned`.
    pub window_left: u64,
    /// Bytes that the application has written in total.
    pub written: u64,
    /// The flow's full size, if the application declared it.
    pub declared_size: Option<u64>,
    /// Whether the application closed its side.
    pub closed: bool,
    /// Whether the application has more to write than the send buffer takes.
    pub writer_waits: bool,
    /// Size of the send buffer: bytes that may be written and unacknowledged.
    pub send_buffer: u64,
    /// Size to which the send buffer may still grow as windows grow; the same as `send_buffer` once it
    /// doesn't.
    pub send_buffer_max: u64,
    /// The data in flight at connection level.
    pub in_flight: &'a dyn InFlight,
    /// What became of chunks on their subflows: [`View::fate`].
    pub fates: &'a dyn Fates,
}

impl Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("now", &self.now).field("unsent", &self.unsent).finish_non_exhaustive()
    }
}

impl<'a> View<'a> {
    //= RFC 8684 3.3.8-1
    /// Whether backup subflows count now: only when no other is usable (Linux's rule).
    #[inline]
    pub fn backups_count(&self) -> bool {
        !self.subflows.iter().any(|subflow| subflow.usable() && !subflow.backup)
    }

    /// Whether the subflow may carry data: usable, and not a backup while another is there.
    #[inline]
    pub fn eligible(&self, subflow: &SubflowMetrics) -> bool {
        subflow.usable() && (!subflow.backup || self.backups_count())
    }

    /// The eligible subflows.
    pub fn usable(&self) -> impl Iterator<Item = &'a SubflowMetrics> + use<'a> {
        let backups = self.backups_count();
        self.subflows.iter().filter(move |subflow| subflow.usable() && (!subflow.backup || backups))
    }

    /// The eligible subflows whose congestion windows have room. For the connection-level window see
    /// [`View::blocked`].
    pub fn available(&self) -> impl Iterator<Item = &'a SubflowMetrics> + use<'a> {
        self.usable().filter(|subflow| subflow.available())
    }

    /// The eligible subflows that take a segment into their queues, whether or not their windows have room:
    /// those with a round-trip time, or room, that aren't recovering from a timeout.
    pub fn queueable(&self) -> impl Iterator<Item = &'a SubflowMetrics> + use<'a> {
        self.usable().filter(|subflow| {
            let known = subflow.rtt.smoothed > Span::ZERO || subflow.window_space() > 0;
            known && subflow.ca_state() != CaState::Loss && subflow.queue_space >= u64::from(subflow.mss)
        })
    }

    /// Bytes of the connection-level window from the first unassigned byte on. Differs from `window_left` if
    /// data was sent ahead ([`Decision::SendAt`]): the bytes left out may still be sent.
    #[inline]
    pub fn room(&self) -> u64 {
        self.una.saturating_add(self.send_window).saturating_sub(self.next_offset)
    }

    /// Whether the connection-level send window blocks new data.
    #[inline]
    pub fn blocked(&self) -> bool {
        self.unsent > 0 && self.room() == 0
    }

    /// Whether new data could be sent now, cwnd permitting.
    #[inline]
    pub fn sendable(&self) -> bool {
        self.unsent > 0 && self.room() > 0
    }

    /// In one pass: the fastest eligible subflow, and the fastest available one. Ties go to the lower id. A
    /// subflow without a round-trip sample counts as the fastest while it has room, so that it gets one.
    /// Full, it doesn't count: its speed is unknown, so it isn't worth a wait.
    #[inline]
    pub fn front(&self) -> Front<'a> {
        let backups = self.backups_count();
        let mut front = Front { usable: None, available: None };
        for subflow in self.subflows {
            if !subflow.usable() || (subflow.backup && !backups) {
                continue;
            }
            let mut expected = subflow.rtt.smoothed > Span::ZERO;
            if front.available.is_none_or(|best| subflow.rtt.smoothed < best.rtt.smoothed)
                && subflow.available()
            {
                front.available = Some(subflow);
                expected = true;
            }
            if expected && front.usable.is_none_or(|best| subflow.rtt.smoothed < best.rtt.smoothed) {
                front.usable = Some(subflow);
            }
        }
        front
    }

    /// The fastest available subflow alone: [`Front::available`].
    #[inline]
    pub fn fastest_available(&self) -> Option<&'a SubflowMetrics> {
        let mut fastest: Option<&SubflowMetrics> = None;
        for subflow in self.subflows {
            let first = fastest.is_none_or(|best| subflow.rtt.smoothed < best.rtt.smoothed);
            if first && subflow.available() && (!subflow.backup || self.backups_count()) {
                fastest = Some(subflow);
            }
        }
        fastest
    }

    /// The available subflow with the highest score, and the score; ties go to the lower srtt, then the lower
    /// id.
    #[inline]
    pub fn best_available(
        &self,
        score: impl Fn(&SubflowMetrics) -> f64,
    ) -> Option<(&'a SubflowMetrics, f64)> {
        let mut best: Option<(&SubflowMetrics, f64)> = None;
        for subflow in self.available() {
            let score = score(subflow);
            let better = |(other, highest): (&SubflowMetrics, f64)| {
                score > highest || (score == highest && subflow.rtt.smoothed < other.rtt.smoothed)
            };
            if best.is_none_or(better) {
                best = Some((subflow, score));
            }
        }
        best
    }

    /// The eligible subflows with a lower srtt than `slow`, with room or not; subflows without a sample don't
    /// count.
    #[inline]
    pub fn faster_than(&self, slow: &SubflowMetrics) -> impl Iterator<Item = &'a SubflowMetrics> + use<'a> {
        let srtt = slow.rtt.smoothed;
        self.usable().filter(move |subflow| !subflow.rtt.smoothed.is_zero() && subflow.rtt.smoothed < srtt)
    }

    /// The subflow of an iterator with the lowest srtt; ties go to the lower id.
    pub fn fastest<'f>(subflows: impl Iterator<Item = &'f SubflowMetrics>) -> Option<&'f SubflowMetrics> {
        subflows.min_by_key(|subflow| (subflow.rtt.smoothed, subflow.id))
    }
}

/// The fastest subflows by srtt. Most schedulers compare these two.
#[derive(Clone, Copy, Debug)]
pub struct Front<'a> {
    /// The fastest eligible subflow that has a sample or room.
    pub usable: Option<&'a SubflowMetrics>,
    /// The fastest whose window has room: `minrtt`'s choice.
    pub available: Option<&'a SubflowMetrics>,
}

/// An event that a scheduler may be notified of between decisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A subflow became usable.
    SubflowAdded(SubflowId),
    /// A subflow is closed or failed; its in-flight data is about to be reinjected.
    SubflowRemoved(SubflowId),
    /// `segments` were newly acknowledged on the subflow.
    Acked {
        /// The subflow.
        subflow: SubflowId,
        /// Number of segments.
        segments: u32,
    },
    /// A DATA_ACK moved `una`.
    DataAcked,
    /// `segments` were judged lost on the subflow.
    Lost {
        /// The subflow.
        subflow: SubflowId,
        /// Number of segments.
        segments: u32,
    },
    /// The retransmission timer of the subflow fired.
    Timeout(SubflowId),
    /// Data of another subflow was sent again on this one: a reinjection or an opportunistic retransmission,
    /// not a repetition that the scheduler asked for.
    Reinjected(SubflowId),
    /// New data doesn't fit the connection-level send window (once per blocking).
    WindowBlocked,
    /// The send buffer is full of data in flight and the writer waits, while a subflow has room (each time
    /// that it is found).
    BufferBlocked,
    /// The application wrote.
    Written(u64),
    /// The application closed its side.
    Closed,
}

/// Records the reasons for decisions. Costs nothing when disabled: the closure isn't called.
#[derive(Debug, Default)]
pub struct Rationale {
    enabled: bool,
    text: String,
}

impl Rationale {
    /// An enabled recorder.
    pub fn listening() -> Self {
        Rationale { enabled: true, text: String::new() }
    }

    /// Whether reasons are recorded.
    #[inline]
    pub fn on(&self) -> bool {
        self.enabled
    }

    /// Records the reason, with numbers: `lte would hold 17 KiB of the 24 KiB window, lambda=1.02`. Subflows
    /// are written `{subflow 0}`; [`with_names`] replaces that by the path's name.
    #[inline]
    pub fn say(&mut self, reason: impl FnOnce() -> String) {
        if self.enabled {
            self.text = reason();
        }
    }

    /// Takes the text.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

/// A packet scheduler, one instance per connection and direction of sending.
pub trait Scheduler: Debug + Send {
    /// The name in the registry.
    fn name(&self) -> &'static str;

    /// Returns the next decision. Called when something may have changed, while there is unsent data or data
    /// in flight and a usable subflow. Must be O(subflows).
    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision;

    /// Handles an event.
    fn on_event(&mut self, view: &View<'_>, event: Event) {
        let _ = (view, event);
    }

    /// Says where a chunk is reinjected, which its subflow won't deliver. The engine reinjects before it asks
    /// for new data.
    fn reinject(&mut self, view: &View<'_>, chunk: &Chunk) -> Reinjection {
        let _ = (view, chunk);
        Reinjection::Usual
    }

    /// Whether [`Scheduler::on_event`] must be called.
    fn wants_events(&self) -> bool {
        true
    }

    /// Whether it reads the links' rates ([`link_byte_time`](crate::metrics::RateMetrics::link_byte_time)):
    /// for others they aren't estimated.
    fn wants_link_rate(&self) -> bool {
        false
    }

    /// Whether [`Scheduler::select`] is called when nothing is unsent (redundant, cfs).
    fn repeats(&self) -> bool {
        false
    }

    /// Whether [`Scheduler::select`] is called while no window has room, because the scheduler queues on full
    /// subflows ([`Decision::Queue`]: OTIAS, linux).
    fn queues_ahead(&self) -> bool {
        false
    }

    /// Whether the latest wait means that the decision isn't known yet. The engine then doesn't overrule the
    /// wait. The scheduler is asked again when an event comes, or at once by
    /// [`Endpoint::ask_again`](crate::endpoint::Endpoint::ask_again).
    fn is_undecided(&self) -> bool {
        false
    }

    /// The mechanisms that the engine runs for it when the connection-level window blocks.
    fn mechanisms(&self) -> Mechanisms {
        Mechanisms::default()
    }

    /// Whether it would wait now, were there room in the window: then [`Rule::Linux`]'s mechanisms don't run.
    /// Asked when they are about to.
    fn waits_while_blocked(&mut self, view: &View<'_>) -> bool {
        let _ = view;
        false
    }

    /// Internal state for observers: (name, value), e.g. BLEST's lambda.
    fn metrics(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// What Linux uses unless told otherwise.
pub(crate) const DEFAULT: Entry<dyn Scheduler> = linux::ENTRY;

/// The scheduler that the others are measured against: the default of a connection and of Linux.
pub const BASELINE: &str = DEFAULT.name;

/// Whether comparisons take a scheduler without being told its name ([`Entry::compared_by_default`]). One
/// that isn't built in was registered to be compared.
pub fn is_compared_by_default(name: &str) -> bool {
    let registry = builtin();
    registry.entries().iter().find(|entry| entry.name == name).is_none_or(|entry| entry.compared_by_default)
}

/// The scheduler that Ropewalk's gateway and proxy use unless told otherwise.
pub const PRODUCT_DEFAULT: &str = "ropewalk";
