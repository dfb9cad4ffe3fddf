//! How fast the simulator is: data segments simulated per second of wall time, on one core, both ends and all
//! links included. A counted segment is a full packet of new data with its own place in the queue, loss and
//! jitter draws, timestamps, DSS and RACK state, and one ACK per two.
//!
//! `cargo bench -p ropewalk-sim --bench speed [-- NAME]`

use std::process::ExitCode;
use std::sync::Arc;

use ropewalk_engine::{congestion, scheduler};
use ropewalk_link::{Jitter, JitterShape, Loss};
use ropewalk_sim::{EndSpec, Mode, Recording, RunSpec, Scenario, Workload, World, networks};

const SECOND: u64 = 1_000_000_000;

/// The question that every simulator is asked: two paths of 100 Mbit/s, 10 ms, 500 packets, bulk download.
fn clean(duration: u64) -> Scenario {
    let mut scenario = networks::over(vec![
        networks::path("left", 100_000_000, 10_000_000, 500),
        networks::path("right", 100_000_000, 10_000_000, 500),
    ]);
    scenario.workload = Workload::Bulk { duration };
    scenario.client = EndSpec { send_buffer: 16 << 20, receive_buffer: 16 << 20, ..EndSpec::default() };
    scenario.server = scenario.client.clone();
    scenario
}

fn lossy(duration: u64) -> Scenario {
    let mut scenario = clean(duration);
    for path in &mut scenario.paths {
        path.down.loss = Loss::Bernoulli(0.01);
    }
    scenario
}

fn overtaking(duration: u64) -> Scenario {
    let mut scenario = clean(duration);
    for path in &mut scenario.paths {
        let jitter = Jitter { spread: 3_000_000, shape: JitterShape::Normal, keeps_order: false };
        path.down.jitter = Some(jitter);
    }
    scenario
}

fn long_fat(duration: u64) -> Scenario {
    let mut scenario = networks::over(vec![networks::path("long", 1_000_000_000, 150_000_000, 25_000)]);
    scenario.workload = Workload::Bulk { duration };
    scenario.client = EndSpec { send_buffer: 128 << 20, receive_buffer: 128 << 20, ..EndSpec::default() };
    scenario.server = scenario.client.clone();
    scenario
}

fn many(count: u32) -> Scenario {
    let mut scenario = clean(0);
    scenario.workload = Workload::Flows { count, bytes: 64 << 10 };
    for path in &mut scenario.paths {
        path.down = ropewalk_link::LinkSpec::plain(1_000_000_000, 10_000_000, 5_000);
        path.up = path.down.clone();
    }
    scenario
}

fn spec(scenario: Scenario, schedulers: &str, control: &str) -> RunSpec {
    RunSpec {
        scenario: Arc::new(scenario),
        scheduler: scheduler::builtin().parse(schedulers).expect("a scheduler"),
        congestion: congestion::builtin().parse(control).expect("a congestion control"),
        mode: Mode::Multipath,
        seed: 1,
        start_phase: 0,
        recording: Recording::default(),
    }
}

/// How long the timed runs are, in virtual seconds: `ROPEWALK_BENCH_SECONDS`, for counting instructions in a short
/// one.
fn seconds() -> u64 {
    std::env::var("ROPEWALK_BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// Resident memory of this process in bytes, where the system says.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

fn measure(name: &str, spec: &RunSpec) {
    #[allow(clippy::disallowed_methods, reason = "a benchmark is about wall time")]
    let start = std::time::Instant::now();
    let mut world = match World::new(spec) {
        Ok(world) => world,
        Err(reason) => return println!("{name}: {reason}"),
    };
    world.run_until(u64::MAX);
    let wall = start.elapsed().as_secs_f64();
    let result = world.into_result();
    println!(
        "{name:24} {:>9.0} segments/s {:>6.0} ns each {:>10} segments {:>10} events {:>8.1} Mbit/s {:>7} \
         retransmitted {:>4} timeouts  {:?}",
        result.data_segments as f64 / wall,
        wall * 1e9 / result.data_segments.max(1) as f64,
        result.data_segments,
        result.events,
        result.delivered_bytes as f64 * 8e3 / result.duration.max(1) as f64,
        result.retransmissions,
        result.timeouts,
        result.outcome,
    );
}

/// What a connection that has nothing to do keeps, at both ends together.
fn memory(count: u32) {
    let mut scenario = many(count);
    scenario.workload = Workload::Flows { count, bytes: 1 };
    let Ok(mut world) = World::new(&spec(scenario, "minrtt", "lia")) else { return };
    let Some(before) = resident() else { return };
    world.run_until(u64::MAX);
    let Some(after) = resident() else { return };
    let each = after.saturating_sub(before) / u64::from(count);
    println!("{count} connections: {each} bytes each, both ends and their two subflows");
}

fn main() -> ExitCode {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    type Case = (&'static str, fn() -> RunSpec);
    let cases: [Case; 5] = [
        ("clean", || spec(clean(seconds() * SECOND), "minrtt", "lia")),
        ("loss 1 %", || spec(lossy(seconds() * SECOND), "minrtt", "lia")),
        ("overtaking jitter", || spec(overtaking(seconds() * SECOND), "minrtt", "lia")),
        ("1 Gbit/s x 300 ms", || spec(long_fat(seconds() * SECOND), "minrtt", "lia")),
        ("10000 connections", || spec(many(10_000), "minrtt", "lia")),
    ];
    for (name, case) in cases {
        if wanted.as_ref().is_none_or(|wanted| name.contains(wanted.as_str())) {
            measure(name, &case());
        }
    }
    if wanted.as_ref().is_none_or(|wanted| "memory".contains(wanted.as_str())) {
        memory(10_000);
    }
    ExitCode::SUCCESS
}
