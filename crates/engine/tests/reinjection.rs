//! Schedulers have a say in where data goes that a dead path won't deliver.

use crate::common;

use common::{Net, PathScript, bytes};
use ropewalk_engine::registry::{Entry, Registry};
use ropewalk_engine::scheduler::{Chunk, Decision, Fate, Rationale, Reinjection, Scheduler, View, builtin};
use ropewalk_engine::{Span, SubflowId, Time};

const SECOND: Span = Span::from_secs(1);

/// `minrtt`, with an answer to every reinjection.
#[derive(Debug)]
struct Asked {
    inner: Box<dyn Scheduler>,
    answer: Reinjection,
}

impl Scheduler for Asked {
    fn name(&self) -> &'static str {
        "asked"
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        assert!(view.send_buffer <= view.send_buffer_max);
        self.inner.select(view, rationale)
    }

    fn reinject(&mut self, view: &View<'_>, chunk: &Chunk) -> Reinjection {
        assert_ne!(view.fate(chunk), Fate::Arrived, "a dead path has delivered it");
        self.answer
    }
}

fn asked(answer: Reinjection) -> Box<dyn Scheduler> {
    let inner = builtin().parse("minrtt").expect("it is built in").build();
    Box::new(Asked { inner, answer })
}

fn entry(
    name: &'static str,
    build: fn(&ropewalk_engine::registry::Values) -> Box<dyn Scheduler>,
) -> Entry<dyn Scheduler> {
    Entry { name, summary: "", source: "", ..Entry::of(build) }
}

/// Bytes that were repeated on each path after the first of three has died, the second faster than the third.
fn repeated(name: &str) -> [u64; 3] {
    let mut registry = Registry::new("scheduler");
    registry
        .add(entry("usual", |_| asked(Reinjection::Usual)))
        .add(entry("third", |_| asked(Reinjection::On(SubflowId(2)))))
        .add(entry("nowhere", |_| asked(Reinjection::On(SubflowId(7)))))
        .add(entry("later", |_| asked(Reinjection::Later)));
    let mut paths: Vec<_> = [10, 20, 40].map(PathScript::clean).to_vec();
    paths[0].dead_from = Some(Time::ZERO + SECOND / 2);
    for path in &mut paths {
        path.rate = Some(2_500_000);
    }
    let own = registry.parse(name).expect("it is registered");
    let mut net = Net::with(|config| config.scheduler = own, "minrtt", "cubic", paths);
    net.send(bytes(3, 8 << 20));
    net.run(Time::ZERO + 20 * SECOND, |net| net.received[1].len() == 8 << 20);
    assert_eq!(net.received[1].len(), 8 << 20, "{name}");
    assert!(net.sent[0] == net.received[1], "{name}: bytes differ");
    let stats = net.ends[0].connection(net.client).expect("it is open").stats(net.now);
    [0, 1, 2].map(|path| {
        let found = stats.repeated_by_path.iter().find(|(known, _)| known.0 == path);
        found.map_or(0, |(_, bytes)| *bytes)
    })
}

#[test]
fn a_scheduler_says_where_data_is_reinjected() {
    let (usual, third, nowhere) = (repeated("usual"), repeated("third"), repeated("nowhere"));
    assert!(usual[1] > usual[2], "the faster one: {usual:?}");
    assert!(third[2] > third[1], "the one that it named: {third:?}");
    assert_eq!(usual, nowhere, "a subflow that isn't there");
}

/// The transfer ends all the same.
#[test]
fn a_scheduler_that_postpones_every_reinjection_stalls_nothing() {
    assert!(repeated("later").iter().sum::<u64>() > 0);
}
