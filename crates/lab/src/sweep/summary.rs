//! Summary of a sweep: for each scheduler its objective over all runs, and at how many points it is first.

use super::design::Design;
use super::metrics::RunMetrics;
use super::output::label;
use crate::objective::OBJECTIVE;
use crate::stats;

/// One scheduler with one congestion control.
#[derive(Clone, PartialEq, Debug)]
pub struct SchedulerSummary {
    /// The scheduler.
    pub scheduler: String,
    /// The congestion control.
    pub congestion: String,
    /// Runs that finished.
    pub finished: u64,
    /// Runs in all.
    pub runs: u64,
    /// Mean objective ([`crate::objective`]), seconds.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Points at which all its runs finished and its mean is the least.
    pub first: u64,
    /// Geometric mean, over the points, of its mean against the least.
    pub behind: f64,
}

impl SchedulerSummary {
    /// As JSON. What no finished run gave is null.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "scheduler": self.scheduler,
            "congestion": self.congestion,
            "mean_s": self.mean,
            "p50_s": self.p50,
            "p95_s": self.p95,
            "behind_first": self.behind,
            "first_at_points": self.first,
            "finished_runs": self.finished,
            "runs": self.runs,
        })
    }
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Summary {
    /// In the design's order; once finished, by distance behind the first.
    pub standings: Vec<SchedulerSummary>,
    /// Number of points.
    pub points: u64,
    values: Vec<Vec<f64>>,
    logs: Vec<Vec<f64>>,
    point: u64,
    sums: Vec<(f64, u64, bool)>,
}

impl Summary {
    /// A summary without runs.
    pub fn new(design: &Design) -> Self {
        let mut standings = Vec::new();
        for congestion in &design.congestion {
            for scheduler in &design.schedulers {
                standings.push(SchedulerSummary {
                    scheduler: label(scheduler),
                    congestion: congestion.clone(),
                    finished: 0,
                    runs: 0,
                    mean: f64::NAN,
                    p50: f64::NAN,
                    p95: f64::NAN,
                    first: 0,
                    behind: f64::NAN,
                });
            }
        }
        let none = vec![Vec::new(); standings.len()];
        Summary {
            sums: vec![(0.0, 0, true); standings.len()],
            values: none.clone(),
            logs: none,
            standings,
            points: design.points(),
            point: 0,
        }
    }

    /// Adds a run. Runs must be in order of their points.
    /// Takes a run in.
    pub fn take(&mut self, point: u64, runner: usize, kept: &RunMetrics) {
        if point != self.point {
            self.end_point();
            self.point = point;
        }
        let finished = kept.value("finished") == Some(1.0);
        self.standings[runner].runs += 1;
        self.standings[runner].finished += u64::from(finished);
        let sum = &mut self.sums[runner];
        match kept.value(OBJECTIVE.0).filter(|_| finished) {
            Some(value) => {
                self.values[runner].push(value);
                (sum.0, sum.1) = (sum.0 + value, sum.1 + 1);
            }
            None => sum.2 = false,
        }
    }

    fn end_point(&mut self) {
        let means: Vec<Option<f64>> = self
            .sums
            .iter()
            .map(|(sum, count, all)| (*all && *count > 0).then(|| sum / *count as f64))
            .collect();
        let best = means.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        for (runner, mean) in means.iter().enumerate() {
            let Some(mean) = mean else { continue };
            self.standings[runner].first += u64::from(*mean <= best);
            self.logs[runner].push(libm::log(mean / best));
        }
        self.sums.fill((0.0, 0, true));
    }

    /// Ends the summary, when all runs are in it.
    pub fn finish(&mut self) {
        self.end_point();
        for (runner, standing) in self.standings.iter_mut().enumerate() {
            let sorted = stats::sorted(&self.values[runner]);
            if !sorted.is_empty() {
                standing.mean = stats::mean(&sorted);
                standing.p50 = stats::quantile(&sorted, 0.5);
                standing.p95 = stats::quantile(&sorted, 0.95);
            }
            if !self.logs[runner].is_empty() {
                standing.behind = libm::exp(stats::mean(&self.logs[runner]));
            }
        }
        self.standings.sort_by(|a, b| a.behind.total_cmp(&b.behind));
    }
}
