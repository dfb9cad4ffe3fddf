//! The tests that use the crate from outside, in one program: it is built once, and they share the machine.

mod common;

mod captures;
mod corpus;
mod golden;
mod reserved;
mod round_trip;
