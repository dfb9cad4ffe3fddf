//! Do the stated ranges hold the truth? Links are drawn at random; each tool's model measures them; what
//! `--path` states of them is off by as much as [`Doubt::default`] says. A range of 90 % should hold the
//! truth in 85 to 97 % of the links, for each tool and quantity.
//!
//! Links: 1 to 200 Mbit/s down, up a twentieth to all of that, 8 to 250 ms, queues of half to six
//! bandwidth-delay products (all uniform in the logarithm); on half of them normal jitter of up to a tenth of
//! the round trip, on half a loss of 0.01 to 3 %. TCP's flows are simulated for ten seconds; pings, datagrams
//! and their losses are drawn. Between the measurement and its use a link changes: its rate by 5 %, its
//! round-trip time by 2 % (standard deviations of the logarithm).

use std::sync::Arc;

use rand_pcg::Pcg64;
use ropewalk_algorithms::Registries;
use ropewalk_engine::congestion::DEFAULT_NAME;
use ropewalk_engine::registry::SpecError;
use ropewalk_engine::{SECOND, Span};
use ropewalk_sim::{Direction, Mode, PathSpec, Recording, RunResult, RunSpec, Scenario, Workload};
use serde::{Deserialize, Serialize};

use super::belief::{Doubt, perturb, uniform};
use super::measure::{self, Reading};
use super::run::{Execution, make_kept};
use crate::kept::Kept;
use crate::{scenario, stats};

/// How long TCP's flows run, seconds.
const SECONDS: u64 = 10;
/// How much a link changes until the measurement is used: its rate, and its round-trip time.
const DRIFT: (f64, f64) = (0.05, 0.02);
/// Payload of a full segment, and its share of the packet.
const SEGMENT: f64 = 1448.0;
const PAYLOAD: f64 = SEGMENT / 1500.0;

/// Length of a ping's packet.
pub(super) const PROBE: f64 = 84.0;

/// What a range is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Quantity {
    /// The round-trip time without load.
    RoundTrip,
    /// The rate upwards.
    Up,
    /// The rate downwards.
    Down,
    /// The loss each way.
    Loss,
}

impl Quantity {
    /// All of them.
    pub const ALL: [Quantity; 4] = [Quantity::RoundTrip, Quantity::Down, Quantity::Up, Quantity::Loss];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Quantity::RoundTrip => "RTT",
            Quantity::Up => "rate up",
            Quantity::Down => "rate down",
            Quantity::Loss => "loss",
        }
    }
}

/// One range.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Range {
    /// What measured.
    pub tool: String,
    /// What of.
    pub quantity: Quantity,
    /// The range; without an end above where nothing shows that the link was full.
    pub range: (f64, Option<f64>),
    /// The truth.
    pub truth: f64,
}

impl Range {
    /// Whether it holds the truth.
    #[must_use]
    pub fn holds(&self) -> bool {
        let (low, high) = self.range;
        self.truth >= low && high.is_none_or(|high| self.truth <= high)
    }
}

/// One link and the ranges of all tools.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Link {
    /// The true link, as `--path` reads it.
    pub path: String,
    /// The ranges.
    pub ranges: Vec<Range>,
}

/// A tool, and for each quantity how many ranges held the truth, of so many; none where the tool says nothing
/// of it.
pub type Row = (String, [Option<(usize, usize)>; 4]);

/// How it went.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Coverage {
    /// Every link.
    pub links: Vec<Link>,
}

impl Coverage {
    /// By tool, in the order of the tools.
    #[must_use]
    pub fn table(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for range in self.links.iter().flat_map(|link| &link.ranges) {
            let place = rows.iter().position(|(tool, _)| *tool == range.tool).unwrap_or_else(|| {
                rows.push((range.tool.clone(), [None; 4]));
                rows.len() - 1
            });
            let column = Quantity::ALL.iter().position(|one| *one == range.quantity).unwrap_or(0);
            let (held, all) = rows[place].1[column].get_or_insert((0, 0));
            *held += usize::from(range.holds());
            *all += 1;
        }
        rows
    }
}

/// Draws links.
pub(super) struct Draw(pub Pcg64);

impl Draw {
    pub fn uniform(&mut self) -> f64 {
        uniform(&mut self.0)
    }

    pub fn log(&mut self, least: f64, most: f64) -> f64 {
        least * libm::pow(most / least, self.uniform())
    }

    pub fn normal(&mut self) -> f64 {
        stats::normal_quantile(self.uniform().clamp(1e-6, 1.0 - 1e-6))
    }

    fn lost(&mut self, of: u64, share: f64) -> u64 {
        (0..of).filter(|_| self.uniform() < share).count() as u64
    }
}

/// A link's true numbers: Mbit/s, milliseconds, a share.
struct Truth {
    down: f64,
    up: f64,
    rtt: f64,
    jitter: f64,
    loss: f64,
    queue: f64,
}

impl Truth {
    fn draw(draw: &mut Draw) -> Self {
        let (down, rtt) = (draw.log(1.0, 200.0), draw.log(8.0, 250.0));
        let up = down * draw.log(0.05, 1.0);
        let queue = (down * rtt * 1e3 / 8.0 / 1500.0 * draw.log(0.5, 6.0)).clamp(20.0, 20_000.0);
        let jitter = if draw.uniform() < 0.5 { rtt * 0.1 * draw.uniform() } else { 0.0 };
        let loss = if draw.uniform() < 0.5 { draw.log(0.0001, 0.03) } else { 0.0 };
        Truth { down, up: up.max(0.2), rtt, jitter, loss, queue }
    }

    /// Of a path.
    fn of(path: &PathSpec) -> Self {
        let rate = |link: &ropewalk_link::LinkSpec| scenario::mean_rate(&link.rate) as f64 / 1e6;
        let loss = match path.down.loss {
            ropewalk_link::Loss::Bernoulli(loss) => loss,
            _ => 0.0,
        };
        // The spread of each way is half of the round trip's.
        let spread = path.down.jitter.map_or(0, |jitter| jitter.spread.as_nanos()) as f64 / 1e6;
        let rtt = (path.up.delay + path.down.delay).as_millis_f64();
        Truth { down: rate(&path.down), up: rate(&path.up), rtt, jitter: 2.0 * spread, loss, queue: 0.0 }
    }

    /// As `--path` reads it.
    fn text(&self) -> String {
        let Truth { down, up, rtt, jitter, loss, queue } = self;
        let jitter = if *jitter > 0.05 { format!(" +-{jitter:.2} ms, jitter normal") } else { String::new() };
        let loss = if *loss > 0.0 { format!(", {:.4} %", loss * 100.0) } else { String::new() };
        format!("x: {down:.3}/{up:.3} Mbit/s, {rtt:.2} ms{jitter}{loss}, queue {queue:.0} packets")
    }

    fn round_trip(&self, draw: &mut Draw) -> Option<f64> {
        // The spread of each way is a standard deviation; a packet can be lost on either way.
        let (lost, off) = (draw.uniform(), draw.normal());
        let answered = lost >= 1.0 - (1.0 - self.loss) * (1.0 - self.loss);
        // The probe itself has to be sent, each way.
        let sending = PROBE * 8e-3 * (1.0 / self.down + 1.0 / self.up);
        let ms = (self.rtt + self.jitter / libm::sqrt(2.0) * off).max(self.rtt * 0.5);
        answered.then_some(ms + sending)
    }

    fn trips(&self, count: u64, draw: &mut Draw) -> Vec<Option<f64>> {
        (0..count).map(|_| self.round_trip(draw)).collect()
    }
}

/// What `ping -c COUNT` prints.
fn ping(trips: &[Option<f64>]) -> String {
    let mut text = String::from("PING x (192.0.2.1) 56(84) bytes of data.\n");
    for (number, ms) in trips.iter().enumerate() {
        if let Some(ms) = ms {
            text += &format!("64 bytes from 192.0.2.1: icmp_seq={} ttl=60 time={ms:.1} ms\n", number + 1);
        }
    }
    let received = trips.iter().flatten().count();
    let lost = (trips.len() - received) as f64 / trips.len() as f64 * 100.0;
    text + &format!("\n{} packets transmitted, {received} received, {lost:.3}% packet loss\n", trips.len())
}

/// What `mtr -r` prints of the last hop.
fn mtr(trips: &[Option<f64>]) -> String {
    let some: Vec<f64> = trips.iter().flatten().copied().collect();
    let Some(of) = stats::Summary::of(&some) else { return String::new() };
    let lost = (1.0 - some.len() as f64 / trips.len() as f64) * 100.0;
    format!(
        "HOST: x   Loss%   Snt   Last   Avg  Best  Wrst StDev\n  1.|-- \
         y  {lost:.1}%  {}  {:.1}  {:.1}  {:.1}  {:.1}  {:.1}\n",
        trips.len(),
        of.mean,
        of.mean,
        of.min,
        of.max,
        of.sd
    )
}

/// What a simulated test of several flows shows at its end.
struct Flows {
    /// Bits per second of payload, by second.
    seconds: Vec<f64>,
    /// Smoothed round-trip times by second, milliseconds.
    srtt: Vec<f64>,
    retransmits: u64,
    count: u32,
}

fn flows(
    registries: &Registries,
    path: &PathSpec,
    direction: Direction,
    count: u32,
    seed: u64,
) -> Result<Flows, SpecError> {
    let around = scenario::default_around(vec![path.clone(), PathSpec { name: "y".into(), ..path.clone() }]);
    let workload = Workload::Flows { count, bytes: 1 << 36 };
    let scenario = Scenario { workload, direction, limit: Span::from_secs(SECONDS), ..around };
    let result: RunResult = ropewalk_sim::run(&RunSpec {
        scenario: Arc::new(scenario),
        scheduler: registries.schedulers.parse("single")?,
        congestion: registries.congestion.parse(DEFAULT_NAME)?,
        mode: Mode::SinglePath(0),
        seed,
        start_phase: Span::ZERO,
        recording: Recording { samples_every: Some(SECOND), ..Recording::default() },
    });
    let (mut delivered, mut srtt) = (vec![0u64; SECONDS as usize + 1], Vec::new());
    for sample in &result.samples {
        let second = (sample.at.since_origin() / SECOND).min(SECONDS) as usize;
        delivered[second] += sample.delivered;
        srtt.extend(sample.subflows.iter().map(|flow| flow.srtt.as_millis_f64()).filter(|ms| *ms > 0.0));
    }
    delivered[SECONDS as usize] = delivered[SECONDS as usize].max(result.delivered_bytes);
    let seconds = delivered.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64 * 8.0).collect();
    Ok(Flows { seconds, srtt, retransmits: result.totals.retransmissions, count })
}

impl Flows {
    fn bits(&self) -> f64 {
        stats::mean(&self.seconds).max(2000.0)
    }

    /// What `iperf3 --json` writes; with `-R` the sender's round trips are at the other end.
    fn iperf(&self, reverse: bool) -> String {
        let intervals: Vec<String> =
            self.seconds.iter().map(|bits| format!(r#"{{"sum":{{"bits_per_second":{bits}}}}}"#)).collect();
        let of = stats::Summary::of(&self.srtt).filter(|_| !reverse);
        let us = of.map_or([0.0; 3], |of| [of.min, of.mean, of.max]).map(|ms| (ms * 1e3) as u64);
        let bits = self.bits();
        let bytes = bits * SECONDS as f64 / 8.0 + self.retransmits as f64 * SEGMENT;
        format!(
            r#"{{"start":{{"test_start":{{"protocol":"TCP","num_streams":{},"reverse":{}}}}},
                "intervals":[{}],"end":{{
            "streams":[{{"sender":{{"min_rtt":{},"mean_rtt":{},"max_rtt":{}}}}}],
            "sum_sent":{{"seconds":10,"bytes":{bytes},"bits_per_second":{bits},"retransmits":{}}},
            "sum_received":{{"seconds":10,"bits_per_second":{bits}}}}}}}"#,
            self.count,
            u8::from(reverse),
            intervals.join(","),
            us[0],
            us[1],
            us[2],
            self.retransmits,
        )
    }
}

/// What `iperf3 -u -b TARGET -R --json` writes.
fn udp(truth: &Truth, target: f64, draw: &mut Draw) -> String {
    let packets = (target * 1e6 * SECONDS as f64 / 8.0 / SEGMENT).max(1.0) as u64;
    let carried = truth.down * 1e6 * PAYLOAD;
    let queue = (1.0 - carried / (target * 1e6)).max(0.0);
    let lost = draw.lost(packets, queue + (1.0 - queue) * truth.loss);
    let bits = (packets - lost) as f64 * SEGMENT * 8.0 / SECONDS as f64;
    format!(
        r#"{{"start":{{"test_start":{{"protocol":"UDP","reverse":1,"target_bitrate":{}}}}},
        "end":{{"sum_received":{{"seconds":10,"bits_per_second":{bits},"lost_packets":{lost},
            "packets":{packets}}}}}}}"#,
        (target * 1e6) as u64
    )
}

/// What `speedtest-cli --json` writes.
fn speed_test(truth: &Truth, up: &Flows, down: &Flows, draw: &mut Draw) -> String {
    let least = truth.trips(10, draw).into_iter().flatten().fold(f64::INFINITY, f64::min);
    let ping = if least.is_finite() { least } else { truth.rtt };
    format!(r#"{{"download":{},"upload":{},"ping":{ping},"bytes_sent":1}}"#, down.bits(), up.bits())
}

/// Each tool, its files, and the quantities of which it says something.
type Measured = (&'static str, Vec<String>, &'static [Quantity]);

fn tools(
    registries: &Registries,
    truth: &Truth,
    path: &PathSpec,
    seed: u64,
    draw: &mut Draw,
) -> Result<Vec<Measured>, SpecError> {
    use Quantity::{Down, Loss, RoundTrip, Up};
    let one = flows(registries, path, Direction::Download, 1, seed)?;
    let back = flows(registries, path, Direction::Upload, 1, seed + 1)?;
    let many = flows(registries, path, Direction::Download, 8, seed + 2)?;
    let up = flows(registries, path, Direction::Upload, 8, seed + 3)?;
    let pings = |count: u64, draw: &mut Draw| ping(&truth.trips(count, draw));
    Ok(vec![
        ("ping -c 30", vec![pings(30, draw)], &[RoundTrip, Loss]),
        ("ping -c 300", vec![pings(300, draw)], &[RoundTrip, Loss]),
        ("mtr -r -c 100", vec![mtr(&truth.trips(100, draw))], &[RoundTrip, Loss]),
        ("iperf3 -R", vec![one.iperf(true)], &[Down]),
        ("iperf3", vec![back.iperf(false)], &[Up, RoundTrip]),
        ("iperf3 -R -P 8", vec![many.iperf(true)], &[Down]),
        ("iperf3 -u -R", vec![udp(truth, 1.048_576, draw)], &[Down, Loss]),
        ("iperf3 -u -R, twice the rate", vec![udp(truth, 2.0 * truth.down, draw)], &[Down]),
        ("speedtest-cli", vec![speed_test(truth, &up, &many, draw)], &[RoundTrip, Down, Up]),
        ("ping -c 30, iperf3 -R", vec![pings(30, draw), one.iperf(true)], &[RoundTrip, Down, Loss]),
    ])
}

/// What `ping -c 30` and `iperf3 -R` of ten seconds say of a path.
pub(super) fn measure_path(
    registries: &Registries,
    path: &PathSpec,
    seed: u64,
) -> Result<Vec<measure::Measured>, SpecError> {
    let mut draw = Draw(Pcg64::new(u128::from(seed), 0xd1a1));
    let truth = Truth::of(path);
    let texts = [
        ping(&truth.trips(30, &mut draw)),
        flows(registries, path, Direction::Download, 1, seed)?.iperf(true),
    ];
    // Where nothing came back, there is nothing to say.
    Ok(texts.iter().filter_map(|text| measure::parse("f", text).ok()).collect())
}

fn link(registries: &Registries, number: u64) -> Result<Link, SpecError> {
    let wrong =
        |error: ropewalk_settings::diagnostic::Diagnostic| SpecError { message: error.message, span: (0, 0) };
    let mut draw = Draw(Pcg64::new(u128::from(number), 0xc0fe));
    let truth = Truth::draw(&mut draw);
    let text = truth.text();
    let path = scenario::path(&text).map_err(wrong)?;
    let mut stated = path.clone();
    let normal = [0; 4].map(|_| draw.normal());
    perturb(&mut stated, &Doubt::default(), normal, 0.0);
    let mut ranges = Vec::new();
    let drift = |sd: f64, normal: f64| libm::exp(sd * normal);
    let rate_drift = drift(DRIFT.0, draw.normal());
    let rtt_drift = drift(DRIFT.1, draw.normal());
    for (tool, texts, quantities) in tools(registries, &truth, &path, number << 3, &mut draw)? {
        let files = texts.iter().map(|text| measure::parse("f", text)).collect::<Result<Vec<_>, _>>();
        // Nothing came back, say.
        let Ok(files) = files else { continue };
        let found = measure::refine("x", Some(stated.clone()), &files).map_err(wrong)?;
        let named: Vec<(String, measure::Measured)> =
            files.into_iter().map(|one| ("f".into(), one)).collect();
        let reading = Reading::of(&found.path, &found.doubt, &named, &found.notes, Direction::Download);
        for quantity in quantities {
            let open = |index: usize, high: f64| (!reading.at_least[index]).then_some(high);
            let (range, truth) = match quantity {
                Quantity::RoundTrip => ((reading.rtt_ms.0, Some(reading.rtt_ms.1)), truth.rtt * rtt_drift),
                Quantity::Up => {
                    ((reading.rate[0].0, open(0, reading.rate[0].1)), truth.up * 1e6 * rate_drift)
                }
                Quantity::Down => {
                    ((reading.rate[1].0, open(1, reading.rate[1].1)), truth.down * 1e6 * rate_drift)
                }
                // Where no loss is stated and none was seen, none is said.
                Quantity::Loss if reading.loss.1 == 0.0 && truth.loss == 0.0 => continue,
                Quantity::Loss => ((reading.loss.0, Some(reading.loss.1)), truth.loss),
            };
            ranges.push(Range { tool: tool.to_string(), quantity: *quantity, range, truth });
        }
    }
    Ok(Link { path: text, ranges })
}

/// Measures so many links; what is in the store isn't run again. Calls `each` with every one. None if it was
/// stopped.
///
/// # Errors
/// If `single` or `cubic` isn't registered.
pub fn coverage(
    registries: &Registries,
    links: usize,
    seed: u64,
    store: &(dyn Kept<Link> + Sync),
    execution: Execution<'_>,
    each: impl Fn() + Sync,
) -> Result<Option<Coverage>, SpecError> {
    let found = make_kept(("coverage", links, seed), store, execution, each, |seed| link(registries, seed))?;
    Ok(found.map(|links| Coverage { links }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_files_are_read_and_ranges_hold_the_truth() {
        let registries = Registries::builtin();
        let links = (0..6).map(|number| link(&registries, number).unwrap()).collect();
        let found = Coverage { links };
        let table = found.table();
        assert_eq!(table.len(), 10, "{table:?}");
        let all: Vec<&Range> = found.links.iter().flat_map(|link| &link.ranges).collect();
        let held = all.iter().filter(|range| range.holds()).count();
        assert!(held * 10 > all.len() * 8, "{held} of {}: {:#?}", all.len(), all);
    }

    #[test]
    fn one_flow_that_losses_limit_says_only_the_least() {
        let registries = Registries::builtin();
        let path = scenario::path("x: 20/5 Mbit/s, 60 ms, 1 %, queue 100 packets").unwrap();
        for seed in 0..10 {
            let flow = flows(&registries, &path, Direction::Download, 1, seed).unwrap();
            let read = measure::parse("f", &flow.iperf(true)).unwrap();
            assert!(read.rates[0].at_least && read.rates[0].bits < 20e6, "seed {seed}: {read:?}");
            assert!(read.notes.iter().any(|note| note.contains("`-P 8`")), "{:?}", read.notes);
        }
    }
}
