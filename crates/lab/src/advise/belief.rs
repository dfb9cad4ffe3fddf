//! What is known of the paths, and how well: each quantity is a value and the standard deviation of its
//! logarithm. Worlds are drawn from it by a Latin hypercube in the normal quantiles, so that few worlds cover
//! it evenly.
//!
//! Defaults for what is only stated, not measured: rate 0.2 (a fifth up or down), round-trip time 0.15, loss
//! and queue 0.7 (a factor of two).

use std::sync::Arc;

use rand_core::Rng;
use rand_pcg::Pcg64;
use ropewalk_link::{LinkSpec, Loss, Queue, Rate};
use ropewalk_sim::{PathSpec, Scenario};

use crate::stats;

/// How well a path is known: standard deviations of logarithms.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Doubt {
    /// Of the rates upwards and downwards.
    pub rate: [f64; 2],
    /// Which of the rates may be much more than that: nothing shows that the link was full.
    pub open_above: [bool; 2],
    /// Of the round-trip time.
    pub rtt: f64,
    /// Of the loss.
    pub loss: f64,
    /// Of the queue's limit.
    pub queue: f64,
}

impl Default for Doubt {
    fn default() -> Self {
        Doubt { rate: [0.2; 2], open_above: [false; 2], rtt: 0.15, loss: 0.7, queue: 0.7 }
    }
}

/// Quantities of a path that are drawn.
pub const QUANTITIES: usize = 4;

/// In [0, 1).
pub(super) fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// `count` worlds around a scenario.
pub fn worlds(scenario: &Scenario, doubts: &[Doubt], count: usize, seed: u64) -> Vec<Arc<Scenario>> {
    let dimensions = scenario.paths.len() * (QUANTITIES + 1);
    let strata: Vec<Vec<usize>> = (0..dimensions)
        .map(|dimension| {
            let mut random = Pcg64::new(u128::from(seed), 0xad51 + 2 * dimension as u128);
            let mut order: Vec<usize> = (0..count).collect();
            for last in (1..count).rev() {
                order.swap(last, (uniform(&mut random) * (last + 1) as f64) as usize);
            }
            order
        })
        .collect();
    (0..count)
        .map(|world| {
            let mut random = Pcg64::new(u128::from(seed) << 64 | world as u128, 0xad50);
            let mut draw = |dimension: usize| {
                (strata[dimension][world] as f64 + uniform(&mut random).max(1e-6)) / count as f64
            };
            let mut copy = scenario.clone();
            for (index, (path, doubt)) in copy.paths.iter_mut().zip(doubts).enumerate() {
                let first = index * (QUANTITIES + 1);
                let normal = [0, 1, 2, 3].map(|quantity| stats::normal_quantile(draw(first + quantity)));
                perturb(path, doubt, normal, draw(first + QUANTITIES));
            }
            Arc::new(copy)
        })
        .collect()
}

/// Moves a path by these standard normal draws (rate, round-trip time, loss, queue); a trace starts at
/// `phase`.
pub fn perturb(path: &mut PathSpec, doubt: &Doubt, normal: [f64; QUANTITIES], phase: f64) {
    let rates = doubt.rate.map(|sd| libm::exp(sd * normal[0]));
    let rtt = libm::exp(doubt.rtt * normal[1]);
    let queue = libm::exp(doubt.queue * normal[3]);
    let loss = libm::exp(doubt.loss * normal[2]);
    for (link, rate) in [&mut path.up, &mut path.down].into_iter().zip(rates) {
        scale_rate(link, rate, phase);
        scale_delay(link, rtt);
        scale_queue(link, queue);
        link.loss = scaled_loss(link.loss, loss);
    }
}

/// Multiplies a link's rate; a trace starts at `phase` of its period.
pub fn scale_rate(link: &mut LinkSpec, factor: f64, phase: f64) {
    match &link.rate {
        Rate::Constant(u64::MAX) => {}
        Rate::Constant(rate) => link.rate = Rate::Constant(((*rate as f64 * factor) as u64).max(1000)),
        Rate::Trace(trace) => link.rate = Rate::Trace(Arc::new(trace.moved(factor, phase))),
    }
}

/// Multiplies a link's delay and jitter.
pub fn scale_delay(link: &mut LinkSpec, factor: f64) {
    link.delay = link.delay.mul_f64(factor);
    if let Some(jitter) = &mut link.jitter {
        jitter.spread = jitter.spread.mul_f64(factor);
    }
}

fn scale_queue(link: &mut LinkSpec, factor: f64) {
    match &mut link.queue {
        Queue::Packets { limit, .. } => *limit = ((f64::from(*limit) * factor) as u32).max(2),
        Queue::Bytes { limit, .. } => *limit = ((*limit as f64 * factor) as u64).max(3000),
        Queue::CoDel { .. } => {}
    }
}

/// A loss with its long-run share multiplied.
pub fn scaled_loss(loss: Loss, factor: f64) -> Loss {
    match loss {
        Loss::None => Loss::None,
        Loss::Bernoulli(p) => Loss::Bernoulli((p * factor).min(0.5)),
        Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => Loss::GilbertElliott {
            to_bad: (to_bad * factor).min(1.0),
            to_good,
            loss_good: (loss_good * factor).min(1.0),
            loss_bad,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        let path = |text| crate::scenario::path(text).unwrap();
        crate::scenario::default_around(vec![
            path("wifi: 50 Mbit/s, 20 ms, 1 %"),
            path("lte: 20 Mbit/s, 60 ms +-10 ms"),
        ])
    }

    fn rate(world: &Scenario, path: usize) -> f64 {
        match &world.paths[path].down.rate {
            Rate::Constant(rate) => *rate as f64,
            Rate::Trace(_) => f64::NAN,
        }
    }

    #[test]
    fn worlds_are_spread_as_the_doubts_say() {
        let scenario = scenario();
        let found = worlds(&scenario, &[Doubt::default(); 2], 400, 7);
        let logs: Vec<f64> = found.iter().map(|world| libm::log(rate(world, 0) / 50e6)).collect();
        assert!(stats::mean(&logs).abs() < 0.005);
        assert!((stats::standard_deviation(&logs) - 0.2).abs() < 0.005);
        let delays: Vec<f64> =
            found.iter().map(|world| libm::log(world.paths[1].down.delay.as_nanos() as f64 / 30e6)).collect();
        assert!((stats::standard_deviation(&delays) - 0.15).abs() < 0.005);
        // Both directions move together, and what isn't doubted stays.
        for world in &found {
            assert_eq!(world.paths[0].up.delay, world.paths[0].down.delay);
            assert_eq!(world.paths[1].down.loss, Loss::None);
        }
        let again = worlds(&scenario, &[Doubt::default(); 2], 400, 7);
        assert_eq!(found, again);
    }
}
