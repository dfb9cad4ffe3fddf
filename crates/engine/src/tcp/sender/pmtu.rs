//! The path's MTU, one MSS per subflow: "packet too big" (RFC 1191, RFC 8201) is believed only about something in
//! flight (RFC 5927 4.1), and only downwards; a black hole, where such messages are lost, is suspected after repeated
//! timeouts of a full segment (RFC 4821 7.7, Linux's `tcp_mtu_probing`), and the suspicion dropped when small segments
//! fare no better.

use ropewalk_wire::{Payload, Seq};

use crate::metrics::CaState;
use crate::tcp::{Context, Outcome, Subflow};
use crate::{MILLISECOND, Nanos};

/// Timeouts of one segment after which a black hole is suspected (Linux's `tcp_retries1`); or any after the first that
/// comes so much later, which is how Linux reads that number: three timeouts and the wait after them, had they begun
/// with the shortest. Where a timeout lasts for seconds, the third comes too late.
const SUSPICIOUS: u32 = 3;
const LONG: Nanos = 3_000 * MILLISECOND;
/// What is tried then, payload with TCP's options: over IPv4 Linux's `tcp_base_mss` and half of it; over IPv6 what every
/// link carries whole (RFC 8200 5).
const TRIED_V4: &[u32] = &[1024, 512];
const TRIED_V6: &[u32] = &[1280 - 60];

/// Suspicion of a black hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BlackHole {
    /// What the path's MTU was thought to be.
    before: u32,
    /// How many smaller ones have been tried since.
    tried: usize,
    /// When the first timeout was.
    since: Nanos,
}

impl<P: Payload> Subflow<P> {
    fn header_len(&self) -> u32 {
        if self.tuple.src.is_ipv4() { 40 } else { 60 }
    }

    fn least_mtu(&self) -> u32 {
        if self.tuple.src.is_ipv4() { 552 } else { 1280 }
    }

    /// A router says that the packet with this sequence number was too big for an MTU. False if it isn't believed.
    pub fn on_too_big(&mut self, cx: &mut Context<'_>, seq: Seq, mtu: u32) -> bool {
        self.quiet = false;
        let position = self.ack_position(seq);
        //= RFC 5927 4.1 a message about what is not in flight is forged or late
        if position < self.snd_una || position >= self.snd_nxt || mtu >= self.path_mtu {
            return false;
        }
        self.set_path_mtu(cx, mtu);
        true
    }

    /// A smaller path MTU: what is sent from now on fits it, and what is in flight and doesn't is sent again, which
    /// is no sign of congestion (Linux's `tcp_simple_retransmit`).
    pub fn set_path_mtu(&mut self, cx: &mut Context<'_>, mtu: u32) {
        self.quiet = false;
        let mtu = mtu.max(self.least_mtu());
        if mtu >= self.path_mtu {
            return;
        }
        let before = cx.metrics[cx.index].mss as usize;
        self.change_mtu(cx, mtu);
        let mss = cx.metrics[cx.index].mss as usize;
        if mss >= before {
            return;
        }
        let mut outcome = Outcome::default();
        let mut index = 0;
        while let Some(entry) = self.rtx.get(index) {
            if entry.payload.len() > mss {
                self.mark_lost(cx, index, &mut outcome);
            }
            index += 1;
        }
        if outcome.lost_segments > 0 && cx.metrics[cx.index].ca_state != CaState::Loss {
            self.undo.marker = 0;
            self.undo.prior_ssthresh = 0;
            self.recovery.high = self.snd_nxt;
            let metrics = cx.metrics();
            metrics.ssthresh = super::cwnd_validation::current_ssthresh(metrics);
            metrics.ca_state = CaState::Loss;
        }
    }

    fn change_mtu(&mut self, cx: &mut Context<'_>, mtu: u32) {
        self.path_mtu = mtu;
        self.update_mss(cx);
        let metrics = cx.metrics();
        let counts = self.rtx.recount(metrics.mss);
        metrics.packets_out = counts.packets_out;
        metrics.lost_out = counts.lost_out;
        metrics.retrans_out = counts.retrans_out;
        metrics.sacked_out = if self.sack {
            counts.sacked_out
        } else {
            metrics.sacked_out.min(counts.packets_out - counts.lost_out)
        };
    }

    /// Another timeout in a row: is it the size?
    pub(in crate::tcp) fn suspect_black_hole(&mut self, cx: &mut Context<'_>) {
        if !cx.tcp.black_hole_detection {
            return;
        }
        if self.retransmits == 0 {
            self.black_hole.since = cx.now;
        }
        if self.retransmits + 1 < SUSPICIOUS && cx.now < self.black_hole.since + LONG {
            return;
        }
        let Some(head) = self.rtx.get(0).map(|entry| entry.payload.len() as u32) else { return };
        if self.black_hole.tried == 0 {
            self.black_hole.before = self.path_mtu;
        }
        let tried = if self.tuple.src.is_ipv4() { TRIED_V4 } else { TRIED_V6 };
        while let Some(mss) = tried.get(self.black_hole.tried) {
            self.black_hole.tried += 1;
            let mtu = mss + self.header_len();
            if mtu < self.path_mtu && mtu >= self.least_mtu() && head > *mss / 2 {
                self.counters.mtu_fail += 1;
                self.change_mtu(cx, mtu);
                return;
            }
        }
        if self.black_hole.before > self.path_mtu {
            // Small segments are lost as well: it wasn't the size.
            let before = self.black_hole.before;
            self.change_mtu(cx, before);
        }
    }

    /// Something was acknowledged: what is sent now gets through.
    #[inline]
    pub(in crate::tcp) fn on_mtu_confirmed(&mut self) {
        if self.black_hole.tried > 0 {
            self.counters.mtu_success += u64::from(self.path_mtu < self.black_hole.before);
            self.black_hole = BlackHole::default();
        }
    }
}
