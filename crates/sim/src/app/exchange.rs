//! Requests and responses, one after another on one connection; the metric is each exchange's time.
//!
//! An exchange counts from its request's writing to the last byte of its response. In an upload the roles of
//! the sizes change: the client sends the large part, the server answers with the small one.

use ropewalk_engine::{Span, Time};

use super::{App, AppContext, Conn, Report};
use crate::Side;

/// See the module.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Bytes that the client and the server send each time.
    sizes: [u64; 2],
    payload: u64,
    count: u32,
    think: Span,
    start: Time,
    asked: Time,
    delays: Vec<Span>,
    finished: Option<Time>,
}

impl Exchange {
    pub(crate) fn new(sender: Side, request: u64, response: u64, count: u32, think: Span) -> Self {
        let (request, response) = (request.max(1), response.max(1));
        let sizes = match sender {
            Side::Server => [request, response],
            Side::Client => [response, request],
        };
        Exchange {
            sizes,
            payload: response,
            count,
            think,
            start: Time::ZERO,
            asked: Time::ZERO,
            delays: Vec::new(),
            finished: None,
        }
    }

    fn ask(&mut self, cx: &mut AppContext<'_>, conn: Conn) {
        self.asked = cx.now;
        cx.send(conn, Side::Client, self.sizes[Side::Client as usize]);
    }
}

impl App for Exchange {
    fn start(&mut self, cx: &mut AppContext<'_>) {
        self.start = cx.now;
        if self.count == 0 {
            self.finished = Some(cx.now);
            return;
        }
        cx.open();
    }

    fn connected(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side) {
        if side == Side::Client {
            self.ask(cx, conn);
        }
    }

    fn delivered(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side, total: u64) {
        let round = self.delays.len() as u64 + 1;
        if self.finished.is_some() || total < round * self.sizes[side.other() as usize] {
            return;
        }
        match side {
            Side::Server => cx.send(conn, Side::Server, self.sizes[Side::Server as usize]),
            Side::Client => {
                self.delays.push(cx.now - self.asked);
                if self.delays.len() as u32 == self.count {
                    self.finished = Some(cx.now);
                } else if self.think.is_zero() {
                    self.ask(cx, conn);
                } else {
                    cx.wake(cx.now + self.think, conn);
                }
            }
        }
    }

    fn wake(&mut self, cx: &mut AppContext<'_>, token: u32) {
        self.ask(cx, token);
    }

    fn done(&self) -> bool {
        self.finished.is_some()
    }

    fn report(&self) -> Report {
        let bytes = self.payload.saturating_mul(u64::from(self.count));
        Report::of_messages(bytes, self.start, self.finished, self.delays.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::driver;

    #[test]
    fn exchanges_follow_one_another() {
        let mut app = Exchange::new(Side::Server, 100, 1000, 3, Span::from_nanos(50));
        let (report, totals) = driver::run(&mut app, 10, 10_000);
        assert!(app.done());
        assert_eq!(report.delays, [Span::from_nanos(20); 3]);
        assert_eq!(report.flows[0].fct, Some(Span::from_nanos(10 + 3 * 20 + 2 * 50)));
        assert_eq!(totals[&(0, Side::Client)], 3000);
        assert_eq!(totals[&(0, Side::Server)], 300);
    }

    #[test]
    fn an_upload_sends_the_large_part() {
        let mut app = Exchange::new(Side::Client, 100, 1000, 2, Span::ZERO);
        let (_, totals) = driver::run(&mut app, 10, 10_000);
        assert_eq!(totals[&(0, Side::Server)], 2000);
        assert_eq!(totals[&(0, Side::Client)], 200);
    }
}
