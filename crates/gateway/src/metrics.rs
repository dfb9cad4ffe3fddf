//! Metrics for Prometheus, by the names that the kernel has for them: HTTP on a loopback address, `/metrics`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;

use hyper::{Method, StatusCode};
use ropewalk_tokio::{Network, PathId, StreamInfo};
use tokio::net::TcpListener;

use crate::serving::{self, answer};

/// One kind of metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// Metrics as text (Prometheus exposition format 0.0.4).
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// Begins a metric; [`Text::value`] follows.
    pub fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = if kind == Kind::Counter { "counter" } else { "gauge" };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A value of the metric, with labels.
    pub fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// A metric without labels.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: f64) {
        self.metric(name, kind, help);
        self.value(name, &[], value);
    }

    /// How many connections there are, by scheduler (the metric's name is `connections`), and what their
    /// subflows have carried, by interface.
    pub fn streams<'a>(
        &mut self,
        connections: &str,
        infos: &[StreamInfo],
        interface: impl Fn(PathId) -> Option<&'a str>,
    ) {
        let mut schedulers: BTreeMap<&str, f64> = BTreeMap::new();
        let mut links: BTreeMap<&str, [f64; 4]> = BTreeMap::new();
        for info in infos {
            *schedulers.entry(info.connection.scheduler).or_default() += 1.0;
            for subflow in &info.subflows {
                let Some(interface) = interface(subflow.path) else { continue };
                let tcp = &subflow.tcp;
                let sums = [1, tcp.totals.bytes_sent, tcp.totals.bytes_received, tcp.totals.bytes_retrans];
                let link = links.entry(interface).or_default();
                link.iter_mut().zip(sums).for_each(|(sum, more)| *sum += more as f64);
            }
        }
        self.metric(connections, Kind::Gauge, "Open connections, by scheduler.");
        for (name, count) in &schedulers {
            self.value(connections, &[("scheduler", name)], *count);
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
            self.metric(name, Kind::Gauge, help);
            for (interface, sums) in &links {
                self.value(name, &[("interface", interface)], sums[at]);
            }
        }
    }

    /// The engine's counters.
    pub fn mib(&mut self, network: &Network) {
        for (name, value) in network.mib() {
            let help = "The kernel's counter of this name, here the engine's.";
            self.single(&format!("ropewalk_{name}"), Kind::Counter, help, value as f64);
        }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// An address that others reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("metrics at {0}: only a loopback address is allowed")]
pub struct NotLoopback(pub SocketAddr);

/// Checks that only this host reaches the address.
///
/// # Errors
/// If it isn't a loopback address.
pub fn check(address: SocketAddr) -> Result<(), NotLoopback> {
    if address.ip().is_loopback() { Ok(()) } else { Err(NotLoopback(address)) }
}

/// Opens the port.
///
/// # Errors
/// If it isn't a loopback address, or is taken.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    check(address).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    serving::bind("metrics", address).await
}

/// Answers `/metrics` with what `text` gives, until the future is dropped.
pub async fn serve(listener: TcpListener, text: impl Fn() -> String + Send + Sync + 'static) {
    const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
    serving::serve(listener, move |request, _| {
        let (status, body) = match (request.method(), request.uri().path()) {
            _ if !serving::is_for_this_host(&request) => {
                (StatusCode::FORBIDDEN, "not for this name\n".into())
            }
            (&Method::GET, "/metrics") => (StatusCode::OK, text()),
            (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
            _ => (StatusCode::NOT_FOUND, "there is only /metrics\n".into()),
        };
        std::future::ready(answer(status, KIND, body))
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::{Kind, Text};

    #[test]
    fn the_text_is_as_prometheus_wants_it() {
        let mut text = Text::default();
        text.metric("a_total", Kind::Counter, "As.");
        text.value("a_total", &[("link", "e\"th\\0\n")], 3.0);
        text.single("b", Kind::Gauge, "Bs.", 0.5);
        let expected = "# HELP a_total As.\n# TYPE a_total counter\na_total{link=\"e\\\"th\\\\0\\n\"} 3\n\
            # HELP b Bs.\n# TYPE b gauge\nb 0.5\n";
        assert_eq!(text.finish(), expected);
    }
}
