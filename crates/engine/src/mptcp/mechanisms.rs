//! Opportunistic retransmission and penalisation, which run while the connection-level window is full: by
//! their paper's rule (blest-2016 II-A) or by the kernel's.

use ropewalk_wire::Payload;

use super::scheduling::view;
use super::sending::Sending;
use crate::metrics::{CaState, SubflowMetrics};
use crate::scheduler::{self, Chunk, Rule, View};
use crate::{Span, SubflowId, Time};

/// Whether the head of the window is repeated on a subflow with a round-trip time of `srtt`; `carrier`
/// carried it last.
fn may_repeat(rule: Rule, srtt: Span, carrier: &SubflowMetrics, carries_it: bool) -> bool {
    match rule {
        Rule::Off => false,
        Rule::Paper => srtt < carrier.rtt.smoothed,
        Rule::Linux => !carries_it && (carrier.cwnd() <= 4 || 4 * srtt < carrier.rtt.smoothed),
    }
}

/// Whether a subflow is penalised in favour of `selected`, whose round-trip time is `srtt`: once in such a
/// time, and the last was `since` ago.
fn is_penalised(
    rule: Rule,
    metrics: &SubflowMetrics,
    head: &Chunk,
    (selected, srtt): (SubflowId, Span),
    since: Option<Span>,
) -> bool {
    let concerned = match rule {
        Rule::Off => false,
        // The paper: the carrier of the segment that blocks.
        Rule::Paper => metrics.id == head.last,
        // The kernel: every other carrier of it, in Open.
        Rule::Linux => {
            metrics.id != selected && head.carried_by(metrics.id) && metrics.ca_state() == CaState::Open
        }
    };
    concerned && metrics.rtt.smoothed > srtt && metrics.usable() && since.is_none_or(|since| since >= srtt)
}

/// Halves the window. The kernel halves the threshold as well, outside slow start.
fn reduce(rule: Rule, metrics: &mut SubflowMetrics) {
    if rule == Rule::Linux && metrics.cwnd() >= metrics.ssthresh() {
        metrics.set_ssthresh((metrics.ssthresh() / 2).max(2));
    }
    metrics.set_cwnd((metrics.cwnd() / 2).max(1));
}

impl<P: Payload> Sending<'_, P> {
    /// Opportunistic retransmission and penalisation: when new data doesn't fit the connection-level window,
    /// and by the kernel's rule also when there is none because the send buffer is full.
    #[inline(never)]
    pub fn run_mechanisms(&mut self, now: Time) -> Option<usize> {
        let mechanisms = self.scheduling.mechanisms();
        if !self.handshake.is_multipath()
            || (mechanisms.opportunistic == Rule::Off && mechanisms.penalise == Rule::Off)
        {
            return None;
        }
        let head = self.send.chunk_at(self.send.una())?;
        let carrier = self.subflows.metrics().get(head.last.index())?.clone();
        let view = view!(self, now);
        // One without a sample isn't known to be faster than the carrier, nor is there an srtt of it in which
        // to penalise only once.
        let known = |metrics: &&SubflowMetrics| metrics.rtt.smoothed > Span::ZERO;
        let any =
            View::fastest(view.available().filter(known)).map(|best| (best.id.index(), best.rtt.smoothed));
        let fresh = View::fastest(view.available().filter(known).filter(|best| !head.carried_by(best.id)))
            .map(|best| (best.id.index(), best.rtt.smoothed));
        // The paper's candidate doesn't carry the head yet. The kernel's is where new data would go: while it
        // carries the head already, the others that carry it are still penalised, once per its srtt.
        let by = |rule: Rule| match rule {
            Rule::Off => None,
            Rule::Paper if self.send.unsent() > 0 => fresh,
            Rule::Paper => None,
            Rule::Linux => any,
        };
        let by_kernel = mechanisms.penalise == Rule::Linux || mechanisms.opportunistic == Rule::Linux;
        if by_kernel && self.scheduling.waits_while_blocked(&view) {
            return None;
        }
        let (penalising, repeating) = (by(mechanisms.penalise), by(mechanisms.opportunistic));
        if let Some((index, srtt)) = penalising {
            self.penalise(now, mechanisms.penalise, index, srtt, head);
        }
        let (index, srtt) = repeating?;
        let carries_it = head.carried_by(SubflowId(index as u8));
        if !may_repeat(mechanisms.opportunistic, srtt, &carrier, carries_it) {
            return None;
        }
        self.resend_chunk(now, index, head);
        self.stats.count().opportunistic_bytes += u64::from(head.len);
        self.notify(now, scheduler::Event::Reinjected(SubflowId(index as u8)));
        Some(index)
    }

    #[cold]
    fn penalise(&mut self, now: Time, rule: Rule, selected: usize, srtt: Span, head: Chunk) {
        if rule == Rule::Linux && self.send.unsent() == 0 && !self.send.is_full() {
            return;
        }
        // The kernel's rule is once in the selected subflow's round-trip time, the paper's once in that for
        // each carrier.
        let stamped = |index: usize| if rule == Rule::Linux { selected } else { index };
        let since_selected = self.scheduling.since_penalised(now, selected);
        for index in 0..self.subflows.metrics().len() {
            let metrics = self.subflows.metrics_mut(index);
            let since = match rule {
                Rule::Linux => since_selected,
                _ => self.scheduling.since_penalised(now, index),
            };
            if is_penalised(rule, metrics, &head, (SubflowId(selected as u8), srtt), since) {
                reduce(rule, metrics);
                self.scheduling.on_penalised(now, stamped(index));
                self.stats.count().penalisations += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{is_penalised, may_repeat, reduce};
    use crate::metrics::{CaState, SubflowMetrics, SubflowStatus};
    use crate::scheduler::{Chunk, Rule};
    use crate::testing::WithoutSender as _;
    use crate::{PathId, Span, SubflowId, Time};

    /// A subflow with a round-trip time of 40.
    fn carrier() -> SubflowMetrics {
        let mut metrics = SubflowMetrics::new(SubflowId(1), PathId(1));
        metrics.rtt.smoothed = Span::from_nanos(40);
        metrics.set_cwnd(10);
        metrics.set_ssthresh(8);
        metrics.state = SubflowStatus::Usable;
        metrics
    }

    #[test]
    fn the_head_is_repeated_on_a_faster_subflow_and_by_the_kernels_rule_on_one_four_times_as_fast() {
        let mut carrier = carrier();
        for (rule, srtt, carries_it, repeated) in [
            (Rule::Off, 1, false, false),
            (Rule::Paper, 39, false, true),
            (Rule::Paper, 40, false, false),
            (Rule::Linux, 9, false, true),
            (Rule::Linux, 9, true, false),
            (Rule::Linux, 10, false, false),
        ] {
            assert_eq!(
                may_repeat(rule, Span::from_nanos(srtt), &carrier, carries_it),
                repeated,
                "{rule:?} {srtt}"
            );
        }
        carrier.set_cwnd(4);
        assert!(
            may_repeat(Rule::Linux, Span::from_nanos(50), &carrier, false),
            "a small window isn't worth waiting for"
        );
        carrier.set_cwnd(5);
        assert!(!may_repeat(Rule::Linux, Span::from_nanos(50), &carrier, false));
    }

    #[test]
    fn a_slower_carrier_of_the_head_is_penalised() {
        let chunk = |carriers, last| Chunk {
            offset: 0,
            len: 1000,
            carriers,
            last: SubflowId(last),
            sent_at: Time::ZERO,
        };
        let (only, both, other) = (chunk(0b10, 1), chunk(0b11, 0), chunk(0b01, 0));
        let metrics = carrier();
        for (rule, head, selected, srtt, penalised) in [
            (Rule::Off, &only, 0, 10, false),
            (Rule::Paper, &only, 0, 39, true),
            (Rule::Paper, &only, 0, 40, false),
            (Rule::Paper, &both, 0, 39, false),
            (Rule::Linux, &only, 0, 39, true),
            (Rule::Linux, &both, 0, 39, true),
            (Rule::Linux, &both, 0, 40, false),
            (Rule::Linux, &other, 0, 39, false),
            (Rule::Linux, &only, 1, 39, false),
        ] {
            let (srtt, sooner) = (Span::from_nanos(srtt), Span::from_nanos(srtt - 1));
            let best = (SubflowId(selected), srtt);
            assert_eq!(is_penalised(rule, &metrics, head, best, Some(srtt)), penalised, "{rule:?} {srtt}");
            assert!(!is_penalised(rule, &metrics, head, best, Some(sooner)), "again too soon");
        }
        let time = Span::from_nanos(39);
        let mut recovering = carrier();
        recovering.set_ca_state(CaState::Recovery);
        assert!(is_penalised(Rule::Paper, &recovering, &only, (SubflowId(0), time), Some(time)));
        assert!(!is_penalised(Rule::Linux, &recovering, &only, (SubflowId(0), time), Some(time)));
        let closed = SubflowMetrics { state: SubflowStatus::Closed, ..carrier() };
        assert!(!is_penalised(Rule::Paper, &closed, &only, (SubflowId(0), time), Some(time)));
    }

    #[test]
    fn the_kernel_halves_the_threshold_outside_slow_start() {
        for (rule, cwnd, after) in [
            (Rule::Paper, 10, (5, 8)),
            (Rule::Linux, 10, (5, 4)),
            (Rule::Linux, 8, (4, 4)),
            (Rule::Linux, 7, (3, 8)),
            (Rule::Paper, 1, (1, 8)),
        ] {
            let mut metrics = carrier();
            metrics.set_cwnd(cwnd);
            reduce(rule, &mut metrics);
            assert_eq!((metrics.cwnd(), metrics.ssthresh()), after, "{rule:?} {cwnd}");
        }
    }
}
