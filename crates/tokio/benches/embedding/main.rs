//! `cargo bench -p ropewalk-tokio --bench embedding`: the engine through tokio beside the bare driver, beside
//! itself on one core, and beside the kernel's TCP. docs/embedding.md has the table of what is expected.
//!
//! What is compared runs in turns, so that a busy minute falls on all alike. Printed: medians over rounds
//! with their ranges, and CPU time of this process, which a busy machine changes least. Arguments: rows to
//! run (`one-flow`, `shards`, `queues`, `idle`, `churn`, `http`; without any: all), `--rounds N` (default 5),
//! `--megabytes N` (default 512), `--seconds N` of the churn (default 10; the soak takes 300). The exit code
//! is 1 if anything failed.

mod churn;
mod flows;
mod http;
mod idle;

use std::time::Duration;

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each way is measured.
    pub rounds: usize,
    /// What a flow carries.
    pub megabytes: u64,
    /// How long the churn takes.
    pub seconds: u64,
}

/// Why a row has no numbers.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A throughput, or anything else of which more is better, and what it cost.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Gbit/s, requests per second.
    pub rate: f64,
    /// CPU seconds per GB, microseconds per request.
    pub cost: f64,
}

/// User and system time of this process.
pub fn cpu() -> f64 {
    ropewalk_host::experiment::cpu().iter().map(Duration::as_secs_f64).sum()
}

/// A line of /proc/self/status in KiB.
pub fn memory(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// The middle one.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A way to do something, and its name.
type Way<'a> = (&'a str, &'a dyn Fn() -> Result<Sample, Failed>);

/// Runs each way once per round, in turns, and prints a line for each.
pub fn compare(options: &Options, units: [&str; 2], ways: &[Way<'_>]) -> Result<Vec<Vec<Sample>>, Failed> {
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); ways.len()];
    for _ in 0..options.rounds {
        for ((_, way), samples) in ways.iter().zip(&mut samples) {
            samples.push(way()?);
        }
    }
    for ((name, _), samples) in ways.iter().zip(&samples) {
        let (least, most) = samples.iter().fold((f64::MAX, 0.0_f64), |(least, most), sample| {
            (least.min(sample.rate), most.max(sample.rate))
        });
        println!(
            "{name:<44} {:>9.2} {} ({least:.2} .. {most:.2}), {:.3} {}",
            median(samples.iter().map(|sample| sample.rate)),
            units[0],
            median(samples.iter().map(|sample| sample.cost)),
            units[1]
        );
    }
    Ok(samples)
}

/// The median over rounds of one way's numbers divided by another's of the same round.
pub fn ratio(one: &[Sample], other: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    median(one.iter().zip(other).map(|(one, other)| of(one) / of(other)))
}

fn main() {
    let mut options = Options { rounds: 5, megabytes: 512, seconds: 10 };
    let mut rows: Vec<String> = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number follows");
        match argument.as_str() {
            "--rounds" => options.rounds = number() as usize,
            "--megabytes" => options.megabytes = number(),
            "--seconds" => options.seconds = number(),
            // What cargo says to every benchmark.
            "--bench" => {}
            row => rows.push(row.to_string()),
        }
    }
    type Row = fn(&Options) -> Result<(), Failed>;
    let all: [(&str, Row); 6] = [
        ("one-flow", flows::one_flow),
        ("shards", flows::shards),
        ("queues", flows::queues),
        ("idle", idle::run),
        ("churn", churn::run),
        ("http", http::run),
    ];
    if let Some(unknown) = rows.iter().find(|row| all.iter().all(|(name, _)| name != row)) {
        eprintln!("no row is called `{unknown}`");
        std::process::exit(2);
    }
    let mut sound = true;
    for (name, row) in all {
        if !rows.is_empty() && !rows.iter().any(|wanted| wanted == name) {
            continue;
        }
        println!("\n== {name}");
        if let Err(error) = row(&options) {
            println!("{name}: {error}");
            sound = false;
        }
    }
    if !sound {
        std::process::exit(1);
    }
}
