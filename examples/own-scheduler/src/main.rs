//! A scheduler of one's own, without a line changed in Ropewalk: `largest-window` sends on the available
//! subflow with the largest congestion window, but not on those that have less than `least` segments of room.
//! The program is the whole `ropewalk` command with one scheduler more:
//!
//! ```text
//! cargo run --release -- compare --schedulers 'largest-window,largest-window(least=4),minrtt'
//! ```

use std::process::ExitCode;

use ropewalk_algorithms::Registries;
use ropewalk_engine::registry::{Entry, Parameter};
use ropewalk_engine::scheduler::{Decision, Rationale, Scheduler, View};

const PARAMETERS: &[Parameter] =
    &[Parameter::whole("least", 1.0, (1.0, 64.0), "segments of room that a subflow must have")];

#[derive(Debug)]
struct LargestWindow {
    /// Segments of room that a subflow must have.
    least: u32,
}

impl Scheduler for LargestWindow {
    fn name(&self) -> &'static str {
        "largest-window"
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        // With nothing in flight nobody would wake a scheduler that waits: the engine would overrule it, and
        // count that.
        let idle = view.subflows.iter().all(|flow| flow.packets_out() == 0);
        let roomy = view.available().filter(|flow| idle || flow.window_space() >= self.least);
        let widest = view.sendable().then(|| roomy.max_by_key(|flow| flow.cwnd())).flatten();
        match widest {
            Some(flow) => {
                rationale.say(|| {
                    format!("{{subflow {}}} has the largest window, {} segments", flow.id.0, flow.cwnd())
                });
                Decision::Send { subflow: flow.id, bytes: flow.mss }
            }
            None => Decision::Wait { until: None },
        }
    }
}

fn main() -> ExitCode {
    let mut registries = Registries::builtin();
    let added = registries.schedulers.register(Entry {
        name: "largest-window",
        summary: "the available subflow with the largest congestion window",
        source: "this example",
        parameters: PARAMETERS,
        ..Entry::of(|values| Box::new(LargestWindow { least: values.number("least") as u32 }))
    });
    if let Err(taken) = added {
        eprintln!("error: {}", taken.message);
        return ExitCode::from(2);
    }
    ropewalk::run(registries, std::env::args_os())
}
