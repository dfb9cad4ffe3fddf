//! The gateway's metrics.

use std::sync::atomic::Ordering;

use ropewalk_tokio::PathId;

use super::State;
use super::snapshot::carried;
use crate::metrics::{Kind, Text};

/// All of them, as text.
pub(super) fn text(state: &State) -> String {
    let mut text = Text::default();
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let counters = &state.counters;
    for (name, help, counter) in [
        ("ropewalk_gateway_accepted_total", "Connections accepted.", &counters.accepted),
        (
            "ropewalk_gateway_refused_total",
            "Connections reset because a limit was reached.",
            &counters.refused,
        ),
        (
            "ropewalk_gateway_denied_total",
            "Requests of clients that were refused: without a key or cookie, or for what isn't allowed.",
            &counters.denied,
        ),
        (
            "ropewalk_gateway_evicted_total",
            "Connections without progress that were reset because memory was short.",
            &counters.evicted,
        ),
        (
            "ropewalk_gateway_unreachable_total",
            "Connections whose server couldn't be reached.",
            &counters.unreachable,
        ),
        ("ropewalk_gateway_client_lost_total", "Connections that clients lost.", &counters.client_lost),
        ("ropewalk_gateway_backend_lost_total", "Connections that servers reset.", &counters.backend_lost),
    ] {
        text.single(name, Kind::Counter, help, load(counter));
    }
    let plan = state.plan();
    let carried: Vec<_> = plan.uplinks.iter().map(|uplink| carried(&uplink.device)).collect();
    for (name, help, bytes) in [
        (
            "ropewalk_link_sent_bytes_total",
            "Bytes of IP packets sent from an address.",
            carried.iter().map(|(_, sent)| *sent).collect::<Vec<_>>(),
        ),
        (
            "ropewalk_link_received_bytes_total",
            "Bytes of IP packets received at an address.",
            carried.iter().map(|(received, _)| *received).collect(),
        ),
    ] {
        text.metric(name, Kind::Counter, help);
        for (uplink, bytes) in plan.uplinks.iter().zip(bytes) {
            let address = uplink.public.address.to_string();
            let labels = [("interface", &*uplink.public.interface), ("address", &*address)];
            text.value(name, &labels, bytes as f64);
        }
    }
    let infos: Vec<_> = state.flows().iter().filter_map(|(_, flow)| flow.stream.info()).collect();
    let interface =
        |path: PathId| plan.uplinks.get(usize::from(path.0)).map(|uplink| &*uplink.public.interface);
    text.streams("ropewalk_gateway_connections", &infos, interface);
    text.mib(&state.network);
    text.finish()
}
