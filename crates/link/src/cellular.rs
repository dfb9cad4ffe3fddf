//! Traces of cellular links, made rather than recorded, so that a scenario needs no data files. The model:
//!
//! - The logarithm of the rate is a first-order autoregressive process, stepped every millisecond and
//!   stationary from the start: `x' = a x + sqrt(1 - a^2) z`, z standard normal,
//!   `a = exp(-1 ms / coherence)`; the rate is proportional to `exp(sigma x)`. Lognormal marginals and an
//!   exponential autocorrelation are the usual model of slow fading (Gudmundson, "Correlation Model for
//!   Shadow Fading in Mobile Radio Systems", Electronics Letters 27, 1991); what a cell's other users take is
//!   folded into it.
//! - Outages (handovers, dead spots) come as an alternating renewal process: exponential times between them,
//!   exponential lengths; the rate is 0 meanwhile.
//! - The whole is scaled so that the trace's mean, outages included, is exactly the mean asked for (to one
//!   opportunity): runs with different seeds differ in when capacity comes, not in how much.

use ropewalk_time::{MILLISECOND, SECOND, Span};

use crate::jitter::normal_quantile;
use crate::random::{Purpose, Stream};
use crate::spec::RateTrace;
use crate::trace::OPPORTUNITY_BYTES;

/// The parameters of a made trace.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cellular {
    /// Mean rate over the trace, outages included, bits per second.
    pub mean_bps: u64,
    /// Standard deviation of the rate's natural logarithm: 0 is a constant rate, 0.7 a factor of two either
    /// way.
    pub sigma: f64,
    /// The time over which the rate's logarithm loses all but 1/e of its correlation.
    pub coherence: Span,
    /// Mean time from an outage's end to the next; `None`: no outages.
    pub outage_every: Option<Span>,
    /// Mean length of an outage.
    pub outage_length: Span,
}

impl Cellular {
    /// LTE, standing still: the rate varies by half either way over a second or so.
    pub fn stationary(mean_bps: u64) -> Self {
        Cellular { mean_bps, sigma: 0.4, coherence: SECOND, outage_every: None, outage_length: Span::ZERO }
    }

    /// LTE, walking: deeper and faster fades, a short interruption every half minute.
    pub fn walking(mean_bps: u64) -> Self {
        Cellular {
            mean_bps,
            sigma: 0.7,
            coherence: 500 * MILLISECOND,
            outage_every: Some(30 * SECOND),
            outage_length: 100 * MILLISECOND,
        }
    }

    /// LTE, driving: a factor of two or three either way, a handover of half a second every fifteen.
    pub fn driving(mean_bps: u64) -> Self {
        Cellular {
            mean_bps,
            sigma: 0.9,
            coherence: 300 * MILLISECOND,
            outage_every: Some(15 * SECOND),
            outage_length: 500 * MILLISECOND,
        }
    }
}

/// Longest trace, seconds: its milliseconds fit a line's number.
const MAX_SECONDS: u32 = 4_000_000;
/// Most opportunities in a trace, whatever the rate asked for: 80 MB of numbers.
const MAX_OPPORTUNITIES: u128 = 20_000_000;

impl RateTrace {
    /// A trace of `seconds` (at least 1) by the model, the same for the same arguments.
    ///
    /// Parameters that are no numbers, or negative, count as 0; the trace has one opportunity at least, at
    /// its end, and 20 million at most.
    pub fn cellular(model: &Cellular, seed: u64, seconds: u32) -> Self {
        let milliseconds = seconds.clamp(1, MAX_SECONDS) * 1000;
        let shape = rate_shape(model, seed, milliseconds);
        let bits = u128::from(model.mean_bps) * u128::from(milliseconds) / 1000;
        let total = (bits / (u128::from(OPPORTUNITY_BYTES) * 8)).clamp(1, MAX_OPPORTUNITIES) as u32;

        let sum: f64 = shape.iter().sum();
        let mut opportunities = Vec::with_capacity(total as usize);
        let mut cumulative = 0.0;
        for (millisecond, rate) in (1u32..).zip(&shape) {
            cumulative += rate;
            // The last opportunity is kept for the end, which makes the period what was asked for.
            let reached = ((cumulative / sum * f64::from(total)) as u32).min(total - 1);
            while (opportunities.len() as u32) < reached {
                opportunities.push(millisecond);
            }
        }
        while (opportunities.len() as u32) < total {
            opportunities.push(milliseconds);
        }
        let name = format!(
            "cellular({} bit/s, sigma {}, coherence {} ms, seed {seed}, {} s)",
            model.mean_bps,
            model.sigma,
            model.coherence.as_millis(),
            milliseconds / 1000
        );
        RateTrace::new(name, opportunities)
    }
}

/// The rate in each millisecond, to a common factor.
fn rate_shape(model: &Cellular, seed: u64, milliseconds: u32) -> Vec<f64> {
    let mut fading = Stream::new(seed, 0, Purpose::Trace);
    let mut outages = Stream::new(seed, 1, Purpose::Trace);
    let coherence_ms = (model.coherence.as_millis_f64()).max(1e-3);
    let keep = libm::exp(-1.0 / coherence_ms);
    let renew = (1.0 - keep * keep).sqrt();
    // More than this and exp() leaves the range of numbers; NaN becomes 0.
    let sigma = if model.sigma > 0.0 { model.sigma.min(10.0) } else { 0.0 };

    let mut x = normal_quantile(fading.unit());
    let mut out = false;
    let mut next_switch = model.outage_every.map(|mean| exponential(&mut outages, mean));
    (0..milliseconds)
        .map(|millisecond| {
            while let (Some(every), Some(switch)) = (model.outage_every, next_switch)
                && switch <= f64::from(millisecond)
            {
                out = !out;
                let mean = if out { model.outage_length } else { every };
                next_switch = Some(switch + exponential(&mut outages, mean));
            }
            let rate = if out { 0.0 } else { libm::exp(sigma * x) };
            x = keep * x + renew * normal_quantile(fading.unit());
            rate
        })
        .collect()
}

/// Exponentially distributed milliseconds.
fn exponential(stream: &mut Stream, mean: Span) -> f64 {
    // A millionth of a millisecond at least: a loop over such times ends.
    (-libm::log(stream.unit()) * mean.as_millis_f64()).max(1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opportunities in each `bin_ms`.
    fn bins(trace: &RateTrace, bin_ms: u32) -> Vec<f64> {
        let mut bins = vec![0.0; trace.period().as_millis() as usize / bin_ms as usize];
        for at in trace.opportunities() {
            bins[((at - 1) / bin_ms) as usize] += 1.0;
        }
        bins
    }

    #[test]
    fn the_mean_is_what_was_asked_for() {
        for model in
            [Cellular::stationary(20_000_000), Cellular::walking(7_000_000), Cellular::driving(3_000_000)]
        {
            for seed in 0..5 {
                let trace = RateTrace::cellular(&model, seed, 60);
                assert_eq!(trace.period(), 60 * SECOND);
                assert!(trace.mean_rate().abs_diff(model.mean_bps) <= 200, "{}", trace.mean_rate());
                assert_eq!(RateTrace::parse(&trace.name, &trace.to_text()), Ok(trace));
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_trace() {
        let trace = |seed| RateTrace::cellular(&Cellular::driving(5_000_000), seed, 10);
        assert_eq!(trace(1), trace(1));
        assert_ne!(trace(1), trace(2));
    }

    #[test]
    fn no_variation_is_a_constant_rate() {
        let model = Cellular { sigma: 0.0, ..Cellular::stationary(12_000_000) };
        let trace = RateTrace::cellular(&model, 1, 2);
        assert_eq!(trace.len(), 2000);
        assert!((1u32..).zip(trace.opportunities()).all(|(i, at)| at.abs_diff(i) <= 1));
    }

    #[test]
    fn the_logarithm_of_the_rate_has_its_deviation_and_correlation() {
        let model =
            Cellular { sigma: 0.5, coherence: 400 * MILLISECOND, ..Cellular::stationary(1_200_000_000) };
        let trace = RateTrace::cellular(&model, 3, 180);
        let logs: Vec<f64> = bins(&trace, 10).iter().map(|&n| libm::log(n.max(0.5))).collect();
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let variance = logs.iter().map(|l| (l - mean) * (l - mean)).sum::<f64>() / n;
        assert!((variance.sqrt() / 0.5 - 1.0).abs() < 0.15, "{}", variance.sqrt());
        // 40 bins are one coherence time.
        let pairs = logs.iter().zip(&logs[40..]);
        let correlation = pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / (n - 40.0) / variance;
        assert!((correlation - libm::exp(-1.0)).abs() < 0.1, "{correlation}");
    }

    #[test]
    fn outages_take_their_share() {
        let model = Cellular {
            sigma: 0.0,
            outage_every: Some(2 * SECOND),
            outage_length: 500 * MILLISECOND,
            ..Cellular::stationary(120_000_000)
        };
        let bins = bins(&RateTrace::cellular(&model, 9, 1000), 1);
        let dark = bins.iter().filter(|&&n| n == 0.0).count() as f64 / bins.len() as f64;
        // 0.5 of every 2.5 s.
        assert!((dark - 0.2).abs() < 0.035, "{dark}");
    }

    #[test]
    fn absurd_parameters_still_give_a_trace() {
        let absurd = Cellular {
            mean_bps: u64::MAX,
            sigma: f64::NAN,
            coherence: Span::ZERO,
            outage_every: Some(Span::from_nanos(1)),
            outage_length: Span::MAX,
        };
        let trace = RateTrace::cellular(&absurd, 0, 0);
        assert_eq!((trace.period(), trace.len()), (SECOND, 20_000_000));
        let nothing = Cellular { mean_bps: 0, sigma: -1.0, ..absurd };
        assert_eq!(RateTrace::cellular(&nothing, 0, 1).opportunities().collect::<Vec<_>>(), [1000]);
    }
}
