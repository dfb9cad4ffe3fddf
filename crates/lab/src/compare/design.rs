//! How many runs candidates get: a fixed number, or a budget of simulated segments.

use ropewalk_engine::Span;

/// Segments that a second of budget stands for: about what two cores simulate.
pub const PER_SECOND: u64 = 4_000_000;

/// Runs with real packets, if neither the command line nor the scenario says how many: they take real time.
pub const EMULATED_RUNS: u32 = 30;

/// How often candidates of a race are looked at, at most.
pub(super) const LOOKS: u32 = 36;

/// How many runs each candidate gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Design {
    /// So many, all the same.
    Fixed(u32),
    /// As many as it takes to decide.
    Race {
        /// Most segments that all runs together may simulate.
        segments: u64,
    },
}

impl Design {
    /// A race with a budget of so much time.
    pub fn race(budget: Span) -> Self {
        Design::Race {
            segments: (u128::from(budget.as_nanos()) * u128::from(PER_SECOND) / 1_000_000_000) as u64,
        }
    }

    /// What [`super::start_phase`] divides by: 0 where the number of runs isn't known beforehand.
    pub(crate) fn phases(self) -> u32 {
        match self {
            Design::Fixed(runs) => runs,
            Design::Race { .. } => 0,
        }
    }

    /// How often candidates are looked at: the bound on errors is shared among these.
    pub(crate) fn looks(self) -> u32 {
        match self {
            Design::Fixed(_) => 1,
            Design::Race { .. } => LOOKS,
        }
    }
}
