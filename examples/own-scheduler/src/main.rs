//! A scheduler of one's own, without a line changed in Ropewalk: `largest-window` sends on the available subflow
//! with the largest congestion window. The program is the whole `ropewalk` command with one scheduler more:
//!
//! ```text
//! cargo run --release -- compare --schedulers largest-window,minrtt
//! ```

use std::process::ExitCode;

use ropewalk_engine::registry::Entry;
use ropewalk_engine::scheduler::{Decision, Scheduler, View, Rationale};
use ropewalk_lab::Registries;

#[derive(Debug)]
struct LargestWindow;

impl Scheduler for LargestWindow {
    fn name(&self) -> &'static str {
        "largest-window"
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        let widest = view.sendable().then(|| view.available().max_by_key(|flow| flow.cwnd)).flatten();
        match widest {
            Some(flow) => {
                rationale.say(|| {
                    format!("{{subflow {}}} has the largest window, {} segments", flow.id.0, flow.cwnd)
                });
                Decision::Send { subflow: flow.id, bytes: flow.mss }
            }
            None => Decision::Wait { until: None },
        }
    }
}

fn main() -> ExitCode {
    let mut registries = Registries::builtin();
    registries.schedulers.add(Entry {
        name: "largest-window",
        summary: "the available subflow with the largest congestion window",
        source: "this example",
        parameters: &[],
        presets: &[],
        exceptions: &[],
        build: |_| Box::new(LargestWindow),
    });
    ropewalk::run(registries, std::env::args_os())
}
