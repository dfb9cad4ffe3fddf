//! Replays the corpora of the fuzz targets of texts with the targets' own checks (see docs/fuzzing.md).

#[path = "../../../fuzz/src/texts.rs"]
mod texts;

use std::path::Path;

#[test]
fn every_corpus_passes_its_check() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, check) in texts::CHECKS {
        let mut replayed = 0;
        for entry in std::fs::read_dir(corpora.join(name)).expect("a corpus for each target") {
            let path = entry.expect("a readable folder").path();
            let data = std::fs::read(&path).expect("a readable file");
            // The name of the file at fault must be in the output.
            println!("{}", path.display());
            check(&data);
            replayed += 1;
        }
        assert!(replayed >= 10, "{name}: only {replayed} files");
    }
}
