//! Replays corpora with the targets' own checks: the tests of the crates include this file.

use std::path::Path;

type Check = fn(&[u8]);

/// Each file of each target's corpus.
pub fn replay(checks: &[(&str, Check)]) {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, check) in checks {
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
