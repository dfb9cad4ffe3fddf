//! Arbitrary segments that have an encoding, in the one form that parsing gives back.
#![allow(dead_code, reason = "each test uses its part")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use proptest::option::weighted;
use proptest::prelude::*;
use ropewalk_wire::*;

pub fn tuple() -> impl Strategy<Value = FourTuple> {
    let v4 = any::<(u32, u32)>()
        .prop_map(|(src, dst)| (IpAddr::V4(Ipv4Addr::from(src)), IpAddr::V4(Ipv4Addr::from(dst))));
    let v6 = any::<(u128, u128)>()
        .prop_map(|(src, dst)| (IpAddr::V6(Ipv6Addr::from(src)), IpAddr::V6(Ipv6Addr::from(dst))));
    (prop_oneof![v4, v6], any::<(u16, u16)>()).prop_map(|((src, dst), (src_port, dst_port))| FourTuple {
        src,
        dst,
        src_port,
        dst_port,
    })
}

pub fn dss() -> impl Strategy<Value = Dss> {
    let mapping =
        any::<(u64, u32, u16, Option<u16>, bool)>().prop_map(|(dsn, ssn, len, checksum, dsn_is_64)| {
            DssMapping { dsn: if dsn_is_64 { dsn } else { dsn & 0xffff_ffff }, ssn, len, checksum, dsn_is_64 }
        });
    (any::<Option<u64>>(), any::<bool>(), proptest::option::of(mapping), any::<bool>()).prop_map(
        |(data_ack, ack_is_64, mapping, data_fin)| Dss {
            data_ack: data_ack.map(|ack| if ack_is_64 { ack } else { ack & 0xffff_ffff }),
            ack_is_64: ack_is_64 && data_ack.is_some(),
            mapping,
            data_fin,
        },
    )
}

pub fn mp_capable() -> impl Strategy<Value = MpCapable> {
    (0u8..16, any::<[bool; 4]>(), any::<(u64, u64, u16, u16)>(), 0..5).prop_map(
        |(version, flags, (sender, receiver, data_len, checksum), fields)| MpCapable {
            version,
            checksum_required: flags[0],
            extensibility: flags[1],
            deny_join_initial_address: flags[2],
            hmac_sha256: flags[3],
            sender_key: (fields > 0).then_some(sender),
            receiver_key: (fields > 1).then_some(receiver),
            data_len: (fields > 2).then_some(data_len),
            checksum: (fields > 3).then_some(checksum),
        },
    )
}

pub fn mp_join() -> impl Strategy<Value = MpJoin> {
    prop_oneof![
        any::<(bool, u8, u32, u32)>().prop_map(|(backup, address_id, token, nonce)| MpJoin::Syn {
            backup,
            address_id,
            token,
            nonce
        }),
        any::<(bool, u8, u64, u32)>().prop_map(|(backup, address_id, hmac, nonce)| MpJoin::SynAck {
            backup,
            address_id,
            hmac,
            nonce
        }),
        any::<[u8; 20]>().prop_map(|hmac| MpJoin::Ack { hmac }),
    ]
}

pub fn add_addr() -> impl Strategy<Value = AddAddr> {
    (any::<(bool, u8)>(), any::<IpAddr>(), any::<Option<u16>>(), any::<u64>()).prop_map(
        |((echo, address_id), address, port, hmac)| AddAddr {
            echo,
            address_id,
            address,
            port,
            hmac: (!echo).then_some(hmac),
        },
    )
}

pub fn rare() -> impl Strategy<Value = RareOptions> {
    let tcp = (weighted(0.2, any::<u16>()), weighted(0.2, 0u8..=14), proptest::bool::weighted(0.2));
    let mptcp = (
        weighted(0.2, mp_capable()),
        weighted(0.2, mp_join()),
        weighted(0.2, add_addr()),
        weighted(0.2, proptest::collection::vec(any::<u8>(), 1..12)),
        weighted(0.2, any::<bool>()),
        weighted(0.1, any::<u64>()),
        weighted(0.1, any::<u64>()),
        weighted(0.1, any::<(bool, u8)>()),
    );
    (tcp, mptcp).prop_map(
        |(
            (mss, window_scale, sack_permitted),
            (mp_capable, mp_join, add_addr, remove, prio, fail, close, reset),
        )| {
            RareOptions {
                mss,
                window_scale,
                sack_permitted,
                mp_capable,
                mp_join,
                add_addr,
                remove_addr: remove.map(|address_ids| RemoveAddr { address_ids }),
                mp_prio: prio.map(|backup| MpPrio { backup }),
                mp_fail: fail.map(|dsn| MpFail { dsn }),
                mp_fastclose: close.map(|receiver_key| MpFastClose { receiver_key }),
                mp_tcprst: reset.map(|(transient, reason)| MpTcpRst { transient, reason }),
            }
        },
    )
}

pub fn ecn() -> impl Strategy<Value = Ecn> {
    prop_oneof![Just(Ecn::NotEct), Just(Ecn::Ect0), Just(Ecn::Ect1), Just(Ecn::Ce)]
}

fn sack() -> impl Strategy<Value = SackBlocks> {
    proptest::collection::vec(any::<(u32, u32)>(), 0..=4).prop_map(|edges| {
        let mut blocks = SackBlocks::default();
        for (left, right) in edges {
            blocks.push(left, right);
        }
        blocks
    })
}

/// Any segment whose options fit. Where they don't, options are left out until they do.
pub fn segment(max_payload: usize) -> impl Strategy<Value = Segment<Bytes>> {
    let options = (
        weighted(0.6, any::<(u32, u32)>()),
        prop_oneof![2 => Just(SackBlocks::default()), 1 => sack()],
        weighted(0.6, dss()),
        weighted(0.4, rare()),
    );
    let ip = (ecn(), 0u8..64, any::<u8>());
    let fields = (any::<(u32, u32)>(), any::<(u16, u16)>(), any::<u8>(), ip);
    (tuple(), fields, options, proptest::collection::vec(any::<u8>(), 0..=max_payload)).prop_map(
        |(
            tuple,
            ((seq, ack), (window, urgent), flags, (ecn, dscp, hop_limit)),
            (timestamps, sack, dss, rare),
            payload,
        )| {
            let mut segment = Segment::new(tuple, Seq(seq), Seq(ack), Flags(flags));
            segment.window = window;
            segment.urgent = urgent;
            (segment.ecn, segment.dscp, segment.hop_limit) = (ecn, dscp, hop_limit);
            segment.timestamps = timestamps.map(|(value, echo)| Timestamps { value, echo });
            segment.sack = sack;
            segment.dss = dss;
            segment.rare = rare.map(Box::new);
            segment.payload = Bytes::from(payload);
            fit(&mut segment);
            segment
        },
    )
}

/// Leaves options out, the most expensive kind first, until the rest takes 40 bytes at most.
fn fit(segment: &mut Segment<Bytes>) {
    let drops: [fn(&mut Segment<Bytes>); 10] = [
        |segment| segment.sack.truncate(1),
        |segment| segment.sack.truncate(0),
        |segment| segment.rare_mut().add_addr = None,
        |segment| segment.timestamps = None,
        |segment| segment.rare_mut().remove_addr = None,
        |segment| segment.dss = None,
        |segment| segment.rare_mut().mp_join = None,
        |segment| segment.rare_mut().mp_fail = None,
        |segment| segment.rare_mut().mp_capable = None,
        |segment| segment.rare_mut().strip_mptcp(),
    ];
    for drop in drops {
        if segment.options_len() <= 40 {
            break;
        }
        drop(segment);
    }
    if segment.rare.as_deref() == Some(&RareOptions::default()) {
        segment.rare = None;
    }
}
