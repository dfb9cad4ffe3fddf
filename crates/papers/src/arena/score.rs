//! What the runs say of one entrant. The oracle is the best of the others in each cell, chosen on other seeds
//! than those that it is judged by: else it would win by luck (the winner's curse).

use ropewalk_lab::stats::{mean, mean_interval, quantile, sorted};

use super::{CellResult, Half, Results, Series, stem};

/// An entrant in one cell. All are ratios; less is better.
#[derive(Clone, PartialEq, Debug)]
pub struct CellScore {
    /// The cell.
    pub id: String,
    /// Its family.
    pub family: String,
    /// Mean time over the oracle's.
    pub oracle: f64,
    /// The 95th percentile of the times over the oracle's.
    pub p95: f64,
    /// The oracle: the one that is best on the first half of the seeds.
    pub oracle_label: String,
    /// Mean time over that of plain TCP on the path that is opened first.
    pub opened: Option<f64>,
    /// Mean time over that of plain TCP on the best path, chosen on other seeds.
    pub best_path: Option<f64>,
    /// Mean time over the pool's.
    pub pool: Option<f64>,
    /// Bytes sent more than once over those delivered.
    pub repeated: f64,
    /// Of frames: the mean share that was late, its own and the least of the others, chosen on other seeds.
    pub late: Option<(f64, f64)>,
    /// Of frames: the mean of the runs' 99th percentiles over the least of the others.
    pub p99: Option<f64>,
}

/// An entrant in cells of one family, or of one kind of workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Kind {
    /// Its name.
    pub name: String,
    /// Its cells.
    pub cells: usize,
    /// Geometric mean against the oracle.
    pub oracle: f64,
    /// Its 95 % interval over the cells.
    pub interval: Option<(f64, f64)>,
    /// Share of the cells within 5 % of the oracle.
    pub within: f64,
    /// The worst cell by mean time.
    pub worst: (f64, String),
}

/// An entrant in the cells of frames with deadlines.
#[derive(Clone, PartialEq, Debug)]
pub struct Frames {
    /// How many there are.
    pub cells: usize,
    /// Those where neither the late share nor the 99th percentile is above the least of the others.
    pub no_worse: usize,
    /// Geometric mean of the mean delays over the oracle's.
    pub oracle: f64,
    /// Geometric mean of the 99th percentiles over the least of the others.
    pub p99: f64,
    /// Mean share of late frames, its own and the least of the others in each cell.
    pub late: (f64, f64),
}

/// A cell counts as harmed where an entrant takes longer than plain TCP by more than this factor.
pub const HARMED: f64 = 1.05;

/// How an entrant compares with plain TCP on one path.
#[derive(Clone, PartialEq, Debug)]
pub struct Harm {
    /// Cells where it is slower by more than [`HARMED`].
    pub cells: usize,
    /// The worst: ratio and cell.
    pub worst: (f64, String),
}

/// An entrant over all cells.
#[derive(Clone, PartialEq, Debug)]
pub struct Score {
    /// Its label.
    pub label: String,
    /// Geometric mean of its mean times over the oracle's.
    pub oracle: f64,
    /// Its 95 % interval: cells drawn again (bootstrap).
    pub interval: Option<(f64, f64)>,
    /// The other with the least geometric mean of all, and this entrant's against it.
    pub fixed: Option<(String, f64)>,
    /// Share of the cells within 5 % of the oracle.
    pub within: f64,
    /// The worst cell by mean time.
    pub worst: (f64, String),
    /// The worst cell by 95th percentile.
    pub worst_p95: (f64, String),
    /// Against plain TCP on the path opened first.
    pub opened: Option<Harm>,
    /// Against plain TCP on the best path.
    pub best_path: Option<Harm>,
    /// Geometric mean against the pool of paths.
    pub pool: Option<f64>,
    /// What joins cost: geometric mean of the pool of paths against one whose paths all begin at once.
    pub late: Option<f64>,
    /// Mean share of bytes sent more than once.
    pub repeated: f64,
    /// The cell where that is greatest.
    pub worst_repeated: (f64, String),
    /// Cells with frames.
    pub frames: Option<Frames>,
    /// Each cell.
    pub cells: Vec<CellScore>,
}

/// Geometric mean; 1 of nothing.
pub(super) fn geometric(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(libm::log).collect();
    libm::exp(mean(&logs))
}

/// The 95 % interval of the geometric mean.
fn interval(ratios: &[f64]) -> Option<(f64, f64)> {
    let logs: Vec<f64> = ratios.iter().copied().map(libm::log).collect();
    mean_interval(&logs, 1).map(|(from, to)| (libm::exp(from), libm::exp(to)))
}

fn within(cells: &[&CellScore]) -> f64 {
    cells.iter().filter(|cell| cell.oracle <= 1.05).count() as f64 / cells.len().max(1) as f64
}

impl Score {
    /// By family, in the order in which they first come.
    pub fn kinds(&self) -> Vec<Kind> {
        let mut names: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !names.contains(&cell.family.as_str()) {
                names.push(&cell.family);
            }
        }
        let kind = |name: &&str| {
            let cells: Vec<&CellScore> = self.cells.iter().filter(|cell| cell.family == *name).collect();
            let ratios: Vec<f64> = cells.iter().map(|cell| cell.oracle).collect();
            let worst = cells.iter().max_by(|a, b| a.oracle.total_cmp(&b.oracle))?;
            Some(Kind {
                name: (*name).into(),
                cells: cells.len(),
                oracle: geometric(ratios.iter().copied()),
                interval: interval(&ratios),
                within: within(&cells),
                worst: (worst.oracle, worst.id.clone()),
            })
        };
        names.iter().filter_map(kind).collect()
    }
}

fn frames(cells: &[CellScore]) -> Option<Frames> {
    let found: Vec<(f64, f64, (f64, f64))> =
        cells.iter().filter_map(|cell| Some((cell.oracle, cell.p99?, cell.late?))).collect();
    let average =
        |of: fn(&(f64, f64)) -> f64| mean(&found.iter().map(|cell| of(&cell.2)).collect::<Vec<_>>());
    let no_worse = |cell: &&(f64, f64, (f64, f64))| cell.1 <= 1.0 && cell.2.0 <= cell.2.1;
    (!found.is_empty()).then(|| Frames {
        cells: found.len(),
        no_worse: found.iter().filter(no_worse).count(),
        oracle: geometric(found.iter().map(|cell| cell.0)),
        p99: geometric(found.iter().map(|cell| cell.1)),
        late: (average(|late| late.0), average(|late| late.1)),
    })
}

/// One half of a series: the runs with an even number, or the others.
fn part(seconds: &[f64], odd: usize) -> Vec<f64> {
    let chosen: Vec<f64> = seconds.iter().skip(odd).step_by(2).copied().collect();
    // A single run is all there is.
    if chosen.is_empty() { seconds.to_vec() } else { chosen }
}

/// The times of the best of these: on each half of the seeds those of the one that is best on the other half.
/// Also who that is on the first half.
fn cross_fit<'a>(field: &[(&'a str, &[f64])]) -> Option<(&'a str, Vec<f64>)> {
    let best =
        |odd: usize| field.iter().min_by(|a, b| mean(&part(a.1, odd)).total_cmp(&mean(&part(b.1, odd))));
    let (first, second) = (best(0)?, best(1)?);
    let times = (0..first.1.len()).map(|run| if run % 2 == 0 { second.1[run] } else { first.1[run] });
    Some((first.0, times.collect()))
}

fn cell(result: &CellResult, label: &str) -> Option<CellScore> {
    let own = result.of(label)?;
    let others = |of: fn(&Series) -> &Vec<f64>| -> Vec<(&str, &[f64])> {
        let others = result.series.iter().filter(|series| stem(&series.label) != stem(label));
        let measured = others.filter(|series| !of(series).is_empty());
        measured.map(|series| (series.label.as_str(), of(series).as_slice())).collect()
    };
    let (best, oracle) = cross_fit(&others(|series| &series.seconds))?;
    let (late, p99) = (cross_fit(&others(|series| &series.late)), cross_fit(&others(|series| &series.p99)));
    let time = mean(&own.seconds);
    let tail = |seconds: &[f64]| quantile(&sorted(seconds), 0.95);
    let tcp: Vec<(&str, &[f64])> =
        result.tcp.iter().map(|series| (series.label.as_str(), series.seconds.as_slice())).collect();
    Some(CellScore {
        id: result.id.clone(),
        family: result.family.clone(),
        oracle: time / mean(&oracle),
        p95: tail(&own.seconds) / tail(&oracle),
        oracle_label: best.to_string(),
        opened: result.tcp.first().map(|tcp| time / mean(&tcp.seconds)),
        best_path: cross_fit(&tcp).map(|(_, best)| time / mean(&best)),
        pool: (!result.pool.is_empty()).then(|| time / mean(&result.pool)),
        repeated: mean(&own.repeated),
        late: late.filter(|_| !own.late.is_empty()).map(|(_, least)| (mean(&own.late), mean(&least))),
        p99: p99.filter(|_| !own.p99.is_empty()).map(|(_, least)| mean(&own.p99) / mean(&least)),
    })
}

fn worst<'a>(cells: &'a [CellScore], of: impl Fn(&'a CellScore) -> Option<f64>) -> Option<(f64, String)> {
    let values = cells.iter().filter_map(|cell| Some((of(cell)?, cell.id.clone())));
    values.max_by(|a, b| a.0.total_cmp(&b.0))
}

fn harm(cells: &[CellScore], of: fn(&CellScore) -> Option<f64>) -> Option<Harm> {
    let worst = worst(cells, of)?;
    Some(Harm { cells: cells.iter().filter_map(of).filter(|ratio| *ratio > HARMED).count(), worst })
}

/// The score of an entrant over the cells of one half, or over all; `None` if there is nobody to compare it
/// with.
pub fn score(results: &Results, label: &str, half: Option<Half>) -> Option<Score> {
    let chosen: Vec<&CellResult> =
        results.cells.iter().filter(|cell| half.is_none_or(|half| cell.half == half)).collect();
    let cells: Vec<CellScore> = chosen.iter().filter_map(|result| cell(result, label)).collect();
    let against = |other: &str| {
        let ratio =
            |result: &&CellResult| Some(mean(&result.of(label)?.seconds) / mean(&result.of(other)?.seconds));
        geometric(chosen.iter().filter_map(ratio))
    };
    let others = results.labels().into_iter().filter(|other| stem(other) != stem(label));
    let fixed = others.map(|other| (against(&other), other)).max_by(|a, b| a.0.total_cmp(&b.0));
    let pools: Vec<f64> = cells.iter().filter_map(|cell| cell.pool).collect();
    Some(Score {
        label: label.to_string(),
        oracle: geometric(cells.iter().map(|cell| cell.oracle)),
        interval: interval(&cells.iter().map(|cell| cell.oracle).collect::<Vec<_>>()),
        fixed: fixed.map(|(ratio, other)| (other, ratio)),
        within: within(&cells.iter().collect::<Vec<_>>()),
        worst: worst(&cells, |cell| Some(cell.oracle))?,
        worst_p95: worst(&cells, |cell| Some(cell.p95))?,
        opened: harm(&cells, |cell| cell.opened),
        best_path: harm(&cells, |cell| cell.best_path),
        pool: (!pools.is_empty()).then(|| geometric(pools.iter().copied())),
        late: (!pools.is_empty()).then(|| {
            let flows = chosen.iter().filter(|result| !result.at_once.is_empty());
            geometric(flows.map(|result| mean(&result.pool) / mean(&result.at_once)))
        }),
        repeated: mean(&cells.iter().map(|cell| cell.repeated).collect::<Vec<_>>()),
        worst_repeated: worst(&cells, |cell| Some(cell.repeated))?,
        frames: frames(&cells),
        cells,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(series: &[(&str, [f64; 4])]) -> Results {
        let series = series.iter().map(|(label, seconds)| Series {
            label: (*label).into(),
            seconds: seconds.to_vec(),
            repeated: vec![0.25; 4],
            late: vec![0.5; 4],
            p99: seconds.iter().map(|seconds| seconds * 2.0).collect(),
        });
        let tcp = vec![
            Series {
                label: "tcp p1".into(),
                seconds: vec![2.0; 4],
                repeated: vec![0.0; 4],
                late: vec![],
                p99: vec![],
            },
            Series {
                label: "tcp p2".into(),
                seconds: vec![1.0; 4],
                repeated: vec![0.0; 4],
                late: vec![],
                p99: vec![],
            },
        ];
        let cell = CellResult {
            id: "f/1/1".into(),
            family: "f".into(),
            half: Half::Test,
            x: 1.0,
            y: 1.0,
            series: series.collect(),
            tcp,
            pool: vec![0.5; 4],
            at_once: vec![0.4; 4],
        };
        Results {
            congestion: "cubic".into(),
            opened_on: "first".into(),
            seed: 1,
            runs: 4,
            early_join: false,
            cells: vec![cell],
        }
    }

    /// Two that are equal on average and lucky on different seeds: the oracle gains nothing from luck.
    #[test]
    fn the_oracle_is_chosen_on_other_seeds() {
        let results =
            results(&[("mine", [2.0; 4]), ("even", [1.0, 3.0, 1.0, 3.0]), ("odd", [3.0, 1.0, 3.0, 1.0])]);
        let score = score(&results, "mine", Some(Half::Test)).unwrap();
        // `even` is chosen for the odd seeds, where it takes 3.
        assert!((score.oracle - 2.0 / 3.0).abs() < 1e-12, "{score:?}");
        assert_eq!(score.cells[0].oracle_label, "even");
        assert_eq!(score.fixed.as_ref().map(|(_, ratio)| *ratio), Some(1.0));
        assert_eq!(score.within, 1.0);
    }

    #[test]
    fn harm_is_measured_against_tcp_and_variants_are_no_rivals() {
        let results = results(&[("mine", [1.1; 4]), ("mine(a=2)", [0.1; 4]), ("other", [1.0; 4])]);
        let score = score(&results, "mine", None).unwrap();
        assert!((score.oracle - 1.1).abs() < 1e-12 && score.within == 0.0);
        assert_eq!(score.opened.as_ref().unwrap().cells, 0);
        let best = score.best_path.as_ref().unwrap();
        assert!(best.cells == 1 && (best.worst.0 - 1.1).abs() < 1e-12, "{best:?}");
        assert!((score.pool.unwrap() - 2.2).abs() < 1e-12);
        assert!((score.late.unwrap() - 1.25).abs() < 1e-12);
        assert_eq!(score.worst_repeated, (0.25, "f/1/1".to_string()));
        assert!(super::score(&results, "nobody", None).is_none());
        let kinds = score.kinds();
        assert_eq!((kinds.len(), kinds[0].name.as_str(), kinds[0].interval), (1, "f", None));
        let frames = score.frames.unwrap();
        assert!(frames.cells == 1 && frames.no_worse == 0 && (frames.p99 - 1.1).abs() < 1e-12, "{frames:?}");
        assert_eq!(frames.late, (0.5, 0.5));
    }
}
