//! Do measurements narrow? Pairs of links are drawn at random. What is stated of them is off by as much as
//! [`Doubt::default`] says; then a ping and a transfer on the true links are added. The interval of the gain
//! over plausible variants must not get wider, and must hold the truth as often as it says.
//!
//! Links: 4 to 60 Mbit/s, 10 to 150 ms, loss of 0.02 to 1 % (all uniform in the logarithm), normal jitter of
//! a tenth of the round trip. The gain is `minrtt`'s time over that of plain TCP on the first path, for 1
//! MiB.

use std::sync::Arc;

use rand_pcg::Pcg64;
use ropewalk_algorithms::Registries;
use ropewalk_engine::Span;
use ropewalk_engine::congestion::DEFAULT_NAME;
use ropewalk_engine::registry::SpecError;
use ropewalk_sim::{Mode, PathSpec, Recording, RunSpec, Scenario, Workload};
use serde::{Deserialize, Serialize};

use super::belief::{Doubt, perturb, worlds};
use super::coverage::{Draw, PROBE};
use super::gain::Gain;
use super::measure;
use super::run::{Execution, make_kept};
use crate::kept::Kept;
use crate::{scenario, stats};

/// Plausible variants, before and after.
const VARIANTS: usize = 60;
/// Seeds in each variant, so that the width is more that of what isn't known than of chance.
const SEEDS: u64 = 4;
/// The first of all; the truth has others.
const FIRST_SEED: u64 = 1000;
/// Seeds of the truth.
const TRUTH_SEEDS: u64 = 40;
/// Wider by more than this counts.
const WIDER: f64 = 1.05;

/// A link's true numbers.
struct Truth {
    /// Mbit/s.
    rate: f64,
    /// Milliseconds.
    rtt: f64,
    /// Milliseconds.
    jitter: f64,
    /// A share.
    loss: f64,
}

impl Truth {
    fn draw(draw: &mut Draw) -> Self {
        let rtt = draw.log(10.0, 150.0);
        Truth { rate: draw.log(4.0, 60.0), rtt, jitter: rtt * 0.1, loss: draw.log(0.0002, 0.01) }
    }

    /// As `--path` reads it.
    fn text(&self, name: &str) -> String {
        let Truth { rate, rtt, jitter, loss } = self;
        format!(
            "{name}: {rate:.2} Mbit/s, {rtt:.2} ms +-{jitter:.2} ms, jitter normal, {:.4} %",
            loss * 100.0
        )
    }

    /// What `ping -c 30` prints on it.
    fn ping(&self, draw: &mut Draw) -> String {
        let mut text = String::from("PING x (192.0.2.1) 56(84) bytes of data.\n");
        let mut received = 0;
        for number in 1..=30 {
            if draw.uniform() < self.loss {
                continue;
            }
            received += 1;
            // The spread of each way is a standard deviation; the probe has to be sent, each way.
            let sending = 2.0 * PROBE * 8e-3 / self.rate;
            let ms = (self.rtt + self.jitter / libm::sqrt(2.0) * draw.normal()).max(1.0) + sending;
            text += &format!("64 bytes from 192.0.2.1: icmp_seq={number} ttl=60 time={ms:.1} ms\n");
        }
        text + &format!("\n30 packets transmitted, {received} received, 0% packet loss\n")
    }

    /// What `iperf3 --json -R` writes on it: ten seconds near the link's rate.
    fn iperf(&self, draw: &mut Draw) -> String {
        let bits = self.rate * 1e6 * 1448.0 / 1500.0 * libm::exp(0.05 * draw.normal());
        let intervals: Vec<String> = (0..10)
            .map(|_| format!(r#"{{"sum":{{"bits_per_second":{}}}}}"#, bits * libm::exp(0.1 * draw.normal())))
            .collect();
        let bytes = bits * 10.0 / 8.0;
        let expected = bytes / 1448.0 * self.loss;
        let retransmits = (expected + libm::sqrt(expected) * draw.normal()).max(0.0) as u64;
        format!(
            r#"{{"start":{{"test_start":{{"protocol":"TCP","reverse":1}}}},"intervals":[{}],
            "end":{{"sum_sent":{{"bytes":{bytes},"retransmits":{retransmits}}},
                "sum_received":{{"bits_per_second":{bits}}},
            "streams":[{{"sender":{{"mean_rtt":0,"min_rtt":0,"max_rtt":0}}}}]}}}}"#,
            intervals.join(",")
        )
    }
}

/// An interval of the gain.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct GainInterval {
    /// Ratios of times, that hold 90 % of the variants.
    pub interval: (f64, f64),
    /// Of their logarithms.
    pub width: f64,
    /// Whether the truth is inside.
    pub holds: bool,
}

/// One pair of links.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Links {
    /// The true paths, as `--path` reads them.
    pub paths: Vec<String>,
    /// The true gain, a ratio of times.
    pub gain: f64,
    /// By what is stated alone.
    pub stated: GainInterval,
    /// With measurements, over the variants that are plausible then.
    pub alone: GainInterval,
    /// The same, and still plausible by what is stated ([`Gain::narrowed_by`]): what `advise` says.
    pub measured: GainInterval,
}

/// How it went.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Narrowing {
    /// Every pair.
    pub links: Vec<Links>,
}

impl Narrowing {
    /// Pairs whose interval got wider by more than 5 %.
    pub fn wider(&self) -> usize {
        self.links.iter().filter(|links| links.measured.width > WIDER * links.stated.width).count()
    }

    /// Pairs whose interval would have got wider by more than 5 % if what is stated had not counted too.
    pub fn wider_alone(&self) -> usize {
        self.links.iter().filter(|links| links.alone.width > WIDER * links.stated.width).count()
    }

    /// Pairs whose interval held the truth before measuring, and after.
    pub fn held(&self) -> (usize, usize) {
        let count = |of: fn(&Links) -> bool| self.links.iter().filter(|links| of(links)).count();
        (count(|links| links.stated.holds), count(|links| links.measured.holds))
    }

    /// The mean width after measuring, over that before.
    pub fn ratio(&self) -> f64 {
        let ratios: Vec<f64> =
            self.links.iter().map(|links| links.measured.width / links.stated.width).collect();
        stats::mean(&ratios)
    }
}

/// The logarithm of `minrtt`'s time over that of plain TCP on the first path, a mean over seeds.
fn gain(
    registries: &Registries,
    scenario: &Arc<Scenario>,
    seeds: std::ops::Range<u64>,
) -> Result<f64, SpecError> {
    let time = |name: &str, mode, seed| {
        let result = ropewalk_sim::run(&RunSpec {
            scenario: Arc::clone(scenario),
            scheduler: registries.schedulers.parse(name)?,
            congestion: registries.congestion.parse(DEFAULT_NAME)?,
            mode,
            seed,
            start_phase: Span::ZERO,
            recording: Recording::default(),
        });
        Ok(libm::log(result.flows[0].fct.unwrap_or(scenario.limit).as_nanos() as f64))
    };
    let logs: Result<Vec<f64>, SpecError> = seeds
        .map(|seed| Ok(time("minrtt", Mode::Multipath, seed)? - time("single", Mode::SinglePath(0), seed)?))
        .collect();
    Ok(stats::mean(&logs?))
}

fn around(paths: Vec<PathSpec>) -> Scenario {
    Scenario { workload: Workload::Flow { bytes: 1 << 20 }, ..scenario::default_around(paths) }
}

/// One pair.
fn pair(registries: &Registries, number: u64) -> Result<Links, SpecError> {
    let wrong =
        |error: ropewalk_settings::diagnostic::Diagnostic| SpecError { message: error.message, span: (0, 0) };
    let mut draw = Draw(Pcg64::new(u128::from(number), 0x11a3));
    let truths = [Truth::draw(&mut draw), Truth::draw(&mut draw)];
    let texts = vec![truths[0].text("a"), truths[1].text("b")];
    let paths =
        texts.iter().map(|text| scenario::path(text)).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let real = around(paths);
    let true_gain = gain(registries, &Arc::new(real.clone()), 0..TRUTH_SEEDS)?;
    let mut stated = real;
    for path in &mut stated.paths {
        let normal = [0; 4].map(|_| draw.normal());
        perturb(path, &Doubt::default(), normal, 0.0);
    }
    let mut measured = (stated.clone(), [Doubt::default(); 2]);
    for (index, truth) in truths.iter().enumerate() {
        let texts = [truth.ping(&mut draw), truth.iperf(&mut draw)];
        let files = texts.iter().map(|text| measure::parse("f", text)).collect::<Result<Vec<_>, _>>();
        let known = stated.paths[index].clone();
        let name = known.name.clone();
        let found = measure::refine(&name, Some(known), &files.map_err(wrong)?).map_err(wrong)?;
        (measured.0.paths[index], measured.1[index]) = (found.path, found.doubt);
    }
    let gains = |(scenario, doubts): (Scenario, [Doubt; 2])| {
        let variants = worlds(&scenario, &doubts, VARIANTS, number);
        let logs: Result<Vec<f64>, SpecError> = variants
            .iter()
            .zip(0..)
            .map(|(variant, place)| {
                let first = FIRST_SEED + SEEDS * place;
                gain(registries, variant, first..first + SEEDS)
            })
            .collect();
        Ok(Gain::of(&logs?))
    };
    let before = gains((stated, [Doubt::default(); 2]))?;
    let after = gains(measured)?;
    let gain = libm::exp(true_gain);
    let span = |of: Gain| {
        let (low, high) = of.interval;
        GainInterval {
            interval: of.interval,
            width: libm::log(high / low),
            holds: (low..=high).contains(&gain),
        }
    };
    Ok(Links {
        paths: texts,
        gain,
        stated: span(before),
        alone: span(after),
        measured: span(after.narrowed_by(&before)),
    })
}

/// Tests so many pairs; what is in the store isn't run again. Calls `each` with every one. None if it was
/// stopped.
///
/// # Errors
/// If `minrtt` or `cubic` isn't registered.
pub fn narrowing(
    registries: &Registries,
    pairs: usize,
    seed: u64,
    store: &(dyn Kept<Links> + Sync),
    execution: Execution<'_>,
    each: impl Fn() + Sync,
) -> Result<Option<Narrowing>, SpecError> {
    let found = make_kept(("narrowing", pairs, seed), store, execution, each, |seed| pair(registries, seed))?;
    Ok(found.map(|links| Narrowing { links }))
}
