//! What the controls' tests share.

use super::Ack;
use crate::flow::{Flow, FlowState};
use crate::{MILLISECOND, PathId, SubflowId};

/// A usable subflow in congestion avoidance: window in segments, smoothed round-trip time in milliseconds.
pub(crate) fn flow(cwnd: u32, srtt_ms: u64) -> Flow {
    let mut flow = Flow::new(SubflowId(0), PathId(0));
    flow.state = FlowState::Usable;
    flow.cwnd = cwnd;
    flow.ssthresh = 1;
    flow.srtt = srtt_ms * MILLISECOND;
    flow.min_rtt = flow.srtt;
    flow.last_rtt = flow.srtt;
    flow.mss = 1448;
    flow
}

/// Subflows 0, 1, 2, ... of one connection.
pub(crate) fn flows(of: &[Flow]) -> Vec<Flow> {
    let mut flows = of.to_vec();
    for (i, flow) in flows.iter_mut().enumerate() {
        flow.id = SubflowId(i as u8);
    }
    flows
}

/// An ACK of so many segments while the window was the limit.
pub(crate) fn ack(acked: u32) -> Ack {
    Ack { now: 0, acked, rtt: None, prior_in_flight: u32::MAX, cwnd_limited: true, round_start: false }
}

/// Equal to nine digits.
#[track_caller]
pub(crate) fn assert_close(found: f64, expected: f64) {
    let scale = expected.abs().max(1e-12);
    assert!((found - expected).abs() / scale < 1e-9, "found {found}, expected {expected}");
}
