//! The tests that use the crate from outside, in one program.

mod folder;
mod measure;
