//! Whole emulated runs as captures and logs, at the engine's end and at the kernel's: tshark finds no malformed packet
//! and no expert error, etherparse reads every packet and agrees with its checksums, and the engine's packets bear the
//! scheduler's reason.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::Command;

use etherparse::{IpNumber, NetSlice, SlicedPacket, TransportSlice};
use pcap_file::pcapng::{Block, PcapNgReader};
use ropewalk_evidence::Path;
use ropewalk_host::capture::{Capture, Files};
use ropewalk_host::experiment::PORT;
use ropewalk_host::network::Side;
use ropewalk_host::transfer::Direction;
use ropewalk_host::world::PathLinks;
use ropewalk_link::{LinkSpec, Loss};
use serde_json::Value;

use crate::harness::{Case, have, run};
use crate::need_kernel;

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

struct Evidence {
    pcap: PathBuf,
    qlog: PathBuf,
}

/// Two paths, one of which loses packets now and then.
fn links() -> Vec<PathLinks> {
    let fast = LinkSpec::plain(200_000_000, 2_000_000, 400);
    let lossy = LinkSpec { loss: Loss::Bernoulli(0.005), ..LinkSpec::plain(100_000_000, 5_000_000, 400) };
    [fast, lossy].map(|link| PathLinks { up: link.clone(), down: link, bottleneck: None }).into()
}

/// Runs a case with everything written at one end.
fn witness(name: &str, side: Side, mut case: Case) -> Evidence {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let evidence =
        Evidence { pcap: folder.join(format!("{name}.pcapng")), qlog: folder.join(format!("{name}.qlog")) };
    let paths: Vec<_> =
        (0..case.paths).map(|at| Path { name: format!("p{at}"), description: String::new() }).collect();
    let create = |file| BufWriter::new(File::create(file).expect("a file in the target folder"));
    let files =
        Files { pcap: Some(create(&evidence.pcap)), qlog: Some((create(&evidence.qlog), name.to_string())) };
    let capture = Capture::new(files, side, &paths).expect("a capture");
    case.tap = Some(Box::new(capture.clone()));
    case.config.trace_decisions = true;
    let subflows = case.subflows;
    run(case).multipath(name, subflows);
    capture.finish().expect("whole files");
    evidence
}

/// tshark's fields of each packet.
fn tshark(file: &PathBuf) -> Vec<Vec<String>> {
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
fn etherparse(name: &str, file: &PathBuf) -> usize {
    let mut reader = PcapNgReader::new(File::open(file).expect("a file")).expect("pcapng");
    let mut count = 0;
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.expect("a block") else { continue };
        count += 1;
        let place = format!("{name}, packet {count}");
        let sliced = SlicedPacket::from_ip(&packet.data).unwrap_or_else(|error| panic!("{place}: {error}"));
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
        assert_eq!((len, protocol), (packet.data.len(), IpNumber::TCP), "{place}");
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
fn qlog(name: &str, file: &PathBuf) -> impl Fn(&str) -> usize {
    let text = std::fs::read_to_string(file).expect("a file");
    let log: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let events = log["traces"][0]["events"].as_array().expect("events").clone();
    let times: Vec<_> = events.iter().map(|event| event["time"].as_f64().expect("a time")).collect();
    assert!(times.is_sorted(), "{name}: times go back");
    move |wanted| events.iter().filter(|event| event["name"] == wanted).count()
}

#[test]
fn tshark_and_etherparse_find_nothing_wrong_with_either_end() {
    need_kernel!();
    let has_tshark = have("tshark");
    if !has_tshark {
        println!("skipped: tshark isn't installed; etherparse judges alone");
    }
    for (name, engine, side, way, v6) in [
        ("engine-sends", Side::Client, Side::Client, Direction::Upload, false),
        ("kernel-receives", Side::Client, Side::Server, Direction::Upload, false),
        ("kernel-sends", Side::Client, Side::Server, Direction::Download, false),
        ("engine-serves", Side::Server, Side::Server, Direction::Download, true),
    ] {
        let case = Case { links: Some(links()), v6, ..Case::new(engine, 2, way, 1 << 20) };
        let evidence = witness(name, side, case);
        let count = etherparse(name, &evidence.pcap);
        assert!(count > 500, "{name}: {count} packets");
        let events = qlog(name, &evidence.qlog);
        assert!(events("transport:packet_sent") + events("transport:packet_received") > 500, "{name}");
        for event in ["mptcp:decision", "recovery:metrics_updated"] {
            assert_eq!(events(event) > 10, engine == side, "{name}: {} times {event}", events(event));
        }
        if !has_tshark {
            continue;
        }
        let packets = tshark(&evidence.pcap);
        assert_eq!(packets.len(), count, "{name}");
        let (mut connections, mut subflows) = (BTreeSet::new(), 0);
        let (mut ours, mut reasons) = (0, 0);
        for (number, packet) in packets.iter().enumerate() {
            let [malformed, severity, message, tcp, connection, analysed, comment, len, direction] =
                &packet[..]
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
                ours += 1;
                reasons += u32::from(!comment.is_empty());
            }
        }
        assert_eq!((connections.len(), subflows), (1, 2), "{name}");
        if engine == side {
            assert!(reasons * 10 > ours * 9, "{name}: {reasons} reasons on {ours} data packets");
        }
    }
}
