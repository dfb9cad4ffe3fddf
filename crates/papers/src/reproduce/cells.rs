//! What is asked of a paper's runs, and what the cells of its figures gave.

use std::time::Duration;

use super::{Paper, World};

/// What to run.
#[derive(Debug)]
pub struct Request<'a> {
    /// The paper.
    pub paper: &'a Paper,
    /// Where: its figures of that world.
    pub world: World,
    /// One figure only.
    pub figure: Option<&'a str>,
    /// Runs of each cell, instead of the paper's number.
    pub runs: Option<u32>,
    /// First seed.
    pub seed: u64,
    /// Threads.
    pub jobs: usize,
}

/// Hears of progress.
pub trait Progress: Sync {
    /// So many runs there are, and so many of them are known already.
    fn total(&self, runs: usize, known: usize);
    /// One more is done.
    fn done(&self);
    /// The time since the beginning, by the caller's clock: the laboratory has none.
    fn clock(&self) -> Duration;
}

/// A row with a column, in one setting.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct CellOutcome {
    pub(super) metric: String,
    /// By seed; a run that doesn't have the measure is left out.
    pub(super) values: Vec<f64>,
    /// Mean of completion time over each bound.
    pub(super) bound: Option<(f64, f64)>,
    /// Flows that weren't complete at the limit, all runs together.
    pub(super) incomplete: f64,
}

/// A figure in one setting.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Grid {
    pub(super) figure: usize,
    pub(super) variant: String,
    /// Row by row.
    pub(super) cells: Vec<Vec<CellOutcome>>,
}
