//! A web page: objects over a number of connections, request and response.
//!
//! Every connection opens at the start, and asks for the next object that nobody asked for yet when its last
//! one has arrived. If they aren't persistent, it closes instead, and a new connection asks for the next
//! object. An object's delay counts from its request to its last byte; the page's completion time from the
//! first connect to the last object's last byte. In an upload the roles of the sizes change: the client sends
//! the object, the server answers with as many bytes as a request has.

use ropewalk_engine::{Span, Time};

use super::{App, AppContext, Conn, Report};
use crate::Side;

/// See the module.
#[derive(Debug)]
pub(crate) struct Web {
    sender: Side,
    objects: Vec<u64>,
    connections: u32,
    request: u64,
    /// Whether a connection asks for one object after another.
    persistent: bool,
    start: Time,
    next_object: usize,
    arrived: usize,
    finished: Option<Time>,
    exchanges: Vec<Exchange>,
    /// By object.
    delays: Vec<Option<Span>>,
}

/// A connection's current exchange.
#[derive(Clone, Copy, Debug, Default)]
struct Exchange {
    object: Option<usize>,
    asked: Time,
    /// Bytes at the server and at the client when the present exchange is complete there.
    due: [u64; 2],
}

impl Web {
    pub(crate) fn new(
        sender: Side,
        objects: Vec<u64>,
        connections: u32,
        request: u64,
        persistent: bool,
    ) -> Self {
        let delays = vec![None; objects.len()];
        Web {
            sender,
            connections: connections.max(1),
            request: request.max(1),
            persistent,
            start: Time::ZERO,
            next_object: 0,
            arrived: 0,
            finished: None,
            exchanges: Vec::new(),
            delays,
            objects,
        }
    }

    /// What the side sends for an object, at least one byte, so that there is something to wait for.
    fn size(&self, side: Side, object: usize) -> u64 {
        if side == self.sender { self.objects[object].max(1) } else { self.request }
    }

    fn open(&mut self, cx: &mut AppContext<'_>) {
        cx.open();
        self.exchanges.push(Exchange::default());
    }

    fn ask(&mut self, cx: &mut AppContext<'_>, conn: Conn) {
        let exchange = &mut self.exchanges[conn as usize];
        exchange.object = (self.next_object < self.objects.len()).then_some(self.next_object);
        let Some(object) = exchange.object else { return };
        self.next_object += 1;
        exchange.asked = cx.now;
        let (up, down) = (self.size(Side::Client, object), self.size(Side::Server, object));
        let exchange = &mut self.exchanges[conn as usize];
        exchange.due[Side::Server as usize] += up;
        exchange.due[Side::Client as usize] += down;
        cx.send(conn, Side::Client, up);
    }
}

impl App for Web {
    fn start(&mut self, cx: &mut AppContext<'_>) {
        self.start = cx.now;
        if self.objects.is_empty() {
            self.finished = Some(cx.now);
            return;
        }
        for _ in 0..self.connections {
            self.open(cx);
        }
    }

    fn connected(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side) {
        if side == Side::Client {
            self.ask(cx, conn);
        }
    }

    fn delivered(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side, total: u64) {
        let exchange = self.exchanges[conn as usize];
        let Some(object) = exchange.object else { return };
        if total < exchange.due[side as usize] {
            return;
        }
        match side {
            Side::Server => {
                cx.send(conn, Side::Server, self.size(Side::Server, object));
                if !self.persistent {
                    cx.finish(conn, Side::Server);
                }
            }
            Side::Client => {
                self.delays[object] = Some(cx.now - exchange.asked);
                self.arrived += 1;
                if self.arrived == self.objects.len() {
                    self.finished = Some(cx.now);
                }
                if self.persistent {
                    self.ask(cx, conn);
                    return;
                }
                self.exchanges[conn as usize].object = None;
                cx.finish(conn, Side::Client);
                // Every connection so far has an object of its own.
                if self.exchanges.len() < self.objects.len() {
                    self.open(cx);
                }
            }
        }
    }

    fn done(&self) -> bool {
        self.finished.is_some()
    }

    fn report(&self) -> Report {
        let delays = self.delays.iter().copied().flatten().collect();
        Report::of_messages(self.objects.iter().sum(), self.start, self.finished, delays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::driver;

    #[test]
    fn each_connection_asks_again_when_its_object_is_there() {
        let mut app = Web::new(Side::Server, vec![10, 20, 30, 40, 50], 2, 7, true);
        let (report, totals) = driver::run(&mut app, 10, 1000);
        assert!(app.done());
        // Connect, then three rounds of request and response on the first connection, two on the second.
        assert_eq!(report.flows[0].fct, Some(Span::from_nanos(10 + 3 * 20)));
        assert_eq!(report.flows[0].bytes, 150);
        assert_eq!(report.delays, [Span::from_nanos(20); 5]);
        assert_eq!(totals[&(0, Side::Server)], 21);
        assert_eq!(totals[&(0, Side::Client)], 10 + 30 + 50);
        assert_eq!(totals[&(1, Side::Client)], 20 + 40);
    }

    #[test]
    fn an_object_of_its_own_for_each_connection() {
        let mut app = Web::new(Side::Server, vec![10, 20, 30, 40, 50], 2, 7, false);
        let (report, totals) = driver::run(&mut app, 10, 1000);
        assert!(app.done());
        // Three rounds of connect, request and response on the first place, two on the second.
        assert_eq!(report.flows[0].fct, Some(Span::from_nanos(3 * 30)));
        assert_eq!(report.delays, [Span::from_nanos(20); 5]);
        let received: Vec<u64> = (0..5).map(|conn| totals[&(conn, Side::Client)]).collect();
        assert_eq!(received, [10, 20, 30, 40, 50]);
        assert_eq!(totals.get(&(5, Side::Client)), None);
    }

    #[test]
    fn an_upload_sends_the_objects_and_hears_of_each() {
        let mut app = Web::new(Side::Client, vec![10, 20], 1, 7, true);
        let (report, totals) = driver::run(&mut app, 10, 1000);
        assert_eq!(report.flows[0].fct, Some(Span::from_nanos(50)));
        assert_eq!(totals[&(0, Side::Server)], 30);
        assert_eq!(totals[&(0, Side::Client)], 14);
    }

    #[test]
    fn an_empty_page_is_complete() {
        let mut app = Web::new(Side::Server, vec![], 6, 7, true);
        let (report, _) = driver::run(&mut app, 10, 1000);
        assert!(app.done());
        assert_eq!(report.flows[0].fct, Some(Span::ZERO));
    }
}
