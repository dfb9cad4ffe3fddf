//! `peekaboo`: learns whether to wait for the fast subflow or to send on the slow one.
//!
//! Source: Wu, Alay, Brunstrom, Ferlin, Caso, Peekaboo: Learning-Based Multipath Scheduling for Dynamic
//! Heterogeneous Environments, IEEE JSAC 38(10), 2020: Algorithms 1 (reward) and 2 (LinUCB), and the
//! stochastic adjustment with a given probability, from a reading of the paper that quotes them. The way in
//! which the paper finds that probability (a fit q, p_indiff by particle swarms, Algorithm 4's stages) isn't
//! quoted in full: it is left out.
//!
//! Rule: `minrtt` while the fastest subflow has room. Otherwise there are two actions: send on the slow
//! subflow, or wait. A contextual bandit learns their rewards. With the features of the fast (f) and slow (s)
//! subflow, in segments per ms,
//!
//! ```text
//! x = (CWND_f/RTT_f, InP_f/RTT_f, SWND/RTT_f, CWND_s/RTT_s, InP_s/RTT_s, SWND/RTT_s)
//! for each action a: A_a = I, b_a = 0 at first; theta_a = A_a^-1 b_a
//! choose the a with the greatest x theta_a + alpha sqrt(x A_a^-1 x); with probability 1 - p the other
//! afterwards: A_a += x x^T, b_a += R x
//! ```
//!
//! R is the discounted throughput of what is acknowledged afterwards: with T_ref = max(2 (RTT_f + sigma_f),
//! RTT_s + sigma_s), each new DATA_ACK within 3 T_ref adds gamma r, r the bytes it acknowledges over the time
//! since the decision (bytes per ms); gamma begins at 1 and falls by 0.9, 0.7 and 0.5 with each in the first,
//! second and third T_ref.
//!
//! Rulings: decisions are rewarded one at a time, in order; those taken while one is open don't learn, so
//! that a decision is O(subflows) and needs no memory per packet. A_a^-1 is updated in place (Sherman and
//! Morrison), which is the same. Features and rewards are divided by 100 segments per ms and 10^5 bytes per
//! ms, so that alpha means the same at all rates. An action that wasn't tried yet is tried first, waiting
//! before sending. A wait asks again after RTT_f at the latest, and there is none for a subflow that isn't
//! faster. The pseudo-random numbers of the stochastic adjustment are a function of `seed` and of how many
//! were drawn.
//!
//! Parameters: `alpha` (1; 0 to 10): weight of the confidence bound. `p` (0.9; 0 to 1): probability of the
//! action that the bandit prefers; 0.9 is what the paper takes where the fit is good. `seed` (1; 0 to
//! 1000000000): seeds the choice of the other. `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::minrtt::{minrtt_or_wait, send_on};
use super::text::Subflow;
use super::{Decision, Event, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Parameter};
use crate::{MILLISECOND, Span, Time};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "peekaboo",
    summary: "a bandit learns whether to wait for the fast subflow or to send on the slow one (in part)",
    source: "Wu et al., IEEE JSAC 38(10), 2020, Algorithms 1 and 2",
    parameters: &[
        Parameter::number("alpha", 1.0, (0.0, 10.0), "weight of the confidence bound"),
        Parameter::number("p", 0.9, (0.0, 1.0), "probability of the action that the bandit prefers"),
        Parameter::whole("seed", 1.0, (0.0, 1e9), "seeds the choice of the other action"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    // It would cost every comparison time.
    compared_by_default: false,
    ..Entry::of(|values| {
        let (alpha, p) = (values.number("alpha"), values.number("p"));
        with_mechanisms(
            values,
            Peekaboo { alpha, p, random: values.number("seed") as u64, ..Peekaboo::default() },
        )
    })
};

/// Dimension of the features.
const D: usize = 6;

/// One action's ridge regression.
#[derive(Clone, Copy, Debug)]
struct Arm {
    /// A^-1.
    inverse: [[f64; D]; D],
    b: [f64; D],
    tried: bool,
}

impl Default for Arm {
    fn default() -> Self {
        let mut inverse = [[0.0; D]; D];
        for (i, row) in inverse.iter_mut().enumerate() {
            row[i] = 1.0;
        }
        Arm { inverse, b: [0.0; D], tried: false }
    }
}

fn dot(one: &[f64; D], other: &[f64; D]) -> f64 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

impl Arm {
    /// A^-1 x.
    fn transformed(&self, x: &[f64; D]) -> [f64; D] {
        self.inverse.map(|row| dot(&row, x))
    }

    /// The expected reward, and its confidence bound.
    fn estimate(&self, x: &[f64; D]) -> (f64, f64) {
        let ax = self.transformed(x);
        (dot(&ax, &self.b), dot(&ax, x).max(0.0).sqrt())
    }

    /// A += x x^T, b += R x.
    fn learn(&mut self, x: &[f64; D], reward: f64) {
        let ax = self.transformed(x);
        let scale = 1.0 / (1.0 + dot(&ax, x));
        for (row, a) in self.inverse.iter_mut().zip(&ax) {
            for (value, b) in row.iter_mut().zip(&ax) {
                *value -= scale * a * b;
            }
        }
        for (value, x) in self.b.iter_mut().zip(x) {
            *value += reward * x;
        }
    }
}

/// A decision whose reward is being summed.
#[derive(Clone, Copy, Debug)]
struct Open {
    action: usize,
    x: [f64; D],
    at: Time,
    /// T_ref.
    reference: Span,
    una: u64,
    gamma: f64,
    reward: f64,
}

const WAIT: usize = 0;
const SEND: usize = 1;

#[derive(Debug, Default)]
struct Peekaboo {
    alpha: f64,
    p: f64,
    /// State of the generator (SplitMix64).
    random: u64,
    arms: [Arm; 2],
    open: Option<Open>,
}

/// Features of a subflow: its window, what is in flight, and the send window, in 100 segments per ms.
fn features(view: &View<'_>, subflow: &SubflowMetrics) -> [f64; 3] {
    let ms = subflow.rtt.smoothed.max(Span::from_nanos(1)).as_nanos() as f64 / MILLISECOND.as_nanos() as f64;
    let send_window = view.send_window.min(1 << 40) as f64 / f64::from(subflow.mss.max(1));
    let volumes = [f64::from(subflow.cwnd()), f64::from(subflow.in_flight()), send_window];
    volumes.map(|segments| segments / ms / 100.0)
}

impl Peekaboo {
    /// From 0 to 1.
    fn draw(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Adds what was acknowledged since to the open decision's reward (Algorithm 1), and closes it after 3
    /// T_ref.
    fn reward(&mut self, now: Time, una: u64) {
        let Some(open) = &mut self.open else { return };
        let elapsed = now.saturating_sub(open.at);
        if una > open.una && elapsed > Span::ZERO && elapsed < 3 * open.reference {
            let ms = elapsed.as_nanos() as f64 / MILLISECOND.as_nanos() as f64;
            open.reward += open.gamma * (una - open.una) as f64 / ms / 1e5;
            open.una = una;
            open.gamma *= match elapsed / open.reference.max(Span::from_nanos(1)) {
                0 => 0.9,
                1 => 0.7,
                _ => 0.5,
            };
        }
        if elapsed >= 3 * open.reference {
            let open = *open;
            self.arms[open.action].learn(&open.x, open.reward);
            self.open = None;
        }
    }

    fn decide(
        &mut self,
        view: &View<'_>,
        fast: &SubflowMetrics,
        slow: &SubflowMetrics,
        rationale: &mut Rationale,
    ) -> Decision {
        self.reward(view.now, view.una);
        if slow.rtt.smoothed <= fast.rtt.smoothed {
            return send_on(slow, rationale);
        }
        let (f, s) = (features(view, fast), features(view, slow));
        let x = [f[0], f[1], f[2], s[0], s[1], s[2]];
        let [wait, send] = [WAIT, SEND].map(|action| {
            let (reward, bound) = self.arms[action].estimate(&x);
            reward + self.alpha * bound
        });
        let preferred = match (self.arms[WAIT].tried, self.arms[SEND].tried) {
            (false, _) => WAIT,
            (true, false) => SEND,
            (true, true) if send > wait => SEND,
            (true, true) => WAIT,
        };
        let action = if self.draw() < self.p { preferred } else { 1 - preferred };
        if self.open.is_none() {
            let reference = (2 * (fast.rtt.smoothed + fast.rtt.var))
                .max(slow.rtt.smoothed.saturating_add(slow.rtt.var))
                .max(Span::from_nanos(1));
            self.arms[action].tried = true;
            let (at, una) = (view.now, view.una);
            self.open = Some(Open { action, x, at, reference, una, gamma: 1.0, reward: 0.0 });
        }
        rationale.say(|| {
            let (fast, slow) = (Subflow(fast.id), Subflow(slow.id));
            let what = if action == WAIT { "wait for" } else { "as well as" };
            format!("{slow}, {what} {fast}: sending promises {send:.3}, waiting {wait:.3}")
        });
        if action == SEND {
            return Decision::Send { subflow: slow.id, bytes: slow.mss };
        }
        Decision::Wait { until: Some(view.now.saturating_add(fast.rtt.smoothed.max(Span::from_nanos(1)))) }
    }
}

impl Scheduler for Peekaboo {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        minrtt_or_wait(view, rationale, |fast, slow, rationale| self.decide(view, fast, slow, rationale))
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        if event == Event::DataAcked {
            self.reward(view.now, view.una);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow};
    use super::*;
    use crate::testing::WithoutSender as _;

    #[test]
    fn the_inverse_is_that_of_the_sum_of_products() {
        let mut arm = Arm::default();
        let xs =
            [[1.0, 2.0, 0.5, 0.0, 1.0, 3.0], [0.2, 0.0, 1.0, 1.0, 0.0, 0.1], [2.0, 1.0, 0.0, 0.3, 0.4, 0.5]];
        let mut a = Arm::default().inverse;
        for x in &xs {
            arm.learn(x, 2.0);
            for i in 0..D {
                for j in 0..D {
                    a[i][j] += x[i] * x[j];
                }
            }
        }
        for (i, row) in a.iter().enumerate() {
            let product = arm.transformed(row);
            for (j, value) in product.iter().enumerate() {
                let expected = if i == j { 1.0 } else { 0.0 };
                assert!((value - expected).abs() < 1e-9, "{i} {j}: {value}");
            }
        }
    }

    #[test]
    fn an_arm_comes_to_expect_what_it_gets_and_to_be_sure_of_it() {
        let (mut arm, x) = (Arm::default(), [0.5, 0.1, 0.0, 0.2, 0.0, 0.3]);
        let before = arm.estimate(&x);
        for _ in 0..1000 {
            arm.learn(&x, 0.7);
        }
        let after = arm.estimate(&x);
        assert!((before.0, before.1 > 0.5) == (0.0, true), "{before:?}");
        assert!((after.0 - 0.7).abs() < 0.01 && after.1 < 0.05, "{after:?}");
    }

    #[test]
    fn rewards_are_discounted_as_algorithm_1_says() {
        let open = Open {
            action: SEND,
            x: [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            at: Time::ZERO,
            reference: 10 * MILLISECOND,
            una: 0,
            gamma: 1.0,
            reward: 0.0,
        };
        let mut peekaboo = Peekaboo { open: Some(open), ..Peekaboo::default() };
        let mut expected = 0.0;
        // 100 kB each at 5 and 8 ms, 15 ms and 25 ms: gamma 1, 0.9, 0.81, 0.567.
        for (n, (ms, gamma)) in [(5.0, 1.0), (8.0, 0.9), (15.0, 0.81), (25.0, 0.567)].into_iter().enumerate()
        {
            peekaboo.reward(Time::from_nanos((ms * 1e6) as u64), 100_000 * (n as u64 + 1));
            expected += gamma / ms;
        }
        assert!((peekaboo.open.unwrap().reward - expected).abs() < 1e-12);
        peekaboo.reward(Time::ZERO + 30 * MILLISECOND, 900_000);
        assert!(peekaboo.open.is_none(), "closed after 3 T_ref");
        assert!((peekaboo.arms[SEND].b[0] - expected).abs() < 1e-12, "what came then doesn't count");
    }

    /// f: 10 ms, full; s: 50 ms, free.
    fn scene() -> Scene {
        Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 50, 10, 0)])
    }

    #[test]
    fn it_tries_both_and_prefers_what_paid() {
        let peekaboo = &mut *build("peekaboo(p=1)");
        let mut scene = scene();
        scene.send_window = 100_000;
        let wait = Decision::Wait { until: Some(Time::ZERO + 10 * MILLISECOND) };
        assert_eq!(scene.ask(peekaboo), wait, "waiting first");
        // Waiting brings nothing, sending 100 kB each time.
        let mut chosen = Vec::new();
        for _ in 0..20 {
            scene.now += 200 * MILLISECOND;
            let action = scene.chosen(peekaboo);
            chosen.push(action);
            if action == Some(1) {
                scene.una += 100_000;
                scene.next_offset = scene.una;
                scene.now += 20 * MILLISECOND;
                peekaboo.on_event(&scene.view(), Event::DataAcked);
            }
        }
        assert!(chosen[0] == Some(1), "then sending");
        let sent = chosen.iter().filter(|action| **action == Some(1)).count();
        assert!(sent >= 17, "but for a look at the other now and then: {chosen:?}");
    }

    #[test]
    fn a_fast_subflow_with_room_takes_the_segment() {
        let mut scene = scene();
        scene.subflows[0].set_packets_out(9);
        assert_eq!(scene.chosen(&mut *build("peekaboo")), Some(0));
    }

    #[test]
    fn the_other_action_is_taken_as_often_as_p_says_and_as_the_seed_says() {
        let sent = |text: &str| {
            let peekaboo = &mut *build(text);
            (0..1000).map(|_| scene().chosen(peekaboo) == Some(1)).collect::<Vec<_>>()
        };
        let count = |text| sent(text).into_iter().filter(|sent| *sent).count();
        assert_eq!(
            count("peekaboo(p=1)"),
            999,
            "its first is open, so that nothing is learnt: sending is untried"
        );
        assert!((820..=980).contains(&count("peekaboo")), "{}", count("peekaboo"));
        assert_eq!(sent("peekaboo(seed=7)"), sent("peekaboo(seed=7)"));
        assert_ne!(sent("peekaboo(seed=7)"), sent("peekaboo(seed=8)"));
    }

    #[test]
    fn unlike_minrtt_it_sometimes_waits() {
        let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
        let first_on_slow = |text| {
            let done = run(text, &pipes, 200);
            done.placements.iter().find(|placement| placement.subflow == 1).map(|placement| placement.at)
        };
        assert_eq!(first_on_slow("minrtt"), Some(Time::ZERO));
        assert!(first_on_slow("peekaboo(p=1)") > Some(Time::ZERO), "the first decision is to wait");
    }
}
