//! Nothing allocates per segment in steady state (ARCHITECTURE.md): memory that segments, packets and queues
//! took while a transfer warmed up is used again. What is left are buffers of whole runs that double now and
//! then.
//!
//! One test in a binary of its own: the counting allocator is global, and counts other threads too.

mod common;

use ropewalk_engine::Time;
use std::alloc::System;

use common::{MILLISECOND, SECOND, single, spec};
use ropewalk_link::Loss;
use ropewalk_sim::{Direction, EndSpec, Outcome, RunSpec, Scenario, Side, Workload, World, networks};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Segments received by both ends.
fn segments(world: &World) -> u64 {
    let received = |side| {
        let counters = world.counters(side);
        counters.iter().find(|(name, _)| name == "TcpInSegs").map_or(0, |(_, value)| *value)
    };
    received(Side::Client) + received(Side::Server)
}

/// Allocations and segments of the second half of a bulk transfer of twenty seconds.
fn steady(spec: &RunSpec) -> (usize, u64) {
    let mut world = World::new(spec).expect("a scenario that can be simulated");
    assert!(!world.run_until(Time::ZERO + 10 * SECOND));
    let before = segments(&world);
    let region = Region::new(COUNTING);
    assert!(!world.run_until(Time::ZERO + 19 * SECOND));
    let change = region.change();
    (change.allocations + change.reallocations, segments(&world) - before)
}

fn bulk(mut scenario: Scenario) -> Scenario {
    scenario.workload = Workload::Bulk { duration: 20 * SECOND };
    scenario.limit = 60 * SECOND;
    // Buffers that don't grow: a window in steady state.
    let fixed = EndSpec { autotune: false, ..EndSpec::default() };
    (scenario.client, scenario.server) = (fixed.clone(), fixed);
    scenario
}

/// Allocations of a run in all, from its specification to its result.
fn of_run(spec: &RunSpec) -> usize {
    let region = Region::new(COUNTING);
    let result = ropewalk_sim::run(spec);
    let change = region.change();
    assert_eq!(result.outcome, Outcome::Complete);
    change.allocations + change.reallocations
}

/// Bytes and blocks that an idle connection of two subflows has, both ends together.
fn of_idle_connection() -> (usize, f64) {
    const COUNT: u32 = 1000;
    let region = Region::new(COUNTING);
    let ends = common::idle::connections(COUNT);
    let change = region.change();
    drop(ends);
    let bytes = change.bytes_allocated - change.bytes_deallocated;
    let blocks = change.allocations - change.deallocations;
    (bytes / COUNT as usize, blocks as f64 / f64::from(COUNT))
}

#[test]
fn segments_in_steady_state_allocate_nothing() {
    let two = || bulk(networks::two_equal(50_000_000, 10 * MILLISECOND));
    let upload = Scenario { direction: Direction::Upload, ..two() };
    let mut lossy = two();
    for path in &mut lossy.paths {
        path.down.loss = Loss::Bernoulli(0.001);
    }
    let cases = [
        ("plain TCP", single(bulk(networks::one(50_000_000, 10 * MILLISECOND)), 0, "cubic")),
        ("minrtt, lia", spec(two(), "minrtt", "lia")),
        ("linux, cubic, upload", spec(upload, "linux", "cubic")),
        ("roundrobin, olia", spec(two(), "roundrobin", "olia")),
        ("losses", spec(lossy, "minrtt", "lia")),
    ];
    for (name, spec) in cases {
        let (allocations, segments) = steady(&spec);
        println!("{name}: {allocations} allocations, {segments} segments");
        assert!(segments > 20_000, "{name}: {segments} segments");
        assert!(
            allocations as u64 * 100 < segments,
            "{name}: {allocations} allocations for {segments} segments"
        );
    }
    let mut small = networks::two_equal(50_000_000, 10 * MILLISECOND);
    small.workload = Workload::Flow { bytes: 2048 };
    let allocations = of_run(&spec(small, "minrtt", "lia"));
    println!("a run of 2 KiB: {allocations} allocations");
    assert!(allocations < 150, "{allocations} allocations");
    let (bytes, blocks) = of_idle_connection();
    println!("an idle connection of two subflows, both ends: {bytes} bytes in {blocks:.1} blocks");
    assert!(bytes < 8000, "{bytes} bytes");
}
