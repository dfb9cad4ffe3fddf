//! What an endpoint does as qlog: JSON text sequences (RFC 7464) by draft-ietf-quic-qlog-main-schema-14, one
//! record at a time, so that a log can be read while it grows. Events are of a schema of its own,
//! `mptcp:...`: QUIC's (draft-ietf-quic-qlog-quic-events-13) asks for packet headers and connection IDs,
//! which TCP hasn't. Fields that mean the same are called as there. Times are milliseconds, numbers of 64
//! bits are text.
//!
#![doc = concat!("```\n", include_str!("../examples/qlog.rs"), "```")]

use std::io::{self, Write};

use ropewalk_wire::{Flags, Payload, Segment};
use serde_json::{Value, json};

use crate::endpoint::ConnectionId;
use crate::metrics::SubflowMetrics;
use crate::mptcp::{CloseReason, Connection, Event};
use crate::{PathId, Span, Time};

/// Which end is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vantage {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// A log that is being written.
#[derive(Debug)]
pub struct Log<W: Write> {
    writer: W,
}

/// Names of TCP's flags.
const FLAGS: [(Flags, &str); 6] = [
    (Flags::SYN, "SYN"),
    (Flags::ACK, "ACK"),
    (Flags::FIN, "FIN"),
    (Flags::RST, "RST"),
    (Flags::PSH, "PSH"),
    (Flags::ECE, "ECE"),
];

fn milliseconds(time: Span) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// Which end caused a connection's end.
fn initiator(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Refused
        | CloseReason::ResetByPeer(_)
        | CloseReason::FastClose
        | CloseReason::AddressRemoved => "remote",
        _ => "local",
    }
}

impl<W: Write> Log<W> {
    /// Begins a log. Its times are those that the endpoint is given: from an epoch that the log doesn't know.
    ///
    /// # Errors
    /// When the writer fails.
    pub fn new(writer: W, title: &str, vantage: Vantage) -> io::Result<Self> {
        let mut log = Log { writer };
        let vantage = match vantage {
            Vantage::Client => "client",
            Vantage::Server => "server",
        };
        log.record(&json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": title,
            "trace": {
                "event_schemas": ["urn:ropewalk:qlog:events:mptcp"],
                "vantage_point": { "type": vantage },
                "common_fields": {
                    "time_format": "relative_to_epoch",
                    "reference_time": { "clock_type": "monotonic", "epoch": "unknown" },
                },
            },
        }))?;
        Ok(log)
    }

    fn record(&mut self, value: &Value) -> io::Result<()> {
        self.writer.write_all(b"\x1e")?;
        serde_json::to_writer(&mut self.writer, value)?;
        self.writer.write_all(b"\n")
    }

    fn write(&mut self, now: Time, group: String, name: &str, data: Value) -> io::Result<()> {
        let time = milliseconds(now.since_origin());
        self.record(&json!({ "time": time, "name": name, "group_id": group, "data": data }))
    }

    /// An event of the endpoint's ([`Endpoint::poll_event`](crate::Endpoint::poll_event)). Readiness isn't
    /// logged.
    ///
    /// # Errors
    /// When the writer fails.
    pub fn event(&mut self, now: Time, id: ConnectionId, event: &Event) -> io::Result<()> {
        let (name, data) = match event {
            Event::Connected { multipath } => ("mptcp:connected", json!({ "multipath": multipath })),
            Event::Accepted { tuple, multipath } => (
                "mptcp:accepted",
                json!({
                    "local": { "ip": tuple.src, "port": tuple.src_port },
                    "remote": { "ip": tuple.dst, "port": tuple.dst_port },
                    "multipath": multipath,
                }),
            ),
            Event::Closed => ("mptcp:connection_closed", json!({ "trigger": "clean" })),
            Event::Reset { reason } => {
                let timed_out = reason.kind() == io::ErrorKind::TimedOut;
                (
                    "mptcp:connection_closed",
                    json!({
                        "initiator": initiator(*reason),
                        "trigger": if timed_out { "idle_timeout" } else { "error" },
                        "reason": reason.to_string(),
                    }),
                )
            }
            Event::PeerClosed => ("mptcp:peer_closed", json!({})),
            Event::SubflowAdded { subflow, path, tuple } => (
                "mptcp:subflow_added",
                json!({ "subflow": subflow.0, "path": path.0, "tuple": tuple.to_string() }),
            ),
            Event::SubflowRemoved { subflow, path, reason } => (
                "mptcp:subflow_removed",
                json!({ "subflow": subflow.0, "path": path.0, "reason": reason.to_string() }),
            ),
            Event::Fallback(cause) => ("mptcp:fallback", json!({ "cause": format!("{cause:?}") })),
            Event::Decision(decision) => (
                "mptcp:decision",
                json!({
                    "decision": format!("{:?}", decision.decision),
                    "offset": decision.offset,
                    "bytes": decision.bytes,
                    "unsent": decision.unsent,
                    "window_left": decision.window_left,
                    "reason": &*decision.reason,
                }),
            ),
            Event::Readable | Event::Writable => return Ok(()),
        };
        self.write(now, id.to_string(), name, data)
    }

    /// A segment that is sent.
    ///
    /// # Errors
    /// When the writer fails.
    pub fn sent<P: Payload>(&mut self, now: Time, path: PathId, segment: &Segment<P>) -> io::Result<()> {
        self.segment(now, path, "mptcp:segment_sent", segment)
    }

    /// A segment that arrived.
    ///
    /// # Errors
    /// When the writer fails.
    pub fn received<P: Payload>(&mut self, now: Time, path: PathId, segment: &Segment<P>) -> io::Result<()> {
        self.segment(now, path, "mptcp:segment_received", segment)
    }

    fn segment<P: Payload>(
        &mut self,
        now: Time,
        path: PathId,
        name: &str,
        segment: &Segment<P>,
    ) -> io::Result<()> {
        let flags: Vec<_> =
            FLAGS.iter().filter(|(flag, _)| segment.flags.contains(*flag)).map(|(_, name)| *name).collect();
        let mut data = json!({
            "raw": { "length": segment.wire_len(), "payload_length": segment.payload.len() },
            "tcp": { "seq": segment.seq.0, "ack": segment.ack.0, "flags": flags, "window": segment.window },
            "path": path.0,
        });
        if let Some(dss) = &segment.dss {
            data["dss"] = json!({
                "data_ack": dss.data_ack.map(|ack| ack.to_string()),
                "dsn": dss.mapping.map(|mapping| mapping.dsn.to_string()),
                "data_fin": dss.data_fin,
            });
        }
        self.write(now, segment.tuple.to_string(), name, data)
    }

    /// The windows and round-trip times of a connection's subflows now.
    ///
    /// # Errors
    /// When the writer fails.
    pub fn metrics<P: Payload>(
        &mut self,
        now: Time,
        id: ConnectionId,
        connection: &Connection<P>,
    ) -> io::Result<()> {
        for metrics in connection.subflow_metrics().iter().filter(|metrics| metrics.usable()) {
            self.write(now, id.to_string(), "mptcp:metrics_updated", recovery(metrics))?;
        }
        Ok(())
    }

    /// Ends the log and returns its writer.
    ///
    /// # Errors
    /// When the writer can't be flushed.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.writer.flush()?;
        Ok(self.writer)
    }
}

fn recovery(metrics: &SubflowMetrics) -> Value {
    let mss = u64::from(metrics.mss);
    let mut data = json!({
        "subflow": metrics.id.0,
        "path": metrics.path.0,
        "smoothed_rtt": milliseconds(metrics.rtt.smoothed),
        "min_rtt": milliseconds(metrics.rtt.min),
        "latest_rtt": milliseconds(metrics.rtt.latest),
        "rtt_variance": milliseconds(metrics.rtt.var),
        "congestion_window": u64::from(metrics.cwnd()) * mss,
        "bytes_in_flight": u64::from(metrics.in_flight()) * mss,
        "packets_in_flight": metrics.in_flight(),
    });
    if metrics.ssthresh() != u32::MAX {
        data["ssthresh"] = json!(u64::from(metrics.ssthresh()) * mss);
    }
    data
}
