//! Schedulers and congestion controls by name: the engine's own, a program's, and learned ones from a file.
#![forbid(unsafe_code)]

mod argument;
pub mod policy;
mod registries;

pub use argument::{algorithm, scheduler};
pub use registries::Registries;
