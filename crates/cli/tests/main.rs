//! The tests that use the crate from outside, in one program: it is built once, and they share the machine.

mod advise;
mod compare;
mod emulate;
mod explain;
mod input;
mod output;
mod shadow;
mod sweep;
mod vocabulary;
