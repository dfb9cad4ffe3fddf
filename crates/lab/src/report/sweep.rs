//! A sweep as a document: at every point each candidate's mean, the first, and who ties with it.

use ropewalk_engine::scheduler::BASELINE;
use serde_json::{Value, json};

use super::Origin;
use crate::stats;
use crate::sweep::Questions;

/// A parameter that was varied.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// Its name: `path.lte.rtt`.
    pub name: String,
    /// Unit of its numbers.
    pub unit: Option<String>,
    /// Its values, for a grid; a sampled axis has none.
    pub levels: Option<Vec<Level>>,
}

/// One value of an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Level {
    /// As a person writes it.
    pub text: String,
    /// As a number.
    pub number: Option<f64>,
}

/// One setting of all axes.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// By axis: the number of its level, or the sampled value.
    pub at: Vec<f64>,
    /// By candidate: the seconds of each run, by seed; none for one that didn't finish.
    pub runs: Vec<Vec<Option<f64>>>,
}

/// All that a page says of a sweep.
#[derive(Clone, PartialEq, Debug)]
pub struct Sweep {
    /// Its name.
    pub title: String,
    /// What was varied, in a line.
    pub summary: String,
    /// Parameters.
    pub axes: Vec<Axis>,
    /// Who ran.
    pub runners: Vec<String>,
    /// Settings.
    pub points: Vec<Point>,
    /// Runs of each at each.
    pub runs: u32,
    /// First seed.
    pub seed: u64,
    /// What the playground is asked at each point.
    pub questions: Option<Questions>,
}

/// A point judged.
struct Judged {
    /// None: a run didn't finish, and so there is no mean.
    means: Vec<Option<f64>>,
    best: Option<usize>,
    /// The best, and those with no significant difference from it.
    ties: Vec<usize>,
}

fn judge(point: &Point, seed: u64) -> Judged {
    let whole: Vec<Option<Vec<f64>>> =
        point.runs.iter().map(|runs| runs.iter().copied().collect::<Option<Vec<f64>>>()).collect();
    let means: Vec<Option<f64>> = whole
        .iter()
        .map(|runs| runs.as_ref().filter(|runs| !runs.is_empty()).map(|runs| stats::mean(runs)))
        .collect();
    let there = || means.iter().enumerate().filter_map(|(who, mean)| Some((who, (*mean)?)));
    let best = there().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(who, _)| who);
    let mut ties = Vec::new();
    if let Some(best) = best
        && let Some(first) = &whole[best]
    {
        let others: Vec<usize> = there().map(|(who, _)| who).filter(|who| *who != best).collect();
        let raw: Vec<f64> = others
            .iter()
            .map(|who| whole[*who].as_ref().and_then(|runs| stats::paired_ratio(runs, first, seed)))
            .map(|ratio| ratio.map_or(1.0, |ratio| ratio.p))
            .collect();
        let adjusted = stats::holm(&raw);
        ties.push(best);
        ties.extend(others.iter().zip(adjusted).filter(|(_, p)| *p >= 0.05).map(|(who, _)| *who));
        ties.sort_unstable();
    }
    Judged { means, best, ties }
}

/// The whole document.
pub fn document(origin: &Origin, sweep: &Sweep) -> Value {
    let judged: Vec<Judged> = sweep.points.iter().map(|point| judge(point, sweep.seed)).collect();
    let (sentence, notes) = verdict(sweep, &judged);
    let mut fields = origin.fields("sweep");
    let body = json!({
        "title": sweep.title,
        "summary": sweep.summary,
        "runs": sweep.runs,
        "seed": sweep.seed,
        "verdict": format!("{sentence} {notes}").trim_end(),
        "headline": { "sentence": sentence, "notes": [notes] },
        "axes": sweep.axes.iter().map(|axis| json!({
            "name": axis.name,
            "unit": axis.unit,
            "levels": axis.levels.as_ref().map(|levels| {
                let each = levels.iter().map(|level| json!({ "text": level.text, "number": level.number }));
                each.collect::<Vec<_>>()
            }),
        })).collect::<Vec<_>>(),
        "runners": sweep.runners,
        "questions": sweep.questions.as_ref().map(|questions| json!({
            "fields": questions.fields,
            "values": questions.values,
        })),
        "points": sweep.points.iter().zip(&judged).map(|(point, judged)| json!({
            "at": point.at,
            "mean": judged.means,
            "best": judged.best,
            "ties": judged.ties,
        })).collect::<Vec<_>>(),
    });
    if let Value::Object(body) = body {
        fields.extend(body);
    }
    Value::Object(fields)
}

/// How far behind the best of each point, as a geometric mean; none if a run of it didn't finish.
fn behind(judged: &[Judged], who: usize) -> Option<f64> {
    let logs = judged.iter().filter_map(|point| {
        let best = point.means[point.best?]?;
        Some(point.means[who].map(|mean| libm::log(mean / best)))
    });
    let logs = logs.collect::<Option<Vec<f64>>>()?;
    (!logs.is_empty()).then(|| libm::exp(stats::mean(&logs)))
}

fn percent(ratio: f64) -> String {
    let percent = (ratio - 1.0).abs() * 100.0;
    if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// In words: which is closest to the best everywhere, how often it is first, and whether multipath pays.
fn verdict(sweep: &Sweep, judged: &[Judged]) -> (String, String) {
    let points = judged.len();
    let standing = |who: &usize| behind(judged, *who).map(|ratio| (ratio, *who));
    let mut standings: Vec<(f64, usize)> =
        (0..sweep.runners.len()).collect::<Vec<_>>().iter().filter_map(standing).collect();
    standings.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let Some(&(ratio, winner)) = standings.first() else {
        return ("No candidate finished every run.".into(), String::new());
    };
    let tied = judged.iter().filter(|point| point.ties.contains(&winner)).count();
    let name = &sweep.runners[winner];
    let mut text = format!("`{name}` is the closest to the best over all {points} points");
    if ratio > 1.0005 {
        text += &format!(", {} behind it on average", percent(ratio));
    }
    if let Some(&(linux, _)) =
        standings.iter().find(|(_, who)| sweep.runners[*who] == BASELINE && *who != winner)
    {
        text += &format!("; `{BASELINE}` takes {} longer", percent(linux / ratio));
    }
    text += ".";
    let leads = |point: &&Judged| point.best.is_some_and(|best| point.means[winner] <= point.means[best]);
    let first = judged.iter().filter(leads).count();
    let mut notes = format!(
        "It has the least mean at {first} of them, and no significant difference from the least at {tied}."
    );
    // The best path is another one at each point.
    let single: Vec<usize> =
        (0..sweep.runners.len()).filter(|who| sweep.runners[*who].starts_with("tcp ")).collect();
    if !single.is_empty() {
        let alone = judged
            .iter()
            .filter(|point| !point.ties.is_empty() && point.ties.iter().all(|who| single.contains(who)))
            .count();
        notes += &match alone {
            0 => " Nowhere is plain TCP on one path better than every scheduler.".to_string(),
            1 => " At one point plain TCP on one path is better than every scheduler.".to_string(),
            many => format!(" At {many} points plain TCP on one path is better than every scheduler."),
        };
    }
    (text, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep() -> Sweep {
        let level = |text: &str, number| Level { text: text.into(), number: Some(number) };
        let runs =
            |mean: f64| (0..8).map(|i| Some(mean * (1.0 + 0.001 * f64::from(i % 3)))).collect::<Vec<_>>();
        let noisy = |mean: f64| (0..8).map(|i| Some(mean * [0.7, 1.3][i % 2])).collect::<Vec<_>>();
        let mut unfinished = runs(9.0);
        unfinished[3] = None;
        Sweep {
            title: "t".into(),
            summary: "s".into(),
            axes: vec![Axis {
                name: "path.lte.rtt".into(),
                unit: Some("ms".into()),
                levels: Some(vec![level("20 ms", 20.0), level("80 ms", 80.0)]),
            }],
            runners: ["linux", "ecf", "tcp wifi"].map(String::from).to_vec(),
            points: vec![
                Point { at: vec![0.0], runs: vec![runs(1.2), runs(1.0), noisy(1.1)] },
                Point { at: vec![1.0], runs: vec![runs(1.3), runs(1.1), runs(1.0)] },
                Point { at: vec![1.0], runs: vec![runs(1.3), runs(1.0), unfinished] },
            ],
            runs: 8,
            seed: 1,
            questions: None,
        }
    }

    #[test]
    fn points_have_their_first_and_ties() {
        let document = document(&Origin::default(), &sweep());
        let of = |point: usize, field: &str| document["points"][point][field].clone();
        assert_eq!(
            (of(0, "best"), of(0, "ties")),
            (json!(1), json!([1, 2])),
            "a noisy one is not told apart"
        );
        assert_eq!((of(1, "best"), of(1, "ties")), (json!(2), json!([2])));
        assert_eq!(of(2, "mean")[2], Value::Null, "a run that didn't finish leaves no mean");
        assert_eq!(document["axes"][0]["levels"][1]["text"], "80 ms");
    }

    #[test]
    fn the_verdict_says_who_and_how_often() {
        let document = document(&Origin::default(), &sweep());
        assert_eq!(
            document["verdict"],
            "`ecf` is the closest to the best over all 3 points, 3.2 % behind it on average; `linux` takes \
             23 % longer. \
             It has the least mean at 2 of them, and no significant difference from the least at 2. At one \
             point plain \
             TCP on one path is better than every scheduler."
        );
    }

    #[test]
    fn nobody_can_be_the_answer() {
        let mut sweep = sweep();
        for point in &mut sweep.points {
            for runs in &mut point.runs {
                runs[0] = None;
            }
        }
        let document = document(&Origin::default(), &sweep);
        assert_eq!(document["verdict"], "No candidate finished every run.");
        assert_eq!(document["points"][0]["best"], Value::Null);
    }
}
