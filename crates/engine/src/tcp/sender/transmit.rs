//! Which data is sent next: retransmissions, new data, FIN, tail loss probes (RFC 9293 3.8).

use crate::Span;
use ropewalk_wire::Payload;

use super::Sender;
use super::data_segment::DataSegment;
use super::due::{self, LOSS_PROBE, WINDOW_PROBE};
use super::entry::{APP_LIMITED, EVER_RETRANS, Entry, FIN, LOST, PROBED, RETRANS, SACKED};
use super::rate::Flight;
use super::tlp::Tlp;
use crate::metrics::CaState;
use crate::tcp::common::Common;
use crate::tcp::context::{Context, Outcome};
use crate::tcp::timer::Timer;

impl<P: Payload> Sender<P> {
    /// Whether there is new data to send.
    #[inline]
    pub fn has_new_data(&self) -> bool {
        !self.queue.is_empty() && (!self.due.has(LOSS_PROBE) || self.has_in_flight())
    }

    /// Whether a FIN or a tail loss probe is due.
    #[inline]
    pub fn has_fin_or_probe(&self) -> bool {
        self.due.has(LOSS_PROBE) || self.is_fin_due()
    }

    /// The FIN or the tail loss probe that is due.
    #[cold]
    pub fn next_fin_or_probe(&mut self, common: &mut Common, cx: &mut Context<'_>) -> Option<DataSegment<P>> {
        if self.is_fin_due() {
            return Some(self.next_fin(common, cx));
        }
        self.next_probe(common, cx)
    }

    /// The first lost entry, if the windows admit it.
    #[inline(never)]
    pub fn next_lost(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        max_segments: u32,
    ) -> Option<DataSegment<P>> {
        let metrics = &*cx.metrics;
        if self.recovery.new_data_first || metrics.in_flight() >= metrics.cwnd() {
            return None;
        }
        let mut max_segments = max_segments;
        if self.is_paced() {
            max_segments = self.pace(common, cx, max_segments.max(1));
            if max_segments == 0 {
                return None;
            }
        }
        let index = self.scoreboard.next_lost()?;
        let edge = self.window_edge(cx);
        let entry = self.scoreboard.get(index)?;
        //= RFC 9293 SHLD-16
        //= RFC 7323 2.4-b
        // The peer took its window back: only the first segment may still be sent, as a probe (RFC 9293
        // 3.8.6).
        if entry.position >= edge && entry.position != self.snd_una {
            return None;
        }
        // A super-segment is cut to what may be sent, and to the MSS in force now.
        let metrics = &*cx.metrics;
        let most = max_segments.min(metrics.cwnd() - metrics.in_flight()).max(1) * metrics.mss;
        if entry.payload.len() > most as usize {
            let at = entry.position + u64::from(most);
            self.scoreboard.split(index, at, cx.metrics);
        }
        // The MSS may have changed since it was sent.
        self.recount(common, cx, index);
        Some(self.retransmit_lost(common, cx, index))
    }

    /// The first hole below the highest SACK that isn't marked as lost nor retransmitted, if the windows
    /// admit it: nothing lost and nothing new is left to send (RFC 6675 4, NextSeg rule 3;
    /// `tcp_can_forward_retransmit`).
    #[cold]
    pub fn next_forward(&mut self, common: &mut Common, cx: &mut Context<'_>) -> Option<DataSegment<P>> {
        let metrics = &*cx.metrics;
        if !self.recovery.forward
            || metrics.ca_state() != CaState::Recovery
            || metrics.sacked_out() == 0
            || metrics.in_flight() >= metrics.cwnd()
        {
            return None;
        }
        let highest = self.dup_ack().highest();
        let below = self.scoreboard.iter().take_while(|entry| entry.position < highest);
        let index = below.into_iter().position(|entry| !entry.is(SACKED | LOST | RETRANS))?;
        let entry = self.scoreboard.get_mut(index);
        entry.flags |= RETRANS;
        cx.metrics.add_marked(RETRANS, entry.segments);
        Some(self.retransmit_lost(common, cx, index))
    }

    /// Counts the packets of an entry before it is retransmitted.
    fn recount(&mut self, common: &Common, cx: &mut Context<'_>, index: usize) {
        let metrics = &mut *cx.metrics;
        self.scoreboard.recount_entry(index, metrics);
        if !common.negotiated.sack {
            // Duplicate ACKs stand for no more than what may have left the network.
            metrics.assume_sacked(metrics.sacked_out());
        }
    }

    /// Retransmits a lost entry.
    #[inline(never)]
    fn retransmit_lost(&mut self, common: &mut Common, cx: &mut Context<'_>, index: usize) -> DataSegment<P> {
        let entry = self.scoreboard.get_mut(index);
        let segments = entry.segments;
        if !entry.is(RETRANS) && entry.is(LOST) {
            cx.metrics.add_marked(RETRANS, segments);
            entry.flags |= RETRANS;
        }
        entry.flags &= !PROBED;
        self.undo_mut().on_retransmission(segments, cx.timestamp());
        self.prr.on_sent(segments);
        if cx.metrics.ca_state() == CaState::Loss {
            common.counters.slow_start_retrans += u64::from(segments);
        } else {
            common.counters.fast_retrans += u64::from(segments);
        }
        if index == 0 {
            // The head gets a whole timeout of its own.
            self.arm_retransmit(common, cx);
        }
        self.retransmit(common, cx, index)
    }

    /// Retransmits an entry.
    #[inline(never)]
    fn retransmit(&mut self, common: &mut Common, cx: &mut Context<'_>, index: usize) -> DataSegment<P> {
        let limited = self.app_limited_flag();
        let stamp = self.rate.on_sent(cx.now, false);
        let flight = Flight::of(cx.metrics);
        let entry = self.scoreboard.get_mut(index);
        entry.sent_at = cx.now;
        entry.rate = stamp;
        entry.set_flight(flight);
        entry.flags = (entry.flags & !APP_LIMITED) | EVER_RETRANS | limited;
        let (position, tag, segments) = (entry.position, entry.tag, entry.segments);
        let (payload, fin) = (entry.payload.clone(), entry.is(FIN));
        let part = (entry.mapped > 0).then_some((entry.lead, entry.mapped));
        self.scoreboard.log_retransmission(index);
        if self.is_paced() {
            self.on_paced(cx, segments, payload.len());
        }
        cx.metrics.totals.retransmitted += u64::from(segments);
        cx.metrics.last_sent = cx.now;
        common.counters.retrans_segs += u64::from(segments);
        common.counters.retrans_bytes += payload.len() as u64;
        self.last_sent_at = cx.now;
        self.ensure_retransmit(common, cx);
        let push = self.queue.is_empty() && !cx.shared.outgoing.more && !payload.is_empty();
        // A retransmission has the length that it had: nothing is reserved for SACK blocks.
        let mss = cx.metrics.mss as usize;
        DataSegment { position, tag, payload, fin, push, retransmission: true, part, mss }
    }

    /// New data from the queue, as far as the windows admit. Each segment leaves `reserve` bytes to SACK
    /// blocks.
    #[inline(always)]
    pub fn next_new(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        max_segments: u32,
        reserve: usize,
    ) -> Option<DataSegment<P>> {
        if !common.may_send() {
            return None;
        }
        let probe = self.due.has(LOSS_PROBE);
        // Before the window is read, which an idle time may lower.
        self.restart_after_idle(cx);
        let metrics = &*cx.metrics;
        let mss = metrics.mss as usize - reserve;
        let in_flight = metrics.in_flight();
        //= RFC 8985 7.3-a
        // A tail loss probe is one segment, which may exceed the congestion window.
        let room = if probe { 1 } else { metrics.cwnd().saturating_sub(in_flight) };
        if room == 0 {
            return None;
        }
        let mut max_segments = max_segments;
        // A probe that waits for the pacer could come after the timeout that it is to prevent.
        if self.is_paced() && !probe {
            max_segments = self.pace(common, cx, max_segments.max(1));
            if max_segments == 0 {
                return None;
            }
        }
        let front_len = self.queue.front()?.1.len();
        let mut most = mss * max_segments.min(room).max(1) as usize;
        if !cx.shared.multipath {
            //= RFC 9293 SHLD-15
            let left = self.window_left() as usize;
            if left < mss.min(front_len) && !self.may_send_partial(left) {
                self.await_window(common, cx);
                return None;
            }
            // Only whole segments: what is left of the window after them is no reason to send less than one.
            most = most.min(if left > mss && left < front_len { left - left % mss } else { left });
            // The ACK of this data will report the window.
            common.timers.stop(Timer::Persist);
        }
        let (tag, payload) = self.take_queued(most, mss)?;
        let taken = payload.len();
        //= RFC 9293 SHLD-7 Nagle: a short segment waits while data is in flight
        if cx.tcp.nagle
            && taken < mss
            && in_flight > 0
            && self.queue.is_empty()
            // Before the FIN nothing more can fill the segment.
            && !self.is_end_next(cx)
            && !probe
        {
            self.queue.push_front((tag, payload));
            return None;
        }
        let segments = if taken <= mss { 1 } else { taken.div_ceil(mss) as u32 };
        let fin = self.is_end_next(cx) && self.takes_fin(common, taken);
        let metrics = &mut *cx.metrics;
        metrics.queued_bytes -= taken as u64;
        if metrics.packets_out() == 0 {
            metrics.busy_since = cx.now;
        }
        metrics.last_sent = cx.now;
        metrics.add_packets_out(segments);
        let rate = self.rate.on_sent(cx.now, metrics.packets_out() == segments);
        if matches!(metrics.ca_state(), CaState::Recovery | CaState::Cwr) {
            self.prr.on_sent(segments);
        }
        let position = self.snd_nxt;
        self.snd_nxt += taken as u64 + u64::from(fin);
        self.last_sent_at = cx.now;
        let flags = self.app_limited_flag() | if fin { FIN } else { 0 };
        let Flight { delivered, in_flight, lost } = Flight::of(metrics);
        self.scoreboard.push(Entry {
            position,
            tag,
            payload: payload.clone(),
            flags,
            lead: 0,
            mapped: 0,
            segments,
            delivered,
            in_flight,
            lost,
            sent_at: cx.now,
            rate,
        });
        if self.is_paced() {
            self.on_paced(cx, segments, taken);
        }
        common.counters.data_segments += u64::from(segments);
        self.cwnd_validation.on_data_sent(cx, in_flight, self.snd_una, self.snd_nxt);
        self.ensure_retransmit(common, cx);
        if probe {
            self.on_probe_sent(common, false);
        } else {
            self.arm_probe(common, cx);
        }
        //= RFC 9293 MUST-61 MUST-60 what the application wrote goes out without waiting for more
        // As in Linux data that waits for the peer's window sets PSH: then it lies in the subflow's queue.
        let more = match self.queue.front() {
            None => cx.shared.outgoing.more,
            Some((next, _)) => *next == tag + taken as u64,
        };
        Some(DataSegment { position, tag, payload, fin, push: !more, retransmission: false, part: None, mss })
    }

    /// Whether nothing but the FIN follows what was taken off the queue. In MPTCP a subflow's FIN ends no
    /// data.
    #[inline(always)]
    fn is_end_next(&self, cx: &Context<'_>) -> bool {
        (cx.shared.outgoing.ends || self.due.has(due::FIN)) && !cx.shared.multipath && self.queue.is_empty()
    }

    /// The last segment of data carries the FIN, as in Linux (`tcp_send_fin`), if the window has room for it.
    #[cold]
    fn takes_fin(&mut self, common: &mut Common, taken: usize) -> bool {
        let fits = self.window_left() > taken as u64;
        if fits {
            self.note_fin(common);
        }
        fits
    }

    fn note_fin(&mut self, common: &mut Common) {
        self.due.take(due::FIN);
        self.fin_sent = true;
        common.on_fin_sent();
    }

    /// Takes up to `most` bytes off the queue, with their connection-level offset. Contiguous pieces fill one
    /// segment.
    #[inline]
    fn take_queued(&mut self, most: usize, mss: usize) -> Option<(u64, P)> {
        let (front_tag, front) = self.queue.front_mut()?;
        let tag = *front_tag;
        let len = front.len();
        if len > most {
            let payload = front.slice(0, most);
            *front = front.slice(most, len);
            *front_tag += most as u64;
            return Some((tag, payload));
        }
        let (_, payload) = self.queue.pop_front()?;
        if len < mss.min(most) && !self.queue.is_empty() {
            return Some((tag, self.fill_segment(tag, payload, mss.min(most))));
        }
        Some((tag, payload))
    }

    //= RFC 9293 SHLD-28
    /// Adds contiguous pieces of the queue to a payload, up to `most` bytes.
    #[inline(never)]
    fn fill_segment(&mut self, tag: u64, mut payload: P, most: usize) -> P {
        let mut taken = payload.len();
        while taken < most
            && let Some((next_tag, next)) = self.queue.front_mut()
            && *next_tag == tag + taken as u64
        {
            let (want, len) = ((most - taken).min(next.len()), next.len());
            payload = P::join(&[payload, next.slice(0, want)]);
            taken += want;
            if want == len {
                self.queue.drop_front();
            } else {
                *next = next.slice(want, len);
                *next_tag += want as u64;
            }
        }
        payload
    }

    /// The FIN.
    #[cold]
    fn next_fin(&mut self, common: &mut Common, cx: &mut Context<'_>) -> DataSegment<P> {
        self.note_fin(common);
        let position = self.snd_nxt;
        self.snd_nxt += 1;
        let metrics = &mut *cx.metrics;
        metrics.add_packets_out(1);
        let rate = self.rate.on_sent(cx.now, metrics.packets_out() == 1);
        self.last_sent_at = cx.now;
        let flight = Flight::of(metrics);
        self.scoreboard.push_fin(position, cx.now, rate, flight);
        self.ensure_retransmit(common, cx);
        self.arm_probe(common, cx);
        let mss = cx.metrics.mss as usize;
        DataSegment {
            position,
            tag: 0,
            payload: P::default(),
            fin: true,
            push: false,
            retransmission: false,
            part: None,
            mss,
        }
    }

    /// A tail loss probe without new data: the last segment again.
    #[cold]
    fn next_probe(&mut self, common: &mut Common, cx: &mut Context<'_>) -> Option<DataSegment<P>> {
        self.due.take(LOSS_PROBE);
        let index = self.scoreboard.back_index()?;
        let mss = u64::from(cx.metrics.mss);
        let entry = self.scoreboard.get(index)?;
        // The tail has arrived: its SACK already says what a probe would ask.
        if entry.is(SACKED) {
            return None;
        }
        // The last segment is enough: its SACK shows all that is missing before it (RFC 8985 7.3).
        let index = if entry.payload.len() as u64 > mss {
            let at = entry.end() - mss;
            self.scoreboard.split(index, at, cx.metrics);
            index + 1
        } else {
            index
        };
        self.recount(common, cx, index);
        let entry = self.scoreboard.get_mut(index);
        if !entry.is(EVER_RETRANS) {
            entry.flags |= PROBED;
        }
        self.on_probe_sent(common, true);
        Some(self.retransmit(common, cx, index))
    }

    #[cold]
    fn on_probe_sent(&mut self, common: &mut Common, is_retransmission: bool) {
        self.due.take(LOSS_PROBE);
        self.tlp = Tlp::on_sent(self.snd_nxt, is_retransmission);
        common.counters.loss_probes += 1;
        common.timers.stop(Timer::Probe);
    }

    #[inline]
    fn app_limited_flag(&self) -> u8 {
        if self.rate.is_app_limited() { APP_LIMITED } else { 0 }
    }

    /// Arms the retransmission timer unless it runs.
    #[inline]
    fn ensure_retransmit(&mut self, common: &mut Common, cx: &Context<'_>) {
        if common.timers.get(Timer::Retransmit).is_none() {
            self.arm_retransmit(common, cx);
        }
    }

    /// Restarts the congestion window if nothing was sent for an RTO (RFC 5681 4.1).
    #[inline]
    fn restart_after_idle(&mut self, cx: &mut Context<'_>) {
        // Only then: ACKs of what is in flight still clock the sender.
        if cx.metrics.packets_out() == 0 {
            self.on_idle(cx);
        }
    }

    /// New data is about to be sent while nothing is in flight.
    #[inline(never)]
    fn on_idle(&mut self, cx: &mut Context<'_>) {
        let metrics = &*cx.metrics;
        if self.is_paced() {
            let limited = self.rate.is_app_limited();
            return cx.congestion.before_transmit(cx.metrics, cx.siblings, cx.now, limited);
        }
        if !cx.tcp.cwnd.idle_restart {
            return;
        }
        // Since data was sent, not received (RFC 5681 4.1): requests that arrive would
        // else hide every idle time of a server.
        let idle = cx.now.saturating_sub(self.last_sent_at);
        if idle > metrics.rto.max(Span::from_nanos(1)) {
            // The window or Nagle may hold the data back: asked again, the same
            // idle time must not count twice.
            self.last_sent_at = cx.now;
            self.cwnd_validation.on_idle_restart(cx, idle);
        }
    }

    /// Takes the mark that tells the peer of a reduction (RFC 3168 6.1.2).
    #[inline]
    pub fn take_cwr(&mut self) -> bool {
        std::mem::take(&mut self.cwr_pending)
    }

    /// Bytes that the peer's window admits beyond what was sent.
    #[inline]
    fn window_left(&self) -> u64 {
        (self.snd_una + self.window.size()).saturating_sub(self.snd_nxt)
    }

    /// Whether less than a segment may be sent although more waits: half of the largest window that the peer
    /// ever offered, or anything after the override timeout.
    //= RFC 9293 MUST-38 sender-side silly window avoidance
    #[cold]
    fn may_send_partial(&mut self, left: usize) -> bool {
        let overdue = left > 0 && self.due.take(WINDOW_PROBE);
        overdue || (left > 0 && 2 * left as u64 >= self.window.max())
    }

    /// Data waits for a window that is closed, or too small for a segment, and nothing is in flight whose ACK
    /// could open it: arms the probe (RFC 9293 3.8.6.1), or the override timeout.
    #[cold]
    pub fn await_window(&mut self, common: &mut Common, cx: &Context<'_>) {
        if common.may_send() && self.scoreboard.is_empty() && common.timers.get(Timer::Persist).is_none() {
            let interval = self.window.probe_interval(cx, self.window_left() > 0);
            common.timers.set(Timer::Persist, cx.now + interval);
        }
    }

    /// A probe of the closed window is due, or the override timeout has passed.
    pub fn on_persist_timeout(&mut self) {
        self.window.on_probe();
        self.due.add(WINDOW_PROBE);
    }

    /// Whether probes of the closed window have become as rare as they get.
    pub fn probes_at_longest_interval(&self, cx: &Context<'_>) -> bool {
        self.window.probe_interval(cx, false) >= cx.tcp.rto.max
    }

    /// Has a probe sent: a segment without data that the peer has to answer.
    pub fn request_window_probe(&mut self) {
        self.due.add(WINDOW_PROBE);
    }

    /// Takes the request for such a probe.
    #[inline]
    pub fn take_window_probe(&mut self) -> bool {
        self.due.take(WINDOW_PROBE)
    }

    /// The retransmission timer fired while data is in flight (RFC 6298 5.4 to 5.6).
    pub fn on_retransmission_timeout(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        outcome: &mut Outcome,
    ) {
        self.suspect_black_hole(common, cx);
        //= RFC 6298 5-d
        self.enter_loss(common, cx, outcome);
        self.timeouts += 1;
        //= RFC 6298 5-e
        //= RFC 9293 MUST-19 back off the timer (RFC 6298 5.5)
        self.backoff += 1;
        self.arm_retransmit(common, cx);
        common.timers.stop(Timer::Probe);
    }
}
