//! Paths from measurements. Each format is a file of its own beside this one, with one line in `FORMATS`;
//! which one a file is, is told by what is in it. Each gives what it can of a path (round-trip time, loss,
//! rate, queue), and how well.

mod columns;
mod curl;
mod error;
mod flent;
mod foreign;
mod fping;
mod iperf;
mod iperf_text;
mod irtt;
mod likelihood;
mod long;
mod mtr;
mod per_second;
mod ping;
mod probes;
mod reading;
mod recording;
mod refine;
mod speedtest;
mod speedtest_text;
mod ss;
mod trace;
mod transfers;

use std::path::Path;
use std::sync::Arc;

use ropewalk_link::RateTrace;
use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_settings::input::{OpenFile, ReadError, Want};
use ropewalk_sim::Direction;
use serde_json::Value;

use crate::stats;

use long::{ByLine, Head, Source};

pub use error::MeasurementError;
pub use iperf::parse as parse_iperf;
pub(super) use likelihood::share as loss_share;
pub use ping::parse as parse_ping;
pub use reading::Reading;
pub use refine::{Refined, refine};
pub use ss::parse as parse_ss;

/// Largest file of a measurement, bytes: as large as a trace.
const LARGEST: u64 = 2 << 30;

/// Largest one that is read as a whole, bytes: JSON, and what prints a few lines.
const LARGEST_WHOLE: usize = 256 << 20;

/// Round-trip times, milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoundTrip {
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// Standard deviation of single ones.
    pub sd: f64,
    /// The greatest.
    pub max: f64,
    /// How many, if it is said.
    pub count: Option<u64>,
    /// Taken while data was sent: queueing is in them.
    pub loaded: bool,
    /// They are smoothed ones: the least round trip is at most the least of these.
    pub smoothed: bool,
}

/// A rate, bits per second of payload.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Throughput {
    /// The mean.
    pub bits: f64,
    /// Standard deviation of its logarithm.
    pub sd: f64,
    /// Which way, if the file says so.
    pub direction: Option<Direction>,
    /// Nothing shows that the link was full: its rate is at least this.
    pub at_least: bool,
}

/// Packets that were lost, of so many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Lost.
    pub lost: u64,
    /// Sent.
    pub sent: u64,
    /// Each had to pass both ways, as ping's: with a loss of p each way, 1 - (1 - p)^2 of them are lost.
    pub round_trip: bool,
}

/// What a file says of a path.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// Round-trip times.
    pub rtt: Option<RoundTrip>,
    /// Those under load, of a tool that takes both.
    pub under_load: Option<RoundTrip>,
    /// What was lost.
    pub loss: Option<Counted>,
    /// Throughput, of each direction that was measured.
    pub rates: Vec<Throughput>,
    /// A recorded link: upwards and downwards.
    pub traces: [Option<Arc<RateTrace>>; 2],
    /// Segments retransmitted, of so many: losses by congestion are among them.
    pub retransmitted: Option<(u64, u64)>,
    /// What the file doesn't tell, and what would.
    pub notes: Vec<String>,
}

impl Measured {
    /// Whether it says anything.
    pub fn is_empty(&self) -> bool {
        self.rtt.is_none()
            && self.under_load.is_none()
            && self.loss.is_none()
            && self.rates.is_empty()
            && self.traces.iter().all(Option::is_none)
    }

    /// Whether a link was full while it was measured, so that its queue was.
    fn filled(&self) -> bool {
        self.rates.iter().any(|rate| !rate.at_least)
    }
}

/// A file to be read.
struct Input<'a> {
    /// Its name: that of a trace says which way it is.
    name: &'a str,
    text: &'a str,
    /// Its documents, if it is JSON: one, or several one after another.
    json: &'a [Value],
}

/// What reads one format. None: it is another.
type Reader = fn(&Input<'_>) -> Option<Result<Measured, MeasurementError>>;

/// What is read: the name in messages, how to get it, and what reads it. The first that fits is taken.
const FORMATS: &[(&str, &str, Reader)] = &[
    ("iperf3 --json", "iperf3 --json -c HOST", iperf::read),
    ("irtt", "irtt client -o FILE HOST", irtt::read),
    ("mtr --json", "mtr --json HOST", mtr::read_json),
    ("flent", "flent", flent::read),
    ("a speed test", "speedtest-cli --json", speedtest::read),
    ("curl", "curl -w '%{json}'", curl::read),
    ("RIPE Atlas", "RIPE Atlas", probes::read_atlas),
    ("a mahimahi trace", "a mahimahi trace", trace::read),
    ("iperf -y C", "iperf -y C -c HOST", transfers::read_iperf_csv),
    ("fping", "fping -c 30 HOST", fping::read),
    ("mtr", "mtr -r -c 30 HOST", mtr::read),
    ("ss -ti", "ss -tin", ss::read),
    ("iperf", "iperf3 -c HOST", iperf_text::read),
    ("a speed test", "speedtest", speedtest_text::read),
    ("netperf", "netperf -H HOST", transfers::read_netperf),
    ("nuttcp", "nuttcp HOST", transfers::read_nuttcp),
    ("wget", "wget URL", transfers::read_wget),
    ("traceroute", "traceroute HOST", probes::read_traceroute),
    ("tcping", "tcping HOST PORT", probes::read_tcping),
    ("twping", "twping HOST", probes::read_twping),
    ("Test-Connection", "Test-Connection HOST", probes::read_test_connection),
    ("ping", "ping -c 30 HOST", ping::read),
    ("rates over time", "throughput per second as CSV", per_second::read),
];

/// Begins to read a file of this name.
type Begin = fn(&str) -> Box<dyn ByLine>;

/// Which of them are read line by line where the file is long.
const LONG: &[(&str, Begin)] = &[
    ("a mahimahi trace", trace::by_line),
    ("fping", fping::by_line),
    ("ss -ti", ss::by_line),
    ("ping", ping::by_line),
    ("rates over time", per_second::by_line),
];

/// A number that can be a time in milliseconds, a rate, a count.
pub(super) fn positive(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0 && *number < 1e15)
}

/// Such a number in JSON.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite() && *number >= 0.0 && *number < 1e15)
}

/// Reads the file of a measurement.
///
/// # Errors
/// A file that can't be read, or that is none of the known kinds.
pub fn read(path: &Path, open_file: OpenFile) -> Result<Measured, Diagnostic> {
    let shown = path.display().to_string();
    let unreadable =
        |reason: &str| Diagnostic::new(format!("can't read the measurement `{shown}`: {reason}"));
    let want = Want { most: LARGEST, pipe: true };
    let cannot = |error: ReadError| unreadable(&error.to_string());
    let mut source = Source::new(open_file(path, want).map_err(cannot)?);
    let head = match source.head().map_err(cannot)? {
        Head::Whole(text) => return parse(&shown, &text),
        Head::Part(text) => text,
    };
    let Some((kind, mut reader)) = by_line(&shown, &head) else {
        let whole = source.whole(head, LARGEST_WHOLE).map_err(cannot)?;
        let whole = whole.ok_or_else(|| {
            let most = LARGEST_WHOLE >> 20;
            let long = LARGEST >> 30;
            let kinds: Vec<&str> = LONG.iter().map(|(kind, ..)| *kind).collect();
            unreadable(&format!("it is larger than {most} MiB"))
                .help(format!("up to {long} GiB are read of what comes line by line: {}", kinds.join(", ")))
        })?;
        return parse(&shown, &whole);
    };
    let mut read = head.trim_start_matches('\u{feff}').lines().try_for_each(|line| reader.line(line));
    if read.is_ok() {
        read = source.lines(reader.as_mut(), &unreadable)?;
    }
    let found = read.and_then(|()| reader.end());
    let found = found.map_err(|reason| cannot_use(&shown, kind, &reason))?;
    if found.is_empty() { Err(says_nothing(&shown)) } else { Ok(found) }
}

/// What reads a long file that begins so.
fn by_line(name: &str, head: &str) -> Option<(&'static str, Box<dyn ByLine>)> {
    let text = head.trim_start_matches('\u{feff}');
    if foreign::named(name, text).is_some() || !text.ends_with('\n') {
        return None;
    }
    let json = match documents(text.trim_start()) {
        // A document that goes on.
        Err(_) if text.trim_start().starts_with('{') => return None,
        json => json.unwrap_or_default(),
    };
    let input = Input { name, text, json: &json };
    let fits = |(_, _, reader): &&(&str, &str, Reader)| reader(&input).is_some();
    let (kind, ..) = FORMATS.iter().find(fits)?;
    let (kind, begin) = LONG.iter().find(|(long, _)| long == kind)?;
    Some((*kind, begin(name)))
}

/// Reads a measurement's text, of whichever kind it is.
///
/// # Errors
/// None of the known kinds, or nothing in it.
pub fn parse(name: &str, text: &str) -> Result<Measured, Diagnostic> {
    let text = text.trim_start_matches('\u{feff}');
    let start = text.trim_start();
    if let Some(what) = foreign::named(name, text) {
        return Err(wrong(format!("`{name}` {what}")));
    }
    let mut json = Vec::new();
    if start.starts_with(['{', '[']) {
        match documents(start) {
            Ok(found) => json = found,
            // `[  5]` begins a line of iperf.
            Err(_) if start.starts_with('[') => {}
            Err(reason) => return Err(cannot_use(name, "JSON", &reason)),
        }
    }
    let input = Input { name, text, json: &json };
    let Some((kind, found)) =
        FORMATS.iter().find_map(|(kind, _, reader)| reader(&input).map(|found| (kind, found)))
    else {
        return Err(wrong(format!("`{name}` is no measurement of a known kind")));
    };
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(says_nothing(name)),
        Err(reason) => Err(cannot_use(name, kind, &reason)),
    }
}

/// A refusal, with what is known.
fn wrong(message: String) -> Diagnostic {
    let ways: Vec<String> = FORMATS.iter().map(|(_, way, _)| format!("`{way}`")).collect();
    let help = format!("known: {}", ways.join(", ").replace("`a mahimahi trace`", "a mahimahi trace"));
    let help = help.replace("`throughput per second as CSV`", "throughput per second as CSV");
    Diagnostic::new(message).help(help)
}

fn cannot_use(name: &str, kind: &str, reason: &MeasurementError) -> Diagnostic {
    wrong(format!("`{name}` can't be used: read as {kind}, {reason}"))
}

fn says_nothing(name: &str) -> Diagnostic {
    wrong(format!("`{name}` says nothing of a path"))
}

/// What is said of a rate that is at least this, bits per second, and why.
fn at_least(direction: Option<Direction>, bits: f64, why: &str) -> String {
    let way = match direction {
        Some(Direction::Upload) => " up",
        Some(Direction::Download) => " down",
        None => "",
    };
    format!("the rate{way} is at least {} Mbit/s: {why}", mbit(bits))
}

/// Bits in Mbit, to three digits after the point at most.
fn mbit(bits: f64) -> String {
    format!("{:.3}", bits / 1e6).trim_end_matches('0').trim_end_matches('.').to_string()
}

/// JSON documents one after another; what an array holds counts as documents.
fn documents(text: &str) -> Result<Vec<Value>, MeasurementError> {
    let found: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
    let found = found.map_err(|error| MeasurementError::NotJson(error.to_string()))?;
    Ok(found
        .into_iter()
        .flat_map(|one| match one {
            Value::Array(all) => all,
            one => vec![one],
        })
        .collect())
}

/// Of how many times the usual spread an answer must be late to count as a spike, and the share of answers
/// that may be.
const SPIKE: f64 = 8.0;
const SPIKES: f64 = 0.1;

/// Mean and standard deviation of these, if there are any. Single ones far above the rest are no jitter: they
/// are told in the second value, and only the greatest counts them.
fn round_trips(samples: &[f64], loaded: bool) -> Option<(RoundTrip, Option<String>)> {
    let all = stats::Summary::of(samples)?;
    let count = samples.len() as u64;
    let of = |summary: &stats::Summary| RoundTrip {
        min: all.min,
        mean: summary.mean,
        sd: summary.sd,
        max: all.max,
        count: Some(count),
        loaded,
        smoothed: false,
    };
    let median_of = |values: &[f64]| stats::quantile(&stats::sorted(values), 0.5);
    let median = median_of(samples);
    let off: Vec<f64> = samples.iter().map(|ms| (ms - median).abs()).collect();
    // 1.4826: of a normal distribution that is its standard deviation.
    let usual = (1.4826 * median_of(&off)).max(0.02 * median).max(0.1);
    let limit = median + (SPIKE * usual).max(0.25 * median);
    let late: Vec<usize> = (0..samples.len()).filter(|at| samples[*at] > limit).collect();
    let rest: Vec<f64> = samples.iter().copied().filter(|ms| *ms <= limit).collect();
    let few = late.len() as f64 <= SPIKES * samples.len() as f64;
    let Some(steady) = stats::Summary::of(&rest).filter(|_| late.len() >= 2 && few && samples.len() >= 20)
    else {
        return Some((of(&all), None));
    };
    let apart: Vec<f64> = late.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let every = median_of(&apart);
    let regular = apart.len() >= 3 && apart.iter().all(|apart| (apart / every - 1.0).abs() < 0.2);
    let rhythm = if regular { format!(", every {every:.0} answers") } else { String::new() };
    let note = format!(
        "{} of {count} answers took {:.0} to {:.0} ms{rhythm}: changes over time, as of a handover or a \
         scan, and no jitter",
        late.len(),
        late.iter().map(|at| samples[*at]).fold(f64::INFINITY, f64::min),
        all.max
    );
    Some((of(&steady), Some(note)))
}

/// As a file with these bytes is read.
#[cfg(test)]
fn decode(bytes: Vec<u8>) -> String {
    let file = ropewalk_settings::input::Opened::new(std::io::Cursor::new(bytes), u64::MAX);
    match Source::new(file).head() {
        Ok(Head::Whole(text) | Head::Part(text)) => text,
        Err(error) => panic!("{error}"),
    }
}

#[cfg(test)]
mod tests;
