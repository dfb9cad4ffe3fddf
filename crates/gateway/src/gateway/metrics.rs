//! The gateway's metrics.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::State;
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
            "ropewalk_gateway_unreachable_total",
            "Connections whose server couldn't be reached.",
            &counters.unreachable,
        ),
        ("ropewalk_gateway_client_lost_total", "Connections that clients lost.", &counters.client_lost),
        ("ropewalk_gateway_backend_lost_total", "Connections that servers reset.", &counters.backend_lost),
    ] {
        text.single(name, Kind::Counter, help, load(counter));
    }
    let flows = state.flows();
    // By scheduler: connections. By interface: subflows, and what these have carried so far.
    let mut schedulers: BTreeMap<&str, f64> = BTreeMap::new();
    let mut links: BTreeMap<String, [f64; 4]> = BTreeMap::new();
    let plan = state.plan();
    for (_, flow) in &flows {
        let Some(info) = flow.stream.info() else { continue };
        *schedulers.entry(info.connection.scheduler).or_default() += 1.0;
        for subflow in &info.subflows {
            let Some(uplink) = plan.uplinks.get(usize::from(subflow.path.0)) else { continue };
            let link = links.entry(uplink.public.interface.clone()).or_default();
            let sums = [1, subflow.tcp.bytes_sent, subflow.tcp.bytes_received, subflow.tcp.bytes_retrans];
            link.iter_mut().zip(sums).for_each(|(sum, more)| *sum += more as f64);
        }
    }
    text.metric("ropewalk_gateway_connections", Kind::Gauge, "Open connections, by scheduler.");
    for (name, count) in &schedulers {
        text.value("ropewalk_gateway_connections", &[("scheduler", name)], *count);
    }
    for (at, (name, help)) in [
        ("ropewalk_subflows", "Open subflows, by interface."),
        ("ropewalk_subflow_sent_bytes", "Payload that open subflows have sent, repeats included."),
        ("ropewalk_subflow_received_bytes", "Payload that open subflows have received."),
        ("ropewalk_subflow_retransmitted_bytes", "Payload that open subflows have sent again."),
    ]
    .into_iter()
    .enumerate()
    {
        text.metric(name, Kind::Gauge, help);
        for (interface, sums) in &links {
            text.value(name, &[("interface", interface)], sums[at]);
        }
    }
    for (name, value) in state.network.mib() {
        let metric = format!("ropewalk_{name}");
        text.single(
            &metric,
            Kind::Counter,
            "The kernel's counter of this name, here the engine's.",
            value as f64,
        );
    }
    text.finish()
}
