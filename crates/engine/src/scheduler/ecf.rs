//! `ecf`: earliest completion first. Waits for the fast subflow if it would still finish first.
//!
//! Source: Lim, Nahum, Towsley, Gibbens, ECF: An MPTCP Path Scheduler to Manage Heterogeneous Paths,
//! CoNEXT 2017, Algorithm 1; cfs-2019 3 describes it without the formula.
//!
//! Rule, with RTT the smoothed round-trip times (ns), CWND in segments, k the unsent data of the connection
//! (segments), sigma the RTT deviations (ns): f is the usable subflow with the least srtt. If it has room,
//! it takes the segment. Else s is `minrtt`'s choice among those with room, delta = max(sigma_f, sigma_s),
//! n = 1 + k/CWND_f, and
//!
//! ```text
//! if n RTT_f < (1 + waiting beta)(RTT_s + delta):
//!     if k/CWND_s RTT_s >= 2 RTT_f + delta: waiting = 1, wait for f
//!     else: send on s
//! else: waiting = 0, send on s
//! ```
//!
//! Rulings: the divisions are real ones; k in segments of f's MSS. f is of all usable subflows, RTO recovery
//! included. A wait asks again after RTT_f at the latest: f has been heard from by then, or lost something.
//! beta's hysteresis (0.25) is Lim et al.'s.
//!
//! Where it loses by its rule: near the end of the data the second inequality no longer holds, and s is given
//! all that is left in one go, up to a window, however full its path is. Over 5g-2019-shared (both paths
//! through one 5 Mbit/s queue, which f keeps full) that burst falls off the queue's end. Nothing is sent on s
//! after it whose SACK would tell; the tail loss probe is answered sooner than the least round-trip time
//! known, for the handshake's sample had stood in the queue, so that RACK may not count it (RFC 8985 6.2 step
//! 2; Linux alike); and so it is the timeout that repairs the end: 1.35 s for 300 kB where `minrtt`, which
//! loses on s in mid-transfer, takes 0.57 s. Sizes from 300 to 340 kB end like that; at 400 kB the probe
//! counts, and it takes RACK and PRR three round trips more (1.04 s against 0.72 s); up to 290 kB the two are
//! level.
//!
//! Parameters: `beta` (0.25; 0 to 4). `at-least-one` (false): k/CWND counts as 1 at least, which for short
//! flows keeps ECF waiting. `arithmetic` (`paper`, `linux`, `linux-64-bits` or `linux-payload`; default
//! `paper`, preset `linux`: `linux`): that of the out-of-tree Linux module as written (memory for payload, 32
//! bits), without overflow, or with payload as well; see [`linux`]. `segment-memory` (2304 bytes; 1 to
//! 65536): what a segment takes in that kernel's buffers. `opportunistic` and `penalise` (default `off`;
//! preset `linux`: `linux`).

mod linux;

use super::mechanisms::{LINUX, OFF, opportunistic, penalise, with_mechanisms};
use super::minrtt::minrtt_or_wait;
use super::text::{Kib, Ms, Subflow};
use super::{Decision, Rationale, Scheduler, View};
use crate::Span;
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Exception, Kernel, Parameter, Preset};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "ecf",
    summary: "wait for the fast subflow if it would still finish first",
    source: "Lim et al., CoNEXT 2017, Algorithm 1; cfs-2019 3",
    parameters: &[
        Parameter::number("beta", 0.25, (0.0, 4.0), "hysteresis: how much longer to go on waiting, a share"),
        Parameter::switch("at-least-one", false, "count the unsent data as one window at least"),
        Parameter::choice(
            "arithmetic",
            0,
            &["paper", "linux", "linux-64-bits", "linux-payload"],
            "whose: the kernel's as written, in 64 bits, or with payload for memory as well",
        ),
        Parameter::whole(
            "segment-memory",
            2304.0,
            (1.0, 65_536.0),
            "memory of a segment in the kernel's buffers, bytes",
        ),
        opportunistic(OFF),
        penalise(OFF),
    ],
    presets: &[Preset {
        name: "linux",
        summary: "the out-of-tree kernel's arithmetic; retransmission and penalisation stay on",
        values: &[("arithmetic", 1.0), ("opportunistic", LINUX), ("penalise", LINUX)],
    }],
    exceptions: &[Exception {
        rule: "even-split",
        reason: "preset `linux`: products of 32 bits overflow, so that remainders are compared (mptcp_ecf.c)",
    }],
    kernels: &[Kernel::MultipathTcp.has().since("0.96")],
    ..Entry::of(|values| {
        let least = if values.switch("at-least-one") { 1.0 } else { 0.0 };
        let arithmetic = values.number("arithmetic") as u32;
        if arithmetic > 0 {
            let memory = values.number("segment-memory") as u32;
            let memory = if arithmetic == 3 { None } else { Some(memory) };
            let ecf = linux::EcfLinux::new(values.number("beta"), arithmetic > 1, memory);
            return with_mechanisms(values, ecf);
        }
        with_mechanisms(values, Ecf { beta: values.number("beta"), least, waiting: false })
    })
};

#[derive(Debug)]
struct Ecf {
    beta: f64,
    /// The least that k/CWND counts as.
    least: f64,
    waiting: bool,
}

impl Scheduler for Ecf {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        minrtt_or_wait(view, rationale, |fast, slow, rationale| self.weigh(view, fast, slow, rationale))
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("waiting", f64::from(u8::from(self.waiting)))]
    }
}

impl Ecf {
    fn weigh(
        &mut self,
        view: &View<'_>,
        fast: &SubflowMetrics,
        slow: &SubflowMetrics,
        rationale: &mut Rationale,
    ) -> Decision {
        let windows = |subflow: &SubflowMetrics| {
            let window = f64::from(subflow.cwnd().max(1)) * f64::from(fast.mss.max(1));
            (view.unsent as f64 / window).max(self.least)
        };
        let rtt_f = fast.rtt.smoothed.as_nanos() as f64;
        let rtt_s = slow.rtt.smoothed.as_nanos() as f64;
        let delta = fast.rtt.var.max(slow.rtt.var).as_nanos() as f64;
        let fast_time = (1.0 + windows(fast)) * rtt_f;
        let hysteresis = if self.waiting { 1.0 + self.beta } else { 1.0 };
        let slow_time = hysteresis * (rtt_s + delta);
        if fast_time >= slow_time {
            self.waiting = false;
            rationale.say(|| {
                format!(
                    "{} as well: for {} {} alone takes {}, no less than {}",
                    Subflow(slow.id),
                    Kib(view.unsent),
                    Subflow(fast.id),
                    Ms(Span::from_nanos(fast_time as u64)),
                    Ms(Span::from_nanos(slow_time as u64)),
                )
            });
            return Decision::Send { subflow: slow.id, bytes: slow.mss };
        }
        let drain = windows(slow) * rtt_s;
        if drain < 2.0 * rtt_f + delta {
            rationale.say(|| {
                format!(
                    "{}: what is left takes it {}, less than the {} that waiting for {} may cost",
                    Subflow(slow.id),
                    Ms(Span::from_nanos(drain as u64)),
                    Ms(Span::from_nanos((2.0 * rtt_f + delta) as u64)),
                    Subflow(fast.id),
                )
            });
            // Algorithm 1 leaves `waiting` as it was on this branch.
            return Decision::Send { subflow: slow.id, bytes: slow.mss };
        }
        self.waiting = true;
        rationale.say(|| {
            format!(
                "wait for {}: it finishes {} in {}, {} needs {}",
                Subflow(fast.id),
                Kib(view.unsent),
                Ms(Span::from_nanos(fast_time as u64)),
                Subflow(slow.id),
                Ms(Span::from_nanos(slow_time as u64)),
            )
        });
        Decision::Wait { until: Some(view.now.saturating_add(fast.rtt.smoothed.max(Span::from_nanos(1)))) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MSS, Pipe, Scene, build, run, subflow};
    use super::*;
    use crate::testing::WithoutSender as _;
    use crate::{MILLISECOND, Time};

    /// f: 10 ms, cwnd 10, full; s: 50 ms, cwnd 20, free; sigma 5 and 2 ms, so that delta = 5 ms; k segments.
    fn scene(k: u64) -> Scene {
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 50, 20, 0)]);
        scene.subflows[0].rtt.var = 5 * MILLISECOND;
        scene.subflows[1].rtt.var = 2 * MILLISECOND;
        scene.unsent = k * u64::from(MSS);
        scene
    }

    const WAITS: Option<u8> = None;

    #[test]
    fn both_sides_of_the_first_inequality() {
        // (1 + k/10) 10 < 50 + 5 up to k = 44; at 45 both are 55.
        assert_eq!(scene(44).chosen(&mut *build("ecf")), WAITS);
        assert_eq!(scene(45).chosen(&mut *build("ecf")), Some(1));
    }

    #[test]
    fn both_sides_of_the_second_inequality() {
        // k/20 50 >= 2 10 + 5 from k = 10 on.
        assert_eq!(scene(9).chosen(&mut *build("ecf")), Some(1));
        assert_eq!(scene(10).chosen(&mut *build("ecf")), WAITS);
    }

    #[test]
    fn having_waited_it_goes_on_waiting_by_beta() {
        // 1.25 55 = 68.75 = (1 + k/10) 10 at k = 58.75.
        let ecf = &mut *build("ecf");
        assert_eq!(ecf.metrics(), [("waiting", 0.0)]);
        assert_eq!(scene(44).chosen(ecf), WAITS);
        assert_eq!(ecf.metrics(), [("waiting", 1.0)]);
        assert_eq!(scene(58).chosen(ecf), WAITS);
        assert_eq!(scene(59).chosen(ecf), Some(1), "and this ends the waiting");
        assert_eq!(scene(58).chosen(ecf), Some(1));
        assert_eq!(scene(58).chosen(&mut *build("ecf(beta=4)")), Some(1), "beta counts only when waiting");
        let ecf = &mut *build("ecf(beta=0)");
        assert_eq!(scene(44).chosen(ecf), WAITS);
        assert_eq!(scene(45).chosen(ecf), Some(1));
    }

    #[test]
    fn the_greater_deviation_counts_whosever_it_is() {
        let mut scene = scene(44);
        scene.subflows[1].rtt.var = 5 * MILLISECOND;
        scene.subflows[0].rtt.var = Span::ZERO;
        assert_eq!(scene.chosen(&mut *build("ecf")), WAITS);
        scene.subflows[1].rtt.var = Span::ZERO;
        assert_eq!(scene.chosen(&mut *build("ecf")), Some(1), "54 ms is no less than 50");
    }

    #[test]
    fn with_one_window_at_least_it_waits_for_short_flows_too() {
        assert_eq!(scene(1).chosen(&mut *build("ecf")), Some(1));
        // (1 + 1) 10 < 55, and 1 50 >= 25.
        for (k, chosen) in [(1, WAITS), (44, WAITS), (45, Some(1))] {
            assert_eq!(scene(k).chosen(&mut *build("ecf(at-least-one=true)")), chosen, "{k}");
        }
    }

    /// delta = 2 5 ms; x + 10 segments against 60 ms of them, each of the unsent counting its memory: 10 (x +
    /// 10,000) < 600,000 ms.
    #[test]
    fn preset_linux_counts_memory_and_overflows() {
        let chosen = |text: &str, k| {
            let mut scene = scene(k);
            scene.next_offset = 10 * u64::from(MSS);
            scene.chosen(&mut *build(text))
        };
        for (k, expected) in [(1, WAITS), (21, WAITS), (22, Some(1)), (182, Some(1)), (183, WAITS)] {
            // 183 segments of 2304 bytes and a window take 4.3e9 byte-microseconds: 2.1e7 beyond 2^32.
            assert_eq!(chosen("ecf:linux", k), expected, "{k}");
        }
        for (k, expected) in [(21, WAITS), (22, Some(1)), (183, Some(1))] {
            assert_eq!(chosen("ecf:linux(arithmetic=linux-64-bits)", k), expected, "{k}");
        }
        for (k, expected) in [(49, WAITS), (50, Some(1)), (183, Some(1))] {
            assert_eq!(chosen("ecf:linux(arithmetic=linux-payload)", k), expected, "{k}");
        }
        assert_eq!(chosen("ecf:linux(segment-memory=4352)", 11), WAITS);
        assert_eq!(chosen("ecf:linux(segment-memory=4352)", 12), Some(1));
    }

    #[test]
    fn a_fast_subflow_with_room_is_not_weighed() {
        let mut scene = scene(1000);
        scene.subflows[0].set_packets_out(9);
        assert_eq!(scene.chosen(&mut *build("ecf")), Some(0));
    }

    #[test]
    fn a_wait_ends_after_the_fast_rtt() {
        let mut scene = scene(44);
        scene.now = Time::from_nanos(7);
        assert_eq!(
            scene.ask(&mut *build("ecf")),
            Decision::Wait { until: Some(Time::ZERO + 10 * MILLISECOND + Span::from_nanos(7)) }
        );
    }

    #[test]
    fn large_numbers_do_not_overflow() {
        let mut scene = scene(0);
        scene.unsent = u64::MAX;
        scene.subflows[1].rtt.smoothed = Span::MAX;
        assert!(matches!(scene.ask(&mut *build("ecf")), Decision::Send { .. } | Decision::Wait { .. }));
        scene.subflows[0].rtt.smoothed = Span::MAX - Span::from_nanos(1);
        scene.now = Time::from_nanos(u64::MAX - 1);
        assert!(matches!(scene.ask(&mut *build("ecf")), Decision::Send { .. } | Decision::Wait { .. }));
    }

    #[test]
    fn unlike_minrtt_and_blest_it_leaves_the_last_window_to_the_fast_subflow() {
        // cfs-2019 Fig. 3's paths. With 20 packets left and 10 in flight on the fast one: n = 3, 30 < 105.
        let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
        let done = run("ecf", &pipes, 30);
        assert_eq!(done.completed, Some(Time::ZERO + 25 * MILLISECOND));
        assert_eq!(done.bytes_on(1), 0);
        for other in ["minrtt", "blest"] {
            assert_eq!(run(other, &pipes, 30).completed, Some(Time::ZERO + 50 * MILLISECOND), "{other}");
        }
    }
}
