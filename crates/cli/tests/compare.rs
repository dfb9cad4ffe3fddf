//! `ropewalk compare`, `scenario` and `list` as processes.

use std::process::{Command, Output};

fn ropewalk(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ropewalk")).args(arguments).output().unwrap()
}

fn good(arguments: &[&str]) -> String {
    let output = ropewalk(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn threads_change_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    let file = |jobs: &str| folder.path().join(format!("{jobs}.csv")).display().to_string();
    let all = |jobs: &str| {
        let base = ["compare", "--schedulers", "minrtt,redundant", "--size", "64 KiB", "--runs", "6"];
        let text = good(&[&base[..], &["--jobs", jobs, "--csv", &file(jobs)]].concat());
        let json = good(&[&base[..], &["--jobs", jobs, "--json", "--trace"]].concat());
        (text, json, std::fs::read_to_string(file(jobs)).unwrap())
    };
    assert!(all("1") == all("3"));
}
