//! Captures and logs of whole simulated runs, judged by programs that aren't ours: tshark reads the capture;
//! the log is held to what qvis asks of one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ropewalk_algorithms::Registries;
use ropewalk_engine::{Span, congestion, scheduler};
use ropewalk_lab::evidence::{Evidence, record};
use ropewalk_lab::scenario;
use ropewalk_link::{Jitter, JitterShape, Loss};
use ropewalk_sim::{Direction, Mode, Recording, RunSpec, Scenario, Workload, networks, run};
use ropewalk_wire::checksum::dss_checksum_holds;
use ropewalk_wire::{ParseMode, SyntheticPayload, parse_headers};
use serde_json::Value;

fn spec(scenario: Scenario, name: &str) -> RunSpec {
    RunSpec {
        scenario: Arc::new(scenario),
        scheduler: scheduler::builtin().parse(name).expect("a scheduler"),
        congestion: congestion::builtin().parse("cubic").expect("a congestion control"),
        mode: Mode::Multipath,
        seed: 1,
        start_phase: Span::ZERO,
        recording: Recording::default(),
    }
}

fn built_in(name: &str, bytes: u64) -> Scenario {
    let known = scenario::builtins().iter().find(|known| known.name == name).expect("a built-in scenario");
    let scenario = known.load(&Registries::builtin()).expect("valid").scenario;
    Scenario { workload: Workload::Flow { bytes }, ..scenario }
}

/// Losses, reordering, checksums and ECN.
fn rough() -> Scenario {
    let mut rough = networks::wifi_lte();
    for path in &mut rough.paths {
        path.down.loss = Loss::Bernoulli(0.02);
        path.down.jitter =
            Some(Jitter { spread: Span::from_millis(4), shape: JitterShape::Normal, keeps_order: false });
    }
    (rough.client.checksum, rough.client.ecn, rough.server.ecn) = (true, true, true);
    rough.workload = Workload::Flow { bytes: 700_000 };
    rough
}

/// Runs to judge, with the number of subflows that each has.
fn runs() -> Vec<(&'static str, RunSpec, usize)> {
    let upload = Scenario { direction: Direction::Upload, ..rough() };
    let plain = RunSpec { mode: Mode::SinglePath(0), ..spec(built_in("wifi-lte", 600_000), "minrtt") };
    vec![
        ("wifi-lte", spec(built_in("wifi-lte", 1 << 20), "blest"), 2),
        ("bad-third-link", spec(built_in("bad-third-link", 8 << 20), "minrtt"), 3),
        ("dying-path", spec(built_in("dying-path", 4 << 20), "linux"), 2),
        ("competing", spec(built_in("5g-2019-competing", 300_000), "roundrobin"), 2),
        ("rough", spec(rough(), "redundant"), 2),
        ("rough-upload", spec(upload, "ecf"), 2),
        ("plain", plain, 1),
    ]
}

fn evidence(name: &str, spec: &RunSpec) -> Evidence {
    let evidence = record(spec).expect("a run that can be simulated");
    assert_eq!(evidence.result.outcome, ropewalk_sim::Outcome::Complete, "{name}");
    evidence
}

fn capture(name: &str, evidence: &Evidence) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.pcapng"));
    let out = std::fs::File::create(&file).expect("a file in the target folder");
    evidence.write_pcap(std::io::BufWriter::new(out)).expect("a capture");
    file
}

/// Fields of every packet, by tshark; `None` with a word on why if it isn't here.
fn tshark(file: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-n", "-T", "fields", "-E", "separator=/t"]);
    // Checksums aren't looked at by default.
    for option in ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE"] {
        command.args(["-o", option]);
    }
    for field in fields {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            ropewalk_host::skip::skipped(format!("tshark can't be run ({error})"));
            return None;
        }
    };
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    Some(text.lines().map(|line| line.split('\t').map(str::to_string).collect()).collect())
}

#[test]
fn tshark_finds_nothing_wrong_and_sees_every_subflow() {
    /// `PI_ERROR` of Wireshark's expert information.
    const ERROR: u32 = 0x0080_0000;
    let fields = [
        "frame.interface_name",
        "tcp.stream",
        "mptcp.stream",
        "mptcp.analysis.subflows",
        "_ws.expert.severity",
        "_ws.expert.message",
        "_ws.malformed",
        "ip.checksum.status",
        "tcp.checksum.status",
        "frame.comment",
        "tcp.len",
    ];
    for (name, spec, subflows) in runs() {
        let evidence = evidence(name, &spec);
        let file = capture(name, &evidence);
        let Some(packets) = tshark(&file, &fields) else { return };
        assert_eq!(packets.len(), evidence.packets(), "{name}");
        let (mut streams, mut connections, mut named) = (BTreeSet::new(), BTreeSet::new(), 0);
        let mut interfaces = BTreeSet::new();
        let mut commented = 0u64;
        for (number, packet) in packets.iter().enumerate() {
            let [
                interface,
                stream,
                connection,
                analysed,
                severity,
                message,
                malformed,
                ip,
                tcp,
                comment,
                len,
            ] = &packet[..]
            else {
                panic!("{name}, packet {}: {packet:?}", number + 1);
            };
            let place = format!("{name}, packet {}: {message}", number + 1);
            assert_eq!(malformed, "", "{place}");
            let worst = severity.split(',').filter_map(|one| one.parse().ok()).max().unwrap_or(0);
            assert!(worst < ERROR, "{place}");
            assert_eq!((ip.as_str(), tcp.as_str()), ("1", "1"), "{place}: checksums");
            interfaces.insert(interface.clone());
            streams.insert(stream.clone());
            if !connection.is_empty() {
                connections.insert(connection.clone());
            }
            named = named.max(analysed.split_whitespace().count());
            let sent = !comment.is_empty();
            assert!(!sent || len != "0", "{place}: a comment without data: {comment}");
            commented += u64::from(sent);
        }
        assert_eq!(streams.len(), subflows, "{name}: TCP connections");
        if subflows > 1 {
            assert_eq!(connections.len(), 1, "{name}: Multipath TCP connections");
            assert_eq!(named, subflows, "{name}: subflows by tshark's own analysis");
            let all: BTreeSet<_> = spec.scenario.paths.iter().map(|path| path.name.clone()).collect();
            assert_eq!(interfaces, all, "{name}");
        }
        assert_eq!(
            commented,
            evidence.result.segments.len() as u64,
            "{name}: every data segment has a reason"
        );
        println!("{name}: {} packets, {subflows} subflows", packets.len());
    }
}

/// What a program prints of a capture; `None` with a word on why if it isn't here.
fn printed(program: &str, arguments: &[&str], file: &Path) -> Option<String> {
    match Command::new(program).args(arguments).arg(file).output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some(String::from_utf8_lossy(&text).into_owned())
        }
        Err(error) => {
            ropewalk_host::skip::skipped(format!("{program} can't be run ({error})"));
            None
        }
    }
}

#[test]
fn programs_that_read_with_libpcap_see_every_packet_of_every_path() {
    for (name, spec, _) in runs() {
        let evidence = evidence(name, &spec);
        let file = capture(&format!("libpcap-{name}"), &evidence);
        if let Some(text) = printed("tcpdump", &["-nttr"], &file) {
            let lines = text.lines().filter(|line| line.contains(" IP ")).count();
            assert_eq!(lines, evidence.packets(), "{name}: {}", text.lines().take(5).collect::<String>());
            assert!(!text.contains("bad cksum") && !text.contains("truncated"), "{name}");
        }
        if let Some(text) = printed("tcptrace", &["-n"], &file) {
            let seen = format!("{0} packets seen, {0} TCP packets traced", evidence.packets());
            assert!(text.contains(&seen), "{name}: {text}");
        }
        let scapy = "import sys; from scapy.all import rdpcap, TCP; p = rdpcap(sys.argv[1]); \
                     print(len(p), sum(TCP in q for q in p))";
        let seen = format!("{0} {0}", evidence.packets());
        // Debian's scapy is for Debian's Python, before which another may stand in the path.
        let debian = Path::new("/usr/bin/scapy").exists();
        let python = if debian { "/usr/bin/python3" } else { "python3" };
        match printed(python, &["-c", scapy], &file) {
            Some(text) if text.contains("No module named") => {
                ropewalk_host::skip::skipped("scapy isn't installed");
            }
            Some(text) => assert!(text.contains(&seen), "{name}: {text}"),
            None => {}
        }
    }
}

/// The frames of a pcapng file: enhanced packet blocks, little-endian.
fn frames(bytes: &[u8]) -> Vec<&[u8]> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four")) as usize;
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        if word(at) == 6 {
            found.push(&bytes[at + 28..at + 28 + word(at + 20)]);
        }
        at += word(at + 4);
    }
    found
}

/// Wireshark 4.0 shows the checksum of MP_CAPABLE and not that of a DSS option.
#[test]
fn checksums_of_mappings_are_right() {
    let evidence = evidence("dss", &spec(rough(), "redundant"));
    let mut capture = Vec::new();
    evidence.write_pcap(&mut capture).expect("a capture");
    let (mut right, mut first) = (0, 0);
    for frame in frames(&capture) {
        let (segment, payload) =
            parse_headers::<SyntheticPayload>(&frame[14..], ParseMode::Trust).expect("a packet");
        assert!(frame[14..][payload].iter().all(|byte| *byte == 0));
        if let Some(mapping) = segment.dss.and_then(|dss| dss.mapping) {
            let sum = mapping.checksum.expect("negotiated");
            assert!(dss_checksum_holds(mapping.dsn, mapping.ssn, mapping.len, 0, sum), "{segment:?}");
            right += 1;
        }
        first += usize::from(
            segment.rare.and_then(|rare| rare.mp_capable).is_some_and(|capable| capable.checksum.is_some()),
        );
    }
    assert!(right > 300 && first == 1, "{right} {first}");
    let file = self::capture("dss", &evidence);
    // With MP_CAPABLE the data sequence number is the key's, which Wireshark derives itself.
    let Some(packets) = tshark(&file, &["tcp.options.mptcp.checksum"]) else { return };
    assert!(packets.iter().all(|packet| !packet[0].ends_with("0000")));
}

#[test]
fn a_capture_says_why_and_when() {
    let spec = spec(built_in("wifi-lte", 256 << 10), "blest");
    let evidence = evidence("why", &spec);
    let file = capture("why", &evidence);
    let Some(packets) = tshark(&file, &["frame.time_epoch", "frame.comment", "frame.packet_flags_direction"])
    else {
        return;
    };
    let decided: BTreeSet<&str> =
        evidence.result.decisions.iter().map(|decision| decision.reason.as_str()).collect();
    let reasons = packets.iter().filter(|packet| decided.iter().any(|why| packet[1].ends_with(why))).count();
    assert!(reasons > 100, "{reasons} of {} packets give a scheduler's reason", packets.len());
    // Times are the simulation's, to the nanosecond; the first packet is the SYN's arrival at the server.
    let first: f64 = packets[0][0].parse().expect("seconds");
    assert!((0.001..0.2).contains(&first), "{first}");
    let times: Vec<f64> = packets.iter().map(|packet| packet[0].parse().expect("seconds")).collect();
    assert!(times.is_sorted());
    assert!(packets.iter().any(|packet| packet[2].ends_with('1')), "arrivals");
    assert!(packets.iter().any(|packet| packet[2].ends_with('2')), "departures");
}

#[test]
fn the_same_run_gives_the_same_bytes_and_watching_changes_nothing() {
    let spec = spec(rough(), "redundant");
    let written = |evidence: &Evidence| {
        let (mut pcap, mut qlog) = (Vec::new(), Vec::new());
        evidence.write_pcap(&mut pcap).expect("a capture");
        evidence.write_qlog(&mut qlog).expect("a log");
        (pcap, qlog)
    };
    let (first, second) = (evidence("first", &spec), evidence("second", &spec));
    assert!(written(&first) == written(&second));
    let plain = run(&spec);
    assert_eq!(first.result.flows, plain.flows);
    assert_eq!(first.result.paths, plain.paths);
}

/// What qvis does with a log: the version must be one it knows, events must be in order, all of them or none
/// with a group, and acknowledgements name packets that were sent.
#[test]
fn a_log_is_what_qvis_reads() {
    for (name, spec, subflows) in runs() {
        let evidence = evidence(name, &spec);
        let mut log = Vec::new();
        evidence.write_qlog(&mut log).expect("a log");
        let log: Value = serde_json::from_slice(&log).expect("JSON");
        assert_eq!((&log["qlog_version"], &log["qlog_format"]), (&Value::from("0.3"), &Value::from("JSON")));
        let traces = log["traces"].as_array().expect("traces");
        assert_eq!(traces.len(), 1);
        assert_eq!(traces[0]["common_fields"]["time_format"], "relative");
        let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
        let mut last = 0.0;
        for event in traces[0]["events"].as_array().expect("events") {
            let time = event["time"].as_f64().expect("a time");
            assert!(time >= last, "{name}: {event}");
            last = time;
            let kind = event["name"].as_str().expect("a name");
            let group = event["group_id"].as_str().expect("a group");
            // What sends is in its subflow's group, the first flight included; only waits are the
            // connection's.
            let waits = event["data"]["decision"] == "wait";
            assert!(
                kind != "mptcp:decision" || waits || !group.starts_with("connection "),
                "{name}: {event}"
            );
            groups.entry(group).or_default().event(kind, &event["data"]);
        }
        let carrying: Vec<_> = groups.values().filter(|group| group.packets() > 0).collect();
        assert_eq!(carrying.len(), subflows, "{name}: {:?}", groups.keys());
        let packets: usize = carrying.iter().map(|group| group.packets()).sum();
        assert_eq!(packets, evidence.packets(), "{name}");
        for (group, seen) in &groups {
            assert_eq!(seen.acked.difference(&seen.sent).count(), 0, "{name}, {group}");
            assert!(seen.lost.is_subset(&seen.sent), "{name}, {group}");
        }
        let sum = |number: fn(&Group) -> u64| groups.values().map(number).sum::<u64>();
        let sent: u64 = evidence.result.paths.iter().map(|path| path.bytes).sum();
        assert_eq!(sum(|group| group.bytes), sent, "{name}: payload bytes");
        assert_eq!(sum(|group| group.decisions), evidence.result.decisions.len() as u64, "{name}");
        assert!(sum(|group| group.metrics) > 5, "{name}: cwnd over time");
        if evidence.result.totals.retransmissions > 0 {
            assert!(groups.values().any(|group| !group.lost.is_empty()), "{name}: losses");
        }
    }
}

#[derive(Debug, Default)]
struct Group {
    sent: BTreeSet<u64>,
    received: BTreeSet<u64>,
    acked: BTreeSet<u64>,
    lost: BTreeSet<u64>,
    bytes: u64,
    metrics: u64,
    decisions: u64,
}

impl Group {
    fn packets(&self) -> usize {
        self.sent.len() + self.received.len()
    }

    fn event(&mut self, kind: &str, data: &Value) {
        let number = || data["header"]["packet_number"].as_u64().expect("a packet number");
        match kind {
            "transport:packet_sent" => {
                assert!(self.sent.insert(number()), "numbers don't repeat: {data}");
                self.bytes += data["raw"]["payload_length"].as_u64().expect("a length");
            }
            "transport:packet_received" => {
                assert!(self.received.insert(number()), "numbers don't repeat: {data}");
                for frame in data["frames"].as_array().expect("frames") {
                    for range in frame["acked_ranges"].as_array().into_iter().flatten() {
                        let bound = |at: usize| range[at].as_u64().expect("a number");
                        self.acked.extend(bound(0)..=bound(1));
                    }
                }
            }
            "recovery:packet_lost" => {
                self.lost.insert(number());
            }
            "recovery:metrics_updated" => {
                assert!(data["congestion_window"].as_u64().is_some_and(|window| window > 0), "{data}");
                self.metrics += 1;
            }
            "mptcp:decision" => self.decisions += 1,
            "connectivity:connection_started" => assert_eq!(data["ip_version"], "v4"),
            other => panic!("{other}"),
        }
    }
}
