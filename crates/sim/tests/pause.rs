//! A run that pauses at each decision gives the result of one that doesn't.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{MILLISECOND, spec};
use ropewalk_engine::registry::{Entry, Registry, Spec};
use ropewalk_engine::scheduler::{Decision, Event, Mechanisms, Rationale, Scheduler, View, builtin};
use ropewalk_engine::{Span, Time};
use ropewalk_link::Loss;
use ropewalk_sim::{Direction, RunResult, RunSpec, Scenario, Workload, World, networks};

/// Doesn't know its decision when it is asked first, and knows it when it is asked again.
#[derive(Debug)]
struct Hesitant {
    inner: Box<dyn Scheduler>,
    pause: Arc<AtomicBool>,
    undecided: bool,
}

impl Scheduler for Hesitant {
    fn name(&self) -> &'static str {
        "hesitant"
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        self.undecided = !self.undecided;
        self.pause.store(self.undecided, Ordering::Relaxed);
        if self.undecided { Decision::Wait { until: None } } else { self.inner.select(view, rationale) }
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        self.inner.on_event(view, event);
    }

    fn wants_events(&self) -> bool {
        self.inner.wants_events()
    }

    fn repeats(&self) -> bool {
        self.inner.repeats()
    }

    fn wants_link_rate(&self) -> bool {
        self.inner.wants_link_rate()
    }

    fn queues_ahead(&self) -> bool {
        self.inner.queues_ahead()
    }

    fn is_undecided(&self) -> bool {
        self.undecided
    }

    fn mechanisms(&self) -> Mechanisms {
        self.inner.mechanisms()
    }
}

fn hesitant(inner: &'static str, pause: &Arc<AtomicBool>) -> Spec<dyn Scheduler> {
    let mut registry = Registry::<dyn Scheduler>::new("scheduler");
    let entry = Entry::<dyn Scheduler> {
        name: "hesitant",
        summary: "hesitates",
        source: "this test",
        ..Entry::<dyn Scheduler>::of(|_| unreachable!("the factory builds it"))
    };
    let pause = Arc::clone(pause);
    let factory = move |_: &_| -> Box<dyn Scheduler> {
        let inner = builtin().parse(inner).expect("known").build();
        Box::new(Hesitant { inner, pause: Arc::clone(&pause), undecided: false })
    };
    registry.register_with(entry, Arc::new(factory)).expect("a new name");
    registry.parse("hesitant").expect("known")
}

fn paused(spec: &RunSpec, inner: &'static str) -> (RunResult, u32) {
    let pause = Arc::new(AtomicBool::new(false));
    let hesitant = RunSpec { scheduler: hesitant(inner, &pause), ..spec.clone() };
    let mut world = World::with_receiver(&hesitant, &spec.scheduler).expect("it can be simulated");
    world.pause_on(pause);
    let mut pauses = 0;
    while !world.run_until(Time::MAX) {
        assert!(world.is_paused());
        while world.is_paused() {
            pauses += 1;
            assert!(world.resume());
        }
    }
    (world.into_result(), pauses)
}

#[test]
fn pauses_change_nothing() {
    let mut lossy = networks::two_equal(20_000_000, 15 * MILLISECOND);
    lossy.paths[1].down.delay = 60 * MILLISECOND;
    for path in &mut lossy.paths {
        (path.down.loss, path.up.loss) = (Loss::Bernoulli(0.01), Loss::Bernoulli(0.005));
    }
    lossy.workload = Workload::Flow { bytes: 700_000 };
    let upload = Scenario { direction: Direction::Upload, ..lossy.clone() };
    let frames = Scenario {
        workload: Workload::Cbr {
            frame: 9_000,
            rate: 6_000_000,
            key: None,
            duration: 500 * MILLISECOND,
            deadline: None,
        },
        ..lossy.clone()
    };
    let exchanges = Scenario {
        workload: Workload::RequestResponse { request: 400, response: 50_000, count: 5, think: Span::ZERO },
        ..lossy.clone()
    };
    for (name, scenario) in
        [("lossy", lossy), ("upload", upload), ("frames", frames), ("exchanges", exchanges)]
    {
        for inner in ["minrtt", "ecf", "blest", "roundrobin", "linux"] {
            let spec = spec(scenario.clone(), inner, "cubic");
            let (mut result, pauses) = paused(&spec, inner);
            // `linux` decides once for each of five answers.
            assert!(pauses >= 5, "{name}, {inner}: {pauses} pauses");
            let expected = ropewalk_sim::run(&spec);
            // A timer that is set at a pause and moved after it leaves an event behind that does nothing.
            let events = expected.events..=expected.events + u64::from(pauses);
            assert!(events.contains(&result.events), "{name}, {inner}: {} of {events:?}", result.events);
            result.events = expected.events;
            assert_eq!(result, expected, "{name}, {inner}");
        }
    }
}
