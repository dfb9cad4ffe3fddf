//! Measuring never makes advice worse: on links drawn at random, what is stated of them is off as much as is assumed, and a
//! ping and a transfer on the true link are added. The interval of the gain over plausible variants must not widen, and
//! must hold the truth as often as it says.
//!
//! A few links here; 200 with `cargo test --release -p ropewalk-lab --test narrowing -- --ignored --nocapture`.

use std::sync::Arc;

use rand_core::Rng;
use rand_pcg::Pcg64;
use ropewalk_lab::advise::belief::{perturb, worlds};
use ropewalk_lab::advise::{Doubt, measure};
use ropewalk_lab::{Registries, scenario, stats};
use ropewalk_sim::{Mode, PathSpec, Recording, RunSpec, Scenario, Workload};

const VARIANTS: usize = 60;

struct Draw(Pcg64);

impl Draw {
    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn log(&mut self, least: f64, most: f64) -> f64 {
        least * libm::pow(most / least, self.uniform())
    }

    fn normal(&mut self) -> f64 {
        stats::normal_quantile(self.uniform().clamp(1e-6, 1.0 - 1e-6))
    }
}

/// A link's true numbers, as `--path` reads them.
struct Truth {
    rate: f64,
    rtt: f64,
    jitter: f64,
    loss: f64,
}

impl Truth {
    fn draw(draw: &mut Draw) -> Self {
        let rtt = draw.log(10.0, 150.0);
        Truth { rate: draw.log(4.0, 60.0), rtt, jitter: rtt * 0.1, loss: draw.log(0.0002, 0.01) }
    }

    fn path(&self, name: &str) -> PathSpec {
        let Truth { rate, rtt, jitter, loss } = self;
        let text = format!(
            "{name}: {rate:.2} Mbit/s, {rtt:.2} ms +-{jitter:.2} ms, jitter normal, {:.4} %",
            loss * 100.0
        );
        scenario::path(&text).expect("a path")
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
            // The spread of each way is a standard deviation.
            let ms = (self.rtt + self.jitter / 2.0f64.sqrt() * draw.normal()).max(1.0);
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
        let retransmits = (expected + expected.sqrt() * draw.normal()).max(0.0) as u64;
        format!(
            r#"{{"start":{{"test_start":{{"protocol":"TCP","reverse":1}}}},"intervals":[{}],
            "end":{{"sum_sent":{{"bytes":{bytes},"retransmits":{retransmits}}},"sum_received":{{"bits_per_second":{bits}}},
            "streams":[{{"sender":{{"mean_rtt":0,"min_rtt":0,"max_rtt":0}}}}]}}}}"#,
            intervals.join(",")
        )
    }
}

/// The logarithm of `minrtt`'s time over that of plain TCP on the first path, a mean over seeds.
fn gain(registries: &Registries, scenario: &Arc<Scenario>, seeds: std::ops::Range<u64>) -> f64 {
    let time = |name: &str, mode, seed| {
        let result = ropewalk_sim::run(&RunSpec {
            scenario: Arc::clone(scenario),
            scheduler: registries.schedulers.parse(name).expect("known"),
            congestion: registries.congestion.parse("cubic").expect("known"),
            mode,
            seed,
            start_phase: 0,
            recording: Recording::default(),
        });
        libm::log(result.flows[0].fct.unwrap_or(60_000_000_000) as f64)
    };
    let logs: Vec<f64> = seeds
        .map(|seed| time("minrtt", Mode::Multipath, seed) - time("single", Mode::SinglePath(0), seed))
        .collect();
    stats::mean(&logs)
}

/// Width and whether the truth is inside, of what is stated and of that with measurements.
fn link(registries: &Registries, number: u64) -> [(f64, bool); 2] {
    let mut draw = Draw(Pcg64::new(u128::from(number), 0x11a3));
    let truths = [Truth::draw(&mut draw), Truth::draw(&mut draw)];
    let of = |paths: Vec<PathSpec>| {
        let mut scenario = scenario::default_around(paths);
        scenario.workload = Workload::Flow { bytes: 1 << 20 };
        scenario
    };
    let real = of(vec![truths[0].path("a"), truths[1].path("b")]);
    let true_gain = gain(registries, &Arc::new(real.clone()), 0..40);
    let mut stated = real.clone();
    for path in &mut stated.paths {
        let normal = [0; 4].map(|_| draw.normal());
        perturb(path, &Doubt::default(), normal, 0.0);
    }
    let mut measured = (stated.clone(), [Doubt::default(); 2]);
    for (index, truth) in truths.iter().enumerate() {
        let files = [truth.ping(&mut draw), truth.iperf(&mut draw)]
            .map(|text| measure::parse("f", &text).expect("read"));
        let known = stated.paths[index].clone();
        let (path, doubt) = measure::refine(&known.name.clone(), Some(known), &files).expect("a path");
        (measured.0.paths[index], measured.1[index]) = (path, doubt);
    }
    [(stated, [Doubt::default(); 2]), measured].map(|(scenario, doubts)| {
        let variants = worlds(&scenario, &doubts, VARIANTS, number);
        // Several seeds each: the width is that of what isn't known, not of chance.
        let logs: Vec<f64> = variants
            .iter()
            .enumerate()
            .map(|(place, variant)| {
                gain(registries, variant, 1000 + 4 * place as u64..1004 + 4 * place as u64)
            })
            .collect();
        let sorted = stats::sorted(&logs);
        let (low, high) = (stats::quantile(&sorted, 0.05), stats::quantile(&sorted, 0.95));
        (high - low, (low..=high).contains(&true_gain))
    })
}

/// Links whose interval widened by more than 5 %, whose truth was inside before and after, and the mean ratio of widths.
fn all(count: u64) -> (usize, usize, usize, f64) {
    let registries = Registries::builtin();
    let found: Vec<[(f64, bool); 2]> = (0..count).map(|number| link(&registries, number)).collect();
    let ratios: Vec<f64> = found.iter().map(|[stated, measured]| measured.0 / stated.0).collect();
    (
        ratios.iter().filter(|ratio| **ratio > 1.05).count(),
        found.iter().filter(|[stated, _]| stated.1).count(),
        found.iter().filter(|[_, measured]| measured.1).count(),
        stats::mean(&ratios),
    )
}

#[test]
fn measurements_narrow_the_gain() {
    let (wider, _, covered, ratio) = all(6);
    assert!(
        wider <= 1 && covered >= 4 && ratio < 0.95,
        "{wider} wider, {covered} of 6 covered, ratio {ratio}"
    );
}

#[test]
#[ignore = "200 links take some minutes"]
fn measurements_narrow_the_gain_on_200_links() {
    let (wider, before, after, ratio) = all(200);
    println!(
        "{wider} of 200 wider by more than 5 %; the truth inside {before} before, {after} after; widths' ratio {ratio:.2}"
    );
    assert!(wider <= 20 && after >= 170 && ratio < 0.8);
}
