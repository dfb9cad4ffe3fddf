//! Paths on the command line: `wifi: 50 Mbit/s, 20 ms +-5 ms, 0.5 %`.
//!
//! A name and a colon, then clauses in any order, separated by commas: a rate, a round-trip time (as `ping` shows
//! it; half of it each way), a loss; and, by keyword, `up RATE`, `down RATE`, `queue LIMIT`, `jitter SHAPE`,
//! `overtaking`, `trace FILE`, `mtu BYTES`, `backup`.

use std::path::Path;
use std::sync::Arc;

use ropewalk_link::Rate;
use ropewalk_sim::{Direction, EndSpec, PathSpec, Scenario, Workload};

use super::draft::LinkDraft;
use super::links::MTU_RANGE;
use super::{phrase, trace};
use crate::diagnostic::{Diagnostic, Source, nearest};
use crate::units::{self, UnitError};

const KEYWORDS: &[&str] = &["up", "down", "queue", "jitter", "overtaking", "trace", "mtu", "backup"];

/// Parses one `--path`.
///
/// # Errors
/// The part that isn't understood, with what is allowed.
pub fn path(text: &str) -> Result<PathSpec, Diagnostic> {
    let source = Source::new("--path", text);
    let wrong = |start: usize, part: &str, message: String, help: &str| {
        Diagnostic::new(message).at(&source, start..start + part.len()).label("here").help(help)
    };
    let Some((name, rest)) = text.split_once(':') else {
        return Err(wrong(
            0,
            text,
            "a path needs a name and a colon".into(),
            "as in `wifi: 50 Mbit/s, 20 ms`",
        ));
    };
    let name = name.trim();
    if let Some(reason) = phrase::bad_name(name) {
        return Err(wrong(0, name, format!("the name `{name}` can't be used"), reason));
    }
    let mut both = LinkDraft::default();
    let (mut up, mut down) = (LinkDraft::default(), LinkDraft::default());
    let (mut mtu, mut backup) = (1500, false);
    let mut start = text.len() - rest.len();
    for clause in rest.split(',') {
        let at = start + (clause.len() - clause.trim_start().len());
        start += clause.len() + 1;
        let clause = clause.trim();
        let place = |error: UnitError| unit(&source, at, error);
        let (keyword, value) = clause.split_once(char::is_whitespace).unwrap_or((clause, ""));
        let value_at = at + (clause.len() - value.trim_start().len());
        let value = value.trim();
        let place_value = |error: UnitError| unit(&source, value_at, error);
        match keyword {
            "up" => up.rate = Some(Rate::Constant(phrase::rate(value).map_err(place_value)?)),
            "down" => down.rate = Some(Rate::Constant(phrase::rate(value).map_err(place_value)?)),
            "queue" => both.queue = Some(phrase::queue(value).map_err(place_value)?),
            "trace" if value.is_empty() => {
                return Err(wrong(at, clause, "`trace` needs a file".into(), "as in `trace lte.down`"));
            }
            "trace" => {
                let read = trace::read(Path::new(value));
                // A bad line is shown where it stands, a file that can't be read where it is named.
                let found = read.map_err(|error| match error.place {
                    Some(_) => error,
                    None => error.at(&source, value_at..value_at + value.len()).label("named here"),
                });
                both.rate = Some(Rate::Trace(found?));
            }
            "overtaking" => both.overtaking = Some(true),
            "backup" => backup = true,
            "mtu" => mtu = units::bytes_within(value, MTU_RANGE).map_err(place_value)? as u32,
            "jitter" => match phrase::JITTER_SHAPES.iter().find(|(word, _)| *word == value) {
                Some((_, shape)) => both.shape = Some(*shape),
                None => {
                    let allowed = "allowed: uniform, normal, pareto";
                    return Err(wrong(value_at, value, format!("`{value}` is no shape of jitter"), allowed));
                }
            },
            _ if clause.is_empty() => {
                return Err(wrong(at.saturating_sub(1), ",", "an empty clause".into(), ""));
            }
            _ if clause.contains('%') => both.loss = Some(phrase::loss(clause).map_err(place)?),
            _ if clause.contains("bit/s") || clause.contains("bps") || clause == "unlimited" => {
                both.rate = Some(Rate::Constant(phrase::rate(clause).map_err(place)?));
            }
            _ if clause.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-') => {
                rate_or_time(clause).map_err(place)?;
                let (rtt, spread) = units::duration_with_spread(clause).map_err(place)?;
                both.delay = Some(rtt / 2);
                both.spread = spread.map(|spread| spread / 2);
            }
            _ => {
                let help = match nearest(keyword, KEYWORDS.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("allowed: a rate, a round-trip time, a loss, {}", KEYWORDS.join(", ")),
                };
                return Err(wrong(at, clause, format!("`{clause}` is not understood"), &help));
            }
        }
    }
    let (up, down) = (up.or(&both), down.or(&both));
    if up.rate.is_none() || down.rate.is_none() {
        return Err(wrong(0, text, format!("path `{name}` has no rate"), "as in `wifi: 50 Mbit/s, 20 ms`"));
    }
    let Some(delay) = both.delay else {
        return Err(wrong(
            0,
            text,
            format!("path `{name}` has no round-trip time"),
            "as in `wifi: 50 Mbit/s, 20 ms`",
        ));
    };
    let (up, down) = (up.finish(2 * delay, mtu), down.finish(2 * delay, mtu));
    Ok(PathSpec { name: name.to_string(), up, down, mtu, backup, bottleneck: None })
}

/// Whether a number's unit is one that a clause may have; a rate with a known unit isn't asked about.
fn rate_or_time(clause: &str) -> Result<(), UnitError> {
    let base = clause.split(['+', '\u{b1}']).next().unwrap_or(clause).trim_end();
    let unit = base.trim_start_matches(|c: char| c.is_ascii_digit() || "-._ ".contains(c));
    if units::is_time(unit) || base.chars().all(|c| "0. ".contains(c)) {
        return Ok(());
    }
    let (message, span) = if unit.is_empty() {
        ("a rate or a round-trip time needs its unit".to_string(), 0..base.len())
    } else {
        (format!("`{unit}` is a unit of neither a rate nor a time"), base.len() - unit.len()..base.len())
    };
    let near = nearest(unit, units::rates_and_times())
        .map_or(String::new(), |near| format!("did you mean `{near}`? "));
    Err(UnitError {
        message,
        span,
        label: format!("found `{}`", if unit.is_empty() { base } else { unit }),
        help: format!("{near}allowed: a rate (`50 Mbit/s`), a round-trip time (`20 ms`), a loss (`0.5 %`)"),
    })
}

fn unit(source: &Arc<Source>, at: usize, error: UnitError) -> Diagnostic {
    Diagnostic::new(error.message)
        .at(source, at + error.span.start..at + error.span.end)
        .label(error.label)
        .help(error.help)
}

/// A download of 1 MiB over `paths`, everything else as in the scenario file's defaults.
pub fn default_around(paths: Vec<PathSpec>) -> Scenario {
    Scenario {
        name: "command line".into(),
        summary: "Paths given with --path".into(),
        paths,
        bottlenecks: Vec::new(),
        background: Vec::new(),
        workload: Workload::Flow { bytes: 1 << 20 },
        direction: Direction::Download,
        client: EndSpec::default(),
        server: EndSpec::default(),
        warmup: 0,
        limit: 60_000_000_000,
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_link::{Loss, Rate};

    use super::path;

    #[test]
    fn a_path_in_one_line() {
        let wifi = path("wifi: 50 Mbit/s, 20 ms +-5 ms, 0.5 %, up 10 Mbit/s, queue 100 packets").unwrap();
        assert_eq!((wifi.name.as_str(), wifi.down.delay), ("wifi", 10_000_000));
        assert_eq!(wifi.down.rate, Rate::Constant(50_000_000));
        assert_eq!(wifi.up.rate, Rate::Constant(10_000_000));
        assert_eq!(wifi.down.loss, Loss::Bernoulli(0.005));
        assert_eq!(wifi.down.jitter.unwrap().spread, 2_500_000);
    }

    #[test]
    fn mistakes_point_at_their_place() {
        for (text, message) in [
            ("wifi 50 Mbit/s", "needs a name and a colon"),
            ("wifi: 50 Mbit/s", "no round-trip time"),
            ("wifi: 20 ms", "no rate"),
            ("wifi: 50 Mbit/s, 20 ms, bakup", "`bakup` is not understood"),
            ("wifi: -5 Mbit/s, 20 ms", ""),
            ("wifi: 5 Mbit/s, 20 ms, mtu 300 B", "out of range"),
            ("wifi: 5 Mbit/s, 20 ms, mtu 70 kB", "out of range"),
            ("wifi: 50 Mbit/s, 20 parsecs", "`parsecs` is a unit of neither a rate nor a time"),
            ("wifi: 50 Mbit, 20 ms", "`Mbit` is a unit of neither"),
            ("wifi: 50, 20 ms", "needs its unit"),
            ("wifi: 20 ms, trace", "`trace` needs a file"),
            ("wifi: 20 ms, trace /nowhere/t.down", "no such file"),
            (": 50 Mbit/s, 20 ms", "can't be used"),
        ] {
            let error = path(text).unwrap_err();
            assert!(error.message.contains(message) && error.place.is_some(), "{text}: {error:?}");
        }
    }
}
