//! The mechanisms that run while the connection-level window is full (blest-2016 II-A): opportunistic retransmission and
//! penalisation.

use ropewalk_wire::Payload;

use super::connection::{Connection, Mode};
use super::scheduling::view;
use crate::metrics::{CaState, SubflowMetrics};
use crate::scheduler::{self, Chunk, Rule, View};
use crate::{Nanos, SubflowId};

impl<P: Payload> Connection<P> {
    /// Opportunistic retransmission and penalisation: when new data doesn't fit the connection-level window, and by the
    /// kernel's rule also when there is none because the send buffer is full.
    #[inline(never)]
    pub(super) fn run_mechanisms(&mut self, now: Nanos) -> Option<usize> {
        let mechanisms = self.scheduling.scheduler.mechanisms();
        if self.mode != Mode::Multipath
            || (mechanisms.opportunistic == Rule::Off && mechanisms.penalise == Rule::Off)
        {
            return None;
        }
        let head = self.send.chunks.find(self.send.una)?.chunk();
        let carrier = self.metrics.get(head.last.index())?.clone();
        let view = view!(self, now);
        // One without a sample isn't known to be faster than the carrier, nor is there an srtt of it in which to
        // penalise only once.
        let known = |metrics: &&SubflowMetrics| metrics.srtt > 0;
        let any = View::fastest(view.available().filter(known)).map(|best| (best.id.index(), best.srtt));
        let fresh = View::fastest(view.available().filter(known).filter(|best| !head.carried_by(best.id)))
            .map(|best| (best.id.index(), best.srtt));
        // The paper's candidate doesn't carry the head yet. The kernel's is where new data would go: while it carries
        // the head already, the others that carry it are still penalised, once per its srtt.
        let by = |rule: Rule| match rule {
            Rule::Off => None,
            Rule::Paper if self.send.unsent() > 0 => fresh,
            Rule::Paper => None,
            Rule::Linux => any,
        };
        let (penalising, repeating) = (by(mechanisms.penalise), by(mechanisms.opportunistic));
        if let Some((index, srtt)) = penalising {
            self.penalise(now, mechanisms.penalise, index, srtt, head);
        }
        let (index, srtt) = repeating?;
        let allowed = match mechanisms.opportunistic {
            Rule::Off => false,
            Rule::Paper => srtt < carrier.srtt,
            Rule::Linux => {
                !head.carried_by(SubflowId(index as u8)) && (carrier.cwnd <= 4 || 4 * srtt < carrier.srtt)
            }
        };
        if !allowed {
            return None;
        }
        self.resend_chunk(now, index, head);
        self.stats.opportunistic_bytes += u64::from(head.len);
        self.notify(now, scheduler::Event::Reinjected(SubflowId(index as u8)));
        Some(index)
    }

    #[cold]
    fn penalise(&mut self, now: Nanos, rule: Rule, selected: usize, srtt: Nanos, head: Chunk) {
        if rule == Rule::Linux && self.send.unsent() == 0 && !self.send.is_full() {
            return;
        }
        for index in 0..self.metrics.len() {
            let metrics = &mut self.metrics[index];
            let concerned = match rule {
                Rule::Off => false,
                // The paper: the carrier of the segment that blocks.
                Rule::Paper => index == head.last.index() && metrics.srtt > srtt,
                // The kernel: every other carrier of it with a larger srtt, in Open.
                Rule::Linux => {
                    index != selected
                        && head.carried_by(metrics.id)
                        && metrics.srtt > srtt
                        && metrics.ca_state == CaState::Open
                }
            };
            if !concerned
                || !metrics.usable()
                || now.saturating_sub(self.scheduling.penalised_at(index)) < srtt
            {
                continue;
            }
            self.scheduling.on_penalised(now, index);
            self.stats.penalisations += 1;
            let before = metrics.cwnd;
            metrics.cwnd = (metrics.cwnd / 2).max(1);
            if rule == Rule::Linux && before >= metrics.ssthresh {
                metrics.ssthresh = (metrics.ssthresh / 2).max(2);
            }
        }
    }
}
