//! The path MTU, one per subflow. "Packet too big" (RFC 1191, RFC 8201) is believed only about something in
//! flight (RFC 5927 4.1), and only downwards. A black hole, where such messages are lost, is suspected after
//! repeated timeouts of a full segment. The suspicion is dropped when smaller segments are lost as well.

use ropewalk_wire::{Payload, Seq};

use super::Sender;
use super::black_hole::BlackHole;
use super::cwnd_validation::current_ssthresh;
use crate::metrics::CaState;
use crate::tcp::common::Common;
use crate::tcp::context::{Context, Outcome};

/// The least path MTU that is believed.
fn least_mtu(common: &Common) -> u32 {
    // Linux's `ip_rt_min_pmtu`, 512 bytes and 40 of headers, and the least MTU of IPv6 links (RFC 8200
    // 5): a forged message can't make segments tiny.
    if common.tuple.src.is_ipv4() { 552 } else { 1280 }
}

impl<P: Payload> Sender<P> {
    /// A router says that the packet with this sequence number was too big for an MTU. Returns false if it
    /// isn't believed.
    pub fn on_too_big(&mut self, common: &mut Common, cx: &mut Context<'_>, seq: Seq, mtu: u32) -> bool {
        let position = self.ack_position(common, seq);
        //= RFC 5927 4.1 a message about what is not in flight is forged or late
        if position < self.snd_una || position >= self.snd_nxt || mtu >= common.path_mtu {
            return false;
        }
        self.lower_path_mtu(common, cx, mtu);
        true
    }

    /// The path MTU is smaller: what is sent from now on fits it. What is in flight and doesn't is
    /// retransmitted, which is no sign of congestion (Linux's `tcp_simple_retransmit`).
    fn lower_path_mtu(&mut self, common: &mut Common, cx: &mut Context<'_>, mtu: u32) {
        let mtu = mtu.max(least_mtu(common));
        if mtu >= common.path_mtu {
            return;
        }
        let before = cx.metrics.mss as usize;
        self.set_path_mtu(common, cx, mtu);
        let mss = cx.metrics.mss as usize;
        // The peer's MSS or the configured one was the limit: what is in flight fits.
        if mss >= before {
            return;
        }
        let mut outcome = Outcome::default();
        let mut index = 0;
        while let Some(entry) = self.scoreboard.get(index) {
            if entry.payload.len() > mss {
                self.mark_lost(common, cx, index, &mut outcome);
            }
            index += 1;
        }
        if outcome.lost_segments > 0 && cx.metrics.ca_state() != CaState::Loss {
            // The window stays, since a router and not congestion caused this. The phase is Loss so that it
            // is resent, and there is nothing to undo (`tcp_simple_retransmit`).
            self.undo_mut().end();
            self.undo_mut().forbid();
            self.recovery.point = self.snd_nxt;
            let metrics = &mut *cx.metrics;
            metrics.set_ssthresh(current_ssthresh(metrics));
            metrics.set_ca_state(CaState::Loss);
        }
    }

    fn set_path_mtu(&mut self, common: &mut Common, cx: &mut Context<'_>, mtu: u32) {
        common.path_mtu = mtu;
        common.update_mss(cx);
        let metrics = &mut *cx.metrics;
        // Without SACK no entry is marked, so `recount` can't find this count again.
        let sacked_out = metrics.sacked_out();
        self.scoreboard.recount(metrics);
        if !common.negotiated.sack {
            metrics.assume_sacked(sacked_out);
        }
    }

    #[inline]
    pub(super) fn black_hole(&self) -> BlackHole {
        self.losses.as_ref().map(|losses| losses.black_hole).unwrap_or_default()
    }

    fn black_hole_mut(&mut self) -> &mut BlackHole {
        &mut self.losses_mut().black_hole
    }

    /// The path MTU that is known: while smaller segments are tried, the one before.
    pub(in crate::tcp) fn path_mtu(&self, common: &Common) -> u32 {
        let black_hole = self.black_hole();
        if black_hole.is_suspected() { black_hole.mtu_before() } else { common.path_mtu }
    }

    /// After a timeout: tries smaller segments if a black hole is suspected.
    pub(super) fn suspect_black_hole(&mut self, common: &mut Common, cx: &mut Context<'_>) {
        let timeouts = self.timeouts;
        if !cx.tcp.black_hole_detection || !self.losses_mut().black_hole.on_timeout(cx.now, timeouts) {
            return;
        }
        let Some(head) = self.scoreboard.get(0).map(|entry| entry.payload.len() as u32) else { return };
        while let Some(mss) = self.black_hole_mut().next_mss(common.tuple.src.is_ipv4(), common.path_mtu) {
            let mtu = mss + common.header_len();
            if mtu < common.path_mtu && mtu >= least_mtu(common) && head > mss / 2 {
                common.counters.mtu_fail += 1;
                self.set_path_mtu(common, cx, mtu);
                return;
            }
        }
        let before = self.black_hole().mtu_before();
        if before > common.path_mtu {
            // Smaller segments are lost as well: the size wasn't the cause.
            self.set_path_mtu(common, cx, before);
        }
    }

    /// Something was acknowledged while smaller segments were tried: they pass.
    #[cold]
    pub(super) fn on_mtu_confirmed(&mut self, common: &mut Common) {
        let smaller = common.path_mtu < self.black_hole().mtu_before();
        common.counters.mtu_success += u64::from(smaller);
        *self.black_hole_mut() = BlackHole::default();
    }
}
