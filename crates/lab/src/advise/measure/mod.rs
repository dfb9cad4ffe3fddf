//! Paths from measurements: the output of `ping`, `ss -ti` and `iperf3 --json`, and mahimahi traces, told apart by what
//! is in them. Each gives what it can of a path (round-trip time, loss, rate, queue), and how well.

mod error;
mod iperf;
mod ping;
mod ss;

use std::path::Path;
use std::sync::Arc;

use ropewalk_link::{Jitter, JitterShape, LinkSpec, Loss, Queue, Rate, RateTrace};
use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_settings::input::{ReadFile, Want};
use ropewalk_sim::{Direction, PathSpec};

use super::belief::{Doubt, scale_rate, scaled_loss};
use crate::{scenario, stats};

pub use error::MeasurementError;
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
    /// What was lost.
    pub loss: Option<Counted>,
    /// Throughput, of each direction that was measured.
    pub rates: Vec<Throughput>,
    /// A recorded link.
    pub trace: Option<Arc<RateTrace>>,
    /// Segments retransmitted, of so many: losses by congestion are among them.
    pub retransmitted: Option<(u64, u64)>,
    /// What the file doesn't tell, and what would.
    pub notes: Vec<String>,
}

impl Measured {
    /// Whether it says anything.
    pub fn is_empty(&self) -> bool {
        self.rtt.is_none() && self.loss.is_none() && self.rates.is_empty() && self.trace.is_none()
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
pub fn read(path: &Path, read_file: ReadFile) -> Result<Measured, Diagnostic> {
    let shown = path.display().to_string();
    let unreadable =
        |reason: &str| Diagnostic::new(format!("can't read the measurement `{shown}`: {reason}"));
    let want = Want { most: LARGEST, pipe: true };
    let bytes = read_file(path, want).map_err(|error| unreadable(&error.to_string()))?;
    parse(&shown, &decode(&bytes))
}

/// Text in UTF-8, or in UTF-16 with a byte order mark, as Windows redirects it.
fn decode(bytes: &[u8]) -> String {
    let units = |unit: fn([u8; 2]) -> u16| -> Vec<u16> {
        bytes[2..].chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect()
    };
    match bytes {
        [0xff, 0xfe, ..] => String::from_utf16_lossy(&units(u16::from_le_bytes)),
        [0xfe, 0xff, ..] => String::from_utf16_lossy(&units(u16::from_be_bytes)),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Reads a measurement's text, of whichever kind it is.
///
/// # Errors
/// None of the known kinds, or nothing in it.
pub fn parse(name: &str, text: &str) -> Result<Measured, Diagnostic> {
    let text = text.trim_start_matches('\u{feff}');
    let start = text.trim_start();
    let numbers_only =
        !start.is_empty() && start.chars().all(|c| c.is_ascii_digit() || c.is_ascii_whitespace());
    let read = if start.starts_with('{') {
        Some(("iperf3 --json", iperf::parse(text)))
    } else if numbers_only {
        let trace = scenario::parse_trace(name, text)?;
        Some(("a mahimahi trace", Ok(Measured { trace: Some(Arc::new(trace)), ..Measured::default() })))
    } else if let Ok(found) = ping::parse(text) {
        Some(("ping", Ok(found)))
    } else if text.contains("rtt:") {
        Some(("ss -ti", ss::parse(text)))
    } else if ["PING ", "Pinging ", "packets transmitted"].iter().any(|word| text.contains(word)) {
        Some(("ping", ping::parse(text)))
    } else {
        None
    };
    let help = "known: the output of `ping -c 30 HOST`, `ss -tin`, `iperf3 --json -c HOST`, a mahimahi trace";
    let Some((kind, found)) = read else {
        return Err(Diagnostic::new(format!("`{name}` is no measurement of a known kind")).help(help));
    };
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

/// What was stated of a path, or is taken of one of which only measurements are known: median of its loss and the standard
/// deviation of the logarithm. Paths lose little: 95 % below 0.6 %.
const USUAL_LOSS: (f64, f64) = (0.0005, 1.5);

/// Two sources joined, each a value and the standard deviation of its logarithm: weighted by what each is sure of.
fn join(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let (wa, wb) = (1.0 / (a.1 * a.1), 1.0 / (b.1 * b.1));
    let log = (wa * libm::log(a.0) + wb * libm::log(b.0)) / (wa + wb);
    (libm::exp(log), 1.0 / libm::sqrt(wa + wb))
}

/// Standard deviation of the logarithm of a rate of which only the least is known.
const OPEN: f64 = 0.5;

/// What is stated, joined with a rate that it is at least: the normal distribution of the logarithm, cut off below that.
fn raised(stated: (f64, f64), least: f64) -> (f64, f64) {
    let z = (libm::log(least) - libm::log(stated.0)) / stated.1;
    if z < -3.0 {
        return stated;
    }
    // Far below what was measured, what is stated tells nothing.
    if z > 4.0 {
        return (least * libm::exp(0.15), stated.1.min(0.15));
    }
    let density = libm::exp(-z * z / 2.0) / libm::sqrt(2.0 * std::f64::consts::PI);
    let above = libm::erfc(z / std::f64::consts::SQRT_2) / 2.0;
    let hazard = density / above;
    let variance = 1.0 + z * hazard - hazard * hazard;
    (stated.0 * libm::exp(stated.1 * hazard), stated.1 * libm::sqrt(variance.max(0.01)))
}

/// What a transfer retransmitted.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Repeated {
    /// Segments sent again.
    segments: u64,
    /// Of so many.
    sent: u64,
    /// Those of them that its own congestion is likely to have cost, in segments: a few per loss of the congestion window.
    congestion: f64,
}

impl Repeated {
    /// How likely that is with this loss. A part of the repeats is congestion's, and how large that part is isn't known: its
    /// density falls as 1 / (1 + part / congestion)^2. The rest is Poisson's.
    fn likelihood(&self, loss: f64) -> f64 {
        const STEPS: usize = 80;
        let expected = self.sent as f64 * loss;
        let all = self.segments as f64;
        // P(X <= k) of a Poisson's X, on the scale of square roots, where its variance is 1/4.
        let at_most = |k: f64| {
            let z = 2.0 * (libm::sqrt(k + 1.0) - libm::sqrt(expected));
            libm::erfc(-z / std::f64::consts::SQRT_2) / 2.0
        };
        let share = |part: f64| 1.0 - 1.0 / (1.0 + part / self.congestion);
        (0..STEPS)
            .map(|step| {
                // Steps grow with the distance from none.
                let part = |step: usize| (all + 1.0) * libm::pow(step as f64 / STEPS as f64, 2.0);
                let (from, to) = (part(step), part(step + 1));
                let own = (all - (from + to) / 2.0).max(0.0);
                let exactly = at_most(own) - at_most(own - 1.0);
                (share(to) - share(from)) * exactly
            })
            .sum()
    }
}

/// The loss after what was counted (lost, of so many) and what was retransmitted, of which a part is congestion's: median
/// and standard deviation of the logarithm. By summing over a grid of the logarithm.
fn loss_after(prior: (f64, f64), counted: &[Counted], repeated: &[Repeated]) -> (f64, f64) {
    const STEPS: usize = 600;
    let (low, high) = (libm::log(1e-6), libm::log(0.5));
    let grid: Vec<f64> = (0..=STEPS).map(|i| low + (high - low) * i as f64 / STEPS as f64).collect();
    let weight = |log: f64| {
        let p = libm::exp(log);
        let off = (log - libm::log(prior.0)) / prior.1;
        let of_counts: f64 = counted
            .iter()
            .map(|of| {
                let share = if of.round_trip { p * (2.0 - p) } else { p };
                of.lost as f64 * libm::log(share) + (of.sent - of.lost) as f64 * libm::log1p(-share)
            })
            .sum();
        let of_repeats: f64 = repeated.iter().map(|one| libm::log(one.likelihood(p).max(1e-300))).sum();
        -off * off / 2.0 + of_counts + of_repeats
    };
    let logs: Vec<f64> = grid.iter().map(|log| weight(*log)).collect();
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logs.iter().map(|log| libm::exp(log - most)).collect();
    let sum: f64 = weights.iter().sum();
    let mean = grid.iter().zip(&weights).map(|(x, w)| x * w).sum::<f64>() / sum;
    let variance = grid.iter().zip(&weights).map(|(x, w)| (x - mean) * (x - mean) * w).sum::<f64>() / sum;
    (libm::exp(mean), libm::sqrt(variance))
}

/// The long-run share that a loss takes.
fn share(loss: &Loss) -> f64 {
    match *loss {
        Loss::None => 0.0,
        Loss::Bernoulli(p) => p,
        Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
            let bad = to_bad / (to_bad + to_good).max(1e-12);
            bad * loss_bad + (1.0 - bad) * loss_good
        }
    }
}

/// Puts measurements into a path. Each is a likelihood, joined with what is stated of the path and how sure that is: the
/// result is surer than either. Of a path that isn't known, the measurements are all there is.
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
        metered: None,
    });
    let mut rated = [was_known; 2];
    for trace in measured.iter().filter_map(|found| found.trace.as_ref()) {
        path.up.rate = Rate::Trace(trace.clone());
        path.down.rate = Rate::Trace(trace.clone());
        (rated, doubt.rate) = ([true; 2], [0.1; 2]);
    }
    let rates = || measured.iter().flat_map(|found| &found.rates);
    for rate in rates().filter(|rate| !rate.at_least) {
        let wire = ((rate.bits / PAYLOAD_SHARE).clamp(1000.0, 1e12), rate.sd.clamp(0.05, 0.5));
        for (index, direction) in [Direction::Upload, Direction::Download].into_iter().enumerate() {
            if rate.direction.is_some_and(|of| of != direction) {
                continue;
            }
            let link = if index == 0 { &mut path.up } else { &mut path.down };
            let stated = scenario::mean_rate(&link.rate);
            let before = (stated as f64, doubt.rate[index]);
            let after = if rated[index] && stated < u64::MAX { join(before, wire) } else { wire };
            match link.rate {
                Rate::Constant(_) => link.rate = Rate::Constant(after.0 as u64),
                Rate::Trace(_) => scale_rate(link, after.0 / before.0, 0.0),
            }
            (rated[index], doubt.rate[index]) = (true, after.1);
        }
    }
    for (index, direction) in [Direction::Upload, Direction::Download].into_iter().enumerate() {
        let of = rates().filter(|rate| rate.at_least && rate.direction.is_none_or(|of| of == direction));
        let Some(bits) = of.map(|rate| rate.bits).reduce(f64::max) else { continue };
        let least = (bits / PAYLOAD_SHARE).clamp(1000.0, 1e12);
        let link = if index == 0 { &mut path.up } else { &mut path.down };
        let stated = scenario::mean_rate(&link.rate);
        if rated[index] {
            if stated < u64::MAX {
                let before = stated as f64;
                let (after, sd) = raised((before, doubt.rate[index]), least);
                match link.rate {
                    Rate::Constant(_) => link.rate = Rate::Constant(after as u64),
                    Rate::Trace(_) => scale_rate(link, after / before, 0.0),
                }
                doubt.rate[index] = sd;
            }
        } else {
            // 5 % below what was measured, 5 % above five times that.
            link.rate = Rate::Constant((least * libm::exp(1.645 * OPEN)) as u64);
            (rated[index], doubt.rate[index], doubt.open_above[index]) = (true, OPEN, true);
        }
    }
    // Better the other direction's than none.
    match rated {
        [true, false] => {
            (path.down.rate, doubt.rate[1]) = (path.up.rate.clone(), 0.5);
            doubt.open_above[1] = doubt.open_above[0];
        }
        [false, true] => {
            (path.up.rate, doubt.rate[0]) = (path.down.rate.clone(), 0.5);
            doubt.open_above[0] = doubt.open_above[1];
        }
        _ => {}
    }
    // Idle round trips beat those under load, of which the least counts.
    let idle = measured.iter().filter_map(|m| m.rtt).find(|rtt| !rtt.loaded);
    let loaded = measured.iter().filter_map(|m| m.rtt).find(|rtt| rtt.loaded);
    let found = match (idle, loaded) {
        (Some(idle), _) => {
            let count = if idle.count == 0 { 10 } else { idle.count };
            let sd = idle.sd / libm::sqrt(count as f64) / idle.mean.max(0.001);
            Some((idle.mean, sd.clamp(0.02, 0.3)))
        }
        (None, Some(loaded)) => Some((loaded.min, 0.15)),
        (None, None) => None,
    };
    let timed = was_known || found.is_some();
    if !rated.contains(&true) || !timed {
        let (what, how) = if rated.contains(&true) {
            ("round-trip time", "`ping -c 30 HOST > FILE`")
        } else {
            ("rate", "`iperf3 --json -c HOST > FILE`")
        };
        return Err(Diagnostic::new(format!("nothing says the {what} of path `{name}`"))
            .help(format!("add the output of {how}, or give the path with --path and measure the rest")));
    }
    if let Some((mean, sd)) = found {
        let stated = (path.up.delay + path.down.delay) as f64 / 1e6;
        let after =
            if was_known && stated > 0.0 { join((stated, doubt.rtt), (mean, sd)) } else { (mean, sd) };
        doubt.rtt = after.1;
        set_delay(&mut path, after.0);
        if let Some(idle) = idle {
            set_jitter(&mut path, idle.sd, was_known);
        }
    }
    let counted: Vec<Counted> = measured.iter().filter_map(|m| m.loss).filter(|of| of.sent > 0).collect();
    // Slow start overshoots by up to what the path holds, and each loss of the window costs a few.
    let held = libm::sqrt(scenario::mean_rate(&path.down.rate).min(1 << 40) as f64)
        * libm::sqrt(scenario::mean_rate(&path.up.rate).min(1 << 40) as f64)
        * (path.up.delay + path.down.delay) as f64
        / 8e9
        / 1500.0;
    let repeats = measured.iter().filter_map(|m| m.retransmitted);
    let bounds: Vec<Repeated> = repeats
        .map(|(segments, sent)| Repeated { segments, sent, congestion: (held / 4.0).clamp(5.0, 1e4) })
        .collect();
    let stated = share(&path.up.loss).max(share(&path.down.loss));
    // Where no loss is stated and none was seen, there is none.
    if !counted.is_empty() && (!was_known || stated > 0.0 || counted.iter().any(|of| of.lost > 0)) {
        let prior = if was_known && stated > 0.0 { (stated, doubt.loss) } else { USUAL_LOSS };
        let (middle, sd) = loss_after(prior, &counted, &bounds);
        for link in [&mut path.up, &mut path.down] {
            link.loss = match link.loss {
                Loss::GilbertElliott { .. } => scaled_loss(link.loss, middle / stated.max(1e-9)),
                _ => Loss::Bernoulli(middle.min(0.5)),
            };
        }
        doubt.loss = if was_known && stated > 0.0 { sd.min(doubt.loss) } else { sd };
    } else if was_known && stated > 0.0 && !bounds.is_empty() {
        let (middle, sd) = loss_after((stated, doubt.loss), &[], &bounds);
        for link in [&mut path.up, &mut path.down] {
            link.loss = scaled_loss(link.loss, middle / stated);
        }
        doubt.loss = sd.min(doubt.loss);
    }
    // What the round trip grew by under load is the queue, in time at the rate it was filled at.
    if let Some(rtt) = loaded {
        let least = idle.map_or(rtt.min, |idle| idle.min.min(rtt.min));
        let grew = (rtt.max - least).max(1.0);
        for link in [&mut path.up, &mut path.down] {
            let bits = scenario::mean_rate(&link.rate) as f64;
            let seen = ((bits * grew / 8000.0).clamp(15_000.0, 1e9), 0.4);
            let joined = |bytes: f64| if was_known { join((bytes, 0.7), seen).0 } else { seen.0 };
            match &mut link.queue {
                Queue::Packets { limit, .. } => {
                    *limit = (joined(f64::from(*limit) * 1500.0) / 1500.0).clamp(2.0, 1e6) as u32;
                }
                Queue::Bytes { limit, .. } => *limit = joined(*limit as f64) as u64,
                Queue::CoDel { .. } => {}
            }
        }
        doubt.queue = if was_known { join((1.0, doubt.queue), (1.0, 0.4)).1 } else { 0.4 };
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

fn set_delay(path: &mut PathSpec, rtt_ms: f64) {
    // Half of it each way.
    let delay = (rtt_ms.clamp(0.01, 60_000.0) * 0.5e6) as u64;
    (path.up.delay, path.down.delay) = (delay, delay);
}

/// Of single round trips; the variances of two halves add up. What is stated stays where it agrees within half as much.
fn set_jitter(path: &mut PathSpec, sd_ms: f64, was_known: bool) {
    let spread = (sd_ms.clamp(0.0, 30_000.0) * 1e6 / std::f64::consts::SQRT_2) as u64;
    // A uniform jitter's standard deviation is its spread over the root of three.
    let stated = path.down.jitter.map_or(0.0, |jitter| match jitter.shape {
        JitterShape::Uniform => jitter.spread as f64 / libm::sqrt(3.0),
        _ => jitter.spread as f64,
    });
    let agrees = (spread as f64) < 1.5 * stated && (spread as f64) > stated / 1.5;
    if was_known && (agrees || (stated == 0.0 && spread <= 50_000)) {
        return;
    }
    for link in [&mut path.up, &mut path.down] {
        link.jitter = (spread > 50_000).then_some(Jitter {
            spread: spread.min(link.delay),
            shape: JitterShape::Normal,
            keeps_order: true,
        });
    }
}

/// What is known of a path after its files were read: ranges that hold the truth with 90 %.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// The path.
    pub path: String,
    /// The files.
    pub files: Vec<String>,
    /// Round-trip time, milliseconds.
    pub rtt_ms: (f64, f64),
    /// Rates upwards and downwards, bits per second.
    pub rate: [(f64, f64); 2],
    /// Which of the rates may be much more: nothing shows that the link was full.
    pub at_least: [bool; 2],
    /// Loss.
    pub loss: (f64, f64),
    /// Whether a file counts what was lost or retransmitted.
    pub counted: bool,
    /// Queue in the data's direction, milliseconds; none where it is managed.
    pub queue_ms: Option<f64>,
    /// What files don't contain.
    pub notes: Vec<String>,
}

impl Reading {
    /// Of a path and how well it is known.
    pub fn of(path: &PathSpec, doubt: &Doubt, files: &[(String, Measured)], direction: Direction) -> Self {
        let around = |value: f64, sd: f64| (value * libm::exp(-1.645 * sd), value * libm::exp(1.645 * sd));
        let rate = |link: &LinkSpec, sd: f64| around(scenario::mean_rate(&link.rate) as f64, sd);
        let link = if direction == Direction::Upload { &path.up } else { &path.down };
        let bytes = match link.queue {
            Queue::Packets { limit, .. } => Some(f64::from(limit) * 1500.0),
            Queue::Bytes { limit, .. } => Some(limit as f64),
            Queue::CoDel { .. } => None,
        };
        let notes = files
            .iter()
            .flat_map(|(file, found)| found.notes.iter().map(move |note| format!("{file}: {note}")));
        Reading {
            path: path.name.clone(),
            files: files.iter().map(|(file, _)| file.clone()).collect(),
            rtt_ms: around((path.up.delay + path.down.delay) as f64 / 1e6, doubt.rtt),
            rate: [rate(&path.up, doubt.rate[0]), rate(&path.down, doubt.rate[1])],
            at_least: doubt.open_above,
            loss: around(share(&link.loss), doubt.loss),
            counted: files.iter().any(|(_, found)| found.loss.is_some() || found.retransmitted.is_some()),
            queue_ms: bytes.map(|bytes| bytes * 8000.0 / scenario::mean_rate(&link.rate).max(1) as f64),
            notes: notes.collect(),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let range = |(low, high): (f64, f64), unit: f64, name: &str| {
            let digits = |value: f64| if value < 10.0 { 1 } else { 0 };
            let (low, high) = (low / unit, high / unit);
            format!("{low:.*} .. {high:.*} {name}", digits(low), digits(high))
        };
        let mut parts = vec![format!("RTT {}", range(self.rtt_ms, 1.0, "ms"))];
        for (index, way) in [(1, "down"), (0, "up")] {
            let rate = self.rate[index];
            parts.push(match self.at_least[index] {
                true => format!("{way} at least {} Mbit/s", two_digits(rate.0 / 1e6)),
                false => format!("{way} {}", range(rate, 1e6, "Mbit/s")),
            });
        }
        parts.push(match self.loss {
            (_, 0.0) if !self.counted => "loss unknown".into(),
            (_, 0.0) => "no loss seen".into(),
            (low, high) if low < high / 50.0 => format!("loss at most {} %", two_digits(high * 100.0)),
            (low, high) => format!("loss {} .. {} %", two_digits(low * 100.0), two_digits(high * 100.0)),
        });
        parts.extend(self.queue_ms.map(|ms| format!("queue about {ms:.0} ms")));
        let notes: String = self.notes.iter().map(|note| format!("\n  {note}")).collect();
        format!("{}, with {}: {}{notes}", self.path, self.files.join(", "), parts.join(", "))
    }
}

/// Two significant digits.
fn two_digits(value: f64) -> String {
    let digits = if value >= 9.95 {
        0
    } else if value >= 0.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
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
        let lost = Counted { lost: 1, sent: 20, round_trip: true };
        assert_eq!(parse("ping.txt", PING).unwrap().loss, Some(lost));
        assert_eq!(parse("ss.txt", SS).unwrap().rates.len(), 1);
        assert_eq!(parse("iperf3.json", IPERF).unwrap().rates.len(), 1);
        assert!(parse("trace", "1\n1\n5\n").unwrap().trace.is_some());
        for nothing in ["", "hello", "{}", "{\"error\": \"unable to connect\"}", "{"] {
            assert!(parse("x", nothing).is_err(), "{nothing}");
        }
    }

    fn one_way(lost: u64, sent: u64) -> Counted {
        Counted { lost, sent, round_trip: false }
    }

    #[test]
    fn pings_are_lost_on_either_way() {
        // 2 % of round trips: 1 % each way.
        let (middle, _) = loss_after(USUAL_LOSS, &[Counted { lost: 80, sent: 4000, round_trip: true }], &[]);
        assert!((middle / 0.01005 - 1.0).abs() < 0.03, "{middle}");
    }

    #[test]
    fn a_rate_that_is_at_least_something_opens_upward() {
        let slow = Throughput { bits: 1e6, sd: 0.1, direction: None, at_least: true };
        let measured = Measured { rates: vec![slow], ..Measured::default() };
        let ping = parse("ping.txt", PING).unwrap();
        let (path, doubt) = refine("x", None, &[measured.clone(), ping]).unwrap();
        let files = [("f".to_string(), measured.clone())];
        let reading = Reading::of(&path, &doubt, &files, Direction::Download);
        assert!(reading.rate[1].0 < 1.1e6 && reading.rate[1].1 > 4e6, "{reading:?}");
        assert!(reading.text().contains("down at least 1.0 Mbit/s"), "{}", reading.text());
        // What is stated stays where it is more, and is raised where it is less; it is never less sure for that.
        let stated = |text| scenario::path(text).unwrap();
        let (path, doubt) =
            refine("a", Some(stated("a: 20 Mbit/s, 40 ms")), std::slice::from_ref(&measured)).unwrap();
        assert_eq!((&path.down.rate, doubt.rate[1]), (&Rate::Constant(20_000_000), Doubt::default().rate[1]));
        for text in ["a: 1 Mbit/s, 40 ms", "a: 100 kbit/s, 40 ms"] {
            let (path, doubt) = refine("a", Some(stated(text)), std::slice::from_ref(&measured)).unwrap();
            assert!(scenario::mean_rate(&path.down.rate) > 1_000_000, "{text}: {path:?}");
            assert!(doubt.rate[1] <= Doubt::default().rate[1], "{doubt:?}");
        }
    }

    #[test]
    fn text_of_windows_is_read() {
        let utf16: Vec<u8> =
            std::iter::once(0xfeff).chain(PING.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        assert_eq!(decode(&utf16).trim_start_matches('\u{feff}'), PING);
        assert_eq!(parse("x", &decode(&utf16)), parse("x", PING));
        assert!(parse("x", &format!("\u{feff}{IPERF}")).is_ok());
    }

    #[test]
    fn thirty_clean_pings_are_not_several_per_cent_of_loss() {
        let (middle, sd) = loss_after(USUAL_LOSS, &[one_way(0, 30)], &[]);
        assert!(middle * libm::exp(1.645 * sd) < 0.01, "{middle} {sd}");
        // A transfer that retransmitted 3 of 20,000 rules out more.
        let repeated = |segments, sent| Repeated { segments, sent, congestion: 10.0 };
        let (middle, sd) = loss_after(USUAL_LOSS, &[one_way(0, 30)], &[repeated(3, 20_000)]);
        assert!(middle * libm::exp(1.645 * sd) < 0.0005, "{middle} {sd}");
        // A flow that retransmitted far more than congestion explains gives the loss rate.
        let (middle, sd) = loss_after((0.005, 0.7), &[one_way(0, 30)], &[repeated(400, 40_000)]);
        assert!((0.007..0.0102).contains(&middle) && sd < 0.4, "{middle} {sd}");
        // Where congestion may have cost as many, that is the most that is lost.
        let (middle, sd) = loss_after((0.001, 0.7), &[], &[repeated(12, 4000)]);
        assert!(middle < 0.002 && sd > 0.4, "{middle} {sd}");
        // Many counted ones outweigh what is usual; more of them are surer.
        let (middle, sd) = loss_after(USUAL_LOSS, &[one_way(20, 1000)], &[]);
        assert!((middle / 0.02 - 1.0).abs() < 0.15 && sd < 0.25, "{middle} {sd}");
        assert!(loss_after(USUAL_LOSS, &[one_way(200, 10_000)], &[]).1 < sd / 2.0);
    }

    #[test]
    fn measurements_join_what_is_stated_and_only_narrow_it() {
        let ping = parse("ping.txt", PING).unwrap();
        let stated = || Some(scenario::path("lte: 20 Mbit/s, 60 ms, 0.1 %").unwrap());
        let (path, doubt) = refine("lte", stated(), std::slice::from_ref(&ping)).unwrap();
        let default = Doubt::default();
        assert!(doubt.rtt < default.rtt && doubt.loss < default.loss, "{doubt:?}");
        let iperf = parse("iperf.json", IPERF).unwrap();
        let (_, both) = refine("lte", stated(), &[ping, iperf]).unwrap();
        assert!(
            both.rate[1] < default.rate[1] && both.rtt <= doubt.rtt && both.loss <= doubt.loss,
            "{both:?}"
        );
        // Between what is stated and what was measured, nearer to what is surer.
        let rtt = (path.up.delay + path.down.delay) as f64 / 1e6;
        assert!((44.0..48.0).contains(&rtt), "{rtt}");
    }

    #[test]
    fn what_a_file_cannot_tell_is_said() {
        let text = IPERF
            .replace("mean_rtt", "unused_rtt")
            .replace("min_rtt", "unused_min")
            .replace("max_rtt", "unused_max");
        let found = parse("iperf.json", &text).unwrap();
        assert!(found.rtt.is_none() && found.notes.iter().any(|note| note.contains("-R")));
        let message = |text: &str| parse("notes.txt", text).unwrap_err().message;
        assert!(message("hello").contains("no measurement of a known kind"));
        assert!(message("PING x (1.2.3.4)\n3 packets transmitted, 0 received").contains("not one answer"));
    }

    #[test]
    fn measurements_make_a_path() {
        let all: Vec<Measured> = [PING, IPERF].iter().map(|text| parse("x", text).unwrap()).collect();
        let (path, doubt) = refine("lte", None, &all).unwrap();
        // ping: a mean of 44.6 ms, half each way; one of 20 lost.
        assert!((path.down.delay as f64 / 1e6 - 22.3).abs() < 0.2, "{}", path.down.delay);
        // One of 20, where paths usually lose little: a per cent or so, surely not a quarter.
        let Loss::Bernoulli(loss) = path.down.loss else { panic!("no loss") };
        assert!(
            (0.0005..0.05).contains(&loss) && loss * libm::exp(1.645 * doubt.loss) < 0.1,
            "{loss} {doubt:?}"
        );
        // iperf3 -R: 18.9 Mbit/s of payload downwards.
        assert_eq!(path.down.rate, Rate::Constant((18_900_000.0 / PAYLOAD_SHARE) as u64));
        let missing = refine("lte", None, &all[..1]).unwrap_err();
        assert!(missing.message.contains("nothing says the rate of path `lte`"), "{missing:?}");
        let known = scenario::path("lte: 10 Mbit/s, 90 ms").unwrap();
        let (path, doubt) = refine("lte", Some(known), &all[..1]).unwrap();
        assert_eq!(path.down.rate, Rate::Constant(10_000_000));
        assert!(path.down.delay < 30_000_000 && doubt.rtt < Doubt::default().rtt, "{path:?} {doubt:?}");
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
