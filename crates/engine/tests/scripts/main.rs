//! Packet scripts: segments with times in, segments with times out, against an [`Endpoint`] in virtual time.
//! See `docs/packet-scripts.md`.
//!
//! [`Endpoint`]: ropewalk_engine::endpoint::Endpoint

mod language;
mod runner;
mod segments;
mod settings;
#[path = "../common/split_mix.rs"]
mod split_mix;

use std::path::{Path, PathBuf};

/// Scripts of behaviour that is known to be wrong.
const KNOWN_DEFECTS: &str = "known-defects";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// Every script below a folder, in order.
fn scripts(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            scripts(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            found.push(path);
        }
    }
}

fn run(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let shown = path.strip_prefix(folder()).unwrap_or(path).display();
    let run = || runner::run(&language::parse(&text)?);
    // A panic of the engine's is a failure of the script that caused it.
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    let outcome = outcome.map_err(|_| format!("{shown}: the engine panicked"))?;
    outcome.map_err(|mistake| {
        let line = text.lines().nth(mistake.line.saturating_sub(1)).unwrap_or_default().trim();
        format!("{shown}:{}: {}\n    expected: {line}", mistake.line, mistake.text)
    })
}

/// `cargo test --test scripts -- --nocapture` with `SCRIPT=part-of-a-name` runs some of them.
fn chosen(path: &Path) -> bool {
    std::env::var("SCRIPT").is_ok_and(|part| path.to_string_lossy().contains(&part))
        || std::env::var("SCRIPT").is_err()
}

#[test]
fn every_script_holds() {
    let mut all = Vec::new();
    scripts(&folder(), &mut all);
    all.retain(|path| !path.components().any(|part| part.as_os_str() == KNOWN_DEFECTS) && chosen(path));
    let failures: Vec<String> = all.iter().filter_map(|path| run(path).err()).collect();
    println!("{} scripts", all.len());
    assert!(
        failures.is_empty(),
        "{} of {} scripts fail:\n\n{}\n",
        failures.len(),
        all.len(),
        failures.join("\n\n")
    );
}

/// A script of a known defect begins with `// fails: TEXT`; the text is part of the failure. When the defect
/// is mended the script moves to the others.
#[test]
fn known_defects_still_fail_as_stated() {
    let folder = folder().join(KNOWN_DEFECTS);
    let mut all = Vec::new();
    if folder.exists() {
        scripts(&folder, &mut all);
    }
    for path in all.iter().filter(|path| chosen(path)) {
        let text = std::fs::read_to_string(path).expect("a script");
        let stated = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("// fails: "))
            .expect("`// fails: TEXT` first");
        match run(path) {
            Ok(()) => panic!("{}: it holds now: move it to the other scripts", path.display()),
            Err(failure) => {
                assert!(failure.contains(stated), "fails in another way than stated ({stated}): {failure}")
            }
        }
    }
}
