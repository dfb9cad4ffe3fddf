//! Paths from measurements: the output of `ping`, `ss -ti` and `iperf3 --json`, and mahimahi traces, told apart by what
//! is in them. Each gives what it can of a path (round-trip time, loss, rate, queue), and how well.

mod iperf;
mod ping;
mod ss;

use std::path::Path;
use std::sync::Arc;

use ropewalk_link::{Jitter, JitterShape, LinkSpec, Loss, Queue, Rate, RateTrace};
use ropewalk_sim::{Direction, PathSpec};

use super::belief::{Doubt, LossDoubt};
use crate::diagnostic::Diagnostic;
use crate::input;
use crate::scenario;
use crate::stats;

pub use iperf::parse as parse_iperf;
pub use ping::parse as parse_ping;
pub use ss::parse as parse_ss;

/// Largest file of a measurement, bytes.
const LARGEST: u64 = 64 << 20;

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
    /// How many; 0: not said.
    pub count: u64,
    /// Taken while data was sent: queueing is in them.
    pub loaded: bool,
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
}

/// What a file says of a path.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// Round-trip times.
    pub rtt: Option<RoundTrip>,
    /// Lost, of so many.
    pub loss: Option<(u64, u64)>,
    /// Throughput.
    pub rate: Option<Throughput>,
    /// A recorded link.
    pub trace: Option<Arc<RateTrace>>,
}

impl Measured {
    /// Whether it says anything.
    pub fn is_empty(&self) -> bool {
        self.rtt.is_none() && self.loss.is_none() && self.rate.is_none() && self.trace.is_none()
    }
}

/// A number that can be a time in milliseconds, a rate, a count.
pub(super) fn positive(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0 && *number < 1e15)
}

/// Reads the file of a measurement.
///
/// # Errors
/// A file that can't be read, or that is none of the known kinds.
pub fn read(path: &Path) -> Result<Measured, Diagnostic> {
    let shown = path.display().to_string();
    let unreadable =
        |reason: &str| Diagnostic::new(format!("can't read the measurement `{shown}`: {reason}"));
    let bytes = input::read(path, LARGEST).map_err(|reason| unreadable(&reason))?;
    parse(&shown, &String::from_utf8_lossy(&bytes))
}

/// Reads a measurement's text, of whichever kind it is.
///
/// # Errors
/// None of the known kinds, or nothing in it.
pub fn parse(name: &str, text: &str) -> Result<Measured, Diagnostic> {
    let start = text.trim_start();
    let numbers_only =
        !start.is_empty() && start.chars().all(|c| c.is_ascii_digit() || c.is_ascii_whitespace());
    let (kind, found) = if start.starts_with('{') {
        ("iperf3 --json", iperf::parse(text))
    } else if numbers_only {
        let trace = scenario::parse_trace(name, text)?;
        ("a mahimahi trace", Ok(Measured { trace: Some(Arc::new(trace)), ..Measured::default() }))
    } else if let Ok(found) = ping::parse(text) {
        ("ping", Ok(found))
    } else {
        ("ss -ti", ss::parse(text))
    };
    let help = "known: the output of `ping -c 30 HOST`, `ss -tin`, `iperf3 --json -c HOST`, a mahimahi trace";
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(Diagnostic::new(format!("`{name}` says nothing of a path")).help(help)),
        Err(reason) => {
            let message = format!("`{name}` can't be used: read as {kind}, {reason}");
            Err(Diagnostic::new(message).help(help))
        }
    }
}

/// IP packets carry less than they are long: 1448 of 1500 bytes are payload.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

/// Puts measurements into a path: what they say replaces what was there, and doubts shrink.
///
/// # Errors
/// A path that still has no rate or no round-trip time.
pub fn refine(
    name: &str,
    known: Option<PathSpec>,
    measured: &[Measured],
) -> Result<(PathSpec, Doubt), Diagnostic> {
    let mut doubt = Doubt::default();
    let was_known = known.is_some();
    let mut path = known.unwrap_or_else(|| PathSpec {
        name: name.to_string(),
        up: LinkSpec::plain(u64::MAX, 0, 64),
        down: LinkSpec::plain(u64::MAX, 0, 64),
        mtu: 1500,
        backup: false,
        bottleneck: None,
    });
    // Rates: a trace or a transfer in its direction; without one, the transfer's for both.
    let mut rated = was_known;
    for found in measured {
        if let Some(trace) = &found.trace {
            path.up.rate = Rate::Trace(trace.clone());
            path.down.rate = Rate::Trace(trace.clone());
            (rated, doubt.rate) = (true, 0.1);
        }
    }
    let mut directed = [false; 2];
    for (found, rate) in measured.iter().filter_map(|m| m.rate.map(|rate| (m, rate))) {
        let wire = Rate::Constant((rate.bits / PAYLOAD_SHARE).clamp(1000.0, 1e12) as u64);
        let mut set = |index: usize| {
            // A transfer that names its direction beats one that doesn't.
            if found.trace.is_none() && (rate.direction.is_some() || !directed[index]) {
                let link = if index == 0 { &mut path.up } else { &mut path.down };
                link.rate = wire.clone();
                directed[index] |= rate.direction.is_some();
            }
        };
        match rate.direction {
            Some(Direction::Upload) => set(0),
            Some(Direction::Download) => set(1),
            None => (0..2).for_each(&mut set),
        }
        if !rated {
            // Better the other direction's than none.
            (0..2).filter(|index| !directed[*index]).for_each(|index| {
                let link = if index == 0 { &mut path.up } else { &mut path.down };
                link.rate = wire.clone();
            });
        }
        rated = true;
        doubt.rate = rate.sd.clamp(0.05, 0.5);
    }
    // Idle round trips beat those under load, of which the least counts.
    let idle = measured.iter().filter_map(|m| m.rtt).find(|rtt| !rtt.loaded);
    let loaded = measured.iter().filter_map(|m| m.rtt).find(|rtt| rtt.loaded);
    let mut timed = was_known;
    if let Some(rtt) = idle {
        set_rtt(&mut path, rtt.mean, rtt.sd);
        let of_mean = rtt.sd / libm::sqrt((rtt.count.max(1)) as f64) / rtt.mean.max(0.001);
        (timed, doubt.rtt) = (true, of_mean.clamp(0.03, 0.3));
    } else if let Some(rtt) = loaded {
        set_rtt(&mut path, rtt.min, 0.0);
        (timed, doubt.rtt) = (true, 0.15);
    }
    if !rated || !timed {
        let (what, how) = if rated {
            ("round-trip time", "`ping -c 30 HOST > FILE`")
        } else {
            ("rate", "`iperf3 --json -c HOST > FILE`")
        };
        return Err(Diagnostic::new(format!("nothing says the {what} of path `{name}`"))
            .help(format!("add the output of {how}, or give the path with --path and measure the rest")));
    }
    let lossy = measured.iter().filter_map(|m| m.loss).filter(|(_, sent)| *sent > 0);
    if let Some((lost, sent)) = lossy.max_by_key(|(_, sent)| *sent) {
        let share = lost as f64 / sent as f64;
        let loss = if lost == 0 { Loss::None } else { Loss::Bernoulli(share.min(0.5)) };
        (path.up.loss, path.down.loss) = (loss, loss);
        doubt.loss = LossDoubt::Counted { lost, sent };
    }
    // What the round trip grew by under load is the queue, in time at the rate it was filled at.
    if let Some(rtt) = loaded {
        let least = idle.map_or(rtt.min, |idle| idle.min.min(rtt.min));
        let grew = (rtt.max - least).max(1.0);
        for link in [&mut path.up, &mut path.down] {
            let bits = scenario::mean_rate(&link.rate) as f64;
            let bytes = (bits * grew / 8000.0).clamp(15_000.0, 1e9);
            link.queue = Queue::Bytes { limit: bytes as u64, ecn_threshold: None };
        }
        doubt.queue = 0.4;
    } else if !was_known {
        let rtt = path.up.delay + path.down.delay;
        for link in [&mut path.up, &mut path.down] {
            let bytes = scenario::mean_rate(&link.rate) as f64 * rtt as f64 / 8e9;
            let limit = (bytes / 1500.0).clamp(64.0, 100_000.0) as u32;
            link.queue = Queue::Packets { limit, ecn_threshold: None };
        }
    }
    Ok((path, doubt))
}

fn set_rtt(path: &mut PathSpec, mean_ms: f64, sd_ms: f64) {
    // Half of it each way; the variances of two halves add up.
    let delay = (mean_ms.clamp(0.01, 60_000.0) * 0.5e6) as u64;
    let spread = (sd_ms.clamp(0.0, 30_000.0) * 1e6 / std::f64::consts::SQRT_2) as u64;
    for link in [&mut path.up, &mut path.down] {
        link.delay = delay;
        link.jitter = (spread > 50_000).then_some(Jitter {
            spread: spread.min(delay),
            shape: JitterShape::Normal,
            keeps_order: true,
        });
    }
}

/// Mean and standard deviation of these, if there are any.
pub(super) fn round_trips(samples: &[f64], loaded: bool) -> Option<RoundTrip> {
    let summary = stats::Summary::of(samples)?;
    let count = samples.len() as u64;
    Some(RoundTrip { min: summary.min, mean: summary.mean, sd: summary.sd, max: summary.max, count, loaded })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) const PING: &str = include_str!("../../../tests/measured/ping.txt");
    pub(super) const SS: &str = include_str!("../../../tests/measured/ss.txt");
    pub(super) const IPERF: &str = include_str!("../../../tests/measured/iperf3.json");

    #[test]
    fn files_are_told_apart() {
        assert_eq!(parse("ping.txt", PING).unwrap().loss, Some((1, 20)));
        assert!(parse("ss.txt", SS).unwrap().rate.is_some());
        assert!(parse("iperf3.json", IPERF).unwrap().rate.is_some());
        assert!(parse("trace", "1\n1\n5\n").unwrap().trace.is_some());
        for nothing in ["", "hello", "{}", "{\"error\": \"unable to connect\"}", "{"] {
            assert!(parse("x", nothing).is_err(), "{nothing}");
        }
    }

    #[test]
    fn measurements_make_a_path() {
        let all: Vec<Measured> = [PING, IPERF].iter().map(|text| parse("x", text).unwrap()).collect();
        let (path, doubt) = refine("lte", None, &all).unwrap();
        // ping: a mean of 44.6 ms, half each way; one of 20 lost.
        assert!((path.down.delay as f64 / 1e6 - 22.3).abs() < 0.2, "{}", path.down.delay);
        assert_eq!(doubt.loss, LossDoubt::Counted { lost: 1, sent: 20 });
        // iperf3 -R: 18.9 Mbit/s of payload downwards.
        assert_eq!(path.down.rate, Rate::Constant((18_900_000.0 / PAYLOAD_SHARE) as u64));
        let missing = refine("lte", None, &all[..1]).unwrap_err();
        assert!(missing.message.contains("nothing says the rate of path `lte`"), "{missing:?}");
        let known = scenario::path("lte: 10 Mbit/s, 90 ms").unwrap();
        let (path, _) = refine("lte", Some(known), &all[..1]).unwrap();
        assert_eq!(path.down.rate, Rate::Constant(10_000_000));
        assert!(path.down.delay < 30_000_000);
    }

    proptest! {
        #[test]
        fn nothing_panics_on_any_text(text in "\\PC*") {
            let _ = parse("x", &text);
            let _ = (ping::parse(&text), ss::parse(&text), iperf::parse(&text));
        }

        #[test]
        fn nothing_panics_on_damaged_output(at in 0usize..4000, with in "\\PC{0,6}", which in 0usize..3) {
            let mut text = [PING, SS, IPERF][which].to_string();
            let mut at = at % (text.len() + 1);
            while !text.is_char_boundary(at) { at -= 1; }
            text.insert_str(at, &with);
            if let Ok(found) = parse("x", &text) {
                let _ = refine("x", None, &[found]);
            }
            let _ = parse("x", &text[..at]);
        }
    }
}
