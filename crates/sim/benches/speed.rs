//! How fast the simulator is: data segments simulated per second of wall time, on one core, both ends and all
//! links included. A counted segment is a full packet of new data with its own place in the queue, loss and
//! jitter draws, timestamps, DSS and RACK state, and one ACK per two.
//!
//! `cargo bench -p ropewalk-sim --bench speed [-- NAME]`

#[path = "../tests/common/idle.rs"]
mod idle;

use std::process::{Command, ExitCode};

use ropewalk_engine::{Span, Time, congestion, scheduler};
use ropewalk_link::{Jitter, JitterShape, Loss};
use ropewalk_sim::{EndSpec, RunSpec, Scenario, Workload, World, networks};

const SECOND: Span = Span::from_secs(1);

/// The question that every simulator is asked: two paths of 100 Mbit/s, 10 ms, 500 packets, bulk download.
fn clean(duration: Span) -> Scenario {
    let mut scenario = networks::over(vec![
        networks::path("left", 100_000_000, Span::from_millis(10), 500),
        networks::path("right", 100_000_000, Span::from_millis(10), 500),
    ]);
    scenario.workload = Workload::Bulk { duration };
    scenario.client = EndSpec { send_buffer: 16 << 20, receive_buffer: 16 << 20, ..EndSpec::default() };
    scenario.server = scenario.client.clone();
    scenario
}

fn lossy(duration: Span) -> Scenario {
    let mut scenario = clean(duration);
    for path in &mut scenario.paths {
        path.down.loss = Loss::Bernoulli(0.01);
    }
    scenario
}

fn reordering(duration: Span) -> Scenario {
    let mut scenario = clean(duration);
    for path in &mut scenario.paths {
        let jitter = Jitter { spread: Span::from_millis(3), shape: JitterShape::Normal, keeps_order: false };
        path.down.jitter = Some(jitter);
    }
    scenario
}

fn long_fat(duration: Span) -> Scenario {
    let mut scenario =
        networks::over(vec![networks::path("long", 1_000_000_000, Span::from_millis(150), 25_000)]);
    scenario.workload = Workload::Bulk { duration };
    scenario.client = EndSpec { send_buffer: 128 << 20, receive_buffer: 128 << 20, ..EndSpec::default() };
    scenario.server = scenario.client.clone();
    scenario
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Many at once, each long enough for its handshake not to be most of it: `ROPEWALK_BENCH_KIB` each. Their
/// slow starts overflow the queues, so that a seventh is sent again.
fn many(count: u32) -> Scenario {
    let mut scenario = clean(Span::ZERO);
    scenario.workload = Workload::Flows { count, bytes: number("ROPEWALK_BENCH_KIB", 256) << 10 };
    for path in &mut scenario.paths {
        path.down = ropewalk_link::LinkSpec::plain(10_000_000_000, Span::from_millis(10), 200_000);
        path.up = path.down.clone();
    }
    scenario
}

/// As much as possible on so many connections for four seconds (`ROPEWALK_BENCH_CROWD_MS`), each with a tenth
/// of what the one of the clean case has: of the rate, of the queue, of the buffers.
fn crowd(count: u32) -> Scenario {
    let mut scenario = clean(Span::ZERO);
    scenario.workload = Workload::Flows { count, bytes: 1 << 40 };
    scenario.limit = Span::from_millis(number("ROPEWALK_BENCH_CROWD_MS", 4000));
    for end in [&mut scenario.client, &mut scenario.server] {
        (end.send_buffer, end.receive_buffer) = (end.send_buffer / 10, end.receive_buffer / 10);
    }
    for path in &mut scenario.paths {
        path.down =
            ropewalk_link::LinkSpec::plain(10_000_000 * u64::from(count), Span::from_millis(10), 50 * count);
        path.up = path.down.clone();
    }
    scenario
}

fn spec(scenario: Scenario, schedulers: &str, control: &str) -> RunSpec {
    let scheduler = scheduler::builtin().parse(schedulers).expect("a scheduler");
    let congestion = congestion::builtin().parse(control).expect("a congestion control");
    RunSpec::new(scenario, scheduler, congestion)
}

/// How long the timed runs are, in virtual seconds: `ROPEWALK_BENCH_SECONDS`, for counting instructions in a
/// short one.
fn seconds() -> u64 {
    number("ROPEWALK_BENCH_SECONDS", 60)
}

/// Many small runs one after the other, as comparisons and sweeps make them: 2 KiB over two paths.
fn small_runs(count: u32) {
    let mut scenario = clean(Span::ZERO);
    scenario.workload = Workload::Flow { bytes: 2048 };
    let spec = spec(scenario, "minrtt", "lia");
    #[allow(clippy::disallowed_methods, reason = "a benchmark is about wall time")]
    let start = std::time::Instant::now();
    let events: u64 = (0..count).map(|_| ropewalk_sim::run(&spec).events).sum();
    let wall = start.elapsed().as_secs_f64();
    let (count, events) = (f64::from(count), events as f64);
    println!(
        "small runs: {:>6.0} runs/s {:>6.1} us each {:>6.1} events each",
        count / wall,
        wall * 1e6 / count,
        events / count
    );
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
    if std::env::var_os("ROPEWALK_BENCH_STEP_BY_STEP").is_some() {
        world.step_by_step();
    }
    world.run_until(Time::MAX);
    let wall = start.elapsed().as_secs_f64();
    let result = world.into_result();
    println!(
        "{name:24} {:>9.0} segments/s {:>6.0} ns each {:>10} segments {:>10} events {:>8.1} Mbit/s {:>7} \
         retransmitted {:>4} timeouts  {:?}",
        result.totals.data_segments as f64 / wall,
        wall * 1e9 / result.totals.data_segments.max(1) as f64,
        result.totals.data_segments,
        result.events,
        result.delivered_bytes as f64 * 8e3 / result.duration.as_nanos().max(1) as f64,
        result.totals.retransmissions,
        result.totals.timeouts,
        result.outcome,
    );
}

fn memory(count: u32) {
    let (before, ends) = (resident(), idle::connections(count));
    let each = resident().zip(before).map(|(now, before)| now.saturating_sub(before) / u64::from(count));
    drop(ends);
    match each {
        Some(each) => {
            println!("memory {count} idle connections of two subflows: {each} bytes each, both ends together")
        }
        None => println!("memory: this system doesn't tell"),
    }
}

fn main() -> ExitCode {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    type Case = (&'static str, fn() -> RunSpec);
    let cases: [Case; 6] = [
        ("clean", || spec(clean(seconds() * SECOND), "minrtt", "lia")),
        ("loss 1 %", || spec(lossy(seconds() * SECOND), "minrtt", "lia")),
        ("reordering jitter", || spec(reordering(seconds() * SECOND), "minrtt", "lia")),
        ("1 Gbit/s x 300 ms", || spec(long_fat(seconds() * SECOND), "minrtt", "lia")),
        ("10000 connections", || spec(crowd(10_000), "minrtt", "lia")),
        ("10000 x 256 KiB", || spec(many(10_000), "minrtt", "lia")),
    ];
    for (name, case) in cases {
        if wanted.as_ref().is_none_or(|wanted| name.contains(wanted.as_str())) {
            measure(name, &case());
        }
    }
    if wanted.as_ref().is_none_or(|wanted| "small runs".contains(wanted.as_str())) {
        small_runs(number("ROPEWALK_BENCH_RUNS", 20_000) as u32);
    }
    match wanted {
        Some(wanted) if "memory".contains(wanted.as_str()) => memory(10_000),
        Some(_) => {}
        // In a process of its own: what the cases have freed would be used again, and not be counted.
        None => {
            let child = std::env::current_exe().and_then(|own| Command::new(own).arg("memory").status());
            if !child.is_ok_and(|status| status.success()) {
                println!("memory: its process failed");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
