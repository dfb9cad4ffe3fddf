//! A proxy's recording in the laboratory: as a scenario, and with other schedulers.

use std::path::Path;
use std::process::Command;

use ropewalk_algorithms::Registries;
use ropewalk_engine::Span;
use ropewalk_lab::scenario;
use ropewalk_settings::diagnostic::Source;
use ropewalk_status::record::{Period, RecordedDirection, RecordedFlow, RecordedLink, Recording, Told};

fn full(bits_per_s: Vec<u64>) -> RecordedDirection {
    let full_bits_per_s = bits_per_s.iter().copied().map(Some).collect();
    RecordedDirection { full_bits_per_s, bits_per_s, packets: Vec::new() }
}

fn link(interface: &str, down: Vec<u64>) -> RecordedLink {
    let seconds = down.len();
    RecordedLink {
        interface: interface.into(),
        up: RecordedDirection { full_bits_per_s: vec![None; seconds], ..full(vec![1000; seconds]) },
        rtt_s: vec![Some(0.02); seconds],
        loaded_rtt_s: vec![Some(0.02); seconds],
        probes: vec![(1, 0); seconds],

        down: full(down),
        ..RecordedLink::default()
    }
}

#[test]
fn a_recording_is_a_scenario_that_repeats() {
    let mut carried = vec![20_000_000; 60];
    carried[30..].fill(5_000_000);
    let mut one = link("wlan0", carried);
    one.outages.push(Period { start_s: 40.0, seconds: 5.0 });
    one.rtt_s[..10].fill(None);
    // Whoever sends there doesn't fill it.
    one.down.full_bits_per_s[50..].fill(None);
    one.rtt_s[50..].fill(Some(0.1));
    one.probes[20..].fill((3, 1));
    one.pauses.push(Period { start_s: 33.0, seconds: 0.3 });
    let idle = RecordedLink { down: RecordedDirection::default(), ..link("sat0", vec![0; 60]) };
    let recording = Recording { seconds: 60, links: vec![one, idle], flows: Vec::new() };
    let Told { text, left_out, at_least } = recording.to_scenario("van").unwrap();
    assert_eq!((left_out, at_least), (vec!["sat0".to_string()], vec![]));
    let source = Source::new("recorded.toml", text.as_str());
    let loaded = scenario::parse(&source, "recorded", Path::new(""), &Registries::builtin());
    let scenario = loaded.unwrap_or_else(|error| panic!("{error}\n{text}")).scenario;
    assert_eq!((scenario.paths.len(), scenario.paths[0].name.as_str()), (1, "wlan0"));
    let down = &scenario.paths[0].down;
    assert_eq!(down.delay, Span::from_millis(10));
    assert!(
        down.jitter.is_some_and(|jitter| jitter.keeps_order),
        "packets overtake each other after a pause"
    );
    assert!(down.changes.iter().all(|change| change.every == Some(Span::from_secs(60))));
    for needed in [
        "rate = \"20 Mbit/s\"",
        "{ at = \"30 s\", every = \"60 s\", rate = \"5 Mbit/s\" }",
        "{ at = \"33 s\", every = \"60 s\", delay = \"310 ms\" }",
        "{ at = \"40 s\", every = \"60 s\", link = \"down\" }",
        "{ at = \"45 s\", every = \"60 s\", link = \"up\" }",
        "{ at = \"50 s\", every = \"60 s\", delay = \"50 ms\" }",
        "loss = \"11.81 %\"",
    ] {
        assert!(text.contains(needed), "no {needed} in {text}");
    }
}

/// What `shadow` tells of a recording.
fn shadow(recording: &Recording, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("recording.json");
    std::fs::write(&saved, serde_json::to_string(recording).unwrap()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
    command
        .arg("shadow")
        .arg("--recording")
        .arg(&saved)
        .args(["--schedulers", "linux,blest"])
        .args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Simulated seconds of the flows with the first scheduler.
fn times(told: &serde_json::Value) -> Vec<f64> {
    told["schedulers"].as_array().unwrap().iter().find(|one| one["scheduler"] == "linux").unwrap()["times_s"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|time| time.as_f64())
        .collect()
}

#[test]
fn flows_at_once_share_the_links() {
    let flow = |start_s, bytes_down, bytes_up| RecordedFlow {
        start_s,
        seconds: 4.0,
        bytes_down,
        bytes_up,
        scheduler: "linux".into(),
    };
    let links = vec![link("up0", vec![40_000_000; 30])];
    let alone = Recording { seconds: 30, links, flows: vec![flow(2.0, 10 << 20, 100)] };
    let several = Recording {
        flows: vec![flow(2.0, 10 << 20, 100), flow(2.2, 10 << 20, 100), flow(20.0, 10 << 20, 0)],
        ..alone.clone()
    };
    let told = |recording: &Recording| {
        serde_json::from_str::<serde_json::Value>(&shadow(recording, &["--json"])).unwrap()
    };
    let (alone, several) = (times(&told(&alone)), times(&told(&several)));
    // 10 MiB over 40 Mbit/s take 2.1 s at least; two of them twice as long; another later as the first alone.
    assert!((2.1..2.7).contains(&alone[0]), "{alone:?}");
    let longest = several[0].max(several[1]);
    assert!((4.0..5.2).contains(&longest) && (several[2] / alone[0] - 1.0).abs() < 0.1, "{several:?}");
}

#[test]
fn other_schedulers_are_tried_on_recorded_flows() {
    let flow = |start_s| RecordedFlow {
        start_s,
        seconds: 1.5,
        bytes_down: 12 << 20,
        bytes_up: 100,
        scheduler: "linux".into(),
    };
    let recording = Recording {
        seconds: 20,
        links: vec![link("up0", vec![40_000_000; 20]), link("up1", vec![40_000_000; 20])],
        flows: vec![flow(2.0), flow(9.0)],
    };
    let told: serde_json::Value = serde_json::from_str(&shadow(&recording, &["--json"])).unwrap();
    assert_eq!((&told["baseline"], &told["flows_recorded"]), (&"linux".into(), &2.into()));
    // 12 MiB over twice 40 Mbit/s take 1.3 s at least.
    let times = times(&told);
    assert!(times.len() == 2 && times.iter().all(|time| (0.9..30.0).contains(time)), "{told:#}");
    let shown = shadow(&recording, &[]);
    for needed in
        ["2 of 2 flows of the last ", "Flows that shared the links share them here", "Simulated times are "]
    {
        assert!(shown.contains(needed), "no `{needed}`: {shown}");
    }
}
