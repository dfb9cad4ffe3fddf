//! `raven`: repeats a segment wherever the prediction doesn't tell which subflow delivers it first.
//!
//! Source: Lee, Flinn, Tonshal, RAVEN: Improving Interactive Latency for the Connected Car, MobiCom 2018,
//! from its abstract and from what the authors' kernel does (`mptcp_raven.c`).
//!
//! Rule: each subflow's round-trip time is predicted by the mean of its samples, weighted by
//! exp(-age/lambda). Around it lies an interval that widens with the time t since the last sample:
//!
//! ```text
//! [mean (1 - lower a), mean (1 + upper a)],   a = 1 for t <= 1 s, else 1 + 1.8 (1 - exp(-(t - 1 s)/5 s))
//! ```
//!
//! The best subflow is the one whose interval begins first. The targets are those whose intervals begin no
//! later than the best's ends. A segment is sent at once on each target that has room.
//!
//! Rulings: the authors measured `lower` and `upper` for each network, and `a` as a table by the second; the
//! formula follows the one for WiFi to within a tenth over the first ten seconds. The mean stands for the
//! time to delivery. A subflow without samples of its own since it joined is predicted by its srtt; with none
//! at all its interval begins at 0. The first copy goes to the target with the least mean. Where no target
//! has room, `minrtt`. Acknowledged data is never sent again, but a copy that left isn't withdrawn.
//!
//! Parameters: `lambda` (256; 1 to 1000000): time constant of a sample's weight, ms, as in the authors'
//! kernel. `lower` (0.36; 0 to 1) and `upper` (0.61; 0 to 100): the interval as shares of the mean; the
//! defaults are what the authors measured for 90 % over WiFi (over cellular 0.58 and 1.33). `opportunistic`
//! and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::minrtt::send_on;
use super::text::{Ms, Subflow, no_room, nothing_to_send};
use super::{Decision, Event, Purpose, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Parameter};
use crate::{MAX_SUBFLOWS, MILLISECOND, SECOND, Span, SubflowId, Time};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "raven",
    summary: "redundant where the predicted round-trip times overlap (from a summary)",
    source: "Lee et al., MobiCom 2018; mptcp_raven.c",
    parameters: &[
        Parameter::number("lambda", 256.0, (1.0, 1e6), "time constant of a sample's weight, ms"),
        Parameter::number("lower", 0.36, (0.0, 1.0), "how far the interval goes below the mean, a share"),
        Parameter::number("upper", 0.61, (0.0, 100.0), "how far it goes above, a share"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    // It would cost every comparison time.
    compared_by_default: false,
    ..Entry::of(|values| {
        let lambda = values.number("lambda") * MILLISECOND.as_nanos() as f64;
        let (lower, upper) = (values.number("lower"), values.number("upper"));
        with_mechanisms(
            values,
            Raven { lambda, lower, upper, predictions: [Prediction::default(); MAX_SUBFLOWS], copies: None },
        )
    })
};

/// A subflow's weighted samples.
#[derive(Clone, Copy, Debug, Default)]
struct Prediction {
    sum: f64,
    weight: f64,
    at: Time,
}

/// An interval of round-trip times, ns.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Interval {
    low: f64,
    mean: f64,
    high: f64,
}

#[derive(Debug)]
struct Raven {
    /// ns.
    lambda: f64,
    lower: f64,
    upper: f64,
    predictions: [Prediction; MAX_SUBFLOWS],
    /// The segment that was sent last, by its offset, and the subflows that are to repeat it, by bits.
    copies: Option<(u64, u32)>,
}

/// How much wider the interval is, so long after the last sample.
fn ageing(since: Span) -> f64 {
    match since.checked_sub(SECOND) {
        None | Some(Span::ZERO) => 1.0,
        Some(over) => {
            1.0 + 1.8 * (1.0 - libm::exp(-(over.as_nanos() as f64) / (5 * SECOND).as_nanos() as f64))
        }
    }
}

impl Raven {
    fn add_sample(&mut self, subflow: &SubflowMetrics, now: Time) {
        let Some(prediction) = self.predictions.get_mut(subflow.id.index()) else { return };
        if subflow.rtt.latest == Span::ZERO {
            return;
        }
        let kept = libm::exp(-(now.saturating_sub(prediction.at).as_nanos() as f64) / self.lambda);
        prediction.sum = prediction.sum * kept + subflow.rtt.latest.as_nanos() as f64;
        prediction.weight = prediction.weight * kept + 1.0;
        prediction.at = now;
    }

    fn interval(&self, subflow: &SubflowMetrics, now: Time) -> Interval {
        let own = self.predictions.get(subflow.id.index()).filter(|own| own.weight > 0.0);
        let (mean, age) = match own {
            Some(own) => (own.sum / own.weight, ageing(now.saturating_sub(own.at))),
            None => (subflow.rtt.smoothed.as_nanos() as f64, 1.0),
        };
        let low = (mean * (1.0 - self.lower * age)).max(0.0);
        Interval { low, mean, high: mean * (1.0 + self.upper * age) }
    }

    /// The subflow that is to repeat the last segment, if one is left that can.
    fn next_copy(&mut self, view: &View<'_>) -> Option<(SubflowId, u64)> {
        let (offset, mut left) = self.copies.take()?;
        let chunk = view.in_flight.chunk_after(offset).filter(|chunk| chunk.offset == offset)?;
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            left &= left - 1;
            let able = |subflow: &&SubflowMetrics| subflow.available() && !chunk.carried_by(subflow.id);
            if let Some(subflow) = view.subflows.get(index).filter(able) {
                self.copies = Some((offset, left));
                return Some((subflow.id, offset));
            }
        }
        None
    }

    /// Sends a new segment, and notes who is to repeat it.
    fn send(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        let Some(fastest) = view.fastest_available() else { return no_room(view, rationale) };
        let begins_first = |best: Option<Interval>, subflow: &SubflowMetrics| {
            let own = self.interval(subflow, view.now);
            // Of a subflow without any sample nothing is known: it isn't the best.
            let better = own.mean > 0.0 && best.is_none_or(|best| own.low < best.low);
            if better { Some(own) } else { best }
        };
        let best = view.usable().fold(None, begins_first);
        let end = best.map_or(f64::INFINITY, |best| best.high);
        let mut first: Option<(&SubflowMetrics, Interval)> = None;
        let mut targets = 0u32;
        for subflow in view.available() {
            let own = self.interval(subflow, view.now);
            if own.low > end {
                continue;
            }
            targets |= 1 << subflow.id.0;
            if first.is_none_or(|(_, other)| own.mean < other.mean) {
                first = Some((subflow, own));
            }
        }
        let Some((subflow, interval)) = first else {
            return send_on(fastest, rationale);
        };
        self.copies = Some((view.next_offset, targets & !(1 << subflow.id.0)));
        rationale.say(|| {
            let Interval { low, mean, high } = interval;
            let [low, mean, high] = [low, mean, high].map(|time| Ms(Span::from_nanos(time as u64)));
            let count = targets.count_ones();
            format!("{} in {mean} ({low} to {high}); {count} subflows may be first", Subflow(subflow.id))
        });
        Decision::Send { subflow: subflow.id, bytes: subflow.mss }
    }
}

impl Scheduler for Raven {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if let Some((subflow, offset)) = self.next_copy(view) {
            rationale.say(|| format!("{} repeats data at {offset}: it may be first", Subflow(subflow)));
            return Decision::Duplicate { subflow, offset, purpose: Purpose::Redundant };
        }
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        self.send(view, rationale)
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        match event {
            Event::Acked { subflow, .. } => {
                if let Some(subflow) = view.subflows.get(subflow.index()) {
                    self.add_sample(subflow, view.now);
                }
            }
            Event::SubflowAdded(subflow) => {
                if let Some(prediction) = self.predictions.get_mut(subflow.index()) {
                    *prediction = Prediction::default();
                }
            }
            _ => {}
        }
    }

    fn repeats(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, run, set_rtt, subflow};
    use super::*;
    use crate::testing::WithoutSender as _;

    fn raven() -> Raven {
        Raven {
            lambda: 256e6,
            lower: 0.36,
            upper: 0.61,
            predictions: [Prediction::default(); MAX_SUBFLOWS],
            copies: None,
        }
    }

    #[test]
    fn samples_weigh_by_their_age() {
        let mut raven = raven();
        let mut subflow = subflow(0, 100, 10, 0);
        raven.add_sample(&subflow, Time::ZERO);
        set_rtt(&mut subflow, 200 * MILLISECOND);
        raven.add_sample(&subflow, Time::ZERO + 256 * MILLISECOND);
        let weight = libm::exp(-1.0);
        let mean = (100e6 * weight + 200e6) / (weight + 1.0);
        let interval = raven.interval(&subflow, Time::ZERO + 256 * MILLISECOND);
        assert!((interval.mean - mean).abs() < 1.0, "{interval:?}");
        assert!((interval.low - 0.64 * mean).abs() < 1.0 && (interval.high - 1.61 * mean).abs() < 1.0);
    }

    #[test]
    fn the_interval_widens_as_the_authors_table_does() {
        // mptcp_raven_stale_table.h, D1_1, by the second.
        for (second, table) in [(1, 1.0), (2, 1.37), (3, 1.61), (4, 1.79), (5, 1.93), (7, 2.12), (10, 2.25)] {
            let own = ageing(second * SECOND);
            assert!((own / table - 1.0).abs() < 0.12, "{second} s: {own} {table}");
        }
        assert!(ageing(1000 * SECOND) < 2.81, "2.8 in the end");
    }

    #[test]
    fn both_sides_of_the_overlap() {
        // 100 ms: [64, 161]. 0.64 of 251.5 ms is 161.
        let scene = |second: u64| Scene::new(vec![subflow(0, 100, 10, 0), subflow(1, second, 10, 0)]);
        let targets = |scene: &Scene| {
            let mut raven = raven();
            raven.send(&scene.view(), &mut Rationale::default());
            raven.copies.unwrap().1
        };
        assert_eq!(targets(&scene(251)), 0b10, "the other repeats it");
        assert_eq!(targets(&scene(252)), 0);
        // The best is the one whose interval begins first; the order doesn't matter.
        let reversed = Scene::new(vec![subflow(0, 251, 10, 0), subflow(1, 100, 10, 0)]);
        assert_eq!((reversed.chosen(&mut raven()), targets(&reversed)), (Some(1), 0b01));
    }

    #[test]
    fn a_full_target_gets_no_copy_and_without_any_target_it_is_minrtt() {
        let mut scene =
            Scene::new(vec![subflow(0, 100, 10, 0), subflow(1, 110, 10, 10), subflow(2, 900, 10, 0)]);
        let mut own = raven();
        assert_eq!(scene.chosen(&mut own), Some(0));
        assert_eq!(own.copies.unwrap().1, 0);
        scene.subflows[0].set_packets_out(10);
        assert_eq!(scene.chosen(&mut raven()), Some(2));
    }

    #[test]
    fn staleness_brings_redundancy_back() {
        let mut own = raven();
        let mut scene = Scene::new(vec![subflow(0, 100, 10, 0), subflow(1, 300, 10, 0)]);
        own.add_sample(&scene.subflows[0], Time::ZERO);
        own.add_sample(&scene.subflows[1], Time::ZERO);
        scene.chosen(&mut own);
        assert_eq!(own.copies.unwrap().1, 0, "[64, 161] and [192, 483]");
        scene.now = Time::ZERO + 3 * SECOND;
        own.copies = None;
        scene.chosen(&mut own);
        assert_eq!(own.copies.unwrap().1, 0b10, "[43, 197] and [129, 591] after three seconds of silence");
    }

    #[test]
    fn unlike_redundant_it_leaves_a_slow_subflow_alone() {
        let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
        let done = run("raven", &pipes, 8);
        assert_eq!((done.bytes_on(0), done.bytes_on(1)), (8000, 0));
        let alike = [Pipe::new(10, 10), Pipe::new(12, 10)];
        let done = run("raven", &alike, 8);
        assert_eq!((done.bytes_on(0), done.bytes_on(1)), (8000, 8000), "each twice");
        assert_eq!(done.completed, Some(Time::ZERO + 5 * MILLISECOND));
    }
}
