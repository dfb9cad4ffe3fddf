//! pcapng (draft-ietf-opsawg-pcapng): one section; an interface description block per path; an enhanced
//! packet block per packet, with its direction in the flags word and its reason as comment. Times are in
//! nanoseconds.
//!
//! Packets have an Ethernet header, with addresses made up from the path's number. Raw IP would do without,
//! but libpcap (1.10.3) refuses a second interface of that type: it compares its own number for it with the
//! file's.
//!
//! Always little-endian, and without machine-dependent fields: the same run gives the same bytes on any
//! machine.

use std::io::{self, Write};

use ropewalk_time::Span;

use crate::{Direction, Packet, Path};

/// Block types (section 11.1 of the draft).
mod block {
    pub const INTERFACE_DESCRIPTION: u32 = 1;
    pub const ENHANCED_PACKET: u32 = 6;
    pub const SECTION_HEADER: u32 = 0x0a0d_0d0a;
}
/// Codes of options, each within its block.
mod option {
    pub const COMMENT: u16 = 1;
    pub const EPB_FLAGS: u16 = 2;
    pub const IF_DESCRIPTION: u16 = 3;
    pub const IF_NAME: u16 = 2;
    pub const IF_TSRESOL: u16 = 9;
    pub const SHB_USERAPPL: u16 = 4;
}
/// By which readers know the order of bytes.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Link type of Ethernet.
const LINKTYPE_ETHERNET: u16 = 1;
/// `if_tsresol`: 10^-9 s.
const NANOSECONDS: u8 = 9;
/// Direction in the flags word (`epb_flags`, bits 0 and 1).
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// EtherTypes of IPv4 and IPv6.
const ETHERTYPES: [u16; 2] = [0x0800, 0x86dd];
/// Longest packet that readers take, bytes: tcpdump's own limit.
const SNAPLEN: u32 = 262_144;
/// An option's length field has 16 bits.
const LONGEST_OPTION: usize = 65_535;

/// A block while it is put together; its memory serves the next.
#[derive(Default)]
struct Block(Vec<u8>);

impl Block {
    /// Type, and room for the length.
    fn begin(&mut self, kind: u32) {
        self.0.clear();
        self.bytes(&kind.to_le_bytes());
        self.bytes(&[0; 4]);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Blocks and options begin at multiples of 32 bits.
    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.bytes(&code.to_le_bytes());
        self.bytes(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
        self.bytes(&value[..value.len().min(LONGEST_OPTION)]);
        self.pad();
    }

    /// The end of the options, the length at both ends.
    fn write(&mut self, writer: &mut impl Write) -> io::Result<()> {
        self.bytes(&[0; 4]);
        let length = u32::try_from(self.0.len() + 4).map_err(|_| io::ErrorKind::FileTooLarge)?.to_le_bytes();
        self.0[4..8].copy_from_slice(&length);
        self.bytes(&length);
        writer.write_all(&self.0)
    }
}

/// A capture file that is being written.
pub struct Pcap<W: Write> {
    writer: W,
    paths: usize,
    /// How long after 1970 the packets' times begin.
    start: Span,
    block: Block,
}

impl<W: Write> std::fmt::Debug for Pcap<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pcap").field("paths", &self.paths).finish_non_exhaustive()
    }
}

/// The header of a packet from the recorded end (`sent`), or to it.
fn ethernet(path: u16, sent: bool, packet: &[u8]) -> [u8; ETHERNET] {
    // Locally administered addresses.
    let address = |end: u8| {
        let [high, low] = path.to_be_bytes();
        [2, 0, 0, high, low, end]
    };
    let (from, to) = if sent { (1, 2) } else { (2, 1) };
    let is_ipv6 = packet.first().is_some_and(|first| first >> 4 == 6);
    let mut header = [0; ETHERNET];
    header[..6].copy_from_slice(&address(to));
    header[6..12].copy_from_slice(&address(from));
    header[12..].copy_from_slice(&ETHERTYPES[usize::from(is_ipv6)].to_be_bytes());
    header
}

/// Truncates a text to what an option holds.
fn cut(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(LONGEST_OPTION)]
}

impl<W: Write> Pcap<W> {
    /// Begins a file. Packets refer to their path by its index in `paths`.
    ///
    /// # Errors
    /// The writer's error.
    pub fn new(mut writer: W, paths: &[Path]) -> io::Result<Self> {
        let mut block = Block::default();
        block.begin(block::SECTION_HEADER);
        block.bytes(&BYTE_ORDER_MAGIC.to_le_bytes());
        // Version 1.0; the section's length isn't known.
        block.bytes(&[1, 0, 0, 0]);
        block.bytes(&u64::MAX.to_le_bytes());
        block.option(option::SHB_USERAPPL, b"Ropewalk");
        block.write(&mut writer)?;
        for path in paths {
            block.begin(block::INTERFACE_DESCRIPTION);
            block.bytes(&LINKTYPE_ETHERNET.to_le_bytes());
            block.bytes(&[0; 2]);
            block.bytes(&SNAPLEN.to_le_bytes());
            block.option(option::IF_NAME, cut(&path.name));
            if !path.description.is_empty() {
                block.option(option::IF_DESCRIPTION, cut(&path.description));
            }
            block.option(option::IF_TSRESOL, &[NANOSECONDS]);
            block.write(&mut writer)?;
        }
        Ok(Pcap { writer, paths: paths.len(), start: Span::ZERO, block })
    }

    /// The packets' times count from this moment, so long after 1970; without it, from 1970.
    pub fn starts_at(&mut self, since_1970: Span) {
        self.start = since_1970;
    }

    /// Adds a packet. Packets must be in order of time.
    ///
    /// # Errors
    /// The writer's error, or a path that doesn't exist.
    pub fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let direction = match packet.direction {
            Direction::Sent => OUTBOUND,
            Direction::Received => INBOUND,
        };
        if usize::from(packet.path) >= self.paths {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path that the file doesn't have"));
        }
        let at = packet.at.saturating_add(self.start).as_nanos();
        let header = ethernet(packet.path, direction == OUTBOUND, packet.bytes);
        let length = u32::try_from(ETHERNET + packet.bytes.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let block = &mut self.block;
        block.begin(block::ENHANCED_PACKET);
        block.bytes(&u32::from(packet.path).to_le_bytes());
        block.bytes(&((at >> 32) as u32).to_le_bytes());
        block.bytes(&(at as u32).to_le_bytes());
        // Captured, and on the wire.
        block.bytes(&length.to_le_bytes());
        block.bytes(&length.to_le_bytes());
        block.bytes(&header);
        block.bytes(packet.bytes);
        block.pad();
        block.option(option::EPB_FLAGS, &direction.to_le_bytes());
        if let Some(comment) = packet.comment {
            block.option(option::COMMENT, cut(comment));
        }
        block.write(&mut self.writer)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The writer's error.
    pub fn finish(mut self) -> io::Result<W> {
        self.writer.flush()?;
        Ok(self.writer)
    }
}

#[cfg(test)]
mod tests {
    use pcap_file::DataLink;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::{Block, PcapNgReader};
    use ropewalk_time::Time;

    use super::*;

    fn paths() -> Vec<Path> {
        let path =
            |name: &str, description: &str| Path { name: name.into(), description: description.into() };
        vec![path("wifi", "50 Mbit/s"), path("lte", "")]
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut pcap = Pcap::new(Vec::new(), &paths()).expect("a vector takes all");
        let long = "é".repeat(40_000);
        let packet = |at, path, direction, comment| Packet {
            at: Time::from_nanos(at),
            path,
            direction,
            bytes: &[0x45, 1, 2],
            comment,
        };
        pcap.packet(&packet(5, 1, Direction::Sent, Some("because"))).expect("a vector takes all");
        pcap.packet(&packet(u64::MAX / 2, 0, Direction::Received, None)).expect("a vector takes all");
        pcap.packet(&packet(u64::MAX / 2, 0, Direction::Sent, Some(&long))).expect("cut to what fits");
        let bytes = pcap.finish().expect("a vector takes all");
        assert_eq!(bytes[8..12], [0x4d, 0x3c, 0x2b, 0x1a], "little-endian on every machine");

        let mut reader = PcapNgReader::new(&bytes[..]).expect("a section");
        let mut found = Vec::new();
        while let Some(block) = reader.next_block() {
            match block.expect("a block") {
                Block::InterfaceDescription(interface) => {
                    assert_eq!(interface.linktype, DataLink::ETHERNET);
                    found.push(format!("{:?}", interface.options));
                }
                Block::EnhancedPacket(packet) => {
                    assert_eq!(packet.data[12..], [0x08, 0x00, 0x45, 1, 2]);
                    let (to, from) = (packet.data[5], packet.data[11]);
                    assert_eq!(to + from, 3, "from one end to the other");
                    let comment = packet.options.iter().find_map(|option| match option {
                        EnhancedPacketOption::Comment(text) => Some(text.len()),
                        _ => None,
                    });
                    let flags = packet.options.iter().find_map(|option| match *option {
                        EnhancedPacketOption::Flags(flags) => Some(flags),
                        _ => None,
                    });
                    let at = packet.timestamp.as_nanos();
                    found.push(format!("{} {at} {flags:?} {comment:?}", packet.interface_id));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(
            found,
            [
                r#"[IfName("wifi"), IfDescription("50 Mbit/s"), IfTsResol(9)]"#.to_string(),
                r#"[IfName("lte"), IfTsResol(9)]"#.to_string(),
                "1 5 Some(2) Some(7)".to_string(),
                format!("0 {} Some(1) None", u64::MAX / 2),
                format!("0 {} Some(2) Some(65534)", u64::MAX / 2),
            ]
        );
    }

    #[test]
    fn both_ip_versions_and_the_wall_clock() {
        assert_eq!(ethernet(0x0102, true, &[0x60, 0])[..], [2, 0, 0, 1, 2, 2, 2, 0, 0, 1, 2, 1, 0x86, 0xdd]);
        let mut pcap = Pcap::new(Vec::new(), &paths()).expect("a vector takes all");
        pcap.starts_at(Span::from_secs(1_700_000_000));
        let packet = Packet {
            at: Time::from_nanos(5),
            path: 0,
            direction: Direction::Sent,
            bytes: &[0x60],
            comment: None,
        };
        pcap.packet(&packet).expect("a vector takes all");
        let bytes = pcap.finish().expect("a vector takes all");
        let mut reader = PcapNgReader::new(&bytes[..]).expect("a section");
        let mut times = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.expect("a block") {
                times.push(packet.timestamp.as_nanos());
            }
        }
        assert_eq!(times, [1_700_000_000_000_000_005]);
    }

    #[test]
    fn a_path_that_is_not_there_is_refused() {
        let mut pcap = Pcap::new(Vec::new(), &paths()).expect("a vector takes all");
        let packet =
            Packet { at: Time::ZERO, path: 2, direction: Direction::Sent, bytes: &[], comment: None };
        assert!(pcap.packet(&packet).is_err());
    }
}
