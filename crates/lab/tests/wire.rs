//! The simulator's segments are the wire's own: every one of a run goes through bytes and back, and nothing
//! changes.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use ropewalk_algorithms::Registries;
use ropewalk_engine::{Span, Time, congestion, scheduler};
use ropewalk_lab::scenario;
use ropewalk_link::{Jitter, JitterShape, Loss};
use ropewalk_sim::{
    Middlebox, Mode, Recording, RunResult, RunSpec, Scenario, Side, Workload, World, networks, run,
};
use ropewalk_wire::{
    ChecksumMode, Flags, ParseMode, Payload, Segment, SyntheticPayload, encode_headers, parse,
};

/// Puts what comes back from bytes in the place of each segment.
struct ThroughBytes {
    seen: Arc<AtomicU64>,
    /// What differed first.
    wrong: Arc<Mutex<Option<String>>>,
}

impl Middlebox for ThroughBytes {
    fn process(&mut self, now: Time, from: Side, path: usize, segment: &mut Segment<SyntheticPayload>) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        match through_bytes(segment) {
            Ok(again) => *segment = again,
            Err(wrong) => {
                let mut first = self.wrong.lock().expect("no panic while it is held");
                first.get_or_insert_with(|| format!("{now} ns, {from:?}, path {path}: {wrong}: {segment:?}"));
            }
        }
    }
}

/// Encodes with zeros for payload, has both decoders read it, and gives what ours read.
fn through_bytes(segment: &Segment<SyntheticPayload>) -> Result<Segment<SyntheticPayload>, String> {
    let headers = encode_headers(segment, ChecksumMode::Full).map_err(|error| error.to_string())?;
    let mut packet = headers.as_slice().to_vec();
    packet.resize(headers.len() + segment.payload.len(), 0);
    if packet.len() != segment.wire_len() {
        return Err(format!("{} bytes are charged, {} are encoded", segment.wire_len(), packet.len()));
    }
    other_decoder(segment, &packet)?;
    let parsed = parse(Bytes::from(packet), ParseMode::Verify).map_err(|error| error.to_string())?;
    let mut again = Segment::new(parsed.tuple, parsed.seq, parsed.ack, parsed.flags);
    (again.window, again.urgent, again.ecn) = (parsed.window, parsed.urgent, parsed.ecn);
    (again.timestamps, again.sack, again.dss) = (parsed.timestamps, parsed.sack, parsed.dss);
    (again.rare, again.payload) = (parsed.rare, SyntheticPayload(parsed.payload.len() as u32));
    if again != as_on_the_wire(segment) {
        return Err(format!("comes back as {again:?}"));
    }
    Ok(again)
}

/// Of a number that has 32 bits on the wire, only these count: the engine may leave the others in.
fn as_on_the_wire(segment: &Segment<SyntheticPayload>) -> Segment<SyntheticPayload> {
    let mut segment = segment.clone();
    if let Some(dss) = &mut segment.dss {
        if let Some(ack) = dss.data_ack.as_mut().filter(|_| !dss.ack_is_64) {
            *ack &= u64::from(u32::MAX);
        }
        if let Some(mapping) = dss.mapping.as_mut().filter(|mapping| !mapping.dsn_is_64) {
            mapping.dsn &= u64::from(u32::MAX);
        }
    }
    segment
}

/// What etherparse makes of the packet must agree.
fn other_decoder(segment: &Segment<SyntheticPayload>, packet: &[u8]) -> Result<(), String> {
    let sliced = SlicedPacket::from_ip(packet).map_err(|error| format!("etherparse: {error}"))?;
    let (Some(net), Some(TransportSlice::Tcp(tcp))) = (sliced.net, sliced.transport) else {
        return Err("etherparse sees no TCP".into());
    };
    let (src, dst, checksum): (IpAddr, IpAddr, _) = match net {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            if header.to_header().calc_header_checksum() != header.header_checksum() {
                return Err("etherparse: IPv4 header checksum".into());
            }
            let sum = tcp.calc_checksum_ipv4(header.source(), header.destination());
            (header.source_addr().into(), header.destination_addr().into(), sum)
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            let sum = tcp.calc_checksum_ipv6(header.source(), header.destination());
            (header.source_addr().into(), header.destination_addr().into(), sum)
        }
        NetSlice::Arp(_) => return Err("etherparse sees ARP".into()),
    };
    let bit = |flag: Flags| segment.flags.contains(flag);
    let same = (src, dst) == (segment.tuple.src, segment.tuple.dst)
        && (tcp.source_port(), tcp.destination_port()) == (segment.tuple.src_port, segment.tuple.dst_port)
        && (tcp.sequence_number(), tcp.acknowledgment_number()) == (segment.seq.0, segment.ack.0)
        && (tcp.window_size(), tcp.urgent_pointer()) == (segment.window, segment.urgent)
        && (tcp.syn(), tcp.ack(), tcp.fin()) == (bit(Flags::SYN), bit(Flags::ACK), bit(Flags::FIN))
        && (tcp.rst(), tcp.psh(), tcp.urg()) == (bit(Flags::RST), bit(Flags::PSH), bit(Flags::URG))
        && (tcp.ece(), tcp.cwr()) == (bit(Flags::ECE), bit(Flags::CWR))
        && tcp.options().len() == segment.options_len()
        && tcp.payload().len() == segment.payload.len();
    if !same {
        return Err(format!("etherparse reads {:?}", tcp.to_header()));
    }
    match checksum {
        Ok(sum) if sum == tcp.checksum() => Ok(()),
        sum => Err(format!("etherparse: TCP checksum {:#06x}, not {sum:x?}", tcp.checksum())),
    }
}

fn spec(scenario: &Scenario, schedulers: &str, control: &str, seed: u64) -> RunSpec {
    RunSpec {
        scenario: Arc::new(scenario.clone()),
        scheduler: scheduler::builtin().parse(schedulers).expect("a scheduler"),
        congestion: congestion::builtin().parse(control).expect("a congestion control"),
        mode: Mode::Multipath,
        seed,
        start_phase: Span::ZERO,
        recording: Recording::default(),
    }
}

/// The run with every segment through bytes, and how many there were.
fn tapped(spec: &RunSpec) -> (RunResult, u64) {
    let (seen, wrong) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
    let mut world = World::new(spec).expect("a scenario that can be simulated");
    world.set_middlebox(Box::new(ThroughBytes { seen: Arc::clone(&seen), wrong: Arc::clone(&wrong) }));
    let result = world.finish();
    let wrong = wrong.lock().expect("no panic while it is held").take();
    assert_eq!(wrong, None, "{}", spec.scenario.name);
    (result, seen.load(Ordering::Relaxed))
}

#[track_caller]
fn unchanged(spec: &RunSpec) {
    let (result, seen) = tapped(spec);
    println!("{}: {seen} segments", spec.scenario.name);
    // A download's every data segment, and an acknowledgement for two or so.
    assert!(seen > result.totals.data_segments, "{}: the tap saw only {seen} segments", spec.scenario.name);
    assert_eq!(result, run(spec), "{}", spec.scenario.name);
}

#[test]
fn every_built_in_scenario_is_the_same_through_bytes() {
    let registries = Registries::builtin();
    for built_in in scenario::builtins() {
        let scenario = built_in.load(&registries).expect("valid").scenario;
        for (schedulers, control, seed) in
            [("minrtt", "lia", 3), ("redundant", "olia", 4), ("linux", "cubic", 5), ("blest", "balia", 6)]
        {
            unchanged(&spec(&scenario, schedulers, control, seed));
        }
        unchanged(&RunSpec { mode: Mode::SinglePath(0), ..spec(&scenario, "minrtt", "cubic", 7) });
    }
}

/// What the built-in scenarios don't have: checksums, ECN marks, repetitions, loss, other workloads.
#[test]
fn so_are_the_rarer_options() {
    let mut base = networks::wifi_lte();
    for path in &mut base.paths {
        path.down.loss = Loss::Bernoulli(0.02);
        path.down.jitter =
            Some(Jitter { spread: Span::from_millis(4), shape: JitterShape::Normal, keeps_order: false });
    }
    (base.client.checksum, base.client.ecn, base.server.ecn) = (true, true, true);
    let workloads = [
        Workload::Flows { count: 5, bytes: 100_000 },
        Workload::Web { objects: vec![20_000; 12], connections: 4, request: 300, persistent: true },
        Workload::Cbr {
            frame: 3000,
            rate: 4_000_000,
            key: None,
            duration: Span::from_millis(500),
            deadline: None,
        },
        Workload::RequestResponse { request: 200, response: 30_000, count: 5, think: Span::from_millis(10) },
    ];
    for workload in workloads {
        unchanged(&spec(&Scenario { workload, ..base.clone() }, "redundant", "lia", 3));
    }
}

/// The comparison itself must be able to fail.
#[test]
fn a_segment_that_bytes_cannot_say_is_found() {
    let tuple = ropewalk_wire::FourTuple::new(
        "192.0.2.1:1".parse().expect("an address"),
        "192.0.2.2:2".parse().expect("an address"),
    );
    let mut segment =
        Segment::<SyntheticPayload>::new(tuple, ropewalk_wire::Seq(1), ropewalk_wire::Seq(2), Flags::ACK);
    segment.payload = SyntheticPayload(10);
    assert_eq!(through_bytes(&segment), Ok(segment.clone()));
    segment.gso_size = 5;
    assert!(through_bytes(&segment).is_err_and(|error| error.starts_with("comes back as")));
}
