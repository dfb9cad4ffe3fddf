//! One flow of a measurement, without I/O: bytes and the time go in, bytes and what was measured come out.
//! The kernel's sockets and the engine's connections are driven by the same code, so that they are measured
//! alike.

mod measured;

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use ropewalk_engine::{Span, Time};

use super::protocol::{Answer, Hello, Mode, TRAILER, Trailer};
use crate::histogram::Histogram;

/// Nothing moves for so long: the peer is given up.
pub const SILENCE: Span = Span::from_secs(15);
/// A client that has connected has to say what it wants within this time.
pub const HELLO_PATIENCE: Span = Span::from_secs(5);
/// From one echo's start to the next, at least: it measures the path, it doesn't load it.
const ECHO_EVERY: Span = Span::from_millis(5);
/// A client may go on for so long after its time: what its stack had buffered is on the way.
const OVERTIME: Span = Span::from_secs(120);

/// What the stack says of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackInfo {
    /// Segments sent again, on all subflows.
    pub retransmitted: u64,
    /// The least smoothed round-trip time of the subflows, nanoseconds; 0: none yet.
    pub srtt: Span,
    /// Subflows now.
    pub subflows: u8,
    /// Whether it is Multipath TCP.
    pub multipath: bool,
    /// Bytes that the peer acknowledged; only whether it changes counts.
    pub acknowledged: u64,
    /// Bytes that the stack has taken and the peer hasn't acknowledged.
    pub outstanding: u64,
}

/// What a flow wants to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Write these, or as many as the stack takes, and say how many with [`TestConnection::wrote`].
    Write(Bytes),
    /// Close this side.
    Shutdown,
    /// Nothing now.
    Wait,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Hello and answer.
    Greeting,
    /// The measurement.
    Running,
    /// Nothing more is to be said.
    Parting,
}

/// A client's echoes.
#[derive(Debug, Default)]
struct Echo {
    /// When the one that is under way was sent.
    sent: Option<Time>,
    /// Its bytes that haven't come back.
    left: u32,
    /// When the next is due.
    next: Time,
    /// Round-trip times. Allocated with the first one: it takes 200 KiB.
    times: Option<Box<Histogram>>,
}

/// One flow. See the module.
#[derive(Debug)]
pub struct TestConnection {
    client: bool,
    stage: Stage,
    hello: Option<Hello>,
    answer: Option<Answer>,
    head: Vec<u8>,
    pending: Bytes,
    pattern: Bytes,
    began: Option<Time>,
    sent: u64,
    /// Of these, what the peer is known to have.
    acknowledged: u64,
    received: u64,
    last_sent: Time,
    last_received: Time,
    /// A client's last pieces, with when they came: as many as hold the trailer and the last byte before it.
    recent: VecDeque<(Time, usize)>,
    tail: Vec<u8>,
    trailer: Option<Trailer>,
    shut: bool,
    ended: bool,
    finishing: bool,
    last_progress: Time,
    info: StackInfo,
    /// Subflows at most at one time.
    subflows: u8,
    echo: Echo,
    error: Option<String>,
}

impl TestConnection {
    fn new(client: bool, now: Time, hello: Option<Hello>, pattern: Bytes) -> TestConnection {
        let pending = hello.as_ref().map(Hello::encode).unwrap_or_default().into();
        TestConnection {
            client,
            stage: Stage::Greeting,
            hello,
            answer: None,
            head: Vec::new(),
            pending,
            pattern,
            began: None,
            sent: 0,
            acknowledged: 0,
            received: 0,
            last_sent: Time::ZERO,
            last_received: Time::ZERO,
            recent: VecDeque::new(),
            tail: Vec::new(),
            trailer: None,
            shut: false,
            ended: false,
            finishing: false,
            last_progress: now,
            info: StackInfo::default(),
            subflows: 0,
            echo: Echo::default(),
            error: None,
        }
    }

    /// The client's side, connected `now`. `pattern` is what bulk is made of.
    pub fn client(now: Time, hello: Hello, pattern: Bytes) -> TestConnection {
        TestConnection::new(true, now, Some(hello), pattern)
    }

    /// The server's side, accepted `now`.
    pub fn server(now: Time, pattern: Bytes) -> TestConnection {
        TestConnection::new(false, now, None, pattern)
    }

    /// What the client wants, once it is known and as long as the server hasn't answered.
    pub fn pending_hello(&self) -> Option<&Hello> {
        self.hello.as_ref().filter(|_| !self.client && self.answer.is_none() && !self.is_over())
    }

    /// The server's answer; `refusal` says why not.
    pub fn reply(&mut self, now: Time, engine: bool, refusal: Option<String>) {
        let answer = Answer { engine, refusal };
        self.pending = answer.encode().into();
        match &answer.refusal {
            None => self.begin(now),
            Some(why) => {
                self.stage = Stage::Parting;
                self.error.get_or_insert_with(|| why.clone());
            }
        }
        self.answer = Some(answer);
    }

    fn begin(&mut self, now: Time) {
        self.stage = Stage::Running;
        self.began = Some(now);
        (self.last_sent, self.last_received, self.echo.next) = (now, now, now);
    }

    fn mode(&self) -> Option<Mode> {
        self.hello.as_ref().map(|hello| hello.mode)
    }

    fn sends(&self) -> bool {
        self.mode().is_some_and(|mode| mode.sends(self.client))
    }

    /// Bytes that may still be sent.
    fn left_to_send(&self, now: Time) -> u64 {
        let (Some(hello), Some(began)) = (&self.hello, self.began) else { return 0 };
        if self.finishing {
            return 0;
        }
        if hello.bytes > 0 {
            return hello.bytes - self.sent.min(hello.bytes);
        }
        if now >= began + Span::from_millis(u64::from(hello.milliseconds)) { 0 } else { u64::MAX }
    }

    /// Bytes came.
    pub fn input(&mut self, now: Time, data: &[u8]) {
        self.last_progress = now;
        if self.stage == Stage::Greeting {
            self.head.extend_from_slice(data);
            self.on_greeting(now);
            return;
        }
        if self.stage == Stage::Running {
            self.bulk(now, data);
        }
    }

    fn on_greeting(&mut self, now: Time) {
        let read = if self.client {
            Answer::parse(&self.head).map(|found| {
                found.map(|(answer, len)| {
                    match answer.refusal.clone() {
                        None => self.begin(now),
                        Some(why) => self.fail(format!("the server refused: {why}")),
                    }
                    self.answer = Some(answer);
                    len
                })
            })
        } else if self.hello.is_some() {
            // Not answered yet: what comes early waits, and there can't be much of it.
            return;
        } else {
            Hello::parse(&self.head).map(|found| {
                found.map(|(hello, len)| {
                    self.hello = Some(hello);
                    len
                })
            })
        };
        match read {
            Ok(None) => {}
            Ok(Some(len)) => {
                self.head.drain(..len);
                if self.client && self.stage == Stage::Running {
                    let rest = std::mem::take(&mut self.head);
                    self.bulk(now, &rest);
                }
            }
            Err(wrong) => {
                let why = wrong.to_string();
                if self.client {
                    self.fail(why);
                } else {
                    self.reply(now, false, Some(why));
                }
            }
        }
    }

    fn bulk(&mut self, now: Time, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let Some(hello) = &self.hello else { return };
        let (mode, bytes, echo) = (hello.mode, hello.bytes, hello.echo);
        self.received += data.len() as u64;
        self.last_received = now;
        if self.client {
            let keep = data.len().min(TRAILER);
            self.tail.extend_from_slice(&data[data.len() - keep..]);
            let surplus = self.tail.len().saturating_sub(TRAILER);
            self.tail.drain(..surplus);
            self.recent.push_back((now, data.len()));
            let mut held: usize = self.recent.iter().map(|(_, len)| len).sum();
            while let Some((_, len)) = self.recent.front()
                && held - len > TRAILER
            {
                held -= len;
                self.recent.pop_front();
            }
            if mode == Mode::Echo {
                self.on_echo(now, data.len());
            }
            return;
        }
        match mode {
            Mode::Echo => {
                if self.pending.len() + data.len() > echo as usize {
                    self.fail("the client sent more than one echo at a time");
                    return;
                }
                let mut pending = BytesMut::from(&self.pending[..]);
                pending.extend_from_slice(data);
                self.pending = pending.freeze();
            }
            Mode::Down => self.fail("the client sent bytes where none belong"),
            _ if bytes > 0 && self.received > bytes => self.fail("the client sent more than it said"),
            Mode::Up | Mode::Both => {}
        }
    }

    fn on_echo(&mut self, now: Time, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.echo.left = self.echo.left.saturating_sub(len);
        if self.echo.left == 0
            && let Some(sent) = self.echo.sent.take()
        {
            self.echo.times.get_or_insert_default().record((now - sent).as_nanos());
            self.echo.next = now.max(sent + ECHO_EVERY);
        }
    }

    /// The peer closed its side.
    pub fn end_of_input(&mut self, now: Time) {
        if self.ended {
            return;
        }
        self.ended = true;
        self.last_progress = now;
        match self.stage {
            Stage::Greeting if self.client => {
                self.fail("the server closed the connection before it answered");
            }
            Stage::Greeting => self.fail("the client closed the connection before it said what it wants"),
            Stage::Running if self.client => self.on_trailer(),
            Stage::Running => {
                if self.is_early(now) {
                    self.fail("the client closed the connection before the end");
                }
            }
            Stage::Parting => {}
        }
    }

    /// Whether the client has no reason to close yet. Its time began when the answer came, after ours.
    fn is_early(&self, now: Time) -> bool {
        let (Some(hello), Some(began)) = (&self.hello, self.began) else { return false };
        let time_left = now < began + Span::from_millis(u64::from(hello.milliseconds));
        match hello.mode {
            Mode::Echo => false,
            Mode::Down => self.left_to_send(now) > 0,
            Mode::Up | Mode::Both => self.received < hello.bytes || time_left,
        }
    }

    fn on_trailer(&mut self) {
        let Some(trailer) = Trailer::parse(&self.tail) else {
            let came = self.received;
            self.fail(format!(
                "the peer is gone: it closed the connection in mid-run, after {came} bytes received"
            ));
            return;
        };
        self.received -= TRAILER as u64;
        // The trailer waits until all data is acknowledged: that isn't part of the time that data took.
        if let Some((at, _)) = self.recent.front().filter(|_| self.received > 0) {
            self.last_received = *at;
        }
        self.trailer = Some(trailer);
        self.acknowledged = self.acknowledged.max(trailer.received.min(self.sent));
        if trailer.sent != self.received && self.mode() != Some(Mode::Echo) {
            self.fail(format!("{} of the {} bytes that the server sent came", self.received, trailer.sent));
        } else if trailer.received != self.sent {
            self.fail(format!("{} of {} bytes sent reached the server", trailer.received, self.sent));
        }
    }

    /// What it wants to do now.
    pub fn output(&mut self, now: Time) -> Output {
        if !self.pending.is_empty() {
            return Output::Write(self.pending.clone());
        }
        if self.shut {
            return Output::Wait;
        }
        match self.stage {
            Stage::Greeting => return Output::Wait,
            Stage::Parting => {}
            Stage::Running => {
                if self.sends() {
                    let left = self.left_to_send(now);
                    if left > 0 {
                        let most = usize::try_from(left).unwrap_or(usize::MAX).min(self.pattern.len());
                        return Output::Write(self.pattern.slice(..most));
                    }
                }
                let wait = match (self.mode(), self.client) {
                    (Some(Mode::Echo), true) => self.next_echo(now),
                    (Some(Mode::Down), true) => !self.ended,
                    (Some(Mode::Down), false) | (_, true) => false,
                    (_, false) => !self.ended,
                };
                if !self.pending.is_empty() {
                    return Output::Write(self.pending.clone());
                }
                if wait {
                    return Output::Wait;
                }
                if !self.client {
                    // What data is retransmitted counts: the trailer waits until all of it is acknowledged.
                    if self.sends() && self.info.outstanding > 0 {
                        return Output::Wait;
                    }
                    self.stage = Stage::Parting;
                    self.pending = Bytes::copy_from_slice(&self.own_trailer().encode());
                    return Output::Write(self.pending.clone());
                }
            }
        }
        self.shut = true;
        Output::Shutdown
    }

    /// Whether there is an echo to wait for; sends the next when it is time.
    fn next_echo(&mut self, now: Time) -> bool {
        let Some(hello) = &self.hello else { return false };
        if self.echo.sent.is_some() {
            return true;
        }
        let over =
            self.began.is_none_or(|began| now >= began + Span::from_millis(u64::from(hello.milliseconds)));
        if over || self.finishing {
            return false;
        }
        if now >= self.echo.next {
            self.echo.sent = Some(now);
            self.echo.left = hello.echo;
            let most = (hello.echo as usize).min(self.pattern.len());
            self.pending = self.pattern.slice(..most);
            self.sent += most as u64;
        }
        true
    }

    fn own_trailer(&self) -> Trailer {
        Trailer {
            received: self.received,
            sent: if self.sends() { self.sent } else { 0 },
            receiving: self.last_received.saturating_sub(self.began.unwrap_or(Time::ZERO)),
            retransmitted: self.info.retransmitted,
            srtt_us: u32::try_from(self.info.srtt.as_micros()).unwrap_or(u32::MAX),
            subflows: self.subflows,
            multipath: self.info.multipath,
        }
    }

    /// Whether the next output may be the trailer: [`TestConnection::update_stack_info`] has to be called
    /// before.
    pub fn is_trailer_due(&self, now: Time) -> bool {
        let sending = self.sends() && self.left_to_send(now) > 0;
        !self.client
            && self.stage == Stage::Running
            && !sending
            && (self.ended || self.mode() == Some(Mode::Down))
    }

    /// Whether the peer has closed its side, or nothing more is read.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The stack took so many bytes of the last [`Output::Write`].
    pub fn wrote(&mut self, now: Time, len: usize) {
        if len == 0 {
            return;
        }
        self.last_progress = now;
        if self.pending.is_empty() {
            self.sent += len as u64;
            self.last_sent = now;
        } else {
            let len = len.min(self.pending.len());
            self.pending.advance(len);
        }
    }

    /// What the stack says now. Ask for it often enough for a reader of numbers, and before the flow ends.
    pub fn update_stack_info(&mut self, now: Time, info: StackInfo) {
        if info.acknowledged != self.info.acknowledged {
            self.last_progress = now;
        }
        if info.subflows == 0 {
            // A connection that is gone: what it said last stands.
            return;
        }
        self.subflows = self.subflows.max(info.subflows);
        self.acknowledged = self.acknowledged.max(self.sent.saturating_sub(info.outstanding));
        // Subflows that went have taken their counts with them. What the trailer has said, stands.
        let retransmitted = match self.stage {
            Stage::Parting => self.info.retransmitted,
            _ => info.retransmitted.max(self.info.retransmitted),
        };
        let srtt = if info.srtt.is_zero() { self.info.srtt } else { info.srtt };
        self.info = StackInfo { retransmitted, srtt, ..info };
    }

    /// No new bytes are sent; the flow ends in good order.
    pub fn finish_sending(&mut self) {
        self.finishing = true;
    }

    /// The flow is over, for this reason.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.error.get_or_insert(why.into());
        self.stage = Stage::Parting;
        self.pending = Bytes::new();
        (self.shut, self.ended) = (true, true);
    }

    /// Gives up a peer that is silent, or that doesn't keep to its time.
    pub fn check(&mut self, now: Time) {
        if self.is_over() {
            return;
        }
        let patience = self.patience();
        if now.saturating_sub(self.last_progress) >= patience {
            let seconds = patience / 1_000_000_000;
            if self.awaits_hello() {
                self.fail(format!("the client didn't say within {seconds} s what it wants"));
            } else {
                self.fail(format!("nothing moved for {seconds} s: the peer is gone"));
            }
        }
        if let (false, Some(hello), Some(began)) = (self.client, &self.hello, self.began)
            && hello.milliseconds > 0
            && now > began + Span::from_millis(u64::from(hello.milliseconds)) + OVERTIME
        {
            self.fail("the client went on long after its time");
        }
    }

    /// When to ask for output, or to [`TestConnection::check`], at the latest.
    pub fn wake(&self, now: Time) -> Option<Time> {
        if self.is_over() {
            return None;
        }
        let mut at = self.last_progress + self.patience();
        if let (Some(hello), Some(began), false) = (&self.hello, self.began, self.shut) {
            let end = began + Span::from_millis(u64::from(hello.milliseconds));
            if hello.milliseconds > 0 && end > now {
                at = at.min(end);
            }
            if self.client && hello.mode == Mode::Echo && self.echo.sent.is_none() {
                at = at.min(self.echo.next);
            }
        }
        Some(at)
    }

    /// Whether both sides are closed, or it failed.
    pub fn is_over(&self) -> bool {
        self.shut && self.pending.is_empty() && (self.ended || (!self.client && self.refused()))
    }

    fn refused(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.refusal.is_some())
    }

    /// Whether this is a server's side whose client hasn't yet said what it wants.
    fn awaits_hello(&self) -> bool {
        !self.client && self.hello.is_none() && self.stage == Stage::Greeting
    }

    /// How long nothing may move.
    fn patience(&self) -> Span {
        if self.awaits_hello() { HELLO_PATIENCE } else { SILENCE }
    }
}

#[cfg(test)]
mod tests;
