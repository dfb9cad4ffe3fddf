//! The monotonic clock, and a wait that ends on time.
//!
//! A sleep alone is late by 50 to 100 us at the median; sleeping short of the moment and spinning the rest
//! brings that below a microsecond. How late it still was is kept in a histogram, which stands beside every
//! result: a real-time run is only as good as its clock.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::histogram::Histogram;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use ropewalk_engine::{Span, Time};

/// How long before the moment the sleep ends and the spin begins.
const SPIN: Span = Span::from_micros(60);
/// The same where every moment counts: an idle virtual processor takes up to a millisecond to be woken.
const LONG_SPIN: Span = Span::from_millis(1);
/// Over so long it is judged whether the long spin leaves anything to sleep. Linux stops a thread of
/// real-time priority that doesn't sleep for a twentieth of each second (`sched_rt_runtime_us`), and all of
/// that at once.
const JUDGED: Span = Span::from_millis(20);

/// The monotonic clock, from an origin of its own.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Span,
}

impl Clock {
    /// A clock that starts at 0 now.
    pub fn start() -> Self {
        Clock { origin: monotonic() }
    }

    /// Now, from its start.
    #[inline]
    pub fn now(&self) -> Time {
        Time::ZERO + (monotonic() - self.origin)
    }
}

fn monotonic() -> Span {
    // clock_gettime(CLOCK_MONOTONIC) can't fail on Linux; 0 would only end waits at once.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Span::ZERO, |time| Span::saturating_from(time.into()))
}

/// The wall clock: how long it is since 1970.
pub fn since_1970() -> Span {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(Span::ZERO, |time| Span::saturating_from(time.into()))
}

/// Asks for real-time priority for the calling thread, so that other programs don't make it late; whether it
/// was granted. An ordinary user isn't granted it: the lateness then shows how busy the machine was.
pub fn request_real_time() -> bool {
    // SAFETY: it consists of integers. musl's has more fields than glibc's.
    let mut least: nix::libc::sched_param = unsafe { std::mem::zeroed() };
    least.sched_priority = 1;
    // Threads and programs started from here have ordinary priority again.
    let policy = nix::libc::SCHED_FIFO | nix::libc::SCHED_RESET_ON_FORK;
    // SAFETY: thread 0 is the calling one, and the kernel reads one sched_param, which lives across the call.
    unsafe { nix::libc::sched_setscheduler(0, policy, &raw const least) == 0 }
}

/// Waits for descriptors or a moment, whichever is first, and keeps how late it was.
#[derive(Debug)]
pub struct Waiter {
    clock: Clock,
    spin: Span,
    lateness: Histogram,
    /// Since when it is judged, how long it has slept since, and what came of the time before.
    judged_since: Time,
    slept: Span,
    is_tired: bool,
}

impl Waiter {
    /// A waiter on `clock`. The calling thread's timer slack is set to the least (1 ns).
    pub fn new(clock: Clock) -> Self {
        // Without it the kernel may delay a sleep by 50 us; if it is refused, the lateness shows it.
        let _ = nix::sys::prctl::set_timerslack(1);
        Waiter {
            clock,
            spin: SPIN,
            lateness: Histogram::default(),
            judged_since: Time::ZERO,
            slept: Span::ZERO,
            is_tired: false,
        }
    }

    /// From now on it is on time at the cost of a processor that hardly sleeps. Where moments follow each
    /// other so closely that it wouldn't sleep at all, the spin is short for part of the time: then the
    /// processor is awake anyway.
    pub fn spin_long(&mut self) {
        self.spin = LONG_SPIN;
    }

    /// How long before the moment the spin begins, at `now`.
    fn distance(&mut self, now: Time) -> Span {
        let judged = now - self.judged_since;
        if judged >= JUDGED {
            self.is_tired = self.slept < judged / 5;
            (self.judged_since, self.slept) = (now, Span::ZERO);
        }
        if self.is_tired { SPIN } else { self.spin }
    }

    /// Returns when a descriptor is readable or at `until`; `None` waits for a descriptor alone.
    ///
    /// # Errors
    /// What `ppoll` returns; an interruption by a signal is no error.
    pub fn wait(&mut self, descriptors: &[BorrowedFd<'_>], until: Option<Time>) -> io::Result<()> {
        let mut fds: Vec<_> = descriptors.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        loop {
            let now = self.clock.now();
            let left = until.map(|moment| moment.saturating_sub(now));
            if left == Some(Span::ZERO) {
                self.lateness.record((now - until.unwrap_or(now)).as_nanos());
                return Ok(());
            }
            // Within the spin's distance only look, don't sleep.
            let distance = self.distance(now);
            let sleep = left.map(|left| left.saturating_sub(distance));
            let found = ppoll(&mut fds, sleep.map(|sleep| TimeSpec::from(Duration::from(sleep))), None);
            if sleep != Some(Span::ZERO) {
                self.slept += self.clock.now() - now;
            }
            match found {
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How late the waits for a moment ended, in nanoseconds.
    pub fn lateness(&self) -> &Histogram {
        &self.lateness
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::{Span, Time};

    use super::{Clock, Waiter};

    #[test]
    fn a_wait_never_ends_early_and_says_how_late_it_was() {
        let clock = Clock::start();
        let mut waiter = Waiter::new(clock);
        for _ in 0..20 {
            let until = clock.now() + Span::from_micros(300);
            waiter.wait(&[], Some(until)).unwrap();
            assert!(clock.now() >= until);
        }
        assert_eq!(waiter.lateness().len(), 20);
    }

    #[test]
    fn a_long_spin_leaves_the_processor_to_others_at_times() {
        let used = || {
            let id = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
            std::time::Duration::from(nix::time::clock_gettime(id).unwrap()).as_secs_f64()
        };
        let clock = Clock::start();
        let mut waiter = Waiter::new(clock);
        waiter.spin_long();
        let before = used();
        while clock.now() < Time::ZERO + Span::from_millis(400) {
            let until = clock.now() + Span::from_micros(120);
            waiter.wait(&[], Some(until)).unwrap();
        }
        let share = (used() - before) / (clock.now().as_secs_f64());
        assert!(share < 0.93, "{share}");
    }

    #[test]
    fn a_readable_descriptor_ends_the_wait() {
        use std::io::Write;
        use std::os::fd::AsFd;
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"x").unwrap();
        let clock = Clock::start();
        let until = clock.now() + Span::from_secs(60);
        Waiter::new(clock).wait(&[reader.as_fd()], Some(until)).unwrap();
        assert!(clock.now() < until);
    }
}
