//! Detection of a black hole: a path that drops large packets without a word (RFC 4821 7.7, Linux's
//! `tcp_mtu_probing`).

use crate::{Span, Time};

/// Timeouts of one segment after which a black hole is suspected (Linux's `tcp_retries1`). Any timeout after
/// the first that comes `LONG` later counts as well, as in Linux: three timeouts and the wait after them, had
/// they begun with the shortest. Where a timeout lasts for seconds, the third would come too late.
const SUSPICIOUS: u32 = 3;
const LONG: Span = Span::from_millis(3_000);

/// MSS that are tried then, TCP's options included. Over IPv4: Linux's `tcp_base_mss` and half of it. Over
/// IPv6: what every link carries whole (RFC 8200 5).
const TRIED_V4: &[u32] = &[1024, 512];
const TRIED_V6: &[u32] = &[1280 - 60];

/// Suspicion of a black hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct BlackHole {
    /// The path MTU before the first suspicion.
    before: u32,
    /// How many smaller ones have been tried since.
    tried: usize,
    /// When the first timeout was.
    since: Time,
}

impl BlackHole {
    /// Another timeout, after `timeouts` in a row. Returns whether the size may be the cause.
    pub fn on_timeout(&mut self, now: Time, timeouts: u32) -> bool {
        if timeouts == 0 {
            self.since = now;
        }
        // `timeouts` doesn't count this one yet.
        timeouts + 1 >= SUSPICIOUS || now >= self.since + LONG
    }

    /// Whether smaller segments are being tried.
    #[inline]
    pub fn is_suspected(&self) -> bool {
        self.tried > 0
    }

    /// The next MSS to try with a path MTU of `mtu`.
    pub fn next_mss(&mut self, is_ipv4: bool, mtu: u32) -> Option<u32> {
        // Each attempt lowers the path MTU itself, so it is remembered before the first.
        if self.tried == 0 {
            self.before = mtu;
        }
        let mss = *if is_ipv4 { TRIED_V4 } else { TRIED_V6 }.get(self.tried)?;
        self.tried += 1;
        Some(mss)
    }

    /// The path MTU before the first suspicion.
    pub fn mtu_before(&self) -> u32 {
        self.before
    }
}
