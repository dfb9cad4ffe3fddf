//! Helpers for the tests of congestion controls.

use super::{Ack, CongestionControl, LossCause, LostSegments, RateSample, Siblings, builtin};
use crate::congestion::AckCounting;
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::{MILLISECOND, PathId, Span, SubflowId, Time};

/// A subflow in congestion avoidance: window in segments, round-trip time in milliseconds.
pub(super) fn subflow(cwnd: u32, rtt_ms: u64) -> (u32, u64) {
    (cwnd, rtt_ms)
}

pub(super) fn subflows(list: &[(u32, u64)]) -> Vec<SubflowMetrics> {
    list.iter()
        .enumerate()
        .map(|(i, &(cwnd, rtt_ms))| {
            let mut subflow = SubflowMetrics::new(SubflowId(i as u8), PathId(i as u16));
            subflow.state = SubflowStatus::Usable;
            subflow.set_cwnd(cwnd);
            subflow.set_ssthresh(2);
            subflow.mss = 1000;
            subflow.rtt.smoothed = rtt_ms * MILLISECOND;
            subflow.rtt.min = subflow.rtt.smoothed;
            subflow.rtt.max = subflow.rtt.smoothed;
            subflow.rtt.latest = subflow.rtt.smoothed;
            subflow
        })
        .collect()
}

/// An ACK of so many segments, in the middle of a round trip of a sender limited by its window.
pub(super) fn ack(acked: u32) -> Ack {
    Ack {
        now: Time::ZERO,
        acked,
        counting: AckCounting::Segments,
        rtt: None,
        prior_in_flight: 0,
        cwnd_limited: true,
        round_start: false,
    }
}

/// The calls of a control, for subflow `i` of a list.
pub(super) trait OnList: CongestionControl {
    fn added_on(&mut self, list: &mut [SubflowMetrics], i: usize, now: Time) {
        let (subflow, siblings) = Siblings::split_mut(list, i);
        self.subflow_added(subflow, siblings, now);
    }

    fn removed_on(&mut self, list: &mut [SubflowMetrics], i: usize) {
        let (subflow, siblings) = Siblings::split(list, i);
        self.subflow_removed(subflow, siblings);
    }

    fn ack_on(&mut self, list: &mut [SubflowMetrics], i: usize, ack: &Ack) {
        let (subflow, siblings) = Siblings::split_mut(list, i);
        self.on_ack(subflow, siblings, ack);
    }

    fn ssthresh_on(&mut self, list: &[SubflowMetrics], i: usize, cause: LossCause, now: Time) -> u32 {
        let (subflow, siblings) = Siblings::split(list, i);
        self.ssthresh(subflow, siblings, cause, now)
    }

    fn undo_on(&mut self, list: &[SubflowMetrics], i: usize) {
        let (subflow, siblings) = Siblings::split(list, i);
        self.on_undo(subflow, siblings);
    }

    fn idle_restart_on(&mut self, list: &[SubflowMetrics], i: usize, idle: Span) {
        let (subflow, siblings) = Siblings::split(list, i);
        self.on_idle_restart(subflow, siblings, idle);
    }

    fn sample_on(&mut self, list: &mut [SubflowMetrics], i: usize, sample: &RateSample) -> bool {
        let (subflow, siblings) = Siblings::split_mut(list, i);
        self.on_sample(subflow, siblings, sample)
    }

    fn lost_on(&mut self, list: &[SubflowMetrics], i: usize, lost: &LostSegments) {
        let (subflow, siblings) = Siblings::split(list, i);
        self.on_lost(subflow, siblings, lost);
    }

    fn before_transmit_on(&mut self, list: &mut [SubflowMetrics], i: usize, now: Time, app_limited: bool) {
        let (subflow, siblings) = Siblings::split_mut(list, i);
        self.before_transmit(subflow, siblings, now, app_limited);
    }

    fn metrics_on(&self, list: &[SubflowMetrics], i: usize) -> Vec<(&'static str, f64)> {
        let (subflow, siblings) = Siblings::split(list, i);
        self.metrics(subflow, siblings)
    }
}

impl<C: CongestionControl + ?Sized> OnList for C {}

pub(super) fn build(spec: &str) -> Box<dyn CongestionControl> {
    builtin().parse(spec).unwrap_or_else(|error| panic!("{error}")).build()
}

/// ACKs of one segment each through one round trip, all with the same sample.
pub(super) fn round_trip(
    control: &mut dyn CongestionControl,
    subflows: &mut [SubflowMetrics],
    i: usize,
    segments: u32,
    rtt_ms: u64,
) {
    for j in 0..segments {
        let rtt = Some(rtt_ms * MILLISECOND);
        control.ack_on(subflows, i, &Ack { rtt, round_start: j == 0, ..ack(1) });
    }
}

/// Asserts equality to nine digits.
#[track_caller]
pub(super) fn assert_close(actual: f64, expected: f64) {
    let scale = expected.abs().max(1e-12);
    assert!((actual - expected).abs() <= 1e-9 * scale, "{actual} is not {expected}");
}
