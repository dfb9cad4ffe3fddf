//! Multipath TCP for ordinary programs. [`gateway`] is the server's side: it accepts Multipath TCP and plain
//! TCP with the engine, and forwards to TCP servers beside it. [`proxy`] is the client's side.
//!
//! Both stand on `ropewalk-tokio`; what the kernel has to be told is in [`setup`].
#![forbid(unsafe_code)]

mod carry;
pub mod config;
mod confine;
pub mod convert;
mod daemon;
pub mod doctor;
pub mod gateway;
mod guesses;
pub mod log;
mod memory;
pub mod metrics;
pub mod page;
mod per_address;
mod per_connection;
pub mod privileges;
pub mod proxy;
mod secret;
mod serving;
pub mod setup;
pub mod status;
mod target;
pub mod tls;
pub mod tunnel;
pub mod udp;
mod windows;

pub use tracing_subscriber::filter::LevelFilter;
