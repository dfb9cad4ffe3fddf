//! What is known of a subflow's fallback to plain TCP (RFC 8684 3.7). What follows for the connection is in
//! `fallback.rs`.

use ropewalk_wire::{DssMapping, Payload, Seq};

use super::mapping::Failing;

/// How often MP_FAIL is repeated before the peer isn't going to answer it with an infinite mapping.
const MP_FAIL_TRIES: u32 = 6;

/// What is known of a subflow's fallback to plain TCP.
#[derive(Debug)]
pub(crate) struct Fallback<P> {
    /// The DSN of the MP_FAIL option that is to be sent.
    fail: Option<u64>,
    /// The infinite mapping that answers the peer's MP_FAIL, and whether it is still to be sent.
    infinite: Option<(DssMapping, bool)>,
    /// Data held after a checksum failed on the only subflow.
    failing: Option<Failing<P>>,
    /// After the fallback: where in the received subflow the stream's first byte would be.
    base: Option<u64>,
}

impl<P> Default for Fallback<P> {
    fn default() -> Self {
        Fallback { fail: None, infinite: None, failing: None, base: None }
    }
}

impl<P: Payload> Fallback<P> {
    /// Whether there is nothing to send or to wait for.
    #[cfg(feature = "lookahead")]
    pub fn is_silent(&self) -> bool {
        let Fallback { fail, infinite, failing, base: _ } = self;
        fail.is_none() && infinite.is_none() && failing.is_none()
    }

    /// Whether a checksum failed, and the peer is yet to confirm the fallback.
    #[inline]
    pub fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Data that arrives while a checksum failure is pending.
    pub fn hold_more(&mut self, data: P) {
        if let Some(failing) = self.failing.as_mut() {
            failing.pieces.push(data);
        }
    }

    /// The offset in the stream of what arrived at `position` of the subflow, where `next` is expected: each
    /// byte of the subflow is the next byte of the stream.
    pub fn plain_offset(&mut self, position: u64, next: u64) -> u64 {
        position.wrapping_sub(*self.base.get_or_insert(position.wrapping_sub(next)))
    }

    /// After a fallback, each byte of the subflow is the next byte of the stream. Whether the mapping of
    /// data, which says `offset`, contradicts that: then the peer hasn't fallen back, and repeats data that
    /// plain TCP would deliver as new bytes.
    pub fn contradicts(&self, ssn: u32, offset: u64, rcv_before: u64) -> bool {
        let position = Seq(ssn).unfold(rcv_before);
        ssn > 0 && self.base.is_some_and(|base| position.wrapping_sub(base) != offset)
    }

    /// Whether an option beside the DSS, or an infinite mapping, is to be sent.
    pub fn owes_control(&self) -> bool {
        let Fallback { fail, infinite: _, failing: _, base: _ } = self;
        fail.is_some() || self.due_mapping().is_some()
    }

    /// Whether an MP_FAIL is to be sent.
    pub fn has_fail(&self) -> bool {
        self.fail.is_some()
    }

    /// The DSN of the MP_FAIL that is to be sent: now it is.
    pub fn take_fail(&mut self) -> Option<u64> {
        self.fail.take()
    }

    /// The infinite mapping that is still to be sent.
    pub fn due_mapping(&self) -> Option<DssMapping> {
        self.infinite.filter(|(_, due)| *due).map(|(mapping, _)| mapping)
    }

    /// The same: now it is sent.
    pub fn take_due_mapping(&mut self) -> Option<DssMapping> {
        let due = self.due_mapping();
        self.infinite = self.infinite.map(|(mapping, _)| (mapping, false));
        due
    }

    /// Whether the peer's MP_FAIL was answered.
    pub fn has_answered(&self) -> bool {
        self.infinite.is_some()
    }

    /// The DSN of an MP_FAIL to be sent, on an ACK or a RST.
    pub fn set_fail(&mut self, dsn: u64) {
        self.fail = Some(dsn);
    }

    /// A checksum failed on the only subflow: holds the data until the peer confirms the fallback.
    pub fn hold(&mut self, failing: Failing<P>) {
        self.failing = Some(failing);
    }

    /// What is held.
    pub fn held(&self) -> Option<&Failing<P>> {
        self.failing.as_ref()
    }

    /// What is held, which isn't any more.
    pub fn take_held(&mut self) -> Option<Failing<P>> {
        self.failing.take()
    }

    /// Repeats MP_FAIL while no infinite mapping comes; `first_dsn`: of the stream's first byte. Returns
    /// whether it did; false: it did often enough; `None`: it needn't.
    pub fn repeat_fail(&mut self, first_dsn: u64) -> Option<bool> {
        let failing = self.failing.as_mut()?;
        if failing.repeats == MP_FAIL_TRIES {
            return Some(false);
        }
        failing.repeats += 1;
        self.fail = Some(first_dsn.wrapping_add(failing.offset));
        Some(true)
    }

    /// The peer's MP_FAIL is answered with this infinite mapping.
    pub fn answer(&mut self, mapping: DssMapping) {
        self.infinite = Some((mapping, true));
    }

    /// The answer was lost. Returns whether there was one, which is sent again.
    pub fn answer_again(&mut self) -> bool {
        self.infinite = self.infinite.map(|(mapping, _)| (mapping, true));
        self.infinite.is_some()
    }

    /// The stream's first byte would be at `base` of the received subflow.
    pub fn set_base(&mut self, base: u64) {
        self.base = Some(base);
    }
}
