//! `ropewalk compare` as a process: what it says of runs that are few, alike, unfinished or failed; that
//! threads change nothing.

use std::process::{Command, Output};

use serde_json::Value;

fn ropewalk(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ropewalk")).args(arguments).output().unwrap()
}

fn good(arguments: &[&str]) -> String {
    let output = ropewalk(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&good(&[arguments, &["--json"]].concat())).unwrap()
}

fn row<'a>(document: &'a Value, name: &str) -> &'a Value {
    let rows = document["rankings"][0]["rows"].as_array().unwrap();
    rows.iter().find(|row| row["scheduler"] == name).unwrap()
}

/// A run of hours ends within moments of Ctrl-C.
#[cfg(target_os = "linux")]
#[test]
fn a_comparison_is_stopped_in_the_middle_of_a_run() {
    use std::process::Stdio;
    use std::time::Duration;

    let mut running = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .args(["compare", "--size", "1 TiB", "--schedulers", "minrtt"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let sent = Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let mut waited = Duration::ZERO;
    while running.try_wait().unwrap().is_none() {
        if waited > Duration::from_secs(60) {
            running.kill().unwrap();
            panic!("it runs on after SIGINT");
        }
        waited += Duration::from_millis(20);
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_few_runs_compare_nothing_random_or_not() {
    let few = ["compare", "--path", "a: 8 Mbit/s, 20 ms", "--path", "b: 8 Mbit/s, 40 ms", "--runs", "2"];
    let text = good(&[&few[..], &["--size", "256 KiB", "--schedulers", "minrtt"]].concat());
    assert!(text.contains("can't be compared") && !text.contains("\nUse ") && !text.contains("1="), "{text}");
}

#[test]
fn the_quick_comparison_ranks_everyone() {
    let text = good(&["compare", "--runs", "6", "--size", "64 KiB"]);
    let first: Vec<&str> = text.lines().collect();
    assert!(first[0].starts_with("wifi-lte: ") && first[1].contains("6 runs each"), "{text}");
    for name in ["minrtt", "linux", "redundant", "blest", "ecf", "tcp wifi", "tcp lte"] {
        assert!(text.lines().any(|line| line.contains(&format!(" {name} "))), "{name}\n{text}");
    }
    assert!(text.contains("\nUse `") || text.contains("\nUse TCP on "), "{text}");
    assert!(text.contains("6 runs of each, as asked."), "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 100, "{widest} columns:\n{text}");
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
    let one = all("1");
    assert!(one == all("3"));
    let lines: Vec<&str> = one.2.lines().collect();
    assert_eq!(lines.len(), 1 + 6 * 5, "a line for each of minrtt, redundant, linux and two of plain TCP");
    let columns = "scenario,workload,scheduler,run,seed,outcome,seconds,bound_s,bound_window_s,\
                   repeated_bytes,retransmitted_segments,timeouts,scheduler_duplicated_bytes,\
                   opportunistic_bytes,reinjected_bytes,goodput_bit_per_s";
    assert_eq!(lines[0], columns);
    assert!(lines[1..].iter().all(|line| line.split(',').count() == 16 && line.contains(",complete,0.")));
}

/// Paths on which nothing that a run would vary by is drawn.
const STILL: [&str; 4] = ["--path", "a: 20 Mbit/s, 10 ms", "--path", "b: 5 Mbit/s, 80 ms"];

#[test]
fn too_few_runs_are_not_compared() {
    let noisy = ["compare", "--schedulers", "minrtt,redundant", "--size", "256 KiB"];
    for runs in ["1", "4"] {
        let arguments = [&noisy[..], &["--runs", runs]].concat();
        let text = good(&arguments);
        let verdict = text.trim_end().rsplit("\n\n").next().unwrap();
        assert!(verdict.contains("can't be compared: 5 are the least") && !verdict.contains('%'), "{text}");
        assert!(text.contains("too few to compare"), "{text}");
        let document = json(&arguments);
        for row in document["rankings"][0]["rows"].as_array().unwrap() {
            let versus = &row["versus_linux"];
            assert!(
                versus.is_null() || (versus["finding"] == "too few runs" && versus["p"] == 1.0),
                "{row:#}"
            );
            assert!(
                row["fct_mean_interval_s"].is_null()
                    && (row["standing"] == "open")
                        == (row["scheduler"] != document["rankings"][0]["rows"][0]["scheduler"])
            );
        }
    }
    let five = json(&[&noisy[..], &["--runs", "5"]].concat());
    assert_ne!(row(&five, "minrtt")["versus_linux"]["finding"], "too few runs");
}

#[test]
fn runs_that_are_alike_are_one_course_of_events() {
    let arguments =
        [&["compare"][..], &STILL, &["--schedulers", "minrtt", "--size", "256 KiB", "--runs", "8"]].concat();
    let document = json(&arguments);
    assert_eq!(row(&document, "tcp b")["versus_best_tcp"]["finding"], "runs alike");
    assert!(row(&document, "tcp b")["fct_mean_interval_s"].is_null());
    let notes = document["headline"]["notes"].to_string();
    assert!(notes.contains("Nothing is random here"), "{notes}");
}

#[test]
fn over_a_trace_runs_differ() {
    let document = json(&[
        "compare",
        "--scenario",
        "cellular",
        "--schedulers",
        "minrtt",
        "--size",
        "256 KiB",
        "--runs",
        "6",
    ]);
    let mut times: Vec<u64> = row(&document, "minrtt")["fct_s"]
        .as_array()
        .unwrap()
        .iter()
        .map(|time| (time.as_f64().unwrap() * 1e6) as u64)
        .collect();
    times.sort_unstable();
    times.dedup();
    assert!(times.len() >= 5, "{times:?}");
    assert!(row(&document, "minrtt")["fct_mean_interval_s"].is_array());
}

#[test]
fn runs_that_did_not_finish_are_in_no_ratio() {
    // A network that loses everything: plain TCP over it never ends, and neither does what waits for it.
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("dead.toml");
    let text = "limit = '5 s'\n[[path]]\nname = 'a'\nrate = '20 Mbit/s'\nrtt = '10 ms'\nloss = '0.5 %'\n\
        [[path]]\nname = 'b'\nrate = '5 Mbit/s'\nrtt = '80 ms'\nloss = '100 %'\n";
    std::fs::write(&scenario, text).unwrap();
    let scenario = scenario.display().to_string();
    let csv = folder.path().join("runs.csv").display().to_string();
    let base =
        ["compare", "--scenario", &scenario, "--schedulers", "minrtt", "--size", "64 KiB", "--runs", "6"];
    let text = good(&[&base[..], &["--csv", &csv]].concat());
    // But for the commands to copy, which name this file wherever it is.
    let lines = text.lines().filter(|line| !line.contains("--scenario"));
    let widest = lines.map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 100, "{widest} columns:\n{text}");
    let of = |name: &str| text.lines().find(|line| line.contains(&format!(" {name} "))).unwrap();
    assert!(
        of("tcp b").contains("> 5.00 s") && text.contains("\n6 of 6 didn't finish within 5 s: tcp b\n"),
        "{text}"
    );
    assert!(!of("tcp b").contains('%'), "no ratio: {text}");
    let runs = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(
        runs.lines().filter(|line| line.contains(",tcp b,") && line.contains(",limit,,")).count(),
        6,
        "{runs}"
    );
    let document = json(&base);
    let dead = row(&document, "tcp b");
    assert_eq!((&dead["finished_runs"], &dead["versus_linux"]["finding"]), (&0.into(), &"unfinished".into()));
    assert!(dead["fct_s"].as_array().unwrap().iter().all(Value::is_null) && dead["fct_p50_s"].is_null());
    // Over that network alone, `linux` doesn't finish either, and that is what is said.
    let only = [
        "compare",
        "--path",
        "b: 5 Mbit/s, 80 ms, 100 %",
        "--schedulers",
        "minrtt",
        "--size",
        "64 KiB",
        "--runs",
        "5",
    ];
    let text = good(&only);
    assert!(text.trim_end().ends_with("Nothing finished within 60 s (`--limit` allows more)."), "{text}");
    let shorter = good(&[&only[..], &["--limit", "2500 ms"]].concat());
    assert!(shorter.contains("5 of 5 didn't finish within 2.5 s"), "{shorter}");
    assert!(shorter.contains("Nothing finished within 2.5 s"), "{shorter}");
}

#[test]
fn bulk_names_its_measure() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("bulk.toml");
    let text = "[[path]]\nname = 'a'\nrate = '12 Mbit/s'\nrtt = '20 ms'\nqueue = '100 \
                packets'\n[workload]\nkind = 'bulk'\nduration = '2 s'\n";
    std::fs::write(&scenario, text).unwrap();
    let document = json(&[
        "compare",
        "--scenario",
        &scenario.display().to_string(),
        "--schedulers",
        "minrtt",
        "--runs",
        "5",
    ]);
    assert_eq!(
        (&document["rankings"][0]["measure"], &document["rankings"][0]["unit"]),
        (&"seconds per megabyte".into(), &"s/MB".into())
    );
    let minrtt = row(&document, "minrtt");
    let mean = minrtt["fct_mean_s"].as_f64().unwrap();
    assert!((0.68..0.85).contains(&mean), "{mean}");
    let (path, queue) = (&minrtt["paths"][0], minrtt["paths"][0]["queue_delay_max_s"].as_f64().unwrap());
    assert!(path["name"] == "a" && path["bytes_mean"].as_f64().unwrap() > 2e6 && queue > 0.0, "{path:#}");
}

#[test]
fn a_large_transfer_has_the_time_that_it_needs() {
    let slow = ["compare", "--path", "dsl: 1 Mbit/s, 30 ms", "--schedulers", "minrtt", "--runs", "1"];
    let of = |more: &[&str]| json(&[&slow[..], more].concat());
    // 84 s at the least.
    let document = of(&["--size", "10 MiB"]);
    let minrtt = row(&document, "minrtt");
    assert_eq!(minrtt["finished_runs"], 1);
    assert!((84.0..100.0).contains(&minrtt["fct_mean_s"].as_f64().unwrap()), "{minrtt:#}");
    assert!(document["limit_s"].as_f64().unwrap() > 840.0);
    // What is small keeps the sixty seconds; what is given, holds.
    assert_eq!(of(&["--size", "64 KiB"])["limit_s"], 60.0);
    let cut = of(&["--size", "10 MiB", "--limit", "30 s"]);
    assert_eq!((&cut["limit_s"], &row(&cut, "minrtt")["finished_runs"]), (&30.0.into(), &0.into()));
    assert!(cut["verdict"].as_str().unwrap().contains("within 30 s (`--limit` allows more)"), "{cut:#}");
    for (limit, reason) in [("0 s", "out of range"), ("fast", "expected a time"), ("-1 s", "negative")] {
        let output = ropewalk(&[&slow[..], &["--limit", limit]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && errors.contains("--limit:1:1"), "{errors}");
        assert!(errors.contains(reason), "{errors}");
    }
}

#[test]
fn what_is_random_is_not_called_still() {
    // So little is lost that none of these runs has a loss.
    let paths = ["--path", "a: 20 Mbit/s, 10 ms, 0.0001 %", "--path", "b: 5 Mbit/s, 80 ms"];
    let rest = ["--schedulers", "minrtt", "--size", "64 KiB", "--runs", "8"];
    let arguments = [&["compare"][..], &paths, &rest].concat();
    let document = json(&arguments);
    assert_eq!(
        (&document["random"], &row(&document, "tcp b")["versus_best_tcp"]["finding"]),
        (&true.into(), &"runs alike".into())
    );
    let notes = document["headline"]["notes"].to_string();
    assert!(!notes.contains("othing is random") && notes.contains("Chance makes no difference"), "{notes}");
    let text = good(&arguments);
    assert!(!text.contains("nothing is random") && text.contains("chance made no difference"), "{text}");
}

#[test]
fn goodput_and_each_kind_of_repeat_are_told_apart() {
    let document = json(&["compare", "--schedulers", "redundant", "--size", "256 KiB", "--runs", "5"]);
    let redundant = row(&document, "redundant");
    let number = |name: &str| redundant[name].as_f64().unwrap();
    let kinds = ["scheduler_duplicated_bytes_mean", "opportunistic_bytes_mean", "reinjected_bytes_mean"];
    let sum: f64 = kinds.iter().map(|name| number(name)).sum();
    assert!((sum - number("repeated_bytes_mean")).abs() < 1e-6 && number(kinds[0]) > 1e4, "{redundant:#}");
    let times = redundant["fct_s"].as_array().unwrap().iter().map(|time| time.as_f64().unwrap());
    let expected = times.map(|time| 8.0 * 262_144.0 / time).sum::<f64>() / 5.0;
    assert!((number("goodput_mean_bit_per_s") / expected - 1.0).abs() < 0.01, "{expected} {redundant:#}");
}

/// Few candidates on paths where it is soon clear who is slower.
const RACE: &[&str] = &["compare", "--schedulers", "minrtt,roundrobin,daps", "--size", "1 MiB"];

#[test]
fn a_race_ends_by_itself_and_threads_change_no_byte() {
    let of = |jobs: &str| good(&[RACE, &["--budget", "1s", "--json", "--jobs", jobs]].concat());
    let one = of("1");
    assert_eq!(one.replace("--jobs 1", ""), of("3").replace("--jobs 3", ""));
    let document: Value = serde_json::from_str(&one).unwrap();
    let decision = &document["decision"];
    assert!(
        ["budget", "separated", "equivalent", "known"].map(Value::from).contains(&decision["ended"]),
        "{decision:#}"
    );
    let standing = |name: &str| {
        let all = decision["candidates"].as_array().unwrap();
        all.iter().find(|one| one["scheduler"] == name).unwrap()["standing"].clone()
    };
    assert_eq!((standing("tcp lte"), standing("tcp wifi")), ("slower".into(), "slower".into()));
    assert_ne!(standing("minrtt"), "slower");
    // Who is slower runs no more, but for those that the others are measured against, until they are
    // measured.
    let runs = |name: &str| row(&document, name)["runs"].as_u64().unwrap();
    assert!(runs("daps") < runs("minrtt") && runs("tcp wifi") > runs("daps"), "{decision:#}");
    assert!(decision["budget_s"].as_f64().unwrap() < 1.3, "{decision:#}");
}

#[test]
fn a_budget_that_is_used_up_says_so() {
    let text = good(&[RACE, &["--budget", "50 ms"]].concat());
    assert!(text.contains("Ended when the budget (`--budget`) was used up, after "), "{text}");
    for (budget, reason) in [("0 s", "out of range"), ("fast", "expected a time")] {
        let output = ropewalk(&[RACE, &["--budget", budget]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && errors.contains(reason), "{errors}");
    }
}

#[test]
fn paths_without_a_size_are_tried_with_what_people_do() {
    let paths = ["--path", "a: 20 Mbit/s, 10 ms, 0.1 %", "--path", "b: 5 Mbit/s, 80 ms"];
    let document = json(&[&["compare"][..], &paths, &["--schedulers", "minrtt", "--runs", "1"]].concat());
    let titles: Vec<&str> =
        document["rankings"].as_array().unwrap().iter().map(|of| of["workload"].as_str().unwrap()).collect();
    let expected =
        ["a page of 40 objects, 496 KiB, over 6 connections", "one flow of 1 MiB", "one flow of 16 MiB"];
    assert_eq!(titles, expected);
}

#[test]
fn the_default_is_one_screen_that_ends_with_the_answer() {
    let text = good(&["compare", "--budget", "200 ms"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= 45, "{} lines:\n{text}", lines.len());
    let wide: Vec<&&str> = lines.iter().filter(|line| line.chars().count() > 100).collect();
    assert!(wide.is_empty(), "{wide:?}");
    let last = lines[lines.len() - 10..].join("\n");
    for part in [
        "Use ",
        "The choice matters most",
        "  your own links:  ropewalk compare --path ",
        "  put it to work:  ",
    ] {
        assert!(last.contains(part), "{part}:\n{text}");
    }
    // Each size has a table of its own where that is asked for.
    let details = good(&["compare", "--budget", "200 ms", "--details"]);
    for size in ["64 KiB", "256 KiB", "1 MiB", "4 MiB"] {
        assert!(details.contains(&format!("One flow of {size}\n")), "{details}");
    }
    let wide = details.lines().filter(|line| line.chars().count() > 100).count();
    assert_eq!(wide, 0, "{details}");
}

/// The three commands at the end can be typed as they are.
#[test]
fn what_to_do_next_names_the_same_links() {
    let paths = ["--path", "a: 20 Mbit/s, 10 ms, 0.1 %", "--path", "it's b: 5 Mbit/s, 80 ms"];
    let few =
        ["--schedulers", "minrtt,ecf", "--size", "64 KiB,1 MiB", "--runs", "6", "--direction", "upload"];
    let output = ropewalk(&[&["compare"][..], &paths, &few].concat());
    assert_eq!(output.status.code(), Some(2), "a name with a quotation mark is refused");
    let paths = ["--path", "a: 20 Mbit/s, 10 ms, 0.1 %", "--path", "b: 5 Mbit/s, 80 ms"];
    let text = good(&[&["compare"][..], &paths, &few].concat());
    let again = "ropewalk advise --path 'a: 20 Mbit/s, 10 ms, 0.1 %' --path 'b: 5 Mbit/s, 80 ms' \
                 --direction upload \
                 --size '64 KiB,1 MiB'\n";
    assert!(text.contains(again), "{text}");
}

#[test]
fn repeated_bytes_on_a_metered_path_must_earn_their_place() {
    let wifi = "wifi: 20 Mbit/s, 20 ms";
    let of = |lte: &str, value: &[&str]| {
        let base =
            ["compare", "--path", wifi, "--path", lte, "--size", "1 MiB", "--runs", "8", "--schedulers"];
        json(&[&base[..], &["redundant,minrtt"], value].concat())
    };
    let ratio = |document: &Value, name: &str| {
        let stands = document["decision"]["candidates"].as_array().unwrap();
        stands.iter().find(|one| one["scheduler"] == name).unwrap()["ratio"].as_f64().unwrap()
    };
    let free = of("lte: 20 Mbit/s, 30 ms", &[]);
    let metered = of("lte: 20 Mbit/s, 30 ms, price 2 EUR/GB", &[]);
    assert!(free["worth"].is_null(), "{}", free["worth"]);
    assert_eq!(metered["worth"], "bytes sent again on lte count: a second is worth 5 MB of lte");
    assert!(ratio(&metered, "redundant") > 1.1 * ratio(&free, "redundant"), "{}", metered["decision"]);
    // The clock's times are the same.
    let mean = |document: &Value| row(document, "redundant")["fct_mean_s"].clone();
    assert_eq!(mean(&free), mean(&metered));
    let lte = &row(&metered, "redundant")["paths"][1];
    assert!(lte["repeated_bytes_mean"].as_f64().unwrap() > 100_000.0, "{lte}");
    // Said to be dear, its first bytes count as well: Wi-Fi alone is better then.
    let dear = of("lte: 20 Mbit/s, 30 ms", &["--value", "a second is worth 100 kB of lte"]);
    assert_eq!(dear["decision"]["named"], "tcp wifi", "{}", dear["decision"]);
    let wrong = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .args(["compare", "--path", wifi, "--value", "a second is worth 5 MB of let"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && said.contains("there is no path `let`"), "{said}");
}

#[test]
fn a_handover_every_few_seconds_is_met_at_every_phase() {
    let sky = "sky: 20 Mbit/s, 40 ms, outage 400 ms every 2 s";
    let document = json(&[
        "compare",
        "--path",
        sky,
        "--path",
        "lte: 20 Mbit/s, 60 ms",
        "--size",
        "64 KiB",
        "--runs",
        "16",
        "--schedulers",
        "tcp",
    ]);
    let times: Vec<f64> =
        row(&document, "tcp sky")["fct_s"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    // A transfer of 0.2 s meets an outage of 0.4 s in three of ten runs.
    let met = times.iter().filter(|time| **time > 0.4).count();
    assert!(times.len() == 16 && (2..=8).contains(&met), "{times:?}");
}

#[test]
fn whoever_is_named_is_among_the_equals_or_it_is_said_how_far_from_the_fastest() {
    for seed in ["1", "2", "3"] {
        let document = json(&["compare", "--scenario", "wifi-lte", "--budget", "500 ms", "--seed", seed]);
        let named = document["decision"]["named"].as_str().unwrap();
        let groups = document["headline"]["groups"].as_array().unwrap();
        let equal = groups.iter().any(|group| {
            ["equal", "fastest"].contains(&group["title"].as_str().unwrap())
                && group["names"].as_array().unwrap().iter().any(|name| name == named)
        });
        let said = document["headline"]["named"].as_str().unwrap();
        assert!(equal || said.contains("isn't shown to be slower than the fastest"), "{seed}: {said}");
    }
}

#[test]
fn a_policy_from_a_file_is_a_scheduler_of_every_command() {
    let policy = concat!("policy:", env!("CARGO_MANIFEST_DIR"), "/../lab/tests/policies/least-srtt.json");
    let both = format!("{policy},minrtt");
    let few = ["--scenario", "wifi-lte", "--size", "64 KiB", "--schedulers", &both];
    let compared = json(&[&["compare", "--runs", "5"][..], &few].concat());
    // It is minrtt's rule.
    let [learned, written] = [policy, "minrtt"].map(|name| row(&compared, name)["fct_mean_s"].clone());
    assert!(learned.is_number() && learned == written, "{learned} {written}");
    assert!(good(&[&["explain"][..], &few].concat()).contains("the policy sends on"));
    let advice = json(&[&["advise", "--budget", "20ms"][..], &few].concat());
    let candidates = advice["candidates"].as_array().unwrap();
    assert!(candidates.iter().any(|one| one["scheduler"] == policy), "{advice}");
    let output =
        ropewalk(&["perf", "client", "127.0.0.1", "--stack", "engine", "--reverse", "--scheduler", policy]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && told.contains("the server sends: give it to"), "{told}");
}

/// Frames with a deadline, more than either path carries.
const FRAMES: &str = r#"
workload = { kind = "cbr", frame = "20000 B", rate = "9 Mbit/s", duration = "2 s", deadline = "80 ms" }

[[path]]
name = "a"
rate = "8 Mbit/s"
delay = "10 ms"
loss = "0.5 %"

[[path]]
name = "b"
rate = "8 Mbit/s"
delay = "30 ms"
"#;

#[test]
fn frames_that_miss_their_deadline_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("frames.toml");
    std::fs::write(&file, FRAMES).unwrap();
    let arguments =
        ["compare", "--scenario", file.to_str().unwrap(), "--schedulers", "xlink,minrtt", "--runs", "5"];
    let document = json(&arguments);
    let late = |name: &str| row(&document, name)["late_frames_share"].as_f64().unwrap();
    // One path can't carry them all; two can.
    assert!(late("tcp a") > 0.3 && late("minrtt") < 0.1, "{document:#}");
    let text = good(&arguments);
    assert!(text.contains("frames") && text.lines().any(|line| line.ends_with("late")), "{text}");
}

/// `compare --json` of the example of datagrams.
#[test]
fn schedulers_for_datagrams_are_ranked_whatever_the_threads() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/datagrams.toml");
    let asked = ["compare", "--scenario", example, "--runs", "3"];
    let document = json(&[&asked[..], &["--jobs", "1"]].concat());
    assert_eq!(document, json(&[&asked[..], &["--jobs", "2"]].concat()));
    assert_eq!((&document["kind"], &document["runs"]), (&"datagrams".into(), &3.into()));
    let rows = document["rows"].as_array().unwrap();
    let missed = |row: &Value| row["lost_or_late"].as_f64().unwrap();
    assert!(rows.is_sorted_by(|a, b| missed(a) <= missed(b)), "{document:#}");
    let of = |name: &str| rows.iter().find(|row| row["scheduler"] == name).unwrap();
    // A path alone is cut for seconds, `adaptive` for a moment.
    assert!(missed(of("adaptive")) < 0.02 && missed(of("only lte")) > 0.1, "{document:#}");
    let flows = of("adaptive")["flows"].as_array().unwrap();
    let kinds: Vec<&str> = flows.iter().map(|flow| flow["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"voice") && kinds.contains(&"video"), "{kinds:?}");
    assert!(flows.iter().all(|flow| flow["p99_s"].as_f64().unwrap() < 0.15), "{document:#}");
}
