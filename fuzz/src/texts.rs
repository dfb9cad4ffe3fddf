//! What the fuzz targets of texts check, as [`checks`](super::checks) does for packets: measurements that
//! `ropewalk advise` reads, and the scenarios and sweeps that people write. `cargo test -p ropewalk-lab`
//! replays their corpora.

use std::path::Path;

use ropewalk_algorithms::Registries;
use ropewalk_engine::Span;
use ropewalk_lab::advise::measure;
use ropewalk_lab::{scenario, sweep};
use ropewalk_settings::diagnostic::Source;

/// A check.
pub type Check = fn(&[u8]);

/// All of them by name.
pub const CHECKS: [(&str, Check); 6] = [
    ("measured_ping", measured_ping),
    ("measured_ss", measured_ss),
    ("measured_iperf", measured_iperf),
    ("measured_trace", measured_trace),
    ("scenario_file", scenario_file),
    ("sweep_file", sweep_file),
];

/// What is read makes a path that can be simulated, or is refused in words.
fn makes_a_path<E>(found: Result<measure::Measured, E>) {
    let Ok(found) = found else { return };
    for rtt in [found.rtt, found.under_load].into_iter().flatten() {
        assert!(rtt.min >= 0.0 && rtt.mean.is_finite() && rtt.sd >= 0.0 && rtt.max.is_finite());
    }
    if let Some(measure::Counted { lost, sent, .. }) = found.loss {
        assert!(lost <= sent && sent > 0);
    }
    for rate in &found.rates {
        assert!((1000.0..=1e12).contains(&rate.bits) && rate.sd > 0.0);
    }
    let known = scenario::path("p: 10 Mbit/s, 20 ms").expect("a plain path");
    let refined = measure::refine("p", Some(known), &[found]).expect("nothing is missing");
    assert!(refined.path.down.delay < Span::from_secs(60));
}

/// Any bytes as the output of `ping`.
pub fn measured_ping(data: &[u8]) {
    makes_a_path(measure::parse_ping(&String::from_utf8_lossy(data)));
}

/// Any bytes as the output of `ss -ti`.
pub fn measured_ss(data: &[u8]) {
    makes_a_path(measure::parse_ss(&String::from_utf8_lossy(data)));
}

/// Any bytes as the output of `iperf3 --json`.
pub fn measured_iperf(data: &[u8]) {
    makes_a_path(measure::parse_iperf(&String::from_utf8_lossy(data)));
}

/// Any bytes as a measurement of whichever kind, a trace too.
pub fn measured_trace(data: &[u8]) {
    makes_a_path(measure::parse("file", &String::from_utf8_lossy(data)));
}

/// Any bytes as a scenario's file: what is refused can be shown.
pub fn scenario_file(data: &[u8]) {
    let source = Source::new("file", String::from_utf8_lossy(data));
    if let Err(error) = scenario::parse(&source, "file", Path::new(""), &Registries::builtin()) {
        assert!(!error.render(false).is_empty());
    }
}

/// Any bytes as a sweep's file: what is accepted has points that can be described.
pub fn sweep_file(data: &[u8]) {
    let source = Source::new("file", String::from_utf8_lossy(data));
    match sweep::parse(&source, Path::new(""), &Registries::builtin()) {
        Err(error) => assert!(!error.render(false).is_empty()),
        Ok(design) if design.points() <= 10_000 => {
            let space = sweep::Space::new(&design);
            let levels = space.point(&design, design.points() - 1);
            assert_eq!(levels.len(), design.axes.len());
            let _ = sweep::prepare(&design, &levels, &Registries::builtin());
        }
        Ok(_) => {}
    }
}
