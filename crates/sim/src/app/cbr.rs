//! Frames at a constant rate on one connection; each frame's delay counts from its making to its last byte.
//!
//! Frames are made from the moment the sender may write (the connection is there; in a download, the request
//! arrived), whether or not the former ones have left: a full send buffer shows as delay.

use super::{App, AppContext, Conn, REQUEST, Report};
use crate::spec::frame_interval;
use crate::{Nanos, Side};

/// See the module.
#[derive(Debug)]
pub(crate) struct Cbr {
    sender: Side,
    frame: u64,
    interval: Nanos,
    duration: Nanos,
    deadline: Option<Nanos>,
    start: Nanos,
    /// When each frame was made.
    made: Vec<Nanos>,
    /// Of those that arrived, in order.
    delays: Vec<Nanos>,
    all_made: bool,
    finished: Option<Nanos>,
}

impl Cbr {
    pub(crate) fn new(sender: Side, frame: u64, rate: u64, duration: Nanos, deadline: Option<Nanos>) -> Self {
        let frame = frame.max(1);
        Cbr {
            sender,
            frame,
            interval: frame_interval(frame, rate),
            duration,
            deadline,
            start: 0,
            made: Vec::new(),
            delays: Vec::new(),
            all_made: false,
            finished: None,
        }
    }

    fn make(&mut self, cx: &mut AppContext<'_>, conn: Conn) {
        self.made.push(cx.now);
        if let Some(deadline) = self.deadline {
            cx.message(conn, self.sender, self.frame, cx.now.saturating_add(deadline));
        }
        cx.send(conn, self.sender, self.frame);
        let next = cx.now.saturating_add(self.interval);
        if next - self.made[0] < self.duration {
            cx.wake(next, conn);
        } else {
            self.all_made = true;
            cx.finish(conn, self.sender);
        }
    }
}

impl App for Cbr {
    fn start(&mut self, cx: &mut AppContext<'_>) {
        self.start = cx.now;
        cx.open();
    }

    fn connected(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side) {
        if side == Side::Client {
            match self.sender {
                Side::Client => self.make(cx, conn),
                Side::Server => cx.send(conn, Side::Client, REQUEST),
            }
        }
    }

    fn delivered(&mut self, cx: &mut AppContext<'_>, conn: Conn, side: Side, total: u64) {
        if side == self.sender {
            if total == REQUEST {
                self.make(cx, conn);
            }
            return;
        }
        let whole = (total / self.frame) as usize;
        while self.delays.len() < whole {
            self.delays.push(cx.now - self.made[self.delays.len()]);
        }
        if self.all_made && self.delays.len() == self.made.len() {
            self.finished = Some(cx.now);
        }
    }

    fn wake(&mut self, cx: &mut AppContext<'_>, token: u32) {
        self.make(cx, token);
    }

    fn done(&self) -> bool {
        self.finished.is_some()
    }

    fn report(&self) -> Report {
        let bytes = self.made.len() as u64 * self.frame;
        Report::of_messages(bytes, self.start, self.finished, self.delays.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::driver;

    #[test]
    fn frames_keep_their_pace() {
        // 1000 bytes at 8 Mbit/s: one frame per millisecond.
        let mut app = Cbr::new(Side::Server, 1000, 8_000_000, 10_000_000, None);
        let (report, totals) = driver::run(&mut app, 300_000, 100_000_000);
        assert!(app.done());
        assert_eq!(report.delays, [300_000; 10]);
        assert_eq!(totals[&(0, Side::Client)], 10_000);
        // Connect and request, nine intervals, the last frame's way.
        assert_eq!(report.flows[0].fct, Some(600_000 + 9_000_000 + 300_000));
    }
}
