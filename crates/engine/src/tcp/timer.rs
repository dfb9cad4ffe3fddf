//! A subflow's timers: an enum that indexes a fixed array of deadlines.

use crate::Time;

/// The timers.
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
    /// The pacing rate admits more data (model-based congestion controls only).
    Pace,
    /// Keep-alive, and the end of TIME-WAIT. The last one: `COUNT` follows from it.
    Idle,
}

const COUNT: usize = Timer::Idle as usize + 1;

/// The deadline of a stopped timer. The minimum needs no branch that way.
const STOPPED: Time = Time::MAX;

/// The deadlines of all timers.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    at: [Time; COUNT],
    /// A lower bound of all deadlines. Setting a timer lowers it, only [`Timers::refresh`] raises it. Whoever
    /// waits for the earliest deadline computes it only when it may have changed.
    floor: Time,
}

impl Default for Timers {
    fn default() -> Self {
        Timers { at: [STOPPED; COUNT], floor: STOPPED }
    }
}

impl Timers {
    #[inline]
    pub fn set(&mut self, timer: Timer, at: Time) {
        self.at[timer as usize] = at;
        self.floor = self.floor.min(at);
    }

    #[inline]
    pub fn stop(&mut self, timer: Timer) {
        self.at[timer as usize] = STOPPED;
    }

    #[inline]
    pub fn get(&self, timer: Timer) -> Option<Time> {
        Some(self.at[timer as usize]).filter(|at| *at != STOPPED)
    }

    pub fn stop_all(&mut self) {
        self.at = [STOPPED; COUNT];
    }

    /// The earliest deadline.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        let least = self.at.iter().fold(STOPPED, |least, at| least.min(*at));
        (least != STOPPED).then_some(least)
    }

    /// A lower bound of the earliest deadline.
    #[inline]
    pub fn floor(&self) -> Time {
        self.floor
    }

    /// Makes the lower bound exact, and returns it.
    pub fn refresh(&mut self) -> Time {
        self.floor = self.next().unwrap_or(STOPPED);
        self.floor
    }

    /// Stops `timer` and returns true if it is due.
    #[inline]
    pub fn expire(&mut self, timer: Timer, now: Time) -> bool {
        let due = self.at[timer as usize] <= now && self.at[timer as usize] != STOPPED;
        if due {
            self.at[timer as usize] = STOPPED;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::{Timer, Timers};
    use crate::Time;

    #[test]
    fn the_floor_is_never_after_the_earliest() {
        let mut timers = Timers::default();
        timers.set(Timer::Retransmit, Time::from_nanos(50));
        timers.set(Timer::DelayedAck, Time::from_nanos(40));
        assert_eq!((timers.next(), timers.floor()), (Some(Time::from_nanos(40)), Time::from_nanos(40)));
        timers.stop(Timer::DelayedAck);
        assert_eq!(
            (timers.next(), timers.floor()),
            (Some(Time::from_nanos(50)), Time::from_nanos(40)),
            "a lower bound"
        );
        timers.refresh();
        assert_eq!(timers.floor(), Time::from_nanos(50));
        timers.set(Timer::Retransmit, Time::from_nanos(90));
        assert!(
            !timers.expire(Timer::Retransmit, Time::from_nanos(89)) && timers.floor() == Time::from_nanos(50)
        );
        assert!(timers.expire(Timer::Retransmit, Time::from_nanos(90)) && timers.next().is_none());
    }
}
