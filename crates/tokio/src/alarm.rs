//! What wakes a driver at a given time: tokio's timer, which may be a millisecond late, and a timer of the
//! kernel's (timerfd) for deadlines within 2 ms.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use ropewalk_engine::{Span, Time};
use tokio::io::unix::AsyncFd;

use crate::clock::Clock;

/// Deadlines further away than this are left to tokio's timer.
const SOON: Span = Span::from_millis(2);

/// The kernel's timer, as tokio registers it.
#[derive(Debug)]
struct Exact(TimerFd);

impl AsRawFd for Exact {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: Clock,
    sleep: Pin<Box<tokio::time::Sleep>>,
    /// `None` if the kernel refused one: then only tokio's timer wakes.
    exact: Option<AsyncFd<Exact>>,
    at: Time,
}

impl Alarm {
    /// An alarm that isn't set. It has to be made in the runtime that waits for it.
    #[expect(
        deprecated,
        reason = "its successor is unsafe; an `Exact` owns its one descriptor for as long as it lives"
    )]
    pub fn new(clock: Clock) -> Alarm {
        let sleep = Box::pin(tokio::time::sleep_until(clock.instant(Time::ZERO)));
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let exact = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).ok();
        let exact = exact.and_then(|timer| AsyncFd::new(Exact(timer)).ok());
        Alarm { clock, sleep, exact, at: Time::MAX }
    }

    /// The time that it is set for; [`Time::MAX`]: none.
    pub fn at(&self) -> Time {
        self.at
    }

    /// Sets it for `at`, unless it is set for an earlier time: to wake early is cheaper than to set it
    /// anew with each segment.
    pub fn set_no_later(&mut self, now: Time, at: Time) {
        if at >= self.at {
            return;
        }
        self.at = at;
        self.sleep.as_mut().reset(self.clock.instant(at));
        let left = at.saturating_sub(now);
        if left < SOON
            && let Some(timer) = &self.exact
        {
            // A span of 0 would unset it.
            let left = TimeSpec::from_duration(left.max(Span::from_nanos(1)).into());
            // If this fails, tokio's timer wakes the driver, up to a millisecond later.
            let _ = timer.get_ref().0.set(Expiration::OneShot(left), TimerSetTimeFlags::empty());
        }
    }

    /// Ready once the time has come; then it isn't set any more.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.at == Time::MAX {
            return Poll::Pending;
        }
        if self.sleep.as_mut().poll(cx).is_pending() {
            ready!(self.poll_exact(cx));
        }
        self.at = Time::MAX;
        Poll::Ready(())
    }

    /// The same, of the kernel's timer. It runs on while the runtime's clock is paused: then the time hasn't
    /// come when it fires, and tokio's timer wakes.
    fn poll_exact(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(timer) = &self.exact else { return Poll::Pending };
        loop {
            let Ok(mut guard) = ready!(timer.poll_read_ready(cx)) else { return Poll::Pending };
            let _ = timer.get_ref().0.wait();
            guard.clear_ready();
            if self.clock.now() >= self.at {
                return Poll::Ready(());
            }
        }
    }
}
