//! The report's document is about the very runs of the comparison.

use std::sync::atomic::AtomicBool;

use ropewalk_lab::compare::{Comparison, Contender, Request, compare};
use ropewalk_lab::report::rope::{self, Budget};
use ropewalk_lab::report::{self, Origin, comparison, saved};
use ropewalk_lab::{Registries, scenario};
use ropewalk_sim::{Mode, Workload};
use serde_json::Value;

fn request(sizes: &[u64]) -> Request {
    let registries = Registries::builtin();
    let scenario = scenario::load(scenario::DEFAULT, &registries).expect("built in").scenario;
    let contender = |name: &str, label: &str, mode| Contender {
        label: label.into(),
        scheduler: registries.schedulers.parse(name).expect("known"),
        mode,
    };
    Request {
        workloads: sizes.iter().map(|bytes| Workload::Flow { bytes: *bytes }).collect(),
        contenders: vec![
            contender("minrtt", "minrtt", Mode::Multipath),
            contender("blest", "blest", Mode::Multipath),
            contender("redundant", "redundant", Mode::Multipath),
            contender("roundrobin", "roundrobin", Mode::Multipath),
            contender("single", "tcp wifi", Mode::SinglePath(0)),
        ],
        congestion: registries.congestion.parse("cubic").expect("known"),
        runs: 3,
        seed: 5,
        jobs: 2,
        scenario,
    }
}

fn made(sizes: &[u64], budget: Budget) -> (Comparison, Value) {
    let request = request(sizes);
    let comparison = compare(&request, ropewalk_sim::run, || {}, &AtomicBool::new(false));
    let ropes = rope::trace(&request, &comparison, budget, ropewalk_sim::run);
    let origin = Origin { command: "ropewalk compare".into(), version: "0".into() };
    let document = comparison::document(&origin, &request.scenario, &comparison, ropes);
    (comparison, document)
}

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().expect("an array").iter().map(|number| number.as_i64().expect("a number")).collect()
}

fn unrun(value: &Value) -> Vec<i64> {
    numbers(value).chunks(2).flat_map(|pair| vec![pair[0]; pair[1] as usize]).collect()
}

#[test]
fn a_rope_is_the_run_that_was_compared() {
    let (comparison, document) = made(&[100_000, 300_000], Budget::default());
    let ropes = document["ropes"].as_array().expect("ropes");
    assert_eq!(ropes.len(), 10);
    for rope in ropes {
        let ranking = &comparison.rankings[rope["ranking"].as_u64().expect("an index") as usize];
        let row = ranking.rows.iter().find(|row| rope["scheduler"] == row.label.as_str()).expect("its row");
        let run = rope["run"].as_u64().expect("a number");
        assert_eq!(rope["seed"], 5 + run);
        let micros = (row.seconds[run as usize] * 1e6).round() as i64;
        // A flow's time ends with its last byte, and so does the run.
        assert_eq!(rope["duration_us"].as_i64(), Some(micros), "{}", row.label);
        let segments = &rope["segments"];
        let count = segments["count"].as_u64().expect("a number") as usize;
        for column in ["sent", "arrived", "acked", "reason"] {
            assert_eq!(segments[column].as_array().map(Vec::len), Some(count), "{column}");
        }
        for column in ["path", "kind", "jump", "length", "connection"] {
            assert_eq!(unrun(&segments[column]).len(), count, "{column}");
        }
        let sent: i64 = unrun(&segments["length"]).iter().sum();
        assert!(sent >= ranking.bytes.expect("a size") as i64, "{sent}");
        assert!(numbers(&segments["sent"]).iter().sum::<i64>() <= micros);
        let kinds = unrun(&segments["kind"]);
        assert_eq!(kinds.contains(&3), row.label == "redundant", "{}", row.label);
    }
}

#[test]
fn new_segments_have_their_schedulers_reason() {
    let (_, document) = made(&[300_000], Budget::default());
    let ropes = document["ropes"].as_array().expect("ropes");
    let rope = ropes.iter().find(|rope| rope["scheduler"] == "blest").expect("blest has a rope");
    let mut reason = 0;
    for (kind, step) in unrun(&rope["segments"]["kind"]).into_iter().zip(numbers(&rope["segments"]["reason"]))
    {
        reason += step;
        assert_eq!(kind == 1, reason < 0, "the subflow's own retransmissions alone have none");
    }
}

#[test]
fn a_budget_drops_the_least_looked_for() {
    let (_, document) = made(&[300_000], Budget { segments: 0 });
    assert_eq!(document["ropes"].as_array().map(Vec::len), Some(2), "two are always there");
}

#[test]
fn a_saved_run_keeps_its_traces_and_makes_a_page() {
    let (_, document) = made(&[100_000], Budget::default());
    let again = saved::parse("run.json", &format!("{document:#}")).expect("a run");
    assert!(document["ropes"] == again["ropes"]);
    assert!(report::page(&again).contains("\"scheduler\":\"redundant\""));
}
