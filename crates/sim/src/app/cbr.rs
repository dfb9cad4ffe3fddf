//! Frames at a constant rate on one connection, some of which may be larger key frames; each frame's delay
//! counts from its making to its last byte.
//!
//! Frames are made from the moment the sender may write (the connection is there; in a download, the request
//! arrived), whether or not the former ones have left: a full send buffer shows as delay.

use ropewalk_engine::{Span, Time};

use super::{App, AppContext, Conn, REQUEST, Report};
use crate::Side;
use crate::spec::{KeyFrames, frame_interval};

/// See the module.
#[derive(Debug)]
pub(crate) struct Cbr {
    sender: Side,
    frame: u64,
    key: Option<KeyFrames>,
    interval: Span,
    duration: Span,
    deadline: Option<Span>,
    start: Time,
    /// When each frame was made, and the bytes up to its end.
    made: Vec<(Time, u64)>,
    /// Of those that arrived, in order.
    delays: Vec<Span>,
    all_made: bool,
    finished: Option<Time>,
}

impl Cbr {
    pub(crate) fn new(
        sender: Side,
        frame: u64,
        rate: u64,
        key: Option<KeyFrames>,
        duration: Span,
        deadline: Option<Span>,
    ) -> Self {
        let frame = frame.max(1);
        Cbr {
            sender,
            frame,
            key,
            interval: frame_interval(frame, rate),
            duration,
            deadline,
            start: Time::ZERO,
            made: Vec::new(),
            delays: Vec::new(),
            all_made: false,
            finished: None,
        }
    }

    /// Bytes of the frame that is made next.
    fn next_size(&self) -> u64 {
        match self.key {
            Some(key) if self.made.len().is_multiple_of(key.every.max(1) as usize) => {
                u64::from(key.frame.max(1))
            }
            _ => self.frame,
        }
    }

    /// Bytes of all frames so far.
    fn bytes(&self) -> u64 {
        self.made.last().map_or(0, |(_, end)| *end)
    }

    fn make(&mut self, cx: &mut AppContext<'_>, conn: Conn) {
        let frame = self.next_size();
        self.made.push((cx.now, self.bytes() + frame));
        if let Some(deadline) = self.deadline {
            cx.message(conn, self.sender, frame, cx.now.saturating_add(deadline));
        }
        cx.send(conn, self.sender, frame);
        let next = cx.now.saturating_add(self.interval);
        if next - self.made[0].0 < self.duration {
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
        while let Some((made, end)) = self.made.get(self.delays.len())
            && *end <= total
        {
            self.delays.push(cx.now - *made);
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
        Report::of_messages(self.bytes(), self.start, self.finished, self.delays.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::driver;

    #[test]
    fn frames_keep_their_pace() {
        // 1000 bytes at 8 Mbit/s: one frame per millisecond.
        let mut app = Cbr::new(Side::Server, 1000, 8_000_000, None, Span::from_millis(10), None);
        let (report, totals) = driver::run(&mut app, 300_000, 100_000_000);
        assert!(app.done());
        assert_eq!(report.delays, [Span::from_micros(300); 10]);
        assert_eq!(totals[&(0, Side::Client)], 10_000);
        // Connect and request, nine intervals, the last frame's way.
        assert_eq!(report.flows[0].fct, Some(Span::from_micros(600 + 9_000 + 300)));
    }

    #[test]
    fn key_frames_are_larger_and_come_as_often_as_others() {
        let key = Some(KeyFrames { frame: 6000, every: 4 });
        let mut app = Cbr::new(Side::Server, 1000, 8_000_000, key, Span::from_millis(10), None);
        let (report, totals) = driver::run(&mut app, 300_000, 100_000_000);
        assert!(app.done());
        // Frames 0, 4 and 8 of the ten.
        assert_eq!((report.delays.len(), totals[&(0, Side::Client)]), (10, 7_000 + 3 * 6_000));
        assert_eq!(report.flows[0].bytes, 25_000);
    }
}
