//! The sender of a subflow: the send window, the scoreboard, loss detection and recovery, the congestion
//! window.
//!
//! `ack` takes acknowledgements, `sack` their SACK blocks, `loss` finds what is lost (RACK-TLP; `dup_ack`
//! does by counting), `recovery` goes through the phases that follow, `spurious` undoes what turns out a
//! mistake, `transmit` says what is sent next. The other files are the parts that these work with.

mod ack;
mod ack_summary;
mod black_hole;
mod congestion_state;
mod cwnd_validation;
mod data_segment;
mod due;
mod dup_ack;
mod entry;
mod loss;
mod pacing;
mod pmtu;
mod prr;
mod rack;
mod rate;
mod recovery;
mod rtt;
mod sack;
mod sack_bitmap;
mod scoreboard;
mod send_window;
mod spurious;
mod tlp;
mod transmit;
mod undo;

use ropewalk_wire::{Payload, Segment, Seq};

use super::common::Common;
use super::context::Context;
use super::timer::Timer;
use crate::inline_queue::InlineQueue;
use crate::metrics::{CaState, SubflowMetrics};
use crate::scheduler::Fate;
use crate::{Span, Time};
use black_hole::BlackHole;
pub(crate) use congestion_state::CongestionState;
pub use congestion_state::WithoutSender;
use cwnd_validation::CwndValidation;
pub(super) use data_segment::DataSegment;
use due::{Due, LOSS_PROBE, WINDOW_PROBE};
use dup_ack::DupAck;
use pacing::Pacer;
use prr::Prr;
pub(crate) use rack::DUP_THRESH;
use rack::Rack;
use rate::RateState;
use rtt::RttEstimator;
pub(super) use rtt::timestamp_rtt;
use scoreboard::Scoreboard;
use send_window::SendWindow;
use tlp::Tlp;
use undo::Undo;

/// The timeout for data when the handshake gave no sample.
const FALLBACK_RTO: Span = Span::from_secs(3);

/// State of the sender. Hot fields come first: with thousands of connections each cache line is a miss.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Sender<P> {
    /// Data that was never sent, with its connection-level offset.
    queue: InlineQueue<(u64, P)>,
    /// What is due beside it.
    due: Due,
    fin_sent: bool,
    /// The peer is to be told that the congestion window was reduced (RFC 3168 6.1.2).
    cwr_pending: bool,
    snd_una: u64,
    snd_nxt: u64,
    window: SendWindow,
    last_sent_at: Time,
    scoreboard: Scoreboard<P>,
    rate: RateState,
    cwnd_validation: CwndValidation,
    rack: Rack,
    rtt: RttEstimator,
    tlp: Tlp,
    /// Retransmission timeouts since the last progress.
    timeouts: u32,
    /// How often the retransmission timeout was doubled since the last sample of the round-trip time.
    backoff: u32,
    recovery: Recovery,
    prr: Prr,
    /// Made when something is first lost or reordered, since many senders never need it.
    losses: Option<Box<Losses>>,
    /// Only with a model-based congestion control: that is fed with samples, and data is paced.
    pacer: Option<Box<Pacer>>,
}

/// Where loss recovery is, beside [`CaState`](crate::metrics::CaState).
#[derive(Clone, Copy, Debug, Default)]
struct Recovery {
    /// RecoveryPoint (RFC 6675): the phase ends when everything before this position is acknowledged.
    point: u64,
    /// F-RTO is under way (RFC 5682).
    frto: bool,
    /// F-RTO sends new data before further retransmissions (RFC 5682 3.1 step 2.b).
    new_data_first: bool,
    /// Holes that aren't marked as lost are retransmitted too
    /// ([`RecoveryConfig::forward_retransmit`](crate::config::RecoveryConfig::forward_retransmit)).
    forward: bool,
}

/// What a sender keeps of losses and reordering.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    undo: Undo,
    /// What the last ACK's SACK blocks covered, in order; empty ones fill up.
    sack_cache: [(u64, u64); 4],
    /// Segments that DSACKs have reported.
    dsacked: u64,
    black_hole: BlackHole,
    dup_ack: DupAck,
}

impl<P: Payload> Sender<P> {
    /// The sender of a subflow that is about to be opened.
    pub fn new(cx: &mut Context<'_>) -> Self {
        //= RFC 6298 2-a
        cx.metrics.rto = cx.tcp.rto.initial;
        //= RFC 5681 3.1-a
        cx.metrics.set_cwnd(cx.tcp.cwnd.initial_window);
        cx.metrics.set_ssthresh(cx.tcp.cwnd.initial_ssthresh);
        Sender {
            queue: InlineQueue::new(),
            due: Due::default(),
            fin_sent: false,
            cwr_pending: false,
            snd_una: 0,
            // Position 0 is the SYN's, whether it was sent yet or not.
            snd_nxt: 1,
            window: SendWindow::default(),
            last_sent_at: cx.now,
            scoreboard: Scoreboard::new(),
            rate: RateState::new(cx.now),
            cwnd_validation: CwndValidation::default(),
            rack: Rack::default(),
            rtt: RttEstimator::default(),
            tlp: Tlp::default(),
            timeouts: 0,
            backoff: 0,
            recovery: Recovery { forward: cx.tcp.recovery.forward_retransmit, ..Recovery::default() },
            prr: Prr::default(),
            losses: None,
            pacer: cx.congestion.is_model_based().then(Box::default),
        }
    }

    /// Says whether the congestion control is model-based.
    pub fn set_paced(&mut self, paced: bool) {
        self.pacer = paced.then(|| self.pacer.take().unwrap_or_default());
    }

    /// Whether it is.
    #[inline]
    fn is_paced(&self) -> bool {
        self.pacer.is_some()
    }

    fn losses_mut(&mut self) -> &mut Losses {
        self.losses.get_or_insert_default()
    }

    fn dup_ack(&self) -> DupAck {
        self.losses.as_ref().map(|losses| losses.dup_ack).unwrap_or_default()
    }

    fn dup_ack_mut(&mut self) -> &mut DupAck {
        &mut self.losses_mut().dup_ack
    }

    /// What it takes to undo the last reduction of the congestion window.
    fn undo(&self) -> Undo {
        self.losses.as_ref().map(|losses| losses.undo).unwrap_or_default()
    }

    fn undo_mut(&mut self) -> &mut Undo {
        &mut self.losses_mut().undo
    }

    /// The peer's SYN or SYN/ACK arrived.
    pub fn on_syn(&mut self, syn: &Segment<P>) {
        //= RFC 7323 2.2-b the window of a SYN is never scaled
        self.window = SendWindow::of_syn(u64::from(syn.window));
    }

    /// Sets the window to that of the segment that completes the handshake.
    pub fn set_first_window(&mut self, size: u64, position: u64, ack: u64) {
        self.window.complete_handshake(size, position, ack);
    }

    /// The segment that completes the handshake acknowledges the SYN. `rtt` is the handshake's sample, if
    /// there is one.
    pub fn on_established(&mut self, common: &mut Common, cx: &mut Context<'_>, rtt: Option<Span>) {
        self.snd_una = 1;
        // It was set for the SYN or SYN/ACK, which is acknowledged now.
        common.timers.stop(Timer::Retransmit);
        match rtt {
            Some(rtt) => self.rtt.sample(cx.metrics, &cx.tcp.rto, cx.now, rtt, rtt),
            //= RFC 6298 5-f without a sample from the handshake the timeout for data is 3 seconds
            None => cx.metrics.rto = cx.tcp.rto.initial.max(FALLBACK_RTO),
        }
        // Schedulers compare rates: a subflow that has sent nothing yet must have one.
        self.update_pacing(cx);
        // The handshake is no part of the first delivery-rate sample.
        self.rate = RateState::new(cx.now);
        self.cwnd_validation.restart(cx.now);
        self.last_sent_at = cx.now;
        cx.metrics.last_progress = cx.now;
    }

    /// Appends data whose first byte has the connection-level offset `tag` to the queue.
    #[inline]
    pub fn push(&mut self, tag: u64, payload: P) {
        self.queue.push_back((tag, payload));
    }

    /// The first and last connection-level offset of the data that was pushed last, if none of it was sent.
    pub fn queued_tail(&self) -> Option<(u64, u64)> {
        self.queue.back().map(|(tag, payload)| (*tag, tag + payload.len() as u64))
    }

    /// Drops those ranges from the queue that are taken. Returns how many bytes are left in it.
    pub fn withdraw(&mut self, mut is_taken: impl FnMut(std::ops::Range<u64>) -> bool) -> u64 {
        let queue = std::mem::replace(&mut self.queue, InlineQueue::new());
        let mut left = 0;
        for (tag, payload) in queue {
            let len = payload.len() as u64;
            if !is_taken(tag..tag + len) {
                self.queue.push_back((tag, payload));
                left += len;
            }
        }
        left
    }

    /// Replaces the data that was pushed last.
    pub fn replace_tail(&mut self, payload: P) {
        if let Some((_, tail)) = self.queue.back_mut() {
            *tail = payload;
        }
    }

    /// Has a FIN sent after the queue.
    pub fn close(&mut self) {
        self.due.add(due::FIN);
    }

    /// Drops everything that was to be sent.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.scoreboard.clear();
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        self.queue.shrink();
        self.scoreboard.shrink();
    }

    /// Position of the first byte that isn't acknowledged.
    #[inline]
    pub fn una(&self) -> u64 {
        self.snd_una
    }

    /// Position of the next new byte to be sent.
    #[inline]
    pub fn next(&self) -> u64 {
        self.snd_nxt
    }

    /// Bytes that the peer's window for this subflow alone still admits.
    pub fn window_room(&self) -> u64 {
        self.window.size().saturating_sub(self.snd_nxt - self.snd_una)
    }

    /// The window that the peer advertised last, bytes.
    #[inline]
    pub fn peer_window(&self) -> u64 {
        self.window.size()
    }

    /// The position that an acknowledgement number stands for.
    #[inline]
    pub fn ack_position(&self, common: &Common, ack: Seq) -> u64 {
        Seq(ack.0.wrapping_sub(common.isn)).unfold(self.snd_una)
    }

    /// Whether an acknowledgement is between SND.UNA and SND.NXT, both included.
    #[inline]
    pub fn is_ack_in_flight(&self, common: &Common, ack: Seq) -> bool {
        self.ack_position(common, ack).wrapping_sub(self.snd_una) <= self.snd_nxt - self.snd_una
    }

    /// Whether an acknowledgement isn't in flight but only old: no older than the largest window ever seen
    /// (RFC 5961 5.2).
    pub fn is_old_ack(&self, common: &Common, ack: Seq) -> bool {
        let ack = self.ack_position(common, ack);
        // Before anything that was sent, `unfold` goes below zero.
        let old = ack < self.snd_una || ack >= 1 << 63;
        old && self.snd_una.wrapping_sub(ack) <= self.window.max()
    }

    /// Tag and length of each range that isn't acknowledged, queued ones included.
    pub fn outstanding(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let sent = self.scoreboard.iter().map(|entry| (entry.tag, entry.payload.len() as u32));
        sent.chain(self.queue.iter().map(|(tag, payload)| (*tag, payload.len() as u32)))
            .filter(|(_, len)| *len > 0)
    }

    /// What became of the data at a connection-level offset.
    pub fn fate(&self, offset: u64) -> Fate {
        let holds = |tag: u64, len: usize| tag <= offset && offset < tag + len as u64;
        match self.scoreboard.find_tag(offset) {
            Some(entry) if entry.is(entry::SACKED) => Fate::Arrived,
            Some(entry) if entry.is(entry::LOST) && !entry.is(entry::RETRANS) => Fate::Lost,
            Some(_) => Fate::InFlight,
            None if self.queue.iter().any(|(tag, payload)| holds(*tag, payload.len())) => Fate::Queued,
            // In neither place: it was acknowledged and removed.
            None => Fate::Arrived,
        }
    }

    /// Whether everything is sent and acknowledged.
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.scoreboard.is_empty()
    }

    /// Whether anything is in flight.
    pub fn has_in_flight(&self) -> bool {
        !self.scoreboard.is_empty()
    }

    /// Whether a FIN was sent and is acknowledged.
    #[inline]
    pub fn is_fin_acked(&self) -> bool {
        self.fin_sent && self.snd_una == self.snd_nxt && self.scoreboard.is_empty()
    }

    /// Whether there is nothing to send, whatever the windows allow.
    #[inline]
    pub fn has_nothing_to_send(&self, metrics: &SubflowMetrics) -> bool {
        self.queue.is_empty()
            && self.due.is_empty()
            && metrics.lost_out() == 0
            // NextSeg rule 3 (RFC 6675 4) may send a hole that isn't marked as lost.
            && !(metrics.ca_state() == CaState::Recovery && self.recovery.forward)
    }

    /// Whether something is due that the congestion window doesn't hold back.
    #[inline]
    pub fn has_urgent(&self) -> bool {
        self.due.has(LOSS_PROBE | WINDOW_PROBE) || self.is_fin_due()
    }

    /// Whether the FIN is the next to be sent.
    #[inline]
    fn is_fin_due(&self) -> bool {
        self.due.has(due::FIN) && self.queue.is_empty()
    }

    /// Whether the next segment may be one without data.
    #[inline]
    pub fn may_send_without_data(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether a tail loss probe is due and there is no new data for it.
    #[inline]
    pub fn lacks_probe_data(&self) -> bool {
        self.due.has(LOSS_PROBE) && self.queue.is_empty()
    }

    /// Whether the window has room and there is nothing to send: samples of the delivery rate then say
    /// nothing of the network (Linux's `tcp_rate_check_app_limited`).
    #[inline]
    pub fn check_app_limited(&mut self, metrics: &SubflowMetrics) {
        if self.queue.is_empty()
            && metrics.in_flight() < metrics.cwnd()
            // Lost segments that wait for their retransmission are data to send, too.
            && metrics.lost_out() <= metrics.retrans_out()
        {
            self.rate.on_app_limited(metrics);
        }
    }

    /// Retransmission timeouts since the last progress.
    #[inline]
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// How often the retransmission timeout is doubled.
    pub fn backoff(&self) -> u32 {
        self.backoff
    }

    /// When data was last sent.
    pub fn last_sent_at(&self) -> Time {
        self.last_sent_at
    }

    /// The right edge of the window that the peer gives this subflow; no limit where windows are
    /// connection-level.
    #[inline]
    fn window_edge(&self, cx: &Context<'_>) -> u64 {
        if cx.shared.multipath { u64::MAX } else { self.snd_una + self.window.size() }
    }

    /// Arms the retransmission timer for what is in flight, or stops it (RFC 6298 5).
    fn arm_retransmit(&mut self, common: &mut Common, cx: &Context<'_>) {
        //= RFC 6298 5-b
        if self.scoreboard.is_empty() {
            common.timers.stop(Timer::Retransmit);
            // A probe, too, makes sense only while something is outstanding (RFC 8985 7.2).
            common.timers.stop(Timer::Probe);
            return;
        }
        let rto = cx.metrics.rto.saturating_mul(1 << self.backoff.min(16)).min(cx.tcp.rto.max);
        //= RFC 6298 5-a
        common.timers.set(Timer::Retransmit, cx.now + rto);
    }

    /// RACK.reo_wnd.
    #[cfg(test)]
    pub fn reordering_window(&self, metrics: &SubflowMetrics) -> Span {
        self.rack.window(metrics)
    }

    /// RACK.reordering_seen.
    #[cfg(test)]
    pub fn reordering_seen(&self) -> bool {
        self.rack.reordering_seen()
    }
}

#[cfg(test)]
mod tests;
