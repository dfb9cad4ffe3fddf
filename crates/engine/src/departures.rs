//! What the contract tests of schedulers and congestion controls share: which variants are tested, and how
//! departures are held against the exceptions that an entry declares.

use std::collections::BTreeSet;

use crate::registry::{Entry, Registry};

/// What a variant did that a rule forbids: the rule's name, and a description.
pub(crate) type Departures = Vec<(&'static str, String)>;

/// Every entry and each of its presets, as specifications, with the entry.
pub(crate) fn variants<T: ?Sized>(registry: &Registry<T>) -> Vec<(String, Entry<T>)> {
    let mut all = Vec::new();
    for entry in registry.entries() {
        all.push((entry.name.to_string(), *entry));
        for preset in entry.presets {
            all.push((format!("{}:{}", entry.name, preset.name), *entry));
        }
    }
    all
}

/// Whether the entry declares an exception from `rule`.
pub(crate) fn is_exempt<T: ?Sized>(entry: &Entry<T>, rule: &str) -> bool {
    entry.exceptions.iter().any(|exception| exception.rule == rule)
}

/// Runs `departures` for every variant. Fails for a departure that isn't declared, and for a declared one
/// that doesn't happen; prints those that are declared.
pub(crate) fn check<T: ?Sized>(registry: &Registry<T>, departures: impl Fn(&str) -> Departures) {
    let mut faults = Vec::new();
    for entry in registry.entries() {
        let mut seen = BTreeSet::new();
        for (spec, _) in variants(registry).iter().filter(|(_, other)| other.name == entry.name) {
            for (rule, description) in departures(spec) {
                seen.insert(rule);
                if !is_exempt(entry, rule) {
                    faults.push(format!("{spec} breaks `{rule}`: {description}"));
                }
            }
        }
        for exception in entry.exceptions {
            println!("{}: exempt from `{}`: {}", entry.name, exception.rule, exception.reason);
            if !seen.contains(exception.rule) {
                faults.push(format!("{} declares `{}` but keeps it", entry.name, exception.rule));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
