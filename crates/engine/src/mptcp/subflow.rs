//! What a connection keeps for each subflow, beside what schedulers see ([`crate::metrics::SubflowMetrics`]).

use ropewalk_wire::{Payload, Segment};

use super::close_reason::ResetReason;
use super::mapping::CurrentMapping;
use super::path_manager::JoinRequest;
use super::subflow_fallback::Fallback;
use super::window_autotuning::WindowAutotuning;
use crate::Time;
use crate::tcp::Tcb;

/// How far an MP_JOIN handshake is (RFC 8684 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Join {
    /// The connection's first subflow.
    Initial,
    /// We sent MP_JOIN and wait for the SYN/ACK.
    SynSent,
    /// The SYN/ACK came before the peer's first DSS, for which our third ACK waits.
    Held,
    /// We sent the third ACK and wait for the fourth.
    AckSent,
    /// We answered with SYN/ACK and wait for the third ACK.
    SynReceived,
    /// Both ends are authenticated.
    Joined,
}

/// What the connection keeps per subflow beside [`SubflowMetrics`]. Of what isn't TCP's, sending and
/// receiving a segment reads the fields before `tcp`, which share one cache line with the tag of an `Option`
/// of this.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Subflow<P> {
    pub join: Join,
    /// Bytes of the options that its next segment without data carries.
    pub control_len: u8,
    /// MP_PRIO to send.
    pub prio_pending: Option<bool>,
    /// Its RST carries MP_FASTCLOSE.
    pub fastclose: bool,
    pub backup_local: bool,
    pub backup_remote: bool,
    pub local_id: u8,
    pub remote_id: u8,
    /// Why it is being reset, for MP_TCPRST.
    pub reset_reason: Option<ResetReason>,
    /// Its path was removed; it stays until another subflow can do its work.
    pub leaving: bool,
    /// Retransmission timeouts in a row without a new acknowledgement.
    pub timeouts: u32,
    /// What shows that options or data don't pass unchanged, once something has.
    pub fallback: Option<Box<Fallback<P>>>,
    pub mapping: CurrentMapping<P>,
    pub tcp: Tcb<P>,
    /// How far what arrived on it has opened the window.
    pub autotuning: WindowAutotuning,
    /// When the subflow was opened.
    pub since: Time,
    pub local_nonce: u32,
    pub remote_nonce: u32,
    /// What we wanted when we opened it.
    pub request: Option<Box<JoinRequest>>,
    /// Retransmissions of the third ACK of our MP_JOIN.
    pub join_ack_retries: u32,
}

impl<P: Payload> Subflow<P> {
    /// Whether both ends are authenticated on it, so that it may carry data.
    #[inline]
    pub fn is_joined(&self) -> bool {
        matches!(self.join, Join::Initial | Join::Joined)
    }

    /// What is known of its fallback, to change it.
    pub fn fallback_mut(&mut self) -> &mut Fallback<P> {
        self.fallback.get_or_insert_default()
    }

    /// Whether a checksum failed on it, and the peer is yet to confirm the fallback.
    #[inline]
    pub fn is_failing(&self) -> bool {
        self.fallback.as_ref().is_some_and(|fallback| fallback.is_failing())
    }

    /// Header prediction: whether a segment has a DSS and no rarer option, both ends are authenticated, and
    /// it is what TCP predicts as well. An infinite mapping isn't predicted.
    #[inline]
    pub fn is_predicted(&self, segment: &Segment<P>) -> bool {
        let Some(dss) = &segment.dss else { return false };
        segment.rare.is_none()
            && dss.mapping.as_ref().is_none_or(|mapping| mapping.len > 0)
            && self.is_joined()
            && self.tcp.matches(&segment.tuple)
            && self.tcp.is_predicted(segment)
    }

    /// Whether it is an MP_JOIN subflow whose third ACK has been neither sent nor received.
    pub fn is_opening(&self) -> bool {
        matches!(self.join, Join::SynSent | Join::Held | Join::SynReceived)
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_wire::SyntheticPayload;

    use super::Subflow;

    #[test]
    fn the_fields_that_each_segment_reads_fill_the_first_cache_line() {
        assert_eq!(std::mem::offset_of!(Subflow<SyntheticPayload>, tcp), 64);
    }
}
