//! Memory of a connection in TIME-WAIT. A server that closes first often has several times more connections
//! in TIME-WAIT than open ones, so they don't keep the queues that their transfers needed.
//!
//! One test in a binary of its own: the counting allocator is global, and counts other threads too.

mod common;

use std::alloc::System;

use common::{Net, PathScript};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes of memory that both endpoints hold once a connection has carried `len` bytes and closed: what
/// dropping them frees.
fn kept_after(len: usize) -> usize {
    let lossy = || PathScript { loss: 0.02, ..PathScript::clean(20) };
    let mut net = Net::new("minrtt", "lia", vec![lossy(), lossy()]);
    net.transfer(len);
    net.finish();
    let Net { ends, .. } = net;
    let region = Region::new(COUNTING);
    drop(ends);
    region.change().bytes_deallocated
}

#[test]
fn a_connection_in_time_wait_keeps_no_queues() {
    // The endpoints have queues of their own, which grow with bursts.
    let (small, large) = (kept_after(1000), kept_after(2_000_000));
    assert!(large < small + 4096, "{large} bytes after 2 MB, {small} after 1 kB");
}
