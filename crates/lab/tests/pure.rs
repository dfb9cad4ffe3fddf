//! The laboratory opens no files, starts no threads and asks no system: what it needs of them its caller
//! hands in.

use std::path::Path;

fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn the_laboratory_needs_no_operating_system() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in ["lab", "sim", "engine", "link"] {
        let mut found = Vec::new();
        sources(&root.join(name).join("src"), &mut found);
        assert!(found.len() > 10);
        for (path, text) in found {
            // Tests may use files.
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for forbidden in [
                "std::fs",
                "std::thread::s",
                "std::process",
                "std::net::Tcp",
                "std::env::",
                "std::time::Instant",
            ] {
                assert!(!code.contains(forbidden), "{path}: {forbidden}");
            }
        }
    }
}
