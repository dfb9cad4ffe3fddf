//! A web page: objects over a number of connections, request and response.
//!
//! Every connection opens at the start, and asks for the next object that nobody asked for yet when its last
//! one has arrived. An object's delay counts from its request to its last byte; the page's completion time
//! from the first connect to the last object's last byte. In an upload the roles of the sizes change: the
//! client sends the object, the server answers with as many bytes as a request has.

use super::{App, Conn, Report, Stage};
use crate::result::FlowResult;
use crate::{Nanos, Side};

/// See the module.
#[derive(Debug)]
pub(crate) struct Web {
    sender: Side,
    objects: Vec<u64>,
    connections: u32,
    request: u64,
    start: Nanos,
    next_object: usize,
    arrived: usize,
    finished: Option<Nanos>,
    tabs: Vec<Tab>,
    /// By object.
    delays: Vec<Option<Nanos>>,
}

/// What a connection is about.
#[derive(Clone, Copy, Debug, Default)]
struct Tab {
    object: Option<usize>,
    asked: Nanos,
    /// Bytes at the server and at the client when the present exchange is complete there.
    due: [u64; 2],
}

impl Web {
    pub(crate) fn new(sender: Side, objects: Vec<u64>, connections: u32, request: u64) -> Self {
        let delays = vec![None; objects.len()];
        Web {
            sender,
            connections: connections.max(1),
            request: request.max(1),
            start: 0,
            next_object: 0,
            arrived: 0,
            finished: None,
            tabs: Vec::new(),
            delays,
            objects,
        }
    }

    /// What the side sends for an object, at least one byte, so that there is something to wait for.
    fn size(&self, side: Side, object: usize) -> u64 {
        if side == self.sender { self.objects[object].max(1) } else { self.request }
    }

    fn ask(&mut self, stage: &mut Stage<'_>, conn: Conn) {
        let tab = &mut self.tabs[conn as usize];
        tab.object = (self.next_object < self.objects.len()).then_some(self.next_object);
        let Some(object) = tab.object else { return };
        self.next_object += 1;
        tab.asked = stage.now;
        let (up, down) = (self.size(Side::Client, object), self.size(Side::Server, object));
        let tab = &mut self.tabs[conn as usize];
        tab.due[Side::Server as usize] += up;
        tab.due[Side::Client as usize] += down;
        stage.send(conn, Side::Client, up);
    }
}

impl App for Web {
    fn start(&mut self, stage: &mut Stage<'_>) {
        self.start = stage.now;
        if self.objects.is_empty() {
            self.finished = Some(stage.now);
            return;
        }
        for _ in 0..self.connections {
            stage.open();
            self.tabs.push(Tab::default());
        }
    }

    fn connected(&mut self, stage: &mut Stage<'_>, conn: Conn, side: Side) {
        if side == Side::Client {
            self.ask(stage, conn);
        }
    }

    fn delivered(&mut self, stage: &mut Stage<'_>, conn: Conn, side: Side, total: u64) {
        let tab = self.tabs[conn as usize];
        let Some(object) = tab.object else { return };
        if total < tab.due[side as usize] {
            return;
        }
        match side {
            Side::Server => stage.send(conn, Side::Server, self.size(Side::Server, object)),
            Side::Client => {
                self.delays[object] = Some(stage.now - tab.asked);
                self.arrived += 1;
                if self.arrived == self.objects.len() {
                    self.finished = Some(stage.now);
                }
                self.ask(stage, conn);
            }
        }
    }

    fn done(&self) -> bool {
        self.finished.is_some()
    }

    fn report(&self) -> Report {
        let page = FlowResult {
            bytes: self.objects.iter().sum(),
            start: self.start,
            fct: self.finished.map(|at| at - self.start),
        };
        Report { flows: vec![page], delays: self.delays.iter().copied().flatten().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::driver;

    #[test]
    fn each_connection_asks_again_when_its_object_is_there() {
        let mut app = Web::new(Side::Server, vec![10, 20, 30, 40, 50], 2, 7);
        let (report, totals) = driver::run(&mut app, 10, 1000);
        assert!(app.done());
        // Connect, then three rounds of request and response on the first connection, two on the second.
        assert_eq!(report.flows[0].fct, Some(10 + 3 * 20));
        assert_eq!(report.flows[0].bytes, 150);
        assert_eq!(report.delays, [20; 5]);
        assert_eq!(totals[&(0, Side::Server)], 21);
        assert_eq!(totals[&(0, Side::Client)], 10 + 30 + 50);
        assert_eq!(totals[&(1, Side::Client)], 20 + 40);
    }

    #[test]
    fn an_upload_sends_the_objects_and_hears_of_each() {
        let mut app = Web::new(Side::Client, vec![10, 20], 1, 7);
        let (report, totals) = driver::run(&mut app, 10, 1000);
        assert_eq!(report.flows[0].fct, Some(50));
        assert_eq!(totals[&(0, Side::Server)], 30);
        assert_eq!(totals[&(0, Side::Client)], 14);
    }

    #[test]
    fn an_empty_page_is_complete() {
        let mut app = Web::new(Side::Server, vec![], 6, 7);
        let (report, _) = driver::run(&mut app, 10, 1000);
        assert!(app.done());
        assert_eq!(report.flows[0].fct, Some(0));
    }
}
