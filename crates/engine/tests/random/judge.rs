//! The judges: what must hold of every segment, every state and every end.

use std::sync::OnceLock;

use bytes::{Bytes, BytesMut};
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::mptcp::Key;
use ropewalk_wire::{ChecksumMode, Flags, ParseMode, Segment, Seq};

use crate::case::{Case, MOST_BYTES};
use crate::network::Flip;
use crate::world::{Script, brief};

/// What was wrong.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    pub judge: Judge,
    pub detail: String,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Judge {
    /// A byte arrived that was not sent there.
    WrongByte,
    /// The end of the stream came before its last byte.
    Truncated,
    /// Data beyond what the peer advertised.
    WindowExceeded,
    /// New data although the congestion window was full.
    CongestionWindowExceeded,
    /// A buffer grew beyond its limit.
    MemoryExceeded,
    /// A segment that can't be put on the wire, or comes back as another.
    Codec,
    /// A connection failed although nothing broke it.
    Failed,
    /// It wasn't complete in time although a path delivered.
    TooLate,
    /// More packets than anything can need.
    Storm,
    /// The engine panicked.
    Panic,
    /// The same case twice gave different packets.
    NotDeterministic,
}

/// The byte at `offset` of the stream that `end` writes.
fn pattern(end: usize, offset: u64) -> u8 {
    ((offset.wrapping_mul(2) + end as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8
}

/// Bytes `offset..offset + len` of the stream that `end` writes.
pub fn stream(end: usize, offset: u64, len: u64) -> Bytes {
    static STREAMS: OnceLock<[Bytes; 2]> = OnceLock::new();
    let whole = |end| (0..MOST_BYTES).map(|offset| pattern(end, offset)).collect();
    let streams = STREAMS.get_or_init(|| [whole(0), whole(1)]);
    streams[end].slice(offset as usize..(offset + len) as usize)
}

/// What one end may send, by what the other has advertised.
#[derive(Clone, Copy, Default)]
struct Credit {
    isn: Option<u32>,
    /// Right edge by DATA_ACKs, as a stream offset.
    data_edge: u64,
    data_ack: u64,
    /// Right edge by the first subflow's acknowledgements.
    plain_edge: u64,
    plain_ack: u64,
    sent: u64,
}

pub struct Judges {
    idsn: [u64; 2],
    shift: u8,
    /// More than one subflow is possible: after a fallback, subflow positions say nothing of the stream.
    may_join: bool,
    credit: [Credit; 2],
    first: Option<u16>,
    pub packets: u64,
    most_packets: u64,
    /// Loss probes that may have exceeded the congestion window by one, by end and subflow.
    probes: [Vec<u64>; 2],
    buffer: BytesMut,
}

impl Judges {
    pub fn new(case: &Case, keys: [u64; 2]) -> Self {
        let scaling = case.sides.iter().all(|side| side.window_scaling);
        Judges {
            idsn: keys.map(|key| Key::new(key).idsn),
            shift: if scaling { 10 } else { 0 },
            may_join: case.paths.len() > 1 || case.sides.iter().any(|side| side.signal),
            credit: Default::default(),
            first: None,
            packets: 0,
            most_packets: 3_000 + case.bytes() / 20,
            probes: Default::default(),
            buffer: BytesMut::new(),
        }
    }

    /// A packet leaves `from`.
    pub fn on_sent(&mut self, from: usize, segment: &Segment<Bytes>) -> Result<(), Verdict> {
        self.packets += 1;
        if self.packets > self.most_packets {
            return Err(verdict(Judge::Storm, format!("packet {}: {}", self.packets, brief(segment))));
        }
        self.codec(segment)?;
        let credit = &mut self.credit[from];
        if segment.flags.contains(Flags::SYN) {
            let port = if from == 0 { segment.tuple.src_port } else { segment.tuple.dst_port };
            if *self.first.get_or_insert(port) == port {
                credit.isn.get_or_insert(segment.seq.0);
            }
            return Ok(());
        }
        let len = segment.payload.len() as u64;
        if len == 0 {
            return Ok(());
        }
        let capable = segment.rare.as_deref().and_then(|rare| rare.mp_capable);
        let mapping = segment.dss.and_then(|dss| dss.mapping);
        if let Some(mapping) = mapping.filter(|mapping| mapping.len > 0) {
            let fin = u64::from(segment.dss.is_some_and(|dss| dss.data_fin));
            let offset = mapping.dsn.wrapping_sub(self.idsn[from]).wrapping_sub(1);
            let end = offset + u64::from(mapping.len) - fin;
            credit.sent = credit.sent.max(end);
            if end > credit.data_edge {
                let edge = credit.data_edge;
                return Err(verdict(
                    Judge::WindowExceeded,
                    format!("offset {end} beyond {edge}: {}", brief(segment)),
                ));
            }
        } else if let Some(len) = capable.and_then(|capable| capable.data_len) {
            let len = u64::from(len);
            credit.sent = credit.sent.max(len);
            if len > credit.data_edge {
                return Err(verdict(
                    Judge::WindowExceeded,
                    format!("first data of {len}: {}", brief(segment)),
                ));
            }
        } else if let Some(isn) = credit.isn
            && !self.may_join
        {
            let end = Seq(segment.seq.0.wrapping_sub(isn).wrapping_sub(1)).unfold(credit.plain_ack) + len;
            let edge = credit.plain_edge.max(credit.data_edge);
            if end > edge {
                return Err(verdict(
                    Judge::WindowExceeded,
                    format!("position {end} beyond {edge}: {}", brief(segment)),
                ));
            }
        }
        Ok(())
    }

    /// A packet arrives at `to`, which learns from it what it may send.
    pub fn on_heard(&mut self, to: usize, segment: &Segment<Bytes>) {
        if segment.flags.contains(Flags::RST) {
            return;
        }
        let shift = if segment.flags.contains(Flags::SYN) { 0 } else { self.shift };
        let window = u64::from(segment.window) << shift;
        let credit = &mut self.credit[to];
        if let Some(ack) = segment.dss.and_then(|dss| dss.data_ack) {
            let relative = (ack as u32).wrapping_sub(self.idsn[to] as u32).wrapping_sub(1);
            let acked = Seq(relative).unfold(credit.data_ack);
            if acked <= credit.sent + 1 {
                credit.data_ack = credit.data_ack.max(acked);
                credit.data_edge = credit.data_edge.max(acked + window);
            }
        } else if segment.rare.as_deref().is_some_and(|rare| rare.mp_capable.is_some()) {
            credit.data_edge = credit.data_edge.max(window);
        }
        let port = if to == 0 { segment.tuple.dst_port } else { segment.tuple.src_port };
        if let (Some(isn), true) =
            (credit.isn, self.first == Some(port) && segment.flags.contains(Flags::ACK))
        {
            let acked = Seq(segment.ack.0.wrapping_sub(isn).wrapping_sub(1)).unfold(credit.plain_ack);
            if acked < 1 << 62 {
                credit.plain_ack = credit.plain_ack.max(acked);
                credit.plain_edge = credit.plain_edge.max(acked + window);
            }
        }
    }

    /// The segment as bytes and back.
    fn codec(&mut self, segment: &Segment<Bytes>) -> Result<(), Verdict> {
        self.buffer.clear();
        if let Err(error) = ropewalk_wire::encode_into(segment, ChecksumMode::None, &mut self.buffer) {
            return Err(verdict(Judge::Codec, format!("{error}: {segment:?}")));
        }
        let mut said = segment.clone();
        if let Some(dss) = said.dss.as_mut() {
            // Of a short number only the low half is on the wire.
            dss.data_ack = dss.data_ack.map(|ack| if dss.ack_is_64 { ack } else { ack & 0xffff_ffff });
        }
        match ropewalk_wire::parse(self.buffer.split().freeze(), ParseMode::Trust) {
            Ok(back) if back == said => Ok(()),
            Ok(back) => {
                Err(verdict(Judge::Codec, format!("{}\ncame back as {}", brief(segment), brief(&back))))
            }
            Err(error) => Err(verdict(Judge::Codec, format!("{error}: {segment:?}"))),
        }
    }

    /// In flight before and after a segment was taken from an end.
    pub fn on_polled(
        &mut self,
        end: usize,
        before: &[u32],
        endpoint: &Endpoint<Bytes, Script>,
        id: ConnectionId,
        fin: bool,
    ) -> Result<(), Verdict> {
        let Some(connection) = endpoint.connection(id) else { return Ok(()) };
        for flow in connection.subflow_metrics() {
            let index = flow.id.index();
            let was = before.get(index).copied().unwrap_or(0);
            let known = &mut self.probes[end];
            known.resize(known.len().max(index + 1), 0);
            let probes = connection.tcp_counters(flow.id).map_or(0, |counters| counters.loss_probes);
            let probed = probes > known[index];
            if flow.in_flight() <= was.max(flow.cwnd()) {
                continue;
            }
            known[index] = probes;
            // A tail loss probe may be one too many (RFC 8985 7.3), and FIN waits for no window.
            if flow.in_flight() > was.max(flow.cwnd()) + u32::from(probed || fin) {
                let detail =
                    format!("in flight {} of {}, before {was}: {flow:?}", flow.in_flight(), flow.cwnd());
                return Err(verdict(Judge::CongestionWindowExceeded, detail));
            }
        }
        Ok(())
    }

    /// What `end` has received must be what the other wrote.
    pub fn on_read(
        &self,
        end: usize,
        offset: u64,
        data: &[u8],
        flips: &[Flip],
        fell_back: bool,
    ) -> Result<(), Verdict> {
        let sender = 1 - end;
        if data == stream(sender, offset, data.len() as u64) {
            return Ok(());
        }
        for (index, byte) in data.iter().enumerate() {
            let at = offset + index as u64;
            let right = pattern(sender, at);
            let flipped = |flip: &Flip| {
                let place = flip.dsn.wrapping_sub(self.idsn[sender]).wrapping_sub(1) + flip.at;
                flip.sender == sender && place == at && right ^ flip.mask == *byte
            };
            // RFC 8684 3.7: a lone subflow continues as plain TCP, and altered bytes stay altered.
            if *byte != right && !(fell_back && flips.iter().any(flipped)) {
                let detail = format!("end {end} got {byte:#x} at {at}, {right:#x} was sent");
                return Err(verdict(Judge::WrongByte, detail));
            }
        }
        Ok(())
    }
}

pub fn verdict(judge: Judge, detail: String) -> Verdict {
    Verdict { judge, detail }
}
