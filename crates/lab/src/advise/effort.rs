//! How much is simulated for an answer, in segments, so that it comes within four times the budget: in 10 s
//! on two cores by default.
//!
//! Of the budget's segments the races have all (with measurements half for each of the two contests), and an
//! eighth each for the path that is opened first and for the paths as they are stated. How sure the gain is
//! may take as many again, turning points half of that, buffers a third. Flows so long that the first runs of
//! all candidates would take more are cut.

use ropewalk_engine::Span;
use ropewalk_sim::{Scenario, Workload};

use crate::compare::Design;
use crate::scenario;

/// Share of the budget that the search for a buffer's size has: one in so many.
pub(super) const BUFFER_SHARE: u64 = 3;

/// One part in so many of the budget goes to choosing the path on which connections open.
pub(super) const OPENING: u64 = 8;

/// One part in so many goes to the paths as they are stated.
pub(super) const AS_STATED: u64 = 8;

/// One part in so many goes to turning points.
pub(super) const FLIPS_SHARE: u64 = 2;

/// A run has at most one part in so many of the budget, with and without measurements: the first eight of
/// thirty candidates take most of it.
const RUNS: u64 = 320;

/// What the least run takes, segments: shorter ones say little of long flows.
const LEAST: u64 = 1000;

/// Payload of a segment.
const SEGMENT: u64 = 1448;

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Segments of the race.
    pub design: Design,
    /// Whether buffers and turning points are looked for too.
    pub whole: bool,
}

impl Effort {
    /// The segments of the race; a fixed number of runs counts as one each.
    pub(super) fn segments(self) -> u64 {
        match self.design {
            Design::Race { segments } => segments,
            Design::Fixed(runs) => u64::from(runs),
        }
    }

    /// Segments that answering takes at most.
    pub(super) fn all(self) -> u64 {
        let segments = self.segments();
        let races = segments + segments / OPENING + segments / AS_STATED;
        races + segments + if self.whole { segments / BUFFER_SHARE + segments / FLIPS_SHARE } else { 0 }
    }

    /// The segments that one run of all workloads may have.
    pub(super) fn of_a_run(self) -> u64 {
        match self.design {
            Design::Race { segments } => (segments / RUNS).max(LEAST),
            Design::Fixed(_) => u64::MAX,
        }
    }
}

/// The segments that a workload takes where nothing is lost.
pub(super) fn segments(workload: &Workload, scenario: &Scenario) -> u64 {
    let bits = |rate: u64, duration: Span| {
        (u128::from(rate) * u128::from(duration.as_nanos()) / 8_000_000_000) as u64
    };
    let bytes = match workload {
        Workload::Flow { bytes } => *bytes,
        Workload::Flows { count, bytes } => bytes.saturating_mul(u64::from(*count)),
        Workload::Transfers(transfers) => transfers.iter().map(|one| one.bytes).sum(),
        Workload::Web { objects, .. } => objects.iter().sum(),
        Workload::Cbr { .. } => workload.frame_bytes().unwrap_or(0),
        Workload::Bulk { duration } => {
            let rate = |link: &ropewalk_link::LinkSpec| scenario::mean_rate(&link.rate);
            let links = scenario.paths.iter().map(|path| rate(&path.up).max(rate(&path.down)));
            bits(links.fold(0, u64::saturating_add), *duration)
        }
        Workload::RequestResponse { response, count, .. } => response.saturating_mul(u64::from(*count)),
    };
    bytes / SEGMENT + 1
}

/// The same workloads with at most so many segments in all: the longest are cut to their beginnings. The
/// second value: whether any was.
pub(super) fn cut(workloads: &[Workload], scenario: &Scenario, most: u64) -> (Vec<Workload>, bool) {
    let sizes: Vec<u64> = workloads.iter().map(|workload| segments(workload, scenario)).collect();
    let mut sorted = sizes.clone();
    sorted.sort_unstable();
    // What each may have, if the shorter ones need less.
    let (mut left, mut level) = (most, u64::MAX);
    for (index, size) in sorted.iter().enumerate() {
        let share = left / (sorted.len() - index) as u64;
        if *size > share {
            level = share.max(1);
            break;
        }
        left -= size;
    }
    // Whole MiB or KiB.
    let whole = |bytes: u64| {
        [1 << 20, 1 << 10].into_iter().find(|unit| bytes >= *unit).map_or(bytes, |unit| bytes / unit * unit)
    };
    let one = |workload: &Workload, size: u64| {
        if size <= level {
            return workload.clone();
        }
        let part = |value: u64| ((u128::from(value) * u128::from(level) / u128::from(size)) as u64).max(1);
        let time_part = |span: Span| Span::from_nanos(part(span.as_nanos()));
        match workload.clone() {
            Workload::Flow { bytes } => Workload::Flow { bytes: whole(part(bytes)) },
            Workload::Flows { count, bytes } => Workload::Flows { count, bytes: whole(part(bytes)) },
            // A page is one, and short.
            whole @ (Workload::Web { .. } | Workload::Transfers(_)) => whole,
            Workload::Cbr { frame, rate, key, duration, deadline } => {
                Workload::Cbr { frame, rate, key, duration: time_part(duration), deadline }
            }
            Workload::Bulk { duration } => Workload::Bulk { duration: time_part(duration) },
            Workload::RequestResponse { request, response, count, think } => {
                let fewer = part(u64::from(count)) as u32;
                let response = if fewer > 1 { response } else { response.min(level * SEGMENT) };
                Workload::RequestResponse { request, response, count: fewer, think }
            }
        }
    };
    let found: Vec<Workload> =
        workloads.iter().zip(&sizes).map(|(workload, size)| one(workload, *size)).collect();
    let changed = found != workloads;
    (found, changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::usual_workloads;

    #[test]
    fn only_what_is_too_long_is_cut() {
        let path = |text| scenario::path(text).unwrap();
        let scenario =
            scenario::default_around(vec![path("a: 100 Mbit/s, 20 ms"), path("b: 1 Mbit/s, 20 ms")]);
        let usual = usual_workloads();
        assert_eq!(cut(&usual, &scenario, 20_000), (usual.clone(), false));
        let (less, changed) = cut(&usual, &scenario, 4000);
        assert!(changed && less[..2] == usual[..2], "{less:?}");
        let all: u64 = less.iter().map(|workload| segments(workload, &scenario)).sum();
        assert!((3000..=4000).contains(&all), "{all}");
        let long = [Workload::Bulk { duration: Span::from_secs(60) }, Workload::Flow { bytes: 1 << 40 }];
        let (short, _) = cut(&long, &scenario, 10_000);
        for one in &short {
            assert!((4300..=5001).contains(&segments(one, &scenario)), "{short:?}");
        }
    }

    #[test]
    fn an_answer_takes_no_more_than_four_times_the_budget() {
        let effort = Effort { design: Design::race(Span::from_millis(2500)), whole: true };
        assert!(effort.all() < 4 * effort.segments(), "{effort:?}");
    }
}
