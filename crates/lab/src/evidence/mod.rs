//! Recordings of a simulated run: the packets at the data's sender, with the scheduler's reasons, as a
//! capture (pcapng) or a log (qlog).
//!
//! The capture shows what `tcpdump` on that host would, without competing flows. Payload, which the simulator
//! doesn't have, is zeros, and DSS checksums are of these.

mod reasons;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::iter::Peekable;
use std::slice;
use std::sync::{Arc, Mutex};

use ropewalk_engine::mptcp::Key;
use ropewalk_engine::{Span, Time};
use ropewalk_evidence::{Decision, Direction, Metrics, Packet, Path, Pcap, Qlog, Vantage};
use ropewalk_link::{LinkSpec, Loss, Rate};
use ropewalk_sim::{
    DecisionTrace, Recording, RunResult, RunSpec, Sample, Scenario, SegmentObserver, Side, SpecError, World,
};
use ropewalk_wire::checksum::dss_checksum;
use ropewalk_wire::{
    ChecksumMode, DssMapping, FourTuple, MpCapable, Payload, Segment, SyntheticPayload, encode_headers,
};

pub use reasons::phrase;

/// How often cwnd and srtt are logged.
const SAMPLES_EVERY: Span = Span::from_millis(10);

/// A run, and the packets at its data's sender.
#[derive(Debug)]
pub struct Evidence {
    /// The result, with segments, decisions and samples.
    pub result: RunResult,
    title: String,
    paths: Vec<Path>,
    vantage: Side,
    /// From the run's start to the workload's: time 0 of the files.
    begin: Span,
    seen: Vec<Seen>,
}

/// One packet at the sender.
#[derive(Clone, Debug)]
struct Seen {
    at: Time,
    path: u16,
    direction: Direction,
    trace: Option<u32>,
    segment: Segment<SyntheticPayload>,
}

/// Records the packets of one end.
struct Collector {
    side: Side,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Collector {
    fn keep(
        &mut self,
        at: Time,
        path: usize,
        direction: Direction,
        trace: Option<u32>,
        segment: &Segment<SyntheticPayload>,
    ) {
        // The lock is poisoned only if the world panicked.
        if let Ok(mut seen) = self.seen.lock() {
            seen.push(Seen { at, path: path as u16, direction, trace, segment: segment.clone() });
        }
    }
}

impl SegmentObserver for Collector {
    fn on_sent(
        &mut self,
        now: Time,
        from: Side,
        path: usize,
        trace: Option<u32>,
        segment: &Segment<SyntheticPayload>,
    ) {
        if from == self.side {
            self.keep(now, path, Direction::Sent, trace, segment);
        }
    }

    fn on_arrived(&mut self, now: Time, at: Side, path: usize, segment: &Segment<SyntheticPayload>) {
        if at == self.side {
            self.keep(now, path, Direction::Received, None, segment);
        }
    }
}

/// Runs `spec` and records the packets at the data's sender, with segments, decisions and samples. Recording
/// doesn't change the run.
///
/// # Errors
/// The specification can't be simulated.
pub fn record(spec: &RunSpec) -> Result<Evidence, SpecError> {
    let recording = Recording { samples_every: Some(SAMPLES_EVERY), segments: true, decisions: true };
    let spec = RunSpec { recording, ..spec.clone() };
    let scenario = &spec.scenario;
    let vantage = scenario.direction.sender();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut world = World::new(&spec)?;
    world.set_observer(Box::new(Collector { side: vantage, seen: Arc::clone(&seen) }));
    let result = world.finish();
    let seen = seen.lock().map(|mut seen| std::mem::take(&mut *seen)).unwrap_or_default();
    Ok(Evidence {
        result,
        title: format!(
            "{}, {}, {}, seed {}",
            scenario.name, spec.scheduler.text, spec.congestion.text, spec.seed
        ),
        paths: paths(scenario),
        vantage,
        begin: spec.begin().since_origin(),
        seen,
    })
}

/// A path's name and a description of its two links.
pub fn path(path: &ropewalk_sim::PathSpec) -> Path {
    let description = format!("up {}; down {}", describe(&path.up), describe(&path.down));
    Path { name: path.name.clone(), description }
}

/// Names and descriptions of the paths: of the link in the data's direction.
fn paths(scenario: &Scenario) -> Vec<Path> {
    let link = |path: &ropewalk_sim::PathSpec| match scenario.direction.sender() {
        Side::Client => describe(&path.up),
        Side::Server => describe(&path.down),
    };
    scenario.paths.iter().map(|path| Path { name: path.name.clone(), description: link(path) }).collect()
}

fn describe(link: &LinkSpec) -> String {
    let rate = match &link.rate {
        Rate::Constant(rate) => format!("{} Mbit/s", *rate as f64 / 1e6),
        Rate::Trace(_) => "a trace's rate".into(),
    };
    let loss = match link.loss {
        Loss::None => "",
        _ => ", random loss",
    };
    format!("{rate}, {} ms one way{loss}", link.delay.as_millis_f64())
}

impl Evidence {
    /// Number of packets.
    pub fn packets(&self) -> usize {
        self.seen.len()
    }

    /// Calls `each` for every packet, with its bytes and comment. Times count from the workload's start.
    fn each(&self, mut each: impl FnMut(usize, &Packet<'_>) -> io::Result<()>) -> io::Result<()> {
        let comments = reasons::comments(&self.result, &self.paths);
        let mut bytes = Vec::new();
        for (number, seen) in self.seen.iter().enumerate() {
            let headers = encode_headers(&with_dss_checksum(&seen.segment), ChecksumMode::Full)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            bytes.clear();
            bytes.extend_from_slice(&headers);
            bytes.resize(headers.len() + seen.segment.payload.len(), 0);
            let comment = seen.trace.and_then(|trace| comments.get(trace as usize)).map(String::as_str);
            let at = seen.at.saturating_back(self.begin);
            let (path, direction) = (seen.path, seen.direction);
            each(number, &Packet { at, path, direction, bytes: &bytes, comment })?;
        }
        Ok(())
    }

    /// Writes the capture.
    ///
    /// # Errors
    /// The writer's error.
    pub fn write_pcap<W: Write>(&self, writer: W) -> io::Result<()> {
        let mut pcap = Pcap::new(writer, &self.paths)?;
        self.each(|_, packet| pcap.packet(packet))?;
        pcap.finish().map(drop)
    }

    /// Writes the log: packets, decisions, and each subflow's metrics every 10 ms.
    ///
    /// # Errors
    /// The writer's error.
    pub fn write_qlog<W: Write>(&self, writer: W) -> io::Result<()> {
        let vantage = match self.vantage {
            Side::Client => Vantage::Client,
            Side::Server => Vantage::Server,
        };
        let mut qlog = Qlog::new(writer, &self.title, vantage, &self.paths)?;
        let mut beside = OtherEvents::new(&self.result);
        // A decision comes before the data that it sends: of each path's first data the subflow is known in
        // advance.
        for seen in &self.seen {
            if let Some(trace) = seen.trace.and_then(|trace| self.result.segments.get(trace as usize)) {
                beside.subflows.entry((trace.connection, seen.path)).or_insert(seen.segment.tuple);
            }
        }
        self.each(|number, packet| {
            beside.write_until(packet.at, &mut qlog)?;
            let seen = &self.seen[number];
            if let Some(trace) = seen.trace.and_then(|trace| self.result.segments.get(trace as usize)) {
                beside.subflows.insert((trace.connection, seen.path), seen.segment.tuple);
            }
            qlog.packet(packet)
        })?;
        beside.write_until(Time::MAX, &mut qlog)?;
        qlog.finish().map(drop)
    }
}

/// A segment with the DSS checksum of its payload as it is written: zeros. The simulator has none to sum.
fn with_dss_checksum(segment: &Segment<SyntheticPayload>) -> Cow<'_, Segment<SyntheticPayload>> {
    let mapping = segment.dss.and_then(|dss| dss.mapping).filter(|mapping| mapping.checksum.is_some());
    let capable = segment.rare.as_deref().and_then(|rare| rare.mp_capable);
    // The first data comes with MP_CAPABLE in place of a mapping (RFC 8684 3.1).
    let first = capable.filter(|capable| capable.checksum.is_some());
    if mapping.is_none() && first.is_none() {
        return Cow::Borrowed(segment);
    }
    let mut segment = segment.clone();
    if let (Some(mapping), Some(dss)) = (mapping.filter(|mapping| mapping.len > 0), &mut segment.dss) {
        let checksum = Some(dss_checksum(mapping.dsn, mapping.ssn, mapping.len, 0));
        dss.mapping = Some(DssMapping { checksum, ..mapping });
    }
    if let Some(MpCapable { data_len: Some(len), sender_key: Some(key), .. }) = first {
        let checksum = Some(dss_checksum(Key::new(key).idsn.wrapping_add(1), 1, len, 0));
        segment.rare_mut().mp_capable = first.map(|first| MpCapable { checksum, ..first });
    }
    Cow::Owned(segment)
}

/// The decisions and samples of a log, each written at its time.
struct OtherEvents<'a> {
    decisions: Peekable<slice::Iter<'a, DecisionTrace>>,
    samples: Peekable<slice::Iter<'a, Sample>>,
    /// The subflow that a connection sends on, by path: the latest.
    subflows: BTreeMap<(u32, u16), FourTuple>,
}

impl<'a> OtherEvents<'a> {
    fn new(result: &'a RunResult) -> Self {
        let (decisions, samples) = (result.decisions.iter().peekable(), result.samples.iter().peekable());
        OtherEvents { decisions, samples, subflows: BTreeMap::new() }
    }

    /// Writes the events until then. A decision comes before the packets of the same time.
    fn write_until<W: Write>(&mut self, until: Time, qlog: &mut Qlog<W>) -> io::Result<()> {
        loop {
            let decided = self.decisions.peek().map_or(Time::MAX, |decision| decision.at);
            if let Some(sample) = self.samples.next_if(|sample| sample.at <= until && sample.at < decided) {
                self.sample(sample, qlog)?;
            } else if let Some(decision) = self.decisions.next_if(|decision| decision.at <= until) {
                self.decision(decision, qlog)?;
            } else {
                return Ok(());
            }
        }
    }

    fn decision<W: Write>(&self, decision: &DecisionTrace, qlog: &mut Qlog<W>) -> io::Result<()> {
        let subflow = decision.path.and_then(|path| self.subflows.get(&(decision.connection, path)));
        let told = Decision {
            connection: decision.connection,
            subflow: subflow.copied(),
            decision: decision.decision.name(),
            offset: decision.offset,
            bytes: decision.bytes,
            reason: &decision.reason,
        };
        qlog.decision(decision.at, &told)
    }

    fn sample<W: Write>(&self, sample: &Sample, qlog: &mut Qlog<W>) -> io::Result<()> {
        for flow in &sample.subflows {
            let Some(tuple) = self.subflows.get(&(sample.connection, flow.path)) else { continue };
            let metrics = Metrics {
                cwnd: flow.cwnd,
                ssthresh: flow.ssthresh,
                in_flight: flow.in_flight,
                srtt: flow.srtt,
            };
            qlog.metrics(sample.at, *tuple, metrics)?;
        }
        Ok(())
    }
}
