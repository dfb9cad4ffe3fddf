//! Packets that a Linux 6.18 kernel sent, against this crate: captured on veth pairs without any
//! offload, one packet a line in hexadecimal, from the IP header on (`tests/captures/*.hex`).

use bytes::Bytes;
use ropewalk_wire::*;

/// Whether an option is among those for which a file was captured.
type Wanted = fn(&RareOptions) -> bool;

/// Name, packets and what is in them.
const CAPTURES: [(&str, &str, &[Wanted]); 5] = [
    (
        "v4_join",
        include_str!("captures/v4_join.hex"),
        &[|rare| rare.mp_join.is_some(), |rare| rare.mp_prio.is_some(), |rare| rare.remove_addr.is_some()],
    ),
    (
        "v4_checksum_signal",
        include_str!("captures/v4_checksum_signal.hex"),
        &[
            |rare| rare.add_addr.is_some_and(|add| !add.echo),
            |rare| rare.add_addr.is_some_and(|add| add.echo),
        ],
    ),
    (
        "v4_signal_port",
        include_str!("captures/v4_signal_port.hex"),
        &[|rare| rare.add_addr.is_some_and(|add| add.port == Some(5001))],
    ),
    (
        "v6_signal",
        include_str!("captures/v6_signal.hex"),
        &[|rare| rare.add_addr.is_some_and(|add| add.address.is_ipv6() && !add.echo)],
    ),
    (
        "v6_join_checksum_abort",
        include_str!("captures/v6_join_checksum_abort.hex"),
        &[
            |rare| rare.mp_capable.is_some_and(|capable| capable.checksum.is_some()),
            |rare| rare.mp_fastclose.is_some() && rare.mp_tcprst.is_some(),
        ],
    ),
];

fn packets(file: &str) -> impl Iterator<Item = Bytes> {
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("hexadecimal") as u8;
    file.lines()
        .map(move |line| line.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect())
}

fn segments(file: &str) -> Vec<Segment<Bytes>> {
    packets(file).map(|packet| parse(packet, ParseMode::Verify).expect("the kernel's packet")).collect()
}

/// TCP headers are laid out as the kernel lays them out: encoding what was parsed gives the same
/// bytes, checksum included.
#[test]
fn the_kernels_packets_are_encoded_byte_for_byte() {
    for (name, file, wanted) in CAPTURES {
        let mut found = vec![false; wanted.len()];
        for (at, packet) in packets(file).enumerate() {
            let segment =
                parse(packet.clone(), ParseMode::Verify).unwrap_or_else(|e| panic!("{name}:{at}: {e}"));
            for (found, is_wanted) in found.iter_mut().zip(wanted) {
                *found |= segment.rare.as_deref().is_some_and(is_wanted);
            }
            let mut out = vec![0; packet.len()];
            assert_eq!(encode(&segment, ChecksumMode::Full, &mut out), Ok(packet.len()));
            let ip_len = if segment.tuple.src.is_ipv4() { 20 } else { 40 };
            assert_eq!(out[ip_len..], packet[ip_len..], "{name}:{at}: {segment:?}");
        }
        assert!(found.iter().all(|&found| found), "{name} lacks what it was captured for: {found:?}");
    }
}

/// The kernel's DSS checksums come out right, DATA_FIN without data included.
#[test]
fn the_kernels_dss_checksums_hold() {
    let (mut with_data, mut data_fin) = (0, 0);
    for (name, file, _) in CAPTURES {
        for segment in segments(file) {
            let Some(mapping) = segment.dss.and_then(|dss| dss.mapping) else { continue };
            let Some(checksum) = mapping.checksum else { continue };
            let data = segment.payload.ones_complement_sum().expect("bytes");
            let (dsn, ssn, len) = (mapping.dsn, mapping.ssn, mapping.len);
            assert_eq!(checksum::dss_checksum(dsn, ssn, len, data), checksum, "{name}");
            assert!(checksum::dss_checksum_holds(dsn, ssn, len, data, checksum));
            assert!(!checksum::dss_checksum_holds(dsn, ssn, len, data, checksum ^ 1));
            if segment.payload.is_empty() { data_fin += 1 } else { with_data += 1 }
        }
    }
    assert!(with_data >= 4 && data_fin >= 4, "{with_data} with data, {data_fin} DATA_FINs");
}

/// The checksum of an MP_CAPABLE with data covers DSN IDSN + 1 and SSN 1 (RFC 8684 3.1), which
/// isn't in the packet; the mapping that follows it tells.
#[test]
fn the_checksum_of_the_first_data_holds() {
    let segments = segments(CAPTURES[4].1);
    let (first, capable) = segments
        .iter()
        .find_map(|segment| {
            let capable = segment.rare.as_ref()?.mp_capable?;
            capable.checksum.map(|_| (segment, capable))
        })
        .expect("an MP_CAPABLE with data and checksum");
    let len = capable.data_len.expect("comes with the checksum");
    let next = segments
        .iter()
        .filter(|segment| segment.tuple == first.tuple)
        .find_map(|segment| segment.dss?.mapping.filter(|mapping| mapping.ssn == 1 + u32::from(len)))
        .expect("the mapping after it");
    let data = first.payload.ones_complement_sum().expect("bytes");
    assert_eq!(
        checksum::dss_checksum(next.dsn - u64::from(len), 1, len, data),
        capable.checksum.expect("looked for")
    );
}
