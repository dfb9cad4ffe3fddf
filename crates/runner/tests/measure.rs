//! What a run is judged by is what the table's title says, for every kind of workload, in `compare`, in a
//! sweep and on its page, with the bound in the same measure.

use ropewalk_engine::Span;
use std::sync::atomic::AtomicBool;

use ropewalk_algorithms::Registries;
use ropewalk_lab::compare::{Candidate, Design, Request, Worth, compare};
use ropewalk_lab::parallel::Workers;
use ropewalk_lab::sweep;
use ropewalk_runner::folder;
use ropewalk_settings::diagnostic::Source;
use ropewalk_sim::{Mode, Workload, networks};

const MS: u64 = 1_000_000;

/// A workload, how a scenario file says it, a part of its title, and what plain TCP takes for it over 12
/// Mbit/s and 20 ms of round-trip time, computed by hand: from, to.
fn kinds() -> Vec<(Workload, &'static str, &'static str, (f64, f64))> {
    vec![
        // Connect and request, 1.5 round trips; windows of 10 and 20 packets and the rest of 69, a packet
        // each 1 ms.
        (
            Workload::Flow { bytes: 100_000 },
            "kind = 'flow'\nsize = '100 kB'",
            "one flow of 100 kB",
            (0.10, 0.14),
        ),
        // The first ends no sooner than alone, the second after both.
        (
            Workload::Flows { count: 2, bytes: 100_000 },
            "kind = 'flows'\ncount = 2\nsize = '100 kB'",
            "2 flows of 100 kB",
            (0.12, 0.22),
        ),
        (
            Workload::Web { objects: vec![20_000; 5], connections: 1, request: 400, persistent: true },
            "kind = 'web'\nobjects = ['5 x 20 kB']\nconnections = 1",
            "a page of 5 objects",
            (0.15, 0.30),
        ),
        // A frame is one packet of 1000 bytes: 0.7 ms on the link and 10 ms of delay. The series lasts 2 s.
        (
            Workload::Cbr {
                frame: 1000,
                rate: 400_000,
                key: None,
                duration: Span::from_nanos(2_000 * MS),
                deadline: None,
            },
            "kind = 'cbr'\nframe = '1000 B'\nrate = '400 kbit/s'\nduration = '2 s'",
            "the mean delay of a run's frames",
            (0.0105, 0.016),
        ),
        // 1460 bytes of payload take 1 ms: 0.685 s per 10^6 bytes, and a little for the start.
        (
            Workload::Bulk { duration: Span::from_nanos(3_000 * MS) },
            "kind = 'bulk'\nduration = '3 s'",
            "time per megabyte",
            (0.685, 0.80),
        ),
        // Request and response, a round trip, and 7 packets on the link. Twenty of them take half a second.
        (
            Workload::RequestResponse { request: 400, response: 10_000, count: 20, think: Span::ZERO },
            "kind = 'request-response'\nresponse = '10 kB'\ncount = 20",
            "the mean time of a run's exchanges",
            (0.026, 0.032),
        ),
    ]
}

#[test]
fn compare_prints_what_its_titles_say() {
    let registries = Registries::builtin();
    for (workload, _, title, (from, to)) in kinds() {
        let request = Request {
            scenario: networks::one(12_000_000, Span::from_nanos(10 * MS)),
            workloads: vec![workload.clone()],
            candidates: vec![Candidate {
                label: "tcp".into(),
                scheduler: registries.schedulers.parse("single").unwrap(),
                mode: Mode::SinglePath(0),
            }],
            congestion: registries.congestion.parse("cubic").unwrap(),
            design: Design::Fixed(2),
            worth: Worth::default(),
            seed: 1,
            jobs: Workers::ONE,
        };
        let comparison = compare(&request, ropewalk_sim::run, |_| {}, &AtomicBool::new(false));
        let ranking = &comparison.rankings[0];
        assert!(ranking.title.contains(title), "{}", ranking.title);
        let row = &ranking.rows[0];
        assert!((from..to).contains(&row.mean), "{}: {} s", ranking.title, row.mean);
        match (&workload, row.over_bound()) {
            (Workload::Cbr { .. }, None) => {}
            (_, Some((links, start))) => {
                assert!(1.0 <= start && start <= links && links < 2.5, "{}: {links} {start}", ranking.title);
            }
            (_, None) => panic!("{}: no bound", ranking.title),
        }
    }
}

#[test]
fn a_sweep_and_its_page_have_the_same_measure() {
    let registries = Registries::builtin();
    let place = tempfile::tempdir().unwrap();
    let scenario =
        "[[path]]\nname = 'a'\nrate = '12 Mbit/s'\nrtt = '20 ms'\nqueue = '100 packets'\n[workload]\n";
    for (number, (_, text, title, (from, to))) in kinds().into_iter().enumerate() {
        let name = format!("one{number}.toml");
        std::fs::write(place.path().join(&name), format!("{scenario}{text}\n")).unwrap();
        let design = format!(
            "scenario = '{name}'\nschedulers = ['tcp:a']\nruns = 2\n[[vary]]\nparameter = \
             'path.a.rtt'\nvalues = ['20 ms']\n"
        );
        let design = sweep::parse(&Source::new("sweep.toml", design), place.path(), &registries).unwrap();
        let out = place.path().join(format!("out{number}"));
        let command = sweep::Command { line: vec!["ropewalk".into()], build: "test".into() };
        let session =
            ropewalk_runner::sweep::Session::open(&design, &registries, &out, &command).expect("a folder");
        let done = ropewalk_runner::sweep::run(
            session,
            &registries,
            1,
            ropewalk_sim::run,
            |_| {},
            &AtomicBool::new(false),
        )
        .unwrap();
        let mean = done.summary.unwrap().standings[0].mean;
        assert!((from..to).contains(&mean), "{title}: {mean} s in the summary");
        let (_, read) = folder::read(&out).unwrap();
        for value in &read.points[0].runs[0] {
            let value = value.expect("a finished run");
            assert!((from..to).contains(&value), "{title}: {value} s on the page");
        }
    }
}
