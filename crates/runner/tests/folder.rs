//! A sweep's folder is what the sweep made.

use std::sync::atomic::AtomicBool;

use ropewalk_algorithms::Registries;
use ropewalk_lab::report::{self, saved};
use ropewalk_lab::{stats, sweep};
use ropewalk_runner::folder;
use ropewalk_settings::diagnostic::Source;

#[test]
fn a_sweeps_folder_is_what_the_sweep_made() {
    let registries = Registries::builtin();
    let text = "scenario = 'wifi-lte'\nschedulers = ['linux', 'ecf', 'tcp:wifi']\nruns = 3\n\
        [[vary]]\nparameter = 'path.wifi.loss'\nvalues = ['0 %', '2 %']\n\
        [[vary]]\nparameter = 'workload.size'\nvalues = ['32 KiB', '96 KiB']\n";
    let folder = tempfile::tempdir().expect("a folder");
    let design = sweep::parse(&Source::new("loss.toml", text), folder.path(), &registries).expect("a design");
    let line = ["ropewalk", "sweep", "loss.toml"].map(String::from).to_vec();
    let command = sweep::Command { line, build: "b".into() };
    let stop = AtomicBool::new(false);
    let session = ropewalk_runner::sweep::Session::open(&design, &registries, folder.path(), &command)
        .expect("a folder");
    let done = ropewalk_runner::sweep::run(session, &registries, 2, ropewalk_sim::run, |_| {}, &stop);
    let summary = done.expect("a sweep").summary.expect("finished");
    let (origin, read) = folder::read(folder.path()).expect("its folder");
    assert_eq!((origin.command.as_str(), read.title.as_str()), ("ropewalk sweep loss.toml", "loss"));
    assert_eq!(read.runners, ["linux", "ecf", "tcp wifi"]);
    let levels: Vec<Vec<&str>> = read
        .axes
        .iter()
        .map(|axis| axis.levels.iter().flatten().map(|level| level.text.as_str()).collect())
        .collect();
    assert_eq!(levels, [["0 %", "2 %"], ["32 KiB", "96 KiB"]]);
    let at: Vec<&[f64]> = read.points.iter().map(|point| point.at.as_slice()).collect();
    assert_eq!(at, [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]);
    for standing in &summary.standings {
        let who = read.runners.iter().position(|name| *name == standing.scheduler).expect("a runner");
        let seconds: Vec<f64> =
            read.points.iter().flat_map(|point| point.runs[who].iter().copied().flatten()).collect();
        assert_eq!(seconds.len(), 12);
        assert!((stats::mean(&seconds) - standing.mean).abs() < 1e-12, "{}", standing.scheduler);
    }
    let table = folder::table(folder.path()).expect("its table");
    assert_eq!((table.rows(), table.heads.len()), (36, table.columns.len()));
    assert!(
        table.metadata().iter().any(|(key, text)| key == "ropewalk.sweep" && text.contains("path.wifi.loss"))
    );
    let questions = read.questions.as_ref().expect("nothing here needs a file");
    assert_eq!(Some(questions), sweep::Questions::new(&design).as_ref());
    let asked = questions.at(3).expect("a point");
    assert!(asked["links"].contains("loss = \"2 %\"") && asked["links"].contains("size = \"96 KiB\""));
    assert_eq!(asked["schedulers"], "linux, ecf");
    let document = report::sweep::document(&origin, &read);
    assert!(saved::parse("sweep.json", &document.to_string()).is_ok());
}

#[test]
fn a_folder_without_a_sweep_is_refused_in_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let message = |folder: &std::path::Path| folder::read(folder).expect_err("no sweep").message;
    assert!(message(folder.path()).contains("manifest.json"));
    let manifest = folder.path().join("manifest.json");
    std::fs::write(&manifest, "{\"format\": 3, \"finished\": false}").expect("a file");
    assert!(message(folder.path()).contains("isn't finished"));
    std::fs::write(&manifest, "{\"format\": 1, \"finished\": true}").expect("a file");
    assert!(message(folder.path()).contains("format 1"));
    std::fs::write(&manifest, "{\"format\": 3, \"finished\": true}").expect("a file");
    std::fs::write(folder.path().join("runs.csv"), "no table").expect("a file");
    assert!(message(folder.path()).contains("runs.csv"));
}
