//! Every built-in scenario as a whole: what its runs give, to the last byte and packet, in `tests/snapshots`,
//! one file per scenario.
//!
//! What a change of the engine or of a scenario does to results shows here first. If it is meant:
//! `INSTA_UPDATE=always cargo test -p ropewalk-lab --test all snapshots`, and read the difference before it
//! is committed. The digest is of every packet's headers, sent and arrived, with their moments; the bytes are
//! the same in debug and release builds.

#[path = "../../sim/tests/common/watch.rs"]
mod watch;

use std::fmt::Write as _;
use std::sync::Arc;

use ropewalk_algorithms::Registries;
use ropewalk_engine::{Span, congestion, scheduler};
use ropewalk_lab::scenario;
use ropewalk_sim::{Mode, Recording, RunSpec, Scenario};

use watch::{Seen, watch};

/// Schedulers and congestion controls; the first path alone is added.
const PAIRS: [(&str, &str); 4] =
    [("minrtt", "lia"), ("linux", "cubic"), ("blest", "olia"), ("redundant", "balia")];

/// One run as text.
fn text(seen: &Seen) -> String {
    let result = &seen.result;
    let mut text = String::new();
    let mut line = |what: std::fmt::Arguments<'_>| {
        text.write_fmt(format_args!("  {what}\n")).expect("a string takes all");
    };
    line(format_args!("{:?} after {} ns, {} bytes", result.outcome, result.duration, result.delivered_bytes));
    for flow in &result.flows {
        let fct = flow.fct.map_or("never".to_string(), |fct| format!("{fct} ns"));
        line(format_args!("flow of {}: {fct}", flow.bytes));
    }
    for path in &result.paths {
        line(format_args!(
            "{}: {} bytes in {} segments, {} lost, queue mean {:.0} max {} ns",
            path.name, path.bytes, path.segments, path.lost, path.queue_delay_mean, path.queue_delay_max
        ));
    }
    line(format_args!(
        "retransmissions {}, timeouts {}, out of order mean {:.1} max {}, window blocked {} ns",
        result.totals.retransmissions,
        result.totals.timeouts,
        result.ofo.mean,
        result.ofo.max,
        result.totals.window_blocked
    ));
    line(format_args!(
        "bytes reinjected {}, opportunistic {}, duplicated {}, received twice {}; penalisations {}",
        result.totals.reinjected_bytes,
        result.totals.opportunistic_bytes,
        result.totals.duplicated_bytes,
        result.totals.received_twice_bytes,
        result.totals.penalisations
    ));
    for (name, counters) in ["client", "server"].into_iter().zip(&seen.counters) {
        let counters: Vec<_> = counters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        line(format_args!("{name}: {}", counters.join(", ")));
    }
    line(format_args!("{} packets sent and arrived, digest {}", seen.segments, seen.digest));
    text
}

fn runs(scenario: &Arc<Scenario>) -> String {
    let spec = |scheduler: &str, congestion: &str, mode| RunSpec {
        scenario: Arc::clone(scenario),
        scheduler: scheduler::builtin().parse(scheduler).expect("a scheduler"),
        congestion: congestion::builtin().parse(congestion).expect("a congestion control"),
        mode,
        seed: 1,
        start_phase: Span::ZERO,
        recording: Recording::default(),
    };
    let mut all = String::new();
    for (scheduler, congestion) in PAIRS {
        all += &format!("{scheduler}, {congestion}\n");
        all += &text(&watch(&spec(scheduler, congestion, Mode::Multipath), false));
    }
    all += "the first path alone, cubic\n";
    all + &text(&watch(&spec("minrtt", "cubic", Mode::SinglePath(0)), false))
}

/// The scenarios of which `mine` says so, each against its file.
#[track_caller]
fn check(mine: impl Fn(usize) -> bool) {
    let registries = Registries::builtin();
    let built_in = scenario::builtins().iter().enumerate().filter(|(i, _)| mine(*i));
    for (_, built_in) in built_in {
        let scenario = Arc::new(built_in.load(&registries).expect("valid").scenario);
        insta::assert_snapshot!(built_in.name, runs(&scenario));
    }
}

// Two tests, for two cores.
#[test]
fn built_in_scenarios_are_as_they_were() {
    check(|i| i % 2 == 0);
}

#[test]
fn so_are_the_others() {
    check(|i| i % 2 == 1);
}
