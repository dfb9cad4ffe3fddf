//! The tests that use the crate from outside, in one program: it is built once, and they share the machine.

mod bound;
mod corpus;
mod coverage;
mod evidence;
mod narrowing;
mod pure;
mod report;
mod schema;
mod snapshots;
mod statistics;
mod variants;
mod wire;
