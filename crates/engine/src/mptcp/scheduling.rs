//! A connection's scheduler, and what the engine remembers for it between decisions.

use ropewalk_wire::Payload;

use super::subflow::SubflowState;
use crate::config::ConnectionConfig;
use crate::registry::Spec;
use crate::scheduler::{Chunk, Fate, Fates, Rationale, Reinjection, Scheduler, View};
use crate::{Nanos, SubflowId};

/// The index of the subflow on which a chunk is reinjected, after what the scheduler said: the fastest available one that never carried
/// it, or else any but its last one. `None`: later; `Some(None)`: none has room.
#[cold]
pub(super) fn reinjection_target(
    asked: Reinjection,
    view: &View<'_>,
    chunk: &Chunk,
) -> Option<Option<usize>> {
    let asked = match asked {
        Reinjection::Usual => None,
        Reinjection::On(id) => view.available().find(|metrics| metrics.id == id && !chunk.carried_by(id)),
        Reinjection::Later if view.usable().any(|metrics| metrics.packets_out > 0) => return None,
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
    pub scheduler: Box<dyn Scheduler>,
    /// The reasons of decisions, if they are traced.
    pub rationale: Rationale,
    /// Something may have changed since the scheduler last had nothing to send.
    pub needs_schedule: bool,
    /// A super-segment that still grows: its subflow, and the range of the stream. It is the last in that subflow's queue.
    pub coalesced: Option<(usize, u64, u64)>,
    /// The scheduler's decision isn't known yet ([`Scheduler::is_undecided`]).
    pub undecided: bool,
    wants_events: bool,
    queues_ahead: bool,
    /// Since when new data has waited for the connection-level send window.
    blocked_since: Option<Nanos>,
    /// When each subflow was last penalised.
    penalised_at: Vec<Nanos>,
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
            queues_ahead: scheduler.queues_ahead(),
            scheduler,
            blocked_since: None,
            penalised_at: Vec::new(),
        }
    }

    /// Uses another scheduler from now on.
    pub fn replace(&mut self, spec: &Spec<dyn Scheduler>) {
        self.scheduler = spec.build();
        self.wants_events = self.scheduler.wants_events();
        self.queues_ahead = self.scheduler.queues_ahead();
    }

    /// Whether the scheduler wants to be notified of events.
    #[inline]
    pub fn wants_events(&self) -> bool {
        self.wants_events
    }

    /// Whether it may queue data on a subflow beyond its congestion window.
    #[inline]
    pub fn queues_ahead(&self) -> bool {
        self.queues_ahead
    }

    /// New data waits for the connection-level send window. Whether that is new.
    pub fn block(&mut self, now: Nanos) -> bool {
        let is_new = self.blocked_since.is_none();
        self.blocked_since.get_or_insert(now);
        is_new
    }

    /// The wait ends. Returns how long it was.
    pub fn unblock(&mut self, now: Nanos) -> Nanos {
        let waited = self.blocked_for(now);
        self.blocked_since = None;
        waited
    }

    /// For how long it has waited.
    pub fn blocked_for(&self, now: Nanos) -> Nanos {
        self.blocked_since.map_or(0, |since| now.saturating_sub(since))
    }

    /// A new subflow is in slot `index`.
    pub fn on_new_subflow(&mut self, index: usize) {
        self.penalised_at.resize(self.penalised_at.len().max(index + 1), 0);
        self.penalised_at[index] = 0;
    }

    /// When a subflow was last penalised; 0: never.
    pub fn penalised_at(&self, index: usize) -> Nanos {
        self.penalised_at[index]
    }

    /// A subflow is penalised.
    pub fn on_penalised(&mut self, now: Nanos, index: usize) {
        self.penalised_at[index] = now;
    }
}

impl<P: Payload> Fates for Vec<Option<SubflowState<P>>> {
    #[cold]
    fn fate(&self, subflow: SubflowId, offset: u64) -> Fate {
        let known = self.get(subflow.index()).and_then(Option::as_ref);
        known.map_or(Fate::Lost, |subflow| subflow.tcp.fate(offset))
    }
}
