//! The command line.

use std::path::Path;
use std::process::{Command, Output};

fn ropewalk(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ropewalk-papers")).current_dir(folder).args(arguments).output().unwrap()
}

/// Code 2, nothing printed, all of `expected` in the message.
fn refused(folder: &Path, arguments: &[&str], expected: &[&str]) {
    let output = ropewalk(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty() && !errors.contains("panicked"), "{arguments:?}: {errors}");
    for part in expected {
        assert!(errors.contains(part), "{arguments:?}: no `{part}` in\n{errors}");
    }
}

/// The overview of the simulator's results isn't written over that of the results in real time, nor the other
/// way round.
#[test]
fn an_overview_of_the_other_world_stays() {
    let here = tempfile::tempdir().unwrap();
    let page = here.path().join("page.md");
    let renew = ["reproduce", "notes", "all", "--report", "page.md"];
    for (title, world, what) in [
        ("# Reproduction in real time", "simulated", "page.md is the overview of results in real time"),
        ("# Reproduction", "emulated", "page.md is the overview of simulated results"),
    ] {
        std::fs::write(&page, format!("{title}\n\nMade by")).unwrap();
        refused(here.path(), &[&renew[..], &["--world", world]].concat(), &[what, "name another file"]);
        refused(
            here.path(),
            &["reproduce", "run", "cfs-2019", "--world", world, "--report", "page.md"],
            &[what],
        );
        assert_eq!(std::fs::read_to_string(&page).unwrap(), format!("{title}\n\nMade by"));
    }
}

/// Before anything runs.
#[test]
fn an_entrant_without_others_is_refused_at_once() {
    let here = tempfile::tempdir().unwrap();
    let files = |more: &[&'static str]| [&["arena", "--cells", "drawn", "--files", "cells"], more].concat();
    refused(here.path(), &files(&["--schedulers", "cfs"]), &["name several schedulers"]);
    refused(
        here.path(),
        &files(&["--schedulers", "cfs,minrtt", "--judge", "blest"]),
        &["`blest` isn't among the schedulers that run"],
    );
    assert!(!here.path().join("cells").exists());
}

#[test]
fn a_policy_from_a_file_is_a_scheduler_of_the_arena() {
    let policy = concat!("policy:", env!("CARGO_MANIFEST_DIR"), "/../lab/tests/policies/least-srtt.json");
    let both = format!("{policy},minrtt");
    let here = tempfile::tempdir().unwrap();
    let drawn =
        ["--cells", "drawn", "--draw", "3", "--paths", "2", "--runs", "2", "--state", "state", "--json"];
    let output = ropewalk(here.path(), &[&["arena", "--schedulers", &both][..], &drawn].concat());
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains(policy), "{told}");
}

/// In a terminal of 80 columns: examples are whole commands, to be copied.
#[test]
fn examples_in_help_fit_80_columns() {
    for command in ["reproduce", "arena", "validate", "gallery"] {
        let output = Command::new(env!("CARGO_BIN_EXE_ropewalk-papers"))
            .args(command.split(' '))
            .arg("--help")
            .env("COLUMNS", "80")
            .output()
            .unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
        let examples: Vec<&str> = examples.take_while(|line| !line.is_empty()).collect();
        assert!(!examples.is_empty(), "{command}");
        for line in examples {
            assert!(line.starts_with("  "), "{command}: `{line}` was wrapped");
        }
    }
}
