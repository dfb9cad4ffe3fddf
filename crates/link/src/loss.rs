//! Random loss: independent (Bernoulli), or in bursts (Gilbert, BSTJ 1960; Elliott, BSTJ 1963; in the form of
//! netem's `loss gemodel`). A packet is lost by the probability of the state the chain is in, then the chain
//! steps. Unlike netem, which starts in the good state, the chain starts in its stationary distribution: a
//! short transfer then sees the same expected loss as a long one.

use crate::random::{Chance, Stream};
use crate::spec::Loss;

/// Draws the losses of a link.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    stream: Stream,
    model: Model,
}

#[derive(Clone, Copy, Debug)]
enum Model {
    Independent(Chance),
    Chain { bad: bool, leave_good: Chance, leave_bad: Chance, lost_good: Chance, lost_bad: Chance },
}

impl LossProcess {
    pub(crate) fn new(loss: Loss, stream: Stream) -> Self {
        let mut process = LossProcess { stream, model: Model::Independent(Chance::Never) };
        process.set(loss);
        process
    }

    /// Sets the model from the next packet on. The stream of draws continues.
    pub(crate) fn set(&mut self, loss: Loss) {
        self.model = match loss {
            Loss::None => Model::Independent(Chance::Never),
            Loss::Bernoulli(probability) => Model::Independent(Chance::new(probability)),
            Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => Model::Chain {
                // Begun in the good state, a short transfer would lose less than the mean.
                bad: Chance::new(stationary_bad(to_bad, to_good)).happens(&mut self.stream),
                leave_good: Chance::new(to_bad),
                leave_bad: Chance::new(to_good),
                lost_good: Chance::new(loss_good),
                lost_bad: Chance::new(loss_bad),
            },
        };
    }

    /// Whether no packet is lost, ever.
    pub(crate) fn never(&self) -> bool {
        matches!(self.model, Model::Independent(Chance::Never))
    }

    /// Whether the next packet is lost.
    #[inline]
    pub(crate) fn draw(&mut self) -> bool {
        match &mut self.model {
            Model::Independent(chance) => chance.happens(&mut self.stream),
            Model::Chain { bad, leave_good, leave_bad, lost_good, lost_bad } => {
                let (lost, leave) = if *bad { (*lost_bad, *leave_bad) } else { (*lost_good, *leave_good) };
                let lost = lost.happens(&mut self.stream);
                *bad ^= leave.happens(&mut self.stream);
                lost
            }
        }
    }
}

/// Share of packets that find the chain in the bad state in the long run.
fn stationary_bad(to_bad: f64, to_good: f64) -> f64 {
    let (to_bad, to_good) = (to_bad.clamp(0.0, 1.0), to_good.clamp(0.0, 1.0));
    // A chain that never moves is taken to be good for ever.
    if to_bad + to_good > 0.0 { to_bad / (to_bad + to_good) } else { 0.0 }
}

impl Loss {
    /// The share of packets lost in the long run, 0 to 1.
    pub fn mean(&self) -> f64 {
        match *self {
            Loss::None => 0.0,
            Loss::Bernoulli(probability) => probability.clamp(0.0, 1.0),
            Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                let bad = stationary_bad(to_bad, to_good);
                bad * loss_bad.clamp(0.0, 1.0) + (1.0 - bad) * loss_good.clamp(0.0, 1.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    fn process(loss: Loss, seed: u64) -> LossProcess {
        LossProcess::new(loss, Stream::new(seed, 0, Purpose::Loss))
    }

    #[test]
    fn bernoulli_loses_its_share() {
        let mut process = process(Loss::Bernoulli(0.01), 3);
        let n = 1_000_000;
        let lost = (0..n).filter(|_| process.draw()).count() as f64;
        // Standard deviation of the count: sqrt(n p (1 - p)) = 99.5.
        assert!((lost - 10_000.0).abs() < 4.0 * 99.5, "{lost}");
    }

    #[test]
    fn nothing_and_everything() {
        assert!((0..1000).all(|_| !process(Loss::None, 1).draw()));
        assert!((0..1000).all(|_| !process(Loss::Bernoulli(0.0), 1).draw()));
        assert!((0..1000).all(|_| process(Loss::Bernoulli(1.0), 1).draw()));
    }

    #[test]
    fn gilbert_elliott_has_its_stationary_loss_and_burst_length() {
        let loss = Loss::GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_good: 0.001, loss_bad: 1.0 };
        let mut process = process(loss, 5);
        let n = 2_000_000;
        let (mut lost, mut bursts, mut previous) = (0u32, 0u32, false);
        for _ in 0..n {
            let now = process.draw();
            lost += u32::from(now);
            bursts += u32::from(now && !previous);
            previous = now;
        }
        let share = f64::from(lost) / f64::from(n);
        // 0.01 / 0.26 of the packets meet the bad state: 3.846 % + 0.096 %.
        assert!((share / loss.mean() - 1.0).abs() < 0.03, "{share} {}", loss.mean());
        // Losses of the bad state come in bursts of mean 1 / to_good = 4; lone losses of the good state
        // shorten it.
        let length = f64::from(lost) / f64::from(bursts);
        assert!((3.5..4.1).contains(&length), "{length}");
    }

    #[test]
    fn the_chain_starts_stationary() {
        let loss = Loss::GilbertElliott { to_bad: 0.001, to_good: 0.003, loss_good: 0.0, loss_bad: 1.0 };
        let first: u32 = (0..4000).map(|seed| u32::from(process(loss, seed).draw())).sum();
        // A quarter of the starts are bad; standard deviation 27.
        assert!((1000i32 - first as i32).abs() < 110, "{first}");
    }
}
