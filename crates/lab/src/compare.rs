//! `compare`: every contender on the same paths with the same seeds, ranked by flow completion time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_link::{LinkSpec, Loss, Rate};
use ropewalk_sim::{Mode, Outcome, Recording, RunResult, RunSpec, Scenario, Workload};

use crate::bound::{self, Bound};
use crate::merit::Measure;
use crate::units::Nanos;
use crate::{merit, stats};

/// One that is compared.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Its name in the table: `minrtt`, `tcp wifi`.
    pub label: String,
    /// Its scheduler.
    pub scheduler: Spec<dyn Scheduler>,
    /// Multipath, or plain TCP on a path.
    pub mode: Mode,
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where.
    pub scenario: Scenario,
    /// Workloads to go through, each a table of its own.
    pub workloads: Vec<Workload>,
    /// Who.
    pub contenders: Vec<Contender>,
    /// Congestion control of all.
    pub congestion: Spec<dyn CongestionControl>,
    /// Seeded runs of each.
    pub runs: u32,
    /// The first run's seed; the next have the next numbers.
    pub seed: u64,
    /// Threads.
    pub jobs: usize,
}

impl Request {
    fn scenario_with(&self, workload: &Workload) -> Arc<Scenario> {
        Arc::new(Scenario { workload: workload.clone(), ..self.scenario.clone() })
    }

    /// One run of one contender in a scenario that has its workload.
    fn run_of(&self, scenario: Arc<Scenario>, number: u32, who: usize) -> RunSpec {
        let contender = &self.contenders[who];
        let start_phase = start_phase(&scenario, number, self.runs);
        RunSpec {
            scenario,
            scheduler: contender.scheduler.clone(),
            congestion: self.congestion.clone(),
            mode: contender.mode,
            seed: self.seed.wrapping_add(u64::from(number)),
            start_phase,
            recording: Recording::default(),
        }
    }

    /// The very run that a comparison did: the workload's place, the run's number from 0, the contender's place.
    ///
    /// # Panics
    /// If there is no such workload or contender.
    pub fn run_spec(&self, workload: usize, number: u32, who: usize) -> RunSpec {
        self.run_of(self.scenario_with(&self.workloads[workload]), number, who)
    }

    /// The place of the workload that a ranking is about.
    pub fn workload_of(&self, ranking: &Ranking) -> Option<usize> {
        let same = |workload: &Workload| describe(workload) == (ranking.title.clone(), ranking.bytes);
        self.workloads.iter().position(same)
    }
}

/// What is kept of one run.
#[derive(Clone, Debug)]
struct Kept {
    seconds: f64,
    finished: bool,
    duplicated: u64,
    retransmissions: u64,
    timeouts: u64,
    bound: Option<Bound>,
}

/// One contender's row.
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
    /// Each run's measure ([`crate::merit`]) by seed, seconds.
    pub seconds: Vec<f64>,
    /// Mean completion time, seconds (a run that didn't finish counts as the limit).
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 95 % bootstrap interval of the mean.
    pub interval: Option<(f64, f64)>,
    /// Against `linux`.
    pub versus_linux: Option<stats::Ratio>,
    /// Against plain TCP on the best path.
    pub versus_tcp: Option<stats::Ratio>,
    /// Not told apart from the best by the corrected comparison.
    pub ties_with_best: bool,
    /// Mean bytes repeated (scheduler, opportunistic retransmission, reinjection).
    pub duplicated: f64,
    /// Mean segments retransmitted.
    pub retransmissions: f64,
    /// Mean timeouts.
    pub timeouts: f64,
    /// The mean earliest end that its paths allow; none where the workload has none.
    pub bound: Option<Bound>,
}

impl Row {
    /// Mean completion time over the earliest one that the links allow, and over the one that windows starting
    /// small allow.
    pub fn over_bound(&self) -> Option<(f64, f64)> {
        self.bound
            .filter(|bound| bound.capacity > 0.0)
            .map(|bound| (self.mean / bound.capacity, self.mean / bound.window))
    }
}

/// One workload's ranking.
#[derive(Clone, PartialEq, Debug)]
pub struct Ranking {
    /// The workload, for people.
    pub title: String,
    /// What its seconds are.
    pub measure: Measure,
    /// Its size in bytes, for flows.
    pub bytes: Option<u64>,
    /// By mean.
    pub rows: Vec<Row>,
    /// Label of plain TCP on the best path.
    pub best_tcp: Option<String>,
}

/// The answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The scenario's name.
    pub scenario: String,
    /// The congestion control.
    pub congestion: String,
    /// Runs of each.
    pub runs: u32,
    /// First seed.
    pub seed: u64,
    /// One per workload.
    pub rankings: Vec<Ranking>,
    /// Interrupted: what is here is complete, but not all that was asked for.
    pub interrupted: bool,
    /// The limit of a run, seconds.
    pub limit: f64,
}

/// Whether nothing in the scenario is drawn at random.
pub fn is_deterministic(scenario: &Scenario) -> bool {
    let plain = |link: &LinkSpec| {
        link.jitter.is_none()
            && matches!(link.loss, Loss::None)
            && link.duplicate == 0.0
            && !matches!(link.rate, Rate::Trace(_))
    };
    scenario.background.is_empty()
        && scenario.paths.iter().all(|path| plain(&path.up) && plain(&path.down))
        && scenario.bottlenecks.iter().all(|link| plain(&link.up) && plain(&link.down))
}

/// Shift of a run's start: without randomness, runs differ in the phase at which they start, spread over a round trip.
pub(crate) fn start_phase(scenario: &Scenario, number: u32, runs: u32) -> Nanos {
    if !is_deterministic(scenario) {
        return 0;
    }
    let rtt = scenario.paths.iter().map(|path| path.up.delay + path.down.delay).max().unwrap_or(0);
    rtt * Nanos::from(number) / Nanos::from(runs.max(1))
}

/// Runs everything. `done` hears of each finished run; `stop` ends early. The result doesn't depend on `jobs`.
pub fn compare(
    request: &Request,
    run: impl Fn(&RunSpec) -> RunResult + Sync,
    done: impl Fn() + Sync,
    stop: &AtomicBool,
) -> Comparison {
    let runs = request.runs as usize;
    let per_workload = request.contenders.len() * runs;
    let total = request.workloads.len() * per_workload;
    let scenarios: Vec<Arc<Scenario>> =
        request.workloads.iter().map(|workload| request.scenario_with(workload)).collect();
    let next = AtomicUsize::new(0);
    let spec = |index: usize| {
        let (workload, rest) = (index / per_workload, index % per_workload);
        // Seeds outermost, so that an interrupted comparison has whole pairs.
        let (number, who) = (rest / request.contenders.len(), rest % request.contenders.len());
        request.run_of(scenarios[workload].clone(), number as u32, who)
    };
    let limit = request.scenario.limit as f64 / 1e9;
    let worker = || {
        let mut kept = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= total {
                break;
            }
            let spec = spec(index);
            kept.push((index, keep(&run(&spec), &spec, limit)));
            done();
        }
        kept
    };
    let mut cells: Vec<Option<Kept>> = vec![None; total];
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..request.jobs.max(1)).map(|_| scope.spawn(worker)).collect();
        for thread in threads {
            match thread.join() {
                Ok(kept) => {
                    for (index, kept) in kept {
                        cells[index] = Some(kept);
                    }
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    let interrupted = cells.iter().any(Option::is_none);
    let rankings = scenarios
        .iter()
        .enumerate()
        .map(|(workload, scenario)| {
            let cells = &cells[workload * per_workload..][..per_workload];
            rank(request, &scenario.workload, cells)
        })
        .filter(|ranking| !ranking.rows.is_empty())
        .collect();
    Comparison {
        scenario: request.scenario.name.clone(),
        congestion: request.congestion.text.clone(),
        runs: request.runs,
        seed: request.seed,
        rankings,
        interrupted,
        limit,
    }
}

fn keep(result: &RunResult, spec: &RunSpec, limit: f64) -> Kept {
    let finished = result.outcome == Outcome::Complete;
    let seconds = merit::of(&spec.scenario.workload, result).unwrap_or(limit);
    Kept {
        seconds,
        finished,
        duplicated: result.duplicated_bytes + result.opportunistic_bytes + result.reinjected_bytes,
        retransmissions: result.retransmissions,
        timeouts: result.timeouts,
        bound: bound::of(spec),
    }
}

fn rank(request: &Request, workload: &Workload, cells: &[Option<Kept>]) -> Ranking {
    let contenders = request.contenders.len();
    // Only seeds for which every contender has its run.
    let whole: Vec<&[Option<Kept>]> =
        cells.chunks(contenders).filter(|chunk| chunk.iter().all(Option::is_some)).collect();
    let of = |who: usize| whole.iter().filter_map(|chunk| chunk[who].as_ref()).collect::<Vec<_>>();
    let seconds: Vec<Vec<f64>> =
        (0..contenders).map(|who| of(who).iter().map(|kept| kept.seconds).collect()).collect();
    let (title, bytes) = describe(workload);
    let measure = Measure::of(workload);
    if whole.is_empty() {
        return Ranking { title, measure, bytes, rows: Vec::new(), best_tcp: None };
    }
    let single = |who: usize| matches!(request.contenders[who].mode, Mode::SinglePath(_));
    let means: Vec<f64> = seconds.iter().map(|s| stats::mean(s)).collect();
    let by_mean = |a: &usize, b: &usize| means[*a].total_cmp(&means[*b]);
    let best_tcp = (0..contenders).filter(|who| single(*who)).min_by(by_mean);
    let linux =
        request.contenders.iter().position(|c| c.scheduler.text == "linux" && c.mode == Mode::Multipath);
    let mut order: Vec<usize> = (0..contenders).collect();
    order.sort_by(by_mean);
    let best = order[0];
    // Comparisons with the best, corrected for their number.
    let raw: Vec<f64> = order[1..]
        .iter()
        .map(|who| stats::paired_ratio(&seconds[*who], &seconds[best], request.seed).map_or(1.0, |r| r.p))
        .collect();
    let adjusted = stats::holm(&raw);
    let rows = order
        .iter()
        .enumerate()
        .map(|(place, who)| {
            let kept = of(*who);
            let sorted = stats::sorted(&seconds[*who]);
            let versus = |other: Option<usize>| {
                other
                    .filter(|other| other != who)
                    .and_then(|other| stats::paired_ratio(&seconds[*who], &seconds[other], request.seed))
            };
            let average =
                |of: fn(&Kept) -> u64| stats::mean(&kept.iter().map(|k| of(k) as f64).collect::<Vec<_>>());
            Row {
                label: request.contenders[*who].label.clone(),
                single_path: single(*who),
                finished: kept.iter().filter(|kept| kept.finished).count() as u32,
                runs: kept.len() as u32,
                mean: means[*who],
                p50: stats::quantile(&sorted, 0.5),
                p95: stats::quantile(&sorted, 0.95),
                interval: stats::mean_interval(&seconds[*who], request.seed),
                versus_linux: versus(linux),
                versus_tcp: versus(best_tcp),
                ties_with_best: place == 0 || adjusted[place - 1] >= 0.05,
                duplicated: average(|kept| kept.duplicated),
                retransmissions: average(|kept| kept.retransmissions),
                timeouts: average(|kept| kept.timeouts),
                bound: mean_bound(&kept),
                seconds: seconds[*who].clone(),
            }
        })
        .collect();
    Ranking {
        title,
        measure,
        bytes,
        rows,
        best_tcp: best_tcp.map(|who| request.contenders[who].label.clone()),
    }
}

/// The mean over runs, whose starts may differ.
fn mean_bound(kept: &[&Kept]) -> Option<Bound> {
    let bounds = kept.iter().map(|kept| kept.bound).collect::<Option<Vec<_>>>()?;
    let mean = |of: fn(&Bound) -> f64| stats::mean(&bounds.iter().map(of).collect::<Vec<_>>());
    Some(Bound { capacity: mean(|bound| bound.capacity), window: mean(|bound| bound.window) })
}

fn describe(workload: &Workload) -> (String, Option<u64>) {
    let size = crate::units::write_bytes;
    match workload {
        Workload::Flow { bytes } => (format!("one flow of {}", size(*bytes)), Some(*bytes)),
        Workload::Flows { count, bytes } => {
            (format!("{count} flows of {} at once", size(*bytes)), Some(*bytes))
        }
        Workload::Web { objects, connections, .. } => {
            let total: u64 = objects.iter().sum();
            (
                format!(
                    "a page of {} objects, {}, over {connections} connections",
                    objects.len(),
                    size(total)
                ),
                Some(total),
            )
        }
        Workload::Cbr { frame, .. } => {
            (format!("frames of {} (the mean delay of a run's frames)", size(u64::from(*frame))), None)
        }
        Workload::Bulk { duration } => {
            (format!("bulk for {} (time per megabyte)", crate::units::write_duration(*duration)), None)
        }
        Workload::RequestResponse { response, count, .. } => {
            (format!("{count} exchanges of {} (the mean time of a run's exchanges)", size(*response)), None)
        }
    }
}

/// One sentence: who wins, by how much, and whether multipath is worth it.
pub fn verdict(comparison: &Comparison) -> String {
    // Each ranking's winner weighs the same: geometric means over the workloads.
    let labels: Vec<&str> = match comparison.rankings.first() {
        Some(first) => first.rows.iter().map(|row| row.label.as_str()).collect(),
        None => return "Nothing was run.".into(),
    };
    let score = |label: &str| {
        let logs = comparison.rankings.iter().filter_map(|ranking| {
            let best = ranking.rows.first()?.mean;
            let row = ranking.rows.iter().find(|row| row.label == label)?;
            Some(libm::log(row.mean / best))
        });
        stats::mean(&logs.collect::<Vec<_>>())
    };
    let mut scores: Vec<(f64, &str)> = labels.iter().map(|label| (score(label), *label)).collect();
    scores.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
    let winner = scores[0].1;
    if comparison.rankings.iter().all(|r| r.rows.iter().all(|row| row.finished == 0)) {
        return format!("Nothing finished within {:.0} s.", comparison.limit);
    }
    let tied: Vec<&str> = labels
        .iter()
        .copied()
        .filter(|label| *label != winner)
        .filter(|label| {
            comparison
                .rankings
                .iter()
                .all(|r| r.rows.iter().any(|row| row.label == *label && row.ties_with_best))
        })
        .collect();
    // The mean ratio, and whether it can be told from 1 at any size.
    let against = |pick: fn(&Row) -> Option<stats::Ratio>| {
        let ratios: Vec<stats::Ratio> = comparison
            .rankings
            .iter()
            .filter_map(|r| r.rows.iter().find(|row| row.label == winner).and_then(pick))
            .collect();
        let logs: Vec<f64> = ratios.iter().map(|ratio| libm::log(ratio.ratio)).collect();
        let told = ratios.iter().any(|ratio| ratio.p < 0.05);
        (!logs.is_empty()).then(|| (libm::exp(stats::mean(&logs)), told))
    };
    let change = |(ratio, told): (f64, bool)| {
        let percent = (ratio - 1.0) * 100.0;
        if !told {
            "not told apart from".to_string()
        } else if percent.abs() < 0.5 {
            "no faster nor slower than".to_string()
        } else if percent < 0.0 {
            format!("{:.0} % faster than", -percent)
        } else {
            format!("{percent:.0} % slower than")
        }
    };
    let mut parts = Vec::new();
    if let Some(ratio) = against(|row| row.versus_linux) {
        parts.push(format!("{} `linux`", change(ratio)));
    }
    if let Some(ratio) = against(|row| row.versus_tcp) {
        parts.push(format!("{} plain TCP on the best path", change(ratio)));
    }
    let over = if comparison.rankings.len() > 1 { " over all sizes" } else { "" };
    let mut text = format!("`{winner}` finishes first{over}");
    if !parts.is_empty() {
        text += &format!(": {}", parts.join(", "));
    }
    if !tied.is_empty() {
        let shown: Vec<_> = tied.iter().take(6).map(|label| format!("`{label}`")).collect();
        let more = if tied.len() > 6 { format!(" and {} more", tied.len() - 6) } else { String::new() };
        text += &format!("; a tie with {}{more}", shown.join(", "));
    }
    text + "."
}
