//! Helpers for tests of one subflow: an end with a clock, whose peer is the test, and two ends joined by a
//! delay. Initial sequence numbers are 0, so that a sequence number equals a position.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ropewalk_wire::{Flags, FourTuple, Segment, Seq, SyntheticPayload, Timestamps};

use super::{
    Context, Kind, Mapping, Outcome, Outgoing, ReceiveBuffer, Shared, State, Tcb, TcpConfig, Transmit,
};
use crate::config::{CwndConfig, RecoveryConfig};
use crate::congestion::CongestionControl;
use crate::congestion::Siblings;
use crate::metrics::SubflowMetrics;
use crate::{MILLISECOND, PathId, Span, SubflowId, Time};

pub const MSS: u64 = 1000;

fn tuple() -> FourTuple {
    FourTuple::new(SocketAddr::from(([10, 0, 0, 1], 1000)), SocketAddr::from(([10, 0, 0, 2], 80)))
}

/// Reno, without timestamps and delayed ACKs, as most worked examples assume.
pub fn plain_config() -> TcpConfig {
    TcpConfig { timestamps: false, window_scaling: false, ..TcpConfig::default() }
}

/// The same with other rules of recovery.
pub fn with_recovery(change: impl FnOnce(&mut RecoveryConfig)) -> TcpConfig {
    let mut tcp = plain_config();
    change(&mut tcp.recovery);
    tcp
}

/// The same with another congestion window.
pub fn with_cwnd(change: impl FnOnce(&mut CwndConfig)) -> TcpConfig {
    let mut tcp = plain_config();
    change(&mut tcp.cwnd);
    tcp
}

/// The same without tail loss probes.
pub fn without_tlp() -> TcpConfig {
    with_recovery(|recovery| recovery.tail_loss_probe = false)
}

/// A segment that was sent, with what the subflow reported of it.
#[derive(Debug)]
pub struct Sent {
    pub segment: Segment<SyntheticPayload>,
    what: Transmit,
}

impl std::ops::Deref for Sent {
    type Target = Transmit;

    fn deref(&self) -> &Transmit {
        &self.what
    }
}

/// The shared state of a connection of plain TCP.
fn shared(receive: &ReceiveBuffer, more: bool, abandoned: bool) -> Shared<'_> {
    let outgoing = Outgoing { more, ..Outgoing::default() };
    Shared { receive, multipath: false, ack_is_64: false, dsn_is_64: true, abandoned, outgoing }
}

/// One end.
pub struct End {
    pub subflow: Tcb<SyntheticPayload>,
    pub metrics: SubflowMetrics,
    pub congestion: Box<dyn CongestionControl>,
    pub tcp: TcpConfig,
    /// Whether the connection has more data than this subflow.
    pub more: bool,
    /// Whether the application has closed the connection.
    pub abandoned: bool,
    pub receive: ReceiveBuffer,
    pub now: Time,
    pushed: u64,
}

impl End {
    fn make(tcp: TcpConfig, now: Time, open: impl FnOnce(&mut Context<'_>) -> Tcb<SyntheticPayload>) -> Self {
        let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
        let mut congestion = crate::congestion::builtin().parse("reno").expect("reno").build();
        let receive = ReceiveBuffer { limit: 60_000, opened: 60_000, ..ReceiveBuffer::default() };
        let mut cx = Context {
            now,
            metrics: &mut metrics,
            siblings: Siblings::default(),
            congestion: congestion.as_mut(),
            tcp: &tcp,
            timestamp_offset: tcp.timestamp_offset.unwrap_or(0),
            shared: shared(&receive, false, false),
        };
        let subflow = open(&mut cx);
        End { subflow, metrics, congestion, tcp, receive, more: false, abandoned: false, now, pushed: 0 }
    }

    /// Opens actively; its SYN has not been polled.
    pub fn client(tcp: TcpConfig) -> Self {
        Self::make(tcp, Time::ZERO, |cx| Tcb::connect(cx, tuple(), MSS as u32 + 40, 0))
    }

    /// Answers `syn`.
    pub fn server(tcp: TcpConfig, now: Time, syn: &Segment<SyntheticPayload>) -> Self {
        Self::make(tcp, now, |cx| Tcb::accept(cx, syn, MSS as u32 + 40, 0))
    }

    /// Open, after a handshake with a round-trip time of `rtt` milliseconds; the peer's window is 65,535.
    pub fn open(tcp: TcpConfig, rtt: u64) -> Self {
        let mut end = Self::client(tcp);
        assert_eq!(end.sent()[0].kind, Kind::Syn);
        end.now = Time::ZERO + rtt * MILLISECOND;
        let syn_ack = end.syn_ack();
        assert!(end.receive(syn_ack).established);
        assert_eq!(end.sent().len(), 1, "the third ACK");
        end.congestion.subflow_added(&mut end.metrics, Siblings::default(), end.now);
        end
    }

    /// The SYN/ACK that the peer would send, with every option that this end asks for.
    pub fn syn_ack(&self) -> Segment<SyntheticPayload> {
        let mut segment = Segment::new(tuple().reversed(), Seq(0), Seq(1), Flags::SYN.with(Flags::ACK));
        segment.window = 65_535;
        let options = segment.rare_mut();
        options.mss = Some(MSS as u16);
        options.sack_permitted = self.tcp.sack;
        options.window_scale = self.tcp.window_scaling.then_some(0);
        if self.tcp.timestamps {
            segment.timestamps = Some(Timestamps { value: self.peer_clock(), echo: 0 });
        }
        if self.tcp.ecn {
            segment.flags = segment.flags.with(Flags::ECE);
        }
        segment
    }

    fn peer_clock(&self) -> u32 {
        self.now.as_millis() as u32 + 500_000
    }

    pub fn split(&mut self) -> (Context<'_>, &mut Tcb<SyntheticPayload>) {
        let cx = Context {
            now: self.now,
            metrics: &mut self.metrics,
            siblings: Siblings::default(),
            congestion: self.congestion.as_mut(),
            tcp: &self.tcp,
            timestamp_offset: self.tcp.timestamp_offset.unwrap_or(0),
            shared: shared(&self.receive, self.more, self.abandoned),
        };
        (cx, &mut self.subflow)
    }

    pub fn metrics(&self) -> &SubflowMetrics {
        &self.metrics
    }

    pub fn push(&mut self, len: u64) {
        let tag = self.pushed;
        self.pushed += len;
        self.subflow.push(&mut self.metrics, tag, SyntheticPayload(len as u32));
    }

    /// Polls all segments that are due.
    pub fn sent(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        loop {
            let (mut cx, subflow) = self.split();
            let mut segment = Segment::blank();
            match subflow.poll_transmit(&mut cx, 1, &mut segment) {
                Some(what) => all.push(Sent { segment, what }),
                None => break,
            }
        }
        assert!(all.len() < 1000, "it never stops sending");
        all
    }

    /// The segments that are due, as (first sequence number, bytes).
    pub fn sent_data(&mut self) -> Vec<(u32, u32)> {
        let sent = self.sent().into_iter().filter(|t| t.segment.payload.0 > 0);
        sent.map(|t| (t.segment.seq.0, t.segment.payload.0)).collect()
    }

    pub fn receive(&mut self, mut segment: Segment<SyntheticPayload>) -> Outcome {
        let (mut cx, subflow) = self.split();
        let mut outcome = Outcome::default();
        subflow.on_segment::<false>(&mut cx, &mut segment, Mapping::default(), &mut outcome);
        outcome
    }

    /// A segment from the peer at the number that is expected next.
    pub fn peer(&self, flags: Flags, ack: u64) -> Segment<SyntheticPayload> {
        let seq = Seq(self.subflow.rcv_nxt() as u32);
        let mut segment = Segment::new(tuple().reversed(), seq, Seq(ack as u32), flags.with(Flags::ACK));
        segment.window = 65_535;
        if self.tcp.timestamps {
            let echo = self.now.as_millis() as u32;
            segment.timestamps = Some(Timestamps { value: self.peer_clock(), echo });
        }
        segment
    }

    pub fn ack(&mut self, ack: u64) -> Outcome {
        let segment = self.peer(Flags::default(), ack);
        self.receive(segment)
    }

    pub fn sack(&mut self, ack: u64, blocks: &[(u32, u32)]) -> Outcome {
        let mut segment = self.peer(Flags::default(), ack);
        for (left, right) in blocks {
            segment.sack.push(*left, *right);
        }
        self.receive(segment)
    }

    /// Data from the peer at `seq`.
    pub fn data(&mut self, seq: u64, len: u32) -> Outcome {
        let mut segment = self.peer(Flags::default(), self.subflow.snd_nxt());
        segment.seq = Seq(seq as u32);
        segment.payload = SyntheticPayload(len);
        self.receive(segment)
    }

    /// Advances the clock to the millisecond `to`. Returns the segments sent meanwhile, with their times in
    /// milliseconds.
    pub fn wait(&mut self, to: u64) -> Vec<(u64, Sent)> {
        let to = Time::ZERO + to * MILLISECOND;
        let mut all = Vec::new();
        loop {
            let now = self.now;
            all.extend(self.sent().into_iter().map(|t| (now.as_millis(), t)));
            let next = self.subflow.poll_timeout().unwrap_or(Time::MAX);
            if next > to {
                self.now = to;
                return all;
            }
            self.now = next.max(self.now);
            let (mut cx, subflow) = self.split();
            let outcome = subflow.on_timeout(&mut cx);
            if outcome.failed.is_some() || outcome.closed {
                let now = self.now;
                all.extend(self.sent().into_iter().map(|t| (now.as_millis(), t)));
                self.now = to;
                return all;
            }
        }
    }

    pub fn close(&mut self) {
        self.subflow.close();
    }

    pub fn state(&self) -> State {
        self.subflow.state()
    }

    /// Reads all in-order data, as an application does. Returns the number of bytes.
    pub fn read(&mut self) -> u64 {
        std::iter::from_fn(|| self.subflow.next_in_order()).map(|(_, data, _)| u64::from(data.0)).sum()
    }
}

/// Two ends with a one-way delay of `delay`. `lose` decides for each segment, by its sender and how many that
/// has sent before.
pub struct Pair {
    pub ends: [End; 2],
    pub delay: Span,
    pub lose: fn(usize, u64) -> bool,
    pub read: [u64; 2],
    wire: BTreeMap<(Time, u64), (usize, Segment<SyntheticPayload>)>,
    count: [u64; 2],
    serial: u64,
}

impl Pair {
    /// A client that opens and a server that answers.
    pub fn new(client: TcpConfig, server: TcpConfig, delay_ms: u64) -> Self {
        let mut client = End::client(client);
        let syn = client.sent().remove(0).segment;
        let delay = delay_ms * MILLISECOND;
        let server = End::server(server, Time::ZERO + delay, &syn);
        let mut pair = Self::joined([client, server], delay_ms);
        pair.now(Time::ZERO + delay);
        pair
    }

    /// Joins two existing ends.
    pub fn joined(ends: [End; 2], delay_ms: u64) -> Self {
        Pair {
            ends,
            delay: delay_ms * MILLISECOND,
            lose: |_, _| false,
            read: [0; 2],
            wire: BTreeMap::new(),
            count: [0; 2],
            serial: 0,
        }
    }

    fn now(&mut self, now: Time) {
        for end in &mut self.ends {
            end.now = now;
        }
    }

    fn pump(&mut self) {
        for from in 0..2 {
            for transmit in self.ends[from].sent() {
                self.count[from] += 1;
                if (self.lose)(from, self.count[from]) {
                    continue;
                }
                self.serial += 1;
                let mut segment = transmit.segment;
                if from == 1 {
                    segment.tuple = tuple().reversed();
                }
                self.wire.insert((self.ends[from].now + self.delay, self.serial), (1 - from, segment));
            }
            self.read[from] += self.ends[from].read();
        }
    }

    /// Runs for `milliseconds`.
    pub fn run(&mut self, milliseconds: u64) {
        let until = self.ends[0].now + milliseconds * MILLISECOND;
        loop {
            self.pump();
            let mut next = self.wire.keys().next().map_or(Time::MAX, |(at, _)| *at);
            for end in &self.ends {
                next = next.min(end.subflow.poll_timeout().unwrap_or(Time::MAX));
            }
            if next > until {
                break;
            }
            let now = next.max(self.ends[0].now);
            self.now(now);
            while let Some(entry) = self.wire.first_entry()
                && entry.key().0 <= now
            {
                let (to, segment) = entry.remove();
                self.ends[to].receive(segment);
            }
            for end in &mut self.ends {
                let (mut cx, subflow) = end.split();
                subflow.on_timeout(&mut cx);
            }
        }
        self.now(until);
    }

    pub fn states(&self) -> (State, State) {
        (self.ends[0].state(), self.ends[1].state())
    }
}
