//! Data that waits in a subflow's queue and was never sent is taken back, when the scheduler says so
//! ([`Decision::Withdraw`](crate::scheduler::Decision::Withdraw)).

use ropewalk_wire::Payload;

use super::connection::{Connection, Mode};
use crate::{Nanos, SubflowId};

impl<P: Payload> Connection<P> {
    /// Takes back what waits on a subflow and no other carries. In plain TCP data keeps its order: nothing is taken.
    #[cold]
    pub(super) fn withdraw_queued(&mut self, now: Nanos, subflow: SubflowId) {
        let index = subflow.index();
        if self.mode != Mode::Multipath || subflow.0 >= 32 || !self.scheduling.may_withdraw(now, subflow) {
            return;
        }
        let Some(Some(state)) = self.subflows.get_mut(index) else { return };
        let send = &mut self.send;
        let before = send.unsent();
        state.tcp.withdraw(&mut self.metrics[index], |range| send.unassign(range, subflow));
        self.stats.withdrawn_bytes += self.send.unsent() - before;
    }
}
