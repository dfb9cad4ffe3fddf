//! What a proxy tells of itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropewalk_tokio::PathId;
use serde_json::{Map, Value, json};

use super::flow::ProxiedConnection;
use super::link::{Link, find};
use super::remote::Gateway;
use super::serve::Server;
use crate::setup::Route;
use crate::status::{newest, stream};

/// Seconds of the links' past that are told.
const PAST: usize = 120;

/// The proxy's state, with the newest connections, of those with a number below `before`. It takes a fifth of
/// a second, in which the schedulers are watched.
pub async fn snapshot(server: Arc<Server>, before: Option<u64>) -> Value {
    let flows = server.flows.all();
    let (told, older) = newest(&flows, before, |flow| flow.id);
    stream::watch(told.iter().map(|flow| &*flow.stream)).await;
    let connections: Vec<Value> = told.iter().rev().filter_map(|flow| connection(&server, flow)).collect();
    let mib: Map<String, Value> =
        server.network.mib().into_iter().map(|(name, value)| (name, value.into())).collect();
    let config = server.settings();
    json!({
        "kind": "proxy",
        "draining": server.is_draining(),
        "age_s": server.started.elapsed().as_secs_f64(),
        "listen": config.listen,
        "policy": config.policies.other.to_string(),
        "gateways": config.gateways.iter().map(gateway).collect::<Vec<_>>(),
        "rules": config.policies.rules.len(),
        "links": server.links().iter().map(|link| one(&server, link)).collect::<Vec<_>>(),
        "datagrams": server.datagrams.told(|link| find(&server.links(), link).map(|link| link.name.clone())),
        "connections_open": flows.len(),
        "connections_older": older,
        "connections_opened": server.flows.total(),
        "connections_failed": server.failed.load(Ordering::Relaxed),
        "connections_lost": server.lost.load(Ordering::Relaxed),
        "connections_evicted": server.evicted.load(Ordering::Relaxed),
        "mib": mib,
        "connections": connections,
    })
}

fn gateway(gateway: &Gateway) -> Value {
    json!({ "to": gateway.target.to_string(), "works": !gateway.has_failed() })
}

/// A link.
fn one(server: &Server, link: &Link) -> Value {
    let (known, told) = (link.known(), link.settings());
    let (sent, received) = link.counters.bytes();
    let next_hop = |route: Option<Route>| match route? {
        Route::Via(address) => Some(address.to_string()),
        Route::Direct => Some("direct".into()),
    };
    let quota = told.quota.map(|quota| {
        let today = chrono::Local::now().date_naive();
        let until = quota.period.next(today).to_string();
        json!({ "bytes": quota.bytes, "carried": known.carried, "until": until })
    });
    let past: Vec<Value> = server.recorder.last(link.index, PAST);
    json!({
        "interface": link.name,
        "network_interface": told.interface,
        "state": link.state().to_string(),
        "address": known.reach.address,
        "mtu": link.mtu(),
        "interface_mtu": known.reach.mtu,
        "next_hop": next_hop(known.reach.v4),
        "next_hop_v6": next_hop(known.reach.v6),
        "metered": told.metered,
        "backup": told.backup,
        "price": told.cost(),
        "rate_limit_bits_per_s": link.rate().map(|rate| rate.down),
        "rate_limit_up_bits_per_s": link.rate().map(|rate| rate.up),
        "rtt_s": known.rtt.map(|rtt| rtt.as_secs_f64()),
        "probes_lost": known.loss,
        "rate_down_bits_per_s": known.rate_down,
        "rate_up_bits_per_s": known.rate_up,
        "bytes_sent": sent,
        "bytes_received": received,
        "quota": quota,
        "past": past,
    })
}

fn connection(server: &Server, flow: &ProxiedConnection) -> Option<Value> {
    let all = server.links();
    let interface = |path: PathId| find(&all, path.0.into()).map(|link| link.name.clone());
    let common = stream::told(&flow.stream, interface)?;
    let (policy, rule, links) = server.why(flow);
    let own = json!({
        "number": flow.id,
        "client": flow.client.to_string(),
        "dscp": flow.client.dscp,
        "to": flow.target.to_string(),
        "peer": flow.stream.peer_addr().to_string(),
        "age_s": flow.since.elapsed().as_secs_f64(),
        "opened_on": find(&all, flow.opened_on).map(|link| link.name.clone()),
        "bytes_up": flow.uploaded.load(Ordering::Relaxed),
        "bytes_down": flow.downloaded.load(Ordering::Relaxed),
        "policy": policy,
        "rule": rule,
        "links": links,
    });
    Some(stream::join(common, own))
}
