//! Transfers that begin at times of their own, each on a connection of its own.
//!
//! The flow completion time counts from when the client is connected to the last byte delivered. A download's
//! request is one small segment; the server answers with the whole transfer and closes its side.

use ropewalk_engine::Time;

use super::{App, AppContext, Conn, REQUEST, Report};
use crate::Side;
use crate::result::FlowResult;
use crate::spec::Transfer;

/// See the module.
#[derive(Debug)]
pub(crate) struct Transfers {
    transfers: Vec<Transfer>,
    start: Time,
    /// By connection: which of them it carries.
    carried: Vec<usize>,
    connected: Vec<Option<Time>>,
    finished: Vec<Option<Time>>,
    left: usize,
}

impl Transfers {
    pub(crate) fn new(transfers: Vec<Transfer>) -> Self {
        let none = vec![None; transfers.len()];
        Transfers {
            start: Time::ZERO,
            carried: Vec::new(),
            connected: none.clone(),
            finished: none,
            left: transfers.len(),
            transfers,
        }
    }

    fn of(&self, conn: Conn) -> (usize, Transfer) {
        let at = self.carried[conn as usize];
        (at, self.transfers[at])
    }

    fn send(cx: &mut AppContext<'_>, conn: Conn, transfer: Transfer) {
        let sender = transfer.direction.sender();
        cx.declare(conn, sender, transfer.bytes);
        cx.send(conn, sender, transfer.bytes);
        cx.finish(conn, sender);
    }
}

impl App for Transfers {
    fn start(&mut self, cx: &mut AppContext<'_>) {
        self.start = cx.now;
        for (at, transfer) in self.transfers.iter().enumerate() {
            cx.wake(cx.now + transfer.start, at as u32);
        }
    }

    fn wake(&mut self, cx: &mut AppContext<'_>, token: u32) {
        cx.open();
        self.carried.push(token as usize);
    }

    fn connected(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side) {
        if side == Side::Client {
            let (at, transfer) = self.of(conn);
            self.connected[at] = Some(cx.now);
            match transfer.direction.sender() {
                Side::Client => Self::send(cx, conn, transfer),
                Side::Server => cx.send(conn, Side::Client, REQUEST),
            }
        }
    }

    fn delivered(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side, total: u64) {
        let (at, transfer) = self.of(conn);
        if side == transfer.direction.sender() {
            // The request may come in pieces; it is answered once.
            if total == REQUEST {
                Self::send(cx, conn, transfer);
            }
        } else if total >= transfer.bytes && self.finished[at].is_none() {
            self.finished[at] = Some(cx.now);
            self.left -= 1;
        }
    }

    fn done(&self) -> bool {
        self.left == 0
    }

    fn report(&self) -> Report {
        let flows = self.transfers.iter().enumerate().map(|(at, transfer)| {
            let start = self.connected[at];
            FlowResult {
                bytes: transfer.bytes,
                start: start.unwrap_or(self.start + transfer.start),
                fct: self.finished[at].zip(start).map(|(end, start)| end.saturating_sub(start)),
            }
        });
        Report { flows: flows.collect(), delays: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::Span;

    use super::*;
    use crate::app::driver;
    use crate::spec::Direction;

    #[test]
    fn each_has_its_time_size_and_direction() {
        let transfer =
            |start, bytes, direction| Transfer { start: Span::from_nanos(start), bytes, direction };
        let list = vec![transfer(50, 5000, Direction::Download), transfer(0, 300, Direction::Upload)];
        let mut app = Transfers::new(list.clone());
        let (report, totals) = driver::run(&mut app, 10, 1000);
        assert!(app.done());
        // Request and response; an upload needs no request.
        let told =
            report.flows.iter().map(|flow| (flow.bytes, flow.start.as_nanos(), flow.fct.map(Span::as_nanos)));
        assert_eq!(told.collect::<Vec<_>>(), [(5000, 60, Some(20)), (300, 10, Some(10))]);
        // The second opened the first connection.
        assert_eq!(totals[&(0, Side::Server)], 300);
        assert_eq!(totals[&(1, Side::Client)], 5000);
        let (cut_off, _) = driver::run(&mut Transfers::new(list), 10, 65);
        assert_eq!(cut_off.flows[0].fct, None);
    }
}
