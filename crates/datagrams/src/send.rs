//! A link's sending side: what is on its way, what has arrived, what is lost, and whether the link is silent.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::frame::{Data, Feedback, Frame, Parity, Part, Place, add_body};
use crate::rate::{Rate, Report};
use crate::{MILLISECOND, SECOND};

/// Most datagrams of a link that are remembered.
const MOST_SENT: usize = 8192;
/// How long a datagram is remembered whose arrival is unknown.
const KEPT: u64 = 1_000 * MILLISECOND;
/// How long the receiver may keep a feedback back, and what timers are late by.
const FEEDBACK_DELAY: u64 = 12 * MILLISECOND;
/// Most that a datagram is taken to wait on its link for those before it.
const MOST_WAIT: u64 = 150 * MILLISECOND;
/// Datagrams of a far end that sends all it can are apart by less.
const APART: u64 = 15 * MILLISECOND;
/// A timer that is later than this says that the process didn't run, and hasn't read what has arrived
/// meanwhile: silence is judged so much later, and no more than this later.
const LATE: u64 = 2 * MILLISECOND;
const MOST_LATE: u64 = 20 * MILLISECOND;
/// How long after the last datagram of several a probe asks whether they have arrived.
const TAIL: u64 = 10 * MILLISECOND;

/// How often a link is probed that isn't silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// It carries something, or is the next packet's.
    Active,
    /// Nothing flows.
    Idle,
    /// Others are used while they work.
    Resting,
}

impl Pace {
    /// How long a link may be quiet. After 30 s address translators forget it, and QUIC's connections end.
    fn pause(self) -> u64 {
        match self {
            Pace::Active => 50 * MILLISECOND,
            Pace::Idle => 2 * SECOND,
            Pace::Resting => 15 * SECOND,
        }
    }
}

/// Datagrams that one parity is for, and how long it waits for so many.
const GROUP: u8 = 12;
const GROUP_PAUSE: u64 = 5 * MILLISECOND;
/// The shares of lost packets between which parities are sent: fewer aren't worth it, and of more two are
/// lost of
/// most groups.
const WORTH_PARITY: std::ops::Range<f64> = 0.0015..0.08;

/// Datagrams that a parity is to be for.
#[derive(Debug)]
struct Group {
    base: u32,
    count: u8,
    since: u64,
    len: u16,
    body: Vec<u8>,
}

/// A part of a packet, to be sent again if it is lost.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub number: u32,
    pub part: Part,
    pub lane: u8,
    pub place: Option<Place>,
    pub payload: Bytes,
    /// When it is of no use any more.
    pub deadline: u64,
}

/// What was sent.
#[derive(Debug)]
struct Sent {
    at: u64,
    /// Bytes in flight then.
    before: u64,
    len: usize,
    /// `None`: a probe, or what was already given up for lost.
    piece: Option<Piece>,
    is_settled: bool,
}

/// Microseconds, as frames have them.
pub(crate) fn micros(now: u64) -> u32 {
    (now / 1000) as u32
}

/// What a feedback brought.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// Numbers of packets that have arrived, wholly or in part.
    pub arrived: Vec<(u32, Part)>,
    /// What is lost.
    pub lost: Vec<Piece>,
}

/// A link's sending side.
#[derive(Debug)]
pub(crate) struct Sending {
    pub rate: Rate,
    /// The number of the first of `sent`.
    first: u32,
    sent: VecDeque<Sent>,
    pub is_silent: bool,
    pub pace: Pace,
    /// When it fell silent.
    silent_since: u64,
    last_feedback: u64,
    last_sent: u64,
    last_probe: u64,
    group: Option<Group>,
    /// The first datagram of which nothing has been heard: when it was sent, and the bytes in flight then.
    unheard: Option<(u64, u64)>,
    /// The bytes that were in flight before what has arrived, smoothed as its round-trip times are.
    usual: u64,
    /// By how much the far end's clock was ahead when the last datagram arrived there, the way included,
    /// microseconds.
    ahead: u32,
    /// Before this nothing is called silent: the clock was looked at late.
    not_before: u64,
    pub lost: u64,
    pub sent_datagrams: u64,
    pub sent_bytes: u64,
}

impl Sending {
    pub fn new(now: u64) -> Sending {
        Sending {
            rate: Rate::new(now),
            first: 0,
            sent: VecDeque::new(),
            is_silent: true,
            pace: Pace::Active,
            silent_since: now,
            last_feedback: now,
            last_sent: now,
            last_probe: 0,
            group: None,
            unheard: None,
            usual: 0,
            ahead: 0,
            not_before: 0,
            lost: 0,
            sent_datagrams: 0,
            sent_bytes: 0,
        }
    }

    fn note(&mut self, now: u64, len: usize, piece: Option<Piece>) {
        if self.sent.len() >= MOST_SENT {
            self.forget_first();
        }
        let before = self.rate.in_flight;
        self.sent.push_back(Sent { at: now, before, len, piece, is_settled: false });
        self.unheard.get_or_insert((now, before));
        self.last_sent = now;
        self.sent_datagrams += 1;
        self.sent_bytes += len as u64;
        self.rate.on_sent(now, len);
    }

    fn forget_first(&mut self) {
        if let Some(sent) = self.sent.pop_front() {
            self.first = self.first.wrapping_add(1);
            if !sent.is_settled {
                self.rate.in_flight = self.rate.in_flight.saturating_sub(sent.len as u64);
            }
        }
    }

    fn next(&self) -> u32 {
        self.first.wrapping_add(self.sent.len() as u32)
    }

    /// The datagram that carries a piece.
    pub fn send(&mut self, now: u64, piece: Piece) -> Bytes {
        let data = Data {
            link_number: self.next(),
            sent: micros(now),
            number: piece.number,
            part: piece.part,
            lane: piece.lane,
            place: piece.place,
            payload: piece.payload.clone(),
        };
        let bytes = Frame::Data(data).encode();
        self.add_to_group(now, &bytes);
        self.note(now, bytes.len(), Some(piece));
        bytes
    }

    /// What is sent next counts for the next parity. Probes' bodies are empty.
    fn add_to_group(&mut self, now: u64, frame: &[u8]) {
        let base = self.next();
        if self.group.is_none() && !frame.is_empty() && WORTH_PARITY.contains(&self.rate.long_loss) {
            self.group = Some(Group { base, count: 0, since: now, len: 0, body: Vec::new() });
        }
        if let Some(group) = &mut self.group {
            group.count += 1;
            if !frame.is_empty() {
                group.len ^= add_body(&mut group.body, frame);
            }
        }
    }

    /// When a parity is due.
    pub fn parity_at(&self) -> Option<u64> {
        let group = self.group.as_ref()?;
        Some(if group.count >= GROUP { group.since } else { group.since + GROUP_PAUSE })
    }

    /// The parity that is due. It is sent whether there is room or not.
    pub fn take_parity(&mut self, now: u64) -> Option<Bytes> {
        self.parity_at().filter(|at| *at <= now)?;
        let Group { base, count, len, body, .. } = self.group.take()?;
        let parity =
            Parity { link_number: self.next(), sent: micros(now), base, count, len, body: body.into() };
        let bytes = Frame::Parity(parity).encode();
        self.note(now, bytes.len(), None);
        Some(bytes)
    }

    pub fn probe(&mut self, now: u64) -> Bytes {
        let bytes = Frame::Probe { link_number: self.next(), sent: micros(now) }.encode();
        self.last_probe = now;
        self.add_to_group(now, &[]);
        self.note(now, bytes.len(), None);
        bytes
    }

    /// Returns `None` for a feedback of what was never sent.
    pub fn on_feedback(&mut self, now: u64, feedback: &Feedback) -> Option<Settled> {
        let (next, mut settled) = (self.next(), Settled::default());
        let ahead = next.wrapping_sub(feedback.highest);
        if ahead == 0 || ahead > 1 << 31 {
            return None;
        }
        let (mut newest, mut counts) = (None, (0, 0));
        for (at, sent) in self.sent.iter_mut().enumerate() {
            let number = self.first.wrapping_add(at as u32);
            let back = feedback.highest.wrapping_sub(number);
            if back > 1 << 31 {
                break;
            }
            if !sent.is_settled && feedback.has(back) == Some(true) {
                sent.is_settled = true;
                self.rate.in_flight = self.rate.in_flight.saturating_sub(sent.len as u64);
                counts.0 += 1;
                settled.arrived.extend(sent.piece.take().map(|piece| (piece.number, piece.part)));
                newest = Some((sent.at, sent.before));
            }
        }
        let held = feedback.now.wrapping_sub(feedback.arrived);
        let rtt = micros(now).wrapping_sub(feedback.echo).wrapping_sub(held);
        // As RACK (RFC 8985): what was sent well before something that has arrived is lost.
        if let Some((newest, before)) = newest {
            let window = (self.rate.srtt.unwrap_or(0) / 8).clamp(4 * MILLISECOND, 20 * MILLISECOND);
            for sent in self.sent.iter_mut().take_while(|sent| sent.at + window < newest) {
                if !sent.is_settled {
                    sent.is_settled = true;
                    self.rate.in_flight = self.rate.in_flight.saturating_sub(sent.len as u64);
                    counts.1 += 1;
                    self.lost += 1;
                    settled.lost.extend(sent.piece.take());
                }
            }
            self.is_silent = false;
            // A feedback tells of what was sent half a round trip ago.
            self.unheard = self.sent.iter().find(|sent| sent.at > newest).map(|sent| (sent.at, sent.before));
            self.usual = (7 * self.usual + before) / 8;
            self.ahead = feedback.arrived.wrapping_sub(feedback.echo);
        }
        self.last_feedback = now;
        // More than ten seconds: the far end's clock jumped, or its feedback is false. It is ignored.
        if rtt < 10_000_000 {
            let delay = feedback.least_delay as i32;
            let (arrived, bytes) = (feedback.arrived, feedback.bytes);
            self.rate.on_feedback(now, &Report { rtt: u64::from(rtt) * 1000, arrived, bytes, delay, counts });
        }
        while self.sent.front().is_some_and(|sent| sent.is_settled) {
            self.forget_first();
        }
        Some(settled)
    }

    /// When the link counts as silent, if nothing is heard. `last`: when the far end sent the last datagram
    /// that came over the link, by its clock in microseconds, and when that came.
    pub fn silent_at(&self, last: (u32, u64)) -> Option<u64> {
        let (since, before) = self.unheard.filter(|_| !self.is_silent)?;
        let Some(srtt) = self.rate.srtt else { return Some(since + 300 * MILLISECOND) };
        // It waits for more than those did whose round-trip times are known.
        let wait = self.rate.takes(before.saturating_sub(self.usual)).min(MOST_WAIT);
        let variance = (4 * self.rate.variance).clamp(5 * MILLISECOND, 150 * MILLISECOND);
        let mut due = (since + wait + srtt + variance + FEEDBACK_DELAY).max(self.not_before);
        // Feedback comes after what the far end has sent before it, and all of that isn't here yet.
        let answered = micros(since + wait + FEEDBACK_DELAY).wrapping_add(self.ahead);
        let (sent, arrived) = last;
        if answered.wrapping_sub(sent) < 1 << 31 {
            due = due.max(arrived + APART);
        }
        Some(due)
    }

    /// Looks at the clock: returns what was on a link that has fallen silent.
    /// `last` as in [`Sending::silent_at`]; `late`: how much later than it was to be.
    pub fn on_timeout(&mut self, now: u64, late: u64, last: (u32, u64)) -> Vec<Piece> {
        while self.sent.front().is_some_and(|sent| sent.is_settled || now.saturating_sub(sent.at) > KEPT) {
            self.forget_first();
        }
        if self.silent_at(last).is_none_or(|due| due > now) {
            return Vec::new();
        }
        if late > LATE && self.unheard.is_some_and(|(since, _)| self.not_before <= since) {
            self.not_before = now + late.min(MOST_LATE);
            return Vec::new();
        }
        self.fall_silent(now)
    }

    /// The link is silent: returns what was on it.
    pub fn fall_silent(&mut self, now: u64) -> Vec<Piece> {
        self.is_silent = true;
        self.silent_since = now;
        // They may have arrived: a later feedback says so.
        self.sent.iter().filter(|sent| !sent.is_settled).filter_map(|sent| sent.piece.clone()).collect()
    }

    /// When the link fell silent that had been heard.
    pub fn silent_since(&self) -> Option<u64> {
        self.rate.srtt.filter(|_| self.is_silent).map(|_| self.silent_since)
    }

    /// When a probe is due.
    pub fn probe_at(&self) -> u64 {
        let last = self.last_sent.max(self.last_probe);
        if self.is_silent {
            let silent = self.last_probe.saturating_sub(self.silent_since);
            let pause = match silent / MILLISECOND {
                0..2_000 => 20,
                2_000..10_000 => 100,
                _ => 500,
            };
            return self.last_probe + pause * MILLISECOND;
        }
        match self.unheard {
            // What was sent last has no follower that would tell.
            Some(_) if self.last_probe < self.last_sent => last + TAIL,
            _ => last + self.pace.pause(),
        }
    }
}
