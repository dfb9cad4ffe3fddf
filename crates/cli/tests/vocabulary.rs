//! `--path`, `--scenario`, `--schedulers`, `--size` and `--direction` mean the same in every command that
//! runs transfers: each pair of a command and an option is tried with a value that it must take and with one
//! that it must refuse, in words.

use std::process::{Command, Output};

fn ropewalk(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ropewalk")).args(arguments).output().unwrap()
}

/// What makes a command quick, and what of its output shows that it heard: by option.
const COMMANDS: [(&str, &[&str]); 4] = [
    ("compare", &["--runs", "1"]),
    ("explain", &[]),
    ("advise", &["--budget", "50 ms", "--json"]),
    ("sweep", &["--check"]),
];

const A: &str = "uno: 20 Mbit/s, 20 ms";
const B: &str = "due: 16/1 Mbit/s, 30 ms";

/// An option, values that are taken, and one that is refused.
type Row = (&'static str, &'static [&'static str], &'static str);

const OPTIONS: [Row; 5] = [
    ("--path", &["--path", A, "--path", B], "uno: 20 Mbyts, 20 ms"),
    ("--scenario", &["--scenario", "equal-paths"], "eqal-paths"),
    ("--schedulers", &["--schedulers", "blest,minrtt"], "blets"),
    ("--size", &["--size", "20 KiB"], "20 KiBit"),
    ("--direction", &["--direction", "upload"], "sideways"),
];

#[test]
fn every_command_takes_every_option() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    let text = "scenario = 'wifi-lte'\nschedulers = ['minrtt']\nruns = 1\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    for (command, quick) in COMMANDS {
        for (option, good, bad) in OPTIONS {
            let mut line = vec![command];
            if command == "sweep" {
                line.push(file);
            }
            line.extend(quick);
            // Something small, where the option itself isn't the size.
            let small: &[&str] = if option == "--size" { &[] } else { &["--size", "20 KiB"] };
            let taken = ropewalk(&[&line, good, small].concat());
            let said = String::from_utf8_lossy(&taken.stderr).into_owned();
            assert!(taken.status.success(), "{command} {good:?}: {said}");
            let refused = ropewalk(&[&line[..], &[option, bad]].concat());
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert_eq!(refused.status.code(), Some(2), "{command} {option} {bad}: {said}");
            assert!(said.contains(option), "{command} {option} {bad}: {said}");
        }
    }
}

#[test]
fn emulate_takes_them_too_and_refuses_what_a_program_decides() {
    for (option, _, bad) in OPTIONS {
        let refused = ropewalk(&["emulate", option, bad]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{option}: {said}");
        assert!(said.contains(option), "{option}: {said}");
    }
    for good in [
        ["--schedulers", "blest"],
        ["--size", "1 MiB"],
        ["--direction", "upload"],
        ["--join", "early"],
        ["--open-on", "lte"],
    ] {
        let refused = ropewalk(&["emulate", good[0], good[1], "--", "true"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{good:?}: {said}");
        assert!(said.contains("here the program decides"), "{said}");
    }
}

/// Opened on the slow path, a transfer ends earlier if the other one joins a round trip sooner.
#[test]
fn joins_begin_early_where_that_is_asked_for() {
    let time = |join: &[&str]| {
        let line = [
            "compare",
            "--path",
            "a: 5 Mbit/s, 100 ms",
            "--path",
            "b: 25 Mbit/s, 20 ms",
            "--size",
            "512 KiB",
        ];
        let output =
            ropewalk(&[&line[..], &["--schedulers", "ropewalk", "--runs", "1", "--json"], join].concat());
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = found["rankings"][0]["rows"].as_array().unwrap().clone();
        rows.iter().find(|row| row["scheduler"] == "ropewalk").unwrap()["fct_mean_s"].as_f64().unwrap()
    };
    let (usual, late, early) = (time(&[]), time(&["--join", "late"]), time(&["--join", "early"]));
    assert!(usual == late && early < late - 0.01, "{usual} {late} {early}");
    let refused = ropewalk(&["perf", "client", "127.0.0.1", "--open-on", "race"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("--open-on is the engine's"), "{said}");
    let refused = ropewalk(&["perf", "client", "127.0.0.1", "--join", "early"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("--join early is the engine's"), "{said}");
}

#[test]
fn what_is_named_is_what_runs() {
    let of = |arguments: &[&str]| {
        let output = ropewalk(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let paths = ["--path", A, "--path", B, "--size", "20 KiB"];
    let explained = of(&[&["explain", "--schedulers", "blest,minrtt"][..], &paths].concat());
    assert!(explained.contains("blest, one flow of 20 KiB:") && explained.contains("uno"), "{explained}");
    let advised =
        of(&[&["advise", "--schedulers", "blest", "--budget", "50 ms", "--json"][..], &paths].concat());
    assert!(advised.contains("\"blest\"") && !advised.contains("\"ecf\""), "{advised}");
    let upload =
        of(&[&["compare", "--runs", "1", "--direction", "upload", "--schedulers", "blest"][..], &paths]
            .concat());
    assert!(upload.contains("upload"), "{upload}");
    let down = of(&[&["compare", "--runs", "1", "--json", "--schedulers", "tcp"][..], &paths].concat());
    let up = of(&[
        &["compare", "--runs", "1", "--json", "--schedulers", "tcp", "--direction", "upload"][..],
        &paths,
    ]
    .concat());
    let due = |text: &str| {
        let found: serde_json::Value = serde_json::from_str(text).unwrap();
        let rows = found["rankings"][0]["rows"].as_array().unwrap();
        rows.iter().find(|row| row["scheduler"] == "tcp due").unwrap()["fct_mean_s"].as_f64().unwrap()
    };
    // 16 down, 1 up.
    assert!(due(&up) > 2.0 * due(&down), "{} {}", due(&up), due(&down));
}
