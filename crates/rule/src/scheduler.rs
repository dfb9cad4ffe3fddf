//! The scheduler that follows a rule.

use std::cell::RefCell;
use std::sync::Arc;

use rhai::{Dynamic, Engine, EvalAltResult, INT, Map, Scope};
use ropewalk_engine::scheduler::{self, Decision, Rationale, Scheduler};
use ropewalk_engine::{SubflowId, Time};

use crate::view::{Subflow, View};
use crate::{NAME, OPERATIONS, Rule, fail};

/// A millisecond, ns.
const MS: INT = 1_000_000;

thread_local! {
    /// What the rule gives as its reason.
    static REASON: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A decision that is more than a subflow.
#[derive(Clone, Copy, Debug)]
struct Answer(Decision);

/// What a rule may call to decide.
pub(crate) fn register(engine: &mut Engine) {
    engine
        .register_type_with_name::<Answer>("decision")
        .register_fn("send", |subflow: Subflow, bytes: INT| {
            let bytes = u32::try_from(bytes.max(0)).unwrap_or(u32::MAX);
            Answer(Decision::Send { subflow: subflow.metrics().id, bytes })
        })
        .register_fn("wait_until", |time: INT| {
            Answer(Decision::Wait { until: Some(Time::from_nanos(u64::try_from(time).unwrap_or(0))) })
        })
        .register_fn("say", |reason: &str| REASON.set(reason.into()));
}

/// A scheduler for a connection.
pub(crate) fn follow(rule: &Arc<Rule>) -> Box<dyn Scheduler> {
    let mut scope = Scope::new();
    scope.push_constant("MS", MS).push("state", Map::new()).push_constant("view", Dynamic::UNIT);
    Box::new(Follower { rule: Arc::clone(rule), scope, failed: false })
}

struct Follower {
    rule: Arc<Rule>,
    /// What the rule sees, and keeps.
    scope: Scope<'static>,
    failed: bool,
}

/// The names that a rule begins with.
const GIVEN: usize = 3;

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").finish_non_exhaustive()
    }
}

impl Follower {
    fn ask(&mut self, view: &scheduler::View<'_>) -> Result<Decision, String> {
        self.scope.rewind(GIVEN - 1);
        self.scope.push_constant("view", View::of(view));
        let value: Dynamic = self
            .rule
            .engine
            .eval_ast_with_scope(&mut self.scope, &self.rule.script)
            .map_err(|error| told(*error))?;
        if value.is_unit() {
            return Ok(Decision::Wait { until: None });
        }
        let kind = value.type_name();
        let kind = if kind.contains("::") { "another value" } else { kind };
        let wrong = format!(
            "the rule's value is of type {kind}; allowed: a subflow of the view, `send(subflow, bytes)`, \
             `wait_until(time)`, or `()`"
        );
        let decision = match value.clone().try_cast::<Subflow>() {
            Some(subflow) => Decision::Send { subflow: subflow.metrics().id, bytes: subflow.metrics().mss },
            None => value.try_cast::<Answer>().ok_or(wrong)?.0,
        };
        // A subflow without room is waited for.
        let is_free = |chosen: SubflowId| view.available().any(|subflow| subflow.id == chosen);
        match decision.subflow() {
            Some(chosen) if !is_free(chosen) => Ok(Decision::Wait { until: None }),
            _ => Ok(decision),
        }
    }
}

/// An error in the rule, with its line.
fn told(mut error: EvalAltResult) -> String {
    // What happened in a function is told by itself.
    while let EvalAltResult::ErrorInFunctionCall(_, _, inner, _) = error {
        error = *inner;
    }
    let at = error.take_position();
    let what = match &error {
        EvalAltResult::ErrorTooManyOperations(_) => {
            format!("more than {OPERATIONS} operations in one decision")
        }
        other => other.to_string(),
    };
    at.line().map_or_else(|| what.clone(), |line| format!("line {line} of the rule: {what}"))
}

impl Scheduler for Follower {
    fn name(&self) -> &'static str {
        NAME
    }

    fn select(&mut self, view: &scheduler::View<'_>, rationale: &mut Rationale) -> Decision {
        if self.failed || !view.sendable() {
            return Decision::Wait { until: None };
        }
        let decision = self.ask(view).unwrap_or_else(|reason| {
            self.failed = true;
            fail(reason);
            Decision::Wait { until: None }
        });
        let reason = REASON.take();
        if !reason.is_empty() {
            rationale.say(|| reason);
        }
        decision
    }

    fn wants_events(&self) -> bool {
        false
    }

    fn is_undecided(&self) -> bool {
        self.failed
    }
}
