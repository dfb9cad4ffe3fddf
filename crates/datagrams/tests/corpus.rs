//! Replays the corpora of fuzz targets with the targets' own checks (see docs/fuzzing.md).

#[path = "../../../fuzz/src/datagrams.rs"]
mod checks;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn every_corpus_passes_its_check() {
    replay::replay(&checks::CHECKS);
}
