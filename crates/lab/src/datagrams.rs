//! Schedulers for datagrams side by side: which loses fewest packets, or delivers fewest too late.

use std::sync::atomic::AtomicBool;

use ropewalk_datagrams::SCHEDULERS;
use ropewalk_sim::datagrams::{Datagrams, DatagramsResult, FlowGot, Kind, run};
use ropewalk_sim::{Direction, Scenario};
use serde_json::{Value, json};

use crate::parallel::{Workers, run_jobs};
use crate::stats::{mean, mean_interval, quantile};
use crate::table::Table;

/// A comparison of schedulers for datagrams.
#[derive(Clone, Debug)]
pub struct Request {
    /// The paths.
    pub scenario: Scenario,
    /// What goes over them.
    pub datagrams: Datagrams,
    /// Names of schedulers.
    pub schedulers: Vec<String>,
    /// Runs of each.
    pub runs: u32,
    /// The first run's seed.
    pub seed: u64,
    /// The threads that runs are made on.
    pub jobs: Workers,
}

impl Request {
    /// The schedulers that are compared if none is named.
    pub fn all_schedulers() -> Vec<String> {
        SCHEDULERS.iter().map(|(name, ..)| (*name).to_string()).collect()
    }

    /// The schedulers over all paths, and each path alone.
    fn candidates(&self) -> Vec<(String, &str, Option<usize>)> {
        let own = self.schedulers.iter().map(|name| (name.clone(), name.as_str(), None));
        let paths = self.scenario.paths.iter().enumerate();
        let alone = paths.map(|(index, path)| (format!("only {}", path.name), SCHEDULERS[0].0, Some(index)));
        own.chain(alone.filter(|_| self.scenario.paths.len() > 1)).collect()
    }

    /// How many runs it takes.
    pub fn total(&self) -> usize {
        self.candidates().len() * self.runs as usize
    }
}

/// What one scheduler brought.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Its name, or the path that is used alone.
    pub label: String,
    /// The share of packets lost or late, and its 95 % interval. `None`: only downloads were sent.
    pub missed: Option<f64>,
    /// The interval.
    pub interval: Option<(f64, f64)>,
    /// Whether it can't be told from the best: the 95 % interval of the difference has 0.
    pub is_equal: bool,
    /// Bits per second of all downloads.
    pub goodput: Option<f64>,
    /// Bytes that the links carried for each byte that was sent.
    pub expense: f64,
    /// Each way of each flow.
    pub flows: Vec<FlowRow>,
}

/// What one direction of a flow delivered, over all runs.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowRow {
    /// What it is.
    pub kind: Kind,
    /// Which way.
    pub direction: Direction,
    /// Shares of packets.
    pub lost: f64,
    /// Of those that came.
    pub late: f64,
    /// Means over the runs, seconds; `None` if nothing came.
    pub median: Option<f64>,
    /// Likewise.
    pub p99: Option<f64>,
    /// The longest of all runs, seconds.
    pub gap: f64,
    /// Bits per second that came.
    pub goodput: f64,
}

/// The answer, the best first.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// One for each scheduler, and for each path alone.
    pub rows: Vec<Row>,
    /// Runs of each that all finished.
    pub runs: u32,
}

/// Runs and ranks: by the share of packets lost or late, then by what downloads got. `done` is told of each
/// run.
pub fn compare(request: &Request, done: impl Fn() + Sync, stop: &AtomicBool) -> Answer {
    let candidates = request.candidates();
    let total = candidates.len() * request.runs as usize;
    let results = run_jobs(request.jobs, total, stop, |job| {
        let (_, scheduler, only) = &candidates[job % candidates.len()];
        let seed = request.seed.wrapping_add((job / candidates.len()) as u64);
        let result = run(&request.scenario, &request.datagrams, scheduler, *only, seed).ok();
        done();
        result
    });
    // Whole rounds alone are compared.
    let rounds: Vec<Vec<DatagramsResult>> =
        results.chunks(candidates.len()).map_while(|round| round.iter().cloned().collect()).collect();
    let seconds = request.datagrams.duration.as_secs_f64();
    let mut rows: Vec<(Row, Vec<f64>)> = (0..if rounds.is_empty() { 0 } else { candidates.len() })
        .map(|place| {
            let runs: Vec<&DatagramsResult> = rounds.iter().map(|round| &round[place]).collect();
            row(&candidates[place].0, &runs, seconds, request.seed)
        })
        .collect();
    let order = |row: &Row| (row.missed.unwrap_or(0.0), -row.goodput.unwrap_or(0.0));
    rows.sort_by(|(a, _), (b, _)| order(a).partial_cmp(&order(b)).unwrap_or(std::cmp::Ordering::Equal));
    let best = rows.first().map(|(_, values)| values.clone()).unwrap_or_default();
    for (row, values) in &mut rows {
        let differences: Vec<f64> = values.iter().zip(&best).map(|(own, best)| own - best).collect();
        row.is_equal = match mean_interval(&differences, request.seed) {
            Some((low, high)) => low <= 0.0 && high >= 0.0,
            None => differences.iter().all(|difference| *difference == 0.0),
        };
    }
    Answer { rows: rows.into_iter().map(|(row, _)| row).collect(), runs: rounds.len() as u32 }
}

/// A scheduler's row of the ranking, and what each run is ranked by: the share of packets that are lost or
/// late, or the rate of downloads.
fn row(label: &str, runs: &[&DatagramsResult], seconds: f64, seed: u64) -> (Row, Vec<f64>) {
    let downloads = |run: &DatagramsResult| -> Option<f64> {
        let of = run.flows.iter().filter(|flow| flow.kind == Kind::Download);
        of.map(|flow| flow.bytes as f64 * 8.0 / seconds).reduce(|a, b| a + b)
    };
    let missed: Vec<f64> = runs.iter().filter_map(|run| run.missed()).collect();
    let goodput: Vec<f64> = runs.iter().filter_map(|run| downloads(run)).collect();
    let (sent, carried) = runs.iter().fold((0, 0), |(a, b), run| (a + run.bytes.0, b + run.bytes.1));
    let ways = runs.first().map_or(0, |run| run.flows.len());
    let flows = (0..ways).map(|way| {
        let all: Vec<&FlowGot> = runs.iter().map(|run| &run.flows[way]).collect();
        flow_row(&all, seconds)
    });
    let is_ranked = !missed.is_empty();
    let row = Row {
        label: label.to_string(),
        missed: is_ranked.then(|| mean(&missed)),
        interval: mean_interval(&missed, seed),
        is_equal: false,
        goodput: (!goodput.is_empty()).then(|| mean(&goodput)),
        expense: carried as f64 / sent.max(1) as f64,
        flows: flows.collect(),
    };
    (row, if is_ranked { missed } else { goodput })
}

fn flow_row(all: &[&FlowGot], seconds: f64) -> FlowRow {
    let sum = |of: fn(&FlowGot) -> u64| all.iter().map(|flow| of(flow)).sum::<u64>() as f64;
    let delay = |share: f64| {
        let of = |flow: &&FlowGot| {
            let delays: Vec<f64> = flow.delays.iter().map(|delay| delay.as_secs_f64()).collect();
            (!delays.is_empty()).then(|| quantile(&delays, share))
        };
        let each: Vec<f64> = all.iter().filter_map(of).collect();
        (!each.is_empty()).then(|| mean(&each))
    };
    FlowRow {
        kind: all[0].kind,
        direction: all[0].direction,
        lost: sum(|flow| flow.lost) / sum(|flow| flow.sent).max(1.0),
        late: sum(|flow| flow.late) / sum(|flow| flow.sent).max(1.0),
        median: delay(0.5),
        p99: delay(0.99),
        gap: all.iter().map(|flow| flow.gap).max().unwrap_or_default().as_secs_f64(),
        goodput: sum(|flow| flow.bytes) * 8.0 / seconds / all.len() as f64,
    }
}

fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Upload => "up",
        Direction::Download => "down",
    }
}

impl Answer {
    /// As tables for people.
    pub fn text(&self, request: &Request) -> String {
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        let milliseconds = |time: f64| format!("{:.1} ms", time * 1e3);
        let mbit = |rate: f64| format!("{:.1} Mbit/s", rate / 1e6);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let deadline = milliseconds(request.datagrams.deadline.as_secs_f64());
        let mut table =
            Table::new(2, &["", "scheduler", "lost or late", "+-", "downloads", "carried for a byte sent"]);
        let equal = self.rows.iter().filter(|row| row.is_equal).count();
        for (index, row) in self.rows.iter().enumerate() {
            table.row(vec![
                if row.is_equal && equal > 1 { "1=".into() } else { (index + 1).to_string() },
                row.label.clone(),
                or_none(row.missed.map(percent)),
                or_none(row.interval.map(|(low, high)| percent((high - low) / 2.0))),
                or_none(row.goodput.map(mbit)),
                format!("{:.2} bytes", row.expense),
            ]);
        }
        let mut flows =
            Table::new(2, &["scheduler", "flow", "lost", "late", "median", "99 %", "longest gap", "brought"]);
        for row in &self.rows {
            for flow in &row.flows {
                let is_download = flow.kind == Kind::Download;
                let share = |share| if is_download { "-".into() } else { percent(share) };
                flows.row(vec![
                    row.label.clone(),
                    format!("{} {}", flow.kind.name(), way(flow.direction)),
                    share(flow.lost),
                    share(flow.late),
                    or_none(flow.median.map(milliseconds)),
                    or_none(flow.p99.map(milliseconds)),
                    milliseconds(flow.gap),
                    mbit(flow.goodput),
                ]);
            }
        }
        let runs = if self.runs == 1 { "1 run".into() } else { format!("{} runs", self.runs) };
        format!(
            "{}: {runs} of each; late is what takes more than {deadline}\n\n{}\n{}",
            request.scenario.name,
            table.render(),
            flows.render(),
        )
    }

    /// As JSON.
    pub fn document(&self, request: &Request) -> Value {
        let flow = |flow: &FlowRow| {
            json!({
                "kind": flow.kind.name(),
                "direction": way(flow.direction),
                "lost": flow.lost,
                "late": flow.late,
                "median_s": flow.median,
                "p99_s": flow.p99,
                "longest_gap_s": flow.gap,
                "goodput_bits_per_s": flow.goodput,
            })
        };
        let row = |row: &Row| {
            json!({
                "scheduler": row.label,
                "lost_or_late": row.missed,
                "interval": row.interval,
                "equals_best": row.is_equal,
                "downloads_bits_per_s": row.goodput,
                "bytes_carried_per_byte_sent": row.expense,
                "flows": row.flows.iter().map(flow).collect::<Vec<_>>(),
            })
        };
        json!({
            "kind": "datagrams",
            "scenario": request.scenario.name,
            "runs": self.runs,
            "seed": request.seed,
            "deadline_s": request.datagrams.deadline.as_secs_f64(),
            "duration_s": request.datagrams.duration.as_secs_f64(),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}
