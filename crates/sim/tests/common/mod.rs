//! What the simulations' tests share.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod idle;
pub mod watch;

use std::fmt::Write as _;

pub use ropewalk_engine::{MILLISECOND, SECOND};
use ropewalk_engine::{Span, congestion, scheduler};
use ropewalk_sim::{Mode, RunResult, RunSpec, Scenario};

/// A multipath run of a scenario with seed 1.
pub fn spec(scenario: Scenario, schedulers: &str, control: &str) -> RunSpec {
    let scheduler = scheduler::builtin().parse(schedulers).expect("a scheduler");
    let congestion = congestion::builtin().parse(control).expect("a congestion control");
    RunSpec::new(scenario, scheduler, congestion)
}

/// The same over one path.
pub fn single(scenario: Scenario, path: usize, control: &str) -> RunSpec {
    RunSpec { mode: Mode::SinglePath(path), ..spec(scenario, "minrtt", control) }
}

/// Delivered bits per second over the run.
pub fn goodput(result: &RunResult) -> f64 {
    result.delivered_bytes as f64 * 8e9 / result.duration.as_nanos() as f64
}

/// The totals as text, for snapshots.
pub fn summary(result: &RunResult) -> String {
    let mut text = String::new();
    let mut line = |what: &str, value: String| {
        writeln!(text, "{what:22} {value}").expect("a string takes all");
    };
    line("outcome", format!("{:?}", result.outcome));
    line("duration us", result.duration.as_micros().to_string());
    line("delivered bytes", result.delivered_bytes.to_string());
    for flow in &result.flows {
        line("flow", format!("{} bytes, fct us {:?}", flow.bytes, flow.fct.map(|fct| fct.as_micros())));
    }
    if !result.message_delays.is_empty() {
        let delays = &result.message_delays;
        let mean = (delays.iter().copied().sum::<Span>() / delays.len() as u64).as_micros();
        let max = delays.iter().max().expect("some").as_micros();
        line("messages", format!("{}, mean us {mean}, max us {max}", delays.len()));
    }
    for path in &result.paths {
        line(
            &path.name,
            format!(
                "{} bytes, {} segments, {} lost, queue us max {} mean {:.0}",
                path.bytes,
                path.segments,
                path.lost,
                path.queue_delay_max.as_micros(),
                path.queue_delay_mean / 1000.0
            ),
        );
    }
    line("ofo", format!("mean {:.0}, max {}", result.ofo.mean, result.ofo.max));
    line("retransmissions", result.totals.retransmissions.to_string());
    line("timeouts", result.totals.timeouts.to_string());
    line("reinjected bytes", result.totals.reinjected_bytes.to_string());
    line("opportunistic bytes", result.totals.opportunistic_bytes.to_string());
    line("duplicated bytes", result.totals.duplicated_bytes.to_string());
    line("received twice bytes", result.totals.received_twice_bytes.to_string());
    line("penalisations", result.totals.penalisations.to_string());
    line("window blocked us", result.totals.window_blocked.as_micros().to_string());
    text
}
