//! Comparisons with real packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_command_line::{Failure, ProgressLine};
use ropewalk_host::network::Side;
use ropewalk_lab::compare::{Comparison, Request, compare};
use ropewalk_lab::real_time::{Ends, RealTime, Tally};
use ropewalk_runner::emulated;
use ropewalk_sim::Direction;

use crate::evidence;

/// What has to be done while the process has one thread.
pub(super) fn prepare() -> Result<(), Failure> {
    ropewalk_host::netns::become_root_of_own_user_namespace().map_err(Failure::other)
}

/// The same table in real time: one run at a time, or they would disturb each other.
pub(super) fn in_real_time(
    request: &Request,
    ends: Ends,
    bar: &ProgressLine,
    stop: &Arc<AtomicBool>,
    evidence: &evidence::Options,
) -> Result<Comparison, Failure> {
    let request = emulated::for_emulation(request, ends).map_err(Failure::other)?;
    let failed = std::sync::Mutex::new(None);
    let tally = std::sync::Mutex::new(Tally::default());
    let comparison = compare(
        &request,
        |spec| match emulated::run(spec, ends, &tally) {
            Ok(result) => result,
            Err(error) => {
                // Nothing can be measured: the first error is reported instead of a table.
                stop.store(true, Ordering::Relaxed);
                if let Ok(mut failed) = failed.lock() {
                    failed.get_or_insert(error);
                }
                emulated::nothing(spec)
            }
        },
        |worth| bar.inc(worth),
        stop,
    );
    if let Ok(Some(error)) = failed.into_inner() {
        bar.clear();
        return Err(Failure::other(error));
    }
    let tally = tally.into_inner().unwrap_or_default();
    // The engine's own path manager, without a watcher.
    let real_time = Some(RealTime { ends, tally });
    let comparison = Comparison { real_time, rests_on: None, ..comparison };
    if !comparison.interrupted {
        watch(&request, ends, evidence)?;
    }
    Ok(comparison)
}

/// One more run of the first candidate, with the first workload and seed, from the data's sender.
fn watch(request: &Request, ends: Ends, options: &evidence::Options) -> Result<(), Failure> {
    let spec = request.run_spec(0, 0, 0);
    let side = match spec.scenario.direction {
        Direction::Upload => Side::Client,
        Direction::Download => Side::Server,
    };
    let paths: Vec<_> = spec.scenario.paths.iter().map(ropewalk_lab::evidence::path).collect();
    let title = format!("{}, {}, seed {}", spec.scenario.name, request.candidates[0].label, spec.seed);
    let Some(evidence) = options.begin(side, &paths, &title)? else { return Ok(()) };
    emulated::run_recorded(&spec, ends, evidence.tap()).map_err(Failure::other)?;
    evidence.finish()?;
    eprintln!("one more run was watched: {title}");
    Ok(())
}
