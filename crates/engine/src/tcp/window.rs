//! The receive window on the wire (RFC 9293 3.8.6.2.2, RFC 7323 2.4).
//!
//! The right edge isn't taken back. Where scaling can't express what is left of an advertised window, it is
//! rounded up if the buffer has room. Otherwise it shrinks by less than one unit of the scale, which RFC 7323
//! 2.4 allows.

use crate::config::WHOLE_BYTE;

/// Least step of the right edge: a segment of the usual size, or half of a small buffer.
const SEGMENT: u64 = 1460;

/// The window to advertise, when a buffer of `limit` bytes has `room`, and `told` bytes are left of the
/// window that was advertised last.
#[inline]
fn next_window(told: u64, room: u64, limit: u64) -> u64 {
    //= RFC 8684 3.3.4-1
    //= RFC 9293 MUST-39 SHLD-14 by a segment or half the buffer, and never back
    //= RFC 7323 2.4-a
    if room >= told + SEGMENT.min(limit / 2) { room } else { told }
}

/// The connection's receive buffer, as its subflows advertise it. All in bytes, positions in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveBuffer {
    /// Next byte expected in order.
    pub next: u64,
    /// Its size.
    pub limit: u64,
    /// In order, and not read yet.
    pub ready: u64,
    /// Out of order.
    pub out_of_order: u64,
    /// Kept until the peer answers MP_FAIL: no DATA_ACK covers it.
    pub held: u64,
    /// The largest window that autotuning allows (Linux's `rcv_ssthresh`).
    pub opened: u64,
    /// Right edge of the window that was advertised last. It never moves left.
    pub advertised_end: u64,
    /// How much of the window a byte in the buffer takes, in 256ths of a byte
    /// ([`receive_segment_memory`](crate::config::ConnectionConfig::receive_segment_memory)).
    pub byte_weight: u64,
}

impl Default for ReceiveBuffer {
    fn default() -> Self {
        ReceiveBuffer {
            next: 0,
            limit: 0,
            ready: 0,
            out_of_order: 0,
            held: 0,
            opened: 0,
            advertised_end: 0,
            byte_weight: WHOLE_BYTE,
        }
    }
}

impl ReceiveBuffer {
    /// What the buffer makes of window beside what it holds (Linux's `tcp_space`).
    #[inline]
    pub fn free(&self) -> u64 {
        let taken = (self.ready + self.out_of_order).saturating_mul(self.byte_weight) / WHOLE_BYTE;
        self.limit.saturating_sub(taken)
    }

    /// The window that is offered but for what was promised (`__tcp_select_window`).
    #[inline]
    pub fn offered(&self) -> u64 {
        self.free().min(self.opened)
    }

    /// The window to advertise: bytes that may arrive beyond `next`.
    #[inline]
    pub fn window(&self) -> u64 {
        // As in Linux (`__tcp_select_window`) data out of order reduces the window, although it lies inside:
        // the edge stands still while the queue grows.
        let room = self.offered();
        let advertised = self.advertised_end.saturating_sub(self.next);
        next_window(advertised, room, self.limit).saturating_sub(self.held)
    }

    /// Whether a window update is due (RFC 9293 3.8.6.2.2): reading has opened the window by two segments or
    /// half of the buffer, and the window that the peer knows of is less than a quarter of the buffer, or too
    /// small for a segment. In a window that is too small for a segment it may send nothing, and so get no
    /// ACK.
    #[inline]
    pub fn owes_update(&self) -> bool {
        let told = self.advertised_end.saturating_sub(self.next);
        let half = self.limit / 2;
        told < (self.limit / 4).max(SEGMENT.min(half)) && self.window() >= told + half.min(2 * SEGMENT)
    }

    /// The same in MPTCP 0.8x and 0.9x: reading has at least doubled a window of which half or less is left
    /// (`mptcp_cleanup_rbuf`).
    pub fn has_doubled(&self) -> bool {
        let told = self.advertised_end.saturating_sub(self.next);
        2 * told <= self.limit && self.offered() >= (2 * told).max(1)
    }

    /// Free space beyond `next`. The window may be larger: what was advertised isn't taken back.
    #[inline]
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.ready).saturating_sub(self.held)
    }
}

/// The window shift for a window that may grow to `max` bytes: Linux's for twice as much memory
/// (`tcp_select_initial_window`). The field can express twice the largest window, in the smallest such steps.
pub(super) fn shift_for(max: u64) -> u8 {
    let memory = max.saturating_mul(2).max(1);
    // With a shift above 14 old and new data couldn't be told apart by sequence number (RFC 7323 2.3).
    memory.ilog2().saturating_sub(15).min(14) as u8
}

/// A window in units of the scale.
#[inline]
pub(super) fn scaled(window: u64, room: u64, shift: u8) -> u64 {
    let below = (1 << shift) - 1;
    let up = (window + below) & !below;
    ((if up <= room { up } else { window }) >> shift).min(65_535)
}

#[cfg(test)]
mod tests {
    use super::{ReceiveBuffer, next_window, scaled, shift_for};

    /// `tcp_space` before Linux 6.6: half of what memory is left. 2304 bytes for a segment of 1428 take 1152
    /// of the window, 4352 more than its payload.
    #[test]
    fn what_is_held_takes_of_the_window_by_its_memory() {
        let window = |memory| {
            let config = crate::config::ConnectionConfig {
                receive_segment_memory: memory,
                short_dsn: true,
                ..crate::config::ConnectionConfig::default()
            };
            let buffer = ReceiveBuffer {
                limit: 1 << 20,
                opened: 1 << 20,
                ready: 100 * 1428,
                out_of_order: 100 * 1428,
                byte_weight: config.receive_byte_weight(),
                ..ReceiveBuffer::default()
            };
            (1 << 20) - buffer.window()
        };
        assert_eq!(window(0), 200 * 1428);
        assert!(window(2304).abs_diff(200 * 1152) < 1000, "{}", window(2304));
        assert!(window(4352).abs_diff(200 * 2176) < 1000, "{}", window(4352));
    }

    //= test RFC 7323 2.3-a
    #[test]
    fn the_shift_is_the_least_that_reaches_the_largest_window() {
        assert_eq!(shift_for(6 << 20), 8, "what a kernel announces with twice that in tcp_rmem");
        assert_eq!([0, 1000, 65_535].map(shift_for), [0, 0, 1]);
        assert_eq!(shift_for(u64::MAX), 14, "RFC 7323 allows no more");
        for max in (0..29).map(|bit| 3 << bit) {
            assert!(65_535 << shift_for(max) >= max, "{max}");
        }
    }

    //= test RFC 9293 MUST-39
    #[test]
    fn the_edge_moves_by_a_segment_or_half_the_buffer_or_not_at_all() {
        assert_eq!(next_window(0, 60_000, 60_000), 60_000);
        assert_eq!(next_window(50_000, 51_000, 60_000), 50_000, "a small read opens nothing");
        assert_eq!(next_window(50_000, 51_460, 60_000), 51_460);
        assert_eq!(next_window(0, 400, 1000), 0);
        assert_eq!(next_window(0, 500, 1000), 500, "half of a small buffer");
        assert_eq!(next_window(50_000, 10_000, 60_000), 50_000, "what was promised stands");
    }

    //= test RFC 7323 2.4-a
    #[test]
    fn scaling_rounds_a_promise_up_where_there_is_room() {
        assert_eq!(scaled(4096, 4096, 10), 4);
        assert_eq!(scaled(3000, 4096, 10), 3, "3072 of the 4096 that fit");
        assert_eq!(scaled(3000, 3000, 10), 2, "never beyond the room");
        assert_eq!(scaled(1 << 40, 1 << 40, 10), 65_535);
        assert_eq!(scaled(1000, 1000, 0), 1000);
    }

    /// Data arrives and is read at once, in odd sizes: the edge never moves back.
    #[test]
    fn the_edge_never_moves_back_while_there_is_room() {
        let (limit, shift) = (100_000, 10);
        let (mut next, mut edge) = (0u64, 0u64);
        for len in (1..400).map(|n| n * 7 % 1449 + 1) {
            next += len;
            let window = scaled(next_window(edge.saturating_sub(next), limit, limit), limit, shift) << shift;
            assert!(next + window >= edge && window <= limit);
            edge = next + window;
        }
    }
}
