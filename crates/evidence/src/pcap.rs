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

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};

use crate::{Direction, Packet, Path};

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
/// Longest comment: an option's length field has 16 bits.
const LONGEST_COMMENT: usize = 65_535;

/// A capture file that is being written.
pub struct Pcap<W: Write> {
    writer: PcapNgWriter<W>,
    paths: usize,
    /// Nanoseconds since 1970 at which the packets' times begin.
    start: u64,
    frame: Vec<u8>,
}

impl<W: Write> std::fmt::Debug for Pcap<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pcap").field("paths", &self.paths).finish_non_exhaustive()
    }
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
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

/// Truncates a text to the longest comment.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_COMMENT)]
}

impl<W: Write> Pcap<W> {
    /// Begins a file. Packets refer to their path by its index in `paths`.
    ///
    /// # Errors
    /// The writer's error.
    pub fn new(writer: W, paths: &[Path]) -> io::Result<Self> {
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed("Ropewalk"))],
            ..SectionHeaderBlock::default()
        };
        let mut writer = PcapNgWriter::with_section_header(writer, section).map_err(io_error)?;
        for path in paths {
            let mut options = vec![InterfaceDescriptionOption::IfName(Cow::Borrowed(cut(&path.name)))];
            if !path.description.is_empty() {
                let description = Cow::Borrowed(cut(&path.description));
                options.push(InterfaceDescriptionOption::IfDescription(description));
            }
            options.push(InterfaceDescriptionOption::IfTsResol(NANOSECONDS));
            let interface =
                InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: SNAPLEN, options };
            writer.write_pcapng_block(interface).map_err(io_error)?;
        }
        Ok(Pcap { writer, paths: paths.len(), start: 0, frame: Vec::new() })
    }

    /// The packets' times count from this moment, nanoseconds since 1970; without it, from 1970.
    pub fn starts_at(&mut self, since_1970: u64) {
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
        let mut options = vec![EnhancedPacketOption::Flags(direction)];
        if let Some(comment) = packet.comment {
            options.push(EnhancedPacketOption::Comment(Cow::Borrowed(cut(comment))));
        }
        self.frame.clear();
        self.frame.extend_from_slice(&ethernet(packet.path, direction == OUTBOUND, packet.bytes));
        self.frame.extend_from_slice(packet.bytes);
        let block = EnhancedPacketBlock {
            interface_id: u32::from(packet.path),
            timestamp: Duration::from_nanos(self.start.saturating_add(packet.at)),
            original_len: u32::try_from(self.frame.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(&self.frame),
            options,
        };
        self.writer.write_pcapng_block(block).map(drop).map_err(io_error)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The writer's error.
    pub fn finish(self) -> io::Result<W> {
        let mut writer = self.writer.into_inner();
        writer.flush()?;
        Ok(writer)
    }
}

#[cfg(test)]
mod tests {
    use pcap_file::pcapng::Block;
    use pcap_file::pcapng::PcapNgReader;

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
        let packet =
            |at, path, direction, comment| Packet { at, path, direction, bytes: &[0x45, 1, 2], comment };
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
        pcap.starts_at(1_700_000_000_000_000_000);
        let packet = Packet { at: 5, path: 0, direction: Direction::Sent, bytes: &[0x60], comment: None };
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
        let packet = Packet { at: 0, path: 2, direction: Direction::Sent, bytes: &[], comment: None };
        assert!(pcap.packet(&packet).is_err());
    }
}
