//! The task that runs a shard.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::entries::register;
use crate::shard::Shard;

/// The task that runs a shard: it receives, keeps the time, and ends when the shard is closed.
pub(crate) struct Driver {
    shards: Vec<Arc<Shard>>,
    index: usize,
    clock: Clock,
    alarm: Alarm,
}

impl Driver {
    /// The driver of shard `index`. It has to be made in the runtime that runs it.
    pub fn new(shards: Vec<Arc<Shard>>, index: usize, clock: Clock) -> Driver {
        Driver { shards, index, clock, alarm: Alarm::new(clock) }
    }

    fn run(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let shard = &self.shards[self.index];
        let arrived = {
            let mut mailbox = shard.mailbox();
            register(&mut mailbox.driver, cx.waker());
            std::mem::take(&mut mailbox.segments)
        };
        let mut state = shard.lock();
        state.counters.polls += 1;
        let now = self.clock.now();
        for (path, segment) in arrived {
            state.on_segment(now, path, segment);
        }
        let mut more = state.receive(cx);
        let now = self.clock.now();
        if state.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            state.endpoint.on_timeout(now);
        }
        more |= state.transmit_and_notify(now);
        self.alarm.set_no_later(now, state.next_deadline());
        state.armed = self.alarm.at();
        let is_over = state.is_closing && state.endpoint.is_empty();
        let wakers = std::mem::take(&mut state.wakers);
        let handovers = std::mem::take(&mut state.handovers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        for (to, path, segment) in handovers {
            self.shards[to].mailbox().segments.push((path, segment));
            self.shards[to].wake();
        }
        if is_over {
            return Poll::Ready(());
        }
        if more || self.alarm.poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.run(cx)
    }
}

impl Drop for Driver {
    /// The runtime ends: nobody will move packets any more.
    fn drop(&mut self) {
        let shard = &self.shards[self.index];
        shard.set_ended();
        let mut state = shard.lock();
        state.end_all();
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}
