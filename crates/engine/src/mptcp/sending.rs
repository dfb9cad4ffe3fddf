//! What sending stream data works with: the scheduler, the send side and the subflows' table to change, the
//! handshake and the connection's end to read. It can't reach what is received, keys, or addresses.
//!
//! - `assign.rs`: data is given to subflows, as the scheduler says.
//! - `mechanisms.rs`: opportunistic retransmission and penalisation.
//! - `retransmit.rs`: the connection-level timer.
//! - `send_buffer.rs`: how the send buffer grows.
//! - `peer_memory.rs`: how much of the peer's window is left unused.

use ropewalk_wire::Payload;

use super::closing::Closing;
use super::deadlines::{Deadline, Deadlines};
use super::event_queue::EventQueue;
use super::handshake::Handshake;
use super::scheduling::{Scheduling, view};
use super::send::SendSide;
use super::stats::Counting;
use super::subflow_table::SubflowTable;
use crate::Time;
use crate::config::ConnectionConfig;
use crate::scheduler::{self, View};
use crate::tcp::State;

/// See the module.
pub(super) struct Sending<'a, P> {
    pub config: &'a ConnectionConfig,
    pub handshake: &'a Handshake<P>,
    pub closing: &'a Closing,
    pub scheduling: &'a mut Scheduling,
    pub send: &'a mut SendSide<P>,
    pub subflows: &'a mut SubflowTable<P>,
    pub deadlines: &'a mut Deadlines,
    pub events: &'a mut EventQueue,
    pub stats: &'a mut Counting,
}

impl<P: Payload> Sending<'_, P> {
    /// Notifies the scheduler of an event.
    #[inline]
    pub fn notify(&mut self, now: Time, event: scheduler::Event) {
        if self.scheduling.wants_events() {
            self.notify_scheduler(now, event);
        }
    }

    /// The same, of one that concerns every scheduler.
    #[inline(never)]
    pub fn notify_scheduler(&mut self, now: Time, event: scheduler::Event) {
        let view = view!(self, now);
        self.scheduling.on_event(&view, event);
    }

    /// So many segments of a subflow were acknowledged, of which the scheduler wants to know.
    // Out of line, so that the others don't pay for it.
    #[inline(never)]
    pub fn notify_acknowledged(&mut self, now: Time, index: usize, segments: u32) {
        let metrics = self.subflows.metrics_mut(index);
        self.scheduling.sample_link_rate(now, metrics, segments);
        let subflow = metrics.id;
        self.notify(now, scheduler::Event::Acked { subflow, segments });
    }

    /// Whether what is unsent is held back: less than a segment of every subflow that may carry it.
    #[cold]
    pub fn is_held_back(&mut self, now: Time) -> bool {
        let Some(mss) = self.subflows.usable().map(|metrics| u64::from(metrics.mss)).min() else {
            return false;
        };
        if self.send.closed() || self.send.unsent() >= mss {
            return false;
        }
        let is_first = self.send.una() == self.send.assigned_end();
        let Some(until) = self.send.cork().holds_until(now, is_first) else { return false };
        if self.send.unsent() > 0 {
            // A cork's time counts from its first byte, the next write's from the last.
            match self.send.cork().is_holding() {
                true => self.deadlines.set_if_none(Deadline::Cork, until),
                false => self.deadlines.set(Deadline::Cork, until),
            }
        }
        true
    }

    /// Whether the peer has acknowledged all that was written, and the end of it.
    pub fn is_side_acknowledged(&self) -> bool {
        if self.handshake.is_multipath() {
            return self.send.fin_acked();
        }
        let state = self.subflows.iter().next().map(|subflow| subflow.tcp.state());
        self.send.closed() && matches!(state, Some(State::FinWait2 | State::TimeWait | State::Closed))
    }

    /// Tells the application once there is space enough.
    #[inline(never)]
    pub fn wake_writer(&mut self) {
        self.send.wake_writer(self.events);
    }

    /// Judges the peer's window by the smallest segments that any subflow sends. In plain TCP the subflow
    /// does it.
    #[inline]
    pub fn judge_window(&mut self) {
        let is_wide = self.send.window_end() > self.send.una() + u64::from(u16::MAX);
        let whole = self.config.whole_segments && self.handshake.is_multipath();
        let mss = if (is_wide && !whole) || !self.handshake.is_multipath() {
            0
        } else {
            self.subflows.usable().map(|metrics| metrics.mss).min().unwrap_or(0)
        };
        self.send.judge_window(mss, whole);
    }
}
