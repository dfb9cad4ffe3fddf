//! A proxy's recording in the laboratory: as a scenario, and with other schedulers.

use std::path::Path;
use std::process::Command;

use ropewalk_algorithms::Registries;
use ropewalk_lab::scenario;
use ropewalk_settings::diagnostic::Source;
use ropewalk_status::record::{RecordedFlow, RecordedLink, Recording};

fn link(interface: &str, down: Vec<u64>) -> RecordedLink {
    let seconds = down.len();
    RecordedLink {
        interface: interface.into(),
        up_bits_per_s: vec![1000; seconds],
        rtt_s: vec![Some(0.02); seconds],
        loss: vec![0.0; seconds],
        usable: vec![true; seconds],
        down_bits_per_s: down,
        ..RecordedLink::default()
    }
}

#[test]
fn a_recording_is_a_scenario_that_repeats() {
    let mut carried = vec![20_000_000; 60];
    carried[30..].fill(5_000_000);
    let mut one = link("wlan0", carried);
    one.usable[40..45].fill(false);
    one.rtt_s[..10].fill(None);
    one.rtt_s[50..].fill(Some(0.1));
    one.loss[20..].fill(0.02);
    let recording = Recording { seconds: 60, links: vec![one, link("sat0", vec![0; 60])], flows: Vec::new() };
    let (text, left_out) = recording.to_scenario("van").unwrap();
    assert_eq!(left_out, ["sat0"]);
    let source = Source::new("recorded.toml", text.as_str());
    let loaded = scenario::parse(&source, "recorded", Path::new(""), &Registries::builtin());
    let scenario = loaded.unwrap_or_else(|error| panic!("{error}\n{text}")).scenario;
    assert_eq!((scenario.paths.len(), scenario.paths[0].name.as_str()), (1, "wlan0"));
    let down = &scenario.paths[0].down;
    assert_eq!(down.delay, 10_000_000);
    assert!(down.changes.iter().all(|change| change.every == Some(60_000_000_000)));
    for needed in [
        "rate = \"20 Mbit/s\"",
        "{ at = \"35 s\", every = \"60 s\", rate = \"5 Mbit/s\" }",
        "{ at = \"40 s\", every = \"60 s\", link = \"down\" }",
        "{ at = \"45 s\", every = \"60 s\", link = \"up\" }",
        "loss = \"2 %\"",
        "delay = \"50 ms\"",
    ] {
        assert!(text.contains(needed), "no {needed} in {text}");
    }
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
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("recording.json");
    std::fs::write(&saved, serde_json::to_string(&recording).unwrap()).unwrap();
    let shadow = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command
            .arg("shadow")
            .arg("--recording")
            .arg(&saved)
            .args(["--schedulers", "linux,blest"])
            .args(arguments);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let told: serde_json::Value = serde_json::from_str(&shadow(&["--json"])).unwrap();
    assert_eq!((&told["baseline"], &told["flows_recorded"]), (&"linux".into(), &2.into()));
    // 12 MiB over twice 40 Mbit/s take 1.3 s at least.
    let times: Vec<f64> = told["schedulers"][0]["times_s"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|time| time.as_f64())
        .collect();
    assert!(times.len() == 2 && times.iter().all(|time| (0.9..30.0).contains(time)), "{told:#}");
    let shown = shadow(&[]);
    for needed in ["2 of 2 flows of the last ", "One flow at a time is simulated", "Simulated times are "] {
        assert!(shown.contains(needed), "no `{needed}`: {shown}");
    }
}
