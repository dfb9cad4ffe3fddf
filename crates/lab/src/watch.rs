//! Runs that are watched: what a scheduler's panic interrupted is named, with its moment, and long runs report how far they are.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ropewalk_sim::{Nanos, Outcome, RunResult, RunSpec, World};

use crate::compare;

/// Runs to the end, as [`ropewalk_sim::run`] does.
pub fn run(spec: &RunSpec) -> RunResult {
    run_with(spec, |_| {})
}

/// The same; `progress` is called from time to time with the number of bytes delivered.
///
/// # Panics
/// As the run does: what panics is a scheduler or a congestion control of one's own.
pub fn run_with(spec: &RunSpec, mut progress: impl FnMut(u64)) -> RunResult {
    let mut world = match World::new(spec) {
        Ok(world) => world,
        Err(error) => return RunResult::new(Outcome::Failed(error.to_string())),
    };
    // In steps: between them it is known how far it is.
    let mut until: Nanos = STEP;
    let mut step = || {
        let over = world.run_until(until);
        until = until.saturating_add(STEP);
        progress(world.delivered_bytes());
        over
    };
    loop {
        match catch_unwind(AssertUnwindSafe(&mut step)) {
            Ok(true) => break,
            Ok(false) => {}
            Err(panic) => {
                let _ = writeln!(
                    std::io::stderr(),
                    "`{}` panicked with seed {}, {}, {:.1} ms into the run",
                    spec.scheduler.text,
                    spec.seed,
                    compare::describe(&spec.scenario.workload),
                    world.now().saturating_sub(spec.scenario.warmup.saturating_add(spec.start_phase)) as f64
                        / 1e6
                );
                resume_unwind(panic);
            }
        }
    }
    world.finish()
}

/// Simulated time between reports.
const STEP: Nanos = 10_000_000_000;
