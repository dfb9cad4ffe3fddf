//! The round-trip time that a receiver of data measures.

use crate::{MILLISECOND, Span};

/// The estimate, and the echo that gave its last sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceiveRtt {
    rtt: Span,
    echo: u32,
}

impl ReceiveRtt {
    /// The estimate; 0 before the first sample.
    pub fn rtt(&self) -> Span {
        self.rtt
    }

    /// Whether this echo gave the last sample.
    #[inline]
    pub fn has_seen(&self, echo: u32) -> bool {
        self.echo == echo
    }

    /// Takes a sample from an echo that arrived when the timestamp clock was `clock`.
    #[inline]
    pub fn sample(&mut self, echo: u32, clock: u32) {
        self.echo = echo;
        // The clock ticks in milliseconds: a sample of 0 says nothing.
        let sample = u64::from(clock.wrapping_sub(echo)) * MILLISECOND;
        self.rtt = match (self.rtt, sample) {
            (known, Span::ZERO) => known,
            (known, sample) if known == Span::ZERO || sample < known => sample,
            (known, sample) => known - known / 8 + sample / 8,
        };
    }
}
