//! Packet schedulers written as a rule in Rhai: a script that is evaluated for each decision. Its value is
//! the decision: a subflow of the view (a segment on it), `send(subflow, bytes)`, `wait_until(time)`, or `()`
//! to wait.
//!
//! It sees `view` (the subflows), the constant `MS`, and `state`, a map of its own for each connection.
//! Every decision may take [`OPERATIONS`]. Whatever goes wrong ends the run, with the rule's line ([`run`]).
//!
//! Nothing in the language depends on the machine: no clock, no randomness, no files, no mathematics but
//! `libm`'s.
#![forbid(unsafe_code)]

mod language;
mod scheduler;
mod view;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rhai::{AST, Engine, Position};
use ropewalk_algorithms::Registries;
use ropewalk_engine::registry::{Entry, Values};
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_engine::{Time, testing};
use ropewalk_settings::diagnostic::{Diagnostic, InputError, Source};
use ropewalk_sim::{Outcome, RunResult, RunSpec, World};

/// The scheduler's name.
pub const NAME: &str = "mine";

/// What a decision may take: Rhai's operations, each about an operator, a call or a turn of a loop.
pub const OPERATIONS: u64 = 10_000;

/// A rule that has been read.
#[derive(Debug)]
struct Rule {
    engine: Engine,
    script: AST,
}

/// Adds the scheduler [`NAME`] that follows this rule. It is compared without being named.
///
/// # Errors
/// The text is no script, with its place; or there is a scheduler of this name.
pub fn register(registries: &mut Registries, text: &str) -> Result<(), InputError> {
    let engine = language::engine();
    let script = engine.compile(text).map_err(|error| {
        let source = Source::new("rule", text);
        let at = offset(text, error.position());
        let end = text[at..].chars().next().map_or(at, |letter| at + letter.len_utf8());
        Diagnostic::new(error.err_type().to_string()).at(&source, at..end).label("here").help(
            "a rule's value is a subflow of `view.available`, `send(subflow, bytes)`, \
                   `wait_until(time)`, or `()`",
        )
    })?;
    let rule = Arc::new(Rule { engine, script });
    let entry = Entry::<dyn Scheduler> {
        name: NAME,
        summary: "a rule in Rhai",
        source: "yours",
        ..Entry::<dyn Scheduler>::of(|_| testing::build("minrtt"))
    };
    let build = move |_: &Values| scheduler::follow(&rule);
    let added = registries.schedulers.register_with(entry, Arc::new(build));
    added.map(|_| ()).map_err(|error| Diagnostic::new(error.message).into())
}

/// A place in a text as bytes from its beginning.
fn offset(text: &str, position: Position) -> usize {
    let Some(line) = position.line() else { return text.len() };
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let column = position.position().unwrap_or(1).saturating_sub(1);
    text[start..].char_indices().nth(column).map_or(text.len(), |(at, _)| start + at)
}

thread_local! {
    /// The run that this thread simulates.
    static RUN: RefCell<Running> = RefCell::default();
}

/// What a run shares with the rules in it.
#[derive(Default)]
struct Running {
    /// Ends the run.
    stop: Arc<AtomicBool>,
    /// Why.
    failure: Option<String>,
}

/// Ends the run that this thread simulates.
fn fail(reason: String) {
    RUN.with_borrow_mut(|run| {
        run.stop.store(true, Ordering::Relaxed);
        run.failure.get_or_insert(reason);
    });
}

/// Runs to the end, as [`ropewalk_sim::run`] does. A rule that goes wrong ends its run: it has failed then,
/// and the reason names the rule's line.
pub fn run(spec: &RunSpec) -> RunResult {
    if spec.scheduler.entry.name != NAME {
        return ropewalk_sim::run(spec);
    }
    RUN.take();
    let failed = |reason: String| RunResult::new(Outcome::Failed(reason));
    let mut world = match World::new(spec) {
        Ok(world) => world,
        Err(error) => return failed(error.to_string()),
    };
    world.pause_on(RUN.with_borrow(|run| Arc::clone(&run.stop)));
    while !world.run_until(Time::MAX) && !world.is_paused() {}
    let result = world.into_result();
    match RUN.take().failure {
        Some(reason) => failed(reason),
        None => result,
    }
}

#[cfg(test)]
mod tests;
