//! A subflow's deadlines: an enum that indexes a fixed array.

use crate::Nanos;

/// What may come due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Timer {
    /// Retransmission timeout (RFC 6298), also of SYN, SYN/ACK and FIN.
    Retransmit,
    /// Tail loss probe (RFC 8985 7).
    Probe,
    /// RACK's reordering window ends (RFC 8985 6.3).
    Reorder,
    /// A delayed ACK is due.
    DelayedAck,
    /// Zero-window probe (RFC 9293 3.8.6.1).
    Persist,
    /// Keep-alive, and the end of TIME-WAIT.
    Idle,
}

const COUNT: usize = 6;

/// What stands for a timer that is stopped: the least of all is then found without a branch.
const STOPPED: Nanos = Nanos::MAX;

/// All of a subflow's timers.
#[derive(Clone, Debug)]
pub(crate) struct Timers([Nanos; COUNT]);

impl Default for Timers {
    fn default() -> Self {
        Timers([STOPPED; COUNT])
    }
}

impl Timers {
    #[inline]
    pub fn set(&mut self, timer: Timer, at: Nanos) {
        self.0[timer as usize] = at;
    }

    #[inline]
    pub fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = STOPPED;
    }

    #[inline]
    pub fn get(&self, timer: Timer) -> Option<Nanos> {
        Some(self.0[timer as usize]).filter(|at| *at != STOPPED)
    }

    pub fn stop_all(&mut self) {
        self.0 = [STOPPED; COUNT];
    }

    /// The earliest.
    #[inline]
    pub fn next(&self) -> Option<Nanos> {
        let least = self.0.iter().fold(STOPPED, |least, at| least.min(*at));
        (least != STOPPED).then_some(least)
    }

    /// Stops `timer` and returns true if it is due.
    #[inline]
    pub fn expire(&mut self, timer: Timer, now: Nanos) -> bool {
        let due = self.0[timer as usize] <= now && self.0[timer as usize] != STOPPED;
        if due {
            self.0[timer as usize] = STOPPED;
        }
        due
    }
}
