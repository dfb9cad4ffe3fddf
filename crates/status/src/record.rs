//! The last hour of a proxy as a scenario file: each link's rate, delay and loss over time.
//!
//! A proxy can't know what a link could have carried, only what it did. The rate is what was carried in
//! seconds in which the link was full (its queue had grown); in others the last such rate holds, or what was
//! carried, if that is more. A link that was never full has carried at least what is said, and that is said.
//! The delay is the least round-trip time without a queue, halved: queues are the simulator's to fill. The
//! loss is that of data that passed while the link worked and had no queue, or that of probes.

use std::fmt::Write as _;

use ropewalk_settings::units::{write_duration, write_probability, write_rate};
use ropewalk_time::Span;
use serde::{Deserialize, Serialize};

/// Seconds around a moment that are looked at, where a link was never full.
const AROUND: usize = 5;
/// A rate counts as that of such a link if it is at least this share of its usual most.
const BUSY: f64 = 0.2;
/// Rates below this say nothing, bits per second.
const LEAST_RATE: u64 = 100_000;
/// A link that carried less in all has carried handshakes and probes: its rate isn't known. Bytes.
const LEAST_CARRIED: u64 = 256 << 10;
/// The delay of a link of which none is known, seconds.
const UNKNOWN_RTT: f64 = 0.040;
/// Values that differ by less than this share are told as one.
const ALIKE: f64 = 0.15;
/// The same of delays, seconds.
const ALIKE_RTT: f64 = 0.002;
/// Fewer lost probes than this may be chance: no loss is told.
const LEAST_LOST: u32 = 3;
/// From so many packets of data the loss is known.
const ENOUGH_PACKETS: u64 = 1000;
/// A pause shorter than this isn't told, seconds.
const LEAST_PAUSE: f64 = 0.1;
/// How much more a queue holds than was ever seen in it.
const QUEUE_MARGIN: f64 = 1.1;

/// One direction of a link, second by second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RecordedDirection {
    /// What was carried, bits per second.
    pub bits_per_s: Vec<u64>,
    /// The same while the link was full; none where it wasn't, or not for long enough.
    pub full_bits_per_s: Vec<Option<u64>>,
    /// Full-sized packets sent while the link's queue couldn't overflow, and how many of them were lost.
    pub packets: Vec<(u64, u64)>,
}

impl RecordedDirection {
    fn cut(&mut self, begin: usize) {
        cut(&mut self.bits_per_s, begin);
        cut(&mut self.full_bits_per_s, begin);
        cut(&mut self.packets, begin);
    }

    /// The share of packets that the link lost by itself, if enough passed to tell.
    fn loss(&self) -> Option<f64> {
        let add = |(all, lost), one: &(u64, u64)| (all + one.0, lost + one.1);
        let (all, lost) = self.packets.iter().fold((0, 0), add);
        let known = if lost < LEAST_LOST.into() { 0.0 } else { lost as f64 / all as f64 };
        (all >= ENOUGH_PACKETS).then_some(known)
    }

    fn was_full(&self, second: usize) -> bool {
        self.full_bits_per_s.get(second).is_some_and(Option::is_some)
    }
}

/// Drops the first seconds.
fn cut<T>(values: &mut Vec<T>, begin: usize) {
    values.drain(..begin.min(values.len()));
}

/// A stretch of time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Period {
    /// When it began, from the recording's begin.
    pub start_s: f64,
    /// How long it lasted.
    pub seconds: f64,
}

impl Period {
    /// When it ended, from the recording's begin.
    #[must_use]
    pub fn end_s(&self) -> f64 {
        self.start_s + self.seconds
    }

    /// What of it comes after a moment, told from there.
    #[must_use]
    pub fn after(&self, begin_s: f64) -> Option<Period> {
        let start_s = self.start_s.max(begin_s);
        let seconds = self.end_s() - start_s;
        (seconds > 0.0).then_some(Period { start_s: start_s - begin_s, seconds })
    }
}

/// What a link did, second by second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RecordedLink {
    /// The name of its network interface.
    pub interface: String,
    /// Whether its traffic costs money.
    pub metered: bool,
    /// Whether it is used only while no other link works.
    pub backup: bool,
    /// Most that it was allowed to carry, bits per second.
    pub rate_limit_bits_per_s: Option<u64>,
    /// Towards the clients.
    pub down: RecordedDirection,
    /// From the clients.
    pub up: RecordedDirection,
    /// The least round-trip time seen in each second, seconds; none where all had a queue in them.
    pub rtt_s: Vec<Option<f32>>,
    /// The greatest one that data had.
    pub loaded_rtt_s: Vec<Option<f32>>,
    /// Probes in each second that had an answer, and those that had none though the link worked.
    pub probes: Vec<(u16, u16)>,
    /// When it carried nothing and lost nothing, as in a handover.
    pub pauses: Vec<Period>,
    /// When it didn't work.
    pub outages: Vec<Period>,
}

/// A flow that has ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordedFlow {
    /// When it began, from the recording's begin.
    pub start_s: f64,
    /// How long it lasted, up to its last byte.
    pub seconds: f64,
    /// Bytes to the client.
    pub bytes_down: u64,
    /// Bytes from the client.
    pub bytes_up: u64,
    /// The proxy's scheduler.
    pub scheduler: String,
}

/// What a proxy has recorded.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Recording {
    /// How long it is.
    pub seconds: usize,
    /// The links.
    pub links: Vec<RecordedLink>,
    /// The flows, in the order in which they ended.
    pub flows: Vec<RecordedFlow>,
}

/// A recording as a scenario file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// The file.
    pub text: String,
    /// Links that carried next to nothing: no rate of theirs is known, and they aren't in the file.
    pub left_out: Vec<String>,
    /// Links that were never full, with what they carried: their rates are at least that.
    pub at_least: Vec<(String, String)>,
}

/// A recording that can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It is too short.
    #[error("the recording has {0} s: at least 2 s are needed; the proxy records while it runs")]
    Short(usize),
    /// Nothing was carried.
    #[error("no link has carried {} in any second: nothing is known of their rates", write_rate(LEAST_RATE))]
    Idle,
}

/// The most within some seconds of each moment.
fn around<T: Copy>(values: &[T], pick: impl Fn(&[T]) -> T) -> Vec<T> {
    let window = |at: usize| at.saturating_sub(AROUND)..(at + AROUND + 1).min(values.len());
    (0..values.len()).map(|at| pick(&values[window(at)])).collect()
}

/// Values where they are known; elsewhere the last that was, or the first that will be.
fn filled<T: Copy>(values: &[Option<T>]) -> Option<Vec<T>> {
    let mut last = values.iter().flatten().next().copied()?;
    let fill = |value: &Option<T>| {
        last = value.unwrap_or(last);
        last
    };
    Some(values.iter().map(fill).collect())
}

/// The rate over time of a link that was never full: at least this.
fn least_rate(carried: &[u64]) -> Option<Vec<u64>> {
    let most = around(carried, |window| window.iter().copied().max().unwrap_or(0));
    let mut sorted = most.clone();
    sorted.sort_unstable();
    let usual = sorted.get(sorted.len().saturating_sub(1) * 19 / 20).copied()?;
    let least = ((usual as f64 * BUSY) as u64).max(LEAST_RATE);
    filled(&most.iter().map(|rate| (*rate >= least).then_some(*rate)).collect::<Vec<_>>())
}

/// A rate over time.
#[derive(Clone)]
struct Rates {
    bits_per_s: Vec<u64>,
    /// Seconds in which the link was full: 0 if the rates are at least these.
    full: usize,
}

impl Rates {
    /// By what a direction carried; `None` if that was next to nothing.
    fn of(direction: &RecordedDirection) -> Option<Rates> {
        let carried = &direction.bits_per_s;
        if carried.iter().map(|rate| rate / 8).sum::<u64>() < LEAST_CARRIED {
            return None;
        }
        let full = direction.full_bits_per_s.iter().flatten().count();
        let bits_per_s = match filled(&direction.full_bits_per_s) {
            Some(held) => held.iter().zip(carried).map(|(held, carried)| *held.max(carried)).collect(),
            None => least_rate(carried)?,
        };
        Some(Rates { bits_per_s, full })
    }

    fn most(&self) -> u64 {
        self.bits_per_s.iter().copied().max().unwrap_or(0)
    }
}

/// Runs of values that are alike: where each begins, and its mean.
fn runs(values: &[f64], is_alike: impl Fn(f64, f64) -> bool) -> Vec<(usize, f64)> {
    let mut found: Vec<(usize, f64, f64)> = Vec::new();
    for (at, value) in values.iter().enumerate() {
        match found.last_mut() {
            Some((_, sum, count)) if is_alike(*sum / *count, *value) => {
                *sum += value;
                *count += 1.0;
            }
            _ => found.push((at, *value, 1.0)),
        }
    }
    found.into_iter().map(|(at, sum, count)| (at, sum / count)).collect()
}

/// A rate to three digits: more isn't known.
fn rounded(rate: u64) -> u64 {
    let unit = 10u64.pow(rate.max(1).ilog10().saturating_sub(2));
    rate / unit * unit
}

fn is_close(one: f64, other: f64) -> bool {
    (one - other).abs() <= ALIKE * one.max(other)
}

impl RecordedLink {
    /// The round-trip time without queues, in each second.
    fn rtts(&self, seconds: usize) -> Vec<f64> {
        let seen = |at: usize| self.rtt_s.get(at).copied().flatten().map(f64::from);
        let seen: Vec<Option<f64>> = (0..seconds).map(|at| seen(at).map(|rtt| rtt.max(1e-4))).collect();
        filled(&seen).unwrap_or_else(|| vec![UNKNOWN_RTT; seconds])
    }

    /// How long packets waited at most in a direction that was full, seconds.
    fn longest_wait(&self, direction: &RecordedDirection, rtts: &[f64]) -> f64 {
        let wait = |(at, rtt): (usize, &f64)| {
            let loaded = self.loaded_rtt_s.get(at).copied().flatten()?;
            direction.was_full(at).then_some(f64::from(loaded) - rtt)
        };
        rtts.iter().enumerate().filter_map(wait).fold(0.0, f64::max)
    }

    /// The share of probes that was lost on one way: each loses half of it.
    fn probe_loss(&self) -> f64 {
        let (answered, lost) = self
            .probes
            .iter()
            .fold((0, 0), |(answered, lost), one| (answered + u32::from(one.0), lost + u32::from(one.1)));
        let both = if lost < LEAST_LOST { 0.0 } else { f64::from(lost) / f64::from(answered + lost) };
        1.0 - (1.0 - both).sqrt()
    }

    /// One direction, as a TOML table.
    fn write(&self, text: &mut String, key: &str, rates: &Rates, seconds: usize) {
        let direction = if key == "up" { &self.up } else { &self.down };
        let every = write_duration(Span::from_secs(seconds as u64));
        let mut changes: Vec<(f64, String)> = Vec::new();
        let mut first = String::new();
        // What never changes needn't be said again each time round.
        let mut tell = |first: &mut String, key: &str, jitter: &str, found: Vec<(usize, String)>| {
            if let Some((_, value)) = found.first() {
                let _ = writeln!(first, "{key} = \"{value}{jitter}\"");
            }
            let told = found.iter().filter(|_| found.len() > 1);
            changes.extend(told.map(|(at, value)| (*at as f64, format!("{key} = \"{value}\""))));
        };
        let values: Vec<f64> = rates.bits_per_s.iter().map(|rate| *rate as f64).collect();
        let told =
            runs(&values, is_close).into_iter().map(|(at, rate)| (at, write_rate(rounded(rate as u64))));
        tell(&mut first, "rate", "", told.collect());
        let rtts = self.rtts(seconds);
        let half =
            |rtt: f64| write_duration(Span::from_micros((rtt / 2.0 * 1e4).round().max(1.0) as u64 * 100));
        let told = runs(&rtts, |one, other| is_close(one, other) || (one - other).abs() < ALIKE_RTT);
        // Without jitter packets overtake each other where a delay ends.
        let pauses: Vec<&Period> = self.pauses.iter().filter(|pause| pause.seconds >= LEAST_PAUSE).collect();
        let jitter = if pauses.is_empty() { "" } else { " +-10 us" };
        tell(&mut first, "delay", jitter, told.into_iter().map(|(at, rtt)| (at, half(rtt))).collect());
        let loss = direction.loss().unwrap_or_else(|| self.probe_loss()) * 1e4;
        if loss >= 1.0 {
            tell(&mut first, "loss", "", vec![(0, write_probability(loss.round() / 1e4))]);
        }
        let wait = self.longest_wait(direction, &rtts) * QUEUE_MARGIN;
        if wait > rtts.iter().copied().fold(f64::INFINITY, f64::min) {
            let _ = writeln!(
                first,
                "queue = \"{}\"",
                write_duration(Span::from_millis((wait * 1e3).ceil() as u64))
            );
        }
        for Period { start_s, seconds } in pauses {
            // What is sent in it arrives after it, in order: the later, the sooner.
            let base = rtts.get(*start_s as usize).copied().unwrap_or(UNKNOWN_RTT);
            for (after, more) in [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)] {
                let delay = half(base + 2.0 * more * seconds);
                changes.push((start_s + after * seconds, format!("delay = \"{delay}\"")));
            }
        }
        for outage in self.outages.iter().filter(|outage| outage.start_s < seconds as f64) {
            changes.push((outage.start_s, "link = \"down\"".into()));
            // What the end leaves isn't what the begin finds.
            let end_s = if outage.end_s() < seconds as f64 { outage.end_s() } else { 0.0 };
            let goes_on = self.outages.first().is_some_and(|first| first.start_s <= end_s);
            if end_s > 0.0 || !goes_on {
                changes.push((end_s, "link = \"up\"".into()));
            }
        }
        changes.sort_by(|one, other| one.0.total_cmp(&other.0));
        let _ = writeln!(text, "[path.{key}]");
        let _ = match rates.full {
            0 => writeln!(text, "# At least this rate: the link was never full."),
            full => writeln!(text, "# It was full in {full} of {seconds} s."),
        };
        text.push_str(&first);
        if !changes.is_empty() {
            text.push_str("changes = [\n");
            for (at, what) in changes {
                let at = write_duration(Span::from_millis((at * 1e3).round() as u64));
                let _ = writeln!(text, "  {{ at = \"{at}\", every = \"{every}\", {what} }},");
            }
            text.push_str("]\n");
        }
    }
}

impl Recording {
    /// Only its last seconds.
    #[must_use]
    pub fn last(mut self, seconds: usize) -> Recording {
        let begin = self.seconds.saturating_sub(seconds);
        self.seconds -= begin;
        for link in &mut self.links {
            link.down.cut(begin);
            link.up.cut(begin);
            cut(&mut link.rtt_s, begin);
            cut(&mut link.loaded_rtt_s, begin);
            cut(&mut link.probes, begin);
            for periods in [&mut link.pauses, &mut link.outages] {
                *periods = periods.iter().filter_map(|period| period.after(begin as f64)).collect();
            }
        }
        self.flows.retain(|flow| flow.start_s >= begin as f64);
        self.flows.iter_mut().for_each(|flow| flow.start_s -= begin as f64);
        self
    }

    /// As a scenario file. The recording repeats; `compare` starts its runs all over it.
    ///
    /// # Errors
    /// If nothing is known of any link.
    pub fn to_scenario(&self, name: &str) -> Result<Told, RecordError> {
        if self.seconds < 2 {
            return Err(RecordError::Short(self.seconds));
        }
        let mut text = format!(
            "# {} s of a proxy's links. Rates are what the links carried when they were full, or at least;\n\
             # delays are half of the least round-trip times; losses are those without a queue.\n\
             name = \"{name}\"\nsummary = \"recorded by ropewalkd proxy\"\n",
            self.seconds
        );
        let (mut left_out, mut at_least) = (Vec::new(), Vec::new());
        for link in &self.links {
            let limit = link.rate_limit_bits_per_s;
            let limit = limit.map(|limit| Rates { bits_per_s: vec![limit; self.seconds], full: 0 });
            let (down, up) = (Rates::of(&link.down), Rates::of(&link.up));
            // ACKs alone don't say what the other direction could carry.
            let Some(either) = down.clone().or(up.clone()).or(limit) else {
                left_out.push(link.interface.clone());
                continue;
            };
            let or_either = |own: Option<Rates>| match own {
                Some(own) if own.full > 0 || own.most() >= either.most() / 10 => own,
                _ => Rates { full: 0, ..either.clone() },
            };
            let (down, up) = (or_either(down), or_either(up));
            if down.full == 0 && up.full == 0 {
                at_least.push((link.interface.clone(), write_rate(rounded(either.most()))));
            }
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let name: String = link.interface.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
            let _ = write!(text, "\n[[path]]\nname = \"{name}\"\n");
            for (key, is) in [("metered", link.metered), ("backup", link.backup)] {
                if is {
                    let _ = writeln!(text, "{key} = true");
                }
            }
            for (key, rates) in [("up", &up), ("down", &down)] {
                link.write(&mut text, key, rates, self.seconds);
            }
        }
        if left_out.len() == self.links.len() {
            return Err(RecordError::Idle);
        }
        Ok(Told { text, left_out, at_least })
    }
}

#[cfg(test)]
mod tests;
