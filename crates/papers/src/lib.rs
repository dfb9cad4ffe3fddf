//! What the documentation's results are made with: the papers' experiments, the arena, the validation against
//! real packets, and the gallery of algorithms. The command as a library: a program with its own algorithms
//! registers them and calls [`run`].
#![forbid(unsafe_code)]

pub mod arena;
mod command;
pub mod kernels;
pub mod reproduce;
pub mod validate;

pub use command::run;
