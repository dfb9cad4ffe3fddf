//! What measurements make likely: loss after what was counted and retransmitted, and rates of which only the
//! least is known.

use ropewalk_link::Loss;

use super::Counted;

/// What was stated of a path, or is taken of one of which only measurements are known: median of its loss and
/// the standard deviation of the logarithm. Paths lose little: 95 % below 0.6 %.
pub(super) const USUAL_LOSS: (f64, f64) = (0.0005, 1.5);

/// Two sources joined, each a value and the standard deviation of its logarithm: weighted by what each is
/// sure of.
pub(super) fn join(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let (wa, wb) = (1.0 / (a.1 * a.1), 1.0 / (b.1 * b.1));
    let log = (wa * libm::log(a.0) + wb * libm::log(b.0)) / (wa + wb);
    (libm::exp(log), 1.0 / libm::sqrt(wa + wb))
}

/// How many standard deviations a measurement and what is stated must be apart to contradict each other: by
/// chance they are once in eighty times.
const CONTRADICTS: f64 = 2.5;

/// How far apart two are, in standard deviations of their difference.
pub(super) fn apart(a: (f64, f64), b: (f64, f64)) -> f64 {
    libm::log(a.0 / b.0).abs() / libm::hypot(a.1, b.1)
}

/// Whether a measurement contradicts what is stated.
pub(super) fn contradicts(measured: (f64, f64), stated: (f64, f64)) -> bool {
    apart(measured, stated) > CONTRADICTS
}

/// Standard deviation of the logarithm of a rate of which only the least is known.
pub(super) const OPEN: f64 = 0.5;

/// What is stated, joined with a rate that it is at least: the normal distribution of the logarithm, cut off
/// below that.
pub(super) fn raised(stated: (f64, f64), least: f64) -> (f64, f64) {
    let z = (libm::log(least) - libm::log(stated.0)) / stated.1;
    if z < -3.0 {
        return stated;
    }
    // Far below what was measured, what is stated tells nothing.
    if z > 4.0 {
        return (least * libm::exp(0.15), stated.1.min(0.15));
    }
    let density = libm::exp(-z * z / 2.0) / libm::sqrt(2.0 * std::f64::consts::PI);
    let above = libm::erfc(z / std::f64::consts::SQRT_2) / 2.0;
    let hazard = density / above;
    let variance = 1.0 + z * hazard - hazard * hazard;
    (stated.0 * libm::exp(stated.1 * hazard), stated.1 * libm::sqrt(variance.max(0.01)))
}

/// What a transfer retransmitted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Repeated {
    /// Segments sent again.
    pub segments: u64,
    /// Of so many.
    pub sent: u64,
    /// Those of them that its own congestion is likely to have cost, in segments: a few per loss of the
    /// congestion window.
    pub congestion: f64,
}

impl Repeated {
    /// How likely that is with this loss. A part of the repeats is congestion's, and how large that part is
    /// isn't known: its density falls as 1 / (1 + part / congestion)^2. The rest is Poisson's.
    fn likelihood(&self, loss: f64) -> f64 {
        const STEPS: usize = 80;
        let expected = self.sent as f64 * loss;
        let all = self.segments as f64;
        // P(X <= k) of a Poisson's X, on the scale of square roots, where its variance is 1/4.
        let at_most = |k: f64| {
            let z = 2.0 * (libm::sqrt(k + 1.0) - libm::sqrt(expected));
            libm::erfc(-z / std::f64::consts::SQRT_2) / 2.0
        };
        let share = |part: f64| 1.0 - 1.0 / (1.0 + part / self.congestion);
        (0..STEPS)
            .map(|step| {
                // Steps grow with the distance from none.
                let part = |step: usize| (all + 1.0) * libm::pow(step as f64 / STEPS as f64, 2.0);
                let (from, to) = (part(step), part(step + 1));
                let own = (all - (from + to) / 2.0).max(0.0);
                let exactly = at_most(own) - at_most(own - 1.0);
                (share(to) - share(from)) * exactly
            })
            .sum()
    }
}

/// The loss after what was counted (lost, of so many) and what was retransmitted, of which a part is
/// congestion's: median and standard deviation of the logarithm. By summing over a grid of the logarithm.
pub(super) fn loss_after(prior: (f64, f64), counted: &[Counted], repeated: &[Repeated]) -> (f64, f64) {
    const STEPS: usize = 600;
    let (low, high) = (libm::log(1e-6), libm::log(0.5));
    let grid: Vec<f64> = (0..=STEPS).map(|i| low + (high - low) * i as f64 / STEPS as f64).collect();
    let weight = |log: f64| {
        let p = libm::exp(log);
        let off = (log - libm::log(prior.0)) / prior.1;
        let of_counts: f64 = counted
            .iter()
            .map(|of| {
                let share = if of.round_trip { p * (2.0 - p) } else { p };
                of.lost as f64 * libm::log(share) + (of.sent - of.lost) as f64 * libm::log1p(-share)
            })
            .sum();
        let of_repeats: f64 = repeated.iter().map(|one| libm::log(one.likelihood(p).max(1e-300))).sum();
        -off * off / 2.0 + of_counts + of_repeats
    };
    let logs: Vec<f64> = grid.iter().map(|log| weight(*log)).collect();
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logs.iter().map(|log| libm::exp(log - most)).collect();
    let sum: f64 = weights.iter().sum();
    let mean = grid.iter().zip(&weights).map(|(x, w)| x * w).sum::<f64>() / sum;
    let variance = grid.iter().zip(&weights).map(|(x, w)| (x - mean) * (x - mean) * w).sum::<f64>() / sum;
    (libm::exp(mean), libm::sqrt(variance))
}

/// The long-run share that a loss takes.
pub(in crate::advise) fn share(loss: &Loss) -> f64 {
    match *loss {
        Loss::None => 0.0,
        Loss::Bernoulli(p) => p,
        Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
            let bad = to_bad / (to_bad + to_good).max(1e-12);
            bad * loss_bad + (1.0 - bad) * loss_good
        }
    }
}

/// Several measurements of one quantity, each a value and the standard deviation of its logarithm: weighted
/// by what each is sure of. Where they are further apart than that allows, the result is as much less sure
/// (Birge's ratio); the second value says whether they contradict each other.
pub(super) fn combined(of: &[(f64, f64)]) -> Option<((f64, f64), bool)> {
    let (first, rest) = of.split_first()?;
    let (value, sd) = rest.iter().fold(*first, |all, one| join(all, *one));
    if rest.is_empty() {
        return Some(((value, sd), false));
    }
    let off = |one: &(f64, f64)| (libm::log(one.0) - libm::log(value)) / one.1;
    let square: f64 = of.iter().map(|one| off(one) * off(one)).sum();
    let ratio = libm::sqrt(square / rest.len() as f64).max(1.0);
    // Two that differ by less than a tenth agree well enough.
    let apart = of.iter().map(|one| (libm::log(one.0) - libm::log(value)).abs()).fold(0.0, f64::max);
    // The range must hold all of them.
    let sd = if ratio > 2.0 { (sd * ratio).max(apart / 1.645) } else { sd * ratio };
    Some(((value, sd), ratio > 2.0 && apart > 0.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_that_contradict_each_other_leave_more_open() {
        let ((value, sd), contradict) = combined(&[(40.0, 0.02), (90.0, 0.02)]).unwrap();
        assert!((value - 60.0).abs() < 0.1 && contradict, "{value} {sd}");
        assert!(value * libm::exp(-1.645 * sd) < 40.1 && value * libm::exp(1.645 * sd) > 89.9, "{sd}");
        let ((value, sd), contradict) = combined(&[(40.0, 0.05), (41.0, 0.05)]).unwrap();
        assert!((40.0..41.0).contains(&value) && sd < 0.05 && !contradict, "{value} {sd}");
        assert_eq!(combined(&[(3.0, 0.2)]), Some(((3.0, 0.2), false)));
        assert_eq!(combined(&[]), None);
    }
}
