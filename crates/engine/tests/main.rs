//! The tests that use the crate from outside, in one program: it is built once, and they share the machine.

mod common;

mod addresses;
mod black_hole;
mod clauses;
mod close_reasons;
mod control;
mod corpus;
mod counters;
mod data;
mod dead_path;
mod examples;
mod handshake_reordering;
mod headers;
mod join_handshake;
mod joins;
mod limits;
mod map;
mod mappings;
mod old_hosts;
mod open_connection;
mod opening;
mod pair;
mod peer_memory;
mod queues;
mod receive_tuning;
mod regressions;
mod reinjection;
mod send_tuning;
mod super_segments;
mod threats;
mod threats_page;
