//! The arena: every scheduler over a grid of scenarios, or over drawn ones, with the same seeds, against the
//! best of the others in each cell.

mod distributions;
mod drawn;
mod families;
mod heat;
mod run;
mod score;

use ropewalk_lab::opening::OpeningPath;
use serde::{Deserialize, Serialize};

pub use distributions::WORKLOADS;
pub use drawn::draw;
pub use families::{Axis, Cell, FAMILIES, Family, grid};
pub use heat::{Map, maps, svg};
pub use run::{Contest, Entrant, Execution, Measured, jobs, run};
pub use score::{CellScore, Frames, HARMED, Harm, Kind, Score, score};

/// Which part of the arena a cell belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Half {
    /// The half of the grid to tune on.
    Dev,
    /// The half to judge by.
    Test,
    /// Drawn by a seed.
    Drawn,
}

impl Half {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Half::Dev => "dev",
            Half::Test => "test",
            Half::Drawn => "drawn",
        }
    }
}

/// One entrant's runs in one cell, by seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Its label.
    pub label: String,
    /// The objective, seconds. A run that isn't complete counts as the limit.
    pub seconds: Vec<f64>,
    /// Payload bytes sent more than once, as a share of those delivered.
    pub repeated: Vec<f64>,
    /// Of frames with a deadline: the share that was late.
    #[serde(default)]
    pub late: Vec<f64>,
    /// Of frames: the 99th percentile of a run's delays, seconds.
    #[serde(default)]
    pub p99: Vec<f64>,
}

/// What was measured in one cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellResult {
    /// Family and place; of drawn ones, workload, seed and number.
    pub id: String,
    /// The family; of drawn cells, the kind of their workload.
    pub family: String,
    /// Which half.
    pub half: Half,
    /// Value of the family's first quantity.
    pub x: f64,
    /// Of the second.
    pub y: f64,
    /// Each entrant.
    pub series: Vec<Series>,
    /// Plain TCP on each path, the one opened first at the front.
    pub tcp: Vec<Series>,
    /// The pool of paths, by seed: when the deliveries of all plain TCPs, each alone and begun when it can be
    /// joined, add up to the size. None of workloads that aren't one flow.
    pub pool: Vec<f64>,
    /// The same with all paths begun at once, as if no handshake came before a join.
    pub at_once: Vec<f64>,
}

impl CellResult {
    /// An entrant's series.
    pub fn of(&self, label: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.label == label)
    }
}

/// Where connections are opened if nothing else is asked for.
fn first() -> String {
    OpeningPath::First.to_string()
}

/// Why results can't be put together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// They were measured under other conditions.
    #[error("they can't be compared: these are {these}, those {those}")]
    OtherConditions {
        /// The first's conditions.
        these: String,
        /// The other's.
        those: String,
    },
}

/// All that was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Congestion control of all.
    pub congestion: String,
    /// The path that connections were opened on: `first`, `best`, `remember`, or its name.
    #[serde(default = "first")]
    pub opened_on: String,
    /// The first seed.
    pub seed: u64,
    /// Runs of each entrant in each cell.
    pub runs: u32,
    /// Whether joins began with the third ACK.
    pub early_join: bool,
    /// The cells.
    pub cells: Vec<CellResult>,
}

impl Results {
    /// Takes from `other` the series of entrants that aren't here, in cells that are here.
    ///
    /// # Errors
    /// The two were measured with different seeds or congestion controls, for people.
    pub fn merge(&mut self, other: &Results) -> Result<(), MergeError> {
        let (these, those) = (self.conditions(), other.conditions());
        if these != those {
            return Err(MergeError::OtherConditions { these, those });
        }
        for cell in &mut self.cells {
            let Some(same) = other.cells.iter().find(|same| same.id == cell.id) else { continue };
            for series in &same.series {
                if cell.of(&series.label).is_none() {
                    cell.series.push(series.clone());
                }
            }
            if cell.tcp.is_empty() {
                cell.tcp.clone_from(&same.tcp);
                cell.pool.clone_from(&same.pool);
                cell.at_once.clone_from(&same.at_once);
            }
        }
        Ok(())
    }

    /// What runs must have in common to be compared, in words.
    fn conditions(&self) -> String {
        let joins = if self.early_join { "early" } else { "late" };
        format!(
            "{} runs from seed {} with {} and {joins} joins, opened on {}",
            self.runs, self.seed, self.congestion, self.opened_on
        )
    }

    /// The labels of all entrants that are in every cell.
    pub fn labels(&self) -> Vec<String> {
        let Some(first) = self.cells.first() else { return Vec::new() };
        let everywhere = |label: &&String| self.cells.iter().all(|cell| cell.of(label).is_some());
        first.series.iter().map(|series| &series.label).filter(everywhere).cloned().collect()
    }
}

/// What a scheduler's label is without its parameters: an entrant isn't judged by variants of itself.
pub fn stem(label: &str) -> &str {
    label.split([':', '(']).next().unwrap_or(label)
}
