//! Bad input ends with code 2, its place and what is allowed; nothing is run and no file is begun. What
//! `scenario` and `list` print.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn ropewalk(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ropewalk")).current_dir(folder).args(arguments).output().unwrap()
}

fn good(arguments: &[&str]) -> String {
    let output = ropewalk(Path::new("."), arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
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

#[test]
fn mistakes_on_the_command_line() {
    let here = tempfile::tempdir().unwrap();
    let path = "wifi: 50 Mbit/s, 20 ms";
    let of = |arguments: &[&str], expected: &[&str]| {
        refused(here.path(), &[&["compare", "--runs", "1"][..], arguments].concat(), expected);
    };
    of(
        &["--path", "wifi: 50 Mbyte, 20 ms"],
        &["--path:1:10", "`Mbyte` is a unit of neither a rate nor a time", "MByte/s"],
    );
    of(&["--path", "wifi: 50 Mbit/s, 20 parsecs"], &["--path:1:21", "`parsecs`", "20 ms"]);
    of(&["--schedulers", "minrt"], &["`minrt`", "did you mean `minrtt`?"]);
    of(&["--schedulers", "minrtt,blest,minrtt"], &["--schedulers:1:14", "`minrtt` is named twice"]);
    of(
        &["--path", "wifi: -50 Mbit/s, 20 ms"],
        &["--path:1:7", "a rate can't be negative", "1 kbit/s to 1000 Gbit/s"],
    );
    of(
        &["--path", "wifi: 50 Mbit/s, 20 ms, mtu 300 B"],
        &["--path:1:29", "out of range", "576 B to 65535 B"],
    );
    of(&["--path", "wifi: 20 ms, trace nowhere.down"], &["--path:1:20", "there is no such file"]);
    of(&["--path", "wifi: 20 ms, trace"], &["--path:1:14", "`trace` needs a file"]);
    of(&["--path", "w: 5 Mbit/s, 20 ms, backup false"], &["--path:1:28", "`backup` takes no value"]);
    of(
        &["--path", "w: 5 Mbit/s, 20 ms, 6 Mbit/s"],
        &["--path:1:21", "a rate is given twice", "the second", "the first is here"],
    );
    of(&["--path", "w: 5 Mbit/s, 20 ms, jitter pareto"], &["--path:1:21", "`20 ms +-5 ms, jitter pareto`"]);
    of(&["--path", "w: 5 Mbit/s, 20 ms +-50 %"], &["--path:1:25", "`%` is not a unit of time"]);
    of(&["--path", "w: 50 mbi/s, 20 ms"], &["--path:1:7", "did you mean `Mbit/s`?"]);
    #[cfg(unix)]
    of(&["--path", "w: 20 ms, trace /dev/zero"], &["--path:1:17", "a trace is a regular file"]);
    #[cfg(unix)]
    of(&["--scenario", "/dev/zero"], &["it is larger than 16 MiB"]);
    of(
        &["--schedulers", "minrtt,single(path=5)"],
        &["--schedulers:1:8", "there is no path 5", "0 to 1: there are 2 paths"],
    );
    refused(here.path(), &["explain", "--scheduler", "single(path=2)"], &["there is no path 2"]);
    refused(here.path(), &["emulate", "--path", path, "--path", path], &["there are two paths `wifi`"]);
    of(&["--path", path, "--path", path], &["--path:1:1", "there are two paths `wifi`"]);
    let many: Vec<String> = (0..9).map(|i| format!("p{i}: 5 Mbit/s, 20 ms")).collect();
    let nine: Vec<&str> = many.iter().flat_map(|text| ["--path", text.as_str()]).collect();
    of(&nine, &["--path:1:1", "at most 8 are allowed", "p8"]);
    of(&["--size", "0 B"], &["--size:1:1", "out of range", "1 B to 1 TiB"]);
    of(&["--size", "-5 KiB"], &["--size:1:1", "can't be negative", "1 B to 1 TiB"]);
    of(&["--size", "2 TiB"], &["--size:1:1", "1 B to 1 TiB"]);
    of(&["--size", "5 KB/s"], &["--size:1:3", "TiB"]);
    of(&["--buffer", "0 B"], &["--buffer:1:1", "out of range", "4 KiB to 4 GiB"]);
    of(&["--schedulers", ""], &["--schedulers:1:1", "no scheduler is named"]);
    of(&["--schedulers", "minrt"], &["--schedulers:1:1", "minrtt"]);
    of(&["--congestion", "cubik"], &["--congestion:1:1", "cubic"]);
    of(&["--seed", "-1"], &["--seed", "0 to 18446744073709551615"]);
    refused(here.path(), &["compare", "--runs", "-1"], &["--runs:1:1", "1 to 1000000"]);
    refused(here.path(), &["compare", "--runs", "0"], &["--runs:1:1", "1 to 1000000"]);
    refused(here.path(), &["compare", "--jobs", "-1"], &["--jobs", "1..=1024"]);
    refused(
        here.path(),
        &["compare", "--scenario", "wifi-lt"],
        &["there is no scenario `wifi-lt`", "--scenario:1:1", "did you mean `wifi-lte`?"],
    );
    refused(here.path(), &["compare", "--scenario", "none.toml"], &["none.toml", "there is no such file"]);
    refused(
        here.path(),
        &["report", "none.json"],
        &["can't read the run `none.json`: there is no such file\n"],
    );
    // Where nothing can be written, nothing is run.
    refused(
        here.path(),
        &["compare", "--csv", "none/runs.csv"],
        &["can't write `none/runs.csv`", "there is no folder `none`"],
    );
    refused(here.path(), &["compare", "--report", "."], &["can't write `.`", "it is a folder"]);
    // A mistake elsewhere begins no file.
    refused(
        here.path(),
        &["compare", "--size", "0 B", "--csv", "runs.csv", "--report", "page.html"],
        &["--size"],
    );
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 0);
}

#[test]
fn mistakes_in_files() {
    let here = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(here.path().join(name), bytes).unwrap();
    let head = "[[path]]\nname = 'a'\nrate = '10 Mbit/s'\nrtt = '20 ms'\n";
    let of = |text: &str, expected: &[&str]| {
        write("s.toml", text.as_bytes());
        for command in
            [&["scenario", "check", "s.toml"][..], &["compare", "--scenario", "s.toml", "--csv", "runs.csv"]]
        {
            refused(here.path(), command, expected);
        }
    };
    of(&head.replace("10 Mbit/s", "10 Mbyts"), &["s.toml:3:12", "`Mbyts`", "Mbit/s"]);
    of(&head.replace("20 ms", "-20 ms"), &["s.toml:4:8", "can't be negative", "0 to 24 h"]);
    of(&format!("{head}mtu = '400 B'\n"), &["s.toml:5:8", "`mtu` is out of range", "576 B to 65535 B"]);
    of(&format!("{head}colour = 'red'\n"), &["s.toml:5:1", "unknown key `colour`", "allowed: "]);
    of(
        &format!("{head}[workload]\nkind = 'flow'\nsize = '0 B'\n"),
        &["s.toml:7:9", "`size` is out of range", "1 B to 1 TiB"],
    );
    of(
        &format!("{head}rate = '5 Mbit/s'\n"),
        &["s.toml:5:1", "`rate` is given twice", "the second", "the first is here"],
    );
    of(
        &format!("{head}[client]\n[client]\n"),
        &["s.toml:6:2", "`client` is given twice", "the first is here"],
    );
    of(
        &format!("{head}loss = {{ to-bad = '1 %', to-bad = '2 %' }}\n"),
        &["s.toml:5:26", "`to-bad` is given twice", "the first is here"],
    );
    of(&format!("{head}jitter-shape = 'pareto'\n"), &["s.toml:5:1", "how delays spread", "+-5 ms"]);
    of(&format!("{head}reordering = true\n"), &["s.toml:5:1", "`reordering` says how"]);
    of(&format!("{head}[path.up]\njitter-shape = 'normal'\n"), &["s.toml:6:1", "how delays spread"]);
    of(
        &format!("{head}[[bottleneck]]\nname = 'core'\nrate = '5 Mbit/s'\n"),
        &["s.toml:6:8", "no path runs through the bottleneck `core`", "bottleneck = \"core\""],
    );
    of(&format!("{head}[experiment]\nschedulers = ['single(path=1)']\n"), &["s.toml:6:23", "only 0"]);
    of(&format!("{head}{head}"), &["s.toml:6:8", "two paths `a`"]);
    of("path = []\n", &["s.toml:1:1", "at least one path"]);
    of("name = 'x'\n", &["s.toml:1:1", "needs `path`"]);
    of("[[path]\n", &["s.toml:1:", "not valid TOML"]);
    of(&head.replace("rate = '10 Mbit/s'", "trace = 'none.down'"), &["s.toml:3:9", "no such file"]);
    write("t.down", b"1\nx\n");
    of(&head.replace("rate = '10 Mbit/s'", "trace = 't.down'"), &["t.down:2:1", "whole milliseconds"]);
    write("t.down", b"1\n\xff\xfe\n");
    of(&head.replace("rate = '10 Mbit/s'", "trace = 't.down'"), &["t.down:2:1", "is not text"]);
    write("b.toml", b"name = '\x80'\n");
    refused(here.path(), &["scenario", "check", "b.toml"], &["b.toml:1:9", "is not text"]);
    assert!(!here.path().join("runs.csv").exists());
}

#[test]
fn scenarios_are_listed_shown_and_checked() {
    let list: Value = serde_json::from_str(&good(&["scenario", "list", "--json"])).unwrap();
    let text = good(&["scenario", "list"]);
    let here = tempfile::tempdir().unwrap();
    for one in list.as_array().unwrap() {
        let name = one["name"].as_str().unwrap();
        assert!(text.contains(name) && text.contains(one["summary"].as_str().unwrap()), "{name}");
        // What is shown is a file that can be used.
        let file = here.path().join(format!("{name}.toml")).display().to_string();
        std::fs::write(&file, good(&["scenario", "show", name])).unwrap();
        let said = good(&["scenario", "check", &file]);
        assert!(
            said.contains(&format!("scenario `{name}` with ")) && said.ends_with("paths is fine\n"),
            "{said}"
        );
    }
    let one = here.path().join("one.toml").display().to_string();
    std::fs::write(&one, "[[path]]\nname = 'a'\nrate = '10 Mbit/s'\nrtt = '20 ms'\n").unwrap();
    assert!(good(&["scenario", "check", &one]).contains("with 1 path is fine"));
    let checked: Value = serde_json::from_str(&good(&["scenario", "check", &one, "--json"])).unwrap();
    assert_eq!((&checked["ok"], &checked["paths"]), (&true.into(), &1.into()));
    // Mistakes, for programs: on standard output, with code 2.
    std::fs::write(&one, "[[path]]\nname = 'a'\nrate = '10 Mbyts'\nrtt = '20 s'\ncolour = 1\n").unwrap();
    let bad = ropewalk(here.path(), &["scenario", "check", &one, "--json"]);
    assert_eq!(bad.status.code(), Some(2));
    let said: Value = serde_json::from_slice(&bad.stdout).unwrap();
    assert_eq!((&said["ok"], said["errors"].as_array().unwrap().len()), (&false.into(), 2));
    let rate = said["errors"].as_array().unwrap().iter().find(|error| error["line"] == 3).unwrap();
    assert_eq!((&rate["file"], &rate["column"]), (&one.clone().into(), &12.into()));
    assert_eq!(rate["found"], "`Mbyts`");
    assert!(rate["expected"].as_str().unwrap().contains("Mbit/s"), "{rate:#}");
    let none = ropewalk(here.path(), &["scenario", "check", "none.toml", "--json"]);
    let said: Value = serde_json::from_slice(&none.stdout).unwrap();
    assert_eq!((none.status.code(), &said["errors"][0]["found"]), (Some(2), &"named here".into()));
    let schema: Value = serde_json::from_str(&good(&["scenario", "schema"])).unwrap();
    assert!(
        schema["$schema"].as_str().unwrap().contains("2020-12") && schema["properties"]["path"].is_object()
    );
}

#[test]
fn the_list_has_every_algorithm_with_its_source() {
    let all: Value = serde_json::from_str(&good(&["list", "--json"])).unwrap();
    let text = good(&["list"]);
    for (kind, least) in [("schedulers", 19), ("congestion", 13)] {
        let entries = all[kind].as_array().unwrap();
        assert!(entries.len() >= least, "{kind}");
        for entry in entries {
            for field in ["name", "summary", "source"] {
                let value = entry[field].as_str().unwrap();
                assert!(!value.is_empty() && text.contains(value), "{entry:#}");
            }
        }
    }
}

#[test]
fn a_saved_run_is_shown_as_json_without_a_page() {
    let here = tempfile::tempdir().unwrap();
    let run = here.path().join("run.json").display().to_string();
    std::fs::write(
        &run,
        good(&["compare", "--schedulers", "minrtt", "--size", "16 KiB", "--runs", "1", "--json"]),
    )
    .unwrap();
    let shown: Value = serde_json::from_str(&good(&["report", &run, "--json"])).unwrap();
    assert_eq!(shown["kind"], "comparison");
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 1);
}

#[test]
fn every_help_has_an_example() {
    let top = good(&["--help"]);
    let commands: Vec<&str> = top
        .lines()
        .take_while(|line| !line.starts_with("Options:"))
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() >= 10, "{commands:?}");
    for command in commands {
        let help = good(&[command, "--help"]);
        assert!(help.contains("\nExample"), "{command}:\n{help}");
    }
}

#[test]
fn help_lists_the_exit_codes() {
    let help = good(&["--help"]);
    for line in
        ["2    input that can't be used, or output that can't be written", "130  interrupted by Ctrl-C"]
    {
        assert!(help.contains(line), "{help}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_code_2() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let list = Command::new(env!("CARGO_BIN_EXE_ropewalk")).arg("list").stdout(full).output().unwrap();
    assert_eq!(list.status.code(), Some(2), "{}", String::from_utf8_lossy(&list.stderr));
    assert!(String::from_utf8_lossy(&list.stderr).contains("standard output"));
}

/// In a terminal of 80 columns: examples are whole commands, to be copied.
#[test]
fn examples_in_help_fit_80_columns() {
    for command in
        ["compare", "explain", "advise", "sweep", "emulate", "perf client", "perf server", "shadow"]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
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
