//! The axis of a figure's values: logarithmic for what is compared by ratios, with a place of its own for
//! zero; linear for changes.

/// An axis: which values, and how many units of the drawing it is long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Axis {
    kind: Kind,
    length: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// Logarithms to the base of ten; below it a line for zero, if there is one to show.
    Log {
        bottom: f64,
        top: f64,
        zero: bool,
    },
    Linear {
        bottom: f64,
        top: f64,
    },
}

/// Room between zero and the least other value on a logarithmic axis.
const ZERO: f64 = 24.0;
/// Ticks that a reader needs to tell a value.
const FEWEST: usize = 4;
/// Ticks closer than this have labels that touch.
const CLOSEST: f64 = 13.0;

impl Axis {
    /// An axis for these values; none if a logarithmic one has nothing above zero.
    pub(super) fn of(values: &[f64], linear: bool, length: f64) -> Option<Axis> {
        let values = || values.iter().copied().filter(|value| value.is_finite());
        let (least, most) = values()
            .filter(|value| linear || *value > 0.0)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if least > most {
            return None;
        }
        let kind = if linear {
            let margin = ((most - least) * 0.06).max(most.abs() * 0.02).max(1e-3);
            Kind::Linear { bottom: least - margin, top: most + margin }
        } else {
            let (bottom, top) = (libm::log10(least), libm::log10(most));
            let margin = ((top - bottom) * 0.06).max(0.01);
            Kind::Log { bottom: bottom - margin, top: top + margin, zero: values().any(|value| value <= 0.0) }
        };
        Some(Axis { kind, length })
    }

    /// How far above its lower end a value is.
    pub(super) fn height(&self, value: f64) -> f64 {
        match self.kind {
            Kind::Linear { bottom, top } => {
                self.length * (value.clamp(bottom, top) - bottom) / (top - bottom)
            }
            Kind::Log { zero: true, .. } if value <= 0.0 => 0.0,
            Kind::Log { bottom, top, zero } => {
                let below = if zero { ZERO } else { 0.0 };
                let log = if value > 0.0 { libm::log10(value).clamp(bottom, top) } else { bottom };
                below + (self.length - below) * (log - bottom) / (top - bottom)
            }
        }
    }

    /// Values with a line and a label: the coarsest round ones of which there are enough.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let (from, to) = match self.kind {
            Kind::Linear { bottom, top } => (bottom, top),
            Kind::Log { bottom, top, .. } => (libm::pow(10.0, bottom), libm::pow(10.0, top)),
        };
        let zero = matches!(self.kind, Kind::Log { zero: true, .. });
        let logs: &[&[f64]] = if matches!(self.kind, Kind::Log { .. }) {
            &[&[1.0], &[1.0, 2.0, 5.0], &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0]]
        } else {
            &[]
        };
        let sets = logs.iter().map(|digits| self.apart(of_digits(digits, from, to)));
        let mut found = sets.into_iter().find(|set| set.len() >= FEWEST).unwrap_or_default();
        // Over a narrow range equal steps are as good on a logarithmic axis.
        let mut step = libm::pow(10.0, libm::ceil(libm::log10(to - from)));
        let digits = [0.5, 0.4, 0.5].iter().cycle();
        for digit in digits.take(9) {
            if found.len() >= FEWEST {
                break;
            }
            found = self.apart(multiples(step, from, to));
            step *= digit;
        }
        if zero {
            found.insert(0, 0.0);
        }
        found
    }

    /// Leaves out ticks whose labels would overlap the one before.
    fn apart(&self, ticks: Vec<f64>) -> Vec<f64> {
        let mut kept: Vec<f64> = Vec::new();
        for tick in ticks {
            if kept.last().is_none_or(|last| self.height(tick) - self.height(*last) >= CLOSEST) {
                kept.push(tick);
            }
        }
        kept
    }
}

/// To ten significant digits: without what a power of ten or a product adds.
fn rounded(value: f64) -> f64 {
    format!("{value:.9e}").parse().unwrap_or(value)
}

/// These digits times powers of ten.
fn of_digits(digits: &[f64], from: f64, to: f64) -> Vec<f64> {
    let powers = libm::floor(libm::log10(from)) as i32..=libm::ceil(libm::log10(to)) as i32;
    let all =
        powers.flat_map(|power| digits.iter().map(move |digit| digit * libm::pow(10.0, f64::from(power))));
    all.filter(|value| (from..=to).contains(value)).map(rounded).collect()
}

/// Multiples of a step.
fn multiples(step: f64, from: f64, to: f64) -> Vec<f64> {
    let (first, last) = (libm::ceil(from / step) as i64, libm::floor(to / step) as i64);
    (first..=last).map(|number| rounded(number as f64 * step)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A figure with one labelled line, such as that of 3.6 to 6.2 s, can't be read.
    #[test]
    fn every_axis_has_enough_ticks_and_they_are_apart() {
        for least in [0.00123, 0.094, 0.97, 3.6, 470.0] {
            for ratio in [1.0, 1.03, 1.2, 1.7, 2.5, 4.0, 9.0, 30.0, 1e3, 1e6] {
                for linear in [false, true] {
                    let axis = Axis::of(&[least, least * ratio], linear, 230.0).unwrap();
                    let ticks = axis.ticks();
                    assert!((FEWEST..=17).contains(&ticks.len()), "{least} to {}: {ticks:?}", least * ratio);
                    let near = |pair: &[f64]| axis.height(pair[1]) - axis.height(pair[0]) < CLOSEST - 1e-6;
                    assert!(!ticks.windows(2).any(near), "{least} to {}: {ticks:?}", least * ratio);
                }
            }
        }
    }

    #[test]
    fn ticks_are_round() {
        let ticks = |low: f64, high: f64, linear| Axis::of(&[low, high], linear, 230.0).unwrap().ticks();
        assert_eq!(ticks(3.6, 6.2, false), [3.5, 4.0, 4.5, 5.0, 5.5, 6.0]);
        assert_eq!(ticks(0.1, 120.0, false), [0.1, 1.0, 10.0, 100.0]);
        assert_eq!(ticks(1.1, 26.0, false), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(ticks(-24.0, 8.0, true), [-25.0, -20.0, -15.0, -10.0, -5.0, 0.0, 5.0]);
    }

    /// Zero has no logarithm: left out, a line would lead past it to the next value.
    #[test]
    fn zero_has_its_own_place_below_the_others() {
        let axis = Axis::of(&[0.0, 0.1, 10.0], false, 230.0).unwrap();
        assert_eq!(axis.height(0.0), 0.0);
        assert!(axis.height(0.1) >= ZERO && axis.height(10.0) < 230.0);
        assert_eq!(axis.ticks().first(), Some(&0.0));
        let without = Axis::of(&[0.1, 10.0], false, 230.0).unwrap();
        assert!(without.height(0.1) < ZERO);
        assert_eq!(Axis::of(&[0.0], false, 230.0), None);
        assert_eq!(Axis::of(&[], true, 230.0), None);
    }

    #[test]
    fn changes_go_both_ways() {
        let axis = Axis::of(&[-20.0, 20.0], true, 200.0).unwrap();
        assert!((axis.height(0.0) - 100.0).abs() < 1e-9);
        assert!(axis.height(-20.0) < axis.height(0.0));
    }
}
