//! Algorithms that are given as an argument, on a command line or by a script. Errors name it.

use ropewalk_engine::registry::{Registry, Spec, SpecError};
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_settings::diagnostic::{Diagnostic, InputError, Source, did_you_mean};

use crate::Registries;

/// Parses an algorithm's name.
///
/// # Errors
/// An unknown name, or a parameter that isn't allowed.
pub fn algorithm<T: ?Sized>(registry: &Registry<T>, option: &str, text: &str) -> Result<Spec<T>, InputError> {
    let known: Vec<&str> = registry.entries().iter().map(|entry| entry.name).collect();
    registry.parse(text).map_err(|error| refused(&error, option, text, &known))
}

/// What is wrong with an algorithm's text, and its place. A name that isn't known is held against those that
/// are.
fn refused(error: &SpecError, option: &str, text: &str, known: &[&str]) -> InputError {
    let source = Source::new(option, text);
    let wrong = text.get(error.span.0..error.span.1).unwrap_or_default();
    let near =
        if known.contains(&wrong) { String::new() } else { did_you_mean(wrong, known.iter().copied()) };
    let diagnostic =
        Diagnostic::new(error.message.clone()).at(&source, error.span.0..error.span.1).label("here");
    if near.is_empty() { diagnostic.into() } else { diagnostic.help(near).into() }
}

/// Parses a scheduler's name, for so many paths.
///
/// # Errors
/// As [`algorithm`]; also a path that isn't there.
pub fn scheduler(
    registries: &Registries,
    option: &str,
    text: &str,
    paths: usize,
) -> Result<Spec<dyn Scheduler>, InputError> {
    let known: Vec<&str> = registries.schedulers.entries().iter().map(|entry| entry.name).collect();
    registries.scheduler(text, paths).map_err(|error| refused(&error, option, text, &known))
}
