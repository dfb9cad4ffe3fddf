//! What is due to be sent beside the data of the queue.

/// A FIN, after the queue.
pub(super) const FIN: u8 = 1;
/// A tail loss probe (RFC 8985 7.3).
pub(super) const LOSS_PROBE: u8 = 2;
/// A probe of a closed window or of a silent peer (RFC 9293 3.8.4, 3.8.6.1).
pub(super) const WINDOW_PROBE: u8 = 4;

/// A set of these.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Due(u8);

impl Due {
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub fn has(self, what: u8) -> bool {
        self.0 & what != 0
    }

    #[inline]
    pub fn add(&mut self, what: u8) {
        self.0 |= what;
    }

    /// Removes it. Returns whether it was due.
    #[inline]
    pub fn take(&mut self, what: u8) -> bool {
        let due = self.has(what);
        self.0 &= !what;
        due
    }
}
