//! CoDel (RFC 8289), for downloads that wait: their senders learn early that they send too much, by few
//! losses.

use crate::{MILLISECOND, SECOND};

/// What may wait for long, as time: a sender that takes 0.7 of its window (CUBIC) still fills links of 50 ms.
const TARGET: u64 = 20 * MILLISECOND;
/// For how long more may wait.
const INTERVAL: u64 = 100 * MILLISECOND;

/// The state of RFC 8289, 4.4.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CoDel {
    first_above: Option<u64>,
    drop_next: u64,
    count: u32,
    last_count: u32,
    is_dropping: bool,
}

impl CoDel {
    fn next(&self, at: u64) -> u64 {
        at + (INTERVAL as f64 / f64::from(self.count.max(1)).sqrt()) as u64
    }

    /// Whether the first packet, which has waited for so long, is to be dropped.
    pub fn drops(&mut self, now: u64, waited: u64) -> bool {
        let is_above = match waited < TARGET {
            true => {
                self.first_above = None;
                false
            }
            false => now >= *self.first_above.get_or_insert(now + INTERVAL),
        };
        if !is_above {
            self.is_dropping = false;
            return false;
        }
        if self.is_dropping {
            if now < self.drop_next {
                return false;
            }
            self.count += 1;
            self.drop_next = self.next(self.drop_next);
            return true;
        }
        self.is_dropping = true;
        let since = self.count - self.last_count.min(self.count);
        let is_recent = now.saturating_sub(self.drop_next) < 16 * INTERVAL.min(SECOND);
        self.count = if since > 1 && is_recent { since } else { 1 };
        self.drop_next = self.next(now);
        self.last_count = self.count;
        true
    }
}
