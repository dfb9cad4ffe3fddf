//! The scheduler whose decisions come from outside, and what it shares with who steps its simulation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ropewalk_algorithms::policy;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::{Decision, Event, Mechanisms, Rationale, Scheduler, View};
use ropewalk_engine::{PathId, Time};

/// What one simulation's schedulers and its stepper share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The next scheduler's number.
    built: u32,
    /// Whose decision is asked for.
    pub(super) asked: Option<u32>,
    /// The answer to it.
    pub(super) answer: Option<i64>,
    pub(super) observation: Vec<f32>,
    pub(super) mask: Vec<u8>,
    /// What each baseline would do.
    pub(super) advice: Vec<i64>,
    pub(super) decisions: u64,
    /// Answers that named a path without room.
    pub(super) invalid: u64,
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) pause: Arc<AtomicBool>,
    pub(super) shared: Mutex<Shared>,
    pub(super) paths: usize,
    pub(super) burst: u32,
    pub(super) mechanisms: Mechanisms,
    pub(super) baselines: Vec<Spec<dyn Scheduler>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The scheduler of a connection whose decisions come from outside.
#[derive(Debug)]
pub(super) struct External {
    id: u32,
    undecided: bool,
    /// When it was asked first.
    begin: Option<Time>,
    /// The last answer to send, and when and where in the stream it was given.
    sent: Option<(Time, u64, Decision)>,
    exchange: Arc<Exchange>,
    baselines: Vec<Box<dyn Scheduler>>,
}

impl External {
    pub(super) fn new(exchange: &Arc<Exchange>) -> Self {
        let mut shared = lock(&exchange.shared);
        shared.built += 1;
        External {
            id: shared.built,
            undecided: false,
            begin: None,
            sent: None,
            exchange: Arc::clone(exchange),
            baselines: exchange.baselines.iter().map(Spec::build).collect(),
        }
    }

    /// The action that means a decision.
    fn action(&self, view: &View<'_>, decision: Decision) -> i64 {
        let wait = self.exchange.paths as i64;
        let flow = decision.subflow().and_then(|subflow| view.subflows.get(subflow.index()));
        flow.map_or(wait, |flow| i64::from(flow.path.0))
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
        // What couldn't be sent, as into a window that has hardly any room, isn't asked again at that moment.
        if let Some((at, offset, decision)) = self.sent
            && (at, offset) == (view.now, view.next_offset)
        {
            return decision;
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
                        let bytes = flow.mss.saturating_mul(exchange.burst);
                        let decision = Decision::Send { subflow: flow.id, bytes };
                        self.sent = Some((view.now, view.next_offset, decision));
                        decision
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

    fn wants_link_rate(&self) -> bool {
        self.baselines.iter().any(|baseline| baseline.wants_link_rate())
    }

    fn is_undecided(&self) -> bool {
        self.undecided
    }

    fn mechanisms(&self) -> Mechanisms {
        self.exchange.mechanisms
    }
}
