//! What bytes on metered paths cost, in the user's time: `a second is worth 5 MB of lte`.
//!
//! A run's time grows by the time that its bytes are worth. Unless the user says what a second is worth, only
//! bytes that were sent a second time count: they must earn their place, at [`USUAL`] bytes to the second. If
//! the user says it, all bytes on metered paths do.

use ropewalk_settings::units::{self, UnitError};
use ropewalk_sim::{PathSpec, RunResult};

/// What a second is worth by default, bytes on the first metered path.
pub const USUAL: f64 = 5e6;

/// A path was named that isn't there.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no path `{name}`: the paths are {}", paths.join(", "))]
pub struct NoSuchPath {
    /// Which.
    pub name: String,
    /// Those that are.
    pub paths: Vec<String>,
}

/// Seconds that a byte is worth.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Worth {
    /// By path's name; of those that aren't here nothing.
    seconds_per_byte: Vec<(String, f64)>,
    /// Whether bytes that are sent for the first time count too.
    all: bool,
    /// In words.
    text: String,
}

impl Worth {
    /// From the paths, and what the user says of a second's worth (bytes, a path).
    ///
    /// # Errors
    /// No such path.
    pub fn new(paths: &[PathSpec], said: Option<&(u64, String)>) -> Result<Self, NoSuchPath> {
        let metered = |path: &&PathSpec| path.metered.is_some();
        let reference = match said {
            Some((_, name)) => Some(paths.iter().find(|path| path.name == *name).ok_or_else(|| {
                let names = paths.iter().map(|path| path.name.clone());
                NoSuchPath { name: name.clone(), paths: names.collect() }
            })?),
            None => paths.iter().find(metered),
        };
        let Some(reference) = reference else { return Ok(Worth::default()) };
        let bytes = said.map_or(USUAL, |(bytes, _)| *bytes as f64);
        let price = |path: &PathSpec| path.metered.and_then(|metered| metered.price);
        let relative = |path: &PathSpec| match (price(path), price(reference)) {
            (Some(own), Some(reference)) if reference > 0.0 => own / reference,
            _ => 1.0,
        };
        let counted = paths.iter().filter(|path| path.metered.is_some() || path.name == reference.name);
        let seconds_per_byte: Vec<(String, f64)> =
            counted.map(|path| (path.name.clone(), relative(path) / bytes)).collect();
        let names: Vec<&str> = seconds_per_byte.iter().map(|(name, _)| name.as_str()).collect();
        let what = if said.is_some() { "bytes" } else { "bytes sent again" };
        let worth = units::write_bytes(bytes as u64);
        let text = format!(
            "{what} on {} count: a second is worth {worth} of {}",
            names.join(" and "),
            reference.name
        );
        Ok(Worth { seconds_per_byte, all: said.is_some(), text })
    }

    /// Seconds that a run's bytes are worth.
    pub fn of(&self, result: &RunResult) -> f64 {
        let paths = result.paths.iter().filter_map(|path| {
            let (_, seconds) = self.seconds_per_byte.iter().find(|(name, _)| *name == path.name)?;
            Some(seconds * if self.all { path.bytes } else { path.repeated } as f64)
        });
        paths.sum()
    }

    /// What counts, for people; nothing if nothing does.
    pub fn text(&self) -> Option<&str> {
        (!self.text.is_empty()).then_some(&self.text)
    }
}

/// Reads `a second is worth 5 MB of lte`, or `5 MB of lte`.
///
/// # Errors
/// What isn't understood, with its place.
pub fn said(text: &str) -> Result<(u64, String), UnitError> {
    const HEAD: &str = "a second is worth ";
    let help = "as in `a second is worth 5 MB of lte`";
    let start = text.find(HEAD).map_or(0, |at| at + HEAD.len());
    let Some(at) = text[start..].find(" of ").map(|at| at + start) else {
        return Err(UnitError {
            message: "expected what a second is worth".into(),
            span: 0..text.len(),
            label: "here".into(),
            help: help.into(),
        });
    };
    let bytes = units::bytes(&text[start..at]).map_err(|mut error| {
        error.span = error.span.start + start..error.span.end + start;
        error
    })?;
    if bytes == 0 {
        let message = "a second must be worth some bytes".into();
        return Err(UnitError { message, span: start..at, label: "found 0".into(), help: help.into() });
    }
    Ok((bytes, text[at + " of ".len()..].trim().to_string()))
}

#[cfg(test)]
mod tests {
    use ropewalk_sim::{Outcome, PathResult};

    use super::*;
    use crate::scenario::path;

    fn result() -> RunResult {
        let path = |name: &str, bytes, repeated| PathResult {
            name: name.into(),
            bytes,
            repeated,
            ..PathResult::default()
        };
        let paths =
            vec![path("wifi", 9_000_000, 9), path("lte", 5_000_000, 500_000), path("sat", 1_000_000, 0)];
        RunResult { paths, ..RunResult::new(Outcome::Complete) }
    }

    fn paths(lte: &str, sat: &str) -> Vec<PathSpec> {
        ["wifi: 50 Mbit/s, 20 ms", lte, sat].map(|text| path(text).unwrap()).to_vec()
    }

    #[test]
    fn bytes_sent_again_count_by_default_and_all_if_the_user_says_what_they_are_worth() {
        let plain = paths("lte: 20 Mbit/s, 60 ms", "sat: 20 Mbit/s, 600 ms");
        assert_eq!(Worth::new(&plain, None).unwrap().of(&result()), 0.0);
        assert_eq!(Worth::new(&plain, None).unwrap().text(), None);
        let metered = paths("lte: 20 Mbit/s, 60 ms, metered", "sat: 20 Mbit/s, 600 ms");
        let usual = Worth::new(&metered, None).unwrap();
        assert!((usual.of(&result()) - 0.1).abs() < 1e-9);
        assert!(usual.text().unwrap().starts_with("bytes sent again on lte count"));
        let said = Worth::new(&metered, Some(&(10_000_000, "lte".into()))).unwrap();
        assert!((said.of(&result()) - 0.5).abs() < 1e-9);
        // A path that is priced counts by its price, one that is named counts though it isn't metered.
        let priced =
            paths("lte: 20 Mbit/s, 60 ms, price 2 EUR/GB", "sat: 20 Mbit/s, 600 ms, price 20 EUR/GB");
        let said = Worth::new(&priced, Some(&(10_000_000, "lte".into()))).unwrap();
        assert!((said.of(&result()) - 1.5).abs() < 1e-9);
        let said = Worth::new(&plain, Some(&(9_000_000, "wifi".into()))).unwrap();
        assert!((said.of(&result()) - 1.0).abs() < 1e-9);
        assert!(
            Worth::new(&plain, Some(&(1, "let".into()))).unwrap_err().to_string().contains("no path `let`")
        );
    }

    #[test]
    fn what_a_second_is_worth_is_read() {
        assert_eq!(said("a second is worth 5 MB of lte").unwrap(), (5_000_000, "lte".into()));
        assert_eq!(said("2 MiB of my phone").unwrap(), (2 << 20, "my phone".into()));
        assert_eq!(said("a second is worth 5 MBit of lte").unwrap_err().span, 20..24);
        assert!(said("much").unwrap_err().help.contains("5 MB of lte"));
        assert!(said("0 B of lte").is_err());
    }
}
