//! pcapng (draft-ietf-opsawg-pcapng): one section; an interface description block per path; an enhanced packet block
//! per packet, with its direction in the flags word and its reason as comment. Times are in nanoseconds.
//!
//! Always little-endian, and without machine-dependent fields: the same run gives the same bytes on any machine.

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
/// Longest comment: an option's length field has 16 bits.
const LONGEST_COMMENT: usize = 65_535;

/// A capture file that is being written.
pub struct Pcap<W: Write> {
    writer: PcapNgWriter<W>,
    paths: usize,
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
            let interface = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen: 0, options };
            writer.write_pcapng_block(interface).map_err(io_error)?;
        }
        Ok(Pcap { writer, paths: paths.len() })
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
        let block = EnhancedPacketBlock {
            interface_id: u32::from(packet.path),
            timestamp: Duration::from_nanos(packet.at),
            original_len: u32::try_from(packet.bytes.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(packet.bytes),
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
                    assert_eq!(interface.linktype, DataLink::RAW);
                    found.push(format!("{:?}", interface.options));
                }
                Block::EnhancedPacket(packet) => {
                    assert_eq!(packet.data[..], [0x45, 1, 2]);
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
    fn a_path_that_is_not_there_is_refused() {
        let mut pcap = Pcap::new(Vec::new(), &paths()).expect("a vector takes all");
        let packet = Packet { at: 0, path: 2, direction: Direction::Sent, bytes: &[], comment: None };
        assert!(pcap.packet(&packet).is_err());
    }
}
