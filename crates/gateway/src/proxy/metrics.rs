//! The proxy's metrics.

use std::sync::atomic::Ordering;

use super::link::{Link, LinkState, find};
use super::serve::Server;
use crate::metrics::{Kind, Text};

/// All of them, as text.
pub(super) fn text(server: &Server) -> String {
    let mut text = Text::default();
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
    for (name, help, value) in [
        ("ropewalk_proxy_opened_total", "Connections opened for clients.", server.flows.total() as f64),
        ("ropewalk_proxy_failed_total", "Connections that couldn't be opened.", load(&server.failed)),
        ("ropewalk_proxy_lost_total", "Connections that ended by a reset.", load(&server.lost)),
        (
            "ropewalk_proxy_evicted_total",
            "Connections that were reset because they made no progress.",
            load(&server.evicted),
        ),
    ] {
        text.single(name, Kind::Counter, help, value);
    }
    let links = server.links();
    let each = |text: &mut Text, name: &str, kind: Kind, help: &str, value: &dyn Fn(&Link) -> Option<f64>| {
        text.metric(name, kind, help);
        for link in links.iter() {
            if let Some(value) = value(link) {
                text.value(name, &[("interface", &link.name)], value);
            }
        }
    };
    let gauge = Kind::Gauge;
    each(&mut text, "ropewalk_link_up", gauge, "1 if connections may use the link.", &|link| {
        Some(if link.state() == LinkState::Up { 1.0 } else { 0.0 })
    });
    each(&mut text, "ropewalk_link_rtt_seconds", gauge, "Smoothed round-trip time of probes.", &|link| {
        link.known().rtt.map(|rtt| rtt.as_secs_f64())
    });
    let help = "Share of probes without an answer, smoothed.";
    each(&mut text, "ropewalk_link_probe_loss_ratio", gauge, help, &|link| Some(link.known().loss));
    each(&mut text, "ropewalk_link_price", gauge, "What the link costs beside others.", &|link| {
        Some(link.settings().cost())
    });
    let counter = Kind::Counter;
    each(&mut text, "ropewalk_link_sent_bytes_total", counter, "Bytes of IP packets sent.", &|link| {
        Some(link.counters.bytes().0 as f64)
    });
    each(
        &mut text,
        "ropewalk_link_received_bytes_total",
        counter,
        "Bytes of IP packets received.",
        &|link| Some(link.counters.bytes().1 as f64),
    );
    let help = "Most bytes that the link carries in a period.";
    each(&mut text, "ropewalk_link_quota_bytes", gauge, help, &|link| {
        link.settings().quota.map(|quota| quota.bytes as f64)
    });
    let help = "Bytes that the link has carried in its quota's period.";
    each(&mut text, "ropewalk_link_quota_carried_bytes", gauge, help, &|link| {
        link.settings().quota.map(|_| link.known().carried as f64)
    });
    let infos: Vec<_> = server.flows.all().iter().filter_map(|flow| flow.stream.info()).collect();
    let name = |path: ropewalk_tokio::PathId| find(&links, path.0.into()).map(|link| &*link.name);
    text.streams("ropewalk_proxy_connections", &infos, name);
    text.mib(&server.network);
    text.finish()
}
