//! The metrics that a sweep keeps of each run: columns of its table. One list has name, unit, meaning and
//! source of each; the table, the manifest and the journal follow it.

use ropewalk_engine::Span;
use ropewalk_sim::{Outcome, PathResult, RunResult, Workload};

use crate::bound::Bound;
use crate::objective::OBJECTIVE;
use crate::{objective, stats};

/// One metric of `T`: of a run, or of a path in a run.
#[derive(Clone, Copy, Debug)]
pub struct Metric<T> {
    /// Its name in the table.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// One line.
    pub meaning: &'static str,
    /// Whether it is a whole number that every run has.
    pub whole: bool,
    /// The value, if the run has one.
    pub of: fn(&T) -> Option<f64>,
}

const fn metric<T>(
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    of: fn(&T) -> Option<f64>,
) -> Metric<T> {
    Metric { name, unit, meaning, whole: false, of }
}

/// A whole number that every run has.
const fn count<T>(
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    of: fn(&T) -> Option<f64>,
) -> Metric<T> {
    Metric { name, unit, meaning, whole: true, of }
}

const SECOND: f64 = 1e9;

fn completion(result: &RunResult) -> Option<f64> {
    let times: Option<Vec<f64>> = result.flows.iter().map(|flow| flow.fct.map(Span::as_secs_f64)).collect();
    times.filter(|times| !times.is_empty()).map(|times| stats::mean(&times))
}

fn delay(result: &RunResult, p: f64) -> Option<f64> {
    let mut delays: Vec<f64> = result.message_delays.iter().map(|delay| delay.as_secs_f64()).collect();
    delays.sort_by(f64::total_cmp);
    (!delays.is_empty()).then(|| stats::quantile(&delays, p))
}

/// Metrics of a run.
pub const RUN: &[Metric<RunResult>] = &[
    metric("finished", "1", "1 if the workload was complete within the limit, else 0", |r| {
        Some(f64::from(u8::from(r.outcome == Outcome::Complete)))
    }),
    metric(
        "fct_s",
        "s",
        "flow completion time, from connect to the last byte; mean over the run's flows",
        completion,
    ),
    metric("duration_s", "s", "from the workload's start to its last byte, or to the limit", |r| {
        Some(r.duration.as_secs_f64())
    }),
    metric("goodput_bps", "bit/s", "payload delivered over the duration", |r| {
        (!r.duration.is_zero())
            .then(|| r.delivered_bytes as f64 * 8.0 * SECOND / r.duration.as_nanos() as f64)
    }),
    count("delivered_bytes", "B", "payload delivered", |r| Some(r.delivered_bytes as f64)),
    metric("message_delay_p50_s", "s", "median delay of frames, exchanges or objects", |r| delay(r, 0.5)),
    metric("message_delay_p95_s", "s", "95th percentile of it", |r| delay(r, 0.95)),
    metric("message_delay_p99_s", "s", "99th percentile of it", |r| delay(r, 0.99)),
    metric("ofo_mean_bytes", "B", "connection-level out-of-order queue, mean over time", |r| {
        Some(r.ofo.mean)
    }),
    count("ofo_max_bytes", "B", "its maximum", |r| Some(r.ofo.max as f64)),
    count("retransmits", "segments", "retransmitted on their own subflow", |r| {
        Some(r.totals.retransmissions as f64)
    }),
    count("timeouts", "1", "retransmission timeouts", |r| Some(r.totals.timeouts as f64)),
    count("reinjected_bytes", "B", "sent again on another subflow by the connection", |r| {
        Some(r.totals.reinjected_bytes as f64)
    }),
    count("opportunistic_bytes", "B", "sent again by opportunistic retransmission", |r| {
        Some(r.totals.opportunistic_bytes as f64)
    }),
    count("duplicated_bytes", "B", "sent again by the scheduler's design", |r| {
        Some(r.totals.duplicated_bytes as f64)
    }),
    count("received_twice_bytes", "B", "arrived a second time, at connection level", |r| {
        Some(r.totals.received_twice_bytes as f64)
    }),
    count("penalisations", "1", "how often a subflow was penalised", |r| Some(r.totals.penalisations as f64)),
    metric("window_blocked_s", "s", "new data waited for the connection-level window", |r| {
        Some(r.totals.window_blocked.as_secs_f64())
    }),
];

/// Metrics of a path in a run, in the data's direction.
pub const PATH: &[Metric<PathResult>] = &[
    metric("sent_bytes", "B", "payload sent on the path, repeats included", |p| Some(p.bytes as f64)),
    metric("segments", "segments", "data segments sent on it, repeats included", |p| Some(p.segments as f64)),
    metric("lost_packets", "packets", "lost on its links, in queues and at random", |p| Some(p.lost as f64)),
    metric("queue_delay_mean_s", "s", "queueing delay of what passed, mean", |p| {
        Some(p.queue_delay_mean / SECOND)
    }),
    metric("queue_delay_max_s", "s", "its maximum", |p| Some(p.queue_delay_max.as_secs_f64())),
    metric("capacity_bytes", "B", "what its link could have carried over the run", |p| {
        Some(p.capacity_bytes as f64)
    }),
];

/// Lower bounds of the objective (see [`crate::bound`]).
pub const BOUND: &[Metric<Bound>] = &[
    metric("bound_s", "s", "no scheduler could reach less `objective_s`: by the links alone", |b| {
        Some(b.capacity)
    }),
    metric("bound_window_s", "s", "the same with windows that start small and at most double", |b| {
        Some(b.window)
    }),
];

/// Name, unit and meaning of every metric of a run, in order.
pub fn of_run() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let bound = BOUND.iter().map(|m| (m.name, m.unit, m.meaning));
    RUN.iter().map(|m| (m.name, m.unit, m.meaning)).chain([OBJECTIVE]).chain(bound)
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Complete.
    Complete,
    /// The limit came first.
    Limit,
    /// It failed, and why.
    Failed(String),
}

/// The metrics of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct RunMetrics {
    /// Its number.
    pub run: u64,
    /// How it ended.
    pub ending: Ending,
    /// Values in the order of [`of_run`]; NaN if there is none.
    pub values: Vec<f64>,
    /// By path: its name, and values in the order of [`PATH`].
    pub paths: Vec<(String, Vec<f64>)>,
}

impl RunMetrics {
    /// The metrics of a run's result.
    pub fn new(run: u64, workload: &Workload, result: &RunResult, bound: Option<Bound>) -> Self {
        let ending = match &result.outcome {
            Outcome::Complete => Ending::Complete,
            Outcome::TimeLimit => Ending::Limit,
            Outcome::Failed(reason) => Ending::Failed(reason.clone()),
        };
        let own = RUN.iter().map(|metric| (metric.of)(result)).chain([objective::of(workload, result)]);
        let bounds = BOUND.iter().map(|metric| bound.as_ref().and_then(|bound| (metric.of)(bound)));
        let values = own.chain(bounds).map(|value| value.unwrap_or(f64::NAN)).collect();
        let path = |path: &PathResult| {
            let values = PATH.iter().map(|metric| (metric.of)(path).unwrap_or(f64::NAN)).collect();
            (path.name.clone(), values)
        };
        RunMetrics { run, ending, values, paths: result.paths.iter().map(path).collect() }
    }

    /// A metric of the run by name.
    pub fn value(&self, name: &str) -> Option<f64> {
        let index = of_run().position(|metric| metric.0 == name)?;
        self.values.get(index).copied().filter(|value| !value.is_nan())
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.run.to_le_bytes().to_vec();
        let (code, reason) = match &self.ending {
            Ending::Complete => (0, ""),
            Ending::Limit => (1, ""),
            Ending::Failed(reason) => (2, reason.as_str()),
        };
        out.push(code);
        put_text(&mut out, reason);
        for value in &self.values {
            out.extend(value.to_le_bytes());
        }
        for (name, values) in &self.paths {
            put_text(&mut out, name);
            for value in values {
                out.extend(value.to_le_bytes());
            }
        }
        out
    }

    /// Decodes bytes; `None` if they aren't a run's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let run = u64::from_le_bytes(take(&mut rest)?);
        let [code] = take(&mut rest)?;
        let reason = take_text(&mut rest)?;
        let ending = match code {
            0 => Ending::Complete,
            1 => Ending::Limit,
            2 => Ending::Failed(reason),
            _ => return None,
        };
        let numbers = |rest: &mut &[u8], count: usize| -> Option<Vec<f64>> {
            (0..count).map(|_| take(rest).map(f64::from_le_bytes)).collect()
        };
        let values = numbers(&mut rest, of_run().count())?;
        let mut paths = Vec::new();
        while !rest.is_empty() {
            let name = take_text(&mut rest)?;
            paths.push((name, numbers(&mut rest, PATH.len())?));
        }
        Some(RunMetrics { run, ending, values, paths })
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text);
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let len = usize::from(u16::from_le_bytes(take(rest)?));
    let (text, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run with numbers of its own.
    pub(crate) fn kept(run: u64) -> RunMetrics {
        let mut values: Vec<f64> = (0..of_run().count()).map(|i| run as f64 + i as f64 / 100.0).collect();
        values[5] = f64::NAN;
        let path = |name: &str| (name.to_string(), (0..PATH.len()).map(|i| i as f64).collect());
        RunMetrics { run, ending: Ending::Complete, values, paths: vec![path("wifi"), path("lte")] }
    }

    #[test]
    fn bytes_and_back() {
        let mut one = kept(7);
        one.ending = Ending::Failed("no route".into());
        let back = RunMetrics::decode(&one.encode()).unwrap();
        assert_eq!(back.encode(), one.encode());
        assert_eq!((&back.ending, back.paths.len()), (&one.ending, 2));
        let bytes = one.encode();
        for cut in 0..bytes.len() {
            // A path's end is a whole record too; anything else is noticed.
            if let Some(shorter) = RunMetrics::decode(&bytes[..cut]) {
                assert!(shorter.paths.len() < 2);
            }
        }
    }

    #[test]
    fn names_are_used_once() {
        let mut names: Vec<&str> = of_run().map(|m| m.0).chain(PATH.iter().map(|m| m.name)).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
