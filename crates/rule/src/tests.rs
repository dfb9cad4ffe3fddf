use ropewalk_engine::Span;
use std::sync::Arc;

use ropewalk_engine::testing::departures;
use ropewalk_lab::scenario;
use ropewalk_sim::{Mode, Recording};

use super::*;

/// What the page opens with: minrtt.
const MINRTT: &str = "
let best = ();
for subflow in view.available {
    if best == () || subflow.srtt < best.srtt { best = subflow; }
}
if best != () { say(`${best} has the lowest srtt, ${best.srtt / MS} ms`); }
best";

fn registries(rule: &str) -> Registries {
    let mut registries = Registries::builtin();
    register(&mut registries, rule).unwrap_or_else(|error| panic!("{}", error.render(false)));
    registries
}

fn spec(registries: &Registries, scheduler: &str) -> RunSpec {
    let paths = ["a: 10 Mbit/s, 20 ms, 1 %", "b: 5 Mbit/s, 60 ms"].map(String::from);
    let paths = scenario::paths(&paths, registries.open_file).unwrap();
    RunSpec {
        scenario: Arc::new(scenario::default_around(paths)),
        scheduler: registries.schedulers.parse(scheduler).unwrap(),
        congestion: registries.congestion.parse("cubic").unwrap(),
        mode: Mode::Multipath,
        seed: 1,
        start_phase: Span::ZERO,
        recording: Recording { decisions: true, ..Recording::default() },
    }
}

fn outcome(rule: &str) -> Outcome {
    run(&spec(&registries(rule), NAME)).outcome
}

fn failure(rule: &str) -> String {
    match outcome(rule) {
        Outcome::Failed(reason) => reason,
        other => panic!("{rule}: {other:?}"),
    }
}

#[test]
fn minrtt_as_a_rule_makes_minrtts_runs() {
    let registries = registries(MINRTT);
    let (own, built_in) =
        (run(&spec(&registries, NAME)), run(&spec(&registries, "minrtt(opportunistic=off, penalise=off)")));
    assert_eq!(own.outcome, Outcome::Complete);
    assert_eq!((own.duration, &own.flows), (built_in.duration, &built_in.flows));
    assert!(own.decisions.iter().any(|decision| decision.reason.contains("has the lowest srtt")));
    let scheduler = registries.schedulers.parse(NAME).unwrap();
    assert_eq!(departures(|| scheduler.build()), []);
}

#[test]
fn what_goes_wrong_ends_the_run_with_its_line() {
    for (rule, line, what) in [
        ("let i = 0;\nloop { i += 1; }", 2, "more than 10000 operations in one decision"),
        ("\n\"wifi\"", 0, "the rule's value is of type string"),
        ("view.available[0].srt", 1, "srt"),
        ("let x = view.now;\n\nx / 0", 3, "zero"),
        ("\nview.now * 9223372036854775807", 2, "overflow"),
        ("view.available[7]", 1, "out of bounds"),
        ("fn deeper(n) { deeper(n + 1) }\ndeeper(0)", 2, "stack overflow"),
        ("fn half(x) {\n  x / 0\n}\nhalf(1)", 2, "zero"),
        ("let text = \"x\";\nfor i in 0..20 { text += text; }", 2, "too large"),
        ("let list = [];\nfor i in 0..2000 { list.push(i) }", 2, "too large"),
    ] {
        let reason = failure(rule).to_lowercase();
        assert!(reason.contains(what), "{rule}: {reason}");
        assert_eq!(reason.contains(&format!("line {line} of the rule")), line > 0, "{rule}: {reason}");
    }
    // Nothing of it is left for the next run.
    assert_eq!(outcome(MINRTT), Outcome::Complete);
}

#[test]
fn what_isnt_a_rule_is_refused_with_its_place() {
    for (rule, place) in
        [("let = 5", "rule:1:5"), ("for x in view.available {\n  x\n", "rule:"), ("a +\n\n %", "rule:3:2")]
    {
        let error = register(&mut Registries::builtin(), rule).unwrap_err().render(false);
        assert!(error.contains(place) && error.contains("wait_until"), "{rule}: {error}");
    }
}

#[test]
fn nothing_depends_on_the_machine() {
    for rule in [
        "timestamp(); ()",
        "rand(); ()",
        "sin(1.0); ()",
        "2.0 ** 0.5; ()",
        "print(1); ()",
        "eval(\"1\"); ()",
        "import \"x\"; ()",
    ] {
        let known = register(&mut Registries::builtin(), rule).is_ok() && outcome(rule) == Outcome::Complete;
        assert!(!known, "{rule}");
    }
    assert_eq!(
        outcome("if pow(sqrt(16), 2) + exp(0) + min(2, 3.0) + ln(1) == 19.0 { view.available[0] }"),
        Outcome::Complete
    );
}

#[test]
fn a_connections_state_lasts_from_decision_to_decision() {
    let turns = "
        if \"turn\" in state { state.turn += 1 } else { state.turn = 0 }
        let free = view.available;
        if free.len > 0 { free[state.turn % free.len] }";
    assert_eq!(outcome(turns), Outcome::Complete);
    assert_eq!(outcome("send(view.subflows[0], 1000)"), Outcome::Complete);
    // The engine ends a wait that nothing would end, but not one that has a moment.
    assert_eq!(
        (outcome("()"), outcome("wait_until(view.now + 5 * MS)")),
        (Outcome::Complete, Outcome::TimeLimit)
    );
}
