//! Simulations that stop at each decision, for learning: any number of them, stepped by threads of their own.
//!
//! A simulation is paused inside the event loop (`World::pause_on`), so that a step costs what the events up to the next decision
//! cost, and no switch between threads. The arrays that a step fills belong to Python; they are bound once.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ropewalk_engine::registry::{Entry, Registry, Spec};
use ropewalk_engine::scheduler::{Decision, Event, Mechanisms, Rationale, Rule, Scheduler, View};
use ropewalk_engine::{PathId, testing};
use ropewalk_lab::policy::{self, CONNECTION, PATH};
use ropewalk_lab::{Registries, compare, objective};
use ropewalk_sim::{Outcome, RunSpec, World};

use crate::errors;
use crate::scenario::Scenario;

/// What one simulation's schedulers and its stepper share.
#[derive(Debug, Default)]
struct Shared {
    /// The next scheduler's number.
    built: u32,
    /// Whose decision is asked for.
    asked: Option<u32>,
    /// The answer to it.
    answer: Option<i64>,
    observation: Vec<f32>,
    mask: Vec<u8>,
    /// What each baseline would do.
    advice: Vec<i64>,
    decisions: u64,
    /// Answers that named a path without room.
    invalid: u64,
}

#[derive(Debug)]
struct Exchange {
    pause: Arc<AtomicBool>,
    shared: Mutex<Shared>,
    paths: usize,
    burst: u32,
    mechanisms: Mechanisms,
    baselines: Vec<Spec<dyn Scheduler>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The scheduler of a connection whose decisions come from outside.
#[derive(Debug)]
struct External {
    id: u32,
    undecided: bool,
    /// When it was asked first.
    begin: Option<u64>,
    exchange: Arc<Exchange>,
    baselines: Vec<Box<dyn Scheduler>>,
}

impl External {
    fn new(exchange: &Arc<Exchange>) -> Self {
        let mut shared = lock(&exchange.shared);
        shared.built += 1;
        External {
            id: shared.built,
            undecided: false,
            begin: None,
            exchange: Arc::clone(exchange),
            baselines: exchange.baselines.iter().map(Spec::build).collect(),
        }
    }

    /// The action that means a decision.
    fn action(&self, view: &View<'_>, decision: Decision) -> i64 {
        let wait = self.exchange.paths as i64;
        match decision {
            Decision::Send { subflow, .. }
            | Decision::SendAt { subflow, .. }
            | Decision::Queue { subflow, .. }
            | Decision::Duplicate { subflow, .. } => {
                view.subflows.get(subflow.index()).map_or(wait, |flow| i64::from(flow.path.0))
            }
            Decision::Wait { .. } => wait,
        }
    }

    fn show(&mut self, view: &View<'_>, shared: &mut Shared) {
        let paths = self.exchange.paths;
        let begin = *self.begin.get_or_insert(view.now);
        policy::observe(view, paths, begin, &mut shared.observation, &mut shared.mask);
        shared.advice.clear();
        for index in 0..self.baselines.len() {
            let decision = self.baselines[index].select(view, &mut Rationale::default());
            let action = self.action(view, decision);
            shared.advice.push(action);
        }
    }
}

impl Scheduler for External {
    fn name(&self) -> &'static str {
        "external"
    }

    fn select(&mut self, view: &View<'_>, _: &mut Rationale) -> Decision {
        self.undecided = false;
        let wait = Decision::Wait { until: None };
        if !view.sendable() || view.available().next().is_none() {
            return wait;
        }
        let exchange = Arc::clone(&self.exchange);
        let mut shared = lock(&exchange.shared);
        match (shared.asked, shared.answer) {
            (Some(asked), Some(answer)) if asked == self.id => {
                (shared.asked, shared.answer) = (None, None);
                exchange.pause.store(false, Ordering::Relaxed);
                shared.decisions += 1;
                let path = PathId(answer.clamp(0, i64::from(u16::MAX)) as u16);
                if usize::from(path.0) >= exchange.paths {
                    return wait;
                }
                match view.available().find(|flow| flow.path == path) {
                    Some(flow) => {
                        Decision::Send { subflow: flow.id, bytes: flow.mss.saturating_mul(exchange.burst) }
                    }
                    None => {
                        shared.invalid += 1;
                        wait
                    }
                }
            }
            (None, _) => {
                self.show(view, &mut shared);
                shared.asked = Some(self.id);
                exchange.pause.store(true, Ordering::Relaxed);
                self.undecided = true;
                wait
            }
            _ => {
                self.undecided = true;
                wait
            }
        }
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        for baseline in &mut self.baselines {
            if baseline.wants_events() {
                baseline.on_event(view, event);
            }
        }
    }

    fn wants_events(&self) -> bool {
        !self.baselines.is_empty()
    }

    fn is_undecided(&self) -> bool {
        self.undecided
    }

    fn mechanisms(&self) -> Mechanisms {
        self.exchange.mechanisms
    }
}

/// What steps are rewarded by.
#[derive(Clone, Copy, Debug)]
enum Reward {
    /// Minus the time since the last decision, seconds: an episode's sum is minus its completion time.
    Completion,
    /// Payload delivered since the last decision, Mbit.
    Goodput,
    /// At the end of an episode minus the sum of its frames' delays, seconds.
    FrameDelay,
    /// As completion, and minus what the bytes sent on each path cost, in seconds per 10^6 bytes.
    Cost,
}

struct Config {
    specs: Vec<RunSpec>,
    receiver: Spec<dyn Scheduler>,
    reward: Reward,
    costs: Vec<f64>,
    same_step: bool,
}

/// A finished episode.
#[derive(Clone, Default)]
struct Ended {
    episodes: u64,
    scenario: usize,
    seed: u64,
    outcome: &'static str,
    objective: Option<f64>,
    duration: f64,
    delivered: u64,
    decisions: u64,
    invalid: u64,
    retransmits: u64,
    reward: f64,
}

/// One environment.
struct One {
    config: Arc<Config>,
    exchange: Arc<Exchange>,
    spec: Vec<RunSpec>,
    world: Option<World>,
    /// Seed of the next episode.
    seed: u64,
    at: u64,
    delivered: u64,
    carried: Vec<u64>,
    sum: f64,
    scenario: usize,
    needs_reset: bool,
    ended: Ended,
    observation: Vec<f32>,
    mask: Vec<u8>,
    advice: Vec<i64>,
    final_observation: Vec<f32>,
    reward: f64,
    terminated: bool,
    truncated: bool,
}

/// Spreads seeds: SplitMix64's output function (Steele, Lea, Flood 2014).
fn spread(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl One {
    fn new(
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
            parameters: &[],
            presets: &[],
            exceptions: &[],
            build: |_| testing::build("minrtt"),
        };
        let its = Arc::clone(&exchange);
        let factory = Arc::new(move |_: &_| Box::new(External::new(&its)) as Box<dyn Scheduler>);
        let wrong = |error: ropewalk_engine::registry::SpecError| errors::wrong(error.message);
        registry.register_with(entry, factory).map_err(wrong)?;
        let scheduler = registry.parse("external").map_err(wrong)?;
        let spec = config.specs.iter();
        let spec = spec.map(|spec| RunSpec { scheduler: scheduler.clone(), ..spec.clone() }).collect();
        Ok(One {
            config: Arc::clone(config),
            exchange,
            spec,
            world: None,
            seed: 0,
            at: 0,
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
    fn reset(&mut self) {
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
            if world.run_until(u64::MAX) {
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

    fn step(&mut self, action: i64) {
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
        self.settle(over);
        self.look();
        if over {
            self.finish();
        }
    }

    /// The step's reward.
    fn settle(&mut self, over: bool) {
        let Some(world) = &self.world else { return };
        let time = world.now().saturating_sub(self.at) as f64 / 1e9;
        self.at = world.now().max(self.at);
        self.reward = match self.config.reward {
            Reward::Completion => -time,
            Reward::Goodput => {
                let delivered = world.delivered_bytes();
                let more = delivered.saturating_sub(std::mem::replace(&mut self.delivered, delivered));
                more as f64 * 8.0 / 1e6
            }
            Reward::FrameDelay if over => -(world.message_delays().iter().sum::<u64>() as f64) / 1e9,
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
            duration: result.duration as f64 / 1e9,
            delivered: result.delivered_bytes,
            decisions,
            invalid,
            retransmits: result.retransmissions,
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

/// Threads that step environments; the calling thread helps.
struct Crew {
    work: Arc<Work>,
    threads: Vec<(Thread, JoinHandle<()>)>,
}

struct Work {
    envs: Vec<Mutex<One>>,
    actions: Vec<AtomicI64>,
    /// The next environment to step; beyond the last: there is nothing to do.
    next: AtomicUsize,
    done: AtomicUsize,
    end: AtomicBool,
    idle: Vec<AtomicBool>,
}

/// How often an idle thread looks for work before it sleeps: some tens of microseconds.
const PATIENCE: u32 = 2_000;

impl Work {
    /// Steps environments until none is left.
    fn help(&self) {
        loop {
            let index = self.next.fetch_add(1, Ordering::AcqRel);
            let Some(env) = self.envs.get(index) else {
                // Far below where it could wrap.
                self.next.fetch_min(usize::MAX / 2, Ordering::AcqRel);
                return;
            };
            lock(env).step(self.actions[index].load(Ordering::Relaxed));
            self.done.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn serve(&self, me: usize) {
        let mut looked = 0;
        while !self.end.load(Ordering::Acquire) {
            if self.next.load(Ordering::Acquire) < self.envs.len() {
                looked = 0;
                self.help();
            } else if looked < PATIENCE {
                looked += 1;
                std::hint::spin_loop();
            } else {
                self.idle[me].store(true, Ordering::SeqCst);
                if self.next.load(Ordering::SeqCst) >= self.envs.len() && !self.end.load(Ordering::SeqCst) {
                    thread::park();
                }
                self.idle[me].store(false, Ordering::SeqCst);
                looked = 0;
            }
        }
    }
}

impl Crew {
    fn new(envs: Vec<One>, threads: usize) -> Self {
        let count = envs.len();
        let helpers = threads.min(count).saturating_sub(1);
        let work = Arc::new(Work {
            envs: envs.into_iter().map(Mutex::new).collect(),
            actions: (0..count).map(|_| AtomicI64::new(0)).collect(),
            next: AtomicUsize::new(count),
            done: AtomicUsize::new(0),
            end: AtomicBool::new(false),
            idle: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
        });
        let threads = (0..helpers)
            .map(|me| {
                let work = Arc::clone(&work);
                let handle = thread::spawn(move || work.serve(me));
                (handle.thread().clone(), handle)
            })
            .collect();
        Crew { work, threads }
    }

    /// Steps all.
    fn step(&self) {
        let work = &self.work;
        work.done.store(0, Ordering::SeqCst);
        work.next.store(0, Ordering::SeqCst);
        for ((thread, _), idle) in self.threads.iter().zip(&work.idle) {
            if idle.load(Ordering::SeqCst) {
                thread.unpark();
            }
        }
        work.help();
        let mut looked = 0;
        while work.done.load(Ordering::Acquire) < work.envs.len() {
            if looked < PATIENCE {
                looked += 1;
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.work.end.store(true, Ordering::SeqCst);
        for (thread, handle) in self.threads.drain(..) {
            thread.unpark();
            let _ = handle.join();
        }
    }
}

/// The arrays that steps fill.
struct Arrays {
    observations: PyBuffer<f32>,
    rewards: PyBuffer<f64>,
    terminated: PyBuffer<u8>,
    truncated: PyBuffer<u8>,
    masks: PyBuffer<u8>,
    advice: PyBuffer<i64>,
    actions: PyBuffer<i64>,
    finals: PyBuffer<f32>,
}

/// Environments; see `python/ropewalk/learn.py`.
#[pyclass(frozen, module = "ropewalk._native")]
pub(crate) struct Environments {
    crew: Crew,
    arrays: Mutex<Option<Arrays>>,
    baselines: Vec<String>,
    paths: Vec<String>,
    width: usize,
}

/// Fills an array; one without elements stays as it is.
fn fill<T: pyo3::buffer::Element>(py: Python<'_>, buffer: &PyBuffer<T>, values: &[T]) -> PyResult<()> {
    if values.is_empty() { Ok(()) } else { buffer.copy_from_slice(py, values) }
}

#[pymethods]
impl Environments {
    #[new]
    #[pyo3(signature = (scenarios, count, threads, congestion, reward, costs, burst, mechanisms, baselines, same_step))]
    fn new(
        scenarios: Vec<Py<Scenario>>,
        count: usize,
        threads: Option<usize>,
        congestion: &str,
        reward: &str,
        costs: Vec<f64>,
        burst: u32,
        mechanisms: &str,
        baselines: Vec<String>,
        same_step: bool,
    ) -> PyResult<Self> {
        let registries = Registries::builtin();
        let congestion = compare::ask::algorithm(&registries.congestion, "congestion", congestion)
            .map_err(errors::input)?;
        let receiver = registries.schedulers.parse("minrtt").map_err(errors::other)?;
        let mut specs = Vec::new();
        for scenario in &scenarios {
            let content = scenario.get().loaded.scenario.clone();
            let spec = RunSpec::new(content, receiver.clone(), congestion.clone());
            spec.check().map_err(errors::other)?;
            specs.push(spec);
        }
        let Some(first) = scenarios.first() else { return Err(errors::wrong("no scenario is given")) };
        let names = first.get().paths();
        let paths = names.len();
        if specs.iter().any(|spec| spec.scenario.paths.len() != paths) {
            return Err(errors::wrong("the scenarios have different numbers of paths"));
        }
        let reward = match reward {
            "completion" => Reward::Completion,
            "goodput" => Reward::Goodput,
            "frame_delay" => Reward::FrameDelay,
            "cost" => Reward::Cost,
            other => {
                let allowed = "completion, goodput, frame_delay, cost";
                return Err(errors::wrong(format!("`{other}` is no reward; allowed: {allowed}")));
            }
        };
        let rule = match mechanisms {
            "off" => Rule::Off,
            "paper" => Rule::Paper,
            "linux" => Rule::Linux,
            other => {
                return Err(errors::wrong(format!(
                    "`{other}` is no rule of mechanisms; allowed: off, paper, linux"
                )));
            }
        };
        let mechanisms = Mechanisms { opportunistic: rule, penalise: rule };
        let built = baselines.iter().map(|text| {
            compare::ask::scheduler(&registries, "baselines", text, paths).map_err(errors::input)
        });
        let built = built.collect::<PyResult<Vec<_>>>()?;
        let config = Arc::new(Config { specs, receiver, reward, costs, same_step });
        let envs = (0..count.max(1))
            .map(|_| One::new(&config, paths, burst.max(1), mechanisms, built.clone()))
            .collect::<PyResult<Vec<_>>>()?;
        let threads =
            threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1);
        Ok(Environments {
            crew: Crew::new(envs, threads),
            arrays: Mutex::new(None),
            baselines,
            paths: names,
            width: CONNECTION.len() + paths * PATH.len(),
        })
    }

    /// Name, unit and bound of each number of an observation.
    fn features(&self) -> Vec<(String, String, f32)> {
        let own = CONNECTION.iter().map(|(name, unit, bound)| (name.to_string(), unit.to_string(), *bound));
        let of = |path: &String| {
            let path = ropewalk_lab::tidy::plain_name(path);
            PATH.iter().map(move |(name, unit, bound)| (format!("{path}_{name}"), unit.to_string(), *bound))
        };
        own.chain(self.paths.iter().flat_map(of)).collect()
    }

    #[getter]
    fn path_names(&self) -> Vec<String> {
        self.paths.clone()
    }

    #[getter]
    fn baselines(&self) -> Vec<String> {
        self.baselines.clone()
    }

    /// Binds the arrays that steps fill.
    fn bind(
        &self,
        observations: PyBuffer<f32>,
        rewards: PyBuffer<f64>,
        terminated: PyBuffer<u8>,
        truncated: PyBuffer<u8>,
        masks: PyBuffer<u8>,
        advice: PyBuffer<i64>,
        actions: PyBuffer<i64>,
        finals: PyBuffer<f32>,
    ) {
        let arrays = Arrays { observations, rewards, terminated, truncated, masks, advice, actions, finals };
        *lock(&self.arrays) = Some(arrays);
    }

    /// Begins new episodes: of environment `i` with `seeds[i]`, if that is given.
    fn reset(&self, py: Python<'_>, seeds: Vec<Option<u64>>, which: Vec<usize>) -> PyResult<()> {
        py.detach(|| {
            for index in which {
                let Some(env) = self.crew.work.envs.get(index) else { continue };
                let mut env = lock(env);
                if let Some(Some(seed)) = seeds.get(index) {
                    env.seed = *seed;
                }
                (env.reward, env.terminated, env.truncated) = (0.0, false, false);
                env.reset();
            }
        });
        self.collect(py)
    }

    /// Steps all by the bound actions.
    fn step(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(arrays) = lock(&self.arrays).as_ref() {
            let actions = arrays.actions.to_vec(py)?;
            for (to, from) in self.crew.work.actions.iter().zip(actions) {
                to.store(from, Ordering::Relaxed);
            }
        }
        py.detach(|| self.crew.step());
        self.collect(py)
    }

    /// Steps the first environment alone: reward, terminated, truncated. Holds the interpreter: a step takes a microsecond or two.
    fn step_one(&self, py: Python<'_>, action: i64) -> PyResult<(f64, bool, bool)> {
        let Some(env) = self.crew.work.envs.first() else { return Ok((0.0, true, false)) };
        let mut env = lock(env);
        env.step(action);
        if let Some(arrays) = lock(&self.arrays).as_ref() {
            fill(py, &arrays.observations, &env.observation)?;
            fill(py, &arrays.masks, &env.mask)?;
            fill(py, &arrays.advice, &env.advice)?;
        }
        Ok((env.reward, env.terminated, env.truncated))
    }

    /// The latest finished episode of an environment.
    fn ended<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyDict>> {
        let about = PyDict::new(py);
        let Some(env) = self.crew.work.envs.get(index) else { return Ok(about) };
        let ended = lock(env).ended.clone();
        about.set_item("episodes", ended.episodes)?;
        about.set_item("scenario", ended.scenario)?;
        about.set_item("seed", ended.seed)?;
        about.set_item("outcome", ended.outcome)?;
        about.set_item("objective_s", ended.objective)?;
        about.set_item("duration_s", ended.duration)?;
        about.set_item("delivered_bytes", ended.delivered)?;
        about.set_item("decisions", ended.decisions)?;
        about.set_item("invalid", ended.invalid)?;
        about.set_item("retransmits", ended.retransmits)?;
        about.set_item("reward", ended.reward)?;
        Ok(about)
    }
}

impl Environments {
    /// Copies everything into the bound arrays.
    fn collect(&self, py: Python<'_>) -> PyResult<()> {
        let arrays = lock(&self.arrays);
        let Some(arrays) = arrays.as_ref() else { return Ok(()) };
        let envs = &self.crew.work.envs;
        let (mut observations, mut finals) = (Vec::new(), Vec::new());
        let (mut rewards, mut terminated, mut truncated) = (Vec::new(), Vec::new(), Vec::new());
        let (mut masks, mut advice) = (Vec::new(), Vec::new());
        observations.reserve(envs.len() * self.width);
        for env in envs {
            let env = lock(env);
            observations.extend_from_slice(&env.observation);
            rewards.push(env.reward);
            terminated.push(u8::from(env.terminated));
            truncated.push(u8::from(env.truncated));
            masks.extend_from_slice(&env.mask);
            // Before the first decision there is none.
            advice.extend((0..self.baselines.len()).map(|which| env.advice.get(which).copied().unwrap_or(0)));
        }
        if envs.iter().zip(&terminated).zip(&truncated).any(|((_, one), other)| one | other != 0) {
            for env in envs {
                let env = lock(env);
                let last =
                    if env.final_observation.is_empty() { &env.observation } else { &env.final_observation };
                finals.extend_from_slice(last);
            }
        }
        fill(py, &arrays.observations, &observations)?;
        fill(py, &arrays.rewards, &rewards)?;
        fill(py, &arrays.terminated, &terminated)?;
        fill(py, &arrays.truncated, &truncated)?;
        fill(py, &arrays.masks, &masks)?;
        fill(py, &arrays.advice, &advice)?;
        fill(py, &arrays.finals, &finals)
    }
}
