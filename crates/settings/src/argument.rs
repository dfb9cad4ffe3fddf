//! Quantities that are given as an argument, on a command line or by a script. Errors name it.

use crate::diagnostic::{Diagnostic, InputError, Source};
use crate::units::{self, UnitError};
use ropewalk_time::Span;

/// A size in a range.
///
/// # Errors
/// What is wrong with it.
pub fn size_within(option: &str, text: &str, range: (u64, u64)) -> Result<u64, InputError> {
    units::bytes_within(text, range).map_err(|error| refused(option, text, error))
}

/// A time.
///
/// # Errors
/// What is wrong with it.
pub fn time(option: &str, text: &str) -> Result<Span, InputError> {
    units::duration(text).map_err(|error| refused(option, text, error))
}

/// Splits at commas outside brackets.
pub fn list(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

fn refused(option: &str, text: &str, error: UnitError) -> InputError {
    let source = Source::new(option, text);
    Diagnostic::new(error.message).at(&source, error.span).label(error.label).help(error.help).into()
}
