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

/// All of a subflow's timers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers([Option<Nanos>; COUNT]);

impl Timers {
    #[inline]
    pub fn set(&mut self, timer: Timer, at: Nanos) {
        self.0[timer as usize] = Some(at);
    }

    #[inline]
    pub fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    #[inline]
    pub fn get(&self, timer: Timer) -> Option<Nanos> {
        self.0[timer as usize]
    }

    pub fn stop_all(&mut self) {
        self.0 = [None; COUNT];
    }

    /// The earliest.
    #[inline]
    pub fn next(&self) -> Option<Nanos> {
        self.0.iter().flatten().min().copied()
    }

    /// Stops `timer` and returns true if it is due.
    #[inline]
    pub fn expire(&mut self, timer: Timer, now: Nanos) -> bool {
        match self.0[timer as usize] {
            Some(at) if at <= now => {
                self.0[timer as usize] = None;
                true
            }
            _ => false,
        }
    }
}
