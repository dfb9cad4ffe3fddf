//! What a model connection records.

use super::{MSS, Model, Pipe, build};
use crate::Time;

/// A transmitted segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// When.
    pub at: Time,
    /// Where.
    pub subflow: u8,
    /// Stream offset.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Whether a decision repeated it.
    pub repeat: bool,
}

impl Model {
    /// Segment numbers (from `first`) sent on a subflow, in order.
    pub fn segments_on(&self, subflow: u8, first: u64) -> Vec<u64> {
        let mine = self.placements.iter().filter(|placement| placement.subflow == subflow);
        mine.map(|placement| placement.offset / u64::from(MSS) + first).collect()
    }

    /// Bytes sent on a subflow.
    pub fn bytes_on(&self, subflow: u8) -> u64 {
        let mine = self.placements.iter().filter(|placement| placement.subflow == subflow);
        mine.map(|placement| u64::from(placement.len)).sum()
    }
}

/// Runs a flow of `segments` segments over `pipes`.
pub fn run(text: &str, pipes: &[Pipe], segments: u64) -> Model {
    Model::new(pipes, segments * u64::from(MSS)).run(&mut *build(text))
}
