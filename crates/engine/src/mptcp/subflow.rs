//! What a connection keeps for each subflow, beside what schedulers see ([`crate::metrics::SubflowMetrics`]).

use ropewalk_wire::{Payload, Segment};

use super::close_reason::ResetReason;
use super::mapping::CurrentMapping;
use super::path_manager::{JOIN_RETRIES, JoinRequest};
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

/// Third ACKs of a join that are repeated before the subflow is given up.
const JOIN_ACK_TRIES: u32 = 6;

/// The options, beside those of its fallback, that the peer is yet to get on this subflow.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// MP_PRIO's flag B, on an ACK.
    mp_prio: Option<bool>,
    /// On the RST.
    mp_fastclose: bool,
    /// The reason on the RST.
    mp_tcprst: Option<ResetReason>,
}

/// What the connection keeps per subflow beside [`SubflowMetrics`]. Of what isn't TCP's, sending and
/// receiving a segment reads the fields before `tcp`, which share one cache line with the tag of an `Option`
/// of this. What is rarely read belongs behind `tcp`.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Subflow<P> {
    join: Join,
    /// Bytes of the options that its next segment without data carries.
    control_len: u8,
    pending: Pending,
    backup_local: bool,
    backup_remote: bool,
    local_id: u8,
    remote_id: u8,
    /// Its path was removed; it stays until another subflow can do its work.
    leaving: bool,
    /// Retransmission timeouts in a row without a new acknowledgement.
    timeouts: u32,
    /// What shows that options or data don't pass unchanged, once something has.
    fallback: Option<Box<Fallback<P>>>,
    pub mapping: CurrentMapping<P>,
    pub tcp: Tcb<P>,
    /// How far what arrived on it has opened the window.
    pub autotuning: WindowAutotuning,
    /// When the subflow was opened.
    since: Time,
    local_nonce: u32,
    remote_nonce: u32,
    /// What we wanted when we opened it.
    request: Option<Box<JoinRequest>>,
    /// Retransmissions of the third ACK of our MP_JOIN.
    join_ack_retries: u32,
}

impl<P: Payload> Subflow<P> {
    /// One that was just opened.
    pub fn new(now: Time, tcp: Tcb<P>, join: Join, autotuning: WindowAutotuning) -> Self {
        Subflow {
            join,
            control_len: 0,
            pending: Pending::default(),
            backup_local: false,
            backup_remote: false,
            local_id: 0,
            remote_id: 0,
            leaving: false,
            timeouts: 0,
            fallback: None,
            mapping: CurrentMapping::default(),
            tcp,
            autotuning,
            since: now,
            local_nonce: 0,
            remote_nonce: 0,
            request: None,
            join_ack_retries: 0,
        }
    }

    /// When it was opened.
    pub fn since(&self) -> Time {
        self.since
    }

    /// Bytes of the options that its next segment without data carries, as last computed.
    #[inline]
    pub fn control_len(&self) -> u8 {
        self.control_len
    }

    /// Sets them.
    #[inline]
    pub fn set_control_len(&mut self, len: u8) {
        self.control_len = len;
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
}

/// Joins.
impl<P: Payload> Subflow<P> {
    /// How far its MP_JOIN handshake is.
    #[inline]
    pub fn join(&self) -> Join {
        self.join
    }

    /// Whether both ends are authenticated on it, so that it may carry data.
    #[inline]
    pub fn is_joined(&self) -> bool {
        matches!(self.join, Join::Initial | Join::Joined)
    }

    /// Whether it is an MP_JOIN subflow whose third ACK has been neither sent nor received.
    pub fn is_opening(&self) -> bool {
        matches!(self.join, Join::SynSent | Join::Held | Join::SynReceived)
    }

    /// We open it because of this request.
    pub fn set_request(&mut self, request: &JoinRequest, local_nonce: u32) {
        self.local_nonce = local_nonce;
        self.local_id = request.local_id;
        self.remote_id = request.remote_id;
        self.backup_local = request.backup;
        self.request = Some(Box::new(*request));
    }

    /// The request for which we opened it; `None` if we didn't.
    pub fn request(&self) -> Option<&JoinRequest> {
        self.request.as_deref()
    }

    /// If it fails, its join isn't tried again.
    pub fn forbid_retry(&mut self) {
        if let Some(request) = &mut self.request {
            request.attempt = JOIN_RETRIES;
        }
    }

    /// Our SYN/ACK goes out with this.
    pub fn set_local(&mut self, local_id: u8, local_nonce: u32) {
        self.local_id = local_id;
        self.local_nonce = local_nonce;
    }

    /// What the peer said of itself on its SYN or SYN/ACK.
    pub fn set_remote(&mut self, remote_id: u8, backup: bool, remote_nonce: u32) {
        self.remote_id = remote_id;
        self.backup_remote = backup;
        self.remote_nonce = remote_nonce;
    }

    /// Our third ACK waits for the peer's first DSS.
    pub fn hold_third_ack(&mut self) {
        self.join = Join::Held;
    }

    /// Sends our third ACK.
    pub fn send_third_ack(&mut self) {
        self.join = Join::AckSent;
        self.tcp.request_ack();
    }

    /// Sends it again. Returns false if that was done often enough.
    pub fn repeat_third_ack(&mut self) -> bool {
        self.join_ack_retries += 1;
        let again = self.join_ack_retries <= JOIN_ACK_TRIES;
        if again {
            self.tcp.request_ack();
        }
        again
    }

    /// Both ends are authenticated. Returns whether that is by a join.
    pub fn complete_join(&mut self) -> bool {
        let is_join = self.join != Join::Initial;
        if is_join {
            self.join = Join::Joined;
        }
        is_join
    }

    /// The identifier of our address.
    pub fn local_id(&self) -> u8 {
        self.local_id
    }

    /// The identifier of the peer's address.
    pub fn remote_id(&self) -> u8 {
        self.remote_id
    }

    /// Our random number in its join.
    pub fn local_nonce(&self) -> u32 {
        self.local_nonce
    }

    /// The peer's random number in its join.
    pub fn remote_nonce(&self) -> u32 {
        self.remote_nonce
    }
}

/// Backups.
impl<P: Payload> Subflow<P> {
    /// Whether it is a backup by our wish.
    pub fn backup_local(&self) -> bool {
        self.backup_local
    }

    /// Whether it is a backup by the peer's wish.
    pub fn backup_remote(&self) -> bool {
        self.backup_remote
    }

    /// Whether it is a backup: either side's wish makes it one (RFC 8684 3.3.8).
    pub fn is_backup(&self) -> bool {
        self.backup_local || self.backup_remote
    }

    /// Our wish, which the peer is told by MP_PRIO.
    pub fn set_backup(&mut self, backup: bool) {
        self.backup_local = backup;
        if let Some(request) = &mut self.request {
            request.backup = backup;
        }
        self.pending.mp_prio = Some(backup);
        self.tcp.request_ack();
    }

    /// The peer's MP_PRIO.
    pub fn on_prio(&mut self, backup: bool) {
        self.backup_remote = backup;
    }
}

/// What it is to tell the peer, and its end.
impl<P: Payload> Subflow<P> {
    /// Whether an option beside the DSS waits for an ACK of this subflow.
    #[inline]
    pub fn owes_control(&self) -> bool {
        let Pending { mp_prio, mp_fastclose: _, mp_tcprst: _ } = &self.pending;
        mp_prio.is_some() || self.fallback().is_some_and(Fallback::owes_control)
    }

    /// The MP_PRIO that waits.
    pub fn pending_prio(&self) -> Option<bool> {
        self.pending.mp_prio
    }

    /// It was sent.
    pub fn on_prio_sent(&mut self) {
        self.pending.mp_prio = None;
    }

    /// Resets it. The first reason is the one that MP_TCPRST says.
    pub fn reset(&mut self, reason: ResetReason) {
        self.pending.mp_tcprst.get_or_insert(reason);
        self.tcp.abort();
    }

    /// Why we reset it; `None`: we didn't, or for no reason of this subflow's.
    pub fn reset_reason(&self) -> Option<ResetReason> {
        self.pending.mp_tcprst
    }

    /// Resets it with MP_FASTCLOSE, if it can still send a RST. Returns whether it does.
    pub fn fastclose(&mut self) -> bool {
        self.pending.mp_fastclose = self.tcp.abort();
        self.pending.mp_fastclose
    }

    /// Whether its RST carries MP_FASTCLOSE.
    pub fn carries_fastclose(&self) -> bool {
        self.pending.mp_fastclose
    }

    /// Its path was removed: it goes once another can do its work.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// Whether its path was removed.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Retransmission timeouts in a row without a new acknowledgement.
    #[inline]
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// A retransmission timeout. Returns how many there were in a row.
    pub fn on_timeout(&mut self) -> u32 {
        self.timeouts += 1;
        self.timeouts
    }

    /// New data was acknowledged.
    #[inline]
    pub fn on_acknowledged(&mut self) {
        self.timeouts = 0;
    }

    /// Whether nothing is wrong with it and the peer needs no option on it.
    #[cfg(feature = "lookahead")]
    pub fn is_independent(&self) -> bool {
        let Pending { mp_prio: _, mp_fastclose, mp_tcprst } = &self.pending;
        let is_reset = *mp_fastclose || mp_tcprst.is_some();
        let is_silent = !self.owes_control() && !is_reset && self.fallback().is_none_or(Fallback::is_silent);
        is_silent && self.timeouts == 0 && self.tcp.is_peer_responsive() && !self.leaving
    }
}

/// Its fallback to plain TCP.
impl<P: Payload> Subflow<P> {
    /// What is known of it, once there is something.
    #[inline]
    pub fn fallback(&self) -> Option<&Fallback<P>> {
        self.fallback.as_deref()
    }

    /// The same, to change it.
    pub fn known_fallback_mut(&mut self) -> Option<&mut Fallback<P>> {
        self.fallback.as_deref_mut()
    }

    /// The same, from now on if there was nothing.
    pub fn fallback_mut(&mut self) -> &mut Fallback<P> {
        self.fallback.get_or_insert_default()
    }

    /// Whether a checksum failed on it, and the peer is yet to confirm the fallback.
    #[inline]
    pub fn is_failing(&self) -> bool {
        self.fallback.as_ref().is_some_and(|fallback| fallback.is_failing())
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
