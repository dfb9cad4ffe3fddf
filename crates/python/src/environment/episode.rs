//! One environment: a simulation that pauses at each decision, episode after episode.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use pyo3::PyResult;
use ropewalk_algorithms::policy::{CONNECTION, PATH};
use ropewalk_engine::registry::{Entry, Registry, Spec};
use ropewalk_engine::scheduler::{Mechanisms, Scheduler};
use ropewalk_engine::{Span, Time, testing};
use ropewalk_lab::objective;
use ropewalk_sim::{Outcome, RunSpec, World};

use super::external::{Exchange, External, Shared, lock};
use crate::errors;

/// What steps are rewarded by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reward {
    /// Minus the time since the last decision, seconds: an episode's sum is minus its completion time.
    Completion,
    /// Payload delivered since the last decision, Mbit.
    Goodput,
    /// At the end of an episode minus the sum of its frames' delays, seconds.
    FrameDelay,
    /// As completion, and minus what the bytes sent on each path cost, in seconds per 10^6 bytes.
    Cost,
}

pub(super) struct Config {
    pub(super) specs: Vec<RunSpec>,
    pub(super) receiver: Spec<dyn Scheduler>,
    pub(super) reward: Reward,
    pub(super) costs: Vec<f64>,
    pub(super) same_step: bool,
}

/// A finished episode.
#[derive(Clone, Default)]
pub(super) struct Ended {
    pub(super) episodes: u64,
    pub(super) scenario: usize,
    pub(super) seed: u64,
    pub(super) outcome: &'static str,
    pub(super) objective: Option<f64>,
    pub(super) duration: f64,
    pub(super) delivered: u64,
    pub(super) decisions: u64,
    pub(super) invalid: u64,
    pub(super) retransmits: u64,
    pub(super) reward: f64,
}

/// One environment.
pub(super) struct Environment {
    config: Arc<Config>,
    exchange: Arc<Exchange>,
    spec: Vec<RunSpec>,
    world: Option<World>,
    /// Seed of the next episode.
    pub(super) seed: u64,
    at: Time,
    delivered: u64,
    carried: Vec<u64>,
    sum: f64,
    scenario: usize,
    needs_reset: bool,
    pub(super) ended: Ended,
    pub(super) observation: Vec<f32>,
    pub(super) mask: Vec<u8>,
    pub(super) advice: Vec<i64>,
    pub(super) final_observation: Vec<f32>,
    pub(super) reward: f64,
    pub(super) terminated: bool,
    pub(super) truncated: bool,
}

/// Spreads seeds: SplitMix64's output function (Steele, Lea, Flood 2014).
fn spread(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Environment {
    pub(super) fn new(
        config: &Arc<Config>,
        paths: usize,
        burst: u32,
        mechanisms: Mechanisms,
        baselines: Vec<Spec<dyn Scheduler>>,
    ) -> PyResult<Self> {
        let exchange = Arc::new(Exchange {
            pause: Arc::default(),
            shared: Mutex::default(),
            paths,
            burst,
            mechanisms,
            baselines,
        });
        let mut registry = Registry::<dyn Scheduler>::new("scheduler");
        let entry = Entry::<dyn Scheduler> {
            name: "external",
            summary: "decides from outside",
            source: "an environment",
            ..Entry::<dyn Scheduler>::of(|_| testing::build("minrtt"))
        };
        let its = Arc::clone(&exchange);
        let factory = Arc::new(move |_: &_| Box::new(External::new(&its)) as Box<dyn Scheduler>);
        let wrong = |error: ropewalk_engine::registry::SpecError| errors::wrong(error.message);
        registry.register_with(entry, factory).map_err(wrong)?;
        let scheduler = registry.parse("external").map_err(wrong)?;
        let spec = config.specs.iter();
        let spec = spec.map(|spec| RunSpec { scheduler: scheduler.clone(), ..spec.clone() }).collect();
        Ok(Environment {
            config: Arc::clone(config),
            exchange,
            spec,
            world: None,
            seed: 0,
            at: Time::ZERO,
            delivered: 0,
            carried: vec![0; paths],
            sum: 0.0,
            scenario: 0,
            needs_reset: true,
            ended: Ended::default(),
            observation: vec![0.0; CONNECTION.len() + paths * PATH.len()],
            mask: vec![0; paths + 1],
            advice: Vec::new(),
            final_observation: Vec::new(),
            reward: 0.0,
            terminated: false,
            truncated: false,
        })
    }

    /// Begins the next episode.
    pub(super) fn reset(&mut self) {
        let seed = self.seed;
        self.seed = seed.wrapping_add(1);
        self.scenario = (spread(seed) % self.spec.len() as u64) as usize;
        let spec = RunSpec { seed, ..self.spec[self.scenario].clone() };
        *lock(&self.exchange.shared) = Shared::default();
        self.exchange.pause.store(false, Ordering::Relaxed);
        self.world = World::with_receiver(&spec, &self.config.receiver).ok().map(|mut world| {
            world.pause_on(Arc::clone(&self.exchange.pause));
            self.at = world.begin();
            world
        });
        self.delivered = 0;
        self.carried.fill(0);
        self.sum = 0.0;
        self.needs_reset = false;
        self.ended.seed = seed;
        self.advance();
        self.look();
    }

    /// Goes on to the next question; whether the run is over.
    fn advance(&mut self) -> bool {
        let Some(world) = &mut self.world else { return true };
        loop {
            if lock(&self.exchange.shared).asked.is_some() {
                return false;
            }
            self.exchange.pause.store(false, Ordering::Relaxed);
            // Others that were undecided at this moment come first.
            if world.is_paused() && world.resume() {
                continue;
            }
            if world.run_until(Time::MAX) {
                return true;
            }
        }
    }

    fn look(&mut self) {
        let shared = lock(&self.exchange.shared);
        if shared.asked.is_some() {
            self.observation.clone_from(&shared.observation);
            self.mask.clone_from(&shared.mask);
            self.advice.clone_from(&shared.advice);
        }
    }

    pub(super) fn step(&mut self, action: i64) {
        (self.reward, self.terminated, self.truncated) = (0.0, false, false);
        if self.needs_reset {
            self.reset();
            return;
        }
        lock(&self.exchange.shared).answer = Some(action);
        if let Some(world) = &mut self.world {
            world.resume();
            // If its connection is gone, nobody takes the answer.
            let mut shared = lock(&self.exchange.shared);
            if shared.answer.take().is_some() {
                shared.asked = None;
            }
        }
        let over = self.advance();
        self.update_reward(over);
        self.look();
        if over {
            self.finish();
        }
    }

    /// The step's reward.
    fn update_reward(&mut self, over: bool) {
        let Some(world) = &self.world else { return };
        let time = world.now().saturating_sub(self.at).as_secs_f64();
        self.at = world.now().max(self.at);
        self.reward = match self.config.reward {
            Reward::Completion => -time,
            Reward::Goodput => {
                let delivered = world.delivered_bytes();
                let more = delivered.saturating_sub(std::mem::replace(&mut self.delivered, delivered));
                more as f64 * 8.0 / 1e6
            }
            Reward::FrameDelay if over => -world.message_delays().into_iter().sum::<Span>().as_secs_f64(),
            Reward::FrameDelay => 0.0,
            Reward::Cost => {
                let mut cost = 0.0;
                for (path, carried) in self.carried.iter_mut().enumerate() {
                    let bytes = world.bytes_on(path);
                    let more = bytes.saturating_sub(std::mem::replace(carried, bytes));
                    cost += more as f64 / 1e6 * self.config.costs.get(path).copied().unwrap_or(0.0);
                }
                -time - cost
            }
        };
        self.sum += self.reward;
    }

    fn finish(&mut self) {
        let Some(world) = self.world.take() else { return };
        let (decisions, invalid) = {
            let shared = lock(&self.exchange.shared);
            (shared.decisions, shared.invalid)
        };
        let result = world.into_result();
        self.truncated = result.outcome == Outcome::TimeLimit;
        self.terminated = !self.truncated;
        self.ended = Ended {
            episodes: self.ended.episodes + 1,
            scenario: self.scenario,
            seed: self.ended.seed,
            outcome: match result.outcome {
                Outcome::Complete => "complete",
                Outcome::TimeLimit => "limit",
                Outcome::Failed(_) => "failed",
            },
            objective: objective::of(&self.spec[self.scenario].scenario.workload, &result),
            duration: result.duration.as_secs_f64(),
            delivered: result.delivered_bytes,
            decisions,
            invalid,
            retransmits: result.totals.retransmissions,
            reward: self.sum,
        };
        self.needs_reset = true;
        self.mask.fill(0);
        if let Some(wait) = self.mask.last_mut() {
            *wait = 1;
        }
        if self.config.same_step {
            self.final_observation.clone_from(&self.observation);
            self.reset();
        }
    }
}
