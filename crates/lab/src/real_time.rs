//! How runs with real packets were made: who was at the ends, and how well time was kept.

use serde::{Deserialize, Serialize};
use serde_json::json;

/// p99 of the lateness beyond which a run is void, nanoseconds.
pub const LATENESS_LIMIT: u64 = 300_000;

/// The stacks at both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The data's sender is the Linux kernel, else the engine.
    pub sender_kernel: bool,
    /// The data's receiver is the Linux kernel, else the engine.
    pub receiver_kernel: bool,
}

/// Upper bounds of the lateness histogram's bins, nanoseconds.
pub const LATE_BY: [u64; 8] = [1_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000];

/// How well the emulator kept time over a number of runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Runs.
    pub runs: u32,
    /// Void runs that were repeated.
    pub repeated: u32,
    /// Runs still void after the last repeat. They count nevertheless.
    pub void: u32,
    /// The worst p99 of lateness among the counted runs, nanoseconds.
    pub lateness: u64,
    /// Packets of those runs by lateness: up to each bound of [`LATE_BY`], and the rest.
    pub late: [u64; LATE_BY.len() + 1],
    /// Connections that fell back to plain TCP where Multipath TCP was asked for.
    pub fallbacks: u32,
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.repeated += other.repeated;
        self.void += other.void;
        self.lateness = self.lateness.max(other.lateness);
        self.late.iter_mut().zip(other.late).for_each(|(own, other)| *own += other);
        self.fallbacks += other.fallbacks;
    }

    /// One line.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "{} runs in real time; packets left their links at most {:.0} us late (p99 of the worst run); \
             {} void runs repeated",
            self.runs,
            self.lateness as f64 / 1e3,
            self.repeated
        );
        if self.void > 0 {
            text += &format!("; counted although void (the machine was too busy): {}", self.void);
        }
        if self.fallbacks > 0 {
            text += &format!("; {} connections fell back to plain TCP", self.fallbacks);
        }
        text
    }

    /// As JSON, units in the names.
    pub fn json(&self) -> serde_json::Value {
        let classes = LATE_BY.iter().map(|bound| json!(*bound as f64 / 1e3)).chain([serde_json::Value::Null]);
        let late =
            classes.zip(self.late).map(|(bound, packets)| json!({ "up_to_us": bound, "packets": packets }));
        json!({
            "runs": self.runs,
            "void_runs_repeated": self.repeated,
            "void_runs_kept": self.void,
            "fallbacks": self.fallbacks,
            "lateness_p99_worst_us": self.lateness as f64 / 1e3,
            "lateness": late.collect::<Vec<_>>(),
        })
    }
}

/// How a comparison's runs were made with real packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RealTime {
    /// Who was at the ends.
    pub ends: Ends,
    /// How well the emulator kept time.
    pub tally: Tally,
}

/// The row of the kernel's own Multipath TCP beside the engine's schedulers.
pub const KERNEL: &str = "kernel";
