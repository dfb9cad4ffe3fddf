//! Saved runs, read again.

use std::path::Path;

use ropewalk_settings::diagnostic::{Diagnostic, Source};
use ropewalk_settings::input::{OpenFile, Opened, Want};
use serde_json::Value;

use super::FORMAT;
use crate::scenario;

/// Largest saved run, bytes.
const LARGEST: u64 = 1 << 30;

/// Reads what `compare --json` wrote.
///
/// # Errors
/// A file that can't be read, is no JSON, or is no run of this version.
pub fn read(path: &Path, open_file: OpenFile) -> Result<Value, Diagnostic> {
    let name = path.display().to_string();
    let want = Want { most: LARGEST, pipe: true };
    let bytes = open_file(path, want)
        .and_then(Opened::whole)
        .map_err(|error| Diagnostic::new(format!("can't read the run `{name}`: {error}")))?;
    parse(&name, &scenario::text(&name, bytes)?)
}

/// Parses a saved run; `name` is for messages.
///
/// # Errors
/// As [`read`].
pub fn parse(name: &str, text: &str) -> Result<Value, Diagnostic> {
    let document: Value = serde_json::from_str(text).map_err(|error| {
        let before: usize =
            text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let at = (before + error.column().saturating_sub(1)).min(text.len());
        let at = (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        // A page of numbers on one line doesn't help: the place is shown only where lines are short.
        let problem = Diagnostic::new(format!("{name} is no JSON: {error}"));
        if text.lines().all(|line| line.len() < 400) {
            problem.at(&Source::new(name, text), at..at)
        } else {
            problem
        }
    })?;
    let wrong = |what: String| {
        Err(Diagnostic::new(format!("{name}: {what}"))
            .help("a saved run is what `ropewalk compare --json` prints"))
    };
    if document.get("papers").is_some_and(Value::is_array) {
        return Err(Diagnostic::new(format!("{name}: a paper's run, whose page is written as it is run"))
            .help(
                "`ropewalk-papers reproduce run NAME --report FILE` writes it; what is finished isn't run \
                 again",
            ));
    }
    match document.get("format").and_then(Value::as_u64) {
        None => return wrong("no saved run: the field `format` is missing".into()),
        Some(format) if format != u64::from(FORMAT) => {
            return wrong(format!("format {format}; this version reads {FORMAT}"));
        }
        Some(_) => {}
    }
    match document.get("kind").and_then(Value::as_str) {
        Some("comparison") if document.get("rankings").is_some_and(Value::is_array) => Ok(document),
        Some("sweep") if document.get("points").is_some_and(Value::is_array) => Ok(document),
        Some(kind) => wrong(format!("a `{kind}` that this version can't show")),
        None => wrong("no saved run: the field `kind` is missing".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        parse("run.json", text).expect_err("an error").message
    }

    #[test]
    fn what_is_no_run_is_refused_in_words() {
        assert!(message("{\n  \"format\": }").contains("is no JSON"), "{}", message("{\n  \"format\": }"));
        assert!(message("[]").contains("`format` is missing"));
        assert!(message("{\"format\": 99}").contains(&format!("format 99; this version reads {FORMAT}")));
        assert!(message("{\"format\": 2}").contains("`kind` is missing"));
        assert!(message("{\"papers\": []}").contains("a paper's run"));
        assert!(message("{\"format\": 2, \"kind\": \"poem\"}").contains("`poem`"));
        assert!(message("{\"format\": 2, \"kind\": \"comparison\"}").contains("can't show"));
        assert!(parse("x", "{\"format\": 2, \"kind\": \"comparison\", \"rankings\": []}").is_ok());
    }
}
