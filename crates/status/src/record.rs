//! The last hour of a proxy as a scenario file: each link's rate, delay and loss over time.
//!
//! A proxy can't know what a link could have carried, only what it did. The rate is therefore the most that
//! was carried within five seconds of a moment, where that is a good part of the link's usual most; in
//! quieter times the last such rate holds. The delay is the least round-trip time that was seen around a
//! moment, halved: queues are the simulator's to fill. The loss is that of probes.

use std::fmt::Write as _;

use ropewalk_settings::units::{write_duration, write_probability, write_rate};
use serde::{Deserialize, Serialize};

/// Seconds around a moment that are looked at.
const AROUND: usize = 5;
/// A rate counts as the link's if it is at least this share of the link's usual most.
const BUSY: f64 = 0.2;
/// Rates below this say nothing, bits per second.
const LEAST_RATE: u64 = 100_000;
/// A link that carried less in all has carried handshakes and probes: its rate isn't known. Bytes.
const LEAST_CARRIED: u64 = 256 << 10;
/// The delay of a link of which none is known.
const UNKNOWN_RTT: f64 = 0.040;
/// What is known of a second's loss isn't more exact.
const LEAST_LOSS: f64 = 0.005;

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
    /// Rate towards the clients in each second, bits per second.
    pub down_bits_per_s: Vec<u64>,
    /// Rate from the clients in each second, bits per second.
    pub up_bits_per_s: Vec<u64>,
    /// The least round-trip time seen in each second, seconds.
    pub rtt_s: Vec<Option<f32>>,
    /// Share of probes without an answer, smoothed.
    pub loss: Vec<f32>,
    /// Whether connections could use it.
    pub usable: Vec<bool>,
}

/// A flow that has ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordedFlow {
    /// When it began, from the recording's begin.
    pub start_s: f64,
    /// How long it lasted.
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

/// A link's rate over time by what it carried; `None` if it carried next to nothing.
fn capacity(carried: &[u64]) -> Option<Vec<u64>> {
    if carried.iter().map(|rate| rate / 8).sum::<u64>() < LEAST_CARRIED {
        return None;
    }
    let most = around(carried, |window| window.iter().copied().max().unwrap_or(0));
    let mut sorted = most.clone();
    sorted.sort_unstable();
    let usual = sorted.get(sorted.len().saturating_sub(1) * 19 / 20).copied()?;
    let least = ((usual as f64 * BUSY) as u64).max(LEAST_RATE);
    filled(&most.iter().map(|rate| (*rate >= least).then_some(*rate)).collect::<Vec<_>>())
}

/// Where a value changes by more than what is `alike`: seconds and values, the first included.
fn steps<T: Copy>(values: &[T], alike: impl Fn(T, T) -> bool) -> Vec<(usize, T)> {
    let mut found: Vec<(usize, T)> = Vec::new();
    for (at, value) in values.iter().enumerate() {
        if found.last().is_none_or(|(_, last)| !alike(*last, *value)) {
            found.push((at, *value));
        }
    }
    found
}

/// One direction of a link, as a TOML table's keys.
struct Direction {
    first: String,
    changes: Vec<String>,
}

fn direction(link: &RecordedLink, rates: &[u64], seconds: usize) -> Direction {
    let every = seconds as u64 * 1_000_000_000;
    let mut first = Vec::new();
    let mut changes = Vec::new();
    let mut tell = |key: &str, found: Vec<(usize, String)>| {
        if let Some((_, text)) = found.first() {
            first.push(format!("{key} = \"{text}\""));
        }
        // What never changes needn't be said again each time round.
        for (at, text) in found.iter().filter(|_| found.len() > 1) {
            let at = write_duration(*at as u64 * 1_000_000_000);
            changes.push(format!(
                "{{ at = \"{at}\", every = \"{}\", {key} = \"{text}\" }}",
                write_duration(every)
            ));
        }
    };
    let close = |one: f64, other: f64, share: f64| (one - other).abs() <= share * one.max(other);
    let rate = steps(rates, |one, other| close(one as f64, other as f64, 0.15));
    // To three digits: more isn't known.
    let round = |rate: u64| {
        let unit = 10u64.pow(rate.max(1).ilog10().saturating_sub(2));
        rate / unit * unit
    };
    tell("rate", rate.into_iter().map(|(at, rate)| (at, write_rate(round(rate)))).collect());
    let known: Vec<Option<f64>> = link.rtt_s.iter().map(|rtt| rtt.map(f64::from)).collect();
    let rtts = filled(&known).unwrap_or_else(|| vec![UNKNOWN_RTT; seconds]);
    let rtts = around(&rtts, |window| window.iter().copied().fold(f64::INFINITY, f64::min));
    let delay = steps(&rtts, |one, other| close(one, other, 0.15) || (one - other).abs() < 0.002);
    let half = |rtt: f64| write_duration((rtt / 2.0 * 1e4).round().max(1.0) as u64 * 100_000);
    tell("delay", delay.into_iter().map(|(at, rtt)| (at, half(rtt))).collect());
    let losses: Vec<f64> = link
        .loss
        .iter()
        .map(|loss| f64::from(*loss))
        .map(|loss| if loss < LEAST_LOSS { 0.0 } else { loss })
        .collect();
    let loss = steps(&losses, |one, other| close(one, other, 0.3) || (one - other).abs() < LEAST_LOSS);
    let percent = |loss: f64| write_probability((loss * 1e3).round() / 1e3);
    let loss: Vec<_> = loss.into_iter().map(|(at, loss)| (at, percent(loss))).collect();
    if loss.len() > 1 || loss.first().is_some_and(|(_, text)| text != "0 %") {
        tell("loss", loss);
    }
    let usable = steps(&link.usable, |one, other| one == other);
    let state = |up: bool| String::from(if up { "up" } else { "down" });
    let mut state: Vec<_> = usable.into_iter().map(|(at, up)| (at, state(up))).collect();
    if state.len() == 1 {
        state.retain(|(_, text)| text == "down");
    }
    let every = write_duration(every);
    for (at, text) in state {
        let at = write_duration(at as u64 * 1_000_000_000);
        changes.push(format!("{{ at = \"{at}\", every = \"{every}\", link = \"{text}\" }}"));
    }
    Direction { first: first.join("\n"), changes }
}

impl Recording {
    /// Only its last seconds.
    #[must_use]
    pub fn last(mut self, seconds: usize) -> Recording {
        let begin = self.seconds.saturating_sub(seconds);
        self.seconds -= begin;
        for link in &mut self.links {
            link.down_bits_per_s.drain(..begin.min(link.down_bits_per_s.len()));
            link.up_bits_per_s.drain(..begin.min(link.up_bits_per_s.len()));
            link.rtt_s.drain(..begin.min(link.rtt_s.len()));
            link.loss.drain(..begin.min(link.loss.len()));
            link.usable.drain(..begin.min(link.usable.len()));
        }
        self.flows.retain(|flow| flow.start_s >= begin as f64);
        self.flows.iter_mut().for_each(|flow| flow.start_s -= begin as f64);
        self
    }

    /// As a scenario file. The recording repeats; `compare` starts its runs all over it. Links that carried
    /// next to nothing, and so have no rate, are left out and named.
    ///
    /// # Errors
    /// If nothing is known of any link.
    pub fn to_scenario(&self, name: &str) -> Result<(String, Vec<String>), RecordError> {
        if self.seconds < 2 {
            return Err(RecordError::Short(self.seconds));
        }
        let mut text = format!(
            "# {} s of a proxy's links. Rates are what the links carried when they were busy, so at most\n\
             # too low; delays are half of the least round-trip times; losses are those of probes.\n\
             name = \"{name}\"\nsummary = \"recorded by ropewalkd proxy\"\n",
            self.seconds
        );
        let mut left_out = Vec::new();
        for link in &self.links {
            let limit = link.rate_limit_bits_per_s.map(|limit| vec![limit; self.seconds]);
            let (down, up) = (capacity(&link.down_bits_per_s), capacity(&link.up_bits_per_s));
            // ACKs alone don't say what the other direction could carry.
            let Some(either) = down.clone().or(up.clone()).or(limit) else {
                left_out.push(link.interface.clone());
                continue;
            };
            let or_either = |own: Option<Vec<u64>>| match own {
                Some(own) if own.iter().max() >= either.iter().max().map(|most| most / 10).as_ref() => own,
                _ => either.clone(),
            };
            let (down, up) = (or_either(down), or_either(up));
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let name: String = link.interface.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
            let _ = write!(text, "\n[[path]]\nname = \"{name}\"\n");
            for (key, is) in [("metered", link.metered), ("backup", link.backup)] {
                if is {
                    let _ = writeln!(text, "{key} = true");
                }
            }
            for (key, rates) in [("up", &up), ("down", &down)] {
                let Direction { first, changes } = direction(link, rates, self.seconds);
                let _ = write!(text, "[path.{key}]\n{first}\n");
                if !changes.is_empty() {
                    let _ = write!(text, "changes = [\n  {},\n]\n", changes.join(",\n  "));
                }
            }
        }
        if left_out.len() == self.links.len() {
            return Err(RecordError::Idle);
        }
        Ok((text, left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(down: Vec<u64>) -> RecordedLink {
        let seconds = down.len();
        RecordedLink {
            interface: "wlan0".into(),
            up_bits_per_s: vec![1000; seconds],
            rtt_s: vec![Some(0.02); seconds],
            loss: vec![0.0; seconds],
            usable: vec![true; seconds],
            down_bits_per_s: down,
            ..RecordedLink::default()
        }
    }

    #[test]
    fn a_rate_is_what_a_busy_link_carried() {
        let mut carried = vec![0; 20];
        carried.extend([10_000_000; 20]);
        carried.extend([50_000; 30]);
        carried.extend([4_000_000; 20]);
        let found = capacity(&carried).unwrap();
        // Unknown before, held in the pause, lower when it is busy again.
        assert_eq!(
            (found[0], found[30], found[60], found[89]),
            (10_000_000, 10_000_000, 10_000_000, 4_000_000)
        );
        assert_eq!(capacity(&[50_000; 60]), None);
        // A link that stands by: handshakes.
        assert_eq!(capacity(&[0, 0, 332_000, 190_000, 0]), None);
    }

    #[test]
    fn the_last_seconds_are_cut_out() {
        let flow = |start_s| RecordedFlow {
            start_s,
            seconds: 1.0,
            bytes_down: 1,
            bytes_up: 1,
            scheduler: "linux".into(),
        };
        let recording = Recording {
            seconds: 10,
            links: vec![link((0..10).collect())],
            flows: vec![flow(2.0), flow(8.0)],
        };
        let last = recording.last(3);
        assert_eq!((last.seconds, &last.links[0].down_bits_per_s), (3, &vec![7, 8, 9]));
        assert_eq!(last.flows, [flow(1.0)]);
    }

    #[test]
    fn without_traffic_there_is_no_scenario() {
        assert_eq!(Recording::default().to_scenario("x"), Err(RecordError::Short(0)));
        let idle = Recording { seconds: 9, links: vec![link(vec![0; 9])], flows: Vec::new() };
        assert_eq!(idle.to_scenario("x"), Err(RecordError::Idle));
    }
}
