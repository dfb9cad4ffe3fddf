//! `olaps`: learns how much redundancy pays, as a multi-armed bandit.
//!
//! Source: Xing, Xue, Zhang, Han, Li, Wei, An Online Learning Assisted Packet Scheduler for MPTCP in Mobile
//! Networks, IEEE/ACM Trans. Networking, 2023 (doi 10.1109/TNET.2023.3246168), by its abstract and the
//! authors' kernel module (`mptcp_ol.c`).
//!
//! Rule: the arms are shares of redundancy: 1, 1/2 and 0. In turn from the least srtt, the first available
//! subflow takes a segment: of each twelve the arm's share repeats what the subflow hasn't carried, oldest
//! first (new data once it has carried all), the others are new data. An interval lasts until each subflow
//! has sent for max(40 ms, 2 srtt), and all that it sent is acknowledged. With R = bytes sent in it / time
//! from the first byte's sending to the last one's ACK, for the connection (R_m) and each subflow (R_i):
//!
//! ```text
//! reward = R_m / sum_i max R_i                               max over the last 4 s
//! next arm: one not tried yet, else the largest of mean + sqrt(2 ln(n) / n_arm)        (UCB1)
//! ```
//!
//! A monitor starts anew (all counts and means 0) once an arm's reward has been four times in a row above its
//! mean by 3 mean deviations while it isn't the best, or below while it isn't the worst.
//!
//! Rulings: the module's share for the third arm is 1/8192, which is 0 of twelve. It means quotas to be of
//! what was delivered in the last interval; a comparison the wrong way round makes them twelve always, and
//! so they are here. A subflow that isn't usable is left out of an interval. An arm stays while a subflow
//! sends nothing, as in the module: its interval doesn't end. After 2 s without a greater R_i, an interval
//! with the first arm sets it anew; the module's forced pull of that arm is switched off there, and so here.
//! Duplicates may leave while the connection-level window is full. A subflow that may not send what its quota
//! asks for is passed over.
//!
//! Parameters: `arms` (3; 2 to 9): number of shares, evenly from 1 to 0; the module has three.
//! `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::text::{Subflow, no_room, nothing_to_send};
use super::{Decision, Event, Purpose, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Parameter};
use crate::{MAX_SUBFLOWS, Span, Time};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "olaps",
    summary: "learns by intervals how much redundancy pays (from its code)",
    source: "Xing et al., IEEE/ACM ToN 2023; mptcp_ol.c",
    parameters: &[
        Parameter::number("arms", 3.0, (2.0, 9.0), "number of shares of redundancy, evenly from 1 to 0"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    compared_by_default: false,
    ..Entry::of(|values| with_mechanisms(values, Olaps::new(values.number("arms") as usize)))
};

/// Segments of a quota.
const QUOTA: u32 = 12;
/// Least length of an interval.
const LEAST: Span = Span::from_millis(40);
/// After so many unusual rewards in a row everything is learnt anew.
const CHANGED: i8 = 4;
/// Mean deviations that are out of the usual.
const DEVIATIONS: f64 = 3.0;
/// How long a subflow's greatest rate counts; after half of it, the first arm's next interval sets it.
const RATE_HOLDS: Span = Span::from_secs(4);

/// One arm.
#[derive(Clone, Copy, Debug, Default)]
struct Arm {
    pulls: u32,
    mean: f64,
    deviation: f64,
    /// Rewards in a row above (positive) or below the usual.
    changed: i8,
}

/// What is measured of a subflow, or of the connection, in one interval.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    /// Position at its start.
    from: u64,
    /// When the first byte left.
    began: Option<Time>,
    /// Position at its end, once sending has ended.
    to: Option<u64>,
    /// When all of it was acknowledged.
    acked: Option<Time>,
}

impl Interval {
    fn from(position: u64) -> Self {
        Interval { from: position, ..Interval::default() }
    }

    /// Takes note of what has been sent and acknowledged by now.
    fn observe(&mut self, sent: u64, acked: u64, now: Time) {
        if self.began.is_none() && sent > self.from {
            self.began = Some(now);
        }
        if self.acked.is_none() && self.to.is_some_and(|to| acked >= to) {
            self.acked = Some(now);
        }
    }

    /// Bytes per nanosecond.
    fn rate(&self) -> Option<f64> {
        let (began, to, acked) = (self.began?, self.to?, self.acked?);
        Some(to.saturating_sub(self.from) as f64 / acked.saturating_sub(began).as_nanos().max(1) as f64)
    }
}

/// What is kept of one subflow.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Everything before this stream offset is carried or acknowledged.
    cursor: u64,
    /// Segments left of its quota.
    repeats: u32,
    new: u32,
    interval: Interval,
    /// Its greatest rate, and when that was seen.
    greatest: f64,
    seen: Time,
}

#[derive(Debug)]
struct Olaps {
    arms: Vec<Arm>,
    current: usize,
    slots: [Slot; MAX_SUBFLOWS],
    connection: Interval,
}

/// Bytes that were sent on a subflow for the first time.
fn position(subflow: &SubflowMetrics) -> u64 {
    subflow.totals.bytes_acked + u64::from(subflow.packets_out()) * u64::from(subflow.mss)
}

impl Olaps {
    fn new(arms: usize) -> Self {
        let mut arms = vec![Arm::default(); arms.max(2)];
        arms[0].pulls = 1;
        Olaps { arms, current: 0, slots: [Slot::default(); MAX_SUBFLOWS], connection: Interval::default() }
    }

    /// The current arm's share of redundancy.
    fn share(&self) -> f64 {
        1.0 - self.current as f64 / (self.arms.len() - 1) as f64
    }

    /// Ends the interval if it is over, learns from it, and starts the next.
    fn learn(&mut self, view: &View<'_>) {
        let now = view.now;
        let (mut sending, mut waiting, mut subflows) = (false, false, 0);
        for subflow in view.usable() {
            let Some(slot) = self.slots.get_mut(subflow.id.index()) else { continue };
            subflows += 1;
            slot.interval.observe(position(subflow), subflow.totals.bytes_acked, now);
            let lasts = LEAST.max(2 * subflow.rtt.smoothed);
            let sent = slot.interval.began.is_some_and(|began| now - began >= lasts);
            sending |= slot.interval.to.is_none() && !sent;
            waiting |= slot.interval.acked.is_none();
        }
        self.connection.observe(view.next_offset, view.una, now);
        if subflows < 2 || sending {
            return;
        }
        if self.connection.to.is_none() {
            self.connection.to = Some(view.next_offset);
            // A subflow that isn't usable now may become so before all of the interval is acknowledged.
            for subflow in view.subflows {
                if let Some(slot) = self.slots.get_mut(subflow.id.index()) {
                    slot.interval.to = Some(position(subflow));
                }
            }
            return;
        }
        if waiting || self.connection.acked.is_none() {
            return;
        }
        if let Some(reward) = self.reward(view) {
            self.reinforce(reward);
        }
        self.current = self.next_arm();
        self.arms[self.current].pulls += 1;
        self.start(view);
    }

    fn start(&mut self, view: &View<'_>) {
        self.connection = Interval::from(view.next_offset);
        for subflow in view.subflows {
            if let Some(slot) = self.slots.get_mut(subflow.id.index()) {
                slot.interval = Interval::from(position(subflow));
                (slot.repeats, slot.new) = (0, 0);
            }
        }
    }

    fn reward(&mut self, view: &View<'_>) -> Option<f64> {
        let whole = self.connection.rate()?;
        let mut sum = 0.0;
        for subflow in view.usable() {
            let Some(slot) = self.slots.get_mut(subflow.id.index()) else { continue };
            let rate = slot.interval.rate()?;
            let due = view.now.saturating_sub(slot.seen) > RATE_HOLDS / 2 && self.current == 0;
            if rate > slot.greatest || due {
                (slot.greatest, slot.seen) = (rate, view.now);
            }
            sum += slot.greatest;
        }
        (sum > 0.0).then(|| whole / sum)
    }

    fn reinforce(&mut self, reward: f64) {
        let current = self.arms[self.current];
        let best = self.arms.iter().all(|arm| current.mean >= arm.mean);
        let worst = self.arms.iter().all(|arm| current.mean <= arm.mean);
        let arm = &mut self.arms[self.current];
        let off = reward - arm.mean;
        if arm.deviation == 0.0 {
            arm.deviation = off.abs();
        } else {
            let unusual = off.abs() > DEVIATIONS * arm.deviation;
            arm.changed = match unusual {
                true if off > 0.0 && !best => arm.changed.max(0) + 1,
                true if off < 0.0 && !worst => arm.changed.min(0) - 1,
                _ => 0,
            };
            if arm.changed.abs() >= CHANGED {
                self.arms.fill(Arm::default());
                self.arms[self.current] = Arm { pulls: 1, mean: reward, ..Arm::default() };
                return;
            }
            if arm.changed == 0 {
                arm.deviation += (off.abs() - arm.deviation) / 8.0;
            }
        }
        let pulls = f64::from(arm.pulls.max(1));
        arm.mean += off / pulls;
    }

    /// UCB1.
    fn next_arm(&self) -> usize {
        if let Some(new) = self.arms.iter().position(|arm| arm.pulls == 0) {
            return new;
        }
        let pulls: u32 = self.arms.iter().map(|arm| arm.pulls).sum();
        let bound =
            |arm: &Arm| arm.mean + libm::sqrt(2.0 * libm::log(f64::from(pulls)) / f64::from(arm.pulls));
        let order = |a: &usize, b: &usize| bound(&self.arms[*a]).total_cmp(&bound(&self.arms[*b]));
        // Of equals the first, as in the module.
        (0..self.arms.len()).rev().max_by(order).unwrap_or(0)
    }

    /// What a subflow with room sends next; `None`: nothing that its quota asks for.
    fn next(
        &mut self,
        view: &View<'_>,
        subflow: &SubflowMetrics,
        rationale: &mut Rationale,
    ) -> Option<Decision> {
        let share = self.share();
        let slot = self.slots.get_mut(subflow.id.index())?;
        if slot.repeats == 0 && slot.new == 0 {
            slot.repeats = (share * f64::from(QUOTA)) as u32;
            slot.new = QUOTA - slot.repeats;
        }
        if slot.repeats > 0 {
            while let Some(chunk) = view.in_flight.chunk_after(slot.cursor) {
                if !chunk.carried_by(subflow.id) {
                    slot.repeats -= 1;
                    let id = Subflow(subflow.id);
                    rationale.say(|| {
                        format!("{id} repeats data at {}: a share of {share:.2} is repeated", chunk.offset)
                    });
                    let purpose = Purpose::Redundant;
                    return Some(Decision::Duplicate { subflow: subflow.id, offset: chunk.offset, purpose });
                }
                slot.cursor = chunk.offset + u64::from(chunk.len);
            }
        }
        if !view.sendable() {
            return None;
        }
        let left = if slot.repeats > 0 { &mut slot.repeats } else { &mut slot.new };
        *left -= 1;
        let id = Subflow(subflow.id);
        rationale.say(|| format!("{id} takes new data: a share of {share:.2} is repeated"));
        Some(Decision::Send { subflow: subflow.id, bytes: subflow.mss })
    }
}

impl Scheduler for Olaps {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        self.learn(view);
        let mut asked = 0u32;
        loop {
            let rest = view.available().filter(|subflow| asked & (1 << subflow.id.0) == 0);
            let Some(subflow) = rest.min_by_key(|subflow| (subflow.rtt.smoothed, subflow.id)) else { break };
            asked |= 1 << subflow.id.0;
            if let Some(decision) = self.next(view, subflow, rationale) {
                return decision;
            }
        }
        if asked == 0 { no_room(view, rationale) } else { nothing_to_send(view, rationale) }
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        if let Event::SubflowAdded(subflow) = event {
            if let Some(slot) = self.slots.get_mut(subflow.index()) {
                *slot = Slot::default();
            }
            self.start(view);
        }
    }

    fn repeats(&self) -> bool {
        true
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("redundancy", self.share())]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, run};
    use super::*;

    fn rewarded(olaps: &mut Olaps, reward: impl Fn(usize) -> f64, intervals: usize) -> Vec<usize> {
        let mut pulled = Vec::new();
        for _ in 0..intervals {
            olaps.reinforce(reward(olaps.current));
            olaps.current = olaps.next_arm();
            olaps.arms[olaps.current].pulls += 1;
            pulled.push(olaps.current);
        }
        pulled
    }

    #[test]
    fn every_arm_is_tried_once_and_the_best_one_most() {
        let mut olaps = Olaps::new(3);
        let pulled = rewarded(&mut olaps, |arm| [0.1, 0.5, 0.9][arm], 200);
        assert_eq!(pulled[..2], [1, 2]);
        let of = |arm| pulled.iter().filter(|pulled| **pulled == arm).count();
        assert!(of(2) > of(1) && of(1) > of(0), "{} {} {}", of(0), of(1), of(2));
    }

    #[test]
    fn it_starts_anew_once_an_arm_pays_otherwise_four_times() {
        let mut olaps = Olaps::new(2);
        rewarded(&mut olaps, |arm| [0.2, 0.8][arm], 40);
        let pulls = |olaps: &Olaps| olaps.arms.iter().map(|arm| arm.pulls).sum::<u32>();
        assert!(pulls(&olaps) > 40);
        // The first is no longer the worst, nor the second the best.
        for _ in 0..4 {
            olaps.current = 1;
            olaps.reinforce(0.1);
        }
        assert_eq!(pulls(&olaps), 1);
    }

    #[test]
    fn an_interval_is_measured_from_the_first_byte_to_the_last_ack() {
        let mut interval = Interval::from(1000);
        let at = Time::from_nanos;
        interval.observe(1000, 0, at(10));
        assert_eq!(interval.began, None);
        interval.observe(2000, 0, at(20));
        interval.to = Some(5000);
        interval.observe(9000, 4999, at(30));
        assert_eq!(interval.rate(), None);
        interval.observe(9000, 5000, at(40));
        assert_eq!(interval.rate(), Some(4000.0 / 20.0));
    }

    #[test]
    fn the_first_arm_repeats_all_and_the_last_nothing() {
        // Short: the first arm, which every connection starts with.
        let done = run("olaps", &[Pipe::new(50, 10), Pipe::new(50, 10)], 8);
        assert_eq!((done.bytes_on(0), done.bytes_on(1)), (8000, 8000));
        let mut olaps = Olaps::new(3);
        olaps.current = 2;
        assert_eq!(olaps.share(), 0.0);
    }
}
