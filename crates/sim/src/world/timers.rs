//! One heap of timers for what happens seldom: applications' wake-ups, datagram sources, series, and packets
//! of sources with an extra delay. Timers of the same time fire in the order in which they were set.

use std::cmp::Ordering;

use ropewalk_engine::Time;

use super::World;
use crate::packet::{Owner, Packet};

/// What a timer does.
#[derive(Debug)]
pub(crate) enum TimerEvent {
    /// An application (0: the workload's; i + 1: background source i's) starts.
    Start(usize),
    /// An application is called, as it asked for with [`Action::Wake`](crate::app::Action::Wake).
    Wake(usize, u32),
    /// A datagram source sends.
    Udp(usize),
    /// A packet enters a link after its source's extra delay.
    Enqueue(usize, Box<Packet>),
    /// The series are sampled.
    Sample,
    /// The client's path manager looks at a path's link.
    Watch(usize),
}

/// A timer.
#[derive(Debug)]
pub(crate) struct Timer {
    pub(crate) at: Time,
    pub(crate) order: u64,
    pub(crate) event: TimerEvent,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    /// Reversed: the heap's greatest element is the earliest timer.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl World {
    #[inline(never)]
    pub(super) fn set_timer(&mut self, at: Time, event: TimerEvent) {
        // An application may ask for a moment that has passed.
        self.timers.push(Timer { at: at.max(self.now), order: self.timer_order, event });
        self.timer_order += 1;
        let first = self.timers.peek().map(|timer| timer.at);
        self.network.events.set(self.network.links.len() + self.ends, first);
    }

    /// The first timer expires.
    #[inline(never)]
    pub(super) fn on_timer(&mut self) {
        let Some(timer) = self.timers.pop() else { return };
        let now = self.now;
        match timer.event {
            TimerEvent::Start(index) => {
                match index.checked_sub(1).and_then(|source| self.udp[source].as_mut()) {
                    Some(source) => {
                        let at = source.start(now);
                        self.set_timer(at, TimerEvent::Udp(index - 1));
                    }
                    None => {
                        self.with_app(index, |app, cx| app.start(cx));
                    }
                }
            }
            TimerEvent::Wake(app, token) => {
                self.with_app(app, |app, cx| app.wake(cx, token));
            }
            TimerEvent::Udp(source) => self.send_datagram(source),
            TimerEvent::Watch(path) => self.look_at_link(path),
            TimerEvent::Enqueue(link, packet) => self.network.enqueue(self.now, link, *packet),
            TimerEvent::Sample => {
                let at = Time::ZERO + (now - self.begin);
                self.hosts.sample(at, self.network.data_from, &mut self.network.meter.samples);
                if let Some(every) = self.spec.recording.samples_every {
                    self.set_timer(now.saturating_add(every), TimerEvent::Sample);
                }
            }
        }
        self.serve_endpoints();
    }

    fn send_datagram(&mut self, source: usize) {
        let background = &self.scenario.background[source];
        if background.stop.is_some_and(|stop| self.now >= stop) {
            return;
        }
        let Some(udp) = &mut self.udp[source] else { return };
        let (len, next) = udp.send(self.now);
        let link = self.network.topology.entry[background.path][background.direction.sender() as usize];
        let owner = Owner::Background(source as u16);
        let packet = Packet::datagram(owner, background.path as u16, len);
        self.set_timer(next, TimerEvent::Udp(source));
        self.network.enqueue(self.now, link, packet);
    }
}
