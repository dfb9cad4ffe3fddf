//! Which measurement would change the answer: the quantity of a path on which the gain depends most over the
//! plausible variants, and the value at which it would be another's.

use ropewalk_engine::Span;
use ropewalk_link::Queue;
use ropewalk_settings::units;
use ropewalk_sim::{Direction, PathSpec, Scenario};

use super::belief::Doubt;
use super::certainty::Share;
use super::flips::{Flip, Quantity};
use super::measure::loss_share;
use super::question::Question;
use super::variants::Variants;
use crate::{scenario, stats};

/// Of the gain's variance over the variants, what a quantity must explain to be named.
const EXPLAINS: f64 = 0.1;

/// Standard deviations within which a value is plausible: 90 %.
const PLAUSIBLE: f64 = 1.645;

/// A measurement that could change the answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Telling {
    /// The path to measure.
    pub path: String,
    /// `rate of lte`.
    pub what: String,
    /// What to run over that path.
    pub run: &'static str,
    /// The values that are plausible now.
    pub now: (String, String),
    /// `above` or `below`.
    pub side: &'static str,
    /// The value from which on the answer is another.
    pub at: String,
    /// What it is then.
    pub to: String,
}

/// What can be measured of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Measurable {
    Rate,
    RoundTrip,
    Loss,
    Queue,
}

impl Measurable {
    const ALL: [Measurable; 4] =
        [Measurable::Rate, Measurable::RoundTrip, Measurable::Loss, Measurable::Queue];

    /// Its value: bits per second, nanoseconds, a share, bytes.
    fn of(self, path: &PathSpec, direction: Direction) -> f64 {
        let link = if direction == Direction::Upload { &path.up } else { &path.down };
        match self {
            Measurable::Rate => scenario::mean_rate(&link.rate) as f64,
            Measurable::RoundTrip => (path.up.delay + path.down.delay).as_nanos() as f64,
            Measurable::Loss => loss_share(&link.loss),
            Measurable::Queue => match link.queue {
                Queue::Packets { limit, .. } => f64::from(limit) * 1500.0,
                Queue::Bytes { limit, .. } => limit as f64,
                Queue::CoDel { .. } => 0.0,
            },
        }
    }

    /// The standard deviation of its logarithm.
    fn doubt(self, doubt: &Doubt, direction: Direction) -> f64 {
        match self {
            Measurable::Rate => doubt.rate[usize::from(direction != Direction::Upload)],
            Measurable::RoundTrip => doubt.rtt,
            Measurable::Loss => doubt.loss,
            Measurable::Queue => doubt.queue,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Measurable::Rate => "rate",
            Measurable::RoundTrip => "round-trip time",
            Measurable::Loss => "loss",
            Measurable::Queue => "queue",
        }
    }

    /// For people, to three digits.
    fn text(self, value: f64) -> String {
        let short = |value: f64| format!("{value:.2e}").parse::<f64>().unwrap_or(value);
        match self {
            Measurable::Rate => units::write_rate(short(value) as u64),
            Measurable::RoundTrip => units::write_duration(Span::from_nanos(short(value) as u64)),
            Measurable::Loss => units::write_probability(short(value).min(1.0)),
            Measurable::Queue => units::short_bytes(value),
        }
    }

    /// What measures it.
    fn run(self, direction: Direction) -> &'static str {
        match self {
            Measurable::Rate if direction == Direction::Upload => "iperf3 --json -P 8 -c HOST",
            Measurable::Rate => "iperf3 --json -R -P 8 -c HOST",
            Measurable::RoundTrip => "ping -c 30 HOST",
            Measurable::Loss => "ping -c 1000 -i 0.2 HOST",
            // The sender's round trips under load are in it.
            Measurable::Queue => "iperf3 --json -c HOST",
        }
    }
}

/// From the variants in which it was looked at how sure the gain is. `is_named`: it was sure enough; `other`:
/// what the answer is on the other side.
pub(super) fn in_variants(
    question: &Question,
    share: &Share,
    raced: &Scenario,
    is_named: bool,
    other: &str,
) -> Option<Telling> {
    let direction = question.scenario.direction;
    let variants = Variants::of(question, raced);
    let worlds: Vec<_> = (0..share.gaps.len()).map(|number| variants.get(number)).collect();
    let sure = stats::normal_quantile(question.certainty);
    let mut best: Option<(f64, Telling)> = None;
    for (index, path) in question.scenario.paths.iter().enumerate() {
        for quantity in Measurable::ALL {
            let values: Vec<f64> =
                worlds.iter().map(|world| libm::log(quantity.of(&world.paths[index], direction))).collect();
            let sd = quantity.doubt(&question.doubts[index], direction);
            let Some(line) = line(&values, &share.gaps).filter(|_| sd > 0.0) else { continue };
            let now = libm::log(quantity.of(path, direction));
            // Where the candidate is no longer faster in the mean, or no mistake with just the certainty
            // asked for, by what chance and the other quantities leave.
            let gap = stats::mean(&share.gaps) + (sure * line.rest - Share::tolerance()).max(0.0);
            let at = stats::mean(&values) - gap / line.slope;
            let is_best = best.as_ref().is_none_or(|(of, _)| line.explained > *of);
            let is_sure = gap < 0.0;
            if line.explained < EXPLAINS
                || is_sure != is_named
                || (at - now).abs() > PLAUSIBLE * sd
                || !is_best
            {
                continue;
            }
            let above = (line.slope > 0.0) == is_sure;
            best = Some((line.explained, telling(quantity, path, direction, sd, (at, above), other)));
        }
    }
    best.map(|(_, found)| found)
}

/// The turning point that is the nearest, by what is plausible, if it is plausible.
pub(super) fn in_flips(question: &Question, flips: &[Flip]) -> Option<Telling> {
    let direction = question.scenario.direction;
    let near = flips.iter().filter_map(|flip| {
        let (index, quantity) = match flip.quantity {
            Quantity::Rate(path) => (path, Measurable::Rate),
            Quantity::RoundTrip(path) => (path, Measurable::RoundTrip),
            Quantity::Loss(path) => (path, Measurable::Loss),
            Quantity::Size => return None,
        };
        let path = &question.scenario.paths[index];
        let now = libm::log(quantity.of(path, direction));
        let sd = quantity.doubt(&question.doubts[index], direction);
        // A loss where there is none is no factor.
        let off =
            Some(libm::log(flip.factor)).filter(|off| off.is_finite() && now.is_finite() && sd > 0.0)?;
        let at = (now + off, flip.side == "above");
        Some((off.abs() / sd, telling(quantity, path, direction, sd, at, &flip.to)))
    });
    let nearest = near.min_by(|a, b| a.0.total_cmp(&b.0))?;
    (nearest.0 <= PLAUSIBLE).then_some(nearest.1)
}

fn telling(
    quantity: Measurable,
    path: &PathSpec,
    direction: Direction,
    sd: f64,
    (at, above): (f64, bool),
    to: &str,
) -> Telling {
    let now = quantity.of(path, direction);
    let end = |sign: f64| quantity.text(now * libm::exp(sign * PLAUSIBLE * sd));
    Telling {
        path: path.name.clone(),
        what: format!("{} of {}", quantity.name(), path.name),
        run: quantity.run(direction),
        now: (end(-1.0), end(1.0)),
        side: if above { "above" } else { "below" },
        at: quantity.text(libm::exp(at)),
        to: to.to_string(),
    }
}

/// A line through points.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Line {
    slope: f64,
    /// The share of the variance that it explains.
    explained: f64,
    /// The standard deviation of what it leaves.
    rest: f64,
}

/// The line through points by least squares; none where either coordinate doesn't vary.
fn line(x: &[f64], y: &[f64]) -> Option<Line> {
    let (mx, my) = (stats::mean(x), stats::mean(y));
    let sum = |a: &[f64], ma: f64, b: &[f64], mb: f64| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - ma) * (b - mb)).sum()
    };
    let (xx, xy, yy) = (sum(x, mx, x, mx), sum(x, mx, y, my), sum(y, my, y, my));
    let explained = xy * xy / (xx * yy);
    let varies = xx > 1e-12 && yy > 1e-12 && xy != 0.0 && xx.is_finite();
    let rest = libm::sqrt((yy * (1.0 - explained)).max(0.0) / y.len() as f64);
    varies.then_some(Line { slope: xy / xx, explained, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_points() {
        let found = line(&[0.0, 1.0, 2.0], &[1.0, 3.0, 5.0]).unwrap();
        assert!(
            (found.slope - 2.0).abs() < 1e-12 && (found.explained - 1.0).abs() < 1e-12 && found.rest < 1e-6
        );
        let found = line(&[0.0, 0.0, 2.0, 2.0], &[-1.0, 1.0, -1.0, 1.1]).unwrap();
        assert!(found.explained < 0.01 && (found.rest - 1.0).abs() < 0.05, "{found:?}");
        assert_eq!(line(&[1.0; 3], &[1.0, 2.0, 3.0]), None);
        assert_eq!(line(&[f64::NEG_INFINITY, 1.0], &[1.0, 2.0]), None);
    }
}
