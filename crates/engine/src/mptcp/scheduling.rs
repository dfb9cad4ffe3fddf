//! A connection's scheduler, and what the engine remembers for it between decisions.

use crate::config::ConnectionConfig;
use crate::link_rate::LinkRate;
use crate::metrics::SubflowMetrics;
use crate::registry::Spec;
use crate::scheduler::{self, Chunk, Decision, Mechanisms, Rationale, Reason, Reinjection, Scheduler, View};
use crate::{Span, SubflowId, Time};

/// A scheduler's view of a connection.
macro_rules! view {
    ($connection:expr, $now:expr) => {
        View {
            now: $now,
            subflows: $connection.subflows.metrics(),
            unsent: $connection.send.unsent(),
            next_offset: $connection.send.next_offset(),
            una: $connection.send.una(),
            send_window: $connection.send.send_window(),
            window_left: $connection.send.window_left(),
            written: $connection.send.written(),
            declared_size: $connection.send.declared(),
            closed: $connection.send.closed(),
            writer_waits: $connection.send.writer_waits(),
            send_buffer: $connection.send.limit(),
            send_buffer_max: $connection
                .config
                .send_payload($connection.config.send_buffer.max)
                .max($connection.send.limit()),
            in_flight: &*$connection.send,
            fates: &*$connection.subflows,
        }
    };
}
pub(super) use view;

/// The index of the subflow on which a chunk is reinjected, after what the scheduler said: the fastest
/// available one that never carried it, or else any but its last one. `None`: later; `Some(None)`: none has
/// room.
#[cold]
fn reinjection_target(asked: Reinjection, view: &View<'_>, chunk: &Chunk) -> Option<Option<usize>> {
    let asked = match asked {
        Reinjection::Usual => None,
        Reinjection::On(id) => view.available().find(|metrics| metrics.id == id && !chunk.carried_by(id)),
        Reinjection::Later if view.usable().any(|metrics| metrics.packets_out() > 0) => return None,
        Reinjection::Later => None,
    };
    let fresh = View::fastest(view.available().filter(|metrics| !chunk.carried_by(metrics.id)));
    let alone = view.usable().count() <= 1;
    let target = asked
        .or(fresh)
        .or_else(|| View::fastest(view.available().filter(|metrics| metrics.id != chunk.last)))
        .or_else(|| if alone { View::fastest(view.available()) } else { None });
    Some(target.map(|metrics| metrics.id.index()))
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Scheduling {
    scheduler: Box<dyn Scheduler>,
    /// The reasons of decisions, if they are traced.
    rationale: Rationale,
    /// Something may have changed since the scheduler last had nothing to send.
    needs_schedule: bool,
    /// A super-segment that still grows: its subflow, and the range of the stream. It is the last in that
    /// subflow's queue.
    coalesced: Option<(usize, u64, u64)>,
    /// The scheduler's decision isn't known yet ([`Scheduler::is_undecided`]).
    undecided: bool,
    wants_events: bool,
    /// It wants events, or the links' rates.
    wants_acks: bool,
    queues_ahead: bool,
    /// Subflows' own windows count too ([`limit_to_windows`](super::sending::Sending::measure_queues)).
    by_window: bool,
    /// One for each subflow, if the scheduler wants the links' rates.
    link_rates: Option<Vec<LinkRate>>,
    /// Since when new data has waited for the connection-level send window.
    blocked_since: Option<Time>,
    /// For how long it waited before that.
    blocked: Span,
    /// When subflows were last penalised.
    penalised_at: Vec<Option<Time>>,
    /// When data was last withdrawn, and the subflows of which: bit i for subflow i.
    withdrawn: (Time, u32),
}

impl Scheduling {
    pub fn new(config: &ConnectionConfig) -> Self {
        let scheduler = config.scheduler.build();
        Scheduling {
            rationale: if config.trace_decisions { Rationale::listening() } else { Rationale::default() },
            needs_schedule: false,
            coalesced: None,
            undecided: false,
            wants_events: scheduler.wants_events(),
            wants_acks: scheduler.wants_events() || scheduler.wants_link_rate(),
            queues_ahead: scheduler.queues_ahead(),
            by_window: false,
            link_rates: scheduler.wants_link_rate().then(Vec::new),
            scheduler,
            blocked_since: None,
            blocked: Span::ZERO,
            penalised_at: Vec::new(),
            withdrawn: (Time::ZERO, 0),
        }
    }

    /// Uses another scheduler from now on, with so many subflows. Returns whether links' rates begin or cease
    /// to be measured.
    pub fn replace(&mut self, spec: &Spec<dyn Scheduler>, subflows: usize) -> bool {
        self.scheduler = spec.build();
        self.wants_events = self.scheduler.wants_events();
        self.queues_ahead = self.scheduler.queues_ahead();
        let wants_link_rate = self.scheduler.wants_link_rate();
        self.wants_acks = self.wants_events || wants_link_rate;
        let changes = wants_link_rate != self.link_rates.is_some();
        if changes {
            self.link_rates = wants_link_rate.then(|| vec![LinkRate::default(); subflows]);
        }
        changes
    }

    /// Whether the scheduler wants to be notified of events.
    #[inline]
    pub fn wants_events(&self) -> bool {
        self.wants_events
    }

    /// Whether something has to be done for it when a subflow's data is acknowledged.
    #[inline]
    pub fn wants_acks(&self) -> bool {
        self.wants_acks
    }

    /// Segments of a subflow were acknowledged: a sample of its link's rate, for those that want it.
    #[inline]
    pub fn sample_link_rate(&mut self, now: Time, metrics: &mut SubflowMetrics, segments: u32) {
        if let Some(rates) = &mut self.link_rates
            && let Some(rate) = rates.get_mut(metrics.id.index())
        {
            rate.on_acked(metrics, now, segments);
        }
    }

    /// Whether it may queue data on a subflow beyond its congestion window.
    #[inline]
    pub fn queues_ahead(&self) -> bool {
        self.queues_ahead
    }

    /// Whether the room in subflows' queues is limited.
    #[inline]
    pub fn limits_queues(&self) -> bool {
        self.queues_ahead | self.by_window
    }

    /// Whether subflows' own windows limit it.
    pub fn is_by_window(&self) -> bool {
        self.by_window
    }

    /// Says whether they do.
    pub fn set_by_window(&mut self, by_window: bool) {
        self.by_window = by_window;
    }

    /// New data waits for the connection-level send window. Whether that is new.
    pub fn block(&mut self, now: Time) -> bool {
        let is_new = self.blocked_since.is_none();
        self.blocked_since.get_or_insert(now);
        is_new
    }

    /// The wait ends.
    #[inline]
    pub fn unblock(&mut self, now: Time) {
        self.blocked = self.blocked_for(now);
        self.blocked_since = None;
    }

    /// For how long data has waited, all waits together.
    pub fn blocked_for(&self, now: Time) -> Span {
        self.blocked + self.blocked_since.map_or(Span::ZERO, |since| now.saturating_sub(since))
    }

    /// Something may be sent now.
    #[inline]
    pub fn wake(&mut self) {
        self.needs_schedule = true;
        self.undecided = false;
    }

    /// Whether the scheduler is to be asked.
    #[inline]
    pub fn needs_schedule(&self) -> bool {
        self.needs_schedule
    }

    /// Says whether it is to be asked.
    #[inline]
    pub fn set_needs_schedule(&mut self, needs: bool) {
        self.needs_schedule = needs;
    }

    /// Asks it.
    #[inline(always)]
    pub fn select(&mut self, view: &View<'_>) -> Decision {
        self.scheduler.select(view, &mut self.rationale)
    }

    /// Notifies it.
    pub fn on_event(&mut self, view: &View<'_>, event: scheduler::Event) {
        self.scheduler.on_event(view, event);
    }

    /// On which subflow a chunk is reinjected: see [`reinjection_target`].
    pub fn reinject(&mut self, view: &View<'_>, chunk: &Chunk) -> Option<Option<usize>> {
        reinjection_target(self.scheduler.reinject(view, chunk), view, chunk)
    }

    /// Whether it may send data again that is in flight.
    #[inline]
    pub fn repeats(&self) -> bool {
        self.scheduler.repeats()
    }

    /// Whether it would wait, were there room in the window.
    pub fn waits_while_blocked(&mut self, view: &View<'_>) -> bool {
        self.scheduler.waits_while_blocked(view)
    }

    /// Its mechanisms for a full window.
    pub fn mechanisms(&self) -> Mechanisms {
        self.scheduler.mechanisms()
    }

    /// Whether its last decision isn't known yet. Then nothing is idle, and it is asked again at this moment.
    pub fn await_decision(&mut self) -> bool {
        let is_undecided = self.scheduler.is_undecided();
        self.undecided |= is_undecided;
        is_undecided
    }

    /// Whether a decision isn't known yet.
    #[inline]
    pub fn is_undecided(&self) -> bool {
        self.undecided
    }

    /// Whether decisions are traced.
    #[inline]
    pub fn traces(&self) -> bool {
        self.rationale.on()
    }

    /// Traces decisions, or doesn't.
    pub fn set_traced(&mut self, on: bool) {
        self.rationale = if on { Rationale::listening() } else { Rationale::default() };
    }

    /// The reason of the last decision; `None` if that isn't known yet.
    pub fn take_reason(&mut self) -> Option<Reason> {
        (!self.scheduler.is_undecided()).then(|| self.rationale.take().into())
    }

    /// The super-segment that still grows.
    #[inline]
    pub fn coalesced(&self) -> Option<(usize, u64, u64)> {
        self.coalesced
    }

    /// A super-segment grows.
    pub fn coalesce(&mut self, index: usize, from: u64, end: u64) {
        self.coalesced = Some((index, from, end));
    }

    /// The super-segment that has grown.
    #[inline]
    pub fn take_coalesced(&mut self) -> Option<(usize, u64, u64)> {
        self.coalesced.take()
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.scheduler.name()
    }

    /// Its own numbers.
    pub fn metrics(&self) -> Vec<(&'static str, f64)> {
        self.scheduler.metrics()
    }

    /// Whether the scheduler may withdraw data from a subflow: once at any moment, so that it can't go round
    /// in circles.
    pub fn may_withdraw(&mut self, now: Time, subflow: SubflowId) -> bool {
        if self.withdrawn.0 != now {
            self.withdrawn = (now, 0);
        }
        let first = self.withdrawn.1 & (1 << subflow.0) == 0;
        self.withdrawn.1 |= 1 << subflow.0;
        first
    }

    /// A new subflow is in slot `index`.
    pub fn on_new_subflow(&mut self, index: usize) {
        if let Some(at) = self.penalised_at.get_mut(index) {
            *at = None;
        }
        if let Some(rates) = &mut self.link_rates {
            rates.resize(rates.len().max(index + 1), LinkRate::default());
            rates[index] = LinkRate::default();
        }
    }

    /// How long ago a subflow was last penalised; `None`: it never was.
    pub fn since_penalised(&self, now: Time, index: usize) -> Option<Span> {
        let at = self.penalised_at.get(index).copied().flatten()?;
        Some(now.saturating_sub(at))
    }

    /// A subflow is penalised.
    pub fn on_penalised(&mut self, now: Time, index: usize) {
        if index >= self.penalised_at.len() {
            self.penalised_at.resize(index + 1, None);
        }
        self.penalised_at[index] = Some(now);
    }
}
