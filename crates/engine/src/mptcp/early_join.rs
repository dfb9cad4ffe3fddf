//! Joins that begin before the peer's first DSS. RFC 8684 3.1 forbids to *establish* further subflows before a DSS has come,
//! which shows that options pass. A SYN establishes nothing, and the peer's token is known from its SYN/ACK: so the SYN leaves with
//! the third ACK, and the join's own third ACK, which completes it, waits for the DSS. This saves a round trip of the first path.
//!
//! A server of this engine sends its first DSS with data, or for such a SYN.
//!
//! A peer that gets the SYN before the keys can't answer it. Linux refuses it: it is sent again when the DSS has come. This engine
//! keeps it until the keys arrive.

use ropewalk_wire::{Payload, Segment};

use super::CloseReason;
use super::connection::{Connection, Mode, Role};
use super::path_manager::{EarlyJoins, JoinRequest};
use super::stats::Event;
use super::subflow::Join;
use crate::metrics::SubflowStatus;
use crate::{Nanos, PathId, SubflowId};

/// SYNs with our token that may wait for the keys.
const MOST_WAITING: usize = 4;

impl<P: Payload> Connection<P> {
    /// The SYNs of our joins leave with the third ACK.
    #[cold]
    pub(super) fn open_early_joins(&mut self) {
        self.path_manager.begin_early();
        self.open_joins();
    }

    //= RFC 8684 3.1-10
    /// The peer's first DSS is there: joins may be completed, and opened.
    #[cold]
    pub(super) fn join_confirmed(&mut self, now: Nanos) {
        let Some(refused) = self.path_manager.end_early() else {
            self.open_joins();
            return;
        };
        for index in 0..self.subflows.len() {
            if self.subflows[index].as_ref().is_some_and(|subflow| subflow.join == Join::Held)
                && self.metrics[index].state != SubflowStatus::Closed
            {
                self.send_third_ack(now, index);
            }
        }
        refused.into_iter().for_each(|request| self.request_join(request));
    }

    //= RFC 8684 3.2-5
    /// Completes our side of a join.
    #[cold]
    pub(super) fn send_third_ack(&mut self, now: Nanos, index: usize) {
        if let Some(subflow) = self.subflows[index].as_mut() {
            subflow.join = Join::AckSent;
            subflow.tcp.request_ack();
            self.life.had_join = true;
            self.may_transmit = true;
            self.arm_control(now);
        }
    }

    /// The peer refused a join that was opened before its first DSS: it is opened once more, after that DSS.
    #[cold]
    pub(super) fn on_early_refusal(&mut self, request: JoinRequest) {
        let again = JoinRequest { early: false, ..request };
        if self.negotiated.confirmed {
            self.request_join(again);
        } else {
            self.path_manager.on_early_refusal(again);
        }
    }

    /// Whether no join has ever completed its handshake. Joins that failed or are still half-open don't count, as in Linux
    /// (`allow_infinite_fallback`).
    pub(super) fn is_alone(&self) -> bool {
        !self.life.had_join
    }

    /// The connection is no longer one of Multipath TCP, or has lost its first subflow, before joins were complete.
    #[cold]
    pub(super) fn drop_opening_joins(&mut self) {
        if self.path_manager.end_early().is_some() {
            self.path_manager.forget_joins();
        }
        for index in 0..self.subflows.len() {
            let Some(subflow) = self.subflows[index].as_mut().filter(|subflow| subflow.is_opening()) else {
                continue;
            };
            if self.metrics[index].state == SubflowStatus::Closed {
                continue;
            }
            subflow.tcp.abort();
            self.metrics[index].state = SubflowStatus::Closed;
            self.path_manager.on_join_closed();
            self.may_transmit = true;
            let (subflow, path) = (SubflowId(index as u8), self.metrics[index].path);
            self.events.push_back(Event::SubflowRemoved { subflow, path, reason: CloseReason::PathRemoved });
        }
    }

    /// Keeps a SYN that joins a connection of which the peer's key isn't known yet; false if it can't wait.
    #[cold]
    pub(crate) fn keep_early_join(&mut self, path: PathId, syn: &Segment<P>) -> bool {
        let waits = self.role == Role::Server && self.mode == Mode::Negotiating && !self.life.terminated;
        if !waits {
            return false;
        }
        let waiting = self.early_joins.get_or_insert_default();
        // A SYN that is repeated waits once.
        if waiting.iter().any(|(_, known)| known.tuple == syn.tuple) {
            return true;
        }
        let fits = waiting.len() < MOST_WAITING;
        if fits {
            waiting.push((path, syn.clone()));
        }
        fits
    }

    /// Whether SYNs that waited for the keys can be answered.
    #[inline]
    pub(crate) fn has_early_joins(&self) -> bool {
        self.early_joins.is_some() && self.mode != Mode::Negotiating
    }

    /// The SYNs that waited for the keys.
    #[cold]
    pub(crate) fn take_early_joins(&mut self) -> EarlyJoins<P> {
        self.early_joins.take().map_or_else(Vec::new, |waiting| *waiting)
    }
}
