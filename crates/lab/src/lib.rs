//! The laboratory: scenario files, experiments over many seeded runs, statistics, and tables.
#![forbid(unsafe_code)]

pub mod advise;
pub mod bound;
pub mod checkpoint;
pub mod compare;
pub mod emulated;
pub mod evidence;
pub mod objective;
pub mod opening;
pub mod parallel;
pub mod report;
pub mod scenario;
pub mod stats;
pub mod sweep;
pub mod table;
pub mod tidy;
pub mod watch;
