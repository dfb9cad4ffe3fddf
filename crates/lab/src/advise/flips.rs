//! Where the answer would flip: one quantity at a time is moved away from its value, up and down, until
//! someone else is faster by more than 2 % and the paired test agrees; then the turning point is closed in
//! on.

use std::sync::Arc;

use ropewalk_engine::Span;
use ropewalk_link::{Loss, Rate};
use ropewalk_settings::units;
use ropewalk_sim::{Scenario, Workload};

use super::belief::{scale_delay, scale_rate, scaled_loss};
use super::effort::{self, FLIPS_SHARE};
use super::question::Question;
use super::run::{Candidate, Execution, Times, times};
use crate::compare::Design;
use crate::{scenario, stats};

/// Steps of a quantity, before the turning point is closed in on.
const STEPS: usize = 3;
/// How far a quantity is moved.
const LADDER: [f64; STEPS] = [1.5, 3.5, 8.0];
/// Losses that are tried where there is none.
const LOSSES: [f64; STEPS] = [0.001, 0.01, 0.04];
/// Points between the last step that held and the first that didn't.
const BETWEEN: usize = 3;
const SEEDS: usize = 5;
/// Faster by less doesn't flip anything.
const WORTH: f64 = 0.02;

/// A turning point.
#[derive(Clone, PartialEq, Debug)]
pub struct Flip {
    /// `round-trip time of lte`.
    pub what: String,
    /// Its value now.
    pub now: String,
    /// `above` or `below`.
    pub side: &'static str,
    /// The value from which on another is better.
    pub at: String,
    /// Who.
    pub to: String,
    /// Ratio of its time to the recommended one's, there.
    pub ratio: f64,
    /// What is moved.
    pub(super) quantity: Quantity,
    /// By what factor; of a loss where there is none, the loss.
    pub(super) factor: f64,
}

/// What is moved; of which path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Quantity {
    Rate(usize),
    RoundTrip(usize),
    Loss(usize),
    Size,
}

#[derive(Clone, Copy, Debug)]
struct Axis {
    quantity: Quantity,
    up: bool,
}

fn axes(scenario: &Scenario) -> Vec<Axis> {
    let mut found = Vec::new();
    for path in 0..scenario.paths.len() {
        for quantity in [Quantity::Rate(path), Quantity::RoundTrip(path), Quantity::Loss(path)] {
            found.push(Axis { quantity, up: true });
            // There is no less than no loss.
            if !(matches!(quantity, Quantity::Loss(_)) && loss(scenario, path) == 0.0) {
                found.push(Axis { quantity, up: false });
            }
        }
    }
    if let Workload::Flow { .. } = scenario.workload {
        found.extend([true, false].map(|up| Axis { quantity: Quantity::Size, up }));
    }
    found
}

/// The long-run share lost, in the direction of the data or the other, whichever is more.
fn loss(scenario: &Scenario, path: usize) -> f64 {
    let share = |loss: &Loss| match *loss {
        Loss::None => 0.0,
        Loss::Bernoulli(p) => p,
        Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
            let bad = to_bad / (to_bad + to_good).max(1e-12);
            bad * loss_bad + (1.0 - bad) * loss_good
        }
    };
    share(&scenario.paths[path].up.loss).max(share(&scenario.paths[path].down.loss))
}

impl Axis {
    /// The steps along it, as factors; where there is no loss, as losses.
    fn ladder(&self, scenario: &Scenario) -> [f64; STEPS] {
        match self.quantity {
            Quantity::Loss(path) if loss(scenario, path) == 0.0 => LOSSES,
            _ if self.up => LADDER,
            _ => LADDER.map(|factor| 1.0 / factor),
        }
    }

    fn moved(&self, scenario: &Scenario, step: f64) -> Scenario {
        let mut copy = scenario.clone();
        let links = |path: usize, copy: &mut Scenario, change: &dyn Fn(&mut ropewalk_link::LinkSpec)| {
            let path = &mut copy.paths[path];
            [&mut path.up, &mut path.down].into_iter().for_each(change);
        };
        match self.quantity {
            Quantity::Rate(path) => links(path, &mut copy, &|link| scale_rate(link, step, 0.0)),
            Quantity::RoundTrip(path) => links(path, &mut copy, &|link| scale_delay(link, step)),
            Quantity::Loss(path) if loss(scenario, path) == 0.0 => {
                links(path, &mut copy, &|link| link.loss = Loss::Bernoulli(step));
            }
            Quantity::Loss(path) => links(path, &mut copy, &|link| link.loss = scaled_loss(link.loss, step)),
            Quantity::Size => {
                if let Workload::Flow { bytes } = &mut copy.workload {
                    *bytes = ((*bytes as f64 * step) as u64).max(1);
                }
            }
        }
        copy
    }

    fn name(&self, scenario: &Scenario) -> String {
        let of = |what: &str, path: usize| format!("{what} of {}", scenario.paths[path].name);
        match self.quantity {
            Quantity::Rate(path) => of("rate", path),
            Quantity::RoundTrip(path) => of("round-trip time", path),
            Quantity::Loss(path) => of("loss", path),
            Quantity::Size => "size of the flow".into(),
        }
    }

    fn value(&self, scenario: &Scenario) -> String {
        let down = |path: usize| {
            let path = &scenario.paths[path];
            match scenario.direction {
                ropewalk_sim::Direction::Upload => &path.up,
                ropewalk_sim::Direction::Download => &path.down,
            }
        };
        match self.quantity {
            Quantity::Rate(path) => match &down(path).rate {
                Rate::Constant(u64::MAX) => "unlimited".into(),
                rate => units::write_rate(rounded(scenario::mean_rate(rate))),
            },
            Quantity::RoundTrip(path) => {
                let path = &scenario.paths[path];
                let rtt = path.up.delay + path.down.delay;
                units::write_duration(Span::from_nanos(rounded(rtt.as_nanos())))
            }
            Quantity::Loss(path) => {
                let short: f64 = format!("{:.2e}", loss(scenario, path)).parse().unwrap_or(0.0);
                units::write_probability(short)
            }
            Quantity::Size => match scenario.workload {
                Workload::Flow { bytes } => units::short_bytes(bytes as f64),
                _ => String::new(),
            },
        }
    }
}

/// To three significant digits.
fn rounded(value: u64) -> u64 {
    format!("{:.2e}", value as f64).parse::<f64>().map_or(value, |value| value as u64)
}

/// Who is clearly faster than `chosen` in a world, and by what ratio.
fn better(times: &Times, world: usize, chosen: usize, count: usize) -> Option<(usize, f64)> {
    let better = (0..count).filter(|challenger| *challenger != chosen).filter_map(|challenger| {
        let ratio = stats::paired_ratio(times.of(world, challenger), times.of(world, chosen), 1)?;
        (ratio.ratio < 1.0 - WORTH && ratio.t_p < 0.05).then_some((challenger, ratio.ratio))
    });
    better.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Where the answer would flip.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Turning {
    /// All turning points.
    Points(Vec<Flip>),
    /// On exactly these paths this one is faster already, by this ratio: moving a quantity shows nothing.
    Ahead(String, f64),
}

/// The scenario with as much of its flow as the budget suffices for, how many of the candidates are watched,
/// and whether the flow is whole. The first of them are the chosen one, plain TCP, and the system's own.
fn affordable(question: &Question, candidates: usize, axes: &[Axis]) -> (Scenario, usize, bool) {
    let mut scenario = question.scenario.clone();
    let Design::Race { segments } = question.effort.design else { return (scenario, candidates, true) };
    let budget = segments / FLIPS_SHARE;
    let points = 1 + axes.len() * (STEPS + BETWEEN);
    let usual = (scenario.paths.len() + 2).min(candidates);
    let of_a_run = |candidates: usize| budget / (points * SEEDS * candidates) as u64;
    let cost = effort::segments(&scenario.workload, &scenario) + 100;
    // As many as can be watched with the whole flow, or those and a part of it.
    let watched = (usual..=candidates).rev().find(|count| of_a_run(*count) >= cost).unwrap_or(usual);
    let (one, changed) = effort::cut(
        std::slice::from_ref(&scenario.workload),
        &scenario,
        of_a_run(watched).saturating_sub(100).max(100),
    );
    scenario.workload = one.into_iter().next().unwrap_or(scenario.workload);
    (scenario, watched, !changed)
}

/// Looks for turning points. None if it was stopped.
pub(super) fn find(
    question: &Question,
    candidates: &[Candidate],
    chosen: usize,
    execution: Execution<'_>,
) -> Option<Turning> {
    let axes = axes(&question.scenario);
    let (scenario, count, is_whole) = affordable(question, candidates.len(), &axes);
    let (scenario, candidates) = (&scenario, &candidates[..count]);
    let axes: Vec<Axis> =
        axes.into_iter().filter(|axis| is_whole || axis.quantity != Quantity::Size).collect();
    let seed = question.seed.wrapping_add(2 << 20);
    let here = times(&[Arc::new(scenario.clone())], candidates, seed, SEEDS, execution)?;
    if let Some((challenger, ratio)) = better(&here, 0, chosen, candidates.len()) {
        return Some(Turning::Ahead(candidates[challenger].label.clone(), ratio));
    }
    let steps: Vec<Arc<Scenario>> = axes
        .iter()
        .flat_map(|axis| axis.ladder(scenario).map(|step| Arc::new(axis.moved(scenario, step))))
        .collect();
    let found = times(&steps, candidates, seed, SEEDS, execution)?;
    // For each axis that flips: the last step that held and the first that didn't.
    let mut turning = Vec::new();
    for (index, axis) in axes.iter().enumerate() {
        let ladder = axis.ladder(scenario);
        let first = (0..STEPS).find_map(|step| {
            let (challenger, ratio) = better(&found, index * STEPS + step, chosen, candidates.len())?;
            Some((step, challenger, ratio))
        });
        if let Some((step, challenger, ratio)) = first {
            let nothing = if loss_from_nothing(axis, scenario) { LOSSES[0] / 3.0 } else { 1.0 };
            let held = if step == 0 { nothing } else { ladder[step - 1] };
            turning.push((*axis, held, ladder[step], challenger, ratio));
        }
    }
    let between = |held: f64, flipped: f64, part: usize| {
        held * libm::pow(flipped / held, part as f64 / (BETWEEN + 1) as f64)
    };
    let closer: Vec<Arc<Scenario>> = turning
        .iter()
        .flat_map(|(axis, held, flipped, ..)| {
            (1..=BETWEEN).map(|part| Arc::new(axis.moved(scenario, between(*held, *flipped, part))))
        })
        .collect();
    let found = times(&closer, candidates, seed, SEEDS, execution)?;
    let flips = turning.iter().enumerate().map(|(index, (axis, held, flipped, challenger, ratio))| {
        let nearer = (1..=BETWEEN).find_map(|part| {
            let world = index * BETWEEN + part - 1;
            let (challenger, ratio) = better(&found, world, chosen, candidates.len())?;
            Some((between(*held, *flipped, part), challenger, ratio))
        });
        let (at, challenger, ratio) = nearer.unwrap_or((*flipped, *challenger, *ratio));
        Flip {
            what: axis.name(scenario),
            now: axis.value(scenario),
            side: if axis.up { "above" } else { "below" },
            at: axis.value(&axis.moved(scenario, at)),
            to: candidates[challenger].label.clone(),
            ratio,
            quantity: axis.quantity,
            factor: at,
        }
    });
    Some(Turning::Points(flips.collect()))
}

fn loss_from_nothing(axis: &Axis, scenario: &Scenario) -> bool {
    matches!(axis.quantity, Quantity::Loss(path) if loss(scenario, path) == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_move_one_at_a_time() {
        let path = |text| scenario::path(text).unwrap();
        let base =
            scenario::default_around(vec![path("a: 50 Mbit/s, 20 ms"), path("b: 10 Mbit/s, 60 ms, 1 %")]);
        let found = axes(&base);
        // Per path: rate and time both ways, loss upwards, and downwards where there is some; the size both
        // ways.
        assert_eq!(found.len(), 5 + 6 + 2);
        for axis in found {
            let moved = axis.moved(&base, axis.ladder(&base)[1]);
            assert_ne!(axis.value(&moved), axis.value(&base));
            let others = axes(&base).into_iter().filter(|other| other.quantity != axis.quantity);
            for other in others {
                assert_eq!(other.value(&moved), other.value(&base));
            }
        }
        let slower = Axis { quantity: Quantity::RoundTrip(1), up: true };
        assert_eq!(slower.value(&slower.moved(&base, 2.0)), "120 ms");
        let lossy = Axis { quantity: Quantity::Loss(0), up: true };
        assert_eq!(
            (lossy.value(&base), lossy.value(&lossy.moved(&base, 0.01))),
            ("0 %".into(), "1 %".into())
        );
    }
}
