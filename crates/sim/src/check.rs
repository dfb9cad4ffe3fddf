//! What can't be simulated, and why.

use ropewalk_engine::{MAX_SUBFLOWS, Span, congestion, scheduler};

use crate::spec::{HORIZON, MTUS, Mode, RunSpec};
use crate::topology::background_paths;

/// Most background sources of a scenario.
const MAX_BACKGROUND: usize = 10_000;
/// Most connections of a workload.
const MAX_CONNECTIONS: u32 = 1_000_000;

/// Why a specification can't be simulated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// There is no path.
    #[error("a scenario needs at least one path")]
    NoPath,
    /// There are too many paths.
    #[error("{0} paths; at most {MAX_SUBFLOWS} are allowed")]
    TooManyPaths(usize),
    /// [`Mode::SinglePath`] names a path that isn't there.
    #[error("single path {path}: there are {paths} paths, counted from 0")]
    UnknownSinglePath {
        /// Its index.
        path: usize,
        /// How many paths there are.
        paths: usize,
    },
    /// An MTU is beyond [`MTUS`].
    #[error("path {path}: MTU {mtu} is not allowed; {} to {} is", MTUS.start(), MTUS.end())]
    Mtu {
        /// The path's name.
        path: String,
        /// Its MTU, bytes.
        mtu: u32,
    },
    /// A path names a bottleneck that isn't there.
    #[error("path {path}: there is no bottleneck {bottleneck}")]
    UnknownBottleneck {
        /// The path's name.
        path: String,
        /// The bottleneck's index.
        bottleneck: usize,
    },
    /// There are too many background sources.
    #[error("{0} background sources; at most {MAX_BACKGROUND} are allowed")]
    TooManySources(usize),
    /// A background source names a path that isn't there.
    #[error("background on path {path}: there are {paths} paths")]
    UnknownBackgroundPath {
        /// Its index.
        path: usize,
        /// How many paths there are.
        paths: usize,
    },
    /// A background source names a congestion control that isn't known; the registry's message.
    #[error("{0}")]
    Congestion(String),
    /// A background source names a scheduler that isn't built in; the registry's message.
    #[error("{0}")]
    Scheduler(String),
    /// There is no scheduler for datagrams of this name.
    #[error("there is no scheduler `{0}` for datagrams")]
    DatagramScheduler(String),
    /// The workload has too many connections.
    #[error("{0} connections; at most {MAX_CONNECTIONS} are allowed")]
    TooManyConnections(u32),
    /// Samples are to be taken without any time between them.
    #[error("samples can't be taken every 0 ns")]
    NoInterval,
    /// A time is so large that sums of times could overflow; which one.
    #[error("the {0} is too long")]
    TooLong(&'static str),
}

impl RunSpec {
    /// Whether it can be simulated.
    ///
    /// # Errors
    /// The first thing that can't.
    pub fn check(&self) -> Result<(), SpecError> {
        let scenario = &self.scenario;
        let paths = scenario.paths.len();
        if paths == 0 {
            return Err(SpecError::NoPath);
        }
        if paths > MAX_SUBFLOWS {
            return Err(SpecError::TooManyPaths(paths));
        }
        if let Mode::SinglePath(path) = self.mode
            && path >= paths
        {
            return Err(SpecError::UnknownSinglePath { path, paths });
        }
        for path in &scenario.paths {
            if !MTUS.contains(&path.mtu) {
                return Err(SpecError::Mtu { path: path.name.clone(), mtu: path.mtu });
            }
            if let Some(bottleneck) = path.bottleneck
                && bottleneck >= scenario.bottlenecks.len()
            {
                return Err(SpecError::UnknownBottleneck { path: path.name.clone(), bottleneck });
            }
        }
        if scenario.background.len() > MAX_BACKGROUND
            || background_paths(scenario).len() > usize::from(u16::MAX)
        {
            return Err(SpecError::TooManySources(scenario.background.len()));
        }
        for source in &scenario.background {
            if source.path >= paths {
                return Err(SpecError::UnknownBackgroundPath { path: source.path, paths });
            }
            if let Some(name) = source.traffic.congestion() {
                congestion::builtin().parse(name).map_err(|error| SpecError::Congestion(error.message))?;
            }
            if let Some(name) = source.traffic.scheduler() {
                scheduler::builtin().parse(name).map_err(|error| SpecError::Scheduler(error.message))?;
            }
        }
        let connections = scenario.connections();
        if connections > MAX_CONNECTIONS {
            return Err(SpecError::TooManyConnections(connections));
        }
        if self.recording.samples_every.is_some_and(Span::is_zero) {
            return Err(SpecError::NoInterval);
        }
        for (what, time) in
            [("limit", scenario.limit), ("warm-up", scenario.warmup), ("start phase", self.start_phase)]
        {
            if time > HORIZON {
                return Err(SpecError::TooLong(what));
            }
        }
        Ok(())
    }
}
