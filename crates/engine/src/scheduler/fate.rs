//! What became of a chunk on the subflow that carries it: the subflow's scoreboard, for schedulers that ask;
//! and what they say of a chunk that its subflow won't deliver.

use super::{Chunk, View};
use crate::SubflowId;

/// What became of a chunk on a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Fate {
    /// It waits in the subflow's queue and was never sent.
    Queued,
    /// It, or its repetition by the subflow, is on its way, for all that is known.
    InFlight,
    /// It is judged lost, and the subflow hasn't repeated it yet.
    Lost,
    /// The peer's subflow has it (SACK, or the cumulative ACK). If the subflow has a hole before it, the
    /// peer's connection has it only once that hole is filled: a receiver places what is in order on its
    /// subflow.
    Arrived,
}

/// Where data goes that has to be sent again because its subflow failed, timed out or was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Reinjection {
    /// By the engine's rule: to the fastest subflow with room that never carried it, or else any but its last
    /// one.
    #[default]
    Usual,
    /// To this subflow, if it has room and doesn't carry the data yet; else by the engine's rule.
    On(SubflowId),
    /// Not now: the engine asks again at the next event. While nothing is in flight its rule decides: no
    /// scheduler can stall a connection.
    Later,
}

/// Who knows the fates of chunks.
pub trait Fates {
    /// The fate on `subflow` of the data at `offset`, which it carries or carried.
    fn fate(&self, subflow: SubflowId, offset: u64) -> Fate;
}

/// Nothing is known: everything is in flight.
impl Fates for () {
    fn fate(&self, _subflow: SubflowId, _offset: u64) -> Fate {
        Fate::InFlight
    }
}

impl View<'_> {
    /// What became of a chunk on the subflow that it was last given to. It is searched for in that subflow's
    /// scoreboard: O(log n) of the segments in flight while their offsets rise, O(n) otherwise. So ask for
    /// few.
    pub fn fate(&self, chunk: &Chunk) -> Fate {
        self.fates.fate(chunk.last, chunk.offset)
    }
}
