//! Serves the endpoints: their events go to the applications, the applications' actions to the endpoints, and
//! segments to the links.

use ropewalk_engine::PathId;

use super::timers::TimerEvent;
use super::{FEW_CONNECTIONS, WORKLOAD, World};
use crate::Side;
use crate::app::{Action, App, AppContext};
use crate::hosts::AppEvent;
use crate::packet::{Owner, Packet};
use crate::recorder::UNTRACED;
use crate::result::Outcome;
use crate::topology::side_of;

impl World {
    /// Serves endpoints until none has anything to do.
    #[inline]
    pub(super) fn serve_endpoints(&mut self) {
        while self.dirty != 0 {
            // Always the lowest first: the order must not depend on what has made them dirty.
            let end = self.dirty.trailing_zeros() as usize;
            self.dirty &= self.dirty - 1;
            self.serve_endpoint(end);
        }
    }

    /// Dispatches an endpoint's events and transmits its segments until it has neither.
    fn serve_endpoint(&mut self, end: usize) {
        // In batches, connections aren't served in order of time: what all of them had queued at once isn't
        // known.
        if !self.many && end == self.network.data_from.other() as usize {
            let queued = self.hosts.end_ofo_bytes(end);
            self.network.meter.ofo_peak = self.network.meter.ofo_peak.max(queued);
        }
        self.dispatch_events(end);
        let timeout = loop {
            if end < 2 && self.is_unwatched() {
                let (network, now, side) = (&mut self.network, self.now, side_of(end));
                self.hosts.end_mut(end).transmit_all(now, 1, &mut self.to_send, |path, segment| {
                    network.transmit(now, side, path.0, UNTRACED, segment);
                });
            } else {
                self.transmit_singly(end);
            }
            let host = self.hosts.end_mut(end);
            if !host.has_event() {
                break host.poll_timeout();
            }
            self.dispatch_all_events(end);
        };
        self.check_pause();
        let source = self.network.links.len() + end;
        self.network.events.set(source, timeout);
    }

    /// Transmits one segment after another: of competing traffic, or where somebody observes or changes them.
    #[inline(never)]
    fn transmit_singly(&mut self, end: usize) {
        while let Some(path) = self.hosts.poll_transmit(end, self.now, &mut self.to_send) {
            self.transmit(end, path);
        }
    }

    /// Notifies the applications of an endpoint's events; returns whether there were any. Mostly there are
    /// none.
    #[inline]
    pub(crate) fn dispatch_events(&mut self, end: usize) -> bool {
        let any = self.hosts.has_event(end);
        if any {
            self.dispatch_all_events(end);
        }
        any
    }

    #[inline(never)]
    fn dispatch_all_events(&mut self, end: usize) {
        while self.hosts.has_event(end) {
            if let Some(id) = self.hosts.poll_readable(end) {
                if let Some((conn, total)) = self.hosts.read(end, self.now, id) {
                    let app = self.hosts.app(end >> 1, conn);
                    self.with_app(app, |app, cx| app.delivered(cx, conn, side_of(end), total));
                }
            } else if let Some(what) = self.hosts.poll_app_event(end, self.now, self.recorder.as_deref_mut())
            {
                self.on_app_event(end, what);
            }
        }
    }

    fn on_app_event(&mut self, end: usize, what: AppEvent) {
        let group = end >> 1;
        match what {
            AppEvent::Connected(conn) => {
                let app = self.hosts.app(group, conn);
                self.with_app(app, |app, cx| app.connected(cx, conn, side_of(end)));
            }
            AppEvent::Nothing => {}
            AppEvent::Failed(conn, reason) => {
                if self.hosts.app(group, conn) == WORKLOAD && self.outcome.is_none() {
                    let name = match side_of(end) {
                        Side::Client => "client",
                        Side::Server => "server",
                    };
                    self.outcome = Some(Outcome::Failed(format!("connection {conn}, {name}: {reason}")));
                }
            }
        }
    }

    /// Calls an application, and performs the actions that it asks for.
    #[inline]
    pub(super) fn with_app(&mut self, index: usize, call: impl FnOnce(&mut dyn App, &mut AppContext<'_>)) {
        let group = usize::from(index != WORKLOAD);
        let next = self.hosts.next_conn(group);
        call(&mut *self.apps[index], &mut AppContext { now: self.now, actions: &mut self.actions, next });
        if self.outcome.is_none()
            && self.apps[WORKLOAD].done()
            && !self.apps.iter().any(|app| app.delays_end())
        {
            self.outcome = Some(Outcome::Complete);
        }
        if !self.actions.is_empty() {
            let mut actions = std::mem::take(&mut self.actions);
            for action in actions.drain(..) {
                self.perform(index, group, action);
            }
            self.actions = actions;
        }
    }

    #[inline(never)]
    fn perform(&mut self, app: usize, group: usize, action: Action) {
        let now = self.now;
        match action {
            Action::Wake(at, token) => self.set_timer(at, TimerEvent::Wake(app, token)),
            Action::Open(conn) => {
                if let Err(error) = self.hosts.open(group, now, app, conn) {
                    self.on_app_event(2 * group, AppEvent::Failed(conn, error.to_string()));
                }
                self.dirty |= 1 << (2 * group);
                self.many |= group == 0 && conn as usize >= FEW_CONNECTIONS;
            }
            Action::Send(conn, side, bytes) => {
                self.hosts.send(group, now, conn, side, bytes);
                self.dirty |= 1 << (2 * group + side as usize);
            }
            Action::Declare(conn, side, bytes) => self.hosts.declare(group, conn, side, bytes),
            Action::Message(conn, side, bytes, deadline) => {
                self.hosts.begin_message(group, now, conn, side, bytes, deadline);
            }
            Action::Finish(conn, side) => {
                // Before the FIN: a connection that closes isn't independent of the others any more.
                self.exclude_from_batches(group, conn);
                self.hosts.shut(group, now, conn, side);
                self.dirty |= 1 << (2 * group + side as usize);
            }
            Action::Stop(conn) => {
                self.exclude_from_batches(group, conn);
                self.hosts.stop(group, now, conn);
                self.dirty |= 3 << (2 * group);
            }
        }
    }

    /// A connection is about to be closed, by one side at least.
    fn exclude_from_batches(&mut self, group: usize, conn: u32) {
        if let Some(ahead) = self.lookahead.as_mut().filter(|_| group == 0) {
            for (side, slot) in [Side::Client, Side::Server].into_iter().zip(self.hosts.slots(conn)) {
                if let Some(slot) = slot {
                    ahead.remove(side, slot);
                }
            }
        }
    }

    /// A segment leaves an endpoint.
    #[inline]
    fn transmit(&mut self, end: usize, path: PathId) {
        let side = side_of(end);
        if end >= 2 {
            self.transmit_background(side, path);
            return;
        }
        if let Some(middlebox) = &mut self.middlebox {
            // Before it is recorded: a trace shows what the link carries.
            middlebox.process(self.now, side, path.0 as usize, &mut self.to_send);
        }
        let trace = if self.recorder.is_some() { self.record_sending(side, path) } else { UNTRACED };
        self.network.transmit(self.now, side, path.0, trace, &mut self.to_send);
    }

    #[inline(never)]
    fn record_sending(&mut self, side: Side, path: PathId) -> u32 {
        let Some(recorder) = &mut self.recorder else { return UNTRACED };
        let segment = &self.to_send;
        let trace = recorder.sent(self.now, side, path.0, segment);
        if recorder.may_be_duplicate(trace) {
            recorder.classify_duplicate(trace, self.hosts.scheduler_repeated_bytes(self.now, side));
        }
        recorder.notify_sent(self.now, side, path, trace, segment);
        trace
    }

    #[inline(never)]
    fn transmit_background(&mut self, side: Side, path: PathId) {
        let (source, on) = self.background_paths[path.0 as usize];
        let background = &self.scenario.background[source];
        if let Some(middlebox) = &mut self.middlebox {
            middlebox.process(self.now, side, on, &mut self.to_send);
        }
        let link = self.network.topology.entry[on][side as usize];
        let owner = Owner::Background(path.0);
        let (segment, path) = (&mut self.to_send, on as u16);
        let packet = Packet::new(segment, owner, path, UNTRACED, &mut self.network.pool);
        if background.extra_delay.is_zero() {
            self.network.enqueue(self.now, link, packet);
        } else {
            let at = self.now.saturating_add(background.extra_delay);
            self.set_timer(at, TimerEvent::Enqueue(link, Box::new(packet)));
        }
    }
}
