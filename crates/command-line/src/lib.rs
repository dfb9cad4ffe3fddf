//! What the programs' command lines share: why a command failed and its exit code, output to files, options,
//! progress, Ctrl-C.
#![forbid(unsafe_code)]

mod failure;
#[cfg(feature = "interrupt")]
pub mod interrupt;
pub mod options;
pub mod output;
mod progress_line;
pub mod recording;
pub mod settings;

pub use failure::{EXIT_CODES, Failure, by_goal, end, exit, parse};
pub use progress_line::ProgressLine;
