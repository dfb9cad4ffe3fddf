//! `linux`: the `default` scheduler of the mainline Linux kernel.
//!
//! Source: net/mptcp/protocol.c, `mptcp_subflow_get_send` and `__subflow_push_pending`, as of Linux 6.18 (the
//! comment there calls it derived from BLEST).
//!
//! Rule: per active subflow, linger = wmem / avg_pace (s): the memory that its socket holds, sent and
//! unacknowledged or still queued (`sk_wmem_queued`, bytes), over the average of its pacing rate (bytes/s).
//! The least is chosen, and only that one is tried: if its send buffer is full (`sk_stream_memory_free`),
//! wait. With burst = min(65,428 bytes, window left),
//!
//! ```text
//! avg_pace = (avg_pace wmem + pace burst) / (wmem + burst)
//! ```
//!
//! and data is handed to it, beyond its cwnd if need be, piece by piece (`__subflow_push_pending`: a piece is
//! what one page fragment holds, 32,728 bytes) until the burst is used up, its send buffer is full or nothing
//! is left; both are asked between pieces only. A backup subflow is chosen, by the same measure, only if no
//! other is active. Nothing is remembered of a burst that ended for want of data: the next data is decided on
//! anew. (Kernels of the 5.x series came back to the last subflow while its burst lasted.)
//!
//! Rulings: wmem counts what the kernel counts, with the overhead of its buffers estimated
//! ([`SubflowMetrics::send_memory`]). The buffer's size is the kernel's too: twice the window, each segment
//! counted as 4,352 bytes, and it grows when the kernel's would (`tcp_check_space`). As in the kernel, a
//! subflow without a pacing rate isn't considered, the average starts at the first pacing rate seen, and it
//! moves by the whole burst even where less is unsent or the buffer takes less. Its connection-level
//! retransmission timer, and setting subflows aside as stale, are the engine's. Mainline has neither
//! opportunistic retransmission nor penalisation.
//!
//! A slow subflow's share comes in bursts: each time the fast one holds more time's worth than the slow one,
//! the slow one is handed what the peer's window has room for, 64 KB at most, which over 2 Mbit/s take 260
//! ms. How wide the window is open at that moment decides most: the kernel's opens by twice what arrives, so
//! that while the sender is ahead of it a burst is 4 KB; where it is open wide, because the application's
//! writes were what limited, a burst is whole. The kernel's own transfers over fast-slow show both.
//!
//! Parameters: `burst` (65428 bytes; 1 to 1000000000). `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::text::{Kib, Ms, Subflow, no_room, nothing_to_send};
use super::{Decision, Event, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Exception, Kernel, Parameter};
use crate::{MAX_SUBFLOWS, Span, SubflowId};

/// The kernel's MPTCP_SEND_BURST_SIZE: 64 KiB less room for headers.
const BURST: f64 = 65_428.0;

/// What one page fragment holds of the application's data: 32 KiB less its descriptor.
const PIECE: u64 = 32_728;

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "linux",
    summary: "mainline Linux: least time to flush what is queued, in bursts",
    source: "Linux, net/mptcp/protocol.c, mptcp_subflow_get_send",
    parameters: &[
        Parameter::whole("burst", BURST, (1.0, 1e9), "bytes per decision at most"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    exceptions: &[
        Exception { rule: "cwnd", reason: "fills send buffers beyond cwnd (mptcp_subflow_get_send)" },
        Exception { rule: "single-path", reason: "places bursts of 65,428 bytes, not single segments" },
    ],
    kernels: &[Kernel::Linux.has().called("default").by_default()],
    ..Entry::of(|values| {
        let burst = values.number("burst") as u64;
        with_mechanisms(values, Linux { burst, average: [0; MAX_SUBFLOWS] })
    })
};

#[derive(Debug)]
struct Linux {
    burst: u64,
    /// Per subflow: `avg_pacing_rate`, bytes per second; 0: none yet.
    average: [u64; MAX_SUBFLOWS],
}

/// The weighted mean of the average so far and the pacing rate now.
#[inline]
fn averaged(average: u64, wmem: u64, pace: u64, burst: u64) -> u64 {
    let weight = (wmem + burst).max(1);
    match average.checked_mul(wmem).zip(pace.checked_mul(burst)).and_then(|(old, new)| old.checked_add(new)) {
        Some(sum) => sum / weight,
        None => {
            let sum = u128::from(average) * u128::from(wmem) + u128::from(pace) * u128::from(burst);
            u64::try_from(sum / u128::from(weight)).unwrap_or(u64::MAX)
        }
    }
}

impl Linux {
    /// 2^32 times the seconds until the subflow has flushed what it holds.
    #[inline]
    fn linger(&mut self, subflow: &SubflowMetrics) -> Option<u64> {
        let average = self.average.get_mut(subflow.id.index())?;
        if *average == 0 {
            *average = subflow.rate.pacing;
        }
        // The kernel's fixed point, so that two subflows tie where they do in the kernel.
        (subflow.send_memory().min(u64::from(u32::MAX)) << 32).checked_div(*average)
    }
}

impl Scheduler for Linux {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        let mut best: Option<(&SubflowMetrics, u64)> = None;
        for subflow in view.usable() {
            // Of two equal subflows the kernel keeps the first of its list: hence `<`.
            if let Some(linger) = self.linger(subflow)
                && best.is_none_or(|(_, least)| linger < least)
            {
                best = Some((subflow, linger));
            }
        }
        let Some((subflow, linger)) = best else {
            return no_room(view, rationale);
        };
        let wmem = subflow.send_memory();
        let linger = || Ms(Span::from_nanos(((u128::from(linger) * 1_000_000_000) >> 32) as u64));
        if subflow.queue_space == 0 {
            rationale.say(|| {
                let id = Subflow(subflow.id);
                format!("{id} flushes its {} first, in {}, and its send buffer is full", Kib(wmem), linger())
            });
            return Decision::Wait { until: None };
        }
        // The average moves before anything is sent, and by the whole burst, as in `mptcp_subflow_get_send`.
        let burst = self.burst.min(view.room());
        let average = &mut self.average[subflow.id.index()];
        *average = averaged(*average, wmem, subflow.rate.pacing, burst);
        rationale.say(|| {
            let id = Subflow(subflow.id);
            format!("{id} flushes its {} first, in {}: a burst of {}", Kib(wmem), linger(), Kib(burst))
        });
        // A piece that is begun is handed over whole.
        let pieces = burst.min(subflow.queue_space).div_ceil(PIECE);
        let bytes = (pieces * PIECE).min(view.room()).min(u64::from(u32::MAX)) as u32;
        Decision::Queue { subflow: subflow.id, bytes }
    }

    fn on_event(&mut self, _view: &View<'_>, event: Event) {
        if let Event::SubflowAdded(SubflowId(index)) | Event::SubflowRemoved(SubflowId(index)) = event
            && let Some(average) = self.average.get_mut(usize::from(index))
        {
            // Ids are used again: the next subflow's path has nothing to do with this one's.
            *average = 0;
        }
    }

    fn queues_ahead(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow};
    use super::*;
    use crate::testing::WithoutSender as _;

    /// Two subflows of 1 and 4 MB/s with `in_flight` segments of 1000 bytes each.
    fn scene(in_flight: [u32; 2]) -> Scene {
        let mut scene = Scene::new(vec![subflow(0, 10, 10, in_flight[0]), subflow(1, 10, 10, in_flight[1])]);
        scene.subflows[0].rate.pacing = 1_000_000;
        scene.subflows[1].rate.pacing = 4_000_000;
        scene
    }

    #[test]
    fn the_average_weighs_what_is_queued_against_the_burst() {
        // (1 MB/s 10 kB + 2 MB/s 30 kB) / 40 kB = 1.75 MB/s
        assert_eq!(averaged(1_000_000, 10_000, 2_000_000, 30_000), 1_750_000);
        assert_eq!(averaged(1_000_000, 0, 2_000_000, 65_428), 2_000_000);
        assert_eq!(averaged(1_000_000, 10_000, 2_000_000, 0), 1_000_000);
        assert_eq!(averaged(u64::MAX, 1 << 40, u64::MAX, 1 << 40), u64::MAX, "in 128 bits where 64 overflow");
        assert_eq!(averaged(1, 0, 1, 0), 0, "no division by nothing");
    }

    #[test]
    fn least_linger_time_and_a_tie_to_the_lower_id() {
        // 2 kB in one buffer, 3280 bytes at 1 MB/s: 3.3 ms; 9 kB in three, 12,840 at 4 MB/s: 3.2 ms; 10 kB in
        // four, 15,120: 3.8 ms.
        assert_eq!(scene([2, 9]).chosen(&mut *build("linux")), Some(1));
        assert_eq!(scene([2, 10]).chosen(&mut *build("linux")), Some(0));
        assert_eq!(scene([0, 0]).chosen(&mut *build("linux")), Some(0));
        let mut queued = scene([2, 7]);
        queued.subflows[1].queued_bytes = 2000;
        assert_eq!(queued.chosen(&mut *build("linux")), Some(0), "what is queued counts like what is sent");
    }

    #[test]
    fn the_reason_has_the_linger_time() {
        let mut scene = scene([3, 8]);
        let reason = "{subflow 1} flushes its 11.6 KiB first, in 3.0 ms: a burst of 63.9 KiB";
        assert_eq!(scene.reason(&mut *build("linux")), reason);
        scene.subflows[1].queue_space = 0;
        let reason = "{subflow 1} flushes its 11.6 KiB first, in 3.0 ms, and its send buffer is full";
        assert_eq!(scene.reason(&mut *build("linux")), reason);
    }

    #[test]
    fn the_average_of_earlier_bursts_decides() {
        let linux = &mut *build("linux");
        let mut scene = scene([2, 7]);
        scene.send_window = 7000;
        assert_eq!(scene.chosen(linux), Some(1), "the average stays 4 MB/s");
        scene.subflows[1].rate.pacing = 1_000_000;
        assert_eq!(scene.chosen(linux), Some(1), "and is now (4 12.1 + 1 7) / 19.1 = 2.9 MB/s: 4.2 ms");
        assert_eq!(scene.chosen(linux), Some(0));
        scene.subflows[0].set_packets_out(3);
        assert_eq!(scene.chosen(linux), Some(1), "4.2 ms is less than 5.6");
    }

    #[test]
    fn a_burst_within_the_window_and_the_buffer() {
        let burst = |scene: &Scene| match scene.ask(&mut *build("linux")) {
            Decision::Queue { subflow, bytes } => (subflow.0, bytes),
            other => panic!("{other:?}"),
        };
        let mut scene = scene([0, 0]);
        assert_eq!(burst(&scene), (0, 2 * 32_728), "65,428 bytes end within the second piece");
        scene.subflows[0].queue_space = 32_729;
        assert_eq!(burst(&scene), (0, 2 * 32_728));
        scene.subflows[0].queue_space = 32_728;
        assert_eq!(burst(&scene), (0, 32_728), "full after one piece");
        scene.subflows[0].queue_space = 1;
        assert_eq!(burst(&scene), (0, 32_728), "a piece that is begun is handed over whole");
        scene.send_window = 400;
        assert_eq!(burst(&scene), (0, 400));
    }

    #[test]
    fn only_the_chosen_one_is_tried() {
        let mut scene = scene([0, 1]);
        scene.subflows[0].queue_space = 0;
        assert_eq!(scene.ask(&mut *build("linux")), Decision::Wait { until: None });
    }

    #[test]
    fn without_a_pacing_rate_not_considered() {
        let mut scene = scene([0, 1]);
        scene.subflows[0].rate.pacing = 0;
        let linux = &mut *build("linux");
        assert_eq!(scene.chosen(linux), Some(1));
        scene.subflows[0].rate.pacing = 1;
        assert_eq!(scene.chosen(linux), Some(0));
    }

    #[test]
    fn a_slot_used_again_starts_anew() {
        let linux = &mut *build("linux");
        let mut scene = scene([1, 7]);
        scene.subflows[0].rate.pacing = 1;
        assert_eq!(scene.chosen(linux), Some(1));
        scene.subflows[0].rate.pacing = 1_000_000;
        assert_eq!(scene.chosen(linux), Some(1), "the average is slow to rise");
        linux.on_event(&scene.view(), Event::SubflowAdded(SubflowId(0)));
        assert_eq!(scene.chosen(linux), Some(0));
    }

    #[test]
    fn unlike_minrtt_it_fills_the_buffer_of_the_fast_path_first() {
        let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
        let (linux, minrtt) = (run("linux", &pipes, 65), run("minrtt", &pipes, 65));
        assert_eq!(linux.bytes_on(1), 0, "one burst, all of it queued on the first");
        assert!(minrtt.bytes_on(1) > 0);
    }
}
