//! Measures over time: BLEST's lambda, a subflow's congestion window, the mean and deviation over equal bins
//! of a sample every 10 ms, all runs together.

use ropewalk_sim::{RunResult, Sample};

use super::cells::{Progress, Request};
use super::plan::{Cell, Variant, Work};
use super::{Figure, Paper};

/// Bins over the time that is shown.
pub(super) const BINS: usize = 50;

/// A curve.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Its figure.
    pub figure: String,
    /// Its row, and its column if there are several.
    pub label: String,
    /// Setting.
    pub variant: String,
    /// What is shown: `lambda`, `cwnd:PATH`, `in-flight:PATH`.
    pub metric: String,
    /// Seconds at the middle of each bin, mean, standard deviation.
    pub points: Vec<(f64, f64, f64)>,
}

/// Seconds that a figure shows: its last column's place.
pub(super) fn span(figure: &Figure) -> f64 {
    figure.columns.iter().filter_map(|column| column.x).fold(5.0, f64::max)
}

fn value(sample: &Sample, metric: &str, result: &RunResult) -> Option<f64> {
    let (what, path) = metric.split_once(':').unwrap_or((metric, ""));
    let subflow = || {
        let place = result.paths.iter().position(|known| known.name == path)?;
        sample.subflows.iter().find(|subflow| usize::from(subflow.path) == place)
    };
    match what {
        "cwnd" => subflow().map(|subflow| f64::from(subflow.cwnd)),
        "in-flight" => subflow().map(|subflow| f64::from(subflow.in_flight)),
        _ => sample.scheduler.iter().find(|(name, _)| *name == what).map(|(_, value)| *value),
    }
}

/// Runs the series figures' cells and keeps the curves.
pub(super) fn record(
    paper: &Paper,
    variants: &[Variant],
    cells: &[Cell],
    request: &Request<'_>,
    progress: &dyn Progress,
) -> Vec<Series> {
    let mut found = Vec::new();
    for cell in cells {
        let Work::Simulate(template) = &cell.work else { continue };
        let figure = &paper.plan.figures[cell.figure];
        let span = span(figure);
        let mut bins: Vec<Vec<f64>> = vec![Vec::new(); BINS];
        for number in 0..cell.runs {
            let result = ropewalk_sim::run(&template.spec(number, cell.runs, request.seed));
            for sample in &result.samples {
                let bin = (sample.at.as_secs_f64() / span * BINS as f64) as usize;
                if let (Some(bin), Some(value)) = (bins.get_mut(bin), value(sample, &cell.metric, &result)) {
                    bin.push(value);
                }
            }
        }
        let row = &figure.rows[cell.row].label;
        let label = if figure.columns.len() > 1 {
            format!("{row}, {}", figure.columns[cell.column].label)
        } else {
            row.clone()
        };
        let points = bins.iter().enumerate().filter(|(_, values)| !values.is_empty()).map(|(bin, values)| {
            let mean = ropewalk_lab::stats::mean(values);
            let variance =
                values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / values.len() as f64;
            ((bin as f64 + 0.5) * span / BINS as f64, mean, libm::sqrt(variance))
        });
        found.push(Series {
            figure: figure.id.clone(),
            label,
            variant: variants[cell.variant].label.clone(),
            metric: cell.metric.clone(),
            points: points.collect(),
        });
        progress.done();
    }
    found
}
