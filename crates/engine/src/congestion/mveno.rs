//! mVeno: Dong, Wang, Huang, Wang, Min, "Performance enhancement of multipath TCP for wireless communications
//! with multiple radio interfaces", IEEE Trans. Communications 64(8), 2016. **From a summary**: the paper's
//! abstract says that mVeno keeps Veno's loss differentiation and couples the additive increase of all
//! subflows, each with a weight; the weights themselves are derived here.
//!
//! w_r: congestion window of subflow r (segments), rtt_r: its smoothed round-trip time (seconds), N_r: its
//! queued segments as Veno estimates them (`veno.rs`), g_r: Veno's pace, 1 where N_r < beta and 1/2 where it
//! is not. For each segment acknowledged on r in congestion avoidance, and at a loss on r:
//!
//! ```text
//! w_r += g_r d_r / w_r,   d_r = min(1, w_r max_p(w_p / rtt_p^2) / (sum_p w_p / rtt_p)^2)
//! w_r  = 4/5 w_r  where N_r < beta,  1/2 w_r  where not
//! ```
//!
//! Why these weights d_r. Let p_r be the loss rate of r and f_r what a loss takes of the window there, a
//! fifth or half. A Veno alone on r settles at v_r with g_r / v_r = p_r f_r v_r; the coupled subflow at g_r a
//! = p_r f_r w_r where the increase per segment, a = d_r / w_r, is the same for all. So v_r^2 = w_r / a,
//! whatever g_r and f_r are, and the subflows together are as fast as Veno on the best path, sum_p w_p/rtt_p
//! = max_p v_p/rtt_p, when a = max_p(w_p/rtt_p^2) / (sum_p w_p/rtt_p)^2: the argument of RFC 6356 holds for
//! Veno's steps. The bound d_r <= 1 keeps each subflow below Veno on its path. With one subflow d is 1 and
//! this is Veno.
//!
//! Rulings: the weights, as derived above; everything else, presets included, is Veno's.
//!
//! Parameters: `beta` (3 segments; 0 to 1000), `reset-base` (true; preset `linux`: false), `timeouts-differ`
//! (false; preset `linux`: true), as in `veno.rs`.

use super::additive::AdditiveControl;
use super::veno::{Growth, PARAMETERS, PRESETS, Veno};
use super::{ControlEntry, Siblings, lia};
use crate::metrics::SubflowMetrics;

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "mveno",
    summary: "coupled Veno: linked increases, and a fifth instead of half when a loss looks random",
    source: "Dong et al., IEEE Trans. Communications 64(8), 2016 (from its summary)",
    parameters: PARAMETERS,
    presets: PRESETS,
    single_path: Some("veno"),
    ..ControlEntry::of(|values| AdditiveControl::boxed(Veno::<Linked>::new(values)))
};

/// All subflows' windows bound the increase.
#[derive(Debug)]
struct Linked;

impl Growth for Linked {
    const NAME: &'static str = ENTRY.name;

    fn increase(r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
        lia::increase(r, siblings)
    }

    fn metrics(r: &SubflowMetrics, siblings: Siblings<'_>) -> Option<(&'static str, f64)> {
        Some(("weight", lia::increase(r, siblings) * f64::from(r.cwnd())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{OnList, ack, assert_close, build, subflow, subflows};
    use super::super::{Ack, CongestionControl, LossCause};
    use super::*;
    use crate::{MILLISECOND, Span, Time};

    /// Shows subflow `i` a base of 100 ms and a round trip of `ms`, with ACKs of nothing.
    fn measure(control: &mut dyn CongestionControl, list: &mut [SubflowMetrics], i: usize, ms: u64) {
        for ms in [100, ms] {
            for j in 0..5 {
                let rtt = Some(ms * MILLISECOND);
                control.ack_on(list, i, &Ack { rtt, round_start: j == 0, ..ack(0) });
            }
        }
        control.ack_on(list, i, &Ack { round_start: true, ..ack(0) });
    }

    #[test]
    fn the_increase_is_linked_and_paced() {
        // Two at w 20, rtt 100 ms: a = 2000/400^2 = 0.0125, weight 0.25; 80 segments for one, or 160 where
        // 4 segments are queued (125 ms).
        for (ms, needed) in [(110, 80), (125, 160)] {
            let mut list = subflows(&[subflow(20, 100), subflow(20, 100)]);
            let mut control = build("mveno");
            measure(&mut *control, &mut list, 0, ms);
            assert_close(control.metrics_on(&list, 0)[1].1, 0.25);
            control.ack_on(&mut list, 0, &ack(needed - 1));
            assert_eq!(list[0].cwnd(), 20, "{ms} ms");
            control.ack_on(&mut list, 0, &ack(1));
            assert_eq!(list[0].cwnd(), 21, "{ms} ms");
        }
    }

    #[test]
    fn each_subflow_tells_its_losses_apart() {
        let mut list = subflows(&[subflow(20, 100), subflow(20, 100)]);
        let mut control = build("mveno");
        measure(&mut *control, &mut list, 0, 110);
        measure(&mut *control, &mut list, 1, 125);
        assert_close(control.metrics_on(&list, 0)[0].1, 20.0 * 10.0 / 110.0);
        assert_close(control.metrics_on(&list, 1)[0].1, 4.0);
        assert_eq!(control.ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO), 16);
        assert_eq!(control.ssthresh_on(&list, 1, LossCause::FastRetransmit, Time::ZERO), 10);
    }

    #[test]
    fn after_an_idle_time_the_base_is_measured_again() {
        let mut list = subflows(&[subflow(20, 100)]);
        let mut control = build("mveno:linux");
        measure(&mut *control, &mut list, 0, 125);
        control.idle_restart_on(&list, 0, Span::from_nanos(1));
        for j in 0..5 {
            let rtt = Some(200 * MILLISECOND);
            control.ack_on(&mut list, 0, &Ack { rtt, round_start: j == 0, ..ack(0) });
        }
        control.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(0) });
        assert_close(control.metrics_on(&list, 0)[0].1, 0.0);
    }
}
