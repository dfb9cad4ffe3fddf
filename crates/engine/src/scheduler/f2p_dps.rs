//! `f2p-dps`: fine-grained forward prediction based dynamic packet scheduling, from a summary.
//!
//! Source: 5g-2019 III.A, two sentences on F2P-DPS (its reference 25): it considers the TCP characteristics
//! of the subflow and the packet loss rate of the path; from the smoothed RTT and the loss rate it estimates
//! the amount of data that the subflow may send in the future. The original was not at hand: the rules below,
//! the offset rule above all, are rulings on that summary.
//!
//! Rule: s is `minrtt`'s choice. If no usable subflow is faster, it takes the first unassigned segment. Else,
//! for every faster j, N_j is the number of packets that j delivers in RTT_s / 2, and s takes the segment
//! that lies the sum of N_j ahead in the stream. j's window w goes round by round: w packets per RTT_j, then
//! doubled in slow start (up to ssthresh) or one more, or, with probability 1 - (1 - p)^w, halved, p the loss
//! rate; the expectation is carried on. The last round counts by the share of it that lies within the time.
//!
//! Rulings: p is the life-long share of segments lost. After 8 rounds the window is taken as constant, which
//! bounds the cost. If the stream ends before that point, or the send window does, the faster subflows will
//! have carried it all by the time a segment sent on s arrives: wait, until RTT_f at the latest. That counts
//! unassigned bytes as if all of them lay after the point, so that it errs towards waiting.
//!
//! Parameters: `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::minrtt::{minrtt_or_wait, send_on};
use super::text::{Kib, Subflow};
use super::{Decision, Rationale, Scheduler, View};
use crate::Span;
use crate::metrics::SubflowMetrics;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "f2p-dps",
    summary: "sends on the slow what the fast won't have reached when it arrives (from a summary)",
    source: "5g-2019 III.A (two sentences)",
    parameters: &[opportunistic(OFF), penalise(OFF)],
    ..Entry::of(|values| with_mechanisms(values, ForwardPrediction))
};

#[derive(Debug)]
struct ForwardPrediction;

/// Rounds that are stepped through.
const ROUNDS: u32 = 8;

/// base^exponent by squaring.
#[inline]
fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// N_j: packets that `flow` delivers within `time`.
fn delivered_within(subflow: &SubflowMetrics, time: Span) -> f64 {
    let mut rounds = time.as_nanos() as f64 / subflow.rtt.smoothed.max(Span::from_nanos(1)).as_nanos() as f64;
    let sent = subflow.totals.delivered + subflow.totals.lost;
    let delivery = if subflow.totals.lost == 0 { 1.0 } else { subflow.totals.delivered as f64 / sent as f64 };
    let ssthresh = f64::from(subflow.ssthresh());
    let mut window = f64::from(subflow.cwnd());
    let mut packets = 0.0;
    for _ in 0..ROUNDS {
        if rounds <= 1.0 {
            break;
        }
        packets += window;
        rounds -= 1.0;
        let grown = if window < ssthresh { (window * 2.0).min(ssthresh) } else { window + 1.0 };
        window = if delivery == 1.0 {
            grown
        } else {
            let clean = power(delivery, window as u32);
            clean * grown + (1.0 - clean) * (window / 2.0)
        };
        window = window.max(1.0);
    }
    packets + window * rounds
}

impl Scheduler for ForwardPrediction {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        minrtt_or_wait(view, rationale, |fastest, slow, rationale| {
            if slow.rtt.smoothed == fastest.rtt.smoothed {
                return send_on(slow, rationale);
            }
            let ahead: f64 = view
                .faster_than(slow)
                .map(|subflow| delivered_within(subflow, slow.rtt.smoothed / 2) * f64::from(subflow.mss))
                .sum();
            // Whole segments, and saturating in the cast.
            let mss = u64::from(slow.mss.max(1));
            let ahead = (ahead as u64 / mss).saturating_mul(mss);
            let (id, fast) = (Subflow(slow.id), Subflow(fastest.id));
            if ahead >= view.unsent || ahead >= view.room() {
                rationale.say(|| {
                    let left = Kib(view.unsent.min(view.room()));
                    format!(
                        "wait for {fast}: before a segment on {id} arrives, {} could be delivered, and \
                         {left} are left",
                        Kib(ahead)
                    )
                });
                return Decision::Wait {
                    until: Some(view.now.saturating_add(fastest.rtt.smoothed.max(Span::from_nanos(1)))),
                };
            }
            rationale.say(|| {
                format!("{id} takes what is {} ahead: the faster deliver that much meanwhile", Kib(ahead))
            });
            Decision::SendAt { subflow: slow.id, offset: view.next_offset + ahead, bytes: slow.mss }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow, unmeasured};
    use super::*;
    use crate::{MILLISECOND, SubflowId, Time};

    fn within(subflow: &SubflowMetrics, ms: u64) -> f64 {
        delivered_within(subflow, ms * MILLISECOND)
    }

    #[test]
    fn powers() {
        assert_eq!(power(0.5, 0), 1.0);
        assert_eq!(power(0.5, 1), 0.5);
        assert_eq!(power(0.5, 10), 1.0 / 1024.0);
        assert_eq!(power(3.0, 5), 243.0);
    }

    #[test]
    fn the_window_round_by_round() {
        let mut avoidance = subflow(0, 10, 10, 0);
        avoidance.set_ssthresh(10);
        assert_eq!(within(&avoidance, 5), 5.0, "half a round");
        assert_eq!(within(&avoidance, 10), 10.0);
        assert_eq!(within(&avoidance, 35), 10.0 + 11.0 + 12.0 + 6.5);
        // Eight rounds of 10 to 17, and then 18 for good.
        assert_eq!(within(&avoidance, 80), 108.0);
        assert_eq!(within(&avoidance, 120), 108.0 + 4.0 * 18.0);
        let mut start = subflow(0, 10, 10, 0);
        assert_eq!(within(&start, 30), 70.0, "10, 20, 40");
        start.set_ssthresh(25);
        assert_eq!(within(&start, 40), 10.0 + 20.0 + 25.0 + 26.0);
    }

    #[test]
    fn losses_halve_the_window_by_their_probability() {
        let mut lossy = subflow(0, 10, 2, 0);
        lossy.set_ssthresh(2);
        (lossy.totals.delivered, lossy.totals.lost) = (3, 1);
        // Clean with (3/4)^2 = 9/16: then 3, else 1: 34/16.
        assert_eq!(within(&lossy, 20), 2.0 + 34.0 / 16.0);
        (lossy.totals.delivered, lossy.totals.lost) = (0, 5);
        assert_eq!(within(&lossy, 30), 4.0, "never below one");
    }

    fn scene(unsent: u64) -> Scene {
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 40, 10, 0)]);
        scene.subflows[0].set_ssthresh(10);
        scene.unsent = unsent;
        scene.next_offset = 7000;
        scene
    }

    #[test]
    fn the_slow_takes_what_lies_ahead() {
        // 20 ms: 10 + 11 packets.
        let send = Decision::SendAt { subflow: SubflowId(1), offset: 28_000, bytes: 1000 };
        assert_eq!(scene(100_000).ask(&mut *build("f2p-dps")), send);
        assert_eq!(scene(21_001).ask(&mut *build("f2p-dps")), send);
        let wait = Decision::Wait { until: Some(Time::ZERO + 10 * MILLISECOND) };
        assert_eq!(scene(21_000).ask(&mut *build("f2p-dps")), wait, "the stream ends there");
        let mut narrow = scene(100_000);
        narrow.send_window = 28_001;
        assert_eq!(narrow.ask(&mut *build("f2p-dps")), send);
        narrow.send_window = 28_000;
        assert_eq!(narrow.ask(&mut *build("f2p-dps")), wait, "the window does");
    }

    #[test]
    fn every_faster_subflow_counts_and_whole_segments() {
        let mut scene = scene(100_000);
        scene.subflows.push(subflow(2, 16, 2, 2));
        scene.subflows[2].set_ssthresh(2);
        // 20 ms are 1.25 rounds of 16: 2 + 3/4: 23.75 packets in all.
        let send = Decision::SendAt { subflow: SubflowId(1), offset: 30_000, bytes: 1000 };
        assert_eq!(scene.ask(&mut *build("f2p-dps")), send);
        scene.subflows[2].backup = true;
        assert_ne!(scene.ask(&mut *build("f2p-dps")), send);
    }

    #[test]
    fn nothing_is_predicted_without_a_sample() {
        let mut scene = scene(100_000);
        scene.subflows.push(unmeasured(2, 10, 10));
        let send = Decision::SendAt { subflow: SubflowId(1), offset: 28_000, bytes: 1000 };
        assert_eq!(scene.ask(&mut *build("f2p-dps")), send);
    }

    #[test]
    fn unlike_minrtt_the_slow_carries_what_comes_later() {
        let pipes = [Pipe::new(10, 10), Pipe::new(40, 10)];
        let (own, minrtt) = (run("f2p-dps", &pipes, 100), run("minrtt", &pipes, 100));
        // 21 packets ahead of the first unassigned, which is 11; minrtt starts with 11 itself.
        assert_eq!(own.segments_on(1, 1)[0], 32);
        assert_eq!(minrtt.segments_on(1, 1)[0], 11);
    }
}
