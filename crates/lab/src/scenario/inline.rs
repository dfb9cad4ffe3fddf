//! Paths on the command line: `wifi: 50 Mbit/s, 20 ms +-5 ms, 0.5 %`.
//!
//! A name and a colon, then clauses in any order, separated by commas: a rate, a round-trip time (as `ping` shows
//! it; half of it each way), a loss; and, by keyword, `up RATE`, `down RATE`, `queue LIMIT`, `jitter SHAPE`,
//! `reordering`, `trace FILE`, `mtu BYTES`, `backup`.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ropewalk_link::Rate;
use ropewalk_sim::{Direction, EndSpec, PathSpec, Scenario, Workload};

use super::draft::LinkDraft;
use super::links::{MOST_PATHS, MTU_RANGE};
use super::shape::renamed;
use super::{phrase, trace};
use crate::diagnostic::{Diagnostic, Source, nearest};
use crate::units::{self, UnitError};

const KEYWORDS: &[&str] = &["up", "down", "queue", "jitter", "reordering", "trace", "mtu", "backup"];

/// Signs before a spread.
const SPREAD: [&str; 3] = ["+-", "+/-", "\u{b1}"];

/// The property that a clause sets. Each may be set once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Property {
    Rate,
    RoundTrip,
    Loss,
    Keyword(&'static str),
}

impl Property {
    fn name(self) -> String {
        match self {
            Property::Rate => "a rate".into(),
            Property::RoundTrip => "a round-trip time".into(),
            Property::Loss => "a loss".into(),
            Property::Keyword(word) => format!("`{word}`"),
        }
    }

    fn of(clause: &str) -> Option<Property> {
        let word = clause.split(char::is_whitespace).next().unwrap_or_default();
        let has_spread = SPREAD.iter().any(|sign| clause.contains(sign));
        if let Some(keyword) = KEYWORDS.iter().find(|known| **known == word) {
            Some(Property::Keyword(keyword))
        } else if clause.contains('%') && !has_spread || clause == "none" {
            Some(Property::Loss)
        } else if clause.contains("bit/s") || clause.contains("bps") || clause == "unlimited" {
            Some(Property::Rate)
        } else {
            clause
                .starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
                .then_some(Property::RoundTrip)
        }
    }
}

/// Parses the `--path` options: at most [`MOST_PATHS`], with different names.
///
/// # Errors
/// As [`path`]; also too many paths, or two of the same name.
pub fn paths(texts: &[String]) -> Result<Vec<PathSpec>, Diagnostic> {
    let found = texts.iter().map(|text| path(text)).collect::<Result<Vec<_>, _>>()?;
    let at = |index: usize, message: String, label: &str| {
        let text = &texts[index];
        let end = text.find(':').unwrap_or(text.len());
        Diagnostic::new(message).at(&Source::new("--path", text.as_str()), 0..end).label(label)
    };
    if found.len() > MOST_PATHS {
        let message = format!("{} paths: at most {MOST_PATHS} are allowed", found.len());
        return Err(at(MOST_PATHS, message, &format!("this is path {}", MOST_PATHS + 1)));
    }
    let twice = (0..found.len()).find(|at| found[..*at].iter().any(|before| before.name == found[*at].name));
    match twice {
        Some(index) => Err(at(index, format!("there are two paths `{}`", found[index].name), "the second")),
        None => Ok(found),
    }
}

/// Parses one `--path`.
///
/// # Errors
/// The part that isn't understood, and what is allowed.
pub fn path(text: &str) -> Result<PathSpec, Diagnostic> {
    let source = Source::new("--path", text);
    let wrong = |start: usize, part: &str, message: String, help: &str| {
        Diagnostic::new(message).at(&source, start..start + part.len()).label("here").help(help)
    };
    let example = "as in `wifi: 50 Mbit/s, 20 ms`";
    let Some((name, rest)) = text.split_once(':') else {
        return Err(wrong(0, text, "a path needs a name and a colon".into(), example));
    };
    let name = name.trim();
    if let Some(reason) = phrase::bad_name(name) {
        return Err(wrong(0, name, format!("the name `{name}` can't be used"), reason));
    }
    let mut path = Drafts { mtu: 1500, ..Drafts::default() };
    let mut given: Vec<(Property, Range<usize>)> = Vec::new();
    let mut start = text.len() - rest.len();
    for clause in rest.split(',') {
        let at = start + (clause.len() - clause.trim_start().len());
        start += clause.len() + 1;
        let clause = clause.trim();
        if clause.is_empty() {
            return Err(wrong(at.saturating_sub(1), ",", "an empty clause".into(), ""));
        }
        let Some(what) = Property::of(clause) else {
            let keyword = clause.split(char::is_whitespace).next().unwrap_or_default();
            if let Some(new) = renamed(keyword) {
                let message = format!("`{keyword}` is now called `{new}`");
                return Err(wrong(at, keyword, message, &format!("write `{new}`")));
            }
            let help = match nearest(keyword, KEYWORDS.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("allowed: a rate, a round-trip time, a loss, {}", KEYWORDS.join(", ")),
            };
            return Err(wrong(at, clause, format!("`{clause}` is not understood"), &help));
        };
        path.set(what, clause, at, &source)?;
        let second = |message: String, help: &str, first: &Range<usize>| {
            let second = wrong(at, clause, message, help).label("the second");
            Err(second.other(first.clone(), "the first is here"))
        };
        if let Some((_, first)) = given.iter().find(|(before, _)| *before == what) {
            return second(format!("{} is given twice", what.name()), "give it once", first);
        }
        let rates = [Property::Rate, Property::Keyword("trace")];
        if rates.contains(&what)
            && let Some((other, first)) = given.iter().find(|(before, _)| rates.contains(before))
        {
            let message = format!("{} and {}: a link has one or the other", other.name(), what.name());
            return second(message, "for another rate in one direction: `trace FILE, up RATE`", first);
        }
        given.push((what, at..at + clause.len()));
    }
    for word in ["jitter", "reordering"] {
        let found = given.iter().find(|(given, _)| *given == Property::Keyword(word));
        if let Some((_, span)) = found.filter(|_| path.both.spread.is_none()) {
            let clause = &text[span.clone()];
            let help = format!("give the round-trip time a spread: `20 ms +-5 ms, {clause}`");
            let message = format!("`{word}` says how round-trip times spread, and these don't");
            return Err(wrong(span.start, clause, message, &help));
        }
    }
    path.finish(name).map_err(|missing| wrong(0, text, format!("path `{name}` has no {missing}"), example))
}

/// The path as given so far.
#[derive(Default)]
struct Drafts {
    both: LinkDraft,
    up: LinkDraft,
    down: LinkDraft,
    mtu: u32,
    backup: bool,
}

impl Drafts {
    fn set(
        &mut self,
        what: Property,
        clause: &str,
        at: usize,
        source: &Arc<Source>,
    ) -> Result<(), Diagnostic> {
        let place = |error: UnitError| unit(source, at, error);
        let value = clause.split_once(char::is_whitespace).map_or("", |(_, value)| value.trim());
        let value_at = at + clause.len() - value.len();
        let place_value = |error: UnitError| unit(source, value_at, error);
        let wrong_value = |message: String, help: &str| {
            let span = if value.is_empty() { at } else { value_at }..at + clause.len();
            Diagnostic::new(message).at(source, span).label("here").help(help)
        };
        match what {
            Property::Rate => self.both.rate = Some(Rate::Constant(phrase::rate(clause).map_err(place)?)),
            Property::Loss => self.both.loss = Some(phrase::loss(clause).map_err(place)?),
            Property::RoundTrip => {
                rate_or_time(clause).map_err(place)?;
                let (rtt, spread) = units::duration_with_spread(clause).map_err(place)?;
                self.both.delay = Some(rtt / 2);
                self.both.spread = spread.map(|spread| spread / 2);
            }
            Property::Keyword("up") => {
                self.up.rate = Some(Rate::Constant(phrase::rate(value).map_err(place_value)?));
            }
            Property::Keyword("down") => {
                self.down.rate = Some(Rate::Constant(phrase::rate(value).map_err(place_value)?));
            }
            Property::Keyword("queue") => self.both.queue = Some(phrase::queue(value).map_err(place_value)?),
            Property::Keyword("mtu") => {
                self.mtu = units::bytes_within(value, MTU_RANGE).map_err(place_value)? as u32;
            }
            Property::Keyword("trace") if value.is_empty() => {
                return Err(wrong_value("`trace` needs a file".into(), "as in `trace lte.down`"));
            }
            Property::Keyword("trace") => {
                // A bad line is reported in the trace, an unreadable file where it is named.
                let found = trace::read(Path::new(value)).map_err(|error| match error.place {
                    Some(_) => error,
                    None => error.at(source, value_at..at + clause.len()).label("named here"),
                });
                self.both.rate = Some(Rate::Trace(found?));
            }
            Property::Keyword("jitter") => {
                match phrase::JITTER_SHAPES.iter().find(|(word, _)| *word == value) {
                    Some((_, shape)) => self.both.shape = Some(*shape),
                    None => {
                        let allowed = "allowed: uniform, normal, pareto";
                        return Err(wrong_value(format!("`{value}` is no shape of jitter"), allowed));
                    }
                }
            }
            Property::Keyword(word) if !value.is_empty() => {
                let help = format!("write `{word}` alone, or leave it out");
                return Err(wrong_value(format!("`{word}` takes no value"), &help));
            }
            Property::Keyword("backup") => self.backup = true,
            Property::Keyword(_) => self.both.reordering = Some(true),
        }
        Ok(())
    }

    /// The path, or the name of the missing property.
    fn finish(self, name: &str) -> Result<PathSpec, &'static str> {
        let Drafts { both, up, down, mtu, backup } = self;
        let (up, down) = (up.or(&both), down.or(&both));
        if up.rate.is_none() || down.rate.is_none() {
            return Err("rate");
        }
        let delay = both.delay.ok_or("round-trip time")?;
        let (up, down) = (up.finish(2 * delay, mtu), down.finish(2 * delay, mtu));
        Ok(PathSpec { name: name.to_string(), up, down, mtu, backup, bottleneck: None })
    }
}

/// Checks that a clause's unit is one of a rate or a time.
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
    fn errors_point_at_their_place() {
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
            ("wifi: 50 Mbit/s, 20 ms, backup false", "`backup` takes no value"),
            ("wifi: 50 Mbit/s, 20 ms +-5 ms, reordering nonsense here", "`reordering` takes no value"),
            ("wifi: 50 Mbit/s, 20 ms, 60 Mbit/s", "a rate is given twice"),
            ("wifi: 50 Mbit/s, 20 ms, 30 ms", "a round-trip time is given twice"),
            ("wifi: 50 Mbit/s, 20 ms, 1 %, 2 %", "a loss is given twice"),
            ("wifi: 50 Mbit/s, 20 ms, queue codel, queue 5 packets", "`queue` is given twice"),
            ("wifi: 50 Mbit/s, 20 ms, mtu 1400 B, mtu 1500 B", "`mtu` is given twice"),
            ("wifi: 50 Mbit/s, 20 ms, down 5 Mbit/s, down 6 Mbit/s", "`down` is given twice"),
            ("wifi: 50 Mbit/s, 20 ms, backup, backup", "`backup` is given twice"),
            ("wifi: 50 Mbit/s, 20 ms, jitter pareto", "`jitter` says how round-trip times spread"),
            ("wifi: 50 Mbit/s, 20 ms, reordering", "`reordering` says how"),
            ("wifi: 50 Mbit/s, 20 ms +-5 ms, overtaking", "`overtaking` is now called `reordering`"),
            ("wifi: 50 Mbit/s, 20 ms +-50 %", "`%` is not a unit of time"),
            ("wifi: 50 Mbit/s, 20 ms, none of this", "is not understood"),
        ] {
            let error = path(text).unwrap_err();
            assert!(error.message.contains(message) && error.place.is_some(), "{text}: {error:?}");
        }
    }

    #[test]
    fn a_repeated_clause_shows_the_first() {
        let text = "wifi: 50 Mbit/s, 20 ms, 1 %, 2 %";
        let error = path(text).unwrap_err();
        let (_, second) = error.place.clone().unwrap();
        let (first, label) = *error.other.clone().unwrap();
        assert_eq!((&text[second], &text[first], label.as_str()), ("2 %", "1 %", "the first is here"));
        let drawn = crate::diagnostic::InputError::from(error).render(false);
        assert!(drawn.contains("the first is here") && drawn.contains("the second"), "{drawn}");
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("t.down");
        std::fs::write(&trace, "1\n5\n").unwrap();
        let both = path(&format!("wifi: 50 Mbit/s, 20 ms, trace {}", trace.display())).unwrap_err();
        assert!(both.message.contains("one or the other") && both.other.is_some(), "{both:?}");
        // A rate for one direction beside a trace is no contradiction.
        path(&format!("wifi: 20 ms, trace {}, up 5 Mbit/s", trace.display())).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn an_endless_trace_is_refused() {
        let error = path("wifi: 20 ms, trace /dev/zero").unwrap_err();
        assert!(error.message.contains("a regular file") && error.label == "named here", "{error:?}");
    }
}
