//! The objective by which runs are ranked, for each kind of workload. `compare`, sweeps, reports and `advise`
//! use it, and [`crate::bound`] is its lower bound.

use ropewalk_engine::Span;
use ropewalk_sim::{Outcome, RunResult, Workload};

/// The objective as a metric: name, unit and meaning. Only complete runs have it.
pub const OBJECTIVE: (&str, &str, &str) = (
    "objective_s",
    "s",
    "what complete runs are ranked by: `fct_s` of flows and pages; the mean time of frames and exchanges; \
     seconds per \
     10^6 bytes of bulk",
);

/// The objective of a workload. All are in seconds, and less is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Objective {
    /// Flow completion time, from connect to the last byte: the mean over concurrent flows, or a whole
    /// page's.
    Completion,
    /// Delay of frames, from when the application has one to its last byte: the mean over the frames.
    FrameDelay,
    /// Time of exchanges, from the request to the response's last byte: the mean over the exchanges.
    ExchangeTime,
    /// Seconds per 10^6 bytes delivered: the reciprocal of goodput.
    PerMegabyte,
}

impl Objective {
    /// The objective of this workload.
    pub fn of(workload: &Workload) -> Self {
        match workload {
            Workload::Flow { .. }
            | Workload::Flows { .. }
            | Workload::Transfers(_)
            | Workload::Web { .. } => Objective::Completion,
            Workload::Cbr { .. } => Objective::FrameDelay,
            Workload::RequestResponse { .. } => Objective::ExchangeTime,
            Workload::Bulk { .. } => Objective::PerMegabyte,
        }
    }

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Objective::Completion => "completion time",
            Objective::FrameDelay => "mean delay of frames",
            Objective::ExchangeTime => "mean time of exchanges",
            Objective::PerMegabyte => "seconds per megabyte",
        }
    }

    /// Its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Objective::PerMegabyte => "s/MB",
            _ => "s",
        }
    }
}

/// The share of a run's frames that arrived after their deadline, or not at all; `None` if they have none.
pub fn late_frames(workload: &Workload, result: &RunResult) -> Option<f64> {
    let Workload::Cbr { deadline: Some(deadline), .. } = workload else { return None };
    let frames = workload.frames()?;
    let in_time = result.message_delays.iter().filter(|delay| *delay <= deadline).count() as u64;
    Some(1.0 - in_time as f64 / frames as f64)
}

/// The objective's value for a run; `None` if it isn't complete, or delivered nothing.
pub fn of(workload: &Workload, result: &RunResult) -> Option<f64> {
    if result.outcome != Outcome::Complete {
        return None;
    }
    let mean = |times: &mut dyn Iterator<Item = Span>| {
        let (sum, count) =
            times.fold((0.0, 0u64), |(sum, count), time| (sum + time.as_secs_f64(), count + 1));
        (count > 0).then(|| sum / count as f64)
    };
    match Objective::of(workload) {
        Objective::Completion => {
            let times: Option<Vec<Span>> = result.flows.iter().map(|flow| flow.fct).collect();
            mean(&mut times?.into_iter())
        }
        Objective::FrameDelay | Objective::ExchangeTime => mean(&mut result.message_delays.iter().copied()),
        Objective::PerMegabyte => {
            let megabytes = result.delivered_bytes as f64 / 1e6;
            (megabytes > 0.0).then(|| result.duration.as_secs_f64() / megabytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_late_after_their_deadline_or_if_they_never_arrive() {
        let frames = |deadline| Workload::Cbr {
            frame: 1000,
            rate: 8_000_000,
            key: None,
            duration: Span::from_millis(10),
            deadline,
        };
        let mut result = RunResult::new(Outcome::TimeLimit);
        // Ten are made, eight arrive, and one of these too late.
        result.message_delays = [1, 2, 3, 4, 5, 6, 7, 9].map(Span::from_nanos).to_vec();
        assert_eq!(late_frames(&frames(Some(Span::from_nanos(8))), &result), Some(1.0 - 0.7));
        assert_eq!(late_frames(&frames(None), &result), None);
        assert_eq!(late_frames(&Workload::Flow { bytes: 1 }, &result), None);
    }
}
