//! What is shown of a path after its files were read.

use ropewalk_link::{LinkSpec, Queue};
use ropewalk_sim::{Direction, PathSpec};

use super::Measured;
use super::likelihood::share;
use crate::advise::belief::Doubt;
use crate::scenario;

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
    /// Whether a file counts what was lost, or shows that nothing was sent again.
    pub counted: bool,
    /// Queue in the data's direction, milliseconds; none where it is managed.
    pub queue_ms: Option<f64>,
    /// What files don't contain, and where they contradict each other.
    pub notes: Vec<String>,
}

impl Reading {
    /// Of a path and how well it is known.
    pub fn of(
        path: &PathSpec,
        doubt: &Doubt,
        files: &[(String, Measured)],
        joined: &[String],
        direction: Direction,
    ) -> Self {
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
            .flat_map(|(file, found)| found.notes.iter().map(move |note| format!("{file}: {note}")))
            .chain(joined.iter().cloned());
        let loss = around(share(&link.loss), doubt.loss);
        let again = files.iter().filter_map(|(file, found)| {
            let (segments, sent) = found.retransmitted.filter(|of| of.0 > 0 && loss.1 == 0.0)?;
            let share = two_digits(segments as f64 / sent.max(1) as f64 * 100.0);
            Some(format!(
                "{file}: {segments} of {sent} segments ({share} %) were sent again, for the link's losses or \
                 the transfer's own congestion; `ping -c 1000 -i 0.2` would tell"
            ))
        });
        Reading {
            path: path.name.clone(),
            files: files.iter().map(|(file, _)| file.clone()).collect(),
            rtt_ms: around((path.up.delay + path.down.delay).as_millis_f64(), doubt.rtt),
            rate: [rate(&path.up, doubt.rate[0]), rate(&path.down, doubt.rate[1])],
            at_least: doubt.open_above,
            loss,
            counted: files.iter().any(|(_, found)| {
                found.loss.is_some() || found.retransmitted.is_some_and(|(segments, _)| segments == 0)
            }),
            queue_ms: bytes.map(|bytes| bytes * 8000.0 / scenario::mean_rate(&link.rate).max(1) as f64),
            notes: notes.chain(again).collect(),
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
