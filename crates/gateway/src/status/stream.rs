//! What is told of a connection: its subflows, and the scheduler's last decisions in words.

use std::time::Duration;

use ropewalk_engine::SubflowId;
use ropewalk_engine::scheduler::Decision;
use ropewalk_tokio::{DecisionRecord, MptcpStream, PathId, StreamInfo};
use serde_json::{Value, json};

/// How long decisions are watched.
const WATCHED: Duration = Duration::from_millis(200);

/// Watches the schedulers of some streams for a fifth of a second.
pub(crate) async fn watch(streams: impl Iterator<Item = &MptcpStream> + Clone) {
    let trace = |on| streams.clone().for_each(|stream| drop(stream.trace_decisions(on)));
    trace(true);
    tokio::time::sleep(WATCHED).await;
    trace(false);
}

/// What every connection tells; `None` if it is over. `interface` names a path.
pub(crate) fn told(stream: &MptcpStream, interface: impl Fn(PathId) -> Option<String>) -> Option<Value> {
    let info = stream.info()?;
    let subflows: Vec<Value> = info
        .subflows
        .iter()
        .map(|subflow| {
            let tcp = &subflow.tcp;
            json!({
                "id": subflow.id.0,
                "interface": interface(subflow.path),
                "local": subflow.tuple.source().to_string(),
                "remote": subflow.tuple.destination().to_string(),
                "status": format!("{:?}", subflow.status).to_lowercase(),
                "backup": subflow.backup_local || subflow.backup_remote,
                "srtt_s": tcp.rtt.smoothed.as_secs_f64(),
                "rto_s": tcp.rto.as_secs_f64(),
                "timeouts": tcp.retransmits,
                "silent_s": tcp.last_recv.as_secs_f64(),
                "cwnd_segments": tcp.snd_cwnd,
                "unacked_segments": tcp.in_flight.unacked,
                "lost_segments": tcp.in_flight.lost,
                "mss_bytes": tcp.snd_mss,
                "bytes_sent": tcp.totals.bytes_sent,
                "bytes_retransmitted": tcp.totals.bytes_retrans,
                "bytes_received": tcp.totals.bytes_received,
                "delivery_rate_bytes_per_s": tcp.delivery_rate,
            })
        })
        .collect();
    let decisions: Vec<Value> =
        stream.decisions().iter().map(|record| decision(record, &info, &interface)).collect();
    Some(json!({
        "local": stream.local_addr().to_string(),
        "multipath": info.multipath,
        "scheduler": info.connection.scheduler,
        "congestion": info.connection.congestion,
        "bytes_unsent": info.connection.notsent_bytes,
        "bytes_unacknowledged": info.connection.write_seq.saturating_sub(info.connection.snd_una),
        "send_buffer_bytes": info.connection.sndbuf,
        "receive_buffer_bytes": info.connection.rcvbuf,
        "subflows": subflows,
        "decisions": decisions,
    }))
}

/// A decision in words: subflows by their interfaces, and by their ends where two share one.
fn decision(
    record: &DecisionRecord,
    info: &StreamInfo,
    interface: impl Fn(PathId) -> Option<String>,
) -> Value {
    let names: Vec<(SubflowId, String)> = info
        .subflows
        .iter()
        .map(|subflow| {
            let is_alone = info.subflows.iter().filter(|other| other.path == subflow.path).count() == 1;
            let name = interface(subflow.path).filter(|_| is_alone);
            let ends = || format!("{} -> {}", subflow.tuple.src, subflow.tuple.dst);
            (subflow.id, name.unwrap_or_else(ends))
        })
        .collect();
    let name = |id: SubflowId| names.iter().find(|(known, _)| *known == id).map(|(_, name)| name.as_str());
    let on = |id: SubflowId| name(id).map_or_else(|| format!("subflow {}", id.0), String::from);
    let what = match record.decision {
        Decision::Send { subflow, .. } | Decision::SendAt { subflow, .. } => {
            format!("{} bytes on {}", record.bytes, on(subflow))
        }
        Decision::Queue { subflow, .. } => format!("{} bytes queued on {}", record.bytes, on(subflow)),
        Decision::Duplicate { subflow, .. } => format!("{} bytes repeated on {}", record.bytes, on(subflow)),
        Decision::Withdraw { subflow } => format!("withdraw what waits on {}", on(subflow)),
        _ => record.decision.name().to_string(),
    };
    json!({ "what": what, "why": record.reason.with_names(name), "bytes_unsent": record.unsent })
}

/// One value's fields added to another's.
pub(crate) fn join(mut one: Value, more: Value) -> Value {
    if let (Value::Object(one), Value::Object(more)) = (&mut one, more) {
        one.extend(more);
    }
    one
}
