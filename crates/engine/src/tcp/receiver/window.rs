//! The receive window as it goes on the wire (RFC 9293 3.8.6.2.2, RFC 7323 2.4).
//!
//! The right edge isn't taken back: where scaling can't say exactly what is left of a promise, it is rounded up, as
//! long as there is room for that; where there isn't, by less than one unit of the scale, which RFC 7323 2.4 allows.
//! That the edge moves in steps (silly window avoidance) is the buffer's rule: `ReceiveSide::window`.

use ropewalk_wire::Payload;

use crate::tcp::{Context, Subflow};

/// Least step of the right edge: a segment of the usual size, or half of a small buffer.
const SEGMENT: u64 = 1460;

/// The window to advertise with `room` for more bytes, when `told` are left of what was promised and the whole buffer
/// takes `limit`.
#[inline]
pub(crate) fn next_window(told: u64, room: u64, limit: u64) -> u64 {
    //= RFC 8684 3.3.4-1
    //= RFC 9293 MUST-39 SHLD-14 by a segment or half the buffer, and never back
    if room >= told + SEGMENT.min(limit / 2) { room } else { told }
}

/// The window shift for a buffer that may grow to `max` bytes of window: Linux's for twice as much memory
/// (`tcp_select_initial_window`). The field reaches twice as far as the window ever will, in steps as small as that allows.
pub(in crate::tcp) fn shift_for(max: u64) -> u8 {
    let memory = max.saturating_mul(2).max(1);
    memory.ilog2().saturating_sub(15).min(14) as u8
}

/// A window in units of the scale.
#[inline]
fn scaled(window: u64, room: u64, shift: u8) -> u64 {
    let up = window.div_ceil(1 << shift);
    let units = if up << shift <= room { up } else { window >> shift };
    units.min(65_535)
}

/// The connection's receive buffer, as its subflows advertise it. All in bytes, positions in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiveBuffer {
    /// Next byte expected in order.
    pub next: u64,
    /// What may be held.
    pub limit: u64,
    /// In order, and not read yet.
    pub ready: u64,
    /// Out of order.
    pub out_of_order: u64,
    /// Not in order yet, since the peer's answer to MP_FAIL is awaited: no DATA_ACK covers it.
    pub held: u64,
    /// How far the window is opened of what the buffer would allow.
    pub opened: u64,
    /// Right edge of the window that was last advertised; it never moves left.
    pub advertised_end: u64,
}

impl ReceiveBuffer {
    /// What may still arrive beyond `next`: the window to advertise.
    #[inline]
    pub fn window(&self) -> u64 {
        // As Linux has it (`__tcp_select_window`), what waits out of order takes its memory from what is offered, though it
        // lies inside the window already: the edge stands still while the queue grows.
        let room = self.limit.saturating_sub(self.ready).saturating_sub(self.out_of_order).min(self.opened);
        let told = self.advertised_end.saturating_sub(self.next);
        next_window(told, room, self.limit).saturating_sub(self.held)
    }

    /// What there is room for beyond `next`. The window may be larger, as what was promised isn't taken back.
    #[inline]
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.ready).saturating_sub(self.held)
    }
}

impl<P: Payload> Subflow<P> {
    /// The window field of a segment that leaves now.
    #[inline]
    pub(in crate::tcp) fn advertise(&mut self, cx: &Context<'_>, shift: u8) -> u64 {
        let units = scaled(cx.shared.receive.window(), cx.shared.receive.room(), shift);
        let window = units << shift;
        if (window == 0) != (self.window_told == 0) {
            self.counters.to_zero_window += u64::from(window == 0);
            self.counters.from_zero_window += u64::from(window > 0 && self.rcv_nxt > 1);
        }
        self.window_told = window;
        self.rcv_edge = self.rcv_edge.max(self.rcv_nxt + window);
        units
    }
}

#[cfg(test)]
mod tests {
    use super::{next_window, scaled, shift_for};

    //= test RFC 7323 2.2
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

    //= test RFC 7323 2.4
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
