//! What a gateway tells of itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropewalk_engine::SubflowId;
use ropewalk_engine::scheduler::Decision;
use ropewalk_tokio::{DecisionRecord, PathId, StreamInfo};
use serde_json::{Map, Value, json};

use crate::gateway::{Flow, State};

/// How long decisions are watched.
const WATCHED: Duration = Duration::from_millis(200);
/// Most connections whose decisions are watched, and that are told of.
const MOST: usize = 1000;

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// The gateway's state. It takes a fifth of a second, in which the schedulers are watched.
pub async fn snapshot(state: Arc<State>) -> Value {
    let flows = state.flows();
    let (count, told) = (flows.len(), &flows[..flows.len().min(MOST)]);
    let trace = |on| told.iter().for_each(|(_, flow)| drop(flow.stream.trace_decisions(on)));
    trace(true);
    tokio::time::sleep(WATCHED).await;
    trace(false);
    let connections: Vec<Value> =
        told.iter().filter_map(|(number, flow)| connection(&state, *number, flow)).collect();
    let mib: Map<String, Value> =
        state.network.mib().into_iter().map(|(name, value)| (name, value.into())).collect();
    let counters = &state.counters;
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let paths: Vec<Value> = state
        .plan()
        .uplinks
        .iter()
        .zip(0..)
        .map(|(uplink, at)| {
            json!({
                "device": uplink.device,
                "interface": uplink.public.interface,
                "address": uplink.public.address,
                "ports": uplink.ports,
                "state": state.network.path_state(PathId(at)).map(|state| format!("{state:?}").to_lowercase()),
            })
        })
        .collect();
    json!({
        "kind": "gateway",
        "draining": state.is_draining(),
        "paths": paths,
        "connections_open": count,
        "connections_accepted": load(&counters.accepted),
        "connections_refused": load(&counters.refused),
        "connections_unreachable": load(&counters.unreachable),
        "connections_client_lost": load(&counters.client_lost),
        "connections_backend_lost": load(&counters.backend_lost),
        "mib": mib,
        "connections": connections,
    })
}

fn connection(state: &State, number: u64, flow: &Flow) -> Option<Value> {
    let info = flow.stream.info()?;
    let path = |id: PathId| {
        let uplinks = &state.plan().uplinks;
        uplinks.get(usize::from(id.0)).map(|uplink| uplink.public.interface.clone())
    };
    let subflows: Vec<Value> = info
        .subflows
        .iter()
        .map(|subflow| {
            let tcp = &subflow.tcp;
            json!({
                "id": subflow.id.0,
                "interface": path(subflow.path),
                "local": subflow.tuple.source().to_string(),
                "remote": subflow.tuple.destination().to_string(),
                "status": format!("{:?}", subflow.status).to_lowercase(),
                "backup": subflow.backup_local || subflow.backup_remote,
                "srtt_s": seconds(tcp.rtt),
                "cwnd_segments": tcp.snd_cwnd,
                "mss_bytes": tcp.snd_mss,
                "bytes_sent": tcp.bytes_sent,
                "bytes_retransmitted": tcp.bytes_retrans,
                "bytes_received": tcp.bytes_received,
                "delivery_rate_bytes_per_s": tcp.delivery_rate,
            })
        })
        .collect();
    let decisions: Vec<Value> =
        flow.stream.decisions().iter().map(|decision| told(decision, &info)).collect();
    let carried = (flow.uploaded.load(Ordering::Relaxed), flow.downloaded.load(Ordering::Relaxed));
    Some(json!({
        "number": number,
        "listener": flow.listener,
        "client": flow.stream.peer_addr().to_string(),
        "local": flow.stream.local_addr().to_string(),
        "to": flow.to.map_or("datagrams".into(), |to| to.to_string()),
        "age_s": flow.since.elapsed().as_secs_f64(),
        "multipath": info.multipath,
        "scheduler": info.connection.scheduler,
        "congestion": info.connection.congestion,
        "bytes_up": carried.0,
        "bytes_down": carried.1,
        "bytes_unsent": info.connection.notsent_bytes,
        "send_buffer_bytes": info.connection.sndbuf,
        "receive_buffer_bytes": info.connection.rcvbuf,
        "subflows": subflows,
        "decisions": decisions,
    }))
}

/// A decision in words: subflows by their far ends.
fn told(record: &DecisionRecord, info: &StreamInfo) -> Value {
    let names: Vec<(SubflowId, String)> = info
        .subflows
        .iter()
        .map(|subflow| (subflow.id, format!("{} -> {}", subflow.tuple.src, subflow.tuple.dst)))
        .collect();
    let name = |id: SubflowId| names.iter().find(|(known, _)| *known == id).map(|(_, name)| name.as_str());
    let on = |id: SubflowId| name(id).map_or_else(|| format!("subflow {}", id.0), String::from);
    let what = match record.decision {
        Decision::Send { subflow, .. } | Decision::SendAt { subflow, .. } => {
            format!("{} bytes on {}", record.bytes, on(subflow))
        }
        Decision::Queue { subflow, .. } => format!("{} bytes queued on {}", record.bytes, on(subflow)),
        Decision::Duplicate { subflow, .. } => format!("{} bytes repeated on {}", record.bytes, on(subflow)),
        _ => "wait".to_string(),
    };
    json!({ "what": what, "why": record.reason.with_names(name), "bytes_unsent": record.unsent })
}
