//! A client's results, as text and as JSON.

use std::net::SocketAddr;

use ropewalk_engine::Span;
use ropewalk_host::perf::protocol::Mode;
use ropewalk_host::perf::{ConnectionResult, Measured};
use ropewalk_lab::ask;
use serde_json::{Value, json};

use super::intervals::{HEAD, Stretch, line};
use super::text::{self, bits_per_second, mode};

/// The results of a measurement.
pub(super) struct Results<'a> {
    pub(super) remote: SocketAddr,
    /// Whether the client is the engine.
    pub(super) engine: bool,
    /// The schedulers; flow i uses the i-th, modulo their number. Empty if none were given.
    pub(super) schedulers: Vec<String>,
    pub(super) congestion: &'a str,
    pub(super) measured: &'a Measured,
    pub(super) intervals: &'a [Stretch],
    pub(super) counters: bool,
    pub(super) interrupted: bool,
}

/// Received bytes, and the time that they took.
#[derive(Clone, Copy, Default)]
struct Throughput {
    bytes: u64,
    time: Span,
}

impl Throughput {
    fn bits_per_second(self) -> f64 {
        bits_per_second(self.bytes, self.time)
    }
}

/// Bytes received by the server: its report, or else what this end's stack accepted.
fn up(done: &ConnectionResult) -> Throughput {
    match &done.trailer {
        Some(trailer) => Throughput { bytes: trailer.received, time: trailer.receiving },
        None => Throughput { bytes: done.sent, time: done.sending },
    }
}

fn down(done: &ConnectionResult) -> Throughput {
    Throughput { bytes: done.received, time: done.receiving }
}

/// Concurrent flows: the sum of their bytes, over the longest of their times.
fn sum(all: impl Iterator<Item = Throughput>) -> Throughput {
    all.fold(Throughput::default(), |sum, one| Throughput {
        bytes: sum.bytes + one.bytes,
        time: sum.time.max(one.time),
    })
}

impl Results<'_> {
    /// The errors, each once.
    pub(super) fn errors(&self) -> Vec<String> {
        let mut errors: Vec<String> = Vec::new();
        for done in &self.measured.flows {
            if let Some(error) = &done.error
                && !errors.contains(error)
            {
                errors.push(error.clone());
            }
        }
        errors
    }

    fn bulk(&self) -> impl Iterator<Item = &ConnectionResult> + Clone {
        self.measured.flows.iter().filter(|done| done.mode != Some(Mode::Echo))
    }

    fn sends(&self, client: bool) -> bool {
        self.bulk().any(|done| done.mode.is_some_and(|mode| mode.sends(client)))
    }

    fn echo(&self) -> Option<&ConnectionResult> {
        self.measured.flows.iter().find(|done| done.mode == Some(Mode::Echo))
    }

    fn scheduler(&self, done: &ConnectionResult) -> Option<&str> {
        let sent_by_engine = match done.mode? {
            Mode::Down => done.engine_answered?,
            _ => self.engine,
        };
        if !sent_by_engine {
            return Some("linux kernel");
        }
        match self.schedulers.len() {
            // The server's own choice is unknown here.
            0 => self.engine.then_some(ask::USUAL_SCHEDULER),
            count => Some(&self.schedulers[usize::from(done.flow) % count]),
        }
    }

    /// The results as text.
    pub(super) fn text(&self) -> String {
        if self.measured.flows.iter().all(|done| done.engine_answered.is_none()) {
            return String::new();
        }
        let mut text = String::new();
        let server = self.measured.flows.iter().find_map(|done| done.engine_answered);
        text += &format!(
            "\n{} -> {} at {}{}\n",
            text::stack(self.engine),
            server.map_or("?", text::stack),
            text::address(self.remote),
            if self.interrupted { " (interrupted: until then)" } else { "" },
        );
        if self.bulk().next().is_some() {
            text += &format!("{HEAD}\n");
        }
        for done in self.bulk() {
            let flow = done.flow.to_string();
            let mut first = true;
            for (client, mode) in [(true, "up"), (false, "down")] {
                if !done.mode.is_some_and(|mode| mode.sends(client)) {
                    continue;
                }
                let through = if client { up(done) } else { down(done) };
                let theirs = done.trailer.as_ref();
                let (retransmits, srtt) = if client {
                    (Some(done.info.retransmitted), done.info.srtt)
                } else {
                    (
                        theirs.map(|t| t.retransmitted),
                        theirs.map_or(Span::ZERO, |t| Span::from_micros(t.srtt_us.into())),
                    )
                };
                let whole = (0.0, through.time.as_secs_f64());
                text += &line(&flow, mode, whole, through.bytes, through.time, retransmits, srtt);
                if std::mem::take(&mut first) {
                    let scheduler = self.scheduler(done).map_or_else(String::new, |name| format!(", {name}"));
                    let connect = done
                        .connect
                        .map_or_else(String::new, |took| format!(", opened in {}", text::time(took)));
                    let spoken = text::spoken(done.info.multipath, done.subflows);
                    text.truncate(text.trim_end().len());
                    text += &format!("   {spoken}{scheduler}{connect}\n");
                }
            }
        }
        if self.bulk().count() > 1 {
            for (client, mode) in [(true, "up"), (false, "down")] {
                if self.sends(client) {
                    let total = sum(self.bulk().map(if client { up } else { down }));
                    let whole = (0.0, total.time.as_secs_f64());
                    let retransmits = self.bulk().map(|done| {
                        if client {
                            done.info.retransmitted
                        } else {
                            done.trailer.map_or(0, |t| t.retransmitted)
                        }
                    });
                    text += &line(
                        "sum",
                        mode,
                        whole,
                        total.bytes,
                        total.time,
                        Some(retransmits.sum()),
                        Span::ZERO,
                    );
                }
            }
        }
        if let Some(echoes) = self.echo().and_then(|done| done.echoes.as_ref()) {
            let at = |quantile| text::time(Span::from_nanos(echoes.value_at_quantile(quantile)));
            text += &format!(
                "round trips of 64 bytes: {}, least {}, p50 {}, p90 {}, p99 {}, most {}\n",
                echoes.len(),
                text::time(Span::from_nanos(echoes.min())),
                at(0.5),
                at(0.9),
                at(0.99),
                text::time(Span::from_nanos(echoes.max())),
            );
        }
        if self.counters {
            text += &format!("\n{}", super::counters_text(&self.measured.counters));
        }
        text
    }

    /// The results as JSON.
    pub(super) fn json(&self) -> Value {
        let server = self.measured.flows.iter().find_map(|done| done.engine_answered);
        let stack = |engine: bool| if engine { "engine" } else { "kernel" };
        let total = |client: bool| {
            self.sends(client).then(|| through_json(sum(self.bulk().map(if client { up } else { down }))))
        };
        let mut value = json!({
            "server": text::address(self.remote),
            "client_stack": stack(self.engine),
            "server_stack": server.map(stack),
            "congestion": self.congestion,
            "flows": self.bulk().map(|done| self.flow_json(done)).collect::<Vec<_>>(),
            "upload": total(true),
            "download": total(false),
            "latency": self.echo().map(latency_json),
            "intervals": self.intervals.iter().map(interval_json).collect::<Vec<_>>(),
            "interrupted": self.interrupted,
            "errors": self.errors(),
        });
        if self.counters {
            value["counters"] = super::counters_json(&self.measured.counters);
        }
        value
    }

    fn flow_json(&self, done: &ConnectionResult) -> Value {
        let is = |client: bool| done.mode.is_some_and(|mode| mode.sends(client));
        let subflows = done.subflow_results.iter().map(|subflow| {
            json!({
                "path": subflow.path,
                "sent_bytes": subflow.sent,
                "srtt_us": subflow.srtt.as_nanos() as f64 / 1e3,
                "retransmitted_segments": subflow.retransmitted,
            })
        });
        json!({
            "flow": done.flow,
            "way": done.mode.map(mode),
            "scheduler": self.scheduler(done),
            "connect_us": done.connect.map(|took| took.as_nanos() as f64 / 1e3),
            "multipath": done.info.multipath,
            "subflows": done.subflows,
            "upload": is(true).then(|| through_json(up(done))),
            "download": is(false).then(|| through_json(down(done))),
            "client_srtt_us": done.info.srtt.as_nanos() as f64 / 1e3,
            "server_srtt_us": done.trailer.map(|trailer| trailer.srtt_us),
            "client_retransmitted_segments": done.info.retransmitted,
            "server_retransmitted_segments": done.trailer.map(|trailer| trailer.retransmitted),
            "client_subflows": subflows.collect::<Vec<_>>(),
            "error": done.error,
        })
    }
}

fn through_json(through: Throughput) -> Value {
    json!({
        "bytes": through.bytes,
        "seconds": through.time.as_secs_f64(),
        "bits_per_second": through.bits_per_second(),
    })
}

fn latency_json(done: &ConnectionResult) -> Value {
    let us = |nanos: u64| nanos as f64 / 1e3;
    let echoes = done.echoes.as_ref();
    let at = |quantile| echoes.map(|echoes| us(echoes.value_at_quantile(quantile)));
    json!({
        "message_bytes": done.hello.as_ref().map(|hello| hello.echo),
        "round_trips": echoes.map_or(0, |echoes| echoes.len()),
        "connect_us": done.connect.map(|took| us(took.as_nanos())),
        "rtt_min_us": at(0.0),
        "rtt_mean_us": echoes.map(|echoes| echoes.mean() / 1e3),
        "rtt_p50_us": at(0.5),
        "rtt_p90_us": at(0.9),
        "rtt_p99_us": at(0.99),
        "rtt_max_us": at(1.0),
        "multipath": done.info.multipath,
        "subflows": done.subflows,
        "error": done.error,
    })
}

fn interval_json(stretch: &Stretch) -> Value {
    let time = stretch.to - stretch.from;
    let rows = stretch.rows.iter().map(|row| {
        json!({
            "flow": row.flow,
            "sent_bytes": row.sent,
            "sent_bits_per_second": bits_per_second(row.sent, time),
            "received_bytes": row.received,
            "received_bits_per_second": bits_per_second(row.received, time),
            "retransmitted_segments": row.retransmitted,
            "srtt_us": row.srtt.as_nanos() as f64 / 1e3,
        })
    });
    json!({
        "start_seconds": stretch.from.as_secs_f64(),
        "end_seconds": stretch.to.as_secs_f64(),
        "flows": rows.collect::<Vec<_>>(),
    })
}
