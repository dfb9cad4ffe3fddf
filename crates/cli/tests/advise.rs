//! `ropewalk advise` as a process: that it agrees with `compare`, what it says of measurements, what it
//! refuses.

use std::process::{Command, Output};

use serde_json::Value;

fn ropewalk(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ropewalk")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = ropewalk(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = ropewalk(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

const LTE: &str = "lte: 40 Mbit/s, up 10 Mbit/s, 55 ms +-15 ms, queue 2000 packets";
const DSL: &str = "dsl: 16 Mbit/s, up 1 Mbit/s, 30 ms";

#[test]
fn advice_on_an_upload_counts_the_risk_on_both_sides() {
    // A slow path first: Multipath TCP that opens on it has ten times the capacity to wait for.
    let paths = ["--path", DSL, "--path", LTE, "--direction", "upload", "--size", "1 MiB", "--budget", "2s"];
    let compared = json(&[&["compare"][..], &paths].concat());
    let advice = json(&[&["advise"][..], &paths].concat());
    let named = compared["decision"]["named"].as_str().unwrap();
    assert_eq!(named, "tcp lte", "{:#}", compared["headline"]);
    // `compare` takes the paths to be exactly so; over their variants plain TCP is the greater risk.
    assert_eq!((&advice["multipath"], &advice["best_path"]), (&true.into(), &"lte".into()), "{advice:#}");
    let share = |key: &str| advice[key].as_f64().unwrap();
    let slower = 1.0 - share("at_most_5_percent_slower_in");
    assert!(slower <= 0.2 && share("tcp_over_5_percent_slower_in") >= slower + 0.1, "{advice:#}");
    let stands = advice["decision"]["candidates"].as_array().unwrap();
    let has = |name: &str| stands.iter().any(|one| one["scheduler"] == name);
    assert!(
        has("tcp dsl") && has("tcp lte") && has("linux") && has("linux, first subflow on dsl"),
        "{advice:#}"
    );
}

#[test]
fn what_is_not_sure_enough_is_said() {
    let paths = ["advise", "--path", DSL, "--path", LTE, "--size", "4 MiB", "--budget", "1 s", "--seed", "2"];
    let advice = json(&[&paths[..], &["--certainty", "99.9 %"]].concat());
    let sure = advice["faster_than_tcp_on_every_path_in"].as_f64().unwrap();
    assert!(sure < 0.999 && advice["multipath"] == false && advice["why"] == "not-sure", "{advice:#}");
    assert_eq!(advice["decision"]["named"], "tcp lte");
    let other = &advice["not_sure"]["gain"]["ratio"];
    assert!(other.as_f64().unwrap() < 0.98, "{advice:#}");
    for (share, reason) in [("20 %", "50 % to less than 100 %"), ("sure", "expected a")] {
        let text = refused(&["advise", "--certainty", share]);
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn the_measurement_that_would_change_the_answer_is_named() {
    let paths = ["advise", "--path", DSL, "--path", LTE, "--size", "4 MiB", "--budget", "1 s", "--seed", "2"];
    // As sure as this no answer is: what decides is how fast the links really are.
    let advice = json(&[&paths[..], &["--certainty", "99.9 %"]].concat());
    let telling = &advice["would_change"];
    assert!(["above", "below"].iter().any(|side| telling["side"] == *side), "{advice:#}");
    let candidates = advice["candidates"].as_array().unwrap();
    assert!(candidates.iter().any(|one| one["scheduler"] == telling["to"]), "{advice:#}");
    let run = telling["run"].as_str().unwrap();
    assert!(run.starts_with("iperf3") || run.starts_with("ping"), "{run}");
    let text = ropewalk(&[&paths[..], &["--certainty", "99.9 %"]].concat()).stdout;
    let text = String::from_utf8(text).unwrap();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("could change this") && words.contains(&format!("`{run}` over")), "{text}");
}

#[test]
fn long_flows_are_cut_to_what_the_budget_suffices_for() {
    let paths = ["advise", "--path", "a: 1 Gbit/s, 100 ms", "--path", "b: 500 Mbit/s, 40 ms, 0.5 %"];
    let advice =
        json(&[&paths[..], &["--size", "1 GiB", "--budget", "100 ms", "--schedulers", "linux,ecf"]].concat());
    let simulated = advice["simulated"][0].as_str().unwrap();
    assert!(simulated.starts_with("one flow of ") && simulated.ends_with(" MiB"), "{simulated}");
    let short =
        json(&[&paths[..], &["--size", "1 MiB", "--budget", "100 ms", "--schedulers", "linux,ecf"]].concat());
    assert_eq!(short["simulated"].as_array().unwrap().len(), 0, "{short:#}");
}

#[test]
fn what_was_read_is_shown_and_joined_with_what_is_stated() {
    let measured = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/measured");
    let files = format!("lte={measured}/ping.txt,{measured}/iperf3.json");
    let advice = json(&[
        "advise",
        "--path",
        "dsl: 16 Mbit/s, 30 ms",
        "--measured",
        &files,
        "--size",
        "256 KiB",
        "--budget",
        "500 ms",
        "--for",
        "linux",
    ]);
    let read = &advice["read"][0];
    assert_eq!((&read["path"], read["files"].as_array().unwrap().len()), (&"lte".into(), 2));
    let (low, high) = (read["rtt_ms"][0].as_f64().unwrap(), read["rtt_ms"][1].as_f64().unwrap());
    assert!(low < 44.6 && 44.6 < high && high / low < 1.2, "{read:#}");
    assert!(
        advice["to_type"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains("sysctl"))
    );
    let scheduler = &advice["scheduler"];
    assert!(scheduler.is_null() || scheduler == "linux", "{scheduler}");
}

#[test]
fn what_cannot_be_answered_is_refused_in_words() {
    let one = refused(&["advise", "--path", "a: 1 Mbit/s, 10 ms"]);
    assert!(one.contains("there is one path, `a`") && one.contains("add another"), "{one}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "hello").unwrap();
    let unknown = refused(&["advise", "--measured", &format!("lte={}", file.display())]);
    assert!(
        unknown.contains("no measurement of a known kind") && unknown.contains("`ping -c 30 HOST`"),
        "{unknown}"
    );
}

/// With at most so much address space, KiB, and these lines on its standard input.
#[cfg(target_os = "linux")]
fn within(kib: u64, arguments: &[&str], lines: impl Iterator<Item = String>) -> Output {
    use std::io::{BufWriter, Write};
    use std::process::Stdio;

    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {kib}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_ropewalk")])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = BufWriter::new(child.stdin.take().unwrap());
    // It may end before it has read everything.
    let _ = lines.map(|line| input.write_all(line.as_bytes())).find(Result::is_err);
    drop(input);
    child.wait_with_output().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn long_measurements_take_no_more_memory_than_short_ones() {
    let base =
        ["advise", "--path", "dsl: 16 Mbit/s, 30 ms", "--path", "lte: 20 Mbit/s, 45 ms", "--jobs", "1"];
    let rest = ["--size", "16 KiB", "--budget", "20 ms", "--schedulers", "linux", "--json"];
    let ask = |lines: &mut dyn Iterator<Item = String>| -> Value {
        let arguments = [&base[..], &["--measured", "lte=/dev/stdin"], &rest].concat();
        let output = within(240 << 10, &arguments, lines);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["read"][0].clone()
    };
    let size = 250 << 20;
    let ping = |number: u64| {
        let ms = 44.0 + (number % 11) as f64 * 0.1;
        format!(
            "[1795776123.{:06}] 64 bytes from 192.0.2.1: icmp_seq={} ttl=57 time={ms:.1} ms\n",
            number % 1_000_000,
            number % 65_536
        )
    };
    let read = ask(&mut (1..size / 80).map(ping));
    let (low, high) = (read["rtt_ms"][0].as_f64().unwrap(), read["rtt_ms"][1].as_f64().unwrap());
    assert!(low < 44.5 && 44.5 < high && high / low < 1.1, "{read:#}");
    let rates = |at: u64| format!("{at},{}.25,5\n", 18 + at % 5);
    let heading = std::iter::once("time,download_mbit_per_s,upload_mbit_per_s\n".to_string());
    let read = ask(&mut heading.chain((0..size / 17).map(rates)));
    assert!(read.to_string().contains("of its blocks of 10 s one in"), "{read:#}");
}

#[test]
fn a_router_gets_its_own_lines_and_only_what_it_has() {
    let old = ["minrtt", "roundrobin", "redundant", "blest", "ecf"];
    for (system, has) in [("openmptcprouter", &["linux"][..]), ("openmptcprouter-0.59", &old[..])] {
        let advice = json(&[
            "advise",
            "--path",
            "dsl: 16/1 Mbit/s, 30 ms",
            "--path",
            "lte: 30/10 Mbit/s, 50 ms",
            "--size",
            "4 MiB",
            "--budget",
            "500 ms",
            "--schedulers",
            "ropewalk,ecf(beta=0.5),roundrobin",
            "--for",
            system,
        ]);
        let lines: Vec<&str> =
            advice["to_type"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        let masters = lines.iter().filter(|line| line.ends_with(".multipath=master")).count();
        assert_eq!(masters, 1, "{lines:?}");
        assert!(lines.contains(&"uci commit network && /etc/init.d/mptcp restart"), "{lines:?}");
        let scheduler = &advice["scheduler"];
        assert!(scheduler.is_null() || has.iter().any(|name| scheduler == name), "{system}: {scheduler}");
        if !scheduler.is_null() {
            let key = if system == "openmptcprouter" {
                "-e net.mptcp.scheduler"
            } else {
                "net.mptcp.mptcp_scheduler"
            };
            assert!(lines.iter().any(|line| line.starts_with(&format!("sysctl {key}="))), "{lines:?}");
        }
    }
}

#[test]
fn a_phone_has_what_its_system_has() {
    let base = [
        "advise",
        "--path",
        "wifi: 20/5 Mbit/s, 30 ms",
        "--path",
        "lte: 20/5 Mbit/s, 50 ms",
        "--size",
        "4 MiB",
    ];
    let android = json(&[&base[..], &["--budget", "200 ms", "--for", "android"]].concat());
    assert_eq!(android["multipath"], false, "{android:#}");
    let apple = json(&[&base[..], &["--budget", "500 ms", "--for", "apple"]].concat());
    assert!(apple["scheduler"].is_null() || apple["scheduler"] == "linux", "{apple:#}");
}

#[test]
fn measurements_only_narrow_what_is_said() {
    let measured = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/measured");
    let files = format!("lte={measured}/ping.txt,{measured}/iperf3.json");
    let base =
        ["advise", "--path", "dsl: 16 Mbit/s, 30 ms", "--path", "lte: 20 Mbit/s, 45 ms", "--size", "4 MiB"];
    let advice = json(&[&base[..], &["--budget", "1s", "--measured", &files]].concat());
    assert_eq!(advice["multipath"], true, "{advice:#}");
    let interval = |of: &Value| {
        let at = |place: usize| of["interval_90"][place].as_f64().unwrap();
        (at(0), at(1))
    };
    let (before, after) = (interval(&advice["versus_tcp_as_stated"]), interval(&advice["versus_tcp"]));
    assert!(after.1 / after.0 < before.1 / before.0, "{before:?} {after:?}");
}
