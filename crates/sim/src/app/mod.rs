//! Applications: what the two ends say to each other, one file per workload.
//!
//! An application is both ends' programs in one object. It hears what happened and answers with actions,
//! which the world carries out in order; so an application never holds the world, and a test drives one
//! without a network.

mod bulk;
mod cbr;
mod cross_traffic;
mod exchange;
mod flows;
mod web;

use std::fmt::Debug;

use crate::result::FlowResult;
use crate::spec::{Scenario, Workload};
use crate::{Nanos, Side};

pub(crate) use cross_traffic::CrossTraffic;

/// Bytes that a client sends to ask for a download: one small segment.
pub(crate) const REQUEST: u64 = 100;

/// A connection of an application: a number that the application gets from [`Stage::open`].
pub(crate) type Conn = u32;

/// What an application asks of the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// The client opens a connection.
    Open(Conn),
    /// Writes this many bytes, as the send buffer takes them.
    Send(Conn, Side, u64),
    /// Says how many bytes this side will send in all.
    Declare(Conn, Side, u64),
    /// Closes this side's sending after what is to be sent.
    Finish(Conn, Side),
    /// Forgets what isn't written yet and closes both sides.
    Stop(Conn),
    /// Calls [`App::wake`] at this moment.
    Wake(Nanos, u32),
}

/// What an application sees, and where its actions go.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    /// Now.
    pub(crate) now: Nanos,
    /// To be carried out when it returns.
    pub(crate) actions: &'a mut Vec<Action>,
    /// The number of the next connection.
    pub(crate) next: &'a mut Conn,
}

impl Stage<'_> {
    fn open(&mut self) -> Conn {
        let conn = *self.next;
        *self.next += 1;
        self.actions.push(Action::Open(conn));
        conn
    }

    fn send(&mut self, conn: Conn, side: Side, bytes: u64) {
        self.actions.push(Action::Send(conn, side, bytes));
    }

    fn declare(&mut self, conn: Conn, side: Side, bytes: u64) {
        self.actions.push(Action::Declare(conn, side, bytes));
    }

    fn finish(&mut self, conn: Conn, side: Side) {
        self.actions.push(Action::Finish(conn, side));
    }

    fn stop(&mut self, conn: Conn) {
        self.actions.push(Action::Stop(conn));
    }

    fn wake(&mut self, at: Nanos, token: u32) {
        self.actions.push(Action::Wake(at, token));
    }
}

/// What an application measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Report {
    /// Its flows; times are the world's.
    pub(crate) flows: Vec<FlowResult>,
    /// Delays of its messages, in order.
    pub(crate) delays: Vec<Nanos>,
}

/// A workload, or a background source over TCP.
pub(crate) trait App: Debug + Send {
    /// Its moment to begin.
    fn start(&mut self, stage: &mut Stage<'_>);

    /// A side of a connection is established.
    fn connected(&mut self, stage: &mut Stage<'_>, conn: Conn, side: Side) {
        let _ = (stage, conn, side);
    }

    /// A side has `total` bytes by now.
    fn delivered(&mut self, stage: &mut Stage<'_>, conn: Conn, side: Side, total: u64) {
        let _ = (stage, conn, side, total);
    }

    /// The moment of an earlier [`Action::Wake`].
    fn wake(&mut self, stage: &mut Stage<'_>, token: u32) {
        let _ = (stage, token);
    }

    /// Whether all is done.
    fn done(&self) -> bool;

    /// On how many connections data may arrive at once without its acting or being done, if it has no more than `most` bytes
    /// on any of them then. What arrives elsewhere than where the data goes isn't meant.
    fn spare(&self, most: u64) -> u32 {
        let _ = most;
        0
    }

    /// Whether the run waits for it: it isn't the workload, and has an end of its own to come.
    fn waited_for(&self) -> bool {
        false
    }

    /// What it measured so far.
    fn report(&self) -> Report;
}

/// Says nothing: stands where a source isn't an application.
#[derive(Debug)]
pub(crate) struct Silence;

impl App for Silence {
    fn start(&mut self, _: &mut Stage<'_>) {}

    fn done(&self) -> bool {
        true
    }

    fn report(&self) -> Report {
        Report::default()
    }
}

/// The application of a scenario's workload.
pub(crate) fn of(scenario: &Scenario) -> Box<dyn App> {
    let sender = scenario.direction.sender();
    match &scenario.workload {
        Workload::Flow { bytes } => Box::new(flows::Flows::new(sender, 1, *bytes)),
        Workload::Flows { count, bytes } => Box::new(flows::Flows::new(sender, *count, *bytes)),
        Workload::Web { objects, connections, request } => {
            Box::new(web::Web::new(sender, objects.clone(), *connections, u64::from(*request)))
        }
        Workload::Cbr { frame, rate, duration } => {
            Box::new(cbr::Cbr::new(sender, u64::from(*frame), *rate, *duration))
        }
        Workload::Bulk { duration } => Box::new(bulk::Bulk::new(sender, *duration)),
        Workload::RequestResponse { request, response, count, think } => {
            Box::new(exchange::Exchange::new(sender, u64::from(*request), *response, *count, *think))
        }
    }
}

#[cfg(test)]
pub(crate) mod driver {
    //! Drives an application over connections that deliver at once, so that its own logic can be tested.

    use std::collections::BTreeMap;

    use super::*;

    /// Runs to the end; each action takes effect `latency` later. Returns the report and the bytes sent per
    /// connection and side.
    pub(crate) fn run(
        app: &mut dyn App,
        latency: Nanos,
        until: Nanos,
    ) -> (Report, BTreeMap<(Conn, Side), u64>) {
        let mut agenda: BTreeMap<(Nanos, u64), Happening> = BTreeMap::new();
        let mut order = 0;
        let mut next = 0;
        let mut totals = BTreeMap::new();
        let mut actions = Vec::new();
        app.start(&mut Stage { now: 0, actions: &mut actions, next: &mut next });
        let mut now = 0;
        loop {
            for action in actions.drain(..) {
                let mut put = |at, what| {
                    agenda.insert((at, order), what);
                    order += 1;
                };
                match action {
                    Action::Open(conn) => {
                        put(now + latency, Happening::Connected(conn, Side::Server));
                        put(now + latency, Happening::Connected(conn, Side::Client));
                    }
                    Action::Send(conn, side, bytes) => {
                        put(now + latency, Happening::Delivered(conn, side.other(), bytes));
                    }
                    Action::Wake(at, token) => put(at, Happening::Wake(token)),
                    Action::Declare(..) | Action::Finish(..) | Action::Stop(_) => {}
                }
            }
            let Some(((at, _), happening)) = agenda.pop_first() else { break };
            if at > until {
                break;
            }
            now = at;
            let mut stage = Stage { now, actions: &mut actions, next: &mut next };
            match happening {
                Happening::Connected(conn, side) => app.connected(&mut stage, conn, side),
                Happening::Delivered(conn, side, bytes) => {
                    let total = totals.entry((conn, side)).or_insert(0u64);
                    *total = total.saturating_add(bytes);
                    app.delivered(&mut stage, conn, side, *total);
                }
                Happening::Wake(token) => app.wake(&mut stage, token),
            }
        }
        (app.report(), totals)
    }

    enum Happening {
        Connected(Conn, Side),
        Delivered(Conn, Side, u64),
        Wake(u32),
    }
}
