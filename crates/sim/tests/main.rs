//! The tests that use the crate from outside, in one program: it is built once, and they share the machine.

mod common;

mod analytic;
mod bbr;
mod determinism;
mod long;
mod lookahead;
mod observer;
mod pause;
mod relatives;
mod reordering;
mod schedulers;
mod traces;
mod workloads;
