//! DAPS as the paper's first author wrote it for the out-of-tree Linux kernel (vkirany/mptcp-kau,
//! net/mptcp/mptcp_daps.c, "Simone Ferlin", version 0.89).
//!
//! It differs from Algorithm 1 in what the plan counts and in how it is followed. The plan is an order of
//! packets: in order of the time t = 1 to lcm(D), C_i packets for path i at each multiple of D_i, the path of
//! the least srtt first at equal t. The next data goes to the path whose turn it is, as a packet of up to an
//! MSS, and a shorter packet counts as one. Nothing waits for t, and the congestion window isn't asked: a
//! packet joins the queue of its subflow, as in `otias`. The plan is followed to its end, whatever becomes of
//! windows and round-trip times; a subflow in RTO recovery loses the slots that pass by. D_i is rounded to 4
//! ms. C_i is the congestion window smoothed as RTTs are (7/8 of the old, 1/8 of the new), once per round
//! trip.
//!
//! Rulings: a round trip is an srtt, where the module compares sequence numbers. A queue that takes no
//! further segment is waited for; the module has no such limit. A subflow without a round-trip sample isn't
//! in a plan; without any sample `minrtt` decides, as there. Reinjected data follows the connection's rule;
//! there it takes the plan's next place. The module's opportunistic retransmission takes the first chunk that
//! a subflow with room hasn't sent: `paper` is nearest.
//!
//! The module's unit is a quarter of `quantum`: milliseconds by its comments. But it takes the srtt of Linux
//! 3.15 and later, which is in microseconds, for milliseconds. With that unit, `quantum=0.004`, a plan holds
//! windows and delays of one moment for minutes, and where the lcm exceeds a 32-bit integer there is no plan,
//! and `minrtt` decides until there is one.

use super::{CaState, ENTRY};
use crate::metrics::SubflowMetrics;
use crate::scheduler::minrtt::send_on;
use crate::scheduler::text::{Subflow, no_room, nothing_to_send};
use crate::scheduler::{Decision, Event, Rationale, Scheduler, View};
use crate::{MAX_SUBFLOWS, Span, SubflowId, Time};

/// One path's part of the plan, and its progress.
#[derive(Clone, Copy, Debug, Default)]
struct Leg {
    subflow: SubflowId,
    /// D_i, in the module's unit.
    delay: u64,
    /// C_i.
    capacity: u64,
    /// The current slot, from 1, and how many of its packets were assigned.
    slot: u64,
    assigned: u64,
}

impl Leg {
    /// When the current slot has its turn.
    fn turn(&self) -> u64 {
        self.slot * self.delay
    }
}

/// Paths are in order of their srtt.
#[derive(Debug, Default)]
struct Plan {
    /// lcm(D); 0 if it exceeds what the module's integer holds.
    span: u64,
    legs: [Leg; MAX_SUBFLOWS],
    len: usize,
}

/// A smoothed congestion window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// In eighths of a segment; 0: none yet.
    eighths: u64,
    /// When the next sample is due.
    due: Time,
}

#[derive(Debug)]
pub(super) struct DapsLinux {
    quantum: Span,
    horizon: Span,
    plan: Plan,
    windows: [Window; MAX_SUBFLOWS],
}

/// D_i is rounded to a multiple of this many of the module's units (`round_delay`).
const ROUND: u64 = 4;

/// The module's least common multiple, with its overflow.
fn lcm(a: i32, b: i32) -> i32 {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor.wrapping_rem(rest));
    }
    a.wrapping_mul(b).wrapping_div(divisor)
}

/// Whether the plan may name a subflow: eligible, and not in RTO recovery. Its window may be full.
fn takes_part(view: &View<'_>, subflow: &SubflowMetrics) -> bool {
    view.eligible(subflow) && subflow.ca_state() != CaState::Loss
}

impl Plan {
    fn make(&mut self, view: &View<'_>, windows: &[Window; MAX_SUBFLOWS], quantum: Span, horizon: Span) {
        self.len = 0;
        let measured =
            |subflow: &&SubflowMetrics| takes_part(view, subflow) && subflow.rtt.smoothed > Span::ZERO;
        let (mut span, mut longest) = (1, 1);
        for (subflow, leg) in view.subflows.iter().filter(measured).zip(&mut self.legs) {
            let delay = ROUND * ((subflow.rtt.smoothed / 2 + quantum / 2) / quantum).max(1);
            let eighths = windows.get(subflow.id.index()).map_or(0, |window| window.eighths);
            *leg = Leg { subflow: subflow.id, delay, capacity: (eighths / 8).max(1), slot: 1, assigned: 0 };
            self.len += 1;
            longest = longest.max(delay);
            span = lcm(span, delay as i32);
        }
        self.span = u64::try_from(span).unwrap_or(0).min((ROUND * horizon / quantum).max(longest));
        let srtt =
            |leg: &Leg| view.subflows.get(leg.subflow.index()).map_or(Span::ZERO, |path| path.rtt.smoothed);
        self.legs[..self.len].sort_unstable_by_key(|leg| (srtt(leg), leg.subflow));
    }

    /// The leg whose turn it is; none once the plan is through.
    fn next(&mut self, view: &View<'_>) -> Option<usize> {
        let legs = &mut self.legs[..self.len];
        let open = legs.iter().enumerate().filter(|(_, leg)| {
            let subflow = view.subflows.get(leg.subflow.index());
            leg.turn() <= self.span && subflow.is_some_and(|subflow| takes_part(view, subflow))
        });
        let (turn, next) = open.map(|(index, leg)| (leg.turn(), index)).min()?;
        for (index, leg) in legs.iter_mut().enumerate() {
            let passed = if index < next { turn } else { turn - 1 } / leg.delay;
            if leg.slot <= passed {
                (leg.slot, leg.assigned) = (passed + 1, 0);
            }
        }
        Some(next)
    }

    /// Records that a packet was assigned to a leg.
    fn advance(&mut self, index: usize) {
        let leg = &mut self.legs[index];
        leg.assigned += 1;
        if leg.assigned == leg.capacity {
            (leg.slot, leg.assigned) = (leg.slot + 1, 0);
        }
    }
}

impl DapsLinux {
    pub(super) fn new(quantum: Span, horizon: Span) -> Self {
        DapsLinux { quantum, horizon, plan: Plan::default(), windows: [Window::default(); MAX_SUBFLOWS] }
    }

    /// Samples the congestion windows.
    fn observe(&mut self, view: &View<'_>) {
        for (subflow, window) in view.subflows.iter().zip(&mut self.windows) {
            if !takes_part(view, subflow) || view.now < window.due {
                continue;
            }
            let sample = u64::from(subflow.cwnd());
            window.eighths = match window.eighths {
                0 => sample * 8,
                old => (old - old / 8 + sample).max(1),
            };
            window.due = view.now + subflow.rtt.smoothed;
        }
    }
}

impl Scheduler for DapsLinux {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        self.observe(view);
        let mut next = self.plan.next(view);
        if next.is_none() {
            self.plan.make(view, &self.windows, self.quantum, self.horizon);
            next = self.plan.next(view);
        }
        let Some(index) = next else {
            return match view.fastest_available() {
                Some(fastest) => send_on(fastest, rationale),
                None => no_room(view, rationale),
            };
        };
        let leg = self.plan.legs[index];
        let subflow = &view.subflows[leg.subflow.index()];
        if subflow.queue_space < u64::from(subflow.mss) {
            return no_room(view, rationale);
        }
        self.plan.advance(index);
        rationale.say(|| {
            let (id, packet, queued) = (Subflow(leg.subflow), leg.assigned + 1, subflow.queued_segments());
            format!("{id}: packet {packet} of {} of slot {}, behind {queued} queued", leg.capacity, leg.slot)
        });
        Decision::Queue { subflow: leg.subflow, bytes: subflow.mss }
    }

    fn on_event(&mut self, _view: &View<'_>, event: Event) {
        if let Event::SubflowAdded(id) = event
            && let Some(window) = self.windows.get_mut(id.index())
        {
            *window = Window::default();
        }
    }

    fn queues_ahead(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MILLISECOND;
    use crate::scheduler::testing::{MSS, Model, Pipe, Scene, build, run, subflow, unmeasured};
    use crate::testing::WithoutSender as _;

    /// The subflows of the next packets.
    fn order(scene: &Scene, scheduler: &mut dyn Scheduler, packets: usize) -> Vec<u8> {
        (0..packets).filter_map(|_| scene.chosen(scheduler)).collect()
    }

    /// `times` times `id`.
    fn times(times: usize, id: u8) -> Vec<u8> {
        vec![id; times]
    }

    #[test]
    fn the_worked_example_ten_to_one() {
        let scene = Scene::new(vec![subflow(0, 240, 1, 0), subflow(1, 24, 1, 0)]);
        let plan = [times(10, 1), times(1, 0)].concat();
        assert_eq!(order(&scene, &mut *build("daps:linux"), 22), [plan.clone(), plan].concat());
    }

    #[test]
    fn slots_of_a_window_in_order_of_their_turns() {
        // D = 8 and 12 ms, lcm 24: turns at 8, 12, 16 and 24, where the faster is first.
        let scene = Scene::new(vec![subflow(0, 16, 2, 0), subflow(1, 24, 3, 0)]);
        let expected = [times(2, 0), times(3, 1), times(4, 0), times(3, 1), times(2, 0)].concat();
        assert_eq!(order(&scene, &mut *build("daps:linux"), 14), expected);
    }

    #[test]
    fn a_packet_counts_as_one_however_short_it_is() {
        let mut scene = Scene::new(vec![subflow(0, 24, 1, 0), subflow(1, 72, 1, 0)]);
        let (packets, segments) = (&mut *build("daps:linux"), &mut *build("daps"));
        let mut chosen = (Vec::new(), Vec::new());
        for packet in 0..8 {
            (scene.next_offset, scene.unsent) = (packet * 100, 100);
            scene.now = Time::ZERO + packet * 12 * MILLISECOND;
            chosen.0.extend(scene.chosen(packets));
            chosen.1.extend(scene.chosen(segments));
        }
        assert_eq!(chosen.0, [0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(chosen.1, times(8, 0), "made again for each");
    }

    #[test]
    fn a_full_window_is_queued_for_and_a_full_queue_waited_for() {
        let daps = &mut *build("daps:linux");
        let mut scene = Scene::new(vec![subflow(0, 24, 1, 0), subflow(1, 24, 1, 1)]);
        assert_eq!(scene.chosen(daps), Some(0));
        assert_eq!(scene.ask(daps), Decision::Queue { subflow: SubflowId(1), bytes: MSS });
        scene.subflows[0].queue_space = 999;
        assert_eq!(scene.ask(daps), Decision::Wait { until: None });
        scene.subflows[0].queue_space = 1000;
        assert_eq!(order(&scene, daps, 2), [0, 1], "its turn stays");
    }

    #[test]
    fn a_plan_is_followed_to_its_end_whatever_windows_and_delays_become() {
        let daps = &mut *build("daps:linux");
        let scene = Scene::new(vec![subflow(0, 24, 1, 0), subflow(1, 72, 1, 0)]);
        assert_eq!(scene.chosen(daps), Some(0));
        let changed = Scene::new(vec![subflow(0, 720, 5, 0), subflow(1, 24, 5, 0), subflow(2, 24, 5, 0)]);
        assert_eq!(order(&changed, daps, 3), [0, 0, 1]);
        assert_eq!(order(&changed, daps, 1), [1], "the next one is made from what is");
    }

    #[test]
    fn the_slots_of_a_subflow_in_recovery_pass_by() {
        let daps = &mut *build("daps:linux");
        let mut scene = Scene::new(vec![subflow(0, 24, 2, 0), subflow(1, 72, 2, 0)]);
        assert_eq!(order(&scene, daps, 1), [0]);
        scene.subflows[0].set_ca_state(CaState::Loss);
        assert_eq!(order(&scene, daps, 1), [1], "slots 1 to 3 of subflow 0 are gone");
        scene.subflows[0].set_ca_state(CaState::Open);
        assert_eq!(order(&scene, daps, 1), [1]);
        assert_eq!(order(&scene, daps, 6), times(6, 0), "through: a new plan");
        scene.subflows[1].set_ca_state(CaState::Loss);
        assert_eq!(order(&scene, daps, 4), times(4, 0), "for the other alone");
        scene.subflows[0].set_ca_state(CaState::Loss);
        assert_eq!(scene.ask(daps), Decision::Wait { until: None });
    }

    #[test]
    fn without_samples_as_minrtt() {
        let daps = &mut *build("daps:linux");
        let mut scene = Scene::new(vec![unmeasured(0, 10, 10), unmeasured(1, 10, 9)]);
        assert_eq!(scene.ask(daps), Decision::Send { subflow: SubflowId(1), bytes: MSS });
        scene.subflows[1].set_packets_out(10);
        assert_eq!(scene.ask(daps), Decision::Wait { until: None });
        scene.subflows[0] = subflow(0, 24, 10, 10);
        assert_eq!(order(&scene, daps, 20), times(20, 0), "only measured ones are in a plan");
    }

    #[test]
    fn windows_are_smoothed_once_per_round_trip() {
        let mut daps = DapsLinux::new(4 * MILLISECOND, 1000 * MILLISECOND);
        let mut scene = Scene::new(vec![subflow(0, 24, 10, 0), subflow(1, 48, 1, 0)]);
        daps.observe(&scene.view());
        assert_eq!(daps.windows[0].eighths, 80);
        scene.subflows[0].set_cwnd(2);
        scene.now = Time::ZERO + 24 * MILLISECOND - Span::from_nanos(1);
        daps.observe(&scene.view());
        assert_eq!(daps.windows[0].eighths, 80);
        scene.now += Span::from_nanos(1);
        daps.observe(&scene.view());
        assert_eq!((daps.windows[0].eighths, daps.windows[1].eighths), (72, 8));
        assert_eq!(order(&scene, &mut daps, 19), [times(18, 0), times(1, 1)].concat());
        daps.on_event(&scene.view(), Event::SubflowAdded(SubflowId(0)));
        daps.observe(&scene.view());
        assert_eq!(daps.windows[0].eighths, 16);
    }

    #[test]
    fn the_horizon_bounds_the_plan() {
        let scene = Scene::new(vec![subflow(0, 24, 1, 0), subflow(1, 56, 1, 0)]);
        // D = 12 and 28 ms, lcm 84.
        let slots = |text, packets| order(&scene, &mut *build(text), packets);
        assert_eq!(slots("daps:linux", 10), [0, 0, 1, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(slots("daps:linux(horizon=28)", 6), [0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn no_plan_where_the_lcm_overflows() {
        assert_eq!((lcm(12, 20), lcm(25_000, 65_000)), (60, 325_000));
        assert!(lcm(30_000, 80_000) < 0, "30,000 times 80,000 exceeds 31 bits");
        let daps = &mut *build("daps:linux(quantum=0.004)");
        let mut scene = Scene::new(vec![subflow(0, 60, 10, 0), subflow(1, 160, 10, 0)]);
        assert_eq!(scene.ask(daps), Decision::Send { subflow: SubflowId(0), bytes: MSS }, "as minrtt");
        scene.subflows[1] = subflow(1, 130, 10, 0);
        assert_eq!(scene.ask(daps), Decision::Queue { subflow: SubflowId(0), bytes: MSS });
    }

    #[test]
    fn unlike_daps_it_uses_the_slow_path_for_short_packets() {
        let pipes = [Pipe::new(24, 1), Pipe::new(240, 1)];
        assert_eq!(run("daps:linux", &pipes, 22).segments_on(1, 1), [11, 22]);
        let on_slow = |text| {
            let mut model = Model::new(&pipes, 0);
            for packet in 0..22 {
                model.write_at(Time::ZERO + packet * 300 * MILLISECOND, 100);
            }
            model.run(&mut *build(text)).bytes_on(1)
        };
        assert_eq!(on_slow("daps:linux"), 200, "the eleventh and the last");
        assert_eq!(on_slow("daps"), 0);
    }
}
