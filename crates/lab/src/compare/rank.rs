//! From runs to a ranking.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use ropewalk_engine::scheduler::BASELINE;
use ropewalk_sim::{Mode, Outcome, RunResult, RunSpec, Workload};

use super::bounds::Levels;
use super::decide::{self, Standing};
use super::versus::{self, FEW, Versus};
use super::{Request, Worth};
use crate::bound::{self, Bound};
use crate::objective::{self, Objective};
use crate::scenario::is_random;
use crate::stats;

/// One path's part in the runs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PathPart {
    /// Its name.
    pub name: String,
    /// Payload bytes sent on it, repeats included.
    pub bytes: f64,
    /// Of these, what the scheduler duplicated or the connection reinjected here.
    pub repeated: f64,
    /// Mean queueing delay of what passed, seconds.
    pub queue_delay_mean: f64,
    /// The longest, seconds.
    pub queue_delay_max: f64,
}

/// Payload bytes sent a second time, by what repeated them.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Repeats {
    /// The scheduler, by its design.
    pub duplicated: f64,
    /// Opportunistic retransmission.
    pub opportunistic: f64,
    /// The connection: after a timeout, a failure, a close.
    pub reinjected: f64,
}

/// What is kept of one run. It can be carried to another machine as JSON, without a change in any number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// Its measure ([`crate::objective`]), seconds; none if it didn't finish.
    pub seconds: Option<f64>,
    /// How it ended.
    #[serde(with = "CarriedOutcome")]
    pub outcome: Outcome,
    /// Bytes repeated (scheduler, opportunistic retransmission, reinjection).
    pub repeated: u64,
    /// The same, by what repeated them.
    pub repeats: Repeats,
    /// What its bytes are worth over the time that it took ([`super::Worth`]).
    pub cost: f64,
    /// Frames that missed their deadline, a share of all ([`objective::late_frames`]).
    pub late_frames: Option<f64>,
    /// Payload delivered over the time that it took, bits per second; of a run that didn't finish, until its
    /// end.
    pub goodput: f64,
    /// Segments retransmitted.
    pub retransmissions: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// How often the engine overruled the scheduler.
    pub overruled: u64,
    /// When it did so first, seconds into the run.
    pub first_overruled: Option<f64>,
    /// Why it did so first.
    pub overruled_cause: Option<Cow<'static, str>>,
    /// The least that its paths allow; none where the workload has none.
    pub bound: Option<Bound>,
    /// Connection-level out-of-order queue, bytes: its mean over time.
    pub ofo_mean: f64,
    /// Its maximum.
    pub ofo_max: u64,
    /// Seconds during which new data waited for the connection's send window.
    pub window_blocked: f64,
    /// Per path.
    pub paths: Vec<PathPart>,
}

/// [`Outcome`], as it is carried.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Outcome")]
enum CarriedOutcome {
    Complete,
    TimeLimit,
    Failed(String),
}

impl Run {
    pub(crate) fn new(spec: &RunSpec, result: RunResult, worth: &Worth) -> Self {
        let path = |path: &ropewalk_sim::PathResult| PathPart {
            name: path.name.clone(),
            bytes: path.bytes as f64,
            repeated: path.repeated as f64,
            queue_delay_mean: path.queue_delay_mean / 1e9,
            queue_delay_max: path.queue_delay_max.as_secs_f64(),
        };
        Run {
            seed: spec.seed,
            seconds: objective::of(&spec.scenario.workload, &result),
            repeated: result.totals.repeated_bytes(),
            repeats: Repeats {
                duplicated: result.totals.duplicated_bytes as f64,
                opportunistic: result.totals.opportunistic_bytes as f64,
                reinjected: result.totals.reinjected_bytes as f64,
            },
            cost: worth.of(&result) * 1e9 / (result.duration.as_nanos() as f64).max(1.0),
            late_frames: objective::late_frames(&spec.scenario.workload, &result),
            goodput: result.delivered_bytes as f64 * 8e9 / (result.duration.as_nanos() as f64).max(1.0),
            retransmissions: result.totals.retransmissions,
            timeouts: result.totals.timeouts,
            overruled: result.totals.overruled.count,
            first_overruled: result.totals.overruled.first.map(|at| at.as_secs_f64()),
            overruled_cause: result.totals.overruled.cause.map(Cow::Borrowed),
            bound: bound::of(spec),
            ofo_mean: result.ofo.mean,
            ofo_max: result.ofo.max,
            window_blocked: result.totals.window_blocked.as_secs_f64(),
            paths: result.paths.iter().map(path).collect(),
            outcome: result.outcome,
        }
    }

    /// What it is judged by: the logarithm of its measure, with what its bytes are worth. A run that didn't
    /// finish counts as `limit`.
    pub(crate) fn log(&self, limit: f64) -> f64 {
        libm::log(self.seconds.unwrap_or(limit)) + libm::log1p(self.cost)
    }
}

/// One candidate's row.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Who.
    pub label: String,
    /// Plain TCP on one path.
    pub single_path: bool,
    /// Runs that finished.
    pub finished: u32,
    /// Of so many.
    pub runs: u32,
    /// Each run, by seed.
    pub each: Vec<Run>,
    /// Arithmetic mean of the measure, seconds. A run that didn't finish counts as the limit here, and here
    /// only: it gives the row its place. Of a candidate with fewer runs than the fastest: the fastest's mean
    /// times the ratio of both over the seeds that they share, since seeds differ.
    pub mean: f64,
    /// Median; none if it falls on runs that didn't finish.
    pub p50: Option<f64>,
    /// 95th percentile, as the median.
    pub p95: Option<f64>,
    /// 95 % bootstrap interval of the mean; none with fewer runs than [`FEW`] (without randomness: fewer that
    /// differ), or runs that didn't finish.
    pub interval: Option<(f64, f64)>,
    /// Against `linux`; none for itself.
    pub versus_linux: Option<Versus>,
    /// Against plain TCP on the best path; none for itself.
    pub versus_tcp: Option<Versus>,
    /// How it stands to the fastest with this workload.
    pub standing: Standing,
    /// Mean bytes repeated (scheduler, opportunistic retransmission, reinjection).
    pub duplicated: f64,
    /// The same, by what repeated them.
    pub repeats: Repeats,
    /// Frames that missed their deadline, a share of all: mean over the runs; none where frames have no
    /// deadline.
    pub late_frames: Option<f64>,
    /// Mean goodput, bits per second.
    pub goodput: f64,
    /// Mean segments retransmitted.
    pub retransmissions: f64,
    /// Mean timeouts.
    pub timeouts: f64,
    /// The mean of what its paths allow at best; none where the workload has none.
    pub bound: Option<Bound>,
    /// Connection-level out-of-order queue, bytes: mean over time and runs.
    pub ofo_mean: f64,
    /// Its maximum, mean over the runs.
    pub ofo_max: f64,
    /// Seconds during which new data waited for the connection's send window, mean over the runs.
    pub window_blocked: f64,
    /// Per path, means over the runs.
    pub paths: Vec<PathPart>,
}

impl Row {
    fn new(label: &str, single_path: bool, each: Vec<Run>, request: &Request) -> Self {
        let limit = request.scenario.limit.as_secs_f64();
        let average = |of: fn(&Run) -> f64| stats::mean(&each.iter().map(of).collect::<Vec<_>>());
        let seconds = imputed(&each, limit);
        let finished = each.iter().filter(|run| run.seconds.is_some()).count();
        let sorted = stats::sorted(&imputed(&each, f64::INFINITY));
        let differ = versus::distinct(seconds.iter().map(|value| value.to_bits()));
        let enough = if is_random(&request.scenario) { each.len() } else { differ };
        let whole = finished == each.len() && enough >= FEW;
        let bounds = each.iter().map(|run| run.bound).collect::<Option<Vec<_>>>();
        Row {
            label: label.into(),
            single_path,
            finished: finished as u32,
            runs: each.len() as u32,
            mean: stats::mean(&seconds),
            p50: quantile(&sorted, 0.5),
            p95: quantile(&sorted, 0.95),
            interval: stats::mean_interval(&seconds, request.seed).filter(|_| whole),
            versus_linux: None,
            versus_tcp: None,
            standing: Standing::Open,
            duplicated: average(|run| run.repeated as f64),
            repeats: Repeats {
                duplicated: average(|run| run.repeats.duplicated),
                opportunistic: average(|run| run.repeats.opportunistic),
                reinjected: average(|run| run.repeats.reinjected),
            },
            late_frames: each
                .iter()
                .map(|run| run.late_frames)
                .collect::<Option<Vec<_>>>()
                .map(|shares| stats::mean(&shares)),
            goodput: average(|run| run.goodput),
            retransmissions: average(|run| run.retransmissions as f64),
            timeouts: average(|run| run.timeouts as f64),
            bound: bounds.map(|bounds| {
                let mean = |of: fn(&Bound) -> f64| stats::mean(&bounds.iter().map(of).collect::<Vec<_>>());
                Bound { capacity: mean(|bound| bound.capacity), window: mean(|bound| bound.window) }
            }),
            ofo_mean: average(|run| run.ofo_mean),
            ofo_max: average(|run| run.ofo_max as f64),
            window_blocked: average(|run| run.window_blocked),
            paths: paths(&each),
            each,
        }
    }

    /// The measure of the runs that finished, by seed.
    pub fn times(&self) -> Vec<f64> {
        self.each.iter().filter_map(|run| run.seconds).collect()
    }

    /// How often the engine overruled the scheduler in all runs, and where first; nothing if it never did.
    pub fn why_overruled(&self) -> Option<String> {
        let count: u64 = self.each.iter().map(|run| run.overruled).sum();
        let first = self.each.iter().find(|run| run.overruled > 0)?;
        let at =
            first.first_overruled.map_or(String::new(), |at| format!(" {:.1} ms into the run", at * 1e3));
        Some(format!(
            "`{}`: overruled {count} times in {} runs, first{at} with seed {}: {}",
            self.label,
            self.runs,
            first.seed,
            first.overruled_cause.as_deref().unwrap_or("it waited with nothing in flight")
        ))
    }

    /// Runs that didn't finish.
    pub fn unfinished(&self) -> u32 {
        self.runs - self.finished
    }

    /// What became of runs that didn't finish, for people; nothing if all did.
    pub fn why_unfinished(&self, limit: f64) -> Option<String> {
        let mut reasons: BTreeMap<String, u32> = BTreeMap::new();
        for run in self.each.iter().filter(|run| run.seconds.is_none()) {
            let reason = match &run.outcome {
                Outcome::TimeLimit => format!("didn't finish within {}", super::lasting(limit)),
                Outcome::Failed(reason) => format!("failed: {reason}"),
                Outcome::Complete => "delivered nothing".into(),
            };
            *reasons.entry(reason).or_default() += 1;
        }
        let each = reasons.iter().map(|(reason, count)| format!("{count} of {} {reason}", self.runs));
        (!reasons.is_empty()).then(|| each.collect::<Vec<_>>().join("; "))
    }

    /// The mean over the least that the links allow, and over what windows starting small allow; none where
    /// runs didn't finish.
    pub fn over_bound(&self) -> Option<(f64, f64)> {
        self.bound
            .filter(|bound| bound.capacity > 0.0 && self.unfinished() == 0)
            .map(|bound| (self.mean / bound.capacity, self.mean / bound.window))
    }
}

/// Each run's measure, with this for runs that didn't finish.
fn imputed(each: &[Run], instead: f64) -> Vec<f64> {
    each.iter().map(|run| run.seconds.unwrap_or(instead)).collect()
}

/// A percentile of values of which some may be infinite; none where those have a part in it.
fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let place = (sorted.len() - 1) as f64 * p;
    let (low, high) = (libm::floor(place), libm::ceil(place));
    let (least, most) = (sorted[low as usize], sorted[high as usize]);
    most.is_finite().then_some(least + (most - least) * (place - low))
}

/// Means over the runs; a run that couldn't begin has no paths.
fn paths(each: &[Run]) -> Vec<PathPart> {
    let began: Vec<&Run> = each.iter().filter(|run| !run.paths.is_empty()).collect();
    let Some(first) = began.first() else { return Vec::new() };
    let part = |index: usize| {
        let mean = |of: fn(&PathPart) -> f64| {
            let values = began.iter().filter_map(|run| run.paths.get(index)).map(of);
            stats::mean(&values.collect::<Vec<_>>())
        };
        PathPart {
            name: first.paths[index].name.clone(),
            bytes: mean(|part| part.bytes),
            repeated: mean(|part| part.repeated),
            queue_delay_mean: mean(|part| part.queue_delay_mean),
            queue_delay_max: mean(|part| part.queue_delay_max),
        }
    };
    (0..first.paths.len()).map(part).collect()
}

/// One workload's ranking.
#[derive(Clone, PartialEq, Debug)]
pub struct Ranking {
    /// The workload, for people.
    pub title: String,
    /// What its seconds are.
    pub objective: Objective,
    /// Its size in bytes, for flows.
    pub bytes: Option<u64>,
    /// By mean.
    pub rows: Vec<Row>,
    /// Label of plain TCP on the best path.
    pub best_tcp: Option<String>,
}

/// `runs` by candidate and number.
pub(super) fn rank(request: &Request, workload: &Workload, runs: &[Vec<Run>]) -> Ranking {
    let candidates = &request.candidates;
    let limit = request.scenario.limit.as_secs_f64();
    let (title, bytes) = describe_with_size(workload);
    let mut ranking =
        Ranking { title, objective: Objective::of(workload), bytes, rows: Vec::new(), best_tcp: None };
    if runs.iter().any(Vec::is_empty) {
        return ranking;
    }
    let row = |who: usize| {
        let single = matches!(candidates[who].mode, Mode::SinglePath(_));
        Row::new(&candidates[who].label, single, runs[who].clone(), request)
    };
    let mut rows: Vec<Row> = (0..candidates.len()).map(row).collect();
    let random = is_random(&request.scenario);
    let logs: Vec<Vec<f64>> =
        rows.iter().map(|row| row.each.iter().map(|run| run.log(limit)).collect()).collect();
    let missing: Vec<bool> = rows.iter().map(|row| row.unfinished() > 0).collect();
    let none = vec![false; rows.len()];
    let (strata, levels) = ([logs], Levels::of(request.design, rows.len()));
    let stands = decide::standings(&strata, &missing, &none, &none, levels, random);
    for (row, stand) in rows.iter_mut().zip(&stands) {
        row.standing = if row.finished > 0 { stand.standing } else { Standing::Slower };
    }
    if let Some(first) = decide::fastest(&strata, &missing, &none) {
        let of_first = imputed(&rows[first].each, limit);
        for row in &mut rows {
            let shared = row.each.len();
            if shared < of_first.len() {
                let scale = stats::mean(&of_first) / stats::mean(&of_first[..shared]);
                row.mean *= scale;
                row.interval = row.interval.map(|(low, high)| (low * scale, high * scale));
            }
        }
    }
    let is_linux =
        |who: &usize| candidates[*who].scheduler.text == BASELINE && candidates[*who].mode == Mode::Multipath;
    let linux = (0..rows.len()).find(is_linux).map(|who| rows[who].label.clone());
    rows.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    let place = |label: Option<&String>| rows.iter().position(|row| Some(&row.label) == label);
    let linux = place(linux.as_ref());
    let tcp = rows.iter().position(|row| row.single_path);
    let series: Vec<Vec<f64>> = rows.iter().map(|row| imputed(&row.each, limit)).collect();
    let unfinished: Vec<u32> = rows.iter().map(Row::unfinished).collect();
    let runs = versus::Runs { series: &series, unfinished: &unfinished, random, seed: request.seed };
    let family = |with: Option<usize>| match with {
        Some(with) => versus::family(runs, with),
        None => vec![None; series.len()],
    };
    let (with_linux, with_tcp) = (family(linux), family(tcp));
    for (who, row) in rows.iter_mut().enumerate() {
        row.versus_linux = with_linux[who];
        row.versus_tcp = with_tcp[who];
    }
    ranking.best_tcp = tcp.map(|who| rows[who].label.clone());
    ranking.rows = rows;
    ranking
}

/// A workload for people, and its size in bytes for flows.
pub(super) fn describe_with_size(workload: &Workload) -> (String, Option<u64>) {
    let size = ropewalk_settings::units::write_bytes;
    match workload {
        Workload::Flow { bytes } => (format!("one flow of {}", size(*bytes)), Some(*bytes)),
        Workload::Flows { count, bytes } => {
            (format!("{count} flows of {} at once", size(*bytes)), Some(*bytes))
        }
        Workload::Transfers(transfers) => (format!("{} flows at times of their own", transfers.len()), None),
        Workload::Web { objects, connections, persistent, .. } => {
            let total: u64 = objects.iter().sum();
            let over = match persistent {
                true => format!("over {connections} connections"),
                false => format!("each over a connection of its own, {connections} at once"),
            };
            (format!("a page of {} objects, {}, {over}", objects.len(), size(total)), Some(total))
        }
        Workload::Cbr { frame, key, .. } => {
            let keys = key.map_or_else(String::new, |key| {
                format!(", each {}th of {}", key.every, size(u64::from(key.frame)))
            });
            let frame = size(u64::from(*frame));
            (format!("frames of {frame}{keys} (the mean delay of a run's frames)"), None)
        }
        Workload::Bulk { duration } => (
            format!("bulk for {} (time per megabyte)", ropewalk_settings::units::write_duration(*duration)),
            None,
        ),
        Workload::RequestResponse { response, count, .. } => {
            (format!("{count} exchanges of {} (the mean time of a run's exchanges)", size(*response)), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn percentiles_that_fall_on_unfinished_runs_are_none() {
        let sorted = [1.0, 2.0, 3.0, f64::INFINITY, f64::INFINITY];
        assert_eq!(quantile(&sorted, 0.25), Some(2.0));
        assert_eq!(quantile(&sorted, 0.5), Some(3.0));
        assert_eq!(quantile(&sorted, 0.55), None);
        assert_eq!(quantile(&[1.0, 2.0], 0.95), Some(1.95));
        assert_eq!(quantile(&[f64::INFINITY], 0.5), None);
    }
}
