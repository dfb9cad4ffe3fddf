//! qlog 0.3 as JSON (draft-ietf-quic-qlog-main-schema-02), with the event names of its QUIC companion: the
//! newest version that qvis reads.
//!
//! There is one trace. Every event has the `group_id` of its subflow, by which qvis splits it into
//! connections. TCP has no packet numbers and no frames, so they are made here (see [`crate::numbers`]):
//! payload is a `stream` frame at its offset in the subflow, and newly acknowledged data is an `ack` frame.
//! Fields that QUIC's schema doesn't have are under `tcp`. Scheduler decisions are events `mptcp:decision`.

use std::collections::HashMap;
use std::io::{self, Write};

use ropewalk_time::{Span, Time};
use ropewalk_wire::{Flags, FourTuple, ParseError, ParseMode, Payload, Segment, parse_headers};
use serde_json::{Value, json};

use crate::numbers::Half;
use crate::{Direction, Packet, Path};

/// The recorded end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vantage {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// A sample of a subflow's metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// Segments.
    pub cwnd: u32,
    /// Segments; `u32::MAX`: not set yet.
    pub ssthresh: u32,
    /// Segments.
    pub in_flight: u32,
    /// Nanoseconds; 0: not measured yet.
    pub srtt: Span,
}

/// A scheduler's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision<'a> {
    /// Number of the connection.
    pub connection: u32,
    /// The subflow concerned, as this end sends on it.
    pub subflow: Option<FourTuple>,
    /// The kind of decision: "send", "wait".
    pub decision: &'a str,
    /// Stream offset.
    pub offset: u64,
    /// Bytes.
    pub bytes: u32,
    /// Why.
    pub reason: &'a str,
}

/// A log that is being written. Events must be in order of time.
#[derive(Debug)]
pub struct Qlog<W: Write> {
    writer: W,
    paths: Vec<String>,
    /// Index into `subflows`, by the tuple with which this end sends.
    known: HashMap<FourTuple, usize>,
    subflows: Vec<Subflow>,
    events: u64,
}

#[derive(Debug)]
struct Subflow {
    group: String,
    sent: Half,
    received: Half,
    metrics: Option<Metrics>,
}

impl<W: Write> Qlog<W> {
    /// Begins a log with a title.
    ///
    /// # Errors
    /// The writer's error.
    pub fn new(mut writer: W, title: &str, vantage: Vantage, paths: &[Path]) -> io::Result<Self> {
        let vantage = match vantage {
            Vantage::Client => json!({ "name": "ropewalk", "type": "client" }),
            Vantage::Server => json!({ "name": "ropewalk", "type": "server" }),
        };
        let common =
            json!({ "protocol_type": ["TCP", "MPTCP"], "time_format": "relative", "reference_time": 0 });
        // Events are written one by one, inside what is one JSON value.
        write!(
            writer,
            "{{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON\",\"title\":{},\"traces\":[{{\
             \"vantage_point\":{vantage},\"common_fields\":{common},\"events\":[",
            json!(title)
        )?;
        let paths = paths.iter().map(|path| path.name.clone()).collect();
        Ok(Qlog { writer, paths, known: HashMap::new(), subflows: Vec::new(), events: 0 })
    }

    fn event(&mut self, at: Time, group: &str, name: &str, data: &Value) -> io::Result<()> {
        let comma = if self.events == 0 { "" } else { "," };
        self.events += 1;
        let time = at.since_origin().as_millis_f64();
        let event = json!({ "time": time, "name": name, "group_id": group, "data": data });
        write!(self.writer, "{comma}\n{event}")
    }

    /// The subflow that sends with this tuple.
    fn subflow(&mut self, at: Time, path: u16, tuple: FourTuple) -> io::Result<usize> {
        if let Some(&index) = self.known.get(&tuple) {
            return Ok(index);
        }
        let index = self.subflows.len();
        let path = self.paths.get(usize::from(path)).map_or("?", String::as_str);
        let group = format!("{path} {}-{}", tuple.source(), tuple.destination());
        let started = json!({
            "ip_version": if tuple.src.is_ipv4() { "v4" } else { "v6" },
            "protocol": "MPTCP",
            "path": path,
            "src_ip": tuple.src.to_string(),
            "dst_ip": tuple.dst.to_string(),
            "src_port": tuple.src_port,
            "dst_port": tuple.dst_port,
        });
        self.event(at, &group, "connectivity:connection_started", &started)?;
        self.known.insert(tuple, index);
        self.subflows.push(Subflow {
            group,
            sent: Half::default(),
            received: Half::default(),
            metrics: None,
        });
        Ok(index)
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// The writer's error, or bytes that aren't a TCP packet.
    pub fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let not_tcp = |error: ParseError| io::Error::new(io::ErrorKind::InvalidData, error);
        let (mut segment, payload) =
            parse_headers::<ropewalk_wire::SyntheticPayload>(packet.bytes, ParseMode::Trust)
                .map_err(not_tcp)?;
        segment.payload = ropewalk_wire::SyntheticPayload(payload.len() as u32);
        let sent = packet.direction == Direction::Sent;
        let ours = if sent { segment.tuple } else { segment.tuple.reversed() };
        let index = self.subflow(packet.at, packet.path, ours)?;
        let subflow = &mut self.subflows[index];
        let (this, other) = if sent {
            (&mut subflow.sent, &mut subflow.received)
        } else {
            (&mut subflow.received, &mut subflow.sent)
        };
        let numbered = this.packet(&segment);
        let acked = other.acknowledged(&segment);
        let group = subflow.group.clone();
        let kind = if segment.flags.contains(Flags::SYN) { "initial" } else { "1RTT" };
        if sent {
            for number in numbered.lost {
                let header = json!({ "packet_type": "1RTT", "packet_number": number });
                let lost = json!({ "header": header, "packet_number": number, "trigger": "sent again" });
                self.event(packet.at, &group, "recovery:packet_lost", &lost)?;
            }
        }
        let mut frames = Vec::new();
        if !acked.is_empty() {
            frames.push(json!({ "frame_type": "ack", "acked_ranges": acked }));
        }
        if !segment.payload.is_empty() {
            frames.push(json!({
                "frame_type": "stream",
                "stream_id": "0",
                "offset": numbered.offset.to_string(),
                "length": segment.payload.len(),
                "fin": segment.flags.contains(Flags::FIN),
            }));
        }
        let mut data = json!({
            "header": { "packet_type": kind, "packet_number": numbered.number },
            "raw": { "length": packet.bytes.len(), "payload_length": segment.payload.len() },
            "frames": frames,
            "tcp": tcp(&segment),
        });
        if let Some(comment) = packet.comment {
            data["trigger"] = json!(comment);
        }
        let name = if sent { "transport:packet_sent" } else { "transport:packet_received" };
        self.event(packet.at, &group, name, &data)
    }

    /// Adds a sample of a subflow's metrics, if they have changed; `tuple` is that with which this end sends.
    /// Ignored for a subflow that has sent nothing yet.
    ///
    /// # Errors
    /// The writer's error.
    pub fn metrics(&mut self, at: Time, tuple: FourTuple, metrics: Metrics) -> io::Result<()> {
        let Some(&index) = self.known.get(&tuple) else { return Ok(()) };
        let subflow = &mut self.subflows[index];
        if subflow.metrics == Some(metrics) || subflow.sent.largest == 0 {
            return Ok(());
        }
        subflow.metrics = Some(metrics);
        // qlog counts bytes: the largest payload so far is taken as the segment size.
        let size = subflow.sent.largest as u64;
        let bytes = |segments: u32| u64::from(segments) * size;
        let mut data = json!({
            "congestion_window": bytes(metrics.cwnd),
            "bytes_in_flight": bytes(metrics.in_flight),
            "packets_in_flight": metrics.in_flight,
        });
        if metrics.ssthresh != u32::MAX {
            data["ssthresh"] = json!(bytes(metrics.ssthresh));
        }
        if !metrics.srtt.is_zero() {
            data["smoothed_rtt"] = json!(metrics.srtt.as_millis_f64());
        }
        let group = subflow.group.clone();
        self.event(at, &group, "recovery:metrics_updated", &data)
    }

    /// Adds a scheduler's decision.
    ///
    /// # Errors
    /// The writer's error.
    pub fn decision(&mut self, at: Time, decision: &Decision<'_>) -> io::Result<()> {
        let known = decision.subflow.and_then(|tuple| self.known.get(&tuple));
        let group = match known {
            Some(&index) => self.subflows[index].group.clone(),
            None => format!("connection {}", decision.connection),
        };
        let data = json!({
            "decision": decision.decision,
            "offset": decision.offset,
            "bytes": decision.bytes,
            "reason": decision.reason,
        });
        self.event(at, &group, "mptcp:decision", &data)
    }

    /// Ends the log.
    ///
    /// # Errors
    /// The writer's error.
    pub fn finish(mut self) -> io::Result<W> {
        self.writer.write_all(b"\n]}]}\n")?;
        self.writer.flush()?;
        Ok(self.writer)
    }
}

/// The TCP and MPTCP fields of a packet.
fn tcp<P: Payload>(segment: &Segment<P>) -> Value {
    let mut tcp = json!({
        "flags": format!("{:?}", segment.flags).trim_end(),
        "seq": segment.seq.0,
        "ack": segment.ack.0,
        "window": segment.window,
    });
    if !segment.sack.is_empty() {
        let blocks: Vec<_> = segment.sack.as_slice().iter().map(|&(left, right)| [left, right]).collect();
        tcp["sack"] = json!(blocks);
    }
    if let Some(dss) = &segment.dss {
        // 64-bit numbers are text: JavaScript's numbers lose the last bits.
        if let Some(ack) = dss.data_ack {
            tcp["data_ack"] = json!(ack.to_string());
        }
        if let Some(mapping) = &dss.mapping {
            tcp["dsn"] = json!(mapping.dsn.to_string());
            tcp["data_len"] = json!(mapping.len);
        }
        if dss.data_fin {
            tcp["data_fin"] = json!(true);
        }
    }
    let names: Vec<_> = segment.rare.iter().flat_map(|rare| rare.mptcp_names()).collect();
    if !names.is_empty() {
        tcp["mptcp"] = json!(names);
    }
    tcp
}
