//! The report's document is about the very runs of the comparison.

use std::sync::atomic::AtomicBool;

use ropewalk_algorithms::Registries;
use ropewalk_lab::compare::{Candidate, Comparison, Design, Request, Worth, compare};
use ropewalk_lab::report::rope::{self, Budget};
use ropewalk_lab::report::{Origin, comparison, saved, terminal};
use ropewalk_lab::scenario;
use ropewalk_sim::{Mode, Workload};
use serde_json::Value;

fn request(sizes: &[u64]) -> Request {
    let registries = Registries::builtin();
    let scenario = scenario::load(scenario::DEFAULT, &registries).expect("built in").scenario;
    let candidate = |name: &str, label: &str, mode| Candidate {
        label: label.into(),
        scheduler: registries.schedulers.parse(name).expect("known"),
        mode,
    };
    Request {
        workloads: sizes.iter().map(|bytes| Workload::Flow { bytes: *bytes }).collect(),
        candidates: vec![
            candidate("minrtt", "minrtt", Mode::Multipath),
            candidate("blest", "blest", Mode::Multipath),
            candidate("redundant", "redundant", Mode::Multipath),
            candidate("roundrobin", "roundrobin", Mode::Multipath),
            candidate("single", "tcp wifi", Mode::SinglePath(0)),
        ],
        congestion: registries.congestion.parse("cubic").expect("known"),
        design: Design::Fixed(3),
        worth: Worth::default(),
        seed: 5,
        jobs: ropewalk_lab::parallel::Workers::ONE,
        scenario,
    }
}

fn made(sizes: &[u64], budget: Budget) -> (Comparison, Value) {
    let request = request(sizes);
    let comparison = compare(&request, ropewalk_sim::run, |_| {}, &AtomicBool::new(false));
    let mut ropes = Vec::new();
    rope::trace(&request, &comparison, budget, ropewalk_sim::run, |place, paths, result| {
        ropes.push(rope::to_json(place, paths, result));
    });
    let origin = Origin { command: "ropewalk compare".into(), version: "0".into(), ..Origin::default() };
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
        let micros = (row.each[run as usize].seconds.expect("finished") * 1e6).round() as i64;
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
        // minrtt repeats what blocks the window, if anything does.
        if row.label != "minrtt" {
            // The last of 100 kB may be acknowledged before the second subflow is there.
            let redundant = row.label == "redundant";
            if !redundant || ranking.bytes != Some(100_000) {
                assert_eq!(kinds.contains(&3), redundant, "{}", row.label);
            }
        }
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
    assert!(ropewalk_page::page(&again).contains("\"scheduler\":\"redundant\""));
}

#[test]
fn the_terminal_shows_boxes_and_strands() {
    let request = request(&[300_000]);
    let comparison = compare(&request, ropewalk_sim::run, |_| {}, &AtomicBool::new(false));
    let boxes = terminal::boxes(&comparison.rankings[0]);
    let lines: Vec<&str> = boxes.lines().collect();
    assert_eq!(lines.len(), 6, "a scale, and a line for each\n{boxes}");
    for (line, row) in lines[1..].iter().zip(&comparison.rankings[0].rows) {
        assert!(line.starts_with(&row.label) && line.matches('┃').count() == 1, "{line}");
    }
    let mut timelines = Vec::new();
    rope::trace(&request, &comparison, Budget { segments: 0 }, ropewalk_sim::run, |place, paths, result| {
        timelines.push((place.scheduler.clone(), terminal::timelines(paths, result, 2 * result.duration)));
    });
    for (who, text) in timelines {
        let wifi = text.lines().next().expect("a lane");
        assert!(wifi.starts_with("wifi  ") && wifi.contains('█'), "{who}\n{text}");
        // The scale is twice the run: its second half is empty.
        assert!(wifi.chars().count() <= 6 + 33, "{who}\n{text}");
        assert!(text.contains("segments in flight; done after"), "{text}");
    }
}

/// Names a subflow that isn't there.
#[derive(Debug)]
struct Astray;

impl ropewalk_engine::scheduler::Scheduler for Astray {
    fn name(&self) -> &'static str {
        "astray"
    }

    fn select(
        &mut self,
        _: &ropewalk_engine::scheduler::View<'_>,
        _: &mut ropewalk_engine::scheduler::Rationale,
    ) -> ropewalk_engine::scheduler::Decision {
        ropewalk_engine::scheduler::Decision::Send { subflow: ropewalk_engine::SubflowId(9), bytes: 1400 }
    }
}

#[test]
fn a_scheduler_that_is_overruled_is_told_and_a_taken_name_is_an_error() {
    let mut registries = Registries::builtin();
    let entry = ropewalk_engine::registry::Entry::<dyn ropewalk_engine::scheduler::Scheduler> {
        name: "astray",
        summary: "names a subflow that isn't there",
        source: "this test",
        ..ropewalk_engine::registry::Entry::<dyn ropewalk_engine::scheduler::Scheduler>::of(|_| {
            Box::new(Astray)
        })
    };
    registries.schedulers.register(entry).expect("a new name");
    let taken = registries.schedulers.register(entry).expect_err("taken").message;
    assert!(taken.contains("`astray` is there already"), "{taken}");
    let mut request = request(&[100_000]);
    request.candidates.push(Candidate {
        label: "astray".into(),
        scheduler: registries.schedulers.parse("astray").expect("known"),
        mode: Mode::Multipath,
    });
    let comparison = compare(&request, ropewalk_sim::run, |_| {}, &AtomicBool::new(false));
    let rows = &comparison.rankings[0].rows;
    let row = |label: &str| rows.iter().find(|row| row.label == label).expect("a row");
    let told = row("astray").why_overruled().expect("overruled");
    assert!(
        told.starts_with("`astray`: overruled ") && told.contains(" ms into the run with seed 5"),
        "{told}"
    );
    assert_eq!(row("minrtt").why_overruled(), None);
}
