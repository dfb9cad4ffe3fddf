//! Paths on the command line: `wifi: 50 Mbit/s, 20 ms +-5 ms, 0.5 %`.
//!
//! A name and a colon, then clauses in any order, separated by commas: a rate, a round-trip time (as `ping`
//! shows it; half of it each way), a loss; and, by keyword, `up RATE`, `down RATE`, `queue LIMIT`,
//! `jitter SHAPE`, `reordering`, `trace FILE`, `mtu BYTES`, `backup`, `outage TIME every TIME`, `metered`,
//! `price PER GB`. The first three may have the words that a file has for them: `rate 50 Mbit/s`,
//! `rtt 20 ms`, `loss 0.5 %`. `10 Mbit/s at 5 s` is a rate from then on; there may be several of these, and
//! several outages. A word such as `dsl` stands for a whole link ([`preset`]); what is given beside it
//! replaces that part (`starlink, outage none`).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ropewalk_engine::Span;
use ropewalk_link::Rate;
use ropewalk_settings::diagnostic::{Diagnostic, Source, nearest};
use ropewalk_settings::input::{OpenFile, no_files};
use ropewalk_settings::name::bad_name;
use ropewalk_settings::units::{self, UnitError};
use ropewalk_sim::{Direction, EndSpec, Metered, PathSpec, Scenario, Workload};

use super::draft::{LinkDraft, MOST_PATHS, MTU_RANGE};
use super::preset::{PRESETS, Preset, preset};
use super::{phrase, trace};

const KEYWORDS: &[&str] =
    &["up", "down", "queue", "jitter", "reordering", "trace", "mtu", "backup", "outage", "metered", "price"];

/// Signs before a spread.
const SPREAD: [&str; 3] = ["+-", "+/-", "\u{b1}"];

/// The property that a clause sets. Each may be set once, but for changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Property {
    Rate,
    /// Another rate from a time on.
    RateAt,
    RoundTrip,
    Loss,
    Preset,
    Keyword(&'static str),
}

impl Property {
    fn name(self) -> String {
        match self {
            Property::Rate => "a rate".into(),
            Property::RateAt => "a rate from a time on".into(),
            Property::RoundTrip => "a round-trip time".into(),
            Property::Loss => "a loss".into(),
            Property::Preset => "a kind of link".into(),
            Property::Keyword(word) => format!("`{word}`"),
        }
    }

    /// Whether it is a change, of which there may be several.
    pub(super) fn is_change(self) -> bool {
        matches!(self, Property::RateAt | Property::Keyword("outage"))
    }

    /// The property that a clause sets, and its value; of one that begins with its word, what follows.
    pub(super) fn of(clause: &str) -> Option<(Property, &str)> {
        let word = clause.split(char::is_whitespace).next().unwrap_or_default();
        let value = clause[word.len()..].trim();
        let named = |name: &str| name.eq_ignore_ascii_case(word);
        if let Some(keyword) = KEYWORDS.iter().find(|known| named(known)) {
            return Some((Property::Keyword(keyword), value));
        }
        let words = [("rate", Property::Rate), ("rtt", Property::RoundTrip), ("loss", Property::Loss)];
        if let Some((_, what)) = words.into_iter().find(|(name, _)| named(name)) {
            let is_later = what == Property::Rate && value.contains(" at ");
            return Some((if is_later { Property::RateAt } else { what }, value));
        }
        let base = SPREAD.iter().find_map(|sign| clause.split_once(sign)).map_or(clause, |(base, _)| base);
        // Of `16/1 Mbit/s` the unit follows the second number; of `1 % in bursts of 5` the first.
        let base = base
            .split_once('/')
            .filter(|(down, _)| units::unit_of(down).is_empty())
            .map_or(base, |(_, up)| up);
        let base =
            [" in ", " at "].iter().find_map(|word| base.split_once(word)).map_or(base, |(base, _)| base);
        let what = if preset(clause).is_some() {
            Property::Preset
        } else if clause == "none" {
            Property::Loss
        } else if clause == "unlimited" {
            Property::Rate
        } else if !clause.starts_with(|c: char| c.is_ascii_digit() || ".+-\u{2212}".contains(c)) {
            return None;
        } else if units::is_probability(units::unit_of(base)) {
            Property::Loss
        } else if units::is_rate(units::unit_of(base)) {
            if clause.contains(" at ") { Property::RateAt } else { Property::Rate }
        } else {
            Property::RoundTrip
        };
        Some((what, clause))
    }
}

/// Parses the `--path` options: at most [`MOST_PATHS`], with different names. Traces are read by `open_file`.
///
/// # Errors
/// As [`path`]; also too many paths, or two of the same name.
pub fn paths(texts: &[String], open_file: OpenFile) -> Result<Vec<PathSpec>, Diagnostic> {
    let found = texts.iter().map(|text| path_with(text, open_file)).collect::<Result<Vec<_>, _>>()?;
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

/// Parses one `--path` that needs no file.
///
/// # Errors
/// The part that isn't understood, and what is allowed.
pub fn path(text: &str) -> Result<PathSpec, Diagnostic> {
    path_with(text, no_files)
}

pub(super) fn path_with(text: &str, open_file: OpenFile) -> Result<PathSpec, Diagnostic> {
    let source = Source::new("--path", text);
    let wrong = |start: usize, part: &str, message: String, help: &str| {
        Diagnostic::new(message).at(&source, start..start + part.len()).label("here").help(help)
    };
    let example = "as in `wifi: 50 Mbit/s, 20 ms`";
    let Some((name, rest)) = text.split_once(':') else {
        return Err(wrong(0, text, "a path needs a name and a colon".into(), example));
    };
    let name = name.trim();
    if let Some(reason) = bad_name(name) {
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
        let Some((what, value)) = Property::of(clause) else {
            let keyword = clause.split(char::is_whitespace).next().unwrap_or_default();
            let kinds = || PRESETS.iter().map(|preset| preset.name);
            let help = match nearest(keyword, KEYWORDS.iter().copied().chain(kinds())) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!(
                    "allowed: a rate, a round-trip time, a loss, {}; or a kind of link: {}",
                    KEYWORDS.join(", "),
                    kinds().collect::<Vec<_>>().join(", ")
                ),
            };
            return Err(wrong(at, clause, format!("`{clause}` is not understood"), &help));
        };
        path.set(what, clause, value, at, &source, open_file)?;
        let second = |message: String, help: &str, first: &Range<usize>| {
            let second = wrong(at, clause, message, help).label("the second");
            Err(second.other(first.clone(), "the first is here"))
        };
        if let Some((_, first)) = given.iter().find(|(before, _)| *before == what && !what.is_change()) {
            return second(format!("{} is given twice", what.name()), "give it once", first);
        }
        let outage = Property::Keyword("outage");
        let is_none = |span: &Range<usize>| text[span.clone()].ends_with(phrase::NO_OUTAGE);
        if what == outage
            && let Some((_, first)) = given.iter().find(|(before, _)| *before == outage)
            && (value == phrase::NO_OUTAGE || is_none(first))
        {
            return second("an outage beside `outage none`".into(), "one or the other", first);
        }
        let rates = [Property::Rate, Property::Keyword("trace")];
        if rates.contains(&what)
            && let Some((other, first)) = given.iter().find(|(before, _)| rates.contains(before))
        {
            let message = format!("{} and {}: a link has one or the other", other.name(), what.name());
            return second(message, "for another rate in one direction: `trace FILE, up RATE`", first);
        }
        // `16/1 Mbit/s` says what `up` and `down` would.
        let ways = [Property::Keyword("up"), Property::Keyword("down")];
        if let Some((_, first)) = given.iter().find(|(before, span)| {
            path.two_rates && (what == Property::Rate && ways.contains(before))
                || (ways.contains(&what)
                    && *before == Property::Rate
                    && text[span.clone()]
                        .split_once('/')
                        .is_some_and(|(down, _)| down.ends_with(|c: char| c.is_ascii_digit() || c == ' ')))
        }) {
            return second(
                format!("`{clause}` beside `{}`: two rates for one direction", &text[first.clone()]),
                "give each direction one",
                first,
            );
        }
        given.push((what, at..at + clause.len()));
    }
    for word in ["jitter", "reordering"] {
        let found = given.iter().find(|(given, _)| *given == Property::Keyword(word));
        if let Some((_, span)) = found.filter(|_| path.both.spread.is_none() && path.preset.is_none()) {
            let clause = &text[span.clone()];
            let help = format!("give the round-trip time a spread: `20 ms +-5 ms, {clause}`");
            let message = format!("`{word}` says how round-trip times spread, and these don't");
            return Err(wrong(span.start, clause, message, &help));
        }
    }
    path.finish(name).map_err(|missing| wrong(0, text, format!("path `{name}` has no {missing}"), example))
}

/// An MTU is in bytes: `mtu 1466` says enough.
pub(super) fn mtu_with_unit(value: &str) -> String {
    let alone = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    if alone { format!("{value} B") } else { value.to_string() }
}

/// The path as given so far.
#[derive(Default)]
struct Drafts {
    both: LinkDraft,
    up: LinkDraft,
    down: LinkDraft,
    mtu: u32,
    backup: bool,
    metered: bool,
    price: Option<f64>,
    /// Whether the rate was given as `16/1 Mbit/s`.
    two_rates: bool,
    preset: Option<&'static Preset>,
}

impl Drafts {
    fn set(
        &mut self,
        what: Property,
        clause: &str,
        value: &str,
        at: usize,
        source: &Arc<Source>,
        open_file: OpenFile,
    ) -> Result<(), Diagnostic> {
        let value_at = at + clause.len() - value.len();
        let place_value = |error: UnitError| unit(source, value_at, error);
        let wrong_value = |message: String, help: &str| {
            let span = if value.is_empty() { at } else { value_at }..at + clause.len();
            Diagnostic::new(message).at(source, span).label("here").help(help)
        };
        match what {
            Property::RateAt => {
                self.both.changes.get_or_insert_default().push(phrase::rate_at(value).map_err(place_value)?);
            }
            Property::Rate => {
                let (down, up) = phrase::rates(value).map_err(place_value)?;
                self.both.rate = Some(Rate::Constant(down));
                if down != up {
                    (self.down.rate, self.up.rate) = (self.both.rate.clone(), Some(Rate::Constant(up)));
                    self.two_rates = true;
                }
            }
            Property::Preset => self.preset = preset(value),
            Property::Loss => self.both.loss = Some(phrase::loss(value).map_err(place_value)?),
            Property::RoundTrip => {
                rate_or_time(value).map_err(place_value)?;
                let (rtt, spread) = units::duration_with_spread(value).map_err(place_value)?;
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
                self.mtu = units::bytes_within(&mtu_with_unit(value), MTU_RANGE).map_err(place_value)? as u32;
            }
            Property::Keyword("outage") => {
                self.both.changes.get_or_insert_default().extend(phrase::outage(value).map_err(place_value)?);
            }
            Property::Keyword("price") => self.price = Some(phrase::price(value).map_err(place_value)?),
            Property::Keyword("trace") if value.is_empty() => {
                return Err(wrong_value("`trace` needs a file".into(), "as in `trace lte.down`"));
            }
            Property::Keyword("trace") => {
                // A bad line is reported in the trace, an unreadable file where it is named.
                let found = trace::read(Path::new(value), open_file).map_err(|error| match error.place {
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
            Property::Keyword("metered") => self.metered = true,
            Property::Keyword(_) => self.both.reordering = Some(true),
        }
        Ok(())
    }

    /// The path, or the name of the missing property.
    fn finish(self, name: &str) -> Result<PathSpec, &'static str> {
        let Drafts { both, up, down, mtu, backup, metered, price, preset, .. } = self;
        let (mut up, mut down) = (up.or(&both), down.or(&both));
        if let Some(preset) = preset {
            let (preset_up, preset_down) = drafts_of(preset);
            (up, down) = (up.or(&preset_up), down.or(&preset_down));
        }
        if up.rate.is_none() || down.rate.is_none() {
            return Err("rate");
        }
        let delay = down.delay.ok_or("round-trip time")?;
        let (up, down) = (up.finish(2 * delay, mtu), down.finish(2 * delay, mtu));
        let metered = (metered || price.is_some()).then_some(Metered { price });
        Ok(PathSpec { name: name.to_string(), up, down, mtu, backup, bottleneck: None, metered })
    }
}

/// Both directions of a kind of link.
pub(super) fn drafts_of(preset: &Preset) -> (LinkDraft, LinkDraft) {
    let source = Source::new(preset.name, preset.link);
    let mut drafts = Drafts::default();
    for clause in preset.link.split(',').map(str::trim) {
        // A test reads them all.
        let read =
            Property::of(clause).map(|(what, value)| drafts.set(what, clause, value, 0, &source, no_files));
        debug_assert!(matches!(read, Some(Ok(()))), "{}: `{clause}`", preset.name);
    }
    (drafts.up.or(&drafts.both), drafts.down.or(&drafts.both))
}

/// Checks that a clause's unit is one of a rate or a time.
fn rate_or_time(clause: &str) -> Result<(), UnitError> {
    let base = clause.split(['+', '\u{b1}']).next().unwrap_or(clause).trim_end();
    let unit = units::unit_of(base);
    if units::is_time(unit) || base.chars().all(|c| "0. ".contains(c)) {
        return Ok(());
    }
    let (message, span) = if unit.is_empty() {
        ("a rate or a round-trip time needs its unit".to_string(), 0..base.len())
    } else {
        (format!("`{unit}` is a unit of neither a rate nor a time"), base.len() - unit.len()..base.len())
    };
    let near = units::suggested_rate_or_time(unit).map_or(String::new(), |near| near + " ");
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
        warmup: Span::ZERO,
        limit: Span::from_secs(60),
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::Span;
    use ropewalk_link::{ChangeAction, Loss, Rate};
    use ropewalk_settings::diagnostic::Diagnostic;
    use ropewalk_sim::PathSpec;

    use super::{PRESETS, path_with};

    fn path(text: &str) -> Result<PathSpec, Diagnostic> {
        path_with(text, ropewalk_settings::input::open)
    }

    #[test]
    fn a_path_in_one_line() {
        let wifi = path("wifi: 50 Mbit/s, 20 ms +-5 ms, 0.5 %, up 10 Mbit/s, queue 100 packets").unwrap();
        assert_eq!((wifi.name.as_str(), wifi.down.delay), ("wifi", Span::from_millis(10)));
        assert_eq!(wifi.down.rate, Rate::Constant(50_000_000));
        assert_eq!(wifi.up.rate, Rate::Constant(10_000_000));
        assert_eq!(wifi.down.loss, Loss::Bernoulli(0.005));
        assert_eq!(wifi.down.jitter.unwrap().spread, Span::from_micros(2500));
    }

    #[test]
    fn down_and_up_in_one_word_outages_and_prices() {
        let dsl = path("dsl: 16/1 Mbit/s, 30 ms").unwrap();
        assert_eq!((&dsl.down.rate, &dsl.up.rate), (&Rate::Constant(16_000_000), &Rate::Constant(1_000_000)));
        let lte = path("lte: 40 Mbit/s, 55 ms, outage 100 ms every 15 s, price 2 EUR/GB").unwrap();
        assert_eq!((lte.up.changes.len(), lte.down.changes.len()), (2, 2));
        assert_eq!(lte.metered.unwrap().price, Some(2.0));
        assert!(!path("sky: starlink").unwrap().down.changes.is_empty());
        assert_eq!(path("sky: starlink, outage none").unwrap().down.changes, []);
        assert_eq!(path("sky: outage none, starlink, 5 Mbit/s at 1 s").unwrap().down.changes.len(), 1);
        assert_eq!(path("lte: 40 Mbit/s, 55 ms, metered").unwrap().metered.unwrap().price, None);
        for text in ["a: 16/1 Mbit/s, 30 ms, up 2 Mbit/s", "a: up 2 Mbit/s, 16/1 Mbit/s, 30 ms"] {
            let error = path(text).unwrap_err();
            assert!(error.message.contains("two rates for one direction"), "{error:?}");
        }
    }

    #[test]
    fn changes_may_be_several() {
        let lte = path(
            "lte: 40/9 Mbit/s, 55 ms, outage 2 s at 5 s, 10 Mbit/s at 3 s, rate 2 MB/s at 8 s, outage 1 s \
             at 9 s",
        );
        let changes = lte.unwrap().down.changes;
        let seconds: Vec<_> = changes.iter().map(|change| change.at.as_millis() / 1000).collect();
        assert_eq!(seconds, [3, 5, 7, 8, 9, 10]);
        assert_eq!(changes[3].action, ChangeAction::Rate(Rate::Constant(16_000_000)));
    }

    #[test]
    fn a_word_stands_for_a_link_and_what_is_given_replaces_its_part() {
        for preset in PRESETS {
            let found = path(&format!("x: {}", preset.name)).unwrap();
            let written = path(&format!("x: {}", preset.link)).unwrap();
            assert_eq!(found, written, "{}", preset.name);
            assert!(!preset.source.is_empty());
        }
        let sky = path("sky: starlink, 40 ms, down 90 Mbit/s, queue 64 packets").unwrap();
        assert_eq!(
            (&sky.down.rate, &sky.up.rate),
            (&Rate::Constant(90_000_000), &Rate::Constant(17_000_000))
        );
        // A time of its own has its own jitter.
        assert_eq!((sky.down.delay, sky.down.jitter), (Span::from_millis(20), None));
        assert_eq!(sky.down.changes.len(), 2);
        let even = path("x: dsl, 5 Mbit/s").unwrap();
        assert_eq!(
            (&even.down.rate, &even.up.rate),
            (&Rate::Constant(5_000_000), &Rate::Constant(5_000_000))
        );
        assert!(path("x: starlnk").unwrap_err().help.iter().any(|help| help.contains("starlink")));
        assert!(path("x: dsl, cable").unwrap_err().message.contains("given twice"));
    }

    #[test]
    fn units_and_words_are_those_of_files_in_any_case() {
        let same = path("a: 40 Mbit/s, 20 ms +-2 ms, 1 %, mtu 1466 B").unwrap();
        for text in [
            "a: 5 MB/s, 20ms +/- 2ms, 1 percent, mtu 1466",
            "a: 40 Mb/s, 20 MS +-2 ms, 1%, MTU 1466 bytes",
            "a: 0.04 Gb/s, 20 msec +-2 msec, loss 1%, mtu 1.466 kB",
            "a: 40000 kb/s, rtt 20 ms +-2 ms, loss 1 per cent, mtu 1466",
            "a: rate 40mbit, RTT 20 ms +-2 ms, 1 Percent, Mtu 1466",
            "a: 40Mbits/sec, 20 ms \u{b1}2 ms, Loss 1 %, mtu 1466",
            "a: 40/40 Mbit/s, 20 ms \u{b1}2 ms, loss 1 %, mtu 1466",
        ] {
            assert_eq!(path(text).unwrap_or_else(|error| panic!("{text}: {error:?}")), same, "{text}");
        }
        let down = |text: &str| path(text).unwrap().down.rate;
        assert_eq!(down("a: 16/1 MB/s, 5 ms"), Rate::Constant(128_000_000));
        assert_eq!(path("a: 16/1 MB/s, 5 ms").unwrap().up.rate, Rate::Constant(8_000_000));
        assert_eq!(down("a: 16 / 1 Mb/s, 5 ms"), Rate::Constant(16_000_000));
        assert_eq!(down("a: 1e3 kbit/s, 5 ms"), Rate::Constant(1_000_000));
        for (text, help) in [
            ("a: 35 MB, 40 ms", "did you mean `MB/s`?"),
            ("a: 35 mbyt, 40 ms", "did you mean `MByte/s`?"),
            ("a: 35 MB/S, 40 ms", "did you mean `Mbit/s` (bits) or `MB/s` (bytes)?"),
            ("a: 35 mbi/s, 40 ms", "did you mean `Mbit/s`?"),
        ] {
            let error = path(text).unwrap_err();
            assert!(error.help.iter().any(|line| line.starts_with(help)), "{text}: {:?}", error.help);
        }
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
            ("wifi: 50 Mbyte, 20 ms", "`Mbyte` is a unit of neither"),
            ("wifi: 50 MBPS, 20 ms", "`MBPS` is not a unit of rate"),
            ("wifi: rate 20 ms, 20 ms", "`ms` is not a unit of rate"),
            ("wifi: 50 Mbit/s, 20 ms, loss 1", "needs its `%`"),
            ("wifi: 50 Mbit/s, 20 ms, mtu 200", "out of range"),
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
            ("wifi: 50 Mbit/s, 20 ms, 5 Mbit/s at 3", "needs a unit"),
            ("wifi: 50 Mbit/s, 20 ms, 5/1 Mbit/s at 3 s", "one rate for both directions"),
            ("wifi: 50 Mbit/s, 20 ms, rate soon at 3 s", "expected a rate"),
            ("wifi: 5 Mbit/s at 3 s, 20 ms", "no rate"),
            ("wifi: 50 Mbit/s, 20 ms, backup, backup", "`backup` is given twice"),
            ("wifi: 50 Mbit/s, 20 ms, jitter pareto", "`jitter` says how round-trip times spread"),
            ("wifi: 50 Mbit/s, 20 ms, reordering", "`reordering` says how"),
            ("wifi: 50 Mbit/s, 20 ms +-50 %", "`%` is not a unit of time"),
            ("wifi: 50 Mbit/s, 20 ms, none of this", "is not understood"),
            ("wifi: starlink, outage none, outage 1 s at 2 s", "beside `outage none`"),
            ("wifi: starlink, outage 1 s at 2 s, outage none", "beside `outage none`"),
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
        let drawn = ropewalk_settings::diagnostic::InputError::from(error).render(false);
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
