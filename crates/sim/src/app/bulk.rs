//! As much as possible for a time on one connection; the metric is goodput.

use ropewalk_engine::{Span, Time};

use super::{App, AppContext, Conn, REQUEST, Report};
use crate::Side;
use crate::result::FlowResult;

/// More than any run can move.
const ENDLESS: u64 = u64::MAX / 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Bulk {
    sender: Side,
    duration: Span,
    start: Time,
    delivered: u64,
    done: bool,
}

impl Bulk {
    pub(crate) fn new(sender: Side, duration: Span) -> Self {
        Bulk { sender, duration, start: Time::ZERO, delivered: 0, done: false }
    }
}

impl App for Bulk {
    fn start(&mut self, cx: &mut AppContext<'_>) {
        self.start = cx.now;
        cx.open();
        cx.wake(cx.now.saturating_add(self.duration), 0);
    }

    fn connected(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side) {
        if side == Side::Client {
            match self.sender {
                Side::Client => cx.send(conn, Side::Client, ENDLESS),
                Side::Server => cx.send(conn, Side::Client, REQUEST),
            }
        }
    }

    fn delivered(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side, total: u64) {
        if side != self.sender {
            self.delivered = total;
        } else if total == REQUEST {
            cx.send(conn, Side::Server, ENDLESS);
        }
    }

    fn wake(&mut self, _: &mut AppContext<'_>, _: u32) {
        self.done = true;
    }

    fn done(&self) -> bool {
        self.done
    }

    fn independent_deliveries(&self, _: u64) -> u32 {
        u32::MAX
    }

    fn report(&self) -> Report {
        let fct = self.done.then_some(self.duration);
        let flow = FlowResult { bytes: self.delivered, start: self.start, fct };
        Report { flows: vec![flow], delays: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::driver;

    #[test]
    fn it_ends_by_the_clock() {
        let mut app = Bulk::new(Side::Server, Span::from_micros(1));
        let (report, _) = driver::run(&mut app, 10, 10_000);
        assert!(app.done());
        assert_eq!(report.flows[0].fct, Some(Span::from_micros(1)));
        assert_eq!(report.flows[0].bytes, ENDLESS);
    }
}
