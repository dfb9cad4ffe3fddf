//! Simulations that stop at each decision, for learning: any number of them, stepped by threads of their own.
//!
//! A simulation is paused inside the event loop (`World::pause_on`), so that a step costs what the events up
//! to the next decision cost, and no switch between threads. The arrays that a step fills belong to Python;
//! they are bound once.

mod episode;
mod external;
mod threads;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ropewalk_algorithms::Registries;
use ropewalk_algorithms::policy::{CONNECTION, PATH};
use ropewalk_engine::scheduler::{Mechanisms, Rule};
use ropewalk_sim::RunSpec;

use self::episode::{Config, Environment, Reward};
use self::external::lock;
use self::threads::ThreadPool;
use crate::errors;
use crate::scenario::Scenario;

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
    threads: ThreadPool,
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
    #[pyo3(signature = (
        scenarios, count, threads, congestion, reward, costs, burst, mechanisms, baselines, same_step
    ))]
    #[expect(clippy::too_many_arguments, reason = "each is a parameter in Python")]
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
        let congestion = ropewalk_algorithms::algorithm(&registries.congestion, "congestion", congestion)
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
            ropewalk_algorithms::scheduler(&registries, "baselines", text, paths).map_err(errors::input)
        });
        let built = built.collect::<PyResult<Vec<_>>>()?;
        let config = Arc::new(Config { specs, receiver, reward, costs, same_step });
        let envs = (0..count.max(1))
            .map(|_| Environment::new(&config, paths, burst.max(1), mechanisms, built.clone()))
            .collect::<PyResult<Vec<_>>>()?;
        let threads =
            threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1);
        Ok(Environments {
            threads: ThreadPool::new(envs, threads),
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
    #[expect(clippy::too_many_arguments, reason = "each is a parameter in Python")]
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
                let Some(env) = self.threads.work.envs.get(index) else { continue };
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
            for (to, from) in self.threads.work.actions.iter().zip(actions) {
                to.store(from, Ordering::Relaxed);
            }
        }
        py.detach(|| self.threads.step());
        self.collect(py)
    }

    /// Steps the first environment alone: reward, terminated, truncated. Holds the interpreter: a step takes
    /// a microsecond or two.
    fn step_one(&self, py: Python<'_>, action: i64) -> PyResult<(f64, bool, bool)> {
        let Some(env) = self.threads.work.envs.first() else { return Ok((0.0, true, false)) };
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
        let Some(env) = self.threads.work.envs.get(index) else { return Ok(about) };
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
        let envs = &self.threads.work.envs;
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
