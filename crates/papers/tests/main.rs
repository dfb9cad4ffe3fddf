//! The tests that use the crate from outside, in one program: it is built once, and they share the machine.

mod command;
mod papers;
