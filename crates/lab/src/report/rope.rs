//! One run's trace for the rope view: each data segment from sent to acknowledged with the scheduler's reason, the
//! waits between, and the sender's numbers over time.

use std::collections::{BTreeMap, BTreeSet};

use ropewalk_engine::scheduler::Decision;
use ropewalk_sim::{
    DecisionTrace, Outcome, Recording, RunResult, Scenario, SegmentTrace, Transmission, Workload,
};
use serde_json::{Value, json};

use super::columns::{deltas, plain, runs};
use super::reasons::Reasons;
use crate::compare::{Comparison, Ranking, Request};
use crate::stats;

/// Segments of one rope at most; a run with more has none.
pub const MOST_SEGMENTS: u64 = 100_000;

/// So many of each workload are traced whatever the budget: two, to lay side by side.
const ALWAYS: usize = 2;

/// Samples of cwnd, srtt and window over a run.
const SAMPLES: u64 = 600;

/// Connections of which samples are kept.
const MOST_SAMPLED: u32 = 8;

/// Bytes of a segment, for estimates.
const SEGMENT: u64 = 1400;

/// Where in a comparison a traced run belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Index of the workload.
    pub ranking: usize,
    /// The candidate's label.
    pub scheduler: String,
    /// The run, from 0.
    pub run: u32,
    /// Its seed.
    pub seed: u64,
}

/// Which runs to trace, and how many segments all of them may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Segments of all ropes together.
    pub segments: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { segments: 60_000 }
    }
}

/// Runs again, traced, what the report shows: for each workload the run that is the winner's median, for the winner,
/// `linux`, plain TCP on the best path and as many others as the budget has room for. `take` gets each with the names
/// of its paths.
pub fn trace(
    request: &Request,
    comparison: &Comparison,
    budget: Budget,
    run: impl Fn(&ropewalk_sim::RunSpec) -> RunResult,
    mut take: impl FnMut(&Place, &[String], &RunResult),
) {
    let mut left = budget.segments;
    let total = comparison.rankings.len() as u64;
    for (index, ranking) in comparison.rankings.iter().enumerate() {
        // Each workload an equal share of what is left; the first candidates of each are always there.
        let share = left / (total - index as u64).max(1);
        let mut used = 0;
        let number = median_run(ranking);
        for (place, label) in order(ranking).into_iter().enumerate() {
            let Some(row) = ranking.rows.iter().find(|row| row.label == label) else { continue };
            let expected = ranking.bytes.map_or(0, |bytes| bytes / SEGMENT);
            if expected > MOST_SEGMENTS || (place >= ALWAYS && used + expected > share) {
                continue;
            }
            let Some(who) = request.candidates.iter().position(|candidate| candidate.label == label) else {
                continue;
            };
            let Some(workload) = request.workload_of(ranking) else { continue };
            let mut spec = request.run_spec(workload, number, who);
            let seconds = row.each.get(number as usize).and_then(|run| run.seconds);
            let duration = lasts(&spec.scenario, seconds.unwrap_or(row.mean));
            spec.recording = Recording {
                samples_every: (duration / SAMPLES).max(100_000),
                segments: true,
                decisions: true,
            };
            let result = run(&spec);
            if result.segments.len() as u64 > MOST_SEGMENTS {
                continue;
            }
            used += result.segments.len() as u64;
            let seed = spec.seed;
            let names: Vec<String> = spec.scenario.paths.iter().map(|path| path.name.clone()).collect();
            let place = Place { ranking: index, scheduler: label.into(), run: number, seed };
            take(&place, &names, &result);
        }
        left = left.saturating_sub(used);
    }
}

/// The run whose time is the winner's median.
fn median_run(ranking: &Ranking) -> u32 {
    let Some(winner) = ranking.rows.first() else { return 0 };
    let times = stats::sorted(&winner.times());
    let Some(middle) = times.get(times.len().saturating_sub(1) / 2) else { return 0 };
    winner.each.iter().position(|run| run.seconds == Some(*middle)).unwrap_or(0) as u32
}

/// About how long a run lasts that has this measure.
fn lasts(scenario: &Scenario, seconds: f64) -> u64 {
    let measured = (seconds * 1e9) as u64;
    match scenario.workload {
        Workload::Cbr { duration, .. } | Workload::Bulk { duration } => duration,
        Workload::RequestResponse { count, think, .. } => {
            measured.saturating_add(think).saturating_mul(u64::from(count))
        }
        _ => measured,
    }
}

/// Labels, those that a reader looks for first.
fn order(ranking: &Ranking) -> Vec<&str> {
    let mut order: Vec<&str> = Vec::new();
    let first = ranking.rows.first().map(|row| row.label.as_str());
    let multipath = ranking.rows.iter().find(|row| !row.single_path).map(|row| row.label.as_str());
    let all = ranking.rows.iter().map(|row| row.label.as_str());
    for label in first
        .into_iter()
        .chain(multipath)
        .chain(ranking.rows.iter().filter(|row| row.label == "linux").map(|row| row.label.as_str()))
        .chain(ranking.best_tcp.as_deref())
        .chain(all)
    {
        if !order.contains(&label) {
            order.push(label);
        }
    }
    order
}

fn micros(nanos: u64) -> i64 {
    ((nanos + 500) / 1000) as i64
}

/// A traced run as the page reads it. Times are microseconds from the run's start.
pub fn to_json(place: &Place, paths: &[String], result: &RunResult) -> Value {
    let mut reasons = Reasons::default();
    let segments = &result.segments;
    let why = reason_of_each(segments, &result.decisions, &mut reasons);
    let waits = waits(&result.decisions, result.duration, &mut reasons);
    let span = |segment: &SegmentTrace, at: Option<u64>| {
        at.map_or(-1, |at| micros(at).saturating_sub(micros(segment.sent)).max(0))
    };
    // A segment mostly begins where the one before ended.
    let mut end = 0;
    let jumps = segments.iter().map(|segment| {
        let jump = segment.offset as i64 - end;
        end = segment.offset as i64 + i64::from(segment.len);
        jump
    });
    let outcome = match &result.outcome {
        Outcome::Complete => "complete".to_string(),
        Outcome::TimeLimit => "time limit".to_string(),
        Outcome::Failed(reason) => format!("failed: {reason}"),
    };
    json!({
        "ranking": place.ranking,
        "scheduler": place.scheduler,
        "run": place.run,
        "seed": place.seed,
        "outcome": outcome,
        "duration_us": micros(result.duration),
        "bytes": result.delivered_bytes,
        "paths": paths,
        "segments": {
            "count": segments.len(),
            "sent": deltas(segments.iter().map(|segment| micros(segment.sent))),
            "arrived": plain(segments.iter().map(|segment| span(segment, segment.arrived))),
            "acked": plain(segments.iter().map(|segment| span(segment, segment.acked))),
            "path": runs(segments.iter().map(|segment| i64::from(segment.path))),
            "kind": runs(segments.iter().map(|segment| kind(segment.transmission))),
            "jump": runs(jumps),
            "length": runs(segments.iter().map(|segment| i64::from(segment.len))),
            "connection": runs(segments.iter().map(|segment| i64::from(segment.connection))),
            "reason": deltas(why.into_iter().map(|why| why.map_or(-1, |why| why as i64))),
        },
        "waits": {
            "connection": runs(waits.iter().map(|wait| i64::from(wait.connection))),
            "from": deltas(waits.iter().map(|wait| micros(wait.from))),
            "to": plain(waits.iter().map(|wait| micros(wait.to) - micros(wait.from))),
            "reason": deltas(waits.iter().map(|wait| wait.reason as i64)),
        },
        "reasons": reasons.to_json(),
        "samples": samples(result, paths.len()),
    })
}

fn kind(transmission: Transmission) -> i64 {
    match transmission {
        Transmission::New => 0,
        Transmission::Retransmitted => 1,
        Transmission::Reinjected => 2,
        Transmission::Duplicated => 3,
    }
}

/// By segment: the reason of the last decision before it that gave its bytes to its path.
fn reason_of_each(
    segments: &[SegmentTrace],
    decisions: &[DecisionTrace],
    reasons: &mut Reasons,
) -> Vec<Option<usize>> {
    // (connection, path) -> start -> (end, reason).
    let mut given: BTreeMap<(u32, u16), BTreeMap<u64, (u64, usize)>> = BTreeMap::new();
    let mut next = decisions.iter().peekable();
    segments
        .iter()
        .map(|segment| {
            while let Some(decision) = next.next_if(|decision| decision.at <= segment.sent) {
                if let Some(path) = decision.path
                    && decision.bytes > 0
                    && !decision.reason.is_empty()
                {
                    let end = decision.offset + u64::from(decision.bytes);
                    let entry = (end, reasons.add(&decision.reason));
                    given.entry((decision.connection, path)).or_default().insert(decision.offset, entry);
                }
            }
            if segment.transmission == Transmission::Retransmitted {
                return None;
            }
            let ranges = given.get(&(segment.connection, segment.path))?;
            let (_, &(end, reason)) = ranges.range(..=segment.offset).next_back()?;
            (end > segment.offset).then_some(reason)
        })
        .collect()
}

/// A time in which a connection's scheduler sent nothing by choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wait {
    connection: u32,
    from: u64,
    to: u64,
    reason: usize,
}

/// Waits, each until the next decision of its connection; those that follow one another with the same reason are one.
fn waits(decisions: &[DecisionTrace], end: u64, reasons: &mut Reasons) -> Vec<Wait> {
    let mut waits: Vec<Wait> = Vec::new();
    let mut open: BTreeMap<u32, usize> = BTreeMap::new();
    for decision in decisions {
        if let Some(index) = open.remove(&decision.connection)
            && let Some(wait) = waits.get_mut(index)
        {
            wait.to = decision.at;
            let same = matches!(decision.decision, Decision::Wait { .. })
                && reasons.add(&decision.reason) == wait.reason;
            if same {
                open.insert(decision.connection, index);
                continue;
            }
        }
        if matches!(decision.decision, Decision::Wait { .. }) {
            let reason = reasons.add(&decision.reason);
            open.insert(decision.connection, waits.len());
            waits.push(Wait { connection: decision.connection, from: decision.at, to: end, reason });
        }
    }
    waits.retain(|wait| wait.to > wait.from);
    waits
}

/// cwnd, ssthresh, srtt and packets in flight by connection and path, and the send window left.
fn samples(result: &RunResult, paths: usize) -> Value {
    let connections: BTreeSet<u32> =
        result.samples.iter().map(|sample| sample.connection).filter(|c| *c < MOST_SAMPLED).collect();
    let of = |connection: u32| {
        let samples: Vec<_> =
            result.samples.iter().filter(|sample| sample.connection == connection).collect();
        let by_path: Vec<Value> = (0..paths as u16)
            .map(|path| {
                let column = |pick: fn(&ropewalk_sim::SubflowSample) -> i64| {
                    runs(samples.iter().map(|sample| {
                        sample.subflows.iter().find(|subflow| subflow.path == path).map_or(-1, pick)
                    }))
                };
                json!({
                    "cwnd": column(|subflow| i64::from(subflow.cwnd)),
                    "ssthresh": column(|subflow| i64::from(subflow.ssthresh.min(1 << 20))),
                    "srtt": column(|subflow| micros(subflow.srtt)),
                    "in_flight": column(|subflow| i64::from(subflow.in_flight)),
                })
            })
            .collect();
        json!({
            "connection": connection,
            "t": deltas(samples.iter().map(|sample| micros(sample.at))),
            "window_left": runs(samples.iter().map(|sample| sample.window_left as i64)),
            "paths": by_path,
        })
    };
    Value::Array(connections.into_iter().map(of).collect())
}
