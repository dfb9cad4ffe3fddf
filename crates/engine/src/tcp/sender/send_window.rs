//! The window that the peer advertises (RFC 9293 3.8.6).

use crate::tcp::context::Context;
use crate::{SECOND, Span};

/// SND.WND and what goes with it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct SendWindow {
    //= RFC 9293 REC-1
    /// SND.WND.
    size: u64,
    /// SND.WL1 and SND.WL2: position and acknowledgement of the segment that set it.
    set_by: (u64, u64),
    /// The largest window ever.
    max: u64,
    /// Probes of a closed window since it closed.
    probes: u32,
}

impl SendWindow {
    /// The window of a SYN.
    pub fn of_syn(size: u64) -> Self {
        SendWindow { size, max: size, ..SendWindow::default() }
    }

    /// The window of the segment that completes the handshake.
    pub fn complete_handshake(&mut self, size: u64, position: u64, ack: u64) {
        self.size = size;
        self.set_by = (position, ack);
    }

    #[inline]
    pub fn size(&self) -> u64 {
        self.size
    }

    #[inline]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Whether a segment may set the window: it isn't older than the one that did (RFC 9293 3.10.7.4). A
    /// repeated segment that acknowledges more is newer, whatever its position: else what it acknowledges
    /// would move an old window on (Linux's `tcp_may_update_window`).
    #[inline]
    pub fn may_be_set_by(&self, position: u64, ack: u64) -> bool {
        let (newest, acked) = self.set_by;
        ack > acked || position > newest || (position == newest && ack == acked)
    }

    //= RFC 9293 MUST-34 smaller or larger than the last
    /// A segment sets the window. Returns whether it opened or moved after probes: then no probe is due.
    #[inline]
    pub fn set(&mut self, size: u64, position: u64, ack: u64) -> bool {
        let ends_probing = size > 0 && (self.probes > 0 || self.size == 0);
        if ends_probing {
            self.probes = 0;
        }
        self.size = size;
        self.max = self.max.max(size);
        self.set_by = (position.max(self.set_by.0), ack);
        ends_probing
    }

    //= RFC 9293 MUST-35 MUST-36 SHLD-29 SHLD-30 first after a timeout, then at increasing intervals
    /// The time until the next probe of a closed window; for one that is open, the override timeout for less
    /// than a segment.
    pub fn probe_interval(&self, cx: &Context<'_>, is_open: bool) -> Span {
        let base = cx.metrics.rto.max(cx.tcp.rto.min);
        //= RFC 9293 MUST-38 the override timeout is 0.1 to 1 second
        let most = if is_open { SECOND } else { cx.tcp.rto.max };
        base.saturating_mul(1 << self.probes.min(16)).min(most)
    }

    /// A probe is sent.
    pub fn on_probe(&mut self) {
        self.probes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::SendWindow;

    #[test]
    fn an_older_segment_doesnt_set_the_window() {
        let mut window = SendWindow::of_syn(1000);
        window.set(2000, 100, 50);
        for (position, ack, sets) in [
            (101, 1, true),
            (100, 50, true),
            (100, 51, true),
            (100, 49, false),
            (99, 50, false),
            (99, 51, true),
        ] {
            assert_eq!(window.may_be_set_by(position, ack), sets, "{position}, {ack}");
        }
        assert_eq!((window.size(), window.max()), (2000, 2000));
    }
}
