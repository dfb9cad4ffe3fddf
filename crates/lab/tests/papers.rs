//! The papers' files are in order, and a paper runs from its files to its page; in tiny versions.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ropewalk_lab::Registries;
use ropewalk_lab::reproduce::{self, Progress, Request, Runs, Verdict, World};

/// Counts, and has no clock.
#[derive(Default)]
struct Counter {
    counts: Mutex<(usize, usize, usize)>,
    /// Stop after so many.
    stop_after: Option<usize>,
    stop: AtomicBool,
}

impl Progress for Counter {
    fn total(&self, runs: usize, known: usize) {
        let mut counts = self.counts.lock().unwrap();
        (counts.0, counts.1) = (runs, known);
    }

    fn done(&self) {
        let mut counts = self.counts.lock().unwrap();
        counts.2 += 1;
        if self.stop_after.is_some_and(|most| counts.2 >= most) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn clock(&self) -> Duration {
        Duration::ZERO
    }
}

fn run(figure: &str, runs: u32, store: &Runs, counter: &Counter) -> reproduce::Outcome {
    let paper = reproduce::load("cfs-2019").unwrap().unwrap();
    let request = Request {
        paper: &paper,
        world: World::Simulated,
        figure: Some(figure),
        runs: Some(runs),
        seed: 1,
        jobs: 2,
    };
    reproduce::execute(&request, &Registries::builtin(), store, counter, &counter.stop).unwrap()
}

#[test]
fn every_papers_files_are_in_order() {
    let registries = Registries::builtin();
    for name in reproduce::NAMES {
        let paper = reproduce::load(name).unwrap().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(reproduce::check(&paper, &registries), Vec::<String>::new(), "{name}");
        assert!(!paper.claims.is_empty() && !paper.published.is_empty(), "{name}");
    }
    assert!(reproduce::load("cfs-2018").is_none());
}

#[test]
fn a_figure_runs_to_its_page() {
    let outcome = run("table2", 2, &Runs::none(), &Counter::default());
    let page = reproduce::markdown(std::slice::from_ref(&outcome), "test");
    assert!(page.contains("| CFS | 128 KB | 1.64 |"), "{page}");
    assert!(page.contains("interface that the connection opens on: LTE"));
    let json = reproduce::json(&[outcome], "test");
    assert_eq!(json["papers"][0]["paper"], "cfs-2019");
    assert!(json["papers"][0]["cells"][0]["mean"].as_f64().is_some_and(|mean| mean > 0.0));
}

#[test]
fn equation_2_is_what_drawing_gives() {
    let outcome = run("fig6", 10, &Runs::none(), &Counter::default());
    let verdicts: Vec<Verdict> =
        outcome.judgements.iter().map(|judgement| judgement.settings[0].verdict).collect();
    assert_eq!(verdicts, [Verdict::Holds, Verdict::Holds]);
}

#[test]
fn what_was_interrupted_goes_on_and_ends_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.jsonl");
    let whole = run("duplicates", 2, &Runs::none(), &Counter::default());
    let counter = Counter { stop_after: Some(5), ..Counter::default() };
    let part = run("duplicates", 2, &Runs::open(&path, "test").unwrap(), &counter);
    assert!(part.interrupted);
    let rest = Counter::default();
    let again = run("duplicates", 2, &Runs::open(&path, "test").unwrap(), &rest);
    let (total, known, done) = *rest.counts.lock().unwrap();
    assert!(known >= 5 && known + done == total, "{known} {done} {total}");
    let page = |mut outcome: reproduce::Outcome| {
        outcome.known = 0;
        reproduce::markdown(&[outcome], "test")
    };
    assert_eq!(page(again), page(whole));
}
