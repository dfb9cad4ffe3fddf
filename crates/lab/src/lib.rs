//! The laboratory: scenarios, experiments over many seeded runs, statistics, and tables. It opens no files
//! and starts no threads: what it needs of both the caller hands in ([`ropewalk_settings::input::OpenFile`],
//! [`parallel::Workers`]).
#![forbid(unsafe_code)]

pub mod advise;
pub mod ask;
pub mod bound;
pub mod compare;
pub mod csv;
pub mod datagrams;
pub mod evidence;
pub mod kept;
pub mod objective;
pub mod opening;
pub mod parallel;
pub mod real_time;
pub mod report;
pub mod scenario;
pub mod shadow;
pub mod stats;
pub mod sweep;
pub mod table;
pub mod tidy;
pub mod watch;
