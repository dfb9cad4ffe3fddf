//! The laboratory in a browser. The page asks with JSON and is answered with JSON ([`Playground::answer`]),
//! in a worker each: one holds the comparison, the others make its runs. Built for wasm32 it is a module
//! without imports (`boundary.rs`).
#![deny(unsafe_code)]

#[cfg(target_arch = "wasm32")]
mod boundary;
mod fields;
mod links;
mod session;

pub use fields::Fields;
pub use session::Playground;
