//! Nanoseconds per decision, for every scheduler and preset over a number of subflows.
//!
//! `cargo bench -p ropewalk-engine --bench schedulers`. A decision is taken over and over on sixteen states
//! of one connection in mid-transfer: windows between empty and full, a chunk in flight for each segment. The
//! rows of one scheduler over the number of subflows show that a decision costs O(subflows). On a busy
//! machine the medians count.

use ropewalk_engine::metrics::{SubflowMetrics, SubflowStatus};
use ropewalk_engine::scheduler::{Chunk, Decision, Event, InFlight, Rationale, View, builtin};
use ropewalk_engine::testing::WithoutSender as _;
use ropewalk_engine::{MILLISECOND, PathId, Span, SubflowId, Time};

const STATES: usize = 16;
const MSS: u32 = 1400;

/// The sizes that the table has a row for; Linux's limit is 8.
const SUBFLOWS: [usize; 5] = [1, 2, 4, 8, 16];

/// What is in flight, in order of offset: as the engine keeps it, found by binary search.
struct Chunks(Vec<Chunk>);

impl InFlight for Chunks {
    fn chunk_after(&self, offset: u64) -> Option<Chunk> {
        let index = self.0.partition_point(|chunk| chunk.offset + u64::from(chunk.len) <= offset);
        self.0.get(index).copied()
    }

    fn chunk_before(&self, offset: u64) -> Option<Chunk> {
        let index = self.0.partition_point(|chunk| chunk.offset < offset);
        self.0.get(index.checked_sub(1)?).copied()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

fn steady_subflows(state: usize, subflows: usize) -> Vec<SubflowMetrics> {
    let subflow = |index: usize| {
        let mut subflow = SubflowMetrics::new(SubflowId(index as u8), PathId(index as u16));
        let rtt = (10 + 15 * index as u64) * MILLISECOND + state as u64 * Span::from_micros(10);
        subflow.state = SubflowStatus::Usable;
        (subflow.rtt.smoothed, subflow.rtt.min, subflow.rtt.max, subflow.rtt.latest, subflow.rtt.var) =
            (rtt, rtt, rtt, rtt, rtt / 8);
        subflow.mss = MSS;
        subflow.set_cwnd(40);
        subflow.set_ssthresh(30);
        // The faster ones are full most of the time.
        subflow.set_packets_out(if (state + index) % 4 < 3 { 40 } else { 20 + (state + index) as u32 % 16 });
        if index + 1 == subflows {
            subflow.set_packets_out(subflow.packets_out().min(39));
        }
        subflow.totals.delivered = 10_000;
        subflow.totals.lost = 20;
        subflow.totals.loss_events = 3;
        subflow.rate.pacing = u64::from(subflow.cwnd()) * u64::from(MSS) * 1_200 * MILLISECOND / rtt;
        subflow.rate.delivery = subflow.rate.pacing;
        subflow.rate.link_byte_time = 1e9 / subflow.rate.pacing as f64;
        subflow.rtt.samples = 1000;
        // None is silent.
        subflow.last_progress = Time::from_nanos(1 << 62);
        subflow
    };
    (0..subflows).map(subflow).collect()
}

fn chunks(subflows: usize) -> Chunks {
    let chunk = |index: u64| {
        let carrier = index as usize % subflows;
        let len = MSS;
        let offset = index * u64::from(MSS);
        Chunk { offset, len, carriers: 1 << carrier, last: SubflowId(carrier as u8), sent_at: Time::ZERO }
    };
    Chunks((0..40 * subflows as u64).map(chunk).collect())
}

fn names() -> Vec<String> {
    let mut names = Vec::new();
    for entry in builtin().entries() {
        names.push(entry.name.to_string());
        names.extend(entry.presets.iter().map(|preset| format!("{}:{}", entry.name, preset.name)));
    }
    names
}

/// Where to send new data.
#[divan::bench(args = names(), consts = SUBFLOWS, sample_size = 2000)]
fn new_data<const N: usize>(bencher: divan::Bencher<'_, '_>, name: &str) {
    decisions(bencher, name, N, 1_000_000);
}

/// What to repeat when nothing is left to send: those that do.
#[divan::bench(args = ["cfs", "redundant"], consts = SUBFLOWS, sample_size = 2000)]
fn end_of_data<const N: usize>(bencher: divan::Bencher<'_, '_>, name: &str) {
    decisions(bencher, name, N, 0);
}

/// How far ahead of the first unassigned segment one may be assigned.
const AHEAD: usize = 1 << 14;

/// What is assigned: a plan moves on only when what it decided is sent.
struct Stream {
    /// Offset of the first unassigned byte.
    next: u64,
    /// Segments assigned beyond it, in a ring.
    ahead: [bool; AHEAD],
}

impl Stream {
    #[inline]
    fn assign(&mut self, decision: Decision) {
        let mss = u64::from(MSS);
        match decision {
            Decision::SendAt { offset, .. } if offset > self.next => {
                self.ahead[(offset / mss) as usize % AHEAD] = true;
            }
            Decision::Send { .. } | Decision::SendAt { .. } | Decision::Queue { .. } => self.next += mss,
            _ => {}
        }
        while std::mem::take(&mut self.ahead[(self.next / mss) as usize % AHEAD]) {
            self.next += mss;
        }
    }
}

fn decisions(bencher: divan::Bencher<'_, '_>, name: &str, subflows: usize, unsent: u64) {
    let mut scheduler = match builtin().parse(name) {
        Ok(spec) => spec.build(),
        Err(error) => panic!("{error}"),
    };
    let states: Vec<Vec<SubflowMetrics>> =
        (0..STATES).map(|state| steady_subflows(state, subflows)).collect();
    let in_flight = chunks(subflows);
    let held = in_flight.0.len() as u64 * u64::from(MSS);
    let view = |step: u64, next_offset: u64| View {
        now: Time::ZERO + step * Span::from_micros(20),
        subflows: &states[step as usize % STATES],
        unsent,
        next_offset,
        una: next_offset - held,
        send_window: 4_000_000,
        window_left: 4_000_000 - held,
        written: next_offset + unsent,
        declared_size: None,
        closed: false,
        writer_waits: false,
        send_buffer: 4 << 20,
        send_buffer_max: 4 << 20,
        in_flight: &in_flight,
        fates: &(),
    };
    for subflow in 0..subflows {
        scheduler.on_event(&view(0, held), Event::SubflowAdded(SubflowId(subflow as u8)));
    }
    let mut step = 0;
    let mut stream = Stream { next: held, ahead: [false; AHEAD] };
    let mut why = Rationale::default();
    bencher.bench_local(|| {
        step += 1;
        let decision = scheduler.select(&view(step, stream.next), &mut why);
        stream.assign(decision);
        decision
    });
}

fn main() {
    divan::main();
}
