//! The tests that use the crate from outside, in one program: it is built once, and they share the machine.

mod common;

mod analytic;
mod any_link;
mod fast_against_plain;
