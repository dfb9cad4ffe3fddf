//! One flow of a size, or several at once, each on a connection of its own.
//!
//! The flow completion time counts from connect to the last byte delivered. A download's request is one small
//! segment; the server answers with the whole flow and closes its side.

use ropewalk_engine::Time;

use super::{App, AppContext, Conn, REQUEST, Report};
use crate::Side;
use crate::result::FlowResult;

/// See the module.
#[derive(Debug)]
pub(crate) struct Flows {
    sender: Side,
    bytes: u64,
    count: u32,
    start: Time,
    finished: Vec<Option<Time>>,
    left: u32,
}

impl Flows {
    pub(crate) fn new(sender: Side, count: u32, bytes: u64) -> Self {
        Flows { sender, bytes, count, start: Time::ZERO, finished: vec![None; count as usize], left: count }
    }

    fn send(&self, cx: &mut AppContext<'_>, conn: Conn) {
        cx.declare(conn, self.sender, self.bytes);
        cx.send(conn, self.sender, self.bytes);
        cx.finish(conn, self.sender);
    }
}

impl App for Flows {
    fn start(&mut self, cx: &mut AppContext<'_>) {
        self.start = cx.now;
        for _ in 0..self.count {
            cx.open();
        }
    }

    fn connected(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side) {
        if side == Side::Client {
            match self.sender {
                Side::Client => self.send(cx, conn),
                Side::Server => cx.send(conn, Side::Client, REQUEST),
            }
        }
    }

    fn delivered(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side, total: u64) {
        if side == self.sender {
            // The request may come in pieces; it is answered once.
            if total == REQUEST {
                self.send(cx, conn);
            }
        } else if total >= self.bytes && self.finished[conn as usize].is_none() {
            self.finished[conn as usize] = Some(cx.now);
            self.left -= 1;
        }
    }

    fn done(&self) -> bool {
        self.left == 0
    }

    fn independent_deliveries(&self, most: u64) -> u32 {
        if most < self.bytes { u32::MAX } else { self.left.saturating_sub(1) }
    }

    fn report(&self) -> Report {
        let flow = |finished: &Option<Time>| FlowResult {
            bytes: self.bytes,
            start: self.start,
            fct: finished.map(|at| at - self.start),
        };
        Report { flows: self.finished.iter().map(flow).collect(), delays: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::Span;

    use super::*;
    use crate::app::driver;

    #[test]
    fn a_download_is_a_request_and_a_flow() {
        let mut app = Flows::new(Side::Server, 3, 5000);
        let (report, totals) = driver::run(&mut app, 10, 1000);
        assert!(app.done());
        // Connect, request, response.
        assert!(report.flows.iter().all(|flow| flow.fct == Some(Span::from_nanos(30)) && flow.bytes == 5000));
        assert_eq!(totals[&(2, Side::Server)], REQUEST);
        assert_eq!(totals[&(2, Side::Client)], 5000);
    }

    #[test]
    fn an_upload_needs_no_request() {
        let mut app = Flows::new(Side::Client, 1, 5000);
        let (report, totals) = driver::run(&mut app, 10, 1000);
        assert_eq!(report.flows[0].fct, Some(Span::from_nanos(20)));
        assert_eq!(totals.get(&(0, Side::Client)), None);
    }

    #[test]
    fn what_is_cut_off_has_no_completion_time() {
        let mut app = Flows::new(Side::Server, 1, 5000);
        let (report, _) = driver::run(&mut app, 10, 25);
        assert!(!app.done());
        assert_eq!(report.flows[0].fct, None);
    }
}
