//! Runs that are watched: what a scheduler's panic interrupted is named, with its moment, and long runs
//! report how far they are.

use std::io::Write;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_engine::{Span, Time};
use ropewalk_sim::{Outcome, RunResult, RunSpec, World};

use crate::compare;

/// Runs to the end, as [`ropewalk_sim::run`] does.
pub fn run(spec: &RunSpec) -> RunResult {
    run_with(spec, |_| ControlFlow::Continue(()))
}

/// The same, unless it is stopped: then what it returns isn't the run, and must be dropped.
pub fn run_until(spec: &RunSpec, stop: &AtomicBool) -> RunResult {
    run_with(spec, |_| unless(stop))
}

/// Whether a run goes on.
pub fn unless(stop: &AtomicBool) -> ControlFlow<()> {
    if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// The same; `progress` is called from time to time with the number of bytes delivered, and says whether to
/// go on. A run that doesn't ends where it is.
///
/// # Panics
/// As the run does: what panics is a scheduler or a congestion control of one's own.
pub fn run_with(spec: &RunSpec, mut progress: impl FnMut(u64) -> ControlFlow<()>) -> RunResult {
    let mut world = match World::new(spec) {
        Ok(world) => world,
        Err(error) => return RunResult::new(Outcome::Failed(error.to_string())),
    };
    // In steps: between them it is known how far it is.
    let mut until = Time::ZERO + STEP;
    let mut step = || {
        if world.run_until(until) {
            return ControlFlow::Break(Outcome::Complete);
        }
        until = until.saturating_add(STEP);
        progress(world.delivered_bytes()).map_break(|()| Outcome::Failed("interrupted".into()))
    };
    loop {
        match catch_unwind(AssertUnwindSafe(&mut step)) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(Outcome::Complete)) => break,
            // The rest isn't run: what there is isn't the run.
            Ok(ControlFlow::Break(interrupted)) => return RunResult::new(interrupted),
            Err(panic) => {
                let _ = writeln!(std::io::stderr(), "{}", panicked(spec, world.now()));
                resume_unwind(panic);
            }
        }
    }
    world.finish()
}

/// Which run panicked, and when.
fn panicked(spec: &RunSpec, now: Time) -> String {
    format!(
        "`{}` panicked with seed {}, {}, {:.1} ms into the run",
        spec.scheduler.text,
        spec.seed,
        compare::describe(&spec.scenario.workload),
        now.saturating_sub(spec.begin()).as_millis_f64()
    )
}

/// Simulated time between reports.
const STEP: Span = Span::from_secs(10);

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;

    use ropewalk_engine::registry::Entry;
    use ropewalk_engine::scheduler::{Decision, Rationale, Scheduler, View};
    use ropewalk_sim::{Mode, Recording, Workload, networks};

    use super::*;
    use ropewalk_algorithms::Registries;

    #[derive(Debug)]
    struct Panics;

    impl Scheduler for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }

        fn select(&mut self, view: &View<'_>, _: &mut Rationale) -> Decision {
            // Not before the first ACK: the moment isn't the beginning.
            let Some(flow) = view.available().next() else { return Decision::Wait { until: None } };
            assert!(flow.cwnd() <= 10, "a scheduler of one's own");
            Decision::Send { subflow: flow.id, bytes: flow.mss }
        }
    }

    fn spec(scheduler: &str, bytes: u64) -> RunSpec {
        let mut registries = Registries::builtin();
        let entry: Entry<dyn Scheduler> = Entry {
            name: "panics",
            summary: "panics after the first ACK",
            source: "this test",
            ..Entry::of(|_| Box::new(Panics))
        };
        registries.schedulers.register(entry).unwrap();
        let scenario = networks::two_equal(10_000_000, Span::from_millis(40));
        RunSpec {
            scenario: Arc::new(ropewalk_sim::Scenario { workload: Workload::Flow { bytes }, ..scenario }),
            scheduler: registries.schedulers.parse(scheduler).unwrap(),
            congestion: registries.congestion.parse("cubic").unwrap(),
            mode: Mode::Multipath,
            seed: 7,
            start_phase: Span::ZERO,
            recording: Recording::default(),
        }
    }

    #[test]
    #[ignore = "panics as it should: the next test runs it as a program"]
    fn a_scheduler_that_panics() {
        run(&spec("panics", 1 << 20));
    }

    #[test]
    fn a_panic_names_the_run_its_seed_and_the_moment() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "watch::tests::a_scheduler_that_panics", "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().find(|line| line.starts_with("`panics` panicked")).unwrap_or_default();
        assert!(line.starts_with("`panics` panicked with seed 7, one flow of 1 MiB, "), "{said}");
        let ms: f64 =
            line.split(", ").last().unwrap().strip_suffix(" ms into the run").unwrap().parse().unwrap();
        assert!((60.0..1000.0).contains(&ms), "{line}");
        assert!(said.contains("a scheduler of one's own") && !output.status.success(), "{said}");
    }

    #[test]
    fn a_long_run_says_how_far_it_is() {
        let mut heard = Vec::new();
        let result = run_with(&spec("minrtt", 64 << 20), |bytes| {
            heard.push(bytes);
            ControlFlow::Continue(())
        });
        assert!(heard.len() >= 2 && heard.is_sorted(), "{heard:?}");
        assert!(heard[0] > 0 && heard.last() < Some(&result.delivered_bytes), "{heard:?}");
    }

    #[test]
    fn a_long_run_can_be_stopped() {
        let stop = AtomicBool::new(true);
        let result = run_until(&spec("minrtt", 1 << 40), &stop);
        assert_eq!(result.outcome, Outcome::Failed("interrupted".into()));
    }
}
