//! What a scheduler in Python sees: the fields and methods of the Rust trait's view, under the same names,
//! read-only. The objects are made once per connection and refreshed before each decision, so they must not
//! be kept.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use ropewalk_engine::metrics::{
    CaState, RateMetrics, RttMetrics, SubflowMetrics, SubflowStatus, SubflowTotals,
};
use ropewalk_engine::scheduler::{Chunk as EngineChunk, Fate, Message, View as EngineView};
use ropewalk_engine::{PathId, Span, SubflowId, Time};

/// One subflow.
#[pyclass(module = "ropewalk._native")]
pub(crate) struct Subflow {
    pub(crate) metrics: SubflowMetrics,
    /// Usable, and not a backup while another is there.
    eligible: bool,
}

/// A number of the engine's as Python has it: times are integers, nanoseconds.
trait ToPython<T> {
    fn to_python(self) -> T;
}

impl<T> ToPython<T> for T {
    fn to_python(self) -> T {
        self
    }
}

impl ToPython<u64> for Time {
    fn to_python(self) -> u64 {
        self.as_nanos()
    }
}

impl ToPython<u64> for Span {
    fn to_python(self) -> u64 {
        self.as_nanos()
    }
}

macro_rules! getters {
    (
        own { $($name:ident: $type:ty),* $(,)? }
        methods { $($method:ident: $returned:ty),* $(,)? }
        $($group:ident: $kind:ident { $($getter:ident = $field:ident: $field_type:ty),* $(,)? })*
    ) => {
        // A number of a group that isn't in the list doesn't compile.
        $(const _: fn($kind) = |group| {
            let $kind { $($field: _),* } = group;
        };)*

        #[pymethods]
        impl Subflow {
            $(#[getter]
            fn $name(&self) -> $type {
                self.metrics.$name.to_python()
            })*

            $(#[getter]
            fn $method(&self) -> $returned {
                self.metrics.$method()
            })*

            $($(#[getter]
            fn $getter(&self) -> $field_type {
                self.metrics.$group.$field.to_python()
            })*)*

            /// Index of the subflow.
            #[getter]
            fn id(&self) -> u8 {
                self.metrics.id.0
            }

            /// Index of its path in the scenario.
            #[getter]
            fn path(&self) -> u16 {
                self.metrics.path.0
            }

            #[getter]
            fn state<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
                let word = match self.metrics.state {
                    SubflowStatus::Handshaking => "handshaking",
                    SubflowStatus::Usable => "usable",
                    SubflowStatus::Stale => "stale",
                    SubflowStatus::Closing => "closing",
                    SubflowStatus::Closed => "closed",
                };
                PyString::intern(py, word)
            }

            #[getter]
            fn ca_state<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
                let word = match self.metrics.ca_state() {
                    CaState::Open => "open",
                    CaState::Disorder => "disorder",
                    CaState::Cwr => "cwr",
                    CaState::Recovery => "recovery",
                    CaState::Loss => "loss",
                };
                PyString::intern(py, word)
            }

            /// The link's rate, bytes per second; None where it isn't known.
            fn link_rate(&self) -> Option<u64> {
                self.metrics.link_rate()
            }

            fn in_flight(&self) -> u32 {
                self.metrics.in_flight()
            }

            fn window_space(&self) -> u32 {
                self.metrics.window_space()
            }

            fn queued_segments(&self) -> u32 {
                self.metrics.queued_segments()
            }

            fn usable(&self) -> bool {
                self.metrics.usable()
            }

            fn available(&self) -> bool {
                self.metrics.available()
            }

            fn in_slow_start(&self) -> bool {
                self.metrics.in_slow_start()
            }

            fn __repr__(&self) -> String {
                let Subflow { metrics, .. } = self;
                format!(
                    "Subflow(id={}, path={}, srtt={:.1} ms, cwnd={}, in_flight={}, {:?})",
                    metrics.id.0,
                    metrics.path.0,
                    metrics.rtt.smoothed.as_secs_f64() * 1e3,
                    metrics.cwnd(),
                    metrics.in_flight(),
                    metrics.state
                )
            }
        }
    };
}

// In Python all numbers are in one place, by the names that RFCs and Linux give them. The type stub,
// `_native.pyi`, has them too: a test compares.
getters! {
    own {
        backup: bool,
        rto: u64,
        mss: u32,
        queued_bytes: u64,
        queue_space: u64,
        send_buffer: u64,
        last_progress: u64,
        last_sent: u64,
        busy_since: u64,
    }
    methods {
        cwnd: u32,
        ssthresh: u32,
        packets_out: u32,
        sacked_out: u32,
        lost_out: u32,
        retrans_out: u32,
    }
    rtt: RttMetrics {
        srtt = smoothed: u64,
        rttvar = var: u64,
        min_rtt = min: u64,
        max_rtt = max: u64,
        last_rtt = latest: u64,
        rtt_samples = samples: u32,
    }
    rate: RateMetrics {
        pacing_rate = pacing: u64,
        delivery_rate = delivery: u64,
        link_byte_time = link_byte_time: f64,
    }
    totals: SubflowTotals {
        delivered = delivered: u64,
        lost_total = lost: u64,
        retrans_total = retransmitted: u64,
        bytes_acked = bytes_acked: u64,
        loss_events = loss_events: u32,
        timeouts = timeouts: u32,
    }
}

/// A range of the stream in flight at connection level.
#[pyclass(frozen, module = "ropewalk._native")]
pub(crate) struct Chunk(EngineChunk, Fate);

#[pymethods]
impl Chunk {
    #[getter]
    fn offset(&self) -> u64 {
        self.0.offset
    }

    #[getter]
    fn len(&self) -> u32 {
        self.0.len
    }

    #[getter]
    fn carriers(&self) -> u32 {
        self.0.carriers
    }

    #[getter]
    fn last(&self) -> u8 {
        self.0.last.0
    }

    #[getter]
    fn sent_at(&self) -> u64 {
        self.0.sent_at.as_nanos()
    }

    /// What became of it on the subflow that it was last given to: "queued", "in flight", "lost" or
    /// "arrived".
    #[getter]
    fn fate<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        let word = match self.1 {
            Fate::Queued => "queued",
            Fate::InFlight => "in flight",
            Fate::Lost => "lost",
            Fate::Arrived => "arrived",
        };
        PyString::intern(py, word)
    }

    /// Whether it was ever given to this subflow.
    fn carried_by(&self, subflow: &Subflow) -> bool {
        self.0.carried_by(subflow.metrics.id)
    }
}

/// The connection.
#[pyclass(module = "ropewalk._native")]
pub(crate) struct View {
    now: u64,
    unsent: u64,
    next_offset: u64,
    una: u64,
    send_window: u64,
    window_left: u64,
    written: u64,
    declared_size: Option<u64>,
    closed: bool,
    writer_waits: bool,
    send_buffer: u64,
    send_buffer_max: u64,
    flows: Vec<Py<Subflow>>,
    tuple: Py<PyTuple>,
    /// Chunks in flight, for schedulers that ask for them.
    chunks: Option<Vec<(EngineChunk, Fate)>>,
    /// The messages that aren't acknowledged, likewise.
    messages: Vec<Message>,
    chunk_count: usize,
    /// Whether reasons are recorded, and the one of this decision.
    pub(crate) explaining: bool,
    pub(crate) reason: Option<String>,
}

impl View {
    /// A view of nothing yet.
    pub(crate) fn blank(py: Python<'_>) -> Self {
        View {
            now: 0,
            unsent: 0,
            next_offset: 0,
            una: 0,
            send_window: 0,
            window_left: 0,
            written: 0,
            declared_size: None,
            closed: false,
            writer_waits: false,
            send_buffer: 0,
            send_buffer_max: 0,
            flows: Vec::new(),
            tuple: PyTuple::empty(py).unbind(),
            chunks: None,
            messages: Vec::new(),
            chunk_count: 0,
            explaining: false,
            reason: None,
        }
    }

    /// Copies what the engine shows.
    pub(crate) fn refresh(
        &mut self,
        py: Python<'_>,
        view: &EngineView<'_>,
        with_chunks: bool,
    ) -> PyResult<()> {
        self.now = view.now.as_nanos();
        self.unsent = view.unsent;
        self.next_offset = view.next_offset;
        self.una = view.una;
        self.send_window = view.send_window;
        self.window_left = view.window_left;
        self.written = view.written;
        self.declared_size = view.declared_size;
        self.closed = view.closed;
        self.writer_waits = view.writer_waits;
        (self.send_buffer, self.send_buffer_max) = (view.send_buffer, view.send_buffer_max);
        self.chunk_count = view.in_flight.len();
        while self.flows.len() < view.subflows.len() {
            let metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
            self.flows.push(Py::new(py, Subflow { metrics, eligible: false })?);
            self.tuple = PyTuple::new(py, &self.flows)?.unbind();
        }
        let backups = view.backups_count();
        for (flow, metrics) in self.flows.iter().zip(view.subflows) {
            let mut flow = flow.borrow_mut(py);
            flow.metrics.clone_from(metrics);
            flow.eligible = metrics.usable() && (!metrics.backup || backups);
        }
        if with_chunks {
            let chunks = self.chunks.get_or_insert_default();
            chunks.clear();
            let mut next = view.in_flight.chunk_after(0);
            while let Some(chunk) = next {
                chunks.push((chunk, view.fate(&chunk)));
                next = view.in_flight.chunk_after(chunk.offset + u64::from(chunk.len));
            }
            self.messages.clear();
            let mut next = view.message(view.una);
            while let Some(message) = next {
                self.messages.push(message);
                next = view.message(message.end);
            }
        }
        Ok(())
    }

    fn pick(&self, py: Python<'_>, is: impl Fn(&Subflow) -> bool) -> Vec<Py<Subflow>> {
        let kept = self.flows.iter().filter(|flow| is(&flow.borrow(py)));
        kept.map(|flow| flow.clone_ref(py)).collect()
    }

    /// The first of the kept ones with the least srtt.
    fn least_srtt(&self, py: Python<'_>, is: impl Fn(&Subflow) -> bool) -> Option<Py<Subflow>> {
        let mut best: Option<(Span, &Py<Subflow>)> = None;
        for flow in &self.flows {
            let borrowed = flow.borrow(py);
            let srtt = borrowed.metrics.rtt.smoothed;
            if is(&borrowed) && best.is_none_or(|(least, _)| srtt < least) {
                best = Some((srtt, flow));
            }
        }
        best.map(|(_, flow)| flow.clone_ref(py))
    }
}

#[pymethods]
impl View {
    #[getter]
    fn now(&self) -> u64 {
        self.now
    }

    #[getter]
    fn unsent(&self) -> u64 {
        self.unsent
    }

    #[getter]
    fn next_offset(&self) -> u64 {
        self.next_offset
    }

    #[getter]
    fn una(&self) -> u64 {
        self.una
    }

    #[getter]
    fn send_window(&self) -> u64 {
        self.send_window
    }

    #[getter]
    fn window_left(&self) -> u64 {
        self.window_left
    }

    #[getter]
    fn written(&self) -> u64 {
        self.written
    }

    #[getter]
    fn declared_size(&self) -> Option<u64> {
        self.declared_size
    }

    #[getter]
    fn closed(&self) -> bool {
        self.closed
    }

    /// Whether the application has more to write than the send buffer takes.
    #[getter]
    fn writer_waits(&self) -> bool {
        self.writer_waits
    }

    /// Bytes that may be written and unacknowledged.
    #[getter]
    fn send_buffer(&self) -> u64 {
        self.send_buffer
    }

    /// Bytes to which that may still grow.
    #[getter]
    fn send_buffer_max(&self) -> u64 {
        self.send_buffer_max
    }

    #[getter]
    fn subflows(&self, py: Python<'_>) -> Py<PyTuple> {
        self.tuple.clone_ref(py)
    }

    /// How many chunks are in flight at connection level.
    #[getter]
    fn chunks_in_flight(&self) -> usize {
        self.chunk_count
    }

    fn backups_count(&self, py: Python<'_>) -> bool {
        !self.flows.iter().any(|flow| {
            let flow = flow.borrow(py);
            flow.metrics.usable() && !flow.metrics.backup
        })
    }

    fn eligible(&self, subflow: &Subflow) -> bool {
        subflow.eligible
    }

    fn usable(&self, py: Python<'_>) -> Vec<Py<Subflow>> {
        self.pick(py, |flow| flow.eligible)
    }

    fn available(&self, py: Python<'_>) -> Vec<Py<Subflow>> {
        self.pick(py, |flow| flow.eligible && flow.metrics.available())
    }

    fn room(&self) -> u64 {
        self.una.saturating_add(self.send_window).saturating_sub(self.next_offset)
    }

    fn blocked(&self) -> bool {
        self.unsent > 0 && self.room() == 0
    }

    fn sendable(&self) -> bool {
        self.unsent > 0 && self.room() > 0
    }

    fn fastest_available(&self, py: Python<'_>) -> Option<Py<Subflow>> {
        self.least_srtt(py, |flow| flow.eligible && flow.metrics.available())
    }

    /// The fastest eligible subflow that has a sample or room, and the fastest with room.
    fn front(&self, py: Python<'_>) -> (Option<Py<Subflow>>, Option<Py<Subflow>>) {
        let usable = |flow: &Subflow| {
            flow.eligible && (!flow.metrics.rtt.smoothed.is_zero() || flow.metrics.available())
        };
        (self.least_srtt(py, usable), self.fastest_available(py))
    }

    fn faster_than(&self, py: Python<'_>, slow: &Subflow) -> Vec<Py<Subflow>> {
        let srtt = slow.metrics.rtt.smoothed;
        let is_faster = |rtt: Span| !rtt.is_zero() && rtt < srtt;
        self.pick(py, |flow| flow.eligible && is_faster(flow.metrics.rtt.smoothed))
    }

    /// The first chunk that ends after an offset; only for schedulers with `needs_chunks = True`.
    fn chunk_after(&self, offset: u64) -> PyResult<Option<Chunk>> {
        let Some(chunks) = &self.chunks else {
            let message = "chunks are copied only for a scheduler that has `needs_chunks = True`";
            return Err(pyo3::exceptions::PyAttributeError::new_err(message));
        };
        let index = chunks.partition_point(|(chunk, _)| chunk.offset + u64::from(chunk.len) <= offset);
        Ok(chunks.get(index).map(|(chunk, fate)| Chunk(*chunk, *fate)))
    }

    /// The message that the byte at `offset` belongs to, as (first byte, end, deadline), if the application
    /// marked where it ends; only for schedulers with `needs_chunks = True`.
    fn message(&self, offset: u64) -> Option<(u64, u64, Option<u64>)> {
        let index = self.messages.partition_point(|message| message.end <= offset);
        let found = self.messages.get(index).filter(|message| message.start <= offset)?;
        Some((found.start, found.end, found.deadline.map(Time::as_nanos)))
    }

    /// Whether reasons are recorded.
    #[getter]
    fn explaining(&self) -> bool {
        self.explaining
    }

    /// Records the reason for the decision; `{subflow 0}` becomes the path's name.
    fn say(&mut self, reason: String) {
        if self.explaining {
            self.reason = Some(reason);
        }
    }

    fn __repr__(&self) -> String {
        format!("View(now={}, unsent={}, subflows={})", self.now, self.unsent, self.flows.len())
    }
}
