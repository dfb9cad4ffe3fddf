use super::*;

#[derive(Debug, PartialEq)]
struct Thing(Vec<f64>);

const THING: Entry<Thing> = Entry {
    name: "thing",
    summary: "for tests",
    source: "none",
    parameters: &[
        Parameter::number("beta", 0.25, (0.0, 4.0), "a share"),
        Parameter::whole("quota", 1.0, (1.0, 64.0), "segments"),
        Parameter::switch("strict", false, "a switch"),
        Parameter::choice("rule", 0, &["off", "paper", "linux"], "whose rule"),
    ],
    presets: &[Preset { name: "linux", summary: "as there", values: &[("rule", 2.0), ("beta", 1.0)] }],
    ..Entry::of(|values| {
        let names = ["beta", "quota", "strict", "rule"];
        Box::new(Thing(names.map(|name| values.number(name)).to_vec()))
    })
};

fn registry() -> Registry<Thing> {
    let mut registry = Registry::new("thing");
    registry.add(THING);
    registry
}

fn refusal(text: &str) -> SpecError {
    match registry().parse(text) {
        Ok(spec) => panic!("`{text}` was taken as {spec:?}"),
        Err(error) => error,
    }
}

#[test]
fn defaults_presets_and_arguments_stack() {
    let registry = registry();
    let built = |text| *registry.parse(text).unwrap().build();
    assert_eq!(built("thing"), Thing(vec![0.25, 1.0, 0.0, 0.0]));
    assert_eq!(built("thing:linux"), Thing(vec![1.0, 1.0, 0.0, 2.0]));
    assert_eq!(built(" thing : linux ( beta = 0.5, strict=true,) "), Thing(vec![0.5, 1.0, 1.0, 2.0]));
    assert_eq!(built("thing(rule=paper, quota=64)"), Thing(vec![0.25, 64.0, 0.0, 1.0]));
    assert_eq!(built("thing(rule=2, strict=1)"), Thing(vec![0.25, 1.0, 1.0, 2.0]));
}

#[test]
fn the_canonical_text_names_what_differs_and_reads_back() {
    let registry = registry();
    let canonical = |text| registry.parse(text).unwrap().text;
    assert_eq!(canonical("thing(beta=0.25)"), "thing");
    assert_eq!(canonical("thing(strict=1,rule=2)"), "thing(strict=true, rule=linux)");
    assert_eq!(canonical("thing:linux(rule=off)"), "thing:linux(rule=off)");
    assert_eq!(canonical(&canonical("thing:linux(rule=off)")), "thing:linux(rule=off)");
}

#[test]
fn a_wrong_one_lists_the_right_ones() {
    let error = refusal("thong");
    assert_eq!((error.message.as_str(), error.span), ("unknown thing `thong`; known: thing", (0, 5)));
    assert!(refusal("thing:bsd").message.contains("presets: linux"));
    let error = refusal("thing(gamma=1)");
    assert_eq!(error.span, (6, 11));
    assert!(error.message.contains("beta (a number from 0 to 4; default 0.25)"), "{}", error.message);
    assert!(error.message.contains("rule (off, paper, linux; default off)"), "{}", error.message);
    assert!(refusal("thing(quota=1.5)").message.contains("a whole number from 1 to 64"));
    assert!(refusal("thing(strict=2)").message.contains("true or false"));
    assert!(refusal("thing(rule=bsd)").message.contains("off, paper, linux"));
    assert_eq!(refusal("thing(beta=4.1)").span, (11, 14));
    assert!(refusal("thing(beta=NaN)").message.contains("from 0 to 4"));
    assert!(refusal("thing(beta=1, beta=2)").message.contains("given twice"));
    assert!(refusal("thing(beta)").message.contains("parameter=value"));
    assert!(refusal("thing(beta=1").message.contains("expected `)`"));
}

#[test]
fn a_kernel_has_one_default_scheduler() {
    use crate::{congestion, scheduler};
    for kernel in [Kernel::Linux, Kernel::MultipathTcp] {
        let schedulers = scheduler::builtin();
        let there: Vec<_> = schedulers.entries().iter().filter_map(|one| one.in_kernel(kernel)).collect();
        assert_eq!(there.iter().filter(|one| one.is_default).count(), 1, "{kernel:?}");
    }
    assert_eq!(scheduler::builtin().default_of(Kernel::Linux).unwrap().name, scheduler::BASELINE);
    let control = congestion::builtin();
    assert_eq!(control.default_of(Kernel::Linux).unwrap().name, congestion::DEFAULT_NAME);

    const NEWER: Entry<Thing> =
        Entry { name: "newer", kernels: &[Kernel::MultipathTcp.has().called("new").since("0.97")], ..THING };
    let mut registry = registry();
    registry.add(NEWER);
    let found = registry.parse("newer").unwrap().entry;
    let there = found.in_kernel(Kernel::MultipathTcp).unwrap();
    assert_eq!((there.name, there.since, there.is_default), (Some("new"), Some("0.97"), false));
    assert!(found.in_kernel(Kernel::Linux).is_none() && registry.default_of(Kernel::Linux).is_none());
}

#[test]
#[should_panic(expected = "registered twice")]
fn a_name_is_taken_once() {
    registry().add(THING);
}
