//! The papers' files are in order, and a paper runs from its files to its page; in tiny versions.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ropewalk_algorithms::Registries;
use ropewalk_papers::reproduce::{
    self, FitRequest, PaperError, Progress, Request, Runs, Tried, Verdict, World,
};

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
    let (overview, files) = reproduce::pages(std::slice::from_ref(&outcome), &[], "test").unwrap();
    assert!(overview.contains("\n- [cfs-2019](papers/cfs-2019.md): "), "{overview}");
    let of = |name: &str| &files.iter().find(|(path, _)| path == name).unwrap().1;
    assert!(of("papers/cfs-2019.md").contains("CFS completes 128 KB 24 % earlier"));
    assert!(of("papers/cfs-2019.md").contains("| CFS | published | 1.11 | 1.64 |"));
    assert!(of("papers/cfs-2019-table2.svg").starts_with("<svg"));
    let table = of("papers/cfs-2019.csv");
    assert!(
        table.contains("table2,interface that the connection opens on: LTE,CFS,128 KB,fct,s,1.64,"),
        "{table}"
    );
    assert!(reproduce::results(table).unwrap().len() > 100);
    let json = reproduce::json(&[outcome], "test");
    assert_eq!(json["papers"][0]["paper"], "cfs-2019");
    assert!(json["papers"][0]["cells"][0]["mean"].as_f64().is_some_and(|mean| mean > 0.0));
}

/// The HTML page's document has what the Markdown page has.
#[test]
fn a_figure_runs_to_its_document() {
    let outcome = run("table2", 2, &Runs::none(), &Counter::default());
    let document =
        reproduce::document(std::slice::from_ref(&outcome), "ropewalk-papers reproduce run cfs-2019")
            .unwrap();
    let paper = &document["papers"][0];
    assert_eq!((&document["kind"], &paper["name"]), (&"reproduction".into(), &"cfs-2019".into()));
    let claims = paper["claims"].as_array().unwrap();
    assert_eq!(claims.len(), outcome.judgements.len());
    for (claim, judgement) in claims.iter().zip(&outcome.judgements) {
        let verdict = claim["verdict"].as_u64().unwrap() as usize;
        assert_eq!(document["verdicts"][verdict], judgement.verdict.words(), "{}", judgement.text);
    }
    let figures = paper["figures"].as_array().unwrap();
    let times = figures.iter().find(|figure| figure["id"] == "table2").unwrap();
    let cell = |row: u64, column: u64| {
        let cells = times["cells"].as_array().unwrap();
        cells.iter().find(|cell| cell["row"] == row && cell["column"] == column).unwrap()
    };
    assert_eq!((&times["rows"][2], &times["columns"][1]), (&"CFS".into(), &"128 KB".into()));
    assert_eq!((&cell(2, 1)["published"], &cell(2, 1)["unit"]), (&1.64.into(), &"s".into()));
    assert!(cell(2, 1)["as_ruled"]["mean"].as_f64().is_some_and(|mean| mean > 0.0));
    assert!(cell(2, 1)["fitted"]["interval"][1].as_f64().is_some());
    assert!(ropewalk_page::page(&document).contains("<title>Reproduction"));
}

/// A row that repeats and penalises by another rule than those it is compared with needs a reason.
#[test]
fn a_confound_without_a_reason_is_found() {
    let registries = Registries::builtin();
    let mut paper = reproduce::load("blest-2016").unwrap().unwrap();
    for row in paper.plan.figures.iter_mut().flat_map(|figure| &mut figure.rows) {
        row.mechanisms_reason = None;
    }
    let wrong = reproduce::check(&paper, &registries);
    assert!(wrong.iter().any(|line| line.starts_with("bulk-h: OTIAS and minRTT differ")), "{wrong:?}");
    let mut paper = reproduce::load("cfs-2019").unwrap().unwrap();
    paper.plan.figures[1].rows[1].settings.scheduler = Some("ecf(penalise=off)".into());
    assert!(reproduce::check(&paper, &registries)[0].contains("set `mechanisms` instead"));
}

/// The committed pages' folder, and a paper's results there; none if it has none in this world.
fn committed(world: World, name: &str) -> Option<(std::path::PathBuf, reproduce::Entry)> {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = std::fs::read_to_string(docs.join(reproduce::entry_path(world, name))).ok()?;
    Some((docs, reproduce::Entry::parse(&text, name).unwrap()))
}

/// What the committed pages say in words agrees with the committed results.
#[test]
fn no_number_in_prose_and_no_sentence_against_its_result() {
    for (name, world) in
        reproduce::NAMES.iter().flat_map(|name| [(name, World::Simulated), (name, World::Emulated)])
    {
        let paper = reproduce::load(name).unwrap().unwrap();
        let Some((docs, entry)) = committed(world, name) else {
            assert_eq!(reproduce::notes_of(&paper, world).count(), 0, "{name} has no results");
            continue;
        };
        let path = docs.join(reproduce::entry_path(world, name));
        let table = std::fs::read_to_string(path.with_extension("csv")).unwrap();
        let page = std::fs::read_to_string(path.with_extension("md")).unwrap();
        let results = reproduce::results(&table).unwrap();
        let agreements = entry.agreements(&paper);
        for (id, note) in reproduce::notes_of(&paper, world) {
            assert_eq!(reproduce::numbers_in_prose(note), Vec::<String>::new(), "{name}: {id}");
            let filled = reproduce::fill(note.trim(), &results, &agreements)
                .unwrap_or_else(|error| panic!("{name}: {id}: {error}"));
            assert!(
                page.contains(&filled),
                "{name}: {id}: the page is older than the note: `ropewalk-papers reproduce notes all`"
            );
        }
        assert!(
            reproduce::notes_of(&paper, world).count() > 0,
            "{name} says nothing of its results: {world:?}"
        );
    }
}

/// A claim that isn't reproduced has a note on its paper's page that says what the experiments show.
#[test]
fn every_claim_that_does_not_come_out_has_a_note() {
    for name in reproduce::NAMES {
        let paper = reproduce::load(name).unwrap().unwrap();
        let (_, entry) = committed(World::Simulated, name).unwrap();
        for line in &entry.claims {
            if matches!(line.verdict, Verdict::Reproduced | Verdict::Inferred | Verdict::Untestable) {
                continue;
            }
            let claim = paper.claims.iter().find(|claim| claim.text == line.claim).unwrap();
            let note = paper.notes.get(&claim.id).unwrap_or_else(|| panic!("{name}: {}: no note", claim.id));
            assert!(note.contains('{'), "{name}: {}: the note refers to no result", claim.id);
        }
    }
}

/// A note is filled in again from a page's own results, once or twice; a page of other results is refused.
#[test]
fn a_page_is_reworded_without_running() {
    let mut paper = reproduce::load("yang-2013").unwrap().unwrap();
    let (docs, entry) = committed(World::Emulated, "yang-2013").unwrap();
    let path = docs.join(reproduce::entry_path(World::Emulated, "yang-2013"));
    let table = std::fs::read_to_string(path.with_extension("csv")).unwrap();
    let page = std::fs::read_to_string(path.with_extension("md")).unwrap();
    let reworded = |paper: &reproduce::Paper, page: &str, entry: &reproduce::Entry| {
        reproduce::reworded(paper, World::Emulated, (page, &table, entry))
    };
    assert_eq!(reworded(&paper, &page, &entry).unwrap(), (page.clone(), entry.clone()));
    paper.notes.insert("real-summary".into(), "It carries {real-table1/Default/Throughput}.\n".into());
    let (other, renewed) = reworded(&paper, &page, &entry).unwrap();
    assert!(
        renewed.summary.as_deref().is_some_and(|words| words.ends_with(" MB/s.") && other.contains(words))
    );
    assert!(reworded(&paper, &page, &renewed).unwrap_err().to_string().contains("not the page of"));
    paper.notes.remove("real-summary");
    let (silent, none) = reworded(&paper, &other, &renewed).unwrap();
    assert_eq!((none.summary, silent.contains("It carries")), (None, false));
    let contradicted = "{real-table1/P-(0.5,1.0)/Retransmissions/more/Default}";
    paper.notes.insert("real-summary".into(), contradicted.into());
    assert!(matches!(reworded(&paper, &page, &entry), Err(PaperError::Note { .. })));
}

/// A claim's note too: all but its words stays as it is, whether another note follows or it is the last.
#[test]
fn the_note_on_a_claim_is_reworded_without_running() {
    let mut paper = reproduce::load("yang-2013").unwrap().unwrap();
    let (docs, entry) = committed(World::Simulated, "yang-2013").unwrap();
    let path = docs.join(reproduce::entry_path(World::Simulated, "yang-2013"));
    let table = std::fs::read_to_string(path.with_extension("csv")).unwrap();
    let page = std::fs::read_to_string(path.with_extension("md")).unwrap();
    for id in ["gain", "numbers-cross"] {
        let note = paper.notes.insert(id.into(), "It carries {fitted:table1/Default/Throughput}.\n".into());
        let (other, _) = reproduce::reworded(&paper, World::Simulated, (&page, &table, &entry)).unwrap();
        assert_eq!(
            other.lines().filter(|line| line.ends_with(" MB/s.") && line.starts_with("**")).count(),
            1
        );
        assert_eq!(other.lines().count(), page.lines().count(), "{id}");
        paper.notes.insert(id.into(), note.unwrap());
        let (again, _) = reproduce::reworded(&paper, World::Simulated, (&other, &table, &entry)).unwrap();
        assert!(again == page, "{id}: something else has changed");
    }
}

/// The overviews' lines are what each paper's run wrote, and its claims are those of the paper's file.
#[test]
fn the_committed_overviews_are_made_of_the_papers_own_results() {
    for (world, file) in
        [(World::Simulated, "reproduction.md"), (World::Emulated, "reproduction-emulated.md")]
    {
        let found = reproduce::NAMES.iter().filter_map(|name| committed(world, name));
        let (docs, entries): (Vec<_>, Vec<reproduce::Entry>) = found.unzip();
        let page = std::fs::read_to_string(docs[0].join(file)).unwrap();
        assert!(page == reproduce::overview(&entries, world, None), "see docs/{file}, first line");
        for entry in &entries {
            let paper = reproduce::load(&entry.name).unwrap().unwrap();
            let here = paper.claims.iter().filter(|claim| paper.world_of(claim) == world);
            let claims: Vec<&String> = here.map(|claim| &claim.text).collect();
            let lines: Vec<&String> = entry.claims.iter().map(|line| &line.claim).collect();
            assert_eq!(lines, claims, "{}", entry.name);
        }
    }
}

/// A paper that runs again takes the place of its own results, and leaves the others'.
#[test]
fn one_paper_is_renewed_beside_the_others() {
    let mut whole = run("fig6", 10, &Runs::none(), &Counter::default());
    (whole.figure, whole.runs) = (None, None);
    // The notes are about results that this run doesn't have.
    whole.paper.notes.clear();
    let (alone, files) = reproduce::pages(std::slice::from_ref(&whole), &[], "test").unwrap();
    let own = &files.iter().find(|(path, _)| path == "papers/cfs-2019.json").unwrap().1;
    let own = reproduce::Entry::parse(own, "").unwrap();
    assert_eq!(reproduce::overview(std::slice::from_ref(&own), World::Simulated, None), alone);
    let other = reproduce::Entry { name: "kim-choi".into(), ..own.clone() };
    let stale = reproduce::Entry { claims: Vec::new(), ..own.clone() };
    let (both, _) = reproduce::pages(&[whole], &[stale, other.clone()], "test").unwrap();
    assert_eq!(both, reproduce::overview(&[other, own], World::Simulated, None));
    assert!(both.contains("| all | 4 |"), "{both}");
}

#[test]
fn a_paper_is_fitted_to_its_baseline_and_the_same_seed_finds_the_same() {
    let paper = reproduce::load("cfs-2019").unwrap().unwrap();
    let mut small = paper.clone();
    small.unknowns.fitted = vec!["table2".into()];
    small.unknowns.runs = 1;
    let fit = |jobs| {
        let request = FitRequest {
            paper: &small,
            budget: 96,
            population: 16,
            seed: 1,
            jobs,
            command: "ropewalk-papers reproduce fit",
        };
        let counter = Counter::default();
        let found = reproduce::fit(&request, &Registries::builtin(), &Tried::none(), &counter, &counter.stop);
        found.unwrap().unwrap()
    };
    let found = fit(2);
    assert_eq!(found, fit(1));
    assert_eq!(found.cells.len(), 5, "the default's five cells of Table 2, and no other scheduler's");
    assert!(found.fitted.distance < found.fitted.ruled);
    assert_eq!(found.fitted.values.len(), paper.unknowns.settings.len());
    // Left at one of its values: whichever it is, the nearest of all settings is among them.
    let least = |fixed: &[(String, f64)]| fixed.iter().map(|one| one.1).fold(f64::MAX, f64::min);
    let nearest = least(&found.fitted.values[0].fixed);
    for (value, unknown) in found.fitted.values.iter().zip(&paper.unknowns.settings) {
        assert_eq!(value.fixed.len(), if unknown.range.is_some() { 5 } else { unknown.values.len() });
        assert_eq!(least(&value.fixed), nearest, "{}", value.name);
        assert!(value.fixed.iter().all(|(_, distance)| *distance < 4.0), "{:?}", value.fixed);
    }
    let text = found.fitted.text().unwrap();
    let again: reproduce::Fitted = toml::from_str(&text).unwrap();
    assert_eq!(again, found.fitted);
    assert!(found.scenario.contains("[[path]]"));
    let none = reproduce::load("5g-2019").unwrap().unwrap();
    let request = FitRequest { paper: &none, budget: 32, population: 8, seed: 1, jobs: 1, command: "" };
    let counter = Counter::default();
    let nothing = reproduce::fit(&request, &Registries::builtin(), &Tried::none(), &counter, &counter.stop);
    assert!(matches!(nothing.unwrap_err(), PaperError::NothingToFit { .. }));
}

#[test]
fn the_fitter_is_tested_with_known_settings() {
    let mut paper = reproduce::load("cfs-2019").unwrap().unwrap();
    paper.unknowns.fitted = vec!["table2".into()];
    paper.unknowns.held_out = vec!["table7".into()];
    paper.unknowns.runs = 1;
    let request = FitRequest { paper: &paper, budget: 64, population: 16, seed: 1, jobs: 2, command: "" };
    let counter = Counter::default();
    let test =
        || reproduce::self_test(&request, 2, &Registries::builtin(), &Tried::none(), &counter, &counter.stop);
    let tested = test().unwrap().unwrap();
    assert_eq!((tested.ranges.1, tested.choices.1), (2, 20), "one range and ten choices, twice");
    assert_eq!((tested.fitted.len(), tested.held_out.len()), (2, 2));
    assert!(tested.coverage() > 0.4 && tested.fitted.iter().all(|distance| *distance < 1.0), "{tested:?}");
    assert_eq!(test().unwrap().unwrap(), tested);
    // As it is kept beside what is fitted.
    let sum = tested.sum("test");
    assert_eq!((sum.known, sum.inside.1, sum.held_out.is_some()), (2, 22, true));
    let fitted = reproduce::Fitted { self_test: Some(sum), ..paper.fitted.clone().unwrap() };
    assert_eq!(toml::from_str::<reproduce::Fitted>(&fitted.text().unwrap()).unwrap(), fitted);
    paper.fitted = Some(fitted);
    let request = Request {
        paper: &paper,
        world: World::Simulated,
        figure: Some("fig6"),
        runs: Some(1),
        seed: 1,
        jobs: 1,
    };
    let outcome = reproduce::execute(
        &request,
        &Registries::builtin(),
        &Runs::none(),
        &counter,
        &AtomicBool::new(false),
    );
    let (_, files) = reproduce::pages(&[outcome.unwrap()], &[], "test").unwrap();
    let page = &files.iter().find(|(path, _)| path == "papers/cfs-2019.md").unwrap().1;
    assert!(page.contains("The fitter's own test, `test`, made 2 tables"), "{page}");
}

#[test]
fn equation_2_is_what_drawing_gives() {
    let outcome = run("fig6", 10, &Runs::none(), &Counter::default());
    let verdicts: Vec<Verdict> = outcome.judgements.iter().map(|judgement| judgement.verdict).collect();
    assert_eq!(verdicts, [Verdict::Reproduced, Verdict::Reproduced]);
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
        reproduce::pages(&[outcome], &[], "test").unwrap()
    };
    assert_eq!(page(again), page(whole));
}
