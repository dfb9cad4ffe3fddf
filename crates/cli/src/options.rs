//! Values that several commands' options share.

use clap::ValueEnum;

/// Where transfers run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum World {
    /// In the simulator
    Simulated,
    /// With real packets in real time
    Emulated,
}

impl World {
    /// The word on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            World::Simulated => "simulated",
            World::Emulated => "emulated",
        }
    }
}

/// Whose Multipath TCP an end speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Stack {
    /// Ropewalk's engine
    Engine,
    /// The Linux kernel
    Kernel,
}

/// Which end sends the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Direction {
    /// The server
    Download,
    /// The client
    Upload,
}

impl From<Direction> for ropewalk_sim::Direction {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Download => ropewalk_sim::Direction::Download,
            Direction::Upload => ropewalk_sim::Direction::Upload,
        }
    }
}

/// Whether something is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    /// It is
    On,
    /// It isn't
    Off,
}
