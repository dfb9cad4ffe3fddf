//! What a rule sees: the names and units of the engine's [`View`](ropewalk_engine::scheduler::View) and
//! [`SubflowMetrics`]. Times are ns, windows and packet counts segments of `mss` bytes.

use std::sync::Arc;

use rhai::{Array, Dynamic, Engine, FLOAT, INT};
use ropewalk_engine::metrics::{CaState, SubflowMetrics};
use ropewalk_engine::scheduler;

/// A subflow at the moment of a decision.
#[derive(Clone, Debug)]
pub(crate) struct Subflow(Arc<Seen>);

#[derive(Debug)]
struct Seen {
    metrics: SubflowMetrics,
    usable: bool,
}

impl Subflow {
    pub(crate) fn metrics(&self) -> &SubflowMetrics {
        &self.0.metrics
    }

    fn is_available(&self) -> bool {
        self.0.usable && self.0.metrics.available()
    }
}

/// The connection at the moment of a decision.
#[derive(Clone, Debug)]
pub(crate) struct View(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    subflows: Vec<Subflow>,
    now: u64,
    unsent: u64,
    next_offset: u64,
    una: u64,
    send_window: u64,
    window_left: u64,
    room: u64,
    written: u64,
    declared_size: Option<u64>,
    closed: bool,
    writer_waits: bool,
    chunks_in_flight: usize,
}

impl View {
    pub(crate) fn of(view: &scheduler::View<'_>) -> View {
        let subflow = |metrics: &SubflowMetrics| {
            Subflow(Arc::new(Seen { metrics: metrics.clone(), usable: view.eligible(metrics) }))
        };
        View(Arc::new(Connection {
            subflows: view.subflows.iter().map(subflow).collect(),
            now: view.now.as_nanos(),
            unsent: view.unsent,
            next_offset: view.next_offset,
            una: view.una,
            send_window: view.send_window,
            window_left: view.window_left,
            room: view.room(),
            written: view.written,
            declared_size: view.declared_size,
            closed: view.closed,
            writer_waits: view.writer_waits,
            chunks_in_flight: view.in_flight.len(),
        }))
    }

    fn some(&self, is: impl Fn(&Subflow) -> bool) -> Array {
        self.0.subflows.iter().filter(|subflow| is(subflow)).cloned().map(Dynamic::from).collect()
    }
}

/// A count as a rule has it.
fn int(value: u64) -> INT {
    INT::try_from(value).unwrap_or(INT::MAX)
}

/// A number by name.
type Number<T> = (&'static str, fn(&T) -> u64);

/// Numbers of a subflow.
const NUMBERS: &[Number<SubflowMetrics>] = &[
    ("id", |of| u64::from(of.id.0)),
    ("path", |of| u64::from(of.path.0)),
    ("srtt", |of| of.rtt.smoothed.as_nanos()),
    ("rttvar", |of| of.rtt.var.as_nanos()),
    ("min_rtt", |of| of.rtt.min.as_nanos()),
    ("max_rtt", |of| of.rtt.max.as_nanos()),
    ("last_rtt", |of| of.rtt.latest.as_nanos()),
    ("rto", |of| of.rto.as_nanos()),
    ("cwnd", |of| u64::from(of.cwnd())),
    ("ssthresh", |of| u64::from(of.ssthresh())),
    ("packets_out", |of| u64::from(of.packets_out())),
    ("lost_out", |of| u64::from(of.lost_out())),
    ("retrans_out", |of| u64::from(of.retrans_out())),
    ("in_flight", |of| u64::from(of.in_flight())),
    ("window_space", |of| u64::from(of.window_space())),
    ("mss", |of| u64::from(of.mss)),
    ("queued_bytes", |of| of.queued_bytes),
    ("pacing_rate", |of| of.rate.pacing),
    ("delivery_rate", |of| of.rate.delivery),
    ("delivered", |of| of.totals.delivered),
    ("lost_total", |of| of.totals.lost),
    ("timeouts", |of| u64::from(of.totals.timeouts)),
    ("bytes_acked", |of| of.totals.bytes_acked),
    ("last_progress", |of| of.last_progress.as_nanos()),
    ("last_sent", |of| of.last_sent.as_nanos()),
];

/// Numbers of the connection.
const OF_CONNECTION: &[Number<Connection>] = &[
    ("now", |of| of.now),
    ("unsent", |of| of.unsent),
    ("next_offset", |of| of.next_offset),
    ("una", |of| of.una),
    ("send_window", |of| of.send_window),
    ("window_left", |of| of.window_left),
    ("room", |of| of.room),
    ("written", |of| of.written),
    ("chunks_in_flight", |of| of.chunks_in_flight as u64),
];

pub(crate) fn register(engine: &mut Engine) {
    engine.register_type_with_name::<Subflow>("subflow").register_type_with_name::<View>("view");
    for &(name, number) in NUMBERS {
        engine.register_get(name, move |subflow: &mut Subflow| int(number(subflow.metrics())));
    }
    for &(name, number) in OF_CONNECTION {
        engine.register_get(name, move |view: &mut View| int(number(&view.0)));
    }
    engine
        .register_get("usable", |subflow: &mut Subflow| subflow.0.usable)
        .register_get("available", |subflow: &mut Subflow| subflow.is_available())
        .register_get("backup", |subflow: &mut Subflow| subflow.metrics().backup)
        .register_get("in_slow_start", |subflow: &mut Subflow| subflow.metrics().in_slow_start())
        .register_get("in_recovery", |subflow: &mut Subflow| {
            matches!(subflow.metrics().ca_state(), CaState::Recovery | CaState::Loss)
        })
        // The reason of a decision names the path instead.
        .register_fn("to_string", |subflow: &mut Subflow| format!("{{subflow {}}}", subflow.metrics().id.0))
        .register_fn("==", |one: Subflow, other: Subflow| one.metrics().id == other.metrics().id)
        .register_fn("!=", |one: Subflow, other: Subflow| one.metrics().id != other.metrics().id);
    engine
        .register_get("subflows", |view: &mut View| view.some(|_| true))
        .register_get("usable", |view: &mut View| view.some(|subflow| subflow.0.usable))
        .register_get("available", |view: &mut View| view.some(Subflow::is_available))
        .register_get("closed", |view: &mut View| view.0.closed)
        .register_get("writer_waits", |view: &mut View| view.0.writer_waits)
        // Unknown: `()`.
        .register_get("declared_size", |view: &mut View| {
            view.0.declared_size.map_or(Dynamic::UNIT, |size| int(size).into())
        });
    // The link's seconds for so many bytes at a rate, without a division by zero.
    engine.register_fn("seconds_for", |bytes: INT, rate: INT| {
        if rate > 0 { bytes as FLOAT / rate as FLOAT } else { FLOAT::INFINITY }
    });
}
