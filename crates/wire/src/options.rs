//! TCP and MPTCP options, parsed.

use std::net::IpAddr;

use crate::encode::MAX_OPTIONS;

/// Timestamps option (RFC 7323 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the echo.
    pub echo: u32,
}

impl Timestamps {
    /// Length with its padding.
    pub const PADDED_LEN: usize = 12;
}

/// Up to four SACK blocks, each `[left, right)` (RFC 2018 3).
#[derive(Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [(u32, u32); 4],
    len: u8,
}

impl SackBlocks {
    /// Appends a block. Returns false, and does nothing, if there are four.
    pub fn push(&mut self, left: u32, right: u32) -> bool {
        if self.len as usize == self.blocks.len() {
            return false;
        }
        self.blocks[self.len as usize] = (left, right);
        self.len += 1;
        true
    }

    /// The blocks in order.
    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..self.len as usize]
    }

    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len as u8);
    }
}

// Not derived: blocks that `truncate` left in the array don't count.
impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

impl std::fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// Address identifier of MPTCP (RFC 8684 3.2, 3.4.1).
pub type AddressId = u8;

/// A DSS mapping (RFC 8684 3.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DssMapping {
    /// Data sequence number of the first byte; with `dsn_is_64` false only the low 32 bits count.
    pub dsn: u64,
    /// Subflow sequence number relative to the subflow's ISN (the first byte of data has 1).
    pub ssn: u32,
    /// Length in bytes (with DATA_FIN, one more than the payload it covers; 0: infinite mapping).
    pub len: u16,
    /// DSS checksum, if checksums were negotiated.
    pub checksum: Option<u16>,
    /// Whether the DSN has 8 octets on the wire.
    pub dsn_is_64: bool,
}

/// Data sequence signal (RFC 8684 3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Dss {
    /// Data ACK; with `ack_is_64` false only the low 32 bits count.
    pub data_ack: Option<u64>,
    /// Whether the data ACK has 8 octets on the wire.
    pub ack_is_64: bool,
    /// The mapping, if there is one.
    pub mapping: Option<DssMapping>,
    /// DATA_FIN.
    pub data_fin: bool,
}

impl Dss {
    /// Length of one that has nothing but a DATA_ACK of 8 octets.
    pub const DATA_ACK_64_LEN: usize = 12;

    /// Length on the wire, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        let mut len = 4;
        if self.data_ack.is_some() {
            len += if self.ack_is_64 { 8 } else { 4 };
        }
        if let Some(mapping) = &self.mapping {
            len += if mapping.dsn_is_64 { 8 } else { 4 } + 6 + if mapping.checksum.is_some() { 2 } else { 0 };
        }
        len
    }

    /// Whether it has neither an ACK, a mapping nor a DATA_FIN.
    pub fn is_empty(&self) -> bool {
        self.data_ack.is_none() && self.mapping.is_none() && !self.data_fin
    }

    /// Length on the wire with its padding.
    #[inline]
    pub fn padded_len(&self) -> usize {
        (self.len() + 3) & !3
    }
}

/// MP_CAPABLE (RFC 8684 3.1), version 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MpCapable {
    /// Protocol version: 1.
    pub version: u8,
    /// Flag A: the sender requires DSS checksums.
    pub checksum_required: bool,
    /// Flag B: an extension unknown to version 1.
    pub extensibility: bool,
    /// Flag C: no more subflows to this address and port.
    pub deny_join_initial_address: bool,
    /// Flag H: HMAC-SHA256.
    pub hmac_sha256: bool,
    /// The sender's key (SYN/ACK, third ACK); none in the SYN.
    pub sender_key: Option<u64>,
    /// The receiver's key (third ACK).
    pub receiver_key: Option<u64>,
    /// Length of the first data (third ACK with data).
    pub data_len: Option<u16>,
    /// Checksum of that data.
    pub checksum: Option<u16>,
}

/// MP_JOIN (RFC 8684 3.2): SYN, SYN/ACK and third ACK differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MpJoin {
    /// On the SYN.
    Syn {
        /// Flag B: use as backup.
        backup: bool,
        /// The sender's address id.
        address_id: AddressId,
        /// The receiver's token.
        token: u32,
        /// The sender's random number.
        nonce: u32,
    },
    /// On the SYN/ACK.
    SynAck {
        /// Flag B.
        backup: bool,
        /// The sender's address id.
        address_id: AddressId,
        /// Leftmost 64 bits of the sender's HMAC.
        hmac: u64,
        /// The sender's random number.
        nonce: u32,
    },
    /// On the third ACK.
    Ack {
        /// Leftmost 160 bits of the sender's HMAC.
        hmac: [u8; 20],
    },
}

/// ADD_ADDR (RFC 8684 3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AddAddr {
    /// Flag E: this is the echo.
    pub echo: bool,
    /// The address id.
    pub address_id: AddressId,
    /// The address.
    pub address: IpAddr,
    /// The port, if given.
    pub port: Option<u16>,
    /// Rightmost 64 bits of the HMAC; none in an echo.
    pub hmac: Option<u64>,
}

/// REMOVE_ADDR (RFC 8684 3.4.2).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RemoveAddr {
    /// The removed address ids.
    pub address_ids: Vec<AddressId>,
}

/// MP_PRIO (RFC 8684 3.3.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MpPrio {
    /// Flag B: use the subflow that this arrives on as backup.
    pub backup: bool,
}

/// MP_FAIL (RFC 8684 3.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MpFail {
    /// Data sequence number at which the failed mapping starts.
    pub dsn: u64,
}

/// MP_FASTCLOSE (RFC 8684 3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MpFastClose {
    /// The receiver's key.
    pub receiver_key: u64,
}

/// MP_TCPRST (RFC 8684 3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MpTcpRst {
    /// Flag T: the condition is transient.
    pub transient: bool,
    /// Reason code (0 unspecified, 1 MPTCP-specific error, 2 lack of resources, 3 administratively
    /// prohibited, 4 too much outstanding data, 5 unacceptable performance, 6 middlebox
    /// interference).
    pub reason: u8,
}

/// Options that established connections rarely carry.
///
/// To add one: a field here. Nearly every other place takes the fields apart by name, and doesn't compile
/// until it is there. By hand: its reading in `option_codec.rs`, and its words in packet scripts
/// (`crates/engine/tests/scripts/segments.rs`, `docs/packet-scripts.md`). When the engine sends it and what
/// it does on arrival: `ARCHITECTURE.md`, "Where do I change".
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RareOptions {
    /// Maximum segment size (RFC 9293 3.7.1).
    pub mss: Option<u16>,
    /// Window scale shift (RFC 7323 2).
    pub window_scale: Option<u8>,
    /// SACK permitted (RFC 2018 2).
    pub sack_permitted: bool,
    /// MP_CAPABLE.
    pub mp_capable: Option<MpCapable>,
    /// MP_JOIN.
    pub mp_join: Option<MpJoin>,
    /// ADD_ADDR.
    pub add_addr: Option<AddAddr>,
    /// REMOVE_ADDR.
    pub remove_addr: Option<RemoveAddr>,
    /// MP_PRIO.
    pub mp_prio: Option<MpPrio>,
    /// MP_FAIL.
    pub mp_fail: Option<MpFail>,
    /// MP_FASTCLOSE.
    pub mp_fastclose: Option<MpFastClose>,
    /// MP_TCPRST.
    pub mp_tcprst: Option<MpTcpRst>,
}

/// Bytes that timestamps and the longest DSS of an ACK leave for other options.
const BESIDE_DATA_ACK: usize = MAX_OPTIONS - Timestamps::PADDED_LEN - Dss::DATA_ACK_64_LEN;

impl RareOptions {
    /// Length on the wire of all of them but SACK-permitted, each padded to 4.
    ///
    /// SACK-permitted is left to [`crate::Segment::options_len`]: beside timestamps it takes the
    /// place of their two NOPs, as Linux lays them out, and costs nothing.
    pub fn padded_len(&self) -> usize {
        let RareOptions {
            mss,
            window_scale,
            sack_permitted: _,
            mp_capable,
            mp_join,
            add_addr,
            remove_addr,
            mp_prio,
            mp_fail,
            mp_fastclose,
            mp_tcprst,
        } = self;
        let mut len = 0;
        if mss.is_some() {
            len += 4;
        }
        if window_scale.is_some() {
            len += 4;
        }
        if let Some(capable) = mp_capable {
            len += padded(capable.len());
        }
        if let Some(join) = mp_join {
            len += match join {
                MpJoin::Syn { .. } => MpJoin::SYN_LEN,
                MpJoin::SynAck { .. } => MpJoin::SYN_ACK_LEN,
                MpJoin::Ack { .. } => MpJoin::ACK_LEN,
            };
        }
        if let Some(add) = add_addr {
            len += add.padded_len();
        }
        if let Some(remove) = remove_addr {
            len += RemoveAddr::padded_len(remove.address_ids.len());
        }
        if mp_prio.is_some() {
            len += MpPrio::PADDED_LEN;
        }
        if mp_fail.is_some() {
            len += MpFail::LEN;
        }
        if mp_fastclose.is_some() {
            len += MpFastClose::LEN;
        }
        if mp_tcprst.is_some() {
            len += MpTcpRst::LEN;
        }
        len
    }

    /// Whether an MPTCP segment with these may have no DSS: then the want of one says nothing about the path
    /// or the peer. Any other segment without a DSS counts as plain TCP (RFC 8684 3.7).
    pub fn crowds_out_dss(&self) -> bool {
        // MP_CAPABLE stands in the DSS's place (3.1). On a pure ACK, Linux sends ADD_ADDR alone, however
        // short (`mptcp_pm_add_addr_signal`).
        self.mp_capable.is_some() || self.add_addr.is_some() || self.padded_len() > BESIDE_DATA_ACK
    }

    /// Removes all options of MPTCP, as some middleboxes do. TCP's own stay.
    pub fn strip_mptcp(&mut self) {
        *self = RareOptions {
            mss: self.mss,
            window_scale: self.window_scale,
            sack_permitted: self.sack_permitted,
            mp_capable: None,
            mp_join: None,
            add_addr: None,
            remove_addr: None,
            mp_prio: None,
            mp_fail: None,
            mp_fastclose: None,
            mp_tcprst: None,
        };
    }

    /// The names of the options of MPTCP that there are, as RFC 8684 writes them.
    pub fn mptcp_names(&self) -> impl Iterator<Item = &'static str> {
        let RareOptions {
            mss: _,
            window_scale: _,
            sack_permitted: _,
            mp_capable,
            mp_join,
            add_addr,
            remove_addr,
            mp_prio,
            mp_fail,
            mp_fastclose,
            mp_tcprst,
        } = self;
        let named = [
            ("MP_CAPABLE", mp_capable.is_some()),
            ("MP_JOIN", mp_join.is_some()),
            ("ADD_ADDR", add_addr.is_some()),
            ("REMOVE_ADDR", remove_addr.is_some()),
            ("MP_PRIO", mp_prio.is_some()),
            ("MP_FAIL", mp_fail.is_some()),
            ("MP_FASTCLOSE", mp_fastclose.is_some()),
            ("MP_TCPRST", mp_tcprst.is_some()),
        ];
        named.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name)
    }
}

/// With NOPs up to a multiple of 4.
const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

impl MpCapable {
    /// Length of the SYN/ACK's, with one key.
    pub const SYN_ACK_LEN: usize = 12;
    /// Length of the third ACK's without data, with both keys.
    pub const ACK_LEN: usize = 20;

    /// Length on the wire, in bytes.
    #[allow(clippy::len_without_is_empty, reason = "an option is never empty")]
    pub fn len(&self) -> usize {
        4 + if self.sender_key.is_some() { 8 } else { 0 }
            + if self.receiver_key.is_some() { 8 } else { 0 }
            + if self.data_len.is_some() { 2 } else { 0 }
            + if self.checksum.is_some() { 2 } else { 0 }
    }
}

impl MpJoin {
    /// Length on the SYN.
    pub const SYN_LEN: usize = 12;
    /// Length on the SYN/ACK.
    pub const SYN_ACK_LEN: usize = 16;
    /// Length on the third ACK.
    pub const ACK_LEN: usize = 24;
}

impl MpPrio {
    /// Length with its padding.
    pub const PADDED_LEN: usize = 4;
}

impl MpFail {
    /// Length on the wire.
    pub const LEN: usize = 12;
}

impl MpFastClose {
    /// Length on the wire.
    pub const LEN: usize = 12;
}

impl MpTcpRst {
    /// Length on the wire.
    pub const LEN: usize = 4;
}

impl RemoveAddr {
    /// Length with its padding, for so many address ids.
    pub const fn padded_len(ids: usize) -> usize {
        padded(3 + ids)
    }
}

impl AddAddr {
    /// Length on the wire, in bytes.
    #[allow(clippy::len_without_is_empty, reason = "an option is never empty")]
    pub fn len(&self) -> usize {
        4 + if self.address.is_ipv4() { 4 } else { 16 }
            + if self.port.is_some() { 2 } else { 0 }
            + if self.hmac.is_some() { 8 } else { 0 }
    }

    /// The same with its padding.
    pub fn padded_len(&self) -> usize {
        padded(self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{AddAddr, Dss, MpCapable, RareOptions, RemoveAddr, SackBlocks};

    #[test]
    fn the_named_lengths_of_mp_capable_are_those_of_its_fields() {
        let syn_ack = MpCapable { sender_key: Some(1), ..MpCapable::default() };
        assert_eq!(syn_ack.len(), MpCapable::SYN_ACK_LEN);
        let ack = MpCapable { receiver_key: Some(2), ..syn_ack };
        assert_eq!(ack.len(), MpCapable::ACK_LEN);
    }

    #[test]
    fn only_options_that_leave_no_room_for_a_data_ack_excuse_the_want_of_a_dss() {
        let dss = Dss { data_ack: Some(1), ack_is_64: true, ..Dss::default() };
        assert_eq!(dss.padded_len(), Dss::DATA_ACK_64_LEN);
        let remove = |ids| RareOptions {
            remove_addr: Some(RemoveAddr { address_ids: vec![1; ids] }),
            ..RareOptions::default()
        };
        assert_eq!([1, 4, 13, 14].map(|ids| remove(ids).crowds_out_dss()), [false, false, false, true]);
        let address = "10.0.0.9".parse().expect("an address");
        let echo = AddAddr { echo: true, address_id: 1, address, port: None, hmac: None };
        assert!(RareOptions { add_addr: Some(echo), ..RareOptions::default() }.crowds_out_dss());
        let capable = Some(MpCapable::default());
        assert!(RareOptions { mp_capable: capable, ..RareOptions::default() }.crowds_out_dss());
        assert!(!RareOptions::default().crowds_out_dss());
    }

    #[test]
    fn stripping_leaves_the_options_of_tcp() {
        let tcp = RareOptions {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            ..RareOptions::default()
        };
        let mut both = RareOptions {
            mp_capable: Some(MpCapable::default()),
            remove_addr: Some(RemoveAddr { address_ids: vec![1] }),
            ..tcp.clone()
        };
        assert_eq!(both.mptcp_names().collect::<Vec<_>>(), ["MP_CAPABLE", "REMOVE_ADDR"]);
        both.strip_mptcp();
        assert_eq!((&both, both.mptcp_names().count()), (&tcp, 0));
    }

    #[test]
    fn truncated_sack_blocks_do_not_count() {
        let mut blocks = SackBlocks::default();
        assert!(blocks.push(1, 2) && blocks.push(3, 4));
        blocks.truncate(1);
        let mut one = SackBlocks::default();
        one.push(1, 2);
        assert_eq!(blocks, one);
    }

    #[test]
    fn a_fifth_sack_block_is_refused() {
        let mut blocks = SackBlocks::default();
        assert!((0..4).all(|at| blocks.push(at, at + 1)));
        assert!(!blocks.push(9, 10));
        assert_eq!(blocks.len(), 4);
    }
}
