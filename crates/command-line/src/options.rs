//! Values that several commands' options share.

use std::time::Duration;

use clap::ValueEnum;
use ropewalk_settings::argument;
pub use ropewalk_settings::argument::list;

use crate::Failure;

/// A flow's size.
///
/// # Errors
/// What is wrong with it.
pub fn size(option: &str, text: &str) -> Result<u64, Failure> {
    size_within(option, text, (1, 1 << 40))
}

/// A size in a range.
///
/// # Errors
/// What is wrong with it.
pub fn size_within(option: &str, text: &str, range: (u64, u64)) -> Result<u64, Failure> {
    Ok(argument::size_within(option, text, range)?)
}

/// A time.
///
/// # Errors
/// What is wrong with it.
pub fn time(option: &str, text: &str) -> Result<Duration, Failure> {
    Ok(argument::time(option, text)?.into())
}

/// Where transfers run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum World {
    /// In the simulator
    Simulated,
    /// With real packets in real time
    Emulated,
}

impl World {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            World::Simulated => "simulated",
            World::Emulated => "emulated",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn lists_split_outside_brackets_only() {
        assert_eq!(
            list("minrtt, capacity(gamma=0.5, delta=1.0),ecf"),
            ["minrtt", "capacity(gamma=0.5, delta=1.0)", "ecf"]
        );
    }
}
