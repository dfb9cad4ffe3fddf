//! The real-time worlds: the same engine and link models as the simulator's, against real clocks, TUN devices
//! and network namespaces.
//!
//! All the project's unsafe code is here and in `ropewalk_os`, each block with its reason.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod capture;
pub mod clock;
mod emulated_path;
pub mod experiment;
pub mod frame;
pub mod histogram;
pub mod kernel;
pub mod netns;
pub mod network;
pub mod perf;
pub mod programs;
pub mod reaper;
pub mod skip;
pub mod transfer;
pub mod tun;
pub mod world;

pub use ropewalk_os::entropy;
