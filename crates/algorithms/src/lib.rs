//! Schedulers and congestion controls by name: the engine's own, a program's, and learned ones from a file.
#![forbid(unsafe_code)]

pub mod policy;
mod registries;

pub use registries::Registries;
