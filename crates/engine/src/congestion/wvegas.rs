//! wVegas, weighted Vegas: draft-xu-mptcp-congestion-control-05, and Cao, Xu, Fu, "Delay-based congestion
//! control for multipath TCP", ICNP 2012.
//!
//! w_r: congestion window of subflow r (segments), base_r: its least round-trip time, rtt_r: the mean of the
//! last round trip's samples (seconds). Once per round trip on r:
//!
//! ```text
//! diff_r = (w_r/base_r - w_r/rtt_r) base_r
//! diff_r >= alpha_r:  x_r = w_r/rtt_r;  alpha_r = max(2, total-alpha x_r / sum_p x_p)
//! diff_r < alpha_r:   w_r += 1
//! diff_r > alpha_r:   w_r -= 1
//! q_r = rtt_r - base_r;  least_q_r = min(least_q_r, q_r)
//! q_r >= 2 least_q_r:  w_r = w_r base_r / (2 rtt_r), and least_q_r is measured anew
//! ```
//!
//! So all subflows together keep total-alpha segments queued, more where the rate is higher, and a queue
//! that has doubled is drained for the sake of a true base_r. Slow start ends when diff_r > gamma. With one
//! subflow: Vegas with alpha = beta = total-alpha, and the draining.
//!
//! Rulings. alpha_r starts at 2, and x_p is 0 until subflow p has reached its alpha once, as in the Linux
//! implementation. least_q_r is unknown until a round trip has a queueing delay above zero. Where delays
//! are exact, as in a simulation, the queue passes from one segment to two, and is drained then: the window
//! moves between half the path's capacity and all of it. That is the rule as it stands; the parameter
//! `drain` switches it off. Windows of less than 2 segments don't occur. The subflows summed over: those
//! usable with a round-trip sample; a backup only while it carries data. Else as in `vegas.rs`: few samples,
//! losses, idle times; slow start grows in every round trip (Linux).
//!
//! Parameters: `total-alpha` (10 segments; 2 to 1000), `gamma` (1 segment; 0 to 1000), `drain` (true).

use super::delay::{Delay, Round, RoundTrip};
use super::siblings::{PerSubflow, counted};
use super::vegas::{grow, leave_slow_start, queued, shrink};
use super::{Ack, CongestionControl, ControlEntry, LossCause, Siblings, half_window, slow_start};
use crate::metrics::SubflowMetrics;
use crate::registry::{Exception, Kernel, Parameter};
use crate::{SECOND, Span, Time};

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "wvegas",
    summary: "coupled, delay-based: the subflows share the segments that one Vegas would queue",
    source: "draft-xu-mptcp-congestion-control-05",
    parameters: &[
        Parameter::number("total-alpha", 10.0, (2.0, 1000.0), "segments queued by all subflows together"),
        Parameter::number("gamma", 1.0, (0.0, 1000.0), "end slow start above so many queued segments"),
        Parameter::switch("drain", true, "empty the queue when its delay has doubled"),
    ],
    exceptions: &[Exception {
        rule: "harmless",
        reason: "the draft couples what is queued, not the increase: where nothing queues, each adds one \
                 per round trip",
    }],
    kernels: &[Kernel::MultipathTcp.has()],
    // The draft: alpha is the whole of total-alpha; the draining of queues is its own.
    single_path: Some("wvegas"),
    ..ControlEntry::of(|values| {
        Box::new(WVegas {
            states: PerSubflow::default(),
            total_alpha: values.number("total-alpha"),
            gamma: values.number("gamma"),
            drain: values.switch("drain"),
        })
    })
};

const LEAST_ALPHA: f64 = 2.0;

#[derive(Debug)]
struct State {
    delay: Delay,
    alpha: f64,
    /// x_r, segments per second; 0 before the first time at alpha.
    rate: f64,
    /// least_q_r.
    least_queue: Option<Span>,
}

impl Default for State {
    fn default() -> Self {
        State { delay: Delay::default(), alpha: LEAST_ALPHA, rate: 0.0, least_queue: None }
    }
}

#[derive(Debug)]
struct WVegas {
    states: PerSubflow<State>,
    total_alpha: f64,
    gamma: f64,
    drain: bool,
}

impl WVegas {
    /// Congestion avoidance at the end of a round trip.
    fn avoid(&mut self, subflow: &mut SubflowMetrics, siblings: Siblings<'_>, ack: &Ack, trip: RoundTrip) {
        let RoundTrip { base, mean: rtt, .. } = trip;
        let diff = queued(subflow.cwnd(), base, rtt);
        if diff >= self.states.at(subflow.id).alpha {
            self.states.at(subflow.id).rate = f64::from(subflow.cwnd()) * SECOND.as_nanos() as f64
                / rtt.max(Span::from_nanos(1)).as_nanos() as f64;
            let rates =
                counted(subflow, siblings).filter_map(|p| self.states.get(p.id)).map(|state| state.rate);
            let share = self.total_alpha / rates.sum::<f64>();
            let state = self.states.at(subflow.id);
            state.alpha = (state.rate * share).max(LEAST_ALPHA);
        }
        let state = self.states.at(subflow.id);
        if diff < state.alpha {
            grow(subflow, ack);
        } else if diff > state.alpha {
            shrink(subflow);
        }
        let queue = rtt.saturating_sub(base);
        if self.drain && queue > Span::ZERO {
            let least = state.least_queue.map_or(queue, |least| least.min(queue));
            state.least_queue = Some(least);
            if queue >= least.saturating_mul(2) {
                subflow.set_cwnd(
                    ((f64::from(subflow.cwnd()) * base.as_nanos() as f64 / (2.0 * rtt.as_nanos() as f64))
                        as u32)
                        .max(2),
                );
                // With a threshold above the drained window the next ACK would begin slow start.
                subflow.set_ssthresh(subflow.ssthresh().min(subflow.cwnd()));
                state.least_queue = None;
            }
        }
    }
}

impl CongestionControl for WVegas {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn subflow_added(&mut self, subflow: &mut SubflowMetrics, _: Siblings<'_>, _now: Time) {
        self.states.reset(subflow.id);
    }

    fn subflow_removed(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>) {
        self.states.reset(subflow.id);
    }

    fn on_ack(&mut self, subflow: &mut SubflowMetrics, siblings: Siblings<'_>, ack: &Ack) {
        let round = self.states.at(subflow.id).delay.on_ack(ack);
        if subflow.in_slow_start() {
            match round {
                Round::Measured(trip) if queued(subflow.cwnd(), trip.base, trip.mean) > self.gamma => {
                    leave_slow_start(subflow, trip.base, trip.mean);
                }
                _ if ack.cwnd_limited => {
                    slow_start(subflow, ack);
                }
                _ => {}
            }
            return;
        }
        match round {
            Round::Running => {}
            Round::Unmeasured => grow(subflow, ack),
            Round::Measured(trip) => self.avoid(subflow, siblings, ack, trip),
        }
    }

    fn ssthresh(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>, _: LossCause, _: Time) -> u32 {
        self.states.at(subflow.id).delay.forget_round();
        half_window(subflow, 2)
    }

    fn on_idle_restart(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>, _: Span) {
        let state = self.states.at(subflow.id);
        state.delay.restart();
        state.least_queue = None;
    }

    fn metrics(&self, subflow: &SubflowMetrics, _: Siblings<'_>) -> Vec<(&'static str, f64)> {
        vec![("alpha", self.states.get(subflow.id).map_or(LEAST_ALPHA, |state| state.alpha))]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{OnList, ack, assert_close, build, round_trip, subflow, subflows};
    use super::*;

    /// Shows the control a base of 100 ms and then round trips of `ms` at a window of `cwnd`; returns the
    /// window after each.
    fn rounds(
        control: &mut dyn CongestionControl,
        list: &mut [SubflowMetrics],
        i: usize,
        cwnd: u32,
        ms: &[u64],
    ) -> Vec<u32> {
        round_trip(control, list, i, 10, 100);
        ms.iter()
            .map(|ms| {
                round_trip(control, list, i, 10, *ms);
                list[i].set_cwnd(cwnd);
                control.ack_on(list, i, &Ack { round_start: true, ..ack(1) });
                list[i].cwnd()
            })
            .collect()
    }

    #[test]
    fn alone_it_queues_total_alpha() {
        // w 50, base 100 ms: diff 5 at 111.1 ms, 10 at 125 ms, 15 at 142.9 ms.
        let cases = [(110, 51), (120, 51), (125, 50), (140, 49)];
        for (ms, expected) in cases {
            let mut list = subflows(&[subflow(50, 100)]);
            let mut control = build("wvegas(drain=false)");
            assert_eq!(rounds(&mut *control, &mut list, 0, 50, &[ms]), [expected], "{ms} ms");
        }
    }

    #[test]
    fn alpha_follows_the_share_of_the_rate() {
        // Both at 50 ms of queue, diff = w/3: 20 and 10. Subflow 0 alone: all 10. Then subflow 1 with
        // x = 30/0.15 = 200 beside 60/0.15 = 400: 10/3; and subflow 0 again: 20/3.
        let mut list = subflows(&[subflow(60, 100), subflow(30, 100)]);
        let mut control = build("wvegas(drain=false)");
        assert_close(control.metrics_on(&list, 0)[0].1, 2.0);
        rounds(&mut *control, &mut list, 0, 60, &[150]);
        assert_close(control.metrics_on(&list, 0)[0].1, 10.0);
        rounds(&mut *control, &mut list, 1, 30, &[150]);
        assert_close(control.metrics_on(&list, 1)[0].1, 10.0 / 3.0);
        rounds(&mut *control, &mut list, 0, 60, &[150]);
        assert_close(control.metrics_on(&list, 0)[0].1, 20.0 / 3.0);
        // A share of less than 2 is 2: x = 6/0.15 = 40 of 440: 0.9.
        control.removed_on(&mut list, 1);
        rounds(&mut *control, &mut list, 1, 6, &[150]);
        assert_close(control.metrics_on(&list, 1)[0].1, 2.0);
    }

    #[test]
    fn a_removed_subflow_leaves_its_share() {
        let mut list = subflows(&[subflow(60, 100), subflow(30, 100)]);
        let mut control = build("wvegas(drain=false)");
        rounds(&mut *control, &mut list, 0, 60, &[150]);
        rounds(&mut *control, &mut list, 1, 30, &[150]);
        control.removed_on(&mut list, 1);
        rounds(&mut *control, &mut list, 0, 60, &[150]);
        assert_close(control.metrics_on(&list, 0)[0].1, 10.0);
    }

    #[test]
    fn a_doubled_queue_is_drained() {
        // q 5 ms, then 10 ms = 2 * 5: 50 (+1: diff 4.5 < 10) * 100 / (2 * 110) = 23.2. Then q is measured
        // anew: 9 ms is the least, 17 ms is less than twice that.
        let mut list = subflows(&[subflow(50, 100)]);
        let mut control = build("wvegas");
        assert_eq!(rounds(&mut *control, &mut list, 0, 50, &[105, 109, 110]), [51, 51, 23]);
        assert_eq!(rounds(&mut *control, &mut list, 0, 50, &[109, 117, 118]), [51, 51, 21]);
    }

    #[test]
    fn no_queue_is_no_least_queue() {
        let mut list = subflows(&[subflow(50, 100)]);
        let mut control = build("wvegas");
        assert_eq!(rounds(&mut *control, &mut list, 0, 50, &[100, 100, 105]), [51, 51, 51]);
    }

    #[test]
    fn draining_leaves_two() {
        let mut list = subflows(&[subflow(4, 100)]);
        let mut control = build("wvegas");
        assert_eq!(rounds(&mut *control, &mut list, 0, 3, &[110, 190]), [4, 2]);
    }

    #[test]
    fn slow_start_ends_above_gamma() {
        let mut list = subflows(&[subflow(20, 100)]);
        list[0].set_ssthresh(u32::MAX);
        let mut control = build("wvegas");
        round_trip(&mut *control, &mut list, 0, 10, 100);
        assert_eq!(list[0].cwnd(), 30);
        // w 30 at 102 ms: diff 0.59; at 110 ms: 2.7, the path holds 27.27.
        round_trip(&mut *control, &mut list, 0, 10, 102);
        list[0].set_cwnd(30);
        control.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(1) });
        assert_eq!(list[0].cwnd(), 31);
        round_trip(&mut *control, &mut list, 0, 10, 110);
        list[0].set_cwnd(30);
        control.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(1) });
        assert_eq!((list[0].cwnd(), list[0].ssthresh()), (28, 28));
    }

    #[test]
    fn gamma_itself_queued_leaves_slow_start_going() {
        let mut list = subflows(&[subflow(20, 100)]);
        list[0].set_ssthresh(u32::MAX);
        let mut control = build("wvegas(gamma=4)");
        // w 20, base 100, rtt 125 ms: exactly 4.
        rounds(&mut *control, &mut list, 0, 20, &[125]);
        assert!(list[0].in_slow_start());
        assert_eq!(list[0].cwnd(), 21);
    }

    #[test]
    fn a_rate_is_a_window_per_round_trip() {
        // x = 60/0.15 = 400 and 30/0.2 = 150: of 10 segments the second has 10 * 150/550.
        let mut list = subflows(&[subflow(60, 100), subflow(30, 100)]);
        let mut control = build("wvegas(drain=false)");
        rounds(&mut *control, &mut list, 0, 60, &[150]);
        rounds(&mut *control, &mut list, 1, 30, &[200]);
        assert_close(control.metrics_on(&list, 1)[0].1, 10.0 * 150.0 / 550.0);
    }

    #[test]
    fn losses_and_idle_times() {
        let mut list = subflows(&[subflow(50, 100)]);
        let mut control = build("wvegas");
        rounds(&mut *control, &mut list, 0, 50, &[105]);
        assert_eq!(control.ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO), 25);
        list[0].set_cwnd(2);
        assert_eq!(control.ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO), 2);
        // The base is measured again: 300 ms of it are no queue.
        control.idle_restart_on(&list, 0, Span::from_nanos(1));
        round_trip(&mut *control, &mut list, 0, 10, 300);
        round_trip(&mut *control, &mut list, 0, 10, 300);
        list[0].set_cwnd(50);
        control.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(1) });
        assert_eq!(list[0].cwnd(), 51);
    }

    #[test]
    fn parameters_reach_the_control() {
        // diff 16.7 at w 50 and 150 ms: above 10, below 20.
        let mut list = subflows(&[subflow(50, 100)]);
        let mut control = build("wvegas(total-alpha=20, drain=false)");
        assert_eq!(rounds(&mut *control, &mut list, 0, 50, &[150]), [51]);
    }
}
