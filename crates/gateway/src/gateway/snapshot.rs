//! What a gateway tells of itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropewalk_tokio::PathId;
use serde_json::{Map, Value, json};

use super::{ForwardedConnection, State};
use crate::status::{newest, stream};

/// The gateway's state, with the newest connections, of those with a number below `before`. It takes a fifth
/// of a second, in which the schedulers are watched.
pub async fn snapshot(state: Arc<State>, before: Option<u64>) -> Value {
    let flows = state.flows();
    let (told, older) = newest(&flows, before, |(number, _)| *number);
    stream::watch(told.iter().map(|(_, flow)| &*flow.stream)).await;
    let connections: Vec<Value> =
        told.iter().rev().filter_map(|(number, flow)| connection(&state, *number, flow)).collect();
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
            let (received, sent) = carried(&uplink.device);
            json!({
                "device": uplink.device,
                "bytes_received": received,
                "bytes_sent": sent,
                "interface": uplink.public.interface,
                "address": uplink.public.address,
                "ports": uplink.ports,
                "state": state
                    .network
                    .path_state(PathId(at))
                    .map(|state| format!("{state:?}").to_lowercase()),
            })
        })
        .collect();
    json!({
        "kind": "gateway",
        "draining": state.is_draining(),
        "paths": paths,
        "datagrams": state.far.iter().flat_map(|far| far.told()).collect::<Vec<_>>(),
        "connections_open": flows.len(),
        "connections_older": older,
        "connections_accepted": load(&counters.accepted),
        "connections_refused": load(&counters.refused),
        "connections_denied": load(&counters.denied),
        "connections_evicted": load(&counters.evicted),
        "connections_unreachable": load(&counters.unreachable),
        "connections_client_lost": load(&counters.client_lost),
        "connections_backend_lost": load(&counters.backend_lost),
        "mib": mib,
        "connections": connections,
    })
}

fn connection(state: &State, number: u64, flow: &ForwardedConnection) -> Option<Value> {
    let interface = |path: PathId| {
        let uplinks = &state.plan().uplinks;
        uplinks.get(usize::from(path.0)).map(|uplink| uplink.public.interface.clone())
    };
    let common = stream::told(&flow.stream, interface)?;
    let own = json!({
        "number": number,
        "listener": flow.listener,
        "client": flow.stream.peer_addr().to_string(),
        "to": match flow.to.get() {
            Some(Some(to)) => to.to_string(),
            Some(None) => "datagrams".into(),
            None => "not said yet".into(),
        },
        "age_s": flow.since.elapsed().as_secs_f64(),
        "bytes_up": flow.uploaded.load(Ordering::Relaxed),
        "bytes_down": flow.downloaded.load(Ordering::Relaxed),
    });
    Some(stream::join(common, own))
}

/// Bytes that passed a device: to the engine and from it.
pub(crate) fn carried(device: &str) -> (u64, u64) {
    // Not by /sys, which shows the network namespace that it was mounted in.
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'));
    let columns: Vec<u64> = line.unwrap_or_default().split_whitespace().flat_map(str::parse).collect();
    let column = |at: usize| columns.get(at).copied().unwrap_or(0);
    // What the kernel sends to the device (the ninth column), the engine receives.
    (column(8), column(0))
}
