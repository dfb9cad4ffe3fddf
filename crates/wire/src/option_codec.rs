//! TCP's options on the wire, reading and writing side by side: MSS (RFC 9293 3.7.1), window scale and
//! timestamps (RFC 7323), SACK (RFC 2018), and MPTCP (RFC 8684 3), but for its experimental option (8.2),
//! which is skipped.
//!
//! Options are written in Linux's order and layout: each padded to 4 bytes, SACK-permitted in place of
//! the timestamps' two NOPs, MPTCP last with its padding behind it. Middleboxes and receivers' fast
//! paths expect that layout.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::EncodeError;
use crate::options::{
    AddAddr, Dss, DssMapping, MpCapable, MpFail, MpFastClose, MpJoin, MpPrio, MpTcpRst, RareOptions,
    RemoveAddr, SackBlocks, Timestamps,
};
use crate::payload::Payload;
use crate::segment::Segment;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const MPTCP: u8 = 30;

// Subtypes of MPTCP (RFC 8684 8.2).
const MP_CAPABLE: u8 = 0;
const MP_JOIN: u8 = 1;
const DSS: u8 = 2;
const ADD_ADDR: u8 = 3;
const REMOVE_ADDR: u8 = 4;
const MP_PRIO: u8 = 5;
const MP_FAIL: u8 = 6;
const MP_FASTCLOSE: u8 = 7;
const MP_TCPRST: u8 = 8;

// Flags of the DSS option (RFC 8684 figure 9).
const DSS_DATA_FIN: u8 = 0x10;
const DSS_DSN_64: u8 = 0x08;
const DSS_MAPPING: u8 = 0x04;
const DSS_ACK_64: u8 = 0x02;
const DSS_ACK: u8 = 0x01;

/// The largest valid window scale (RFC 7323 2.3).
const MAX_WINDOW_SCALE: u8 = 14;

/// Writes options one after another into a buffer of [`Segment::options_len`] bytes.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.out[self.at..self.at + N].copy_from_slice(&bytes);
        self.at += N;
    }

    /// The four bytes that most MPTCP options begin with.
    #[inline]
    //= RFC 8684 3.2-2 3.2-6 3.3-1 3.4.1-7 3.6-3 what has no name is 0
    fn mptcp(&mut self, len: usize, subtype: u8, flags: u8, fourth: u8) {
        self.put([MPTCP, len as u8, subtype << 4 | flags, fourth]);
    }

    //= RFC 9293 MUST-69 MUST-68 options fill whole words, so that no padding is left
    /// NOPs up to a multiple of 4.
    #[inline]
    fn pad(&mut self) {
        while !self.at.is_multiple_of(4) {
            self.put([NOP]);
        }
    }
}

/// Writes the options, [`Segment::options_len`] bytes.
pub(crate) fn write<P: Payload>(segment: &Segment<P>, out: &mut [u8]) -> Result<(), EncodeError> {
    let mut writer = Writer { out, at: 0 };
    let rare = segment.rare.as_deref();
    if let Some(mss) = rare.and_then(|rare| rare.mss) {
        writer.put([MSS, 4]);
        writer.put(mss.to_be_bytes());
    }
    let sack_permitted = rare.is_some_and(|rare| rare.sack_permitted);
    if let Some(timestamps) = &segment.timestamps {
        let before = if sack_permitted { [SACK_PERMITTED, 2] } else { [NOP, NOP] };
        writer.put(before);
        writer.put([TIMESTAMPS, 10]);
        writer.put(timestamps.value.to_be_bytes());
        writer.put(timestamps.echo.to_be_bytes());
    } else if sack_permitted {
        writer.put([NOP, NOP, SACK_PERMITTED, 2]);
    }
    if let Some(shift) = rare.and_then(|rare| rare.window_scale) {
        if shift > MAX_WINDOW_SCALE {
            return Err(EncodeError::InvalidOption("window scale"));
        }
        writer.put([NOP, WINDOW_SCALE, 3, shift]);
    }
    if !segment.sack.is_empty() {
        writer.put([NOP, NOP, SACK, 2 + 8 * segment.sack.len() as u8]);
        for (left, right) in segment.sack.as_slice() {
            writer.put(left.to_be_bytes());
            writer.put(right.to_be_bytes());
        }
    }
    if let Some(dss) = &segment.dss {
        write_dss(dss, &mut writer);
    }
    if let Some(rare) = rare {
        write_rare(rare, &mut writer)?;
    }
    debug_assert_eq!(writer.at, writer.out.len(), "options_len and the encoding differ");
    Ok(())
}

fn write_dss(dss: &Dss, writer: &mut Writer<'_>) {
    let mut flags = if dss.data_fin { DSS_DATA_FIN } else { 0 };
    if dss.data_ack.is_some() {
        flags |= DSS_ACK | if dss.ack_is_64 { DSS_ACK_64 } else { 0 };
    }
    if let Some(mapping) = &dss.mapping {
        flags |= DSS_MAPPING | if mapping.dsn_is_64 { DSS_DSN_64 } else { 0 };
    }
    writer.mptcp(dss.len(), DSS, 0, flags);
    match dss.data_ack {
        Some(ack) if dss.ack_is_64 => writer.put(ack.to_be_bytes()),
        Some(ack) => writer.put((ack as u32).to_be_bytes()),
        None => {}
    }
    if let Some(mapping) = &dss.mapping {
        if mapping.dsn_is_64 {
            writer.put(mapping.dsn.to_be_bytes());
        } else {
            writer.put((mapping.dsn as u32).to_be_bytes());
        }
        writer.put(mapping.ssn.to_be_bytes());
        writer.put(mapping.len.to_be_bytes());
        if let Some(checksum) = mapping.checksum {
            writer.put(checksum.to_be_bytes());
        }
    }
    writer.pad();
}

fn write_rare(rare: &RareOptions, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
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
    } = rare;
    if let Some(capable) = mp_capable {
        write_mp_capable(capable, writer)?;
    }
    match mp_join {
        Some(MpJoin::Syn { backup, address_id, token, nonce }) => {
            writer.mptcp(MpJoin::SYN_LEN, MP_JOIN, u8::from(*backup), *address_id);
            writer.put(token.to_be_bytes());
            writer.put(nonce.to_be_bytes());
        }
        Some(MpJoin::SynAck { backup, address_id, hmac, nonce }) => {
            writer.mptcp(MpJoin::SYN_ACK_LEN, MP_JOIN, u8::from(*backup), *address_id);
            writer.put(hmac.to_be_bytes());
            writer.put(nonce.to_be_bytes());
        }
        Some(MpJoin::Ack { hmac }) => {
            writer.mptcp(MpJoin::ACK_LEN, MP_JOIN, 0, 0);
            writer.put(*hmac);
        }
        None => {}
    }
    if let Some(fail) = mp_fail {
        writer.mptcp(MpFail::LEN, MP_FAIL, 0, 0);
        writer.put(fail.dsn.to_be_bytes());
    }
    if let Some(fastclose) = mp_fastclose {
        writer.mptcp(MpFastClose::LEN, MP_FASTCLOSE, 0, 0);
        writer.put(fastclose.receiver_key.to_be_bytes());
    }
    if let Some(reset) = mp_tcprst {
        writer.mptcp(MpTcpRst::LEN, MP_TCPRST, u8::from(reset.transient), reset.reason);
    }
    if let Some(add) = add_addr {
        // Exactly the announcement is authenticated (RFC 8684 3.4.1); Linux drops the other two.
        if add.echo == add.hmac.is_some() {
            return Err(EncodeError::InvalidOption("ADD_ADDR"));
        }
        writer.mptcp(add.len(), ADD_ADDR, u8::from(add.echo), add.address_id);
        match add.address {
            IpAddr::V4(address) => writer.put(address.octets()),
            IpAddr::V6(address) => writer.put(address.octets()),
        }
        if let Some(port) = add.port {
            writer.put(port.to_be_bytes());
        }
        if let Some(hmac) = add.hmac {
            writer.put(hmac.to_be_bytes());
        }
        writer.pad();
    }
    if let Some(remove) = remove_addr {
        if remove.address_ids.is_empty() {
            return Err(EncodeError::InvalidOption("REMOVE_ADDR"));
        }
        writer.put([MPTCP, 3 + remove.address_ids.len() as u8, REMOVE_ADDR << 4]);
        for id in &remove.address_ids {
            writer.put([*id]);
        }
        writer.pad();
    }
    if let Some(prio) = mp_prio {
        writer.put([MPTCP, 3, MP_PRIO << 4 | u8::from(prio.backup), NOP]);
    }
    Ok(())
}

fn write_mp_capable(capable: &MpCapable, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
    // Each field requires the ones before it: the length alone says which are present.
    let in_order = [
        capable.sender_key.is_some(),
        capable.receiver_key.is_some(),
        capable.data_len.is_some(),
        capable.checksum.is_some(),
    ];
    if capable.version > 0x0f || !in_order.is_sorted_by(|before, after| before >= after) {
        return Err(EncodeError::InvalidOption("MP_CAPABLE"));
    }
    let flags = u8::from(capable.checksum_required) << 7
        | u8::from(capable.extensibility) << 6
        | u8::from(capable.deny_join_initial_address) << 5
        | u8::from(capable.hmac_sha256);
    writer.mptcp(capable.len(), MP_CAPABLE, capable.version, flags);
    for key in [capable.sender_key, capable.receiver_key].into_iter().flatten() {
        writer.put(key.to_be_bytes());
    }
    for word in [capable.data_len, capable.checksum].into_iter().flatten() {
        writer.put(word.to_be_bytes());
    }
    writer.pad();
    Ok(())
}

/// Reads the options of one TCP header into `segment`.
///
/// Unknown options are skipped by their length (RFC 9293 MUST-6). An option with an illegal length (0, 1,
/// or past the end of the header) ends the list: options before it count, and the segment is used, as Linux
/// does. (RFC 9293 MUST-7 asks to be prepared; the reset that it suggests would let anyone who can inject
/// one segment end the connection.)
///
/// A known option of a wrong length is ignored, MPTCP's as well: RFC 8684 has no error for it, and the
/// protocol handles a missing option (a handshake without it falls back, 3.7; data without a mapping is
/// not acknowledged, 3.3). If an option is repeated, the last one counts. A window scale above 14 is read
/// as 14 (RFC 7323 2.3). MP_PRIO has 3 bytes; the form of MPTCP version 0 with 4 bytes is about the address
/// id in its last byte, not about this subflow, and is ignored.
pub fn parse_options<P: Payload>(options: &[u8], segment: &mut Segment<P>) {
    //= RFC 9293 MUST-4 MUST-5 MUST-64
    let mut rest = options;
    while let [kind, tail @ ..] = rest {
        match *kind {
            END => return,
            NOP => {
                rest = tail;
                continue;
            }
            _ => {}
        }
        //= RFC 9293 MUST-6 MUST-7
        let Some(len @ 2..) = tail.first().map(|len| usize::from(*len)) else { return };
        let Some((option, after)) = rest.split_at_checked(len) else { return };
        rest = after;
        match (*kind, &option[2..]) {
            (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                segment.timestamps = Some(Timestamps {
                    value: u32::from_be_bytes([a, b, c, d]),
                    echo: u32::from_be_bytes([e, f, g, h]),
                });
            }
            (SACK, body) => read_sack(body, &mut segment.sack),
            (MPTCP, body) => read_mptcp(body, segment),
            (MSS, &[high, low]) => segment.rare_mut().mss = Some(u16::from_be_bytes([high, low])),
            (WINDOW_SCALE, &[shift]) => {
                segment.rare_mut().window_scale = Some(shift.min(MAX_WINDOW_SCALE));
            }
            (SACK_PERMITTED, []) => segment.rare_mut().sack_permitted = true,
            _ => {}
        }
    }
}

fn read_sack(body: &[u8], sack: &mut SackBlocks) {
    let (blocks, rest) = body.as_chunks::<8>();
    if !rest.is_empty() || !(1..=4).contains(&blocks.len()) {
        return;
    }
    *sack = SackBlocks::default();
    for &[a, b, c, d, e, f, g, h] in blocks {
        sack.push(u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    }
}

/// Reads the fields of an option in order; `None` when it is too short.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    #[inline]
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    #[inline]
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    #[inline]
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}

/// Reads one MPTCP option; `body` begins with the subtype.
fn read_mptcp<P: Payload>(body: &[u8], segment: &mut Segment<P>) {
    let Some((&first, fields)) = body.split_first() else { return };
    //= RFC 8684 3.4.1-8 3.6-4 flags without a name are masked out below
    let (subtype, flags) = (first >> 4, first & 0x0f);
    if subtype == DSS {
        if let Some(dss) = read_dss(fields) {
            segment.dss = Some(dss);
        }
        return;
    }
    // A rare option allocates; an ignored one must not.
    match subtype {
        MP_CAPABLE => {
            if let Some(capable) = read_mp_capable(flags, fields) {
                segment.rare_mut().mp_capable = Some(capable);
            }
        }
        MP_JOIN => {
            if let Some(join) = read_mp_join(flags, fields) {
                segment.rare_mut().mp_join = Some(join);
            }
        }
        ADD_ADDR => {
            if let Some(add) = read_add_addr(flags, fields) {
                segment.rare_mut().add_addr = Some(add);
            }
        }
        REMOVE_ADDR if !fields.is_empty() => {
            segment.rare_mut().remove_addr = Some(RemoveAddr { address_ids: fields.to_vec() });
        }
        MP_PRIO if fields.is_empty() => {
            segment.rare_mut().mp_prio = Some(MpPrio { backup: flags & 1 != 0 });
        }
        MP_FAIL => {
            if let Some(dsn) = reserved_then_u64(fields) {
                segment.rare_mut().mp_fail = Some(MpFail { dsn });
            }
        }
        MP_FASTCLOSE => {
            if let Some(receiver_key) = reserved_then_u64(fields) {
                segment.rare_mut().mp_fastclose = Some(MpFastClose { receiver_key });
            }
        }
        MP_TCPRST => {
            if let &[reason] = fields {
                segment.rare_mut().mp_tcprst = Some(MpTcpRst { transient: flags & 1 != 0, reason });
            }
        }
        _ => {}
    }
}

fn reserved_then_u64(fields: &[u8]) -> Option<u64> {
    match fields {
        &[_, a, b, c, d, e, f, g, h] => Some(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    }
}

fn read_dss(fields: &[u8]) -> Option<Dss> {
    let mut reader = Reader(fields);
    let [flags] = reader.take()?;
    let mut dss = Dss { data_fin: flags & DSS_DATA_FIN != 0, ..Dss::default() };
    if flags & DSS_ACK != 0 {
        dss.ack_is_64 = flags & DSS_ACK_64 != 0;
        dss.data_ack = Some(if dss.ack_is_64 { reader.u64()? } else { reader.u32()?.into() });
    }
    if flags & DSS_MAPPING != 0 {
        let dsn_is_64 = flags & DSS_DSN_64 != 0;
        dss.mapping = Some(DssMapping {
            dsn: if dsn_is_64 { reader.u64()? } else { reader.u32()?.into() },
            ssn: reader.u32()?,
            len: reader.u16()?,
            // Only the length tells whether there is a checksum (RFC 8684 3.3.1).
            checksum: reader.u16(),
            dsn_is_64,
        });
    }
    reader.0.is_empty().then_some(dss)
}

fn read_mp_capable(version: u8, fields: &[u8]) -> Option<MpCapable> {
    // The body less the subtype of a 4, 12, 20, 22 or 24 byte option.
    let (1 | 9 | 17 | 19 | 21) = fields.len() else { return None };
    let mut reader = Reader(fields);
    let [flags] = reader.take()?;
    Some(MpCapable {
        version,
        checksum_required: flags & 0x80 != 0,
        extensibility: flags & 0x40 != 0,
        deny_join_initial_address: flags & 0x20 != 0,
        hmac_sha256: flags & 0x01 != 0,
        sender_key: reader.u64(),
        receiver_key: reader.u64(),
        data_len: reader.u16(),
        checksum: reader.u16(),
    })
}

fn read_mp_join(flags: u8, fields: &[u8]) -> Option<MpJoin> {
    let mut reader = Reader(fields);
    let [address_id] = reader.take()?;
    let backup = flags & 1 != 0;
    let join = match reader.0.len() {
        8 => MpJoin::Syn { backup, address_id, token: reader.u32()?, nonce: reader.u32()? },
        12 => MpJoin::SynAck { backup, address_id, hmac: reader.u64()?, nonce: reader.u32()? },
        20 => MpJoin::Ack { hmac: reader.take()? },
        _ => return None,
    };
    Some(join)
}

fn read_add_addr(flags: u8, fields: &[u8]) -> Option<AddAddr> {
    let echo = flags & 1 != 0;
    let mut reader = Reader(fields);
    let [address_id] = reader.take()?;
    let hmac_len = if echo { 0 } else { 8 };
    let (is_v4, has_port) = match reader.0.len().checked_sub(hmac_len)? {
        4 => (true, false),
        6 => (true, true),
        16 => (false, false),
        18 => (false, true),
        _ => return None,
    };
    let address = if is_v4 {
        IpAddr::V4(Ipv4Addr::from(reader.take::<4>()?))
    } else {
        IpAddr::V6(Ipv6Addr::from(reader.take::<16>()?))
    };
    let port = if has_port { Some(reader.u16()?) } else { None };
    let hmac = if echo { None } else { Some(reader.u64()?) };
    Some(AddAddr { echo, address_id, address, port, hmac })
}
