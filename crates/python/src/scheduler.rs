//! Schedulers written in Python, beside the built-in ones.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use ropewalk_algorithms::Registries;
use ropewalk_engine::registry::Entry;
use ropewalk_engine::scheduler::{
    Decision as EngineDecision, Event, Mechanisms, Purpose, Rationale, Rule, Scheduler, View as EngineView,
};
use ropewalk_engine::{Span, SubflowId, Time, testing};
use ropewalk_sim::{Outcome, RunResult, RunSpec, World};

use crate::control::Control;
use crate::errors;
use crate::view::{Subflow, View};

/// A decision, made by the functions `Send`, `SendAt`, `Queue`, `Duplicate`, `Withdraw` and `Wait` of the
/// package.
#[pyclass(frozen, module = "ropewalk._native")]
#[derive(Clone, Copy)]
pub(crate) struct Decision(EngineDecision);

/// A subflow, or its index.
fn subflow_of(value: &Bound<'_, PyAny>) -> PyResult<(SubflowId, Option<u32>)> {
    if let Ok(subflow) = value.cast::<Subflow>() {
        let subflow = subflow.borrow();
        return Ok((subflow.metrics.id, Some(subflow.metrics.mss)));
    }
    match value.extract::<u8>() {
        Ok(index) => Ok((SubflowId(index), None)),
        Err(_) => Err(PyTypeError::new_err("expected a subflow of the view, or its index")),
    }
}

#[pymethods]
impl Decision {
    /// New data; `bytes`: at most one segment if it isn't given.
    #[staticmethod]
    #[pyo3(signature = (subflow, bytes = None))]
    fn send(subflow: &Bound<'_, PyAny>, bytes: Option<u32>) -> PyResult<Self> {
        let (subflow, mss) = subflow_of(subflow)?;
        Ok(Decision(EngineDecision::Send { subflow, bytes: bytes.or(mss).unwrap_or(1460) }))
    }

    #[staticmethod]
    #[pyo3(signature = (subflow, offset, bytes = None))]
    fn send_at(subflow: &Bound<'_, PyAny>, offset: u64, bytes: Option<u32>) -> PyResult<Self> {
        let (subflow, mss) = subflow_of(subflow)?;
        Ok(Decision(EngineDecision::SendAt { subflow, offset, bytes: bytes.or(mss).unwrap_or(1460) }))
    }

    #[staticmethod]
    #[pyo3(signature = (subflow, bytes = None))]
    fn queue(subflow: &Bound<'_, PyAny>, bytes: Option<u32>) -> PyResult<Self> {
        let (subflow, mss) = subflow_of(subflow)?;
        Ok(Decision(EngineDecision::Queue { subflow, bytes: bytes.or(mss).unwrap_or(1460) }))
    }

    #[staticmethod]
    #[pyo3(signature = (subflow, offset, opportunistic = false))]
    fn duplicate(subflow: &Bound<'_, PyAny>, offset: u64, opportunistic: bool) -> PyResult<Self> {
        let purpose = if opportunistic { Purpose::Opportunistic } else { Purpose::Redundant };
        Ok(Decision(EngineDecision::Duplicate { subflow: subflow_of(subflow)?.0, offset, purpose }))
    }

    #[staticmethod]
    fn withdraw(subflow: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Decision(EngineDecision::Withdraw { subflow: subflow_of(subflow)?.0 }))
    }

    #[staticmethod]
    #[pyo3(signature = (until = None))]
    fn wait(until: Option<u64>) -> Self {
        Decision(EngineDecision::Wait { until: until.map(Time::from_nanos) })
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// What a run of a scheduler in Python shares with it: where exceptions go, and the flag that ends the run.
struct Failing {
    pause: Arc<AtomicBool>,
    error: Mutex<Option<(Time, PyErr)>>,
}

thread_local! {
    /// The run that this thread simulates.
    static RUN: RefCell<Option<Arc<Failing>>> = const { RefCell::new(None) };
}

/// A scheduler's object of one connection.
struct FromPython {
    name: &'static str,
    select: Py<PyAny>,
    on_event: Option<Py<PyAny>>,
    view: Py<View>,
    needs_chunks: bool,
    wants_link_rate: bool,
    repeats: bool,
    queues_ahead: bool,
    mechanisms: Mechanisms,
    run: Arc<Failing>,
    failed: bool,
}

impl std::fmt::Debug for FromPython {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FromPython").field("name", &self.name).finish_non_exhaustive()
    }
}

fn rule(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Rule> {
    match object.getattr(name)?.extract::<Option<String>>()?.as_deref() {
        None | Some("off") => Ok(Rule::Off),
        Some("paper") => Ok(Rule::Paper),
        Some("linux") => Ok(Rule::Linux),
        Some(other) => {
            Err(PyValueError::new_err(format!("`{name}` is `{other}`; allowed: off, paper, linux")))
        }
    }
}

impl FromPython {
    fn new(py: Python<'_>, name: &'static str, factory: &Py<PyAny>, run: &Arc<Failing>) -> PyResult<Self> {
        let object = factory.bind(py).call0()?;
        let flag = |name: &str| object.getattr(name)?.is_truthy();
        let listens = flag("wants_events")?;
        Ok(FromPython {
            name,
            select: object.getattr("select")?.unbind(),
            on_event: if listens { Some(object.getattr("on_event")?.unbind()) } else { None },
            view: Py::new(py, View::blank(py))?,
            needs_chunks: flag("needs_chunks")?,
            wants_link_rate: flag("wants_link_rate")?,
            repeats: flag("repeats")?,
            queues_ahead: flag("queues_ahead")?,
            mechanisms: Mechanisms {
                opportunistic: rule(&object, "opportunistic")?,
                penalise: rule(&object, "penalise")?,
            },
            run: Arc::clone(run),
            failed: false,
        })
    }

    fn ask(
        &self,
        py: Python<'_>,
        view: &EngineView<'_>,
        rationale: &mut Rationale,
    ) -> PyResult<EngineDecision> {
        let explaining = rationale.on();
        {
            let mut shown = self.view.borrow_mut(py);
            shown.refresh(py, view, self.needs_chunks)?;
            shown.explaining = explaining;
        }
        let answer = self.select.bind(py).call1((&self.view,))?;
        let decision = if answer.is_none() {
            EngineDecision::Wait { until: None }
        } else if let Ok(subflow) = answer.cast::<Subflow>() {
            let subflow = subflow.borrow();
            EngineDecision::Send { subflow: subflow.metrics.id, bytes: subflow.metrics.mss }
        } else if let Ok(decision) = answer.cast::<Decision>() {
            decision.get().0
        } else {
            let kind = answer.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "select() returned {kind}; allowed: a subflow of the view, None (wait), or Send, SendAt, \
                 Queue, Duplicate, Withdraw, Wait"
            )));
        };
        if explaining && let Some(reason) = self.view.borrow_mut(py).reason.take() {
            rationale.say(|| reason);
        }
        Ok(decision)
    }

    fn hear(&self, py: Python<'_>, view: &EngineView<'_>, event: Event) -> PyResult<()> {
        let Some(on_event) = &self.on_event else { return Ok(()) };
        self.view.borrow_mut(py).refresh(py, view, self.needs_chunks)?;
        let (name, subflow, amount): (_, Option<u8>, Option<u64>) = match event {
            Event::SubflowAdded(id) => (intern!(py, "subflow_added"), Some(id.0), None),
            Event::SubflowRemoved(id) => (intern!(py, "subflow_removed"), Some(id.0), None),
            Event::Acked { subflow, segments } => {
                (intern!(py, "acked"), Some(subflow.0), Some(u64::from(segments)))
            }
            Event::DataAcked => (intern!(py, "data_acked"), None, None),
            Event::Lost { subflow, segments } => {
                (intern!(py, "lost"), Some(subflow.0), Some(u64::from(segments)))
            }
            Event::Timeout(id) => (intern!(py, "timeout"), Some(id.0), None),
            Event::Reinjected(id) => (intern!(py, "reinjected"), Some(id.0), None),
            Event::WindowBlocked => (intern!(py, "window_blocked"), None, None),
            Event::BufferBlocked => (intern!(py, "buffer_blocked"), None, None),
            Event::Written(bytes) => (intern!(py, "written"), None, Some(bytes)),
            Event::Closed => (intern!(py, "closed"), None, None),
            // One that has no name here yet.
            _ => return Ok(()),
        };
        on_event.bind(py).call1((&self.view, name, subflow, amount))?;
        Ok(())
    }

    /// Ends the run.
    fn fail(&mut self, now: Time, error: PyErr) {
        self.failed = true;
        if let Ok(mut first) = self.run.error.lock() {
            first.get_or_insert((now, error));
        }
        self.run.pause.store(true, Ordering::Relaxed);
    }
}

impl Scheduler for FromPython {
    fn name(&self) -> &'static str {
        self.name
    }

    fn select(&mut self, view: &EngineView<'_>, rationale: &mut Rationale) -> EngineDecision {
        if self.failed {
            return EngineDecision::Wait { until: None };
        }
        match Python::attach(|py| self.ask(py, view, rationale)) {
            Ok(decision) => decision,
            Err(error) => {
                self.fail(view.now, error);
                EngineDecision::Wait { until: None }
            }
        }
    }

    fn on_event(&mut self, view: &EngineView<'_>, event: Event) {
        if self.on_event.is_some()
            && !self.failed
            && let Err(error) = Python::attach(|py| self.hear(py, view, event))
        {
            self.fail(view.now, error);
        }
    }

    fn wants_events(&self) -> bool {
        self.on_event.is_some()
    }

    fn wants_link_rate(&self) -> bool {
        self.wants_link_rate
    }

    fn repeats(&self) -> bool {
        self.repeats
    }

    fn queues_ahead(&self) -> bool {
        self.queues_ahead
    }

    fn is_undecided(&self) -> bool {
        self.failed
    }

    fn mechanisms(&self) -> Mechanisms {
        self.mechanisms
    }
}

/// Schedulers in Python by name: what the package hands over, a list of names and of callables that make an
/// object.
pub(crate) type Own = Vec<(String, Py<PyAny>)>;

/// A name for good. Registries have names that live as long as the program; each is kept once.
fn lasting(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    names.entry(name.to_string()).or_insert_with(|| Box::leak(name.to_string().into_boxed_str()))
}

/// The built-in algorithms and these.
pub(crate) fn registries(own: &Own) -> PyResult<Registries> {
    let mut registries = Registries::builtin();
    for (name, factory) in own {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || !name.chars().all(plain) || name == "tcp" {
            return Err(errors::wrong(format!(
                "the scheduler's name `{name}` can't be used; allowed: letters, digits, `-`, `_`, `.`"
            )));
        }
        let name = lasting(name);
        let factory = Python::attach(|py| factory.clone_ref(py));
        let entry = Entry::<dyn Scheduler> {
            name,
            summary: "a scheduler in Python",
            source: "yours",
            ..Entry::<dyn Scheduler>::of(|_| testing::build("minrtt"))
        };
        let build = move |_: &ropewalk_engine::registry::Values| -> Box<dyn Scheduler> {
            let run = RUN
                .with_borrow(Option::clone)
                .unwrap_or_else(|| Arc::new(Failing { pause: Arc::default(), error: Mutex::new(None) }));
            match Python::attach(|py| FromPython::new(py, name, &factory, &run)) {
                Ok(scheduler) => Box::new(scheduler),
                Err(error) => {
                    if let Ok(mut first) = run.error.lock() {
                        first.get_or_insert((Time::ZERO, error));
                    }
                    run.pause.store(true, Ordering::Relaxed);
                    testing::build("minrtt")
                }
            }
        };
        let added = registries.schedulers.register_with(entry, Arc::new(build));
        added.map_err(|error| errors::wrong(error.message))?;
    }
    Ok(registries)
}

/// Runs until the end, or until `control` says stop. What a scheduler in Python raises is handed to
/// `control`. `first`: the seed of run 0.
pub(crate) fn run(spec: &RunSpec, first: u64, own: &[&str], control: &Control) -> RunResult {
    if own.contains(&spec.scheduler.entry.name) {
        // Attached for the whole run: a decision then costs no handshake with the interpreter.
        Python::attach(|_| run_in_python(spec, first, control))
    } else {
        match World::new(spec) {
            Ok(world) => step(world, control),
            Err(error) => RunResult::new(Outcome::Failed(error.to_string())),
        }
    }
}

/// Simulated time between looks at `control`.
const STEP: Span = Span::from_secs(1);

fn step(mut world: World, control: &Control) -> RunResult {
    let mut until = Time::ZERO + STEP;
    while !world.run_until(until) && !world.is_paused() && !control.stopped() {
        until = until.saturating_add(STEP);
    }
    world.into_result()
}

fn run_in_python(spec: &RunSpec, first: u64, control: &Control) -> RunResult {
    let run = Arc::new(Failing { pause: Arc::default(), error: Mutex::new(None) });
    RUN.set(Some(Arc::clone(&run)));
    let result = match World::new(spec) {
        Ok(mut world) => {
            world.pause_on(Arc::clone(&run.pause));
            step(world, control)
        }
        Err(error) => RunResult::new(Outcome::Failed(error.to_string())),
    };
    RUN.set(None);
    let error = run.error.lock().ok().and_then(|mut error| error.take());
    if let Some((at, error)) = error {
        let time = at.saturating_sub(spec.begin()).as_secs_f64();
        control.raise(raised(&spec.scheduler.text, spec.seed.wrapping_sub(first), spec.seed, time, error));
    }
    result
}

/// The exception that says where another one was raised.
fn raised(name: &str, run: u64, seed: u64, time: f64, cause: PyErr) -> PyErr {
    Python::attach(|py| {
        let error = errors::SchedulerError::new_err((
            format!(
                "`{name}` raised {} in run {run}, seed {seed}, {:.3} ms into the run",
                cause.get_type(py),
                time * 1e3
            ),
            run,
            seed,
            time,
        ));
        error.set_cause(py, Some(cause));
        error
    })
}

/// What a scheduler does that the contract of all schedulers forbids: rule and text.
#[pyfunction]
pub(crate) fn departures(py: Python<'_>, name: &str, factory: Py<PyAny>) -> PyResult<Vec<(String, String)>> {
    let run = Arc::new(Failing { pause: Arc::default(), error: Mutex::new(None) });
    RUN.set(Some(Arc::clone(&run)));
    let built = registries(&vec![(name.to_string(), factory.clone_ref(py))]);
    let found = built.and_then(|registries| {
        let spec = registries.schedulers.parse(name).map_err(|error| errors::wrong(error.message))?;
        Ok(testing::departures(|| spec.build()))
    });
    RUN.set(None);
    let error = run.error.lock().ok().and_then(|mut error| error.take());
    match error {
        Some((at, error)) => Err(raised(name, 0, 0, at.as_secs_f64(), error)),
        None => Ok(found?.into_iter().map(|(rule, what)| (rule.to_string(), what)).collect()),
    }
}
