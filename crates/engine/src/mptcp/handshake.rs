//! What the handshake knows: both keys, what both ends agreed on, and what waits for the peer's key (RFC 8684
//! 3.1, 3.2). What follows from it for subflows and the stream is in `establish.rs`.

use ropewalk_wire::{Dss, DssMapping, MpCapable, MpJoin, Payload, Segment, Seq, checksum};

use super::crypto::{Key, add_addr_hmac, join_hmac, leftmost_64, leftmost_160};
use super::early_segments::EarlySegments;
use super::is_understood;
use super::subflow::{Join, Subflow};
use crate::PathId;
use crate::config::{ConnectionConfig, LocalEndpoint};
use crate::tcp::{Kind, Mapping, data_ack_len};

/// Which side opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Role {
    /// We connected.
    Client,
    /// We accepted.
    Server,
}

/// The protocol of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// The handshake hasn't decided.
    Negotiating,
    /// Multipath TCP.
    Multipath,
    /// Plain TCP, from the start or by fallback.
    Plain,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Handshake<P> {
    role: Role,
    mode: Mode,
    /// Mappings have checksums.
    checksum: bool,
    /// The peer's DSNs have 64 bits, and so have the DATA_ACKs that answer them.
    ack_is_64: bool,
    /// Our own DSNs have 64 bits.
    dsn_is_64: bool,
    /// The peer has shown that it has both keys, so that nothing of the handshake is retransmitted.
    confirmed: bool,
    /// Both keys have just been sent, and the DATA_FIN has not: it is next.
    keys_precede: bool,
    /// The peer wants no joins to its first address (flag C).
    deny_join: bool,
    local_key: Key,
    remote_key: Option<Key>,
    /// What came before the peer's key.
    early: Option<Box<EarlySegments<P>>>,
}

impl<P: Payload> Handshake<P> {
    /// Before the first segment.
    pub fn new(role: Role, config: &ConnectionConfig, key: u64) -> Self {
        let multipath = config.multipath;
        Handshake {
            role,
            mode: if multipath { Mode::Negotiating } else { Mode::Plain },
            checksum: multipath && config.checksum,
            ack_is_64: false,
            dsn_is_64: !config.short_dsn,
            confirmed: !multipath,
            keys_precede: false,
            deny_join: false,
            local_key: Key::new(key),
            remote_key: None,
            early: None,
        }
    }

    /// Whether our own DSNs have 64 bits.
    #[inline]
    pub fn dsn_is_64(&self) -> bool {
        self.dsn_is_64
    }

    /// Which side we are.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether we opened the connection.
    #[inline]
    pub fn is_client(&self) -> bool {
        self.role == Role::Client
    }

    /// Whether the handshake hasn't decided.
    #[inline]
    pub fn is_negotiating(&self) -> bool {
        self.mode == Mode::Negotiating
    }

    /// Whether this is Multipath TCP.
    #[inline]
    pub fn is_multipath(&self) -> bool {
        self.mode == Mode::Multipath
    }

    /// Whether this is plain TCP for good.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.mode == Mode::Plain
    }

    /// Our token, by which joins name the connection.
    pub fn token(&self) -> u32 {
        self.local_key.token
    }

    /// Whether the peer's key is known.
    pub fn has_remote_key(&self) -> bool {
        self.remote_key.is_some()
    }

    /// Whether mappings have checksums.
    #[inline]
    pub fn has_checksums(&self) -> bool {
        self.checksum
    }

    /// Segments of a super-segment, of `max` at most. A checksum covers a whole mapping, and a part that is
    /// lost must come again with the same: one segment each.
    #[inline]
    pub fn most_segments(&self, max: u32) -> u32 {
        if self.checksum { 1 } else { max }
    }

    /// Whether our DATA_ACKs have 64 bits.
    #[inline]
    pub fn ack_is_64(&self) -> bool {
        self.ack_is_64
    }

    /// Whether the peer has shown that it has both keys.
    #[inline]
    pub fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Whether the peer wants no joins to its first address.
    pub fn denies_joins(&self) -> bool {
        self.deny_join
    }

    /// The peer wants checksums, or doesn't.
    pub fn require_checksum(&mut self, required: bool) {
        self.checksum |= required;
    }

    /// The peer has shown that it has both keys.
    pub fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// The peer's DSNs have 64 bits, or 32.
    pub fn match_dsn_length(&mut self, dsn_is_64: bool) {
        self.ack_is_64 = dsn_is_64;
    }

    /// Plain TCP from now on. Returns whether that is while the handshake is under way; `None` if it was
    /// plain TCP before.
    pub fn fall_back(&mut self) -> Option<bool> {
        let was_negotiating = self.is_negotiating();
        if self.is_plain() {
            return None;
        }
        self.mode = Mode::Plain;
        self.confirmed = true;
        self.checksum = false;
        Some(was_negotiating)
    }

    /// The SYN/ACK of our SYN came with this MP_CAPABLE. Returns whether the peer speaks Multipath TCP as we
    /// do.
    pub fn on_syn_ack(&mut self, capable: Option<MpCapable>) -> bool {
        let Some((capable, key)) =
            capable.filter(is_understood).and_then(|capable| Some((capable, capable.sender_key?)))
        else {
            return false;
        };
        self.remote_key = Some(Key::new(key));
        //= RFC 8684 3.1-22 3.1-23
        self.checksum |= capable.checksum_required;
        self.deny_join = capable.deny_join_initial_address;
        self.mode = Mode::Multipath;
        true
    }

    /// The third ACK, or the first data, came with this MP_CAPABLE. Returns false if nothing can be verified
    /// with it.
    pub fn on_third_ack(&mut self, capable: Option<MpCapable>) -> bool {
        // Version and flags are those of the handshake (RFC 8684 3.1).
        let ours = Some(self.local_key.key);
        let Some(capable) = capable.filter(|capable| is_understood(capable) && capable.receiver_key == ours)
        else {
            return false;
        };
        if let Some(key) = capable.sender_key {
            self.remote_key = Some(Key::new(key));
            self.mode = Mode::Multipath;
            self.confirmed = true;
            self.checksum |= capable.checksum_required;
            // No DATA_ACK yet: the answer to the first data tells the client that its keys arrived. Linux no
            // longer falls back (RFC 8684 3.7) once it got a DSS, and a path may strip the options of data
            // only.
        }
        true
    }

    //= RFC 8684 3.2-8 3.9.3-2
    /// Whether the HMAC of a join's SYN/ACK, which came with `nonce`, shows that its sender has the keys.
    pub fn verifies_syn_ack(&self, subflow: &Subflow<P>, nonce: u32, hmac: u64) -> bool {
        let Some(remote) = self.remote_key else { return false };
        leftmost_64(&join_hmac(remote.key, self.local_key.key, nonce, subflow.local_nonce())) == hmac
    }

    //= RFC 8684 3.2-10 3.9.3-2
    /// Whether the HMAC of a join's third ACK shows that its sender has the keys.
    pub fn verifies_third_ack(&self, subflow: &Subflow<P>, hmac: &[u8; 20]) -> bool {
        let Some(remote) = self.remote_key else { return false };
        let expected =
            join_hmac(remote.key, self.local_key.key, subflow.remote_nonce(), subflow.local_nonce());
        leftmost_160(&expected) == *hmac
    }

    /// The HMAC of our SYN/ACK or third ACK on a join.
    fn join_hmac(&self, subflow: &Subflow<P>) -> [u8; 32] {
        let remote = self.remote_key.map_or(0, |key| key.key);
        join_hmac(self.local_key.key, remote, subflow.local_nonce(), subflow.remote_nonce())
    }

    /// Whether the HMAC of the peer's ADD_ADDR is right.
    pub fn verifies_add_addr(&self, add: &ropewalk_wire::AddAddr) -> bool {
        let Some(remote) = self.remote_key else { return false };
        let expected = add_addr_hmac(remote.key, self.local_key.key, add.address_id, add.address, add.port);
        add.hmac == Some(expected)
    }

    /// The HMAC of an ADD_ADDR of ours; `None` without the peer's key.
    pub fn add_addr_hmac(&self, endpoint: &LocalEndpoint) -> Option<u64> {
        let LocalEndpoint { id, address, port, .. } = *endpoint;
        Some(add_addr_hmac(self.local_key.key, self.remote_key?.key, id, address, port))
    }

    /// Whether an MP_FASTCLOSE has our key.
    pub fn is_our_key(&self, key: u64) -> bool {
        self.local_key.key == key
    }

    /// The peer's key, for MP_FASTCLOSE.
    pub fn fastclose_key(&self) -> Option<u64> {
        self.remote_key.map(|remote| remote.key)
    }

    /// The DSN of a byte that we send, by its offset in the stream.
    #[inline]
    pub fn dsn(&self, offset: u64) -> u64 {
        self.local_key.idsn.wrapping_add(1).wrapping_add(offset)
    }

    /// The DSN of a byte that the peer sends, by its offset in the stream; 1 more than the offset while the
    /// key isn't known.
    #[inline]
    pub fn remote_dsn(&self, offset: u64) -> u64 {
        self.remote_key.map_or(0, |remote| remote.idsn).wrapping_add(1).wrapping_add(offset)
    }

    //= RFC 8684 3.3.1-10 3.3.1-12 3.3.2-2
    //= RFC 8684 3.3.1-9 3.3.1-13 the nearest number to the one expected, of 64 bits
    /// The offset that a DSN of the peer stands for, where `next` is expected; far away if it is before the
    /// first byte.
    #[inline]
    pub fn offset_of(&self, mapping: &DssMapping, next: u64) -> Option<u64> {
        let first = self.remote_key?.idsn.wrapping_add(1);
        Some(if mapping.dsn_is_64 {
            mapping.dsn.wrapping_sub(first)
        } else {
            Seq((mapping.dsn as u32).wrapping_sub(first as u32)).unfold(next)
        })
    }

    /// The mapping that travels with a segment's data. `isn`: the peer's, of the subflow; `next`: the offset
    /// expected.
    #[inline(always)]
    pub fn mapping_of(&self, segment: &Segment<P>, isn: u32, next: u64) -> Mapping {
        let Some(dss) = &segment.dss else { return first_mapping(segment, isn) };
        let Some(mapping) = &dss.mapping else { return Mapping::default() };
        let Some(offset) = self.offset_of(mapping, next) else {
            return Mapping::default();
        };
        if segment.payload.is_empty() || offset > 1 << 62 || mapping.checksum.is_some() != self.checksum {
            return Mapping::default();
        }
        let len = mapping.len.saturating_sub(u16::from(dss.data_fin));
        let checksum = mapping.checksum.map_or(0, |sum| checksum::update(sum, mapping.len, len));
        let skip = segment.seq.0.wrapping_sub(isn).wrapping_sub(mapping.ssn);
        Mapping::new(offset, len, checksum, skip)
    }

    /// The offset up to which a DATA_ACK acknowledges, where `una` is the first byte that wasn't
    /// acknowledged.
    #[inline]
    pub fn acked_offset(&self, ack: u64, is_64: bool, una: u64) -> u64 {
        let first = self.local_key.idsn.wrapping_add(1);
        if is_64 { ack.wrapping_sub(first) } else { Seq((ack as u32).wrapping_sub(first as u32)).unfold(una) }
    }

    /// Octets of a DSS that has only a DATA_ACK.
    #[inline]
    pub fn ack_only_len(&self) -> u8 {
        data_ack_len(self.ack_is_64)
    }

    /// A DSS that only acknowledges what is before `offset`.
    #[inline]
    pub fn dss_ack(&self, offset: u64) -> Dss {
        Dss { data_ack: self.data_ack(offset), ack_is_64: self.ack_is_64, ..Dss::default() }
    }

    /// The DATA_ACK for what is before `offset`.
    #[inline]
    pub fn data_ack(&self, offset: u64) -> Option<u64> {
        Some(self.remote_key?.idsn.wrapping_add(1).wrapping_add(offset))
    }

    /// Whether the client's next data is its first, which carries both keys.
    #[inline]
    pub fn owes_keys(&self) -> bool {
        !self.confirmed && self.role == Role::Client
    }

    /// Octets of the options of a subflow's handshake, if its next segment without data carries some.
    /// `unassigned`: no data was sent, which would carry the keys.
    pub fn control_len(&self, join: Join, unassigned: bool) -> Option<usize> {
        match join {
            Join::SynSent => Some(MpJoin::SYN_LEN),
            Join::SynReceived => Some(MpJoin::SYN_ACK_LEN),
            Join::Held | Join::AckSent => Some(MpJoin::ACK_LEN),
            Join::Initial if self.is_negotiating() => Some(MpCapable::SYN_ACK_LEN),
            Join::Initial if self.owes_keys() && unassigned => Some(MpCapable::ACK_LEN),
            Join::Initial | Join::Joined => None,
        }
    }

    /// The options of a SYN or SYN/ACK.
    #[cold]
    pub fn write_syn_options(&self, subflow: &Subflow<P>, kind: Kind, segment: &mut Segment<P>) {
        match subflow.join() {
            Join::Initial => {
                //= RFC 8684 3.9.3-1
                // A path that drops SYNs with the option gets one without (Linux: from the third try on).
                if kind == Kind::Syn && subflow.tcp.syn_retransmissions() > 2 {
                    return;
                }
                //= RFC 8684 3.1-a
                let sender_key = (kind == Kind::SynAck).then_some(self.local_key.key);
                //= RFC 8684 3.1-1 3.1-12 3.1-15 3.1-16 every flag that isn't named is 0
                segment.rare_mut().mp_capable = Some(MpCapable {
                    version: 1,
                    checksum_required: self.checksum,
                    hmac_sha256: true,
                    sender_key,
                    ..MpCapable::default()
                });
            }
            Join::SynSent => {
                segment.rare_mut().mp_join = Some(MpJoin::Syn {
                    backup: subflow.backup_local(),
                    address_id: subflow.local_id(),
                    token: self.remote_key.map_or(0, |key| key.token),
                    nonce: subflow.local_nonce(),
                });
            }
            Join::SynReceived => {
                //= RFC 8684 3.2-3
                segment.rare_mut().mp_join = Some(MpJoin::SynAck {
                    backup: subflow.backup_local(),
                    address_id: subflow.local_id(),
                    hmac: leftmost_64(&self.join_hmac(subflow)),
                    nonce: subflow.local_nonce(),
                });
            }
            Join::Held | Join::AckSent | Join::Joined => {}
        }
    }

    /// The options of an ACK while a subflow's handshake goes on. Returns whether nothing else goes on it.
    /// `unassigned`: no data was sent, which would carry the keys; `closed`: a DATA_FIN is to follow, for
    /// which there is no room beside the keys.
    pub fn write_ack_options(
        &mut self,
        subflow: &mut Subflow<P>,
        (unassigned, closed): (bool, bool),
        segment: &mut Segment<P>,
    ) -> bool {
        match subflow.join() {
            Join::AckSent => {
                let hmac = leftmost_160(&self.join_hmac(subflow));
                segment.rare_mut().mp_join = Some(MpJoin::Ack { hmac });
                true
            }
            Join::Initial if self.owes_keys() && unassigned && !std::mem::take(&mut self.keys_precede) => {
                if closed {
                    self.keys_precede = true;
                    subflow.tcp.request_ack();
                }
                segment.rare_mut().mp_capable = Some(self.both_keys());
                true
            }
            Join::SynSent | Join::Held | Join::SynReceived => true,
            Join::Initial | Join::Joined => false,
        }
    }

    /// The first data of the client carries both keys (RFC 8684 3.1).
    #[cold]
    pub fn write_first_data_options(&self, len: u16, checksum: Option<u16>, segment: &mut Segment<P>) {
        //= RFC 8684 3.1-8 3.1-c
        segment.rare_mut().mp_capable = Some(MpCapable { data_len: Some(len), checksum, ..self.both_keys() });
    }

    fn both_keys(&self) -> MpCapable {
        MpCapable {
            version: 1,
            checksum_required: self.checksum,
            hmac_sha256: true,
            sender_key: Some(self.local_key.key),
            receiver_key: self.remote_key.map(|key| key.key),
            ..MpCapable::default()
        }
    }

    /// Keeps a segment with data that came before the peer's key.
    #[cold]
    pub fn keep_early_data(&mut self, segment: &Segment<P>) {
        self.early.get_or_insert_default().keep_data(segment);
    }

    /// Whether segments with data waited for the peer's key, which is there.
    #[inline]
    pub fn has_early_data(&self) -> bool {
        self.early.is_some() && !self.is_negotiating()
    }

    /// The segments with data that waited for the peer's key, in the order in which they arrived. After a
    /// fallback to plain TCP there is none: a DSS with a mapping would reset the connection.
    #[cold]
    pub fn take_early_data(&mut self) -> Vec<Segment<P>> {
        let Some(early) = self.early.as_mut() else { return Vec::new() };
        let data = early.take_data();
        self.early = self.early.take().filter(|early| !early.is_empty());
        if self.is_multipath() { data } else { Vec::new() }
    }

    /// Keeps a SYN that joins a connection of which the peer's key isn't known yet; false if it can't wait.
    #[cold]
    pub fn keep_early_join(&mut self, path: PathId, syn: &Segment<P>) -> bool {
        let waits = self.role == Role::Server && self.is_negotiating();
        waits && self.early.get_or_insert_default().keep_join(path, syn)
    }

    /// Whether SYNs that waited for the keys can be answered.
    #[inline]
    pub fn has_early_joins(&self) -> bool {
        !self.is_negotiating() && self.early.as_ref().is_some_and(|early| early.has_joins())
    }

    /// The SYNs that waited for the keys, and the paths that they came on.
    #[cold]
    pub fn take_early_joins(&mut self) -> Vec<(PathId, Segment<P>)> {
        let Some(early) = self.early.as_mut() else { return Vec::new() };
        let joins = early.take_joins();
        self.early = self.early.take().filter(|early| !early.is_empty());
        joins
    }
}

/// The mapping of the first data, which comes with MP_CAPABLE in place of a DSS (RFC 8684 3.1).
#[cold]
fn first_mapping<P: Payload>(segment: &Segment<P>, isn: u32) -> Mapping {
    let capable = segment.rare.as_deref().and_then(|rare| rare.mp_capable);
    let Some((capable, len)) = capable.and_then(|capable| Some((capable, capable.data_len?))) else {
        return Mapping::default();
    };
    let skip = segment.seq.0.wrapping_sub(isn).wrapping_sub(1);
    Mapping::new(0, len, capable.checksum.unwrap_or(0), skip)
}
