//! What the programs' command lines share: why a command failed and its exit code, output to files, options,
//! Ctrl-C.
#![forbid(unsafe_code)]

mod failure;
pub mod interrupt;
pub mod options;
pub mod output;
pub mod recording;
pub mod settings;

pub use failure::{EXIT_CODES, Failure, by_goal, end, exit, parse};
