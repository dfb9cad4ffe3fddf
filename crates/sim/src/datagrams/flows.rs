//! One way of a flow: what it sends when, and what comes of it.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use ropewalk_datagrams::packet::{FlowKey, Summary, protocol};
use ropewalk_engine::{Span, Time};

use super::download::Sender;
use super::{FlowGot, Kind};
use crate::Side;
use crate::spec::Direction;

/// IP packets, bytes.
const VOICE: usize = 200;
const GAME: usize = 120;
const VIDEO: usize = 1186;
const PER_FRAME: u64 = 9;
const DOWNLOAD: usize = 1280;
const ACK: usize = 80;
/// An acknowledgement for so many packets of a download.
const ACK_EVERY: u64 = 2;

const SECOND: Span = Span::from_secs(1);

/// What a packet's first bytes say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    /// Which way of which flow.
    pub way: usize,
    /// Its number; of an acknowledgement the time at which it was sent.
    pub number: u64,
    pub is_ack: bool,
}

impl Label {
    const LEN: usize = 13;

    pub(super) fn read(packet: &[u8]) -> Option<Label> {
        let (way, rest) = packet.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        Some(Label {
            way: u32::from_be_bytes(*way) as usize,
            number: u64::from_be_bytes(*number),
            is_ack: *rest.first()? != 0,
        })
    }

    fn packet(self, len: usize) -> Bytes {
        let mut bytes = Vec::with_capacity(len.max(Label::LEN));
        bytes.extend((self.way as u32).to_be_bytes());
        bytes.extend(self.number.to_be_bytes());
        bytes.push(self.is_ack.into());
        bytes.resize(len.max(Label::LEN), 0);
        bytes.into()
    }
}

/// One way of a flow.
#[derive(Debug)]
pub(super) struct Way {
    kind: Kind,
    flow: usize,
    /// Its place among the ways.
    place: usize,
    pub from: Side,
    begin: Time,
    end: Time,
    /// Steps that were made.
    steps: u64,
    /// When each packet was sent.
    sent: Vec<Time>,
    /// When each came; `Time::MAX`: not yet.
    came: Vec<Time>,
    arrivals: Vec<Time>,
    download: Option<Sender>,
    bytes: u64,
}

impl Way {
    /// The ways of a flow.
    pub(super) fn all(kind: Kind, flow: usize, from: Side, (begin, end): (Time, Time)) -> Vec<Way> {
        let way = |from| Way {
            kind,
            flow,
            place: 0,
            from,
            begin,
            end,
            steps: 0,
            sent: Vec::new(),
            came: Vec::new(),
            arrivals: Vec::new(),
            download: (kind == Kind::Download).then(|| Sender::new(begin)),
            bytes: 0,
        };
        match kind {
            Kind::Voice | Kind::Game => vec![way(Side::Client), way(Side::Server)],
            Kind::Video | Kind::Download => vec![way(from)],
        }
    }

    /// With its place among all ways.
    pub(super) fn at(self, place: usize) -> Way {
        Way { place, ..self }
    }

    /// Addresses, ports and protocol of its packets (or of the acknowledgements that answer them), which the
    /// tunnel's scheduler looks at.
    pub(super) fn summary(&self, from: Side) -> Summary {
        let address = |side| IpAddr::V4(Ipv4Addr::new(192, 0, 2, side as u8 + 1));
        Summary {
            flow: FlowKey {
                source: address(from),
                destination: address(from.other()),
                protocol: protocol::UDP,
                ports: Some((self.place as u16, self.place as u16)),
            },
            dscp: 0,
            is_later_fragment: false,
            is_quic: self.kind == Kind::Download,
        }
    }

    /// When something is to be sent, or has timed out.
    pub(super) fn next(&self) -> Option<Time> {
        let step = |every: Span| self.begin + self.steps * every;
        let at = match self.kind {
            Kind::Voice => step(SECOND / 50),
            Kind::Game => step(SECOND / 60),
            Kind::Video => step(SECOND / 30),
            Kind::Download if self.steps == 0 => self.begin,
            Kind::Download => self.download.as_ref()?.timeout()?,
        };
        (at < self.end).then_some(at)
    }

    /// Sends what is due; packets are pushed to `out`.
    pub(super) fn step(&mut self, now: Time, out: &mut Vec<Bytes>) {
        self.steps += 1;
        match self.kind {
            Kind::Voice => self.send(now, VOICE, out),
            Kind::Game => self.send(now, GAME, out),
            Kind::Video => (0..PER_FRAME).for_each(|_| self.send(now, VIDEO, out)),
            Kind::Download => {
                if let Some(sender) = &mut self.download {
                    sender.on_timeout(now);
                }
                self.pump(now, out);
            }
        }
    }

    fn pump(&mut self, now: Time, out: &mut Vec<Bytes>) {
        while now < self.end && self.download.as_mut().is_some_and(|sender| sender.send(now).is_some()) {
            self.send(now, DOWNLOAD, out);
        }
    }

    fn send(&mut self, now: Time, len: usize, out: &mut Vec<Bytes>) {
        let label = Label { way: self.place, number: self.sent.len() as u64, is_ack: false };
        out.push(label.packet(len));
        self.sent.push(now);
        self.came.push(Time::MAX);
    }

    /// A packet of it came. `out`: what answers.
    pub(super) fn on_packet(&mut self, now: Time, label: Label, len: usize, out: &mut Vec<Bytes>) {
        if label.is_ack {
            let came = &self.came;
            if let Some(sender) = &mut self.download {
                sender.on_ack(now, |number| {
                    came.get(number as usize).is_some_and(|at| at.as_nanos() <= label.number)
                });
            }
            self.pump(now, out);
            return;
        }
        let Some(came) = self.came.get_mut(label.number as usize).filter(|came| **came == Time::MAX) else {
            return;
        };
        *came = now;
        self.arrivals.push(now);
        self.bytes += len as u64;
        if self.kind == Kind::Download && (self.arrivals.len() as u64).is_multiple_of(ACK_EVERY) {
            out.push(Label { way: self.place, number: now.as_nanos(), is_ack: true }.packet(ACK));
        }
    }

    /// What came of it.
    pub(super) fn got(self, deadline: Span) -> FlowGot {
        let came = self.sent.iter().zip(&self.came).filter(|(_, came)| **came != Time::MAX);
        let mut delays: Vec<Span> = came.map(|(sent, came)| *came - *sent).collect();
        delays.sort_unstable();
        let late = delays.iter().filter(|delay| **delay > deadline).count() as u64;
        FlowGot {
            kind: self.kind,
            flow: self.flow,
            direction: match self.from {
                Side::Client => Direction::Upload,
                Side::Server => Direction::Download,
            },
            sent: self.sent.len() as u64,
            lost: (self.sent.len() - delays.len()) as u64,
            late: if self.kind == Kind::Download { 0 } else { late },
            delays,
            gap: self.arrivals.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default(),
            bytes: self.bytes,
        }
    }
}
