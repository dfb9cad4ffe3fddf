//! Replays the corpora of fuzz targets with the targets' own checks (see docs/fuzzing.md), and damages those
//! of measurements.

use std::sync::OnceLock;

use proptest::prelude::*;

#[path = "../../../fuzz/src/texts.rs"]
mod checks;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn every_corpus_passes_its_check() {
    replay::replay(&checks::CHECKS);
}

/// One of each format that `advise --measured` reads.
fn samples() -> &'static [Vec<u8>] {
    static ALL: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/measured_trace");
        let entries = std::fs::read_dir(folder).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
    })
}

proptest! {
    #[test]
    fn a_damaged_measurement_is_read_or_refused(
        which in 0usize..10_000,
        (at, cut) in (0.0f64..1.0, 0usize..40),
        with in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..6),
            "[-0-9.,:;%/eE]{0,8}".prop_map(String::into_bytes),
        ],
        doubled in any::<bool>(),
    ) {
        let all = samples();
        let mut bytes = all[which % all.len()].clone();
        let at = (at * bytes.len() as f64) as usize;
        let end = (at + cut).min(bytes.len());
        bytes.splice(at..end, with);
        checks::measured_trace(&bytes);
        checks::measured_trace(&bytes[..at]);
        if doubled {
            checks::measured_trace(&bytes.repeat(2));
        }
    }
}
