//! Independent judges of captures and logs: etherparse, tshark, a reader of JSON. The command's tests use
//! them too.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use etherparse::{Ethernet2Header, IpNumber, NetSlice, SlicedPacket, TransportSlice};
use pcap_file::pcapng::{Block, PcapNgReader};
use ropewalk_host::experiment::PORT;
use serde_json::Value;

/// `PI_ERROR` of Wireshark's expert information.
const ERROR: u32 = 0x0080_0000;
/// What tshark is asked about each packet.
const FIELDS: [&str; 9] = [
    "_ws.malformed",
    "_ws.expert.severity",
    "_ws.expert.message",
    "tcp.checksum.status",
    "mptcp.stream",
    "mptcp.analysis.subflows",
    "frame.comment",
    "tcp.len",
    "frame.packet_flags_direction",
];

/// What tshark makes of a capture.
pub struct Opinion {
    /// Multipath TCP connections.
    pub connections: usize,
    /// Most subflows of one.
    pub subflows: usize,
    /// Packets with payload that the capture's end sent.
    pub sent: usize,
    /// Of these, those with a comment.
    pub reasons: usize,
}

/// tshark's opinion of a capture of `count` packets, with no malformed packet, no wrong checksum and no
/// expert error; `None`, having said so, where it isn't installed.
pub fn tshark(name: &str, file: &Path, count: usize) -> Option<Opinion> {
    if Command::new("tshark").arg("--version").output().is_err() {
        ropewalk_host::skip::skipped("tshark isn't installed; etherparse judges alone");
        return None;
    }
    let packets = fields(file);
    assert_eq!(packets.len(), count, "{name}");
    let (mut connections, mut subflows) = (BTreeSet::new(), 0);
    let (mut sent, mut reasons) = (0, 0);
    for (number, packet) in packets.iter().enumerate() {
        let [malformed, severity, message, tcp, connection, analysed, comment, len, direction] = &packet[..]
        else {
            panic!("{name}, packet {}: {packet:?}", number + 1);
        };
        let place = format!("{name}, packet {}: {message}", number + 1);
        assert_eq!(malformed, "", "{place}");
        let worst = severity.split(',').filter_map(|one| one.parse().ok()).max().unwrap_or(0);
        assert!(worst < ERROR, "{place}");
        // The kernel also sends what isn't TCP: neighbour discovery.
        assert!(matches!(tcp.as_str(), "1" | ""), "{place}: TCP checksum");
        connections.extend((!connection.is_empty()).then(|| connection.clone()));
        subflows = subflows.max(analysed.split_whitespace().count());
        if direction.ends_with('2') && !matches!(len.as_str(), "" | "0") {
            sent += 1;
            reasons += usize::from(!comment.is_empty());
        }
    }
    Some(Opinion { connections: connections.len(), subflows, sent, reasons })
}

/// tshark's fields of each packet.
fn fields(file: &Path) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-n", "-T", "fields", "-E", "separator=/t"]);
    for option in ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE"] {
        command.args(["-o", option]);
    }
    // The port belongs to another protocol in tshark's book.
    command.arg("-d").arg(format!("tcp.port=={PORT},data"));
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark runs");
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| line.split('\t').map(str::to_string).collect()).collect()
}

/// Counts packets that etherparse reads: all there are, whole and with right checksums.
pub fn etherparse(name: &str, file: &Path) -> usize {
    let mut reader = PcapNgReader::new(File::open(file).expect("a file")).expect("pcapng");
    let mut count = 0;
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.expect("a block") else { continue };
        count += 1;
        let place = format!("{name}, packet {count}");
        let sliced =
            SlicedPacket::from_ethernet(&packet.data).unwrap_or_else(|error| panic!("{place}: {error}"));
        let transport = sliced.transport;
        let Some(TransportSlice::Tcp(tcp)) = transport else { continue };
        let (len, sum, protocol) = match sliced.net {
            Some(NetSlice::Ipv4(ip)) => {
                let header = ip.header().to_header();
                assert_eq!(header.calc_header_checksum(), header.header_checksum, "{place}");
                let sum = tcp.calc_checksum_ipv4(header.source, header.destination);
                (usize::from(header.total_len), sum, header.protocol)
            }
            Some(NetSlice::Ipv6(ip)) => {
                let header = ip.header().to_header();
                let sum = tcp.calc_checksum_ipv6(header.source, header.destination);
                (usize::from(header.payload_length) + 40, sum, header.next_header)
            }
            _ => panic!("{place}: neither IPv4 nor IPv6"),
        };
        let link = Ethernet2Header::LEN;
        assert_eq!((link + len, protocol), (packet.data.len(), IpNumber::TCP), "{place}");
        assert_eq!(sum.expect("a length that fits"), tcp.checksum(), "{place}: TCP checksum");
        // Every option can be told apart, the unknown ones of Multipath TCP too.
        let mut options = tcp.options();
        while let Some(kind) = options.first() {
            options = match (kind, options.get(1)) {
                (0, _) => &[],
                (1, _) => &options[1..],
                (_, Some(len @ 2..)) => &options[usize::from(*len)..],
                _ => panic!("{place}: option {kind} without a length"),
            };
        }
    }
    count
}

/// Events by name; their times never go back.
pub fn qlog(name: &str, file: &Path) -> impl Fn(&str) -> usize {
    let text = std::fs::read_to_string(file).expect("a file");
    let log: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let events = log["traces"][0]["events"].as_array().expect("events").clone();
    let times: Vec<_> = events.iter().map(|event| event["time"].as_f64().expect("a time")).collect();
    assert!(times.is_sorted(), "{name}: times go back");
    move |wanted| events.iter().filter(|event| event["name"] == wanted).count()
}
