//! Rate limits of ACKs that answer unacceptable segments.

use crate::{SECOND, Span, Time};

/// Challenge ACKs per second (RFC 5961 7; Linux's limit is per host, this one per subflow).
const CHALLENGES: u32 = 10;

/// Least time between answers to segments without data that aren't acceptable (Linux's
/// `tcp_invalid_ratelimit`). Two ends that disagree would otherwise answer each other for ever.
const ANSWER_INTERVAL: Span = Span::from_millis(500);

/// When such ACKs were sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckLimit {
    /// When an unacceptable segment was last answered.
    answered_at: Option<Time>,
    /// Challenge ACKs in the second that began at `challenge_at`.
    challenge_at: Time,
    challenges: u32,
}

impl AckLimit {
    //= RFC 5961 7-a challenge ACKs are rate-limited
    /// Whether a challenge ACK may be sent now. If so, it counts.
    pub fn allows_challenge(&mut self, now: Time) -> bool {
        if now >= self.challenge_at + SECOND {
            self.challenge_at = now;
            self.challenges = 0;
        }
        let allowed = self.challenges < CHALLENGES;
        self.challenges += u32::from(allowed);
        allowed
    }

    /// Whether another unacceptable segment may be answered now. If so, the answer counts.
    pub fn allows_answer(&mut self, now: Time) -> bool {
        let recent = self.answered_at.is_some_and(|at| now < at + ANSWER_INTERVAL);
        if !recent {
            self.answered_at = Some(now);
        }
        !recent
    }
}
