//! Opportunistic retransmission and penalisation as switches of any scheduler.
//!
//! Source: blest-2016 (Ferlin et al., IFIP Networking 2016) II-A and V, after Raiciu et al., NSDI 2012 4.2:
//! when new data doesn't fit the connection-level window, the segment that blocks it is sent again on a
//! faster subflow, and the carrier's cwnd is halved. The engine carries both out; here are the
//! two parameters, which a scheduler has both or none of, and the wrapper that answers
//! [`Scheduler::mechanisms`] from them.
//!
//! `linux` is `mptcp_rcv_buf_optimization` of the out-of-tree kernel (multipath-tcp/mptcp,
//! net/mptcp/mptcp_sched.c). It differs from `paper`: the candidate is the fastest subflow with room, also if
//! it carries the blocking segment already; the segment is repeated if the carrier's cwnd is at most 4 or its
//! srtt more than 4 times the candidate's; the penalised subflow carries the segment and is in Open, and its
//! ssthresh is halved too unless it is in slow start; both also run when nothing is unsent, the writer waits
//! and less than a third of the send buffer is free (penalisation then only if it is full). Once in the
//! candidate's srtt a carrier is penalised.
//!
//! `one-more`: the room test of kernels that hand over all they can before any of it is sent. What a subflow
//! has queued may then fill its window (`write_seq - snd_nxt > space` isn't true), and one more segment goes
//! into its queue, where it waits for room.

use super::{Chunk, Decision, Event, Rationale, Reinjection, Scheduler, View};
use crate::Time;
use crate::metrics::{CaState, SubflowMetrics};
use crate::registry::{Parameter, Values};

/// Mechanisms that the engine runs for a scheduler; read after each `select`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mechanisms {
    /// The rule of opportunistic retransmission when the connection-level window blocks.
    pub opportunistic: Rule,
    /// The rule for penalising the subflow that carries the blocking data.
    pub penalise: Rule,
}

/// The rule that a mechanism follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rule {
    /// Off.
    #[default]
    Off,
    /// The rule of blest-2016 II-A and V.
    Paper,
    /// The out-of-tree Linux kernel's conditions.
    Linux,
}

const RULES: &[&str] = &["off", "paper", "linux"];

/// [`Rule::Off`] as a parameter's value.
pub(super) const OFF: usize = 0;
/// [`Rule::Paper`] as a parameter's value.
pub(super) const PAPER: usize = 1;
/// [`Rule::Linux`] as a preset's value.
pub(super) const LINUX: f64 = 2.0;

/// The parameter `opportunistic`.
pub(super) const fn opportunistic(default: usize) -> Parameter {
    Parameter::choice("opportunistic", default, RULES, "opportunistic retransmission, by whose rule")
}

/// The parameter `penalise`.
pub(super) const fn penalise(default: usize) -> Parameter {
    Parameter::choice("penalise", default, RULES, "penalisation of the carrier that blocks, by whose rule")
}

/// The parameter `one-more`.
pub(super) const fn one_more() -> Parameter {
    Parameter::switch("one-more", false, "one segment beyond the window is queued with those that fill it")
}

/// Whether a subflow takes a segment where `one-more` is on. Here segments are sent as they are handed over:
/// the window was filled at this moment if the last was sent at it.
pub(super) fn has_room_for_one_more(subflow: &SubflowMetrics, now: Time) -> bool {
    if subflow.window_space() > 0 {
        return subflow.usable() && subflow.ca_state() != CaState::Loss;
    }
    let in_flight = subflow.in_flight();
    let space = u64::from(subflow.cwnd().saturating_sub(in_flight)) * u64::from(subflow.mss);
    let is_just_filled =
        in_flight == subflow.cwnd() && subflow.last_sent == now && subflow.last_sent > Time::ZERO;
    subflow.usable()
        && subflow.ca_state() != CaState::Loss
        && (in_flight < subflow.cwnd() || is_just_filled)
        && subflow.queued_bytes <= space
        && subflow.queue_space >= u64::from(subflow.mss)
}

/// Gives a segment to a subflow that takes one where `one-more` is on.
pub(super) fn send_or_queue(subflow: &SubflowMetrics) -> Decision {
    let (subflow, bytes, has_room) = (subflow.id, subflow.mss, subflow.window_space() > 0);
    if has_room { Decision::Send { subflow, bytes } } else { Decision::Queue { subflow, bytes } }
}

fn rule(value: f64) -> Rule {
    match value as usize {
        OFF => Rule::Off,
        PAPER => Rule::Paper,
        _ => Rule::Linux,
    }
}

/// A scheduler with its two mechanisms.
#[derive(Debug)]
struct Equipped<S> {
    scheduler: S,
    mechanisms: Mechanisms,
}

/// The scheduler, with the mechanisms that the values name.
pub(super) fn with_mechanisms<S: Scheduler + 'static>(values: &Values, scheduler: S) -> Box<dyn Scheduler> {
    let mechanisms = Mechanisms {
        opportunistic: rule(values.number("opportunistic")),
        penalise: rule(values.number("penalise")),
    };
    Box::new(Equipped { scheduler, mechanisms })
}

impl<S: Scheduler> Scheduler for Equipped<S> {
    fn name(&self) -> &'static str {
        self.scheduler.name()
    }

    #[inline]
    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        self.scheduler.select(view, rationale)
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        self.scheduler.on_event(view, event);
    }

    fn reinject(&mut self, view: &View<'_>, chunk: &Chunk) -> Reinjection {
        self.scheduler.reinject(view, chunk)
    }

    fn wants_events(&self) -> bool {
        self.scheduler.wants_events()
    }

    fn wants_link_rate(&self) -> bool {
        self.scheduler.wants_link_rate()
    }

    fn repeats(&self) -> bool {
        self.scheduler.repeats()
    }

    fn queues_ahead(&self) -> bool {
        self.scheduler.queues_ahead()
    }

    fn mechanisms(&self) -> Mechanisms {
        self.mechanisms
    }

    fn waits_while_blocked(&mut self, view: &View<'_>) -> bool {
        self.scheduler.waits_while_blocked(view)
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        self.scheduler.metrics()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::builtin;

    fn of(text: &str) -> Mechanisms {
        builtin().parse(text).unwrap().build().mechanisms()
    }

    #[test]
    fn a_scheduler_has_both_switches_or_none() {
        for entry in builtin().entries() {
            let switches = ["opportunistic", "penalise"];
            if !entry.parameters.iter().any(|parameter| switches.contains(&parameter.name)) {
                assert_eq!(of(entry.name), Mechanisms::default(), "{} has no switches", entry.name);
                continue;
            }
            let text = format!("{}(opportunistic=linux, penalise=paper)", entry.name);
            let expected = Mechanisms { opportunistic: Rule::Linux, penalise: Rule::Paper };
            assert_eq!(of(&text), expected, "{text}");
            let text = format!("{}(opportunistic=0, penalise=off)", entry.name);
            assert_eq!(of(&text), Mechanisms::default(), "{text}");
        }
    }

    #[test]
    fn the_defaults() {
        let (paper, linux) = (Rule::Paper, Rule::Linux);
        assert_eq!(of("minrtt"), Mechanisms { opportunistic: paper, penalise: paper });
        assert_eq!(of("minrtt:linux"), Mechanisms { opportunistic: linux, penalise: linux });
        assert_eq!(of("blest:linux"), Mechanisms { opportunistic: linux, penalise: linux });
        for entry in builtin().entries().iter().filter(|entry| entry.name != "minrtt") {
            assert_eq!(of(entry.name), Mechanisms::default(), "{}", entry.name);
        }
    }
}
