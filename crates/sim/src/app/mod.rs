//! Applications, one file per workload.
//!
//! An application is both ends' programs in one object. It is notified of events and answers with actions,
//! which the world performs in order. So it needs no access to the world, and a test drives one without a
//! network.

mod bulk;
mod cbr;
mod cross_traffic;
mod exchange;
mod flows;
mod transfers;
mod web;

use std::fmt::Debug;

use ropewalk_engine::{Span, Time};

use crate::Side;
use crate::result::FlowResult;
use crate::spec::{Scenario, Workload};

pub(crate) use cross_traffic::CrossTraffic;

/// Bytes that a client sends to ask for a download: one small segment.
pub(crate) const REQUEST: u64 = 100;

/// The number of a connection, from [`AppContext::open`].
pub(crate) type Conn = u32;

/// What an application asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// The client opens a connection.
    Open(Conn),
    /// Writes this many bytes, as the send buffer takes them.
    Send(Conn, Side, u64),
    /// Declares how many bytes this side will send in all.
    Declare(Conn, Side, u64),
    /// Says that the next bytes of this side are a message, and its deadline.
    Message(Conn, Side, u64, Time),
    /// Closes this side after everything is sent.
    Finish(Conn, Side),
    /// Discards what isn't written yet, and closes both sides.
    Stop(Conn),
    /// Calls [`App::wake`] at this time.
    Wake(Time, u32),
}

/// The context of a call to an application.
#[derive(Debug)]
pub(crate) struct AppContext<'a> {
    /// Now.
    pub(crate) now: Time,
    /// To be performed when it returns.
    pub(crate) actions: &'a mut Vec<Action>,
    /// The number of the next connection.
    pub(crate) next: &'a mut Conn,
}

impl AppContext<'_> {
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

    fn message(&mut self, conn: Conn, side: Side, bytes: u64, deadline: Time) {
        self.actions.push(Action::Message(conn, side, bytes, deadline));
    }

    fn finish(&mut self, conn: Conn, side: Side) {
        self.actions.push(Action::Finish(conn, side));
    }

    fn stop(&mut self, conn: Conn) {
        self.actions.push(Action::Stop(conn));
    }

    fn wake(&mut self, at: Time, token: u32) {
        self.actions.push(Action::Wake(at, token));
    }
}

/// What an application measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Report {
    /// Its flows; times are the world's.
    pub(crate) flows: Vec<FlowResult>,
    /// Delays of its messages, in order.
    pub(crate) delays: Vec<Span>,
}

impl Report {
    /// Of messages that count as one flow.
    fn of_messages(bytes: u64, start: Time, finished: Option<Time>, delays: Vec<Span>) -> Self {
        let flow = FlowResult { bytes, start, fct: finished.map(|at| at - start) };
        Report { flows: vec![flow], delays }
    }
}

/// A workload, or a background source over TCP.
pub(crate) trait App: Debug + Send {
    /// It starts.
    fn start(&mut self, cx: &mut AppContext<'_>);

    /// A side of a connection is established.
    fn connected(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side) {
        let _ = (cx, conn, side);
    }

    /// A side has `total` bytes by now.
    fn delivered(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side, total: u64) {
        let _ = (cx, conn, side, total);
    }

    /// The time of an earlier [`Action::Wake`] has come.
    fn wake(&mut self, cx: &mut AppContext<'_>, token: u32) {
        let _ = (cx, token);
    }

    /// Whether all is done.
    fn done(&self) -> bool;

    /// On how many connections the receiver may get data, up to `most` bytes in all on each, before the
    /// application acts or is done. If it is more than 0, all that the application does otherwise is at the
    /// side where it is called.
    fn independent_deliveries(&self, most: u64) -> u32 {
        let _ = most;
        0
    }

    /// Whether the run has to go on for it although the workload is done.
    fn delays_end(&self) -> bool {
        false
    }

    /// What it measured so far.
    fn report(&self) -> Report;
}

/// Stands for a source that isn't an application.
#[derive(Debug)]
pub(crate) struct NoApp;

impl App for NoApp {
    fn start(&mut self, _: &mut AppContext<'_>) {}

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
        Workload::Transfers(transfers) => Box::new(transfers::Transfers::new(transfers.clone())),
        Workload::Web { objects, connections, request, persistent } => {
            Box::new(web::Web::new(sender, objects.clone(), *connections, u64::from(*request), *persistent))
        }
        Workload::Cbr { frame, rate, key, duration, deadline } => {
            Box::new(cbr::Cbr::new(sender, u64::from(*frame), *rate, *key, *duration, *deadline))
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

    /// Runs to the end, or until `until` nanoseconds; each action takes effect `latency` nanoseconds later.
    /// Returns the report and the bytes sent per connection and side.
    pub(crate) fn run(app: &mut dyn App, latency: u64, until: u64) -> (Report, BTreeMap<(Conn, Side), u64>) {
        let (latency, until) = (Span::from_nanos(latency), Time::from_nanos(until));
        let mut queue: BTreeMap<(Time, u64), Scheduled> = BTreeMap::new();
        let mut order = 0;
        let mut next = 0;
        let mut totals = BTreeMap::new();
        let mut actions = Vec::new();
        app.start(&mut AppContext { now: Time::ZERO, actions: &mut actions, next: &mut next });
        let mut now = Time::ZERO;
        loop {
            for action in actions.drain(..) {
                let mut put = |at, what| {
                    queue.insert((at, order), what);
                    order += 1;
                };
                match action {
                    Action::Open(conn) => {
                        put(now + latency, Scheduled::Connected(conn, Side::Server));
                        put(now + latency, Scheduled::Connected(conn, Side::Client));
                    }
                    Action::Send(conn, side, bytes) => {
                        put(now + latency, Scheduled::Delivered(conn, side.other(), bytes));
                    }
                    Action::Wake(at, token) => put(at, Scheduled::Wake(token)),
                    Action::Declare(..) | Action::Message(..) | Action::Finish(..) | Action::Stop(_) => {}
                }
            }
            let Some(((at, _), scheduled)) = queue.pop_first() else { break };
            if at > until {
                break;
            }
            now = at;
            let mut cx = AppContext { now, actions: &mut actions, next: &mut next };
            match scheduled {
                Scheduled::Connected(conn, side) => app.connected(&mut cx, conn, side),
                Scheduled::Delivered(conn, side, bytes) => {
                    let total = totals.entry((conn, side)).or_insert(0u64);
                    *total = total.saturating_add(bytes);
                    app.delivered(&mut cx, conn, side, *total);
                }
                Scheduled::Wake(token) => app.wake(&mut cx, token),
            }
        }
        (app.report(), totals)
    }

    enum Scheduled {
        Connected(Conn, Side),
        Delivered(Conn, Side, u64),
        Wake(u32),
    }
}
