//! What an IP packet tells: whose it is, and of which flow. Headers are read by `etherparse`.

use std::net::IpAddr;

use bytes::{Bytes, BytesMut};
use etherparse::{IpSlice, Ipv6ExtensionSlice};

/// IP protocol numbers.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
}

/// Which packets belong together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey {
    /// From where.
    pub source: IpAddr,
    /// To where.
    pub destination: IpAddr,
    /// The IP protocol's number.
    pub protocol: u8,
    /// Ports of source and destination, where the protocol has such; of fragments only the first has them.
    pub ports: Option<(u16, u16)>,
}

impl FlowKey {
    /// The flow of the answers.
    pub fn reversed(self) -> FlowKey {
        let FlowKey { source, destination, protocol, ports } = self;
        FlowKey {
            source: destination,
            destination: source,
            protocol,
            ports: ports.map(|(from, to)| (to, from)),
        }
    }
}

/// What a packet tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Its flow.
    pub flow: FlowKey,
    /// Its DSCP.
    pub dscp: u8,
    /// Whether it is a fragment, but not the first.
    pub is_later_fragment: bool,
    /// Whether it begins a connection of QUIC: a long header of a version that has congestion control.
    pub is_quic: bool,
}

/// Versions of QUIC (RFC 9000, RFC 9369).
const VERSIONS: [u32; 2] = [1, 0x6b33_43cf];

/// The longest connection id (RFC 9000, 17.2).
const LONGEST_ID: u8 = 20;

/// A long header of a known version. Its second bit, which is set but for RFC 9287, says nothing: servers
/// clear it at random.
fn is_quic(data: &[u8]) -> bool {
    match data.first_chunk::<6>() {
        Some([first, version @ .., id]) => {
            let version = u32::from_be_bytes(*version);
            *first >= 0x80 && VERSIONS.contains(&version) && *id <= LONGEST_ID
        }
        None => false,
    }
}

/// The packet with Congestion Experienced (CE, RFC 3168 section 5) in its ECN field; `None` if its sender
/// isn't ECN-capable.
pub fn mark_congestion(packet: &Bytes) -> Option<Bytes> {
    const NOT_CAPABLE: u8 = 0b00;
    const EXPERIENCED: u8 = 0b11;
    let is_v4 = packet.first()? >> 4 == 4;
    let shift = if is_v4 { 0 } else { 4 };
    let old = *packet.get(1)?;
    if old >> shift & EXPERIENCED == NOT_CAPABLE || packet.len() < 20 {
        return None;
    }
    let mut marked = BytesMut::from(&packet[..]);
    marked[1] |= EXPERIENCED << shift;
    if is_v4 {
        // RFC 1624, equation 3: the word of that byte has become larger.
        let sum = u32::from(!u16::from_be_bytes([marked[10], marked[11]])) + u32::from(marked[1] - old);
        let folded = (sum & 0xffff) + (sum >> 16);
        marked[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    }
    Some(marked.freeze())
}

/// Reads a packet's headers; `None` if it is no whole IP packet.
pub fn inspect(packet: &[u8]) -> Option<Summary> {
    let ip = IpSlice::from_slice(packet).ok()?;
    let (dscp, offset) = match &ip {
        IpSlice::Ipv4(v4) => (v4.header().dcp().value(), v4.header().fragments_offset().value()),
        IpSlice::Ipv6(v6) => {
            let fragment = v6.extensions().clone().into_iter().find_map(|one| match one {
                Ipv6ExtensionSlice::Fragment(fragment) => Some(fragment.fragment_offset().value()),
                _ => None,
            });
            (v6.header().traffic_class() >> 2, fragment.unwrap_or(0))
        }
    };
    let payload = ip.payload();
    let number = payload.ip_number.0;
    let has_ports = offset == 0 && [protocol::TCP, protocol::UDP, 33, 132, 136].contains(&number);
    let ports = match payload.payload.first_chunk::<4>() {
        Some([a, b, c, d]) if has_ports => Some((u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))),
        _ => None,
    };
    let flow =
        FlowKey { source: ip.source_addr(), destination: ip.destination_addr(), protocol: number, ports };
    let is_quic = number == protocol::UDP && ports.is_some() && payload.payload.get(8..).is_some_and(is_quic);
    Some(Summary { flow, dscp, is_later_fragment: offset != 0, is_quic })
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    fn built(v6: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = match v6 {
            false => PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64),
            true => PacketBuilder::ipv6([1; 16], [2; 16], 64),
        };
        builder.udp(5060, 53).write(&mut bytes, b"text").unwrap();
        bytes
    }

    #[test]
    fn an_ecn_capable_packet_is_marked_and_its_checksum_holds() {
        for ecn in 0..4_u8 {
            let mut v4 = etherparse::Ipv4Header::new(
                8,
                64,
                etherparse::IpNumber::UDP,
                [192, 0, 2, 1],
                [198, 51, 100, 2],
            )
            .unwrap();
            v4.ecn = etherparse::IpEcn::try_new(ecn).unwrap();
            v4.header_checksum = v4.calc_header_checksum();
            let mut bytes = Vec::new();
            v4.write(&mut bytes).unwrap();
            bytes.extend([0, 1, 0, 2, 0, 8, 0, 0]);
            let marked = mark_congestion(&bytes.clone().into());
            assert_eq!(marked.is_some(), ecn != 0, "{ecn}");
            if let Some(marked) = marked {
                let (header, rest) = etherparse::Ipv4Header::from_slice(&marked).unwrap();
                assert_eq!((header.ecn.value(), rest), (3, &bytes[20..]));
                assert_eq!(header.header_checksum, header.calc_header_checksum());
            }
            let v6 = etherparse::Ipv6Header {
                traffic_class: 0b1011_1000 | ecn,
                payload_length: 0,
                next_header: etherparse::IpNumber::IPV6_NO_NEXT_HEADER,
                ..Default::default()
            };
            let marked = mark_congestion(&v6.to_bytes().to_vec().into());
            assert_eq!(marked.is_some(), ecn != 0, "{ecn}");
            if let Some(marked) = marked {
                let (header, _) = etherparse::Ipv6Header::from_slice(&marked).unwrap();
                assert_eq!(header, etherparse::Ipv6Header { traffic_class: 0b1011_1011, ..v6 });
            }
        }
        assert!(
            mark_congestion(&Bytes::new()).is_none()
                && mark_congestion(&Bytes::from_static(b"E\x03")).is_none()
        );
    }

    #[test]
    fn ports_are_those_of_udp_and_of_first_fragments() {
        let v4 = inspect(&built(false)).unwrap();
        assert_eq!(v4.flow.source.to_string(), "192.0.2.1");
        assert_eq!((v4.flow.protocol, v4.flow.ports), (protocol::UDP, Some((5060, 53))));
        let v6 = inspect(&built(true)).unwrap();
        assert!(v6.flow.destination.is_ipv6() && v6.flow.ports == Some((5060, 53)));
        // The first fragment (more follow), and the second.
        for (field, ports, later) in [(0x2000u16, Some((5060, 53)), false), (0x0001, None, true)] {
            let mut fragment = built(false);
            fragment[6..8].copy_from_slice(&field.to_be_bytes());
            let found = inspect(&fragment).unwrap();
            assert_eq!((found.flow.ports, found.is_later_fragment), (ports, later));
        }
    }

    #[test]
    fn a_connection_of_quic_begins_with_its_second_bit_set_or_clear() {
        let cases: [(&[u8], bool); 7] = [
            (&[0xc3, 0, 0, 0, 1, 8], true),
            (&[0x83, 0, 0, 0, 1, 8], true),
            (&[0x9f, 0x6b, 0x33, 0x43, 0xcf, 20], true),
            (&[0xc3, 0, 0, 0, 1, 21], false),
            (&[0x43, 0, 0, 0, 1, 8], false),
            // RTP, a version of its own, and what is too short.
            (&[0x80, 0, 0x1f, 0x40, 0, 0], false),
            (&[0xc3, 0, 0, 0, 1], false),
        ];
        for (data, expected) in cases {
            assert_eq!(is_quic(data), expected, "{data:x?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            v6: bool, bytes in proptest::collection::vec(any::<u8>(), 0..120), at in 0..60usize, byte: u8,
        ) {
            let _ = inspect(&bytes);
            let mut packet = built(v6);
            let at = at % packet.len();
            packet[at] = byte;
            let _ = inspect(&packet);
            let _ = inspect(&packet[..at]);
        }
    }
}
