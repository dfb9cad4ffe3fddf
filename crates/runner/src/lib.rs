//! Runs the laboratory's experiments: on threads, from and to files, and with real packets.
#![forbid(unsafe_code)]

pub mod checkpoint;
#[cfg(target_os = "linux")]
pub mod emulated;
pub mod folder;
pub mod sweep;
mod threads;

pub use threads::threads;
