//! The files and functions that ARCHITECTURE.md names exist, and no file of tests is left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The sources of a row's file; of all algorithms where the row says `NAME.rs`.
fn sources(file: &str) -> String {
    let path = if file.starts_with("crates/") {
        root().join(file)
    } else {
        root().join("crates/engine/src").join(file)
    };
    if path.file_name().is_some_and(|name| name == "NAME.rs") {
        let folder = path.parent().expect("a folder");
        let files = fs::read_dir(folder).expect("a folder of algorithms");
        let files = files.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file());
        return files.map(|path| fs::read_to_string(path).expect("a source file")).collect();
    }
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_table_of_common_changes_names_what_exists() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let table = page.split("## Where do I change").nth(1).expect("the table");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with("| ") && line.contains('`'))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() >= 8, "{} rows", rows.len());
    for row in rows {
        let [_, _, file, functions, with, ..] = row[..] else { panic!("{row:?}") };
        let source = sources(quoted(file).first().expect("a file"));
        for name in quoted(functions) {
            let name = name.rsplit("::").next().expect("a name");
            assert!(source.contains(name.trim_end_matches('!')), "{name} is not in {file}");
        }
        let is_file = |name: &str| name.contains('/') && name.ends_with(".rs");
        // "`function` (`file.rs`)": the file has the function.
        let parts: Vec<&str> = with.split('`').collect();
        for (index, path) in parts.iter().enumerate().skip(1).step_by(2).filter(|(_, name)| is_file(name)) {
            let source = sources(path);
            if index >= 3 && parts[index - 1] == " (" {
                let name = parts[index - 2].rsplit("::").next().expect("a name");
                assert!(source.contains(name.trim_end_matches('!')), "{name} is not in {path}");
            }
        }
    }
}

/// All sources below a folder, as one text.
fn all_sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let text = |path: PathBuf| match path.extension() {
        _ if path.is_dir() => all_sources(&path),
        Some(kind) if kind == "rs" => fs::read_to_string(&path).expect("a source file"),
        _ => String::new(),
    };
    entries.map(text).collect()
}

#[test]
fn the_way_of_a_segment_names_each_function_once() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let way = page.split("## How a segment is sent").nth(1).expect("the way of a segment");
    let source = all_sources(&root().join("crates/engine/src"));
    let mut seen = BTreeSet::new();
    for name in quoted(way) {
        assert!(seen.insert(name), "{name} is named twice");
        let last = name.rsplit("::").next().expect("a name");
        let is_type = last.starts_with(|c: char| c.is_ascii_uppercase());
        let kinds: &[&str] = if is_type { &["struct", "enum", "trait", "   "] } else { &["fn"] };
        let is_there = |kind: &&str| {
            ["(", "<", " ", ","].iter().any(|end| source.contains(&format!("{kind} {last}{end}")))
        };
        assert!(kinds.iter().any(is_there), "there is no {name}");
    }
    assert!(seen.len() > 30, "{} functions", seen.len());
}

#[test]
fn every_file_of_tests_is_in_a_program() {
    let mut seen = 0;
    for package in fs::read_dir(root().join("crates")).unwrap() {
        let package = package.unwrap().path();
        if !package.join("tests").exists() {
            continue;
        }
        let manifest = fs::read_to_string(package.join("Cargo.toml")).unwrap();
        // `./test` runs the programs that the manifests name.
        assert!(manifest.contains("autotests = false"), "{}", package.display());
        let modules = fs::read_to_string(package.join("tests/main.rs")).unwrap_or_default();
        for entry in fs::read_dir(package.join("tests")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let is_program = manifest.contains(&format!("path = \"tests/{name}.rs\""))
                || manifest.contains(&format!("path = \"tests/{name}/main.rs\""));
            let is_module = modules.contains(&format!("\nmod {name};"));
            let has_tests =
                path.extension().is_some_and(|kind| kind == "rs") || path.join("main.rs").exists();
            assert!(!has_tests || is_program || is_module, "{} is in no test program", path.display());
            seen += usize::from(is_module);
        }
    }
    assert!(seen > 50, "{seen} modules");
}

#[test]
fn a_connection_has_fewer_than_100_methods() {
    let source = all_sources(&root().join("crates/engine/src"));
    let blocks = source.split("\nimpl<P: Payload> Connection<P> {\n").skip(1);
    let is_method = |line: &&str| {
        let line = line.strip_prefix("    ").unwrap_or_default();
        let line = line.strip_prefix("pub").map_or(line, |rest| rest.trim_start_matches("(crate)"));
        line.trim_start_matches("(super)").trim_start_matches(' ').starts_with("fn ")
            && !line.starts_with("     ")
    };
    let methods =
        |block: &str| block.split("\n}").next().unwrap_or_default().lines().filter(is_method).count();
    let count: usize = blocks.map(methods).sum();
    // A rule that concerns few of its parts is a method of a type that borrows just these: `Sending`,
    // `Joining`.
    assert!((50..100).contains(&count), "{count} methods");
}

/// Below a folder, all sources in Rust.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| match path.extension() {
        _ if path.is_dir() && path.file_name().is_some_and(|name| name != "target") => rust_files(&path),
        Some(kind) if kind == "rs" => vec![path],
        _ => Vec::new(),
    };
    entries.flat_map(below).collect()
}

#[test]
fn a_file_fits_a_head_and_a_line_a_screen() {
    // A row of a table can't be wrapped.
    let may_be_long = |line: &str| line.trim_start().starts_with("/// |") || line.starts_with("//! |");
    for path in rust_files(&root().join("crates")) {
        let text = fs::read_to_string(&path).expect("a source file");
        let lines = text.lines().count();
        assert!(lines <= 600, "{} has {lines} lines: at most 600", path.display());
        for (number, line) in text.lines().enumerate() {
            let fits = line.chars().count() <= 110 || may_be_long(line);
            assert!(fits, "{}:{}: longer than 110 columns", path.display(), number + 1);
        }
    }
}
