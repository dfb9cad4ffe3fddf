//! One run's trace for the rope view: each data segment from sent to acknowledged with the scheduler's
//! reason, the waits between, and the sender's numbers over time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ropewalk_engine::scheduler::{self, Decision};
use ropewalk_engine::{Span, Time};
use ropewalk_sim::{
    DecisionTrace, Outcome, Recording, RunResult, Scenario, SegmentTrace, Transmission, Workload,
};
use serde_json::{Value, json};

use super::columns::{deltas, plain, runs};
use super::reasons::Reasons;
use crate::compare::{Comparison, Ranking, Request};
use crate::stats;

/// Segments of one rope at most: one with more is thinned.
pub const MOST_SEGMENTS: u64 = 100_000;

/// Segments that a thinned rope keeps, about.
const KEPT: usize = 50_000;

/// Segments of a traced run at most, about: of a larger flow the beginning is traced.
const MOST_TRACED: u64 = 1_000_000;

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
pub struct TracedRun {
    /// Index of the workload.
    pub ranking: usize,
    /// The candidate's label.
    pub scheduler: String,
    /// The run, from 0.
    pub run: u32,
    /// Its seed.
    pub seed: u64,
    /// Only the beginning was traced: the whole is too large.
    pub shortened: bool,
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

/// Runs again, traced, what the report shows: for each workload the run that is the winner's median, for the
/// winner, `linux`, plain TCP on the best path and as many others as the budget has room for. `take` gets
/// each with the names of its paths.
pub fn trace(
    request: &Request,
    comparison: &Comparison,
    budget: Budget,
    run: impl Fn(&ropewalk_sim::RunSpec) -> RunResult,
    mut take: impl FnMut(&TracedRun, &[String], &RunResult),
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
            if place >= ALWAYS && used + expected > share {
                continue;
            }
            let Some(who) = request.candidates.iter().position(|candidate| candidate.label == label) else {
                continue;
            };
            let Some(workload) = request.workload_of(ranking) else { continue };
            let mut spec = request.run_spec(workload, number, who);
            let seconds = row.each.get(number as usize).and_then(|run| run.seconds);
            let mut duration = lasts(&spec.scenario, seconds.unwrap_or(row.mean));
            let shortened = shorter(&spec.scenario.workload, row.goodput);
            if let Some((workload, share)) = &shortened {
                Arc::make_mut(&mut spec.scenario).workload = workload.clone();
                duration = duration.mul_f64(*share);
            }
            spec.recording = Recording {
                samples_every: Some((duration / SAMPLES).max(Span::from_micros(100))),
                segments: true,
                decisions: true,
            };
            let result = run(&spec);
            used += result.segments.len() as u64;
            let seed = spec.seed;
            let names: Vec<String> = spec.scenario.paths.iter().map(|path| path.name.clone()).collect();
            let shortened = shortened.is_some();
            let place = TracedRun { ranking: index, scheduler: label.into(), run: number, seed, shortened };
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

/// The beginning of a workload that is too large to trace, and its share of the whole.
fn shorter(workload: &Workload, goodput: f64) -> Option<(Workload, f64)> {
    let most = MOST_TRACED * SEGMENT;
    let share = |bytes: f64| Some(most as f64 / bytes).filter(|share| *share < 1.0);
    Some(match *workload {
        Workload::Flow { bytes } => (Workload::Flow { bytes: bytes.min(most) }, share(bytes as f64)?),
        Workload::Flows { count, bytes } => {
            let share = share(bytes as f64 * f64::from(count))?;
            (Workload::Flows { count, bytes: (bytes as f64 * share) as u64 }, share)
        }
        Workload::Cbr { frame, rate, key, duration, deadline } => {
            let share = share(rate as f64 / 8e9 * duration.as_nanos() as f64)?;
            (Workload::Cbr { frame, rate, key, duration: duration.mul_f64(share), deadline }, share)
        }
        Workload::Bulk { duration } => {
            let share = share(goodput / 8e9 * duration.as_nanos() as f64)?;
            (Workload::Bulk { duration: duration.mul_f64(share) }, share)
        }
        Workload::Transfers(_) | Workload::Web { .. } | Workload::RequestResponse { .. } => return None,
    })
}

/// About how long a run lasts that has this measure.
fn lasts(scenario: &Scenario, seconds: f64) -> Span {
    let measured = Span::from_secs_f64(seconds);
    match scenario.workload {
        Workload::Cbr { duration, .. } | Workload::Bulk { duration } => duration,
        Workload::RequestResponse { count, think, .. } => {
            measured.saturating_add(think).saturating_mul(u64::from(count))
        }
        _ => measured,
    }
}

/// Labels, those that a reader looks for first: the fastest, schedulers of one's own, and what they are
/// measured against.
fn order(ranking: &Ranking) -> Vec<&str> {
    let mut order: Vec<&str> = Vec::new();
    let first = ranking.rows.first().map(|row| row.label.as_str());
    let multipath = ranking.rows.iter().find(|row| !row.single_path).map(|row| row.label.as_str());
    let all = ranking.rows.iter().map(|row| row.label.as_str());
    let built_in = scheduler::builtin();
    let own = ranking.rows.iter().filter(|row| !row.single_path && built_in.parse(&row.label).is_err());
    for label in first
        .into_iter()
        .chain(own.map(|row| row.label.as_str()))
        .chain(multipath)
        .chain(
            ranking.rows.iter().filter(|row| row.label == scheduler::BASELINE).map(|row| row.label.as_str()),
        )
        .chain(ranking.best_tcp.as_deref())
        .chain(all)
    {
        if !order.contains(&label) {
            order.push(label);
        }
    }
    order
}

fn micros(span: Span) -> i64 {
    (span + Span::from_nanos(500)).as_micros() as i64
}

/// A traced run as the page reads it. Times are microseconds from the run's start.
pub fn to_json(place: &TracedRun, paths: &[String], result: &RunResult) -> Value {
    let mut reasons = Reasons::default();
    let thinned = Thinned::of(result, paths.len());
    let kept =
        thinned.as_ref().map_or_else(|| vec![true; result.segments.len()], |thinned| thinned.kept(result));
    let of_kept = |(index, _): &(usize, _)| kept[*index];
    let why: Vec<Option<usize>> = reason_of_each(&result.segments, &result.decisions)
        .into_iter()
        .enumerate()
        .filter(of_kept)
        .map(|(_, why)| why.map(|why| reasons.add(why)))
        .collect();
    let segments = result.segments.iter().enumerate().filter(|(index, _)| kept[*index]);
    let segments: Vec<SegmentTrace> = segments.map(|(_, segment)| *segment).collect();
    let waits = waits(&result.decisions, Time::ZERO + result.duration, &mut reasons);
    let waits = idle(&waits, &result.segments, least_wait(result));
    let since_start = |at: Time| micros(at.since_origin());
    let span = |segment: &SegmentTrace, at: Option<Time>| {
        at.map_or(-1, |at| since_start(at).saturating_sub(since_start(segment.sent)).max(0))
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
        "shortened": place.shortened,
        "thinned": thinned.as_ref().map(Thinned::to_json),
        "outcome": outcome,
        "duration_us": micros(result.duration),
        "bytes": result.delivered_bytes,
        "paths": paths,
        "segments": {
            "count": segments.len(),
            "sent": deltas(segments.iter().map(|segment| since_start(segment.sent))),
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
            "from": deltas(waits.iter().map(|wait| since_start(wait.from))),
            "to": plain(waits.iter().map(|wait| since_start(wait.to) - since_start(wait.from))),
            "reason": deltas(waits.iter().map(|wait| wait.reason as i64)),
        },
        "reasons": reasons.to_json(),
        "samples": samples(result, paths.len(), thinned.is_some()),
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

/// A run with more segments than a page draws: of each path and kind every so many are kept, of what is rare
/// all.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Thinned {
    /// By kind: so many segments are meant by one that is kept.
    weights: [usize; 4],
    /// Of the whole run, by kind.
    kinds: [usize; 4],
    /// By path.
    paths: Vec<usize>,
    lost: usize,
}

impl Thinned {
    fn of(result: &RunResult, paths: usize) -> Option<Self> {
        let segments = &result.segments;
        if segments.len() as u64 <= MOST_SEGMENTS {
            return None;
        }
        let mut thinned = Thinned { weights: [1; 4], kinds: [0; 4], paths: vec![0; paths], lost: 0 };
        for segment in segments {
            thinned.kinds[kind(segment.transmission) as usize] += 1;
            if let Some(path) = thinned.paths.get_mut(usize::from(segment.path)) {
                *path += 1;
            }
            thinned.lost += usize::from(segment.arrived.is_none() && segment.acked.is_some());
        }
        let shares = [KEPT * 7 / 10, KEPT / 10, KEPT / 10, KEPT / 10];
        for ((weight, count), share) in thinned.weights.iter_mut().zip(thinned.kinds).zip(shares) {
            *weight = count.div_ceil(share).max(1);
        }
        Some(thinned)
    }

    /// By segment: whether it is drawn.
    fn kept(&self, result: &RunResult) -> Vec<bool> {
        let mut seen = vec![[0usize; 4]; self.paths.len()];
        let keep = |segment: &SegmentTrace| {
            let kind = kind(segment.transmission) as usize;
            let Some(seen) = seen.get_mut(usize::from(segment.path)) else { return false };
            seen[kind] += 1;
            seen[kind] % self.weights[kind] == 1 % self.weights[kind]
        };
        result.segments.iter().map(keep).collect()
    }

    fn to_json(&self) -> Value {
        json!({
            "weights": self.weights,
            "kinds": self.kinds,
            "paths": self.paths,
            "lost": self.lost,
        })
    }
}

/// By segment: the reason of the last decision before it that gave its bytes to its path.
fn reason_of_each<'a>(segments: &[SegmentTrace], decisions: &'a [DecisionTrace]) -> Vec<Option<&'a str>> {
    /// Start -> (end, reason).
    type Ranges<'a> = BTreeMap<u64, (u64, &'a str)>;
    // By connection and path.
    let mut given: BTreeMap<(u32, u16), Ranges<'_>> = BTreeMap::new();
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
                    let entry = (end, decision.reason.as_str());
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
    from: Time,
    to: Time,
    reason: usize,
}

/// Waits, each until the next decision of its connection; those that follow one another with the same reason
/// are one.
fn waits(decisions: &[DecisionTrace], end: Time, reasons: &mut Reasons) -> Vec<Wait> {
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

/// The shortest wait that is shown: a quarter of the least srtt, at least 1 ms. Shorter ones are gaps of the
/// ACK clock.
fn least_wait(result: &RunResult) -> Span {
    let srtt = result.samples.iter().flat_map(|sample| &sample.subflows).map(|subflow| subflow.srtt);
    (srtt.filter(|srtt| !srtt.is_zero()).min().unwrap_or_default() / 4).max(Span::from_millis(1))
}

/// The parts of waits in which nothing is sent on any path, each at least `least` long.
fn idle(waits: &[Wait], segments: &[SegmentTrace], least: Span) -> Vec<Wait> {
    let mut idle = Vec::new();
    for wait in waits {
        let mut from = wait.from;
        let first = segments.partition_point(|segment| segment.sent <= wait.from);
        let sent = segments[first..].iter().map(|segment| segment.sent).take_while(|sent| *sent < wait.to);
        for to in sent.chain([wait.to]) {
            if to - from >= least {
                idle.push(Wait { from, to, ..*wait });
            }
            from = to;
        }
    }
    idle.sort_by_key(|wait| wait.from);
    idle
}

/// cwnd, ssthresh, srtt and packets in flight by connection and path, and the send window left; of a thinned
/// run also what the receiver has, which then doesn't follow from the segments.
fn samples(result: &RunResult, paths: usize, receiver: bool) -> Value {
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
        let of_receiver = |pick: fn(&ropewalk_sim::Sample) -> u64| {
            receiver.then(|| deltas(samples.iter().map(|sample| pick(sample) as i64)))
        };
        json!({
            "connection": connection,
            "delivered": of_receiver(|sample| sample.delivered),
            "held": of_receiver(|sample| sample.ofo),
            "t": deltas(samples.iter().map(|sample| micros(sample.at.since_origin()))),
            "window_left": runs(samples.iter().map(|sample| sample.window_left as i64)),
            "paths": by_path,
        })
    };
    Value::Array(connections.into_iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It arrives 5 ns after it was sent, and is acknowledged after 10.
    fn segment(sent: u64, transmission: Transmission, path: u16) -> SegmentTrace {
        let after = |nanos| Time::from_nanos(sent + nanos);
        let (arrived, acked) = (Some(after(5)), Some(after(10)));
        SegmentTrace {
            connection: 0,
            path,
            offset: sent,
            len: 1,
            sent: after(0),
            arrived,
            acked,
            transmission,
        }
    }

    #[test]
    fn a_wait_is_told_only_where_nothing_is_sent() {
        let sent: Vec<SegmentTrace> =
            [0, 100, 130, 400].map(|sent| segment(sent, Transmission::New, 0)).to_vec();
        let wait = Wait { connection: 0, from: Time::from_nanos(50), to: Time::from_nanos(450), reason: 7 };
        let told = |least| -> Vec<(u64, u64)> {
            let idle = idle(&[wait], &sent, Span::from_nanos(least));
            idle.iter().map(|wait| (wait.from.as_nanos(), wait.to.as_nanos())).collect()
        };
        assert_eq!(told(50), [(50, 100), (130, 400), (400, 450)]);
        assert_eq!(told(51), [(130, 400)], "the gaps of an ACK clock are no waits");
    }

    #[test]
    fn a_thinned_run_keeps_what_is_rare_and_every_path() {
        let mut result = RunResult::new(Outcome::Complete);
        let lots = 3 * MOST_SEGMENTS;
        result.segments = (0..lots)
            .map(|at| match at {
                _ if at % 10_000 == 5 => segment(at, Transmission::Retransmitted, 1),
                _ => segment(at, Transmission::New, u16::from(at % 50 == 0)),
            })
            .collect();
        let thinned = Thinned::of(&result, 2).expect("too many to draw");
        let kept = thinned.kept(&result);
        let count = |of: &dyn Fn(&SegmentTrace) -> bool| {
            result.segments.iter().zip(&kept).filter(|(segment, kept)| **kept && of(segment)).count()
        };
        assert_eq!(count(&|segment| segment.transmission == Transmission::Retransmitted), 30, "all of them");
        assert!(count(&|_| true) <= KEPT);
        let on_second = count(&|segment| segment.path == 1 && segment.transmission == Transmission::New);
        let meant = on_second * thinned.weights[0];
        assert!(meant.abs_diff(lots as usize / 50) <= thinned.weights[0], "{meant}");
        assert_eq!(thinned.paths.iter().sum::<usize>(), lots as usize);
        result.segments.truncate(MOST_SEGMENTS as usize);
        assert_eq!(Thinned::of(&result, 2), None);
    }

    #[test]
    fn a_flow_that_is_too_large_is_traced_from_its_beginning() {
        let most = MOST_TRACED * SEGMENT;
        assert_eq!(shorter(&Workload::Flow { bytes: most }, 0.0), None);
        let (workload, share) = shorter(&Workload::Flow { bytes: 4 * most }, 0.0).expect("too large");
        assert_eq!((workload, share), (Workload::Flow { bytes: most }, 0.25));
        let minute = Workload::Bulk { duration: Span::from_secs(60) };
        assert_eq!(shorter(&minute, 100e6), None);
        let (workload, _) = shorter(&minute, 10e9).expect("53 million segments");
        assert!(matches!(workload, Workload::Bulk { duration } if duration < Span::from_millis(1200)));
    }
}
