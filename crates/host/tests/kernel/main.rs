//! The engine against the Linux kernel of this machine, over TUN devices in namespaces made for the purpose.
//!
//! Each test asserts on both sides that Multipath TCP held to the end with the expected number of subflows
//! (or fell back where the test takes the options away), that every byte is right, and what the kernel
//! counted. Where a machine lacks a feature, the test says that it is skipped, and why.

mod breakage;
mod bridge;
mod capture;
mod control;
mod early_join;
mod fallback;
mod families;
mod half_close;
mod harness;
mod hash;
mod judges;
mod lossy;
mod lost_control;
mod mtu;
mod priority;
mod programs;
mod receive_memory;
mod stage;
mod transfers;
