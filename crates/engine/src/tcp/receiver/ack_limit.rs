//! Rate limits of ACKs that answer unacceptable segments.

use crate::{MILLISECOND, Nanos, SECOND};

/// Challenge ACKs per second (RFC 5961 7; Linux's limit is per host, this one per subflow).
const CHALLENGES: u32 = 10;

/// Least time between answers to segments without data that aren't acceptable (Linux's
/// `tcp_invalid_ratelimit`). Two ends that disagree would otherwise answer each other for ever.
const ANSWER_INTERVAL: Nanos = 500 * MILLISECOND;

/// When such ACKs were sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckLimit {
    /// When an unacceptable segment was last answered; 0: never.
    answered_at: Nanos,
    /// Challenge ACKs in the second that began at `challenge_at`.
    challenge_at: Nanos,
    challenges: u32,
}

impl AckLimit {
    //= RFC 5961 7-a challenge ACKs are rate-limited
    /// Whether a challenge ACK may be sent now. If so, it counts.
    pub fn allows_challenge(&mut self, now: Nanos) -> bool {
        if now >= self.challenge_at + SECOND {
            self.challenge_at = now;
            self.challenges = 0;
        }
        let allowed = self.challenges < CHALLENGES;
        self.challenges += u32::from(allowed);
        allowed
    }

    /// Whether another unacceptable segment may be answered now. If so, the answer counts.
    pub fn allows_answer(&mut self, now: Nanos) -> bool {
        let recent = self.answered_at != 0 && now < self.answered_at + ANSWER_INTERVAL;
        if !recent {
            self.answered_at = now.max(1);
        }
        !recent
    }
}
