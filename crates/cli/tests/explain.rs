//! `ropewalk explain` over every scheduler that `ropewalk list` names: a sentence per decision with the
//! path's name and numbers, and the same as JSON Lines.

use std::process::Command;

use serde_json::Value;

fn ropewalk(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_ropewalk")).args(arguments).output().expect("the command runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn explain(scheduler: &str, more: &[&str]) -> String {
    let mut arguments =
        vec!["explain", "--scenario", "wifi-lte", "--size", "400 KiB", "--scheduler", scheduler];
    arguments.extend(more);
    ropewalk(&arguments)
}

fn names() -> Vec<String> {
    let list: Value = serde_json::from_str(&ropewalk(&["list", "--json"])).expect("JSON");
    let schedulers = list["schedulers"].as_array().expect("a list");
    schedulers.iter().map(|entry| entry["name"].as_str().expect("a name").to_string()).collect()
}

#[test]
fn every_scheduler_explains_each_decision_in_prose_and_as_json_lines() {
    let names = names();
    assert!(names.len() >= 19, "{names:?}");
    for name in names {
        let (prose, lines) = (explain(&name, &[]), explain(&name, &["--json"]));
        let decisions: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("one JSON value a line")).collect();
        let mut placed = 0;
        for (sentence, decision) in prose.lines().zip(&decisions) {
            let reason = decision["reason"].as_str().expect("a reason");
            assert!(reason.chars().any(|c| c.is_ascii_digit()), "{name}: `{reason}` has no number");
            let at = decision["t_ms"].as_f64().expect("a time");
            assert!(sentence.starts_with(&format!("t={at:.1} ms: ")), "{name}: `{sentence}` at {at}");
            assert!(sentence.ends_with(reason), "{name}: `{sentence}` against `{reason}`");
            let path = decision["path"].as_str();
            match decision["decision"].as_str() {
                Some("wait") => assert!(path.is_none() && sentence.contains(" ms: wait"), "{sentence}"),
                Some("send" | "send-at" | "queue" | "duplicate") => {
                    assert!(
                        path.is_some_and(|path| sentence.contains(&format!(" on {path}: "))),
                        "{sentence}"
                    );
                    placed += decision["bytes"].as_u64().expect("bytes");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(placed >= 400 << 10, "{name}: {placed} bytes");
        let last = prose.lines().last().expect("a summary");
        assert!(last.starts_with(&format!("{} decisions, done after ", decisions.len())), "{name}: {last}");
        assert_eq!(prose.lines().count(), decisions.len() + 1, "{name}");
    }
}

#[test]
fn a_wrong_parameter_lists_the_right_ones_and_ends_with_2() {
    let output = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .args(["explain", "--scheduler", "ecf(gamma=1)"])
        .output()
        .expect("the command runs");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("beta (a number from 0 to 4; default 0.25)"), "{text}");
}

#[test]
fn the_examples_filter_finds_waits() {
    let waits = String::from_utf8(
        Command::new(env!("CARGO_BIN_EXE_ropewalk"))
            .args(["explain", "--schedulers", "ecf(beta=0.5)", "--size", "1 MiB", "--json"])
            .output()
            .unwrap()
            .stdout,
    )
    .unwrap();
    assert!(waits.lines().filter(|line| line.contains("\"decision\":\"wait\"")).count() > 10);
}

#[test]
fn it_explains_the_very_runs_that_compare_does() {
    // Nothing is random: runs differ in the time at which they start, all over the period of the outages.
    let paths =
        ["--path", "sky: 20 Mbit/s, 40 ms, outage 400 ms every 2 s", "--path", "lte: 20 Mbit/s, 60 ms"];
    let common = [&paths[..], &["--size", "64 KiB", "--schedulers", "minrtt"]].concat();
    let compared: Value =
        serde_json::from_str(&ropewalk(&[&["compare", "--json"], &common[..]].concat())).expect("JSON");
    let rows = compared["rankings"][0]["rows"].as_array().expect("rows");
    let minrtt = rows.iter().find(|row| row["scheduler"] == "minrtt").expect("minrtt");
    for seed in 1..=4 {
        let text = ropewalk(&[&["explain", "--seed", &seed.to_string()], &common[..]].concat());
        let last = text.lines().last().expect("a summary");
        let ms = minrtt["fct_s"][seed - 1].as_f64().expect("a time") * 1e3;
        assert!(last.ends_with(&format!(" done after {ms:.1} ms")), "seed {seed}: {last}, {ms}");
        assert!(text.starts_with("t=0 is ") && text.contains(" into the scenario"), "seed {seed}: {text}");
    }
}
