//! Every scheduler under the contract, and what else all must do.

use proptest::prelude::*;

use super::super::testing::{Model, Pipe, Scene, build, subflow, unmeasured};
use super::super::{Decision, Event, Rationale, Scheduler, View, builtin};
use super::{cases, departures};
use crate::departures::{check, is_exempt, variants};
use crate::{MILLISECOND, Time};

#[test]
fn every_scheduler_keeps_the_contract_or_declares_its_exceptions() {
    check(&builtin(), |text| departures(|| build(text)));
}

#[test]
fn every_scheduler_decides_alike_twice() {
    for (text, _) in variants(&builtin()) {
        for (one, two) in cases().into_iter().zip(cases()) {
            let (one, two) = (one.run(&mut *build(&text)), two.run(&mut *build(&text)));
            assert_eq!(one.placements, two.placements, "{text}");
        }
    }
}

#[test]
fn every_scheduler_goes_by_its_name_and_says_whether_it_repeats() {
    for entry in builtin().entries() {
        let scheduler = build(entry.name);
        assert_eq!(scheduler.name(), entry.name);
        assert_eq!(
            scheduler.repeats(),
            ["redundant", "cfs", "raven", "xlink", "olaps", "ropewalk"].contains(&entry.name),
            "{}",
            entry.name
        );
    }
    for (text, _) in variants(&builtin()) {
        let queues =
            ["otias", "otias:linux", "linux", "roundrobin:strict", "daps:linux", "sttf", "sttf:linux"]
                .contains(&text.as_str())
                || text.contains(":mptcp-0.9");
        assert_eq!(build(&text).queues_ahead(), queues, "{text}");
    }
    for text in ["blest:linux", "ecf:linux", "minrtt:linux"] {
        assert_eq!(Some(build(text).name()), text.split(':').next());
    }
}

#[test]
fn every_scheduler_gives_a_reason_with_numbers() {
    for (text, _) in variants(&builtin()) {
        for subflows in [vec![subflow(0, 10, 10, 0)], vec![subflow(0, 10, 10, 10), subflow(1, 100, 10, 3)]] {
            let reason = Scene::new(subflows).reason(&mut *build(&text));
            assert!(reason.len() > 10, "{text}: `{reason}`");
            if text != "single" {
                assert!(reason.contains("{subflow "), "{text}: `{reason}`");
            }
        }
    }
}

/// Fails for a decision without a reason.
#[derive(Debug)]
struct Explained(String, Box<dyn Scheduler>);

impl Scheduler for Explained {
    fn name(&self) -> &'static str {
        self.1.name()
    }

    fn select(&mut self, view: &View<'_>, _: &mut Rationale) -> Decision {
        let mut rationale = Rationale::listening();
        let decision = self.1.select(view, &mut rationale);
        let reason = rationale.take();
        assert!(reason.len() > 10, "{}: {decision:?} because `{reason}`", self.0);
        decision
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        self.1.on_event(view, event);
    }

    fn wants_link_rate(&self) -> bool {
        self.1.wants_link_rate()
    }

    fn repeats(&self) -> bool {
        self.1.repeats()
    }

    fn queues_ahead(&self) -> bool {
        self.1.queues_ahead()
    }
}

#[test]
fn every_decision_of_a_run_has_a_reason() {
    for (text, _) in variants(&builtin()) {
        for case in cases() {
            case.run(&mut Explained(text.clone(), build(&text)));
        }
    }
}

/// Nothing is known of a subflow without a round-trip sample: as long as it has room, a scheduler may try it;
/// full, it isn't worth a wait while another has room, however slow that is.
#[test]
fn no_scheduler_waits_for_a_subflow_without_a_sample() {
    for (text, _) in variants(&builtin()) {
        let scene = Scene::new(vec![subflow(0, 300, 10, 0), unmeasured(1, 10, 10)]);
        assert_eq!(scene.chosen(&mut *build(&text)), Some(0), "{text}");
    }
}

/// How many of `total` networks' segments may be asked about, per segment sent, before a scheduler counts
/// as hanging.
const DECISIONS_PER_SEGMENT: u64 = 40;

fn pipes() -> impl Strategy<Value = Vec<Pipe>> {
    let pipe = (
        1u64..400,
        1u32..40,
        any::<bool>(),
        prop::bool::weighted(0.2),
        0u32..150,
        prop_oneof![Just(u64::MAX), 3_000u64..60_000],
        prop_oneof![2 => Just(0u64), 1 => 0u64..500],
        prop::option::weighted(0.3, 1u64..2000),
        prop::bool::weighted(0.2),
    );
    let pipe = pipe.prop_map(|(rtt_ms, cwnd, grows, backup, loss, queue, joins, fails, unmeasured)| Pipe {
        grows,
        backup,
        unmeasured,
        loss,
        queue,
        joins: Time::ZERO + joins * MILLISECOND,
        fails: fails.map(|at| Time::ZERO + at * MILLISECOND),
        ..Pipe::new(rtt_ms, cwnd)
    });
    (prop::collection::vec(pipe, 1..6), any::<prop::sample::Index>()).prop_map(|(mut pipes, survivor)| {
        // One path stays to the end, or there is nothing to ask.
        let survivor = survivor.index(pipes.len());
        pipes[survivor].fails = None;
        pipes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// No starvation: over any network every byte arrives, and nothing is asked for ever.
    #[test]
    fn every_byte_arrives(
        pipes in pipes(),
        writes in prop::collection::vec((0u64..3000, 1u64..60_000), 1..8),
        window in prop_oneof![Just(1u64 << 30), 3_000u64..80_000],
        seed in any::<u64>(),
    ) {
        for (text, entry) in variants(&builtin()) {
            let mut model = Model::new(&pipes, 0).window(window).seed(seed);
            for (at, bytes) in &writes {
                model.write_at(Time::ZERO + *at * MILLISECOND, *bytes);
            }
            let done = model.run(&mut *build(&text));
            prop_assert!(done.completed.is_some(), "{text} starves: {:?}", done.violations);
            for (rule, what) in &done.violations {
                prop_assert!(is_exempt(&entry, rule), "{text} breaks `{rule}` {what}");
            }
            let sent = done.placements.len() as u64 + 100;
            prop_assert!(done.decisions < sent * DECISIONS_PER_SEGMENT, "{text} was asked {} \
                times", done.decisions);
        }
    }
}
