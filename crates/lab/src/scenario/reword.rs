//! A `--path` in other words: with another clause, or as a scenario file has it.

use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_settings::input::OpenFile;

use super::inline::{Property, drafts_of, mtu_with_unit, path_with};
use super::phrase::NO_OUTAGE;
use super::preset::preset;

/// A path's text with a clause in place of the one about the same thing, or at its end. A rate also takes the
/// place of `up`, `down` and `trace`.
pub fn with_clause(text: &str, clause: &str) -> String {
    let Some((name, rest)) = text.split_once(':') else { return text.into() };
    let property = |of: &str| Property::of(of).map(|(property, _)| property);
    let what = property(clause);
    let rates = |of| {
        matches!(of, Some(Property::Rate | Property::Keyword("up" | "down" | "trace")))
            && matches!(what, Some(Property::Rate | Property::Keyword("trace")))
    };
    let is_same = |given: &&str| what == property(given) || rates(property(given));
    let mut clauses: Vec<&str> = rest.split(',').map(str::trim).filter(|given| !given.is_empty()).collect();
    let place = clauses.iter().position(is_same).unwrap_or(clauses.len());
    clauses.retain(|given| !is_same(given));
    clauses.insert(place.min(clauses.len()), clause);
    format!("{}: {}", name.trim_end(), clauses.join(", "))
}

/// A path's text with these changes in place of its own, and of those of its kind of link.
pub fn with_changes(text: &str, changes: &[String]) -> String {
    let Some((name, rest)) = text.split_once(':') else { return text.into() };
    let is_change = |given: &&str| Property::of(given).is_some_and(|(property, _)| property.is_change());
    let kept = rest.split(',').map(str::trim).filter(|given| !given.is_empty() && !is_change(given));
    let mut clauses: Vec<&str> = kept.collect();
    let changes_by_kind = clauses
        .iter()
        .find_map(|given| preset(given))
        .is_some_and(|preset| drafts_of(preset).1.changes.is_some());
    if changes.is_empty() && changes_by_kind {
        clauses.push("outage none");
    }
    clauses.extend(changes.iter().map(String::as_str));
    format!("{}: {}", name.trim_end(), clauses.join(", "))
}

/// One `--path` as a scenario file has it.
///
/// # Errors
/// The part that isn't understood, and what is allowed.
pub fn path_table(text: &str, open_file: OpenFile) -> Result<toml::Table, Diagnostic> {
    path_with(text, open_file)?;
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let mut table = toml::Table::new();
    let mut changes: Vec<toml::Value> = Vec::new();
    let mut changed = false;
    let mut set = |key: &str, value: toml::Value| drop(table.insert(key.into(), value));
    set("name", name.trim().into());
    for clause in rest.split(',').map(str::trim) {
        let Some((what, value)) = Property::of(clause) else { continue };
        let rate = || toml::Value::Table(std::iter::once(("rate".to_string(), value.into())).collect());
        match what {
            Property::Rate => set("rate", value.into()),
            Property::Loss => set("loss", value.into()),
            Property::RoundTrip => set("rtt", value.into()),
            Property::Preset => set("preset", value.into()),
            Property::Keyword(way @ ("up" | "down")) => set(way, rate()),
            Property::Keyword("jitter") => set("jitter-shape", value.into()),
            Property::Keyword(switch @ ("reordering" | "backup" | "metered")) => set(switch, true.into()),
            Property::Keyword("mtu") => set("mtu", mtu_with_unit(value).into()),
            Property::RateAt => {
                let (rate, at) = value.split_once(" at ").unwrap_or((value, ""));
                let mut change = toml::Table::new();
                change.insert("at".into(), at.trim().into());
                change.insert("rate".into(), rate.trim().into());
                changes.push(change.into());
            }
            Property::Keyword("outage") if value == NO_OUTAGE => changed = true,
            Property::Keyword("outage") => {
                let (length, when) =
                    value.split_once(" at ").or(value.split_once(" every ")).unwrap_or((value, ""));
                let every = value.split_once(" every ").map(|(_, every)| every);
                let at = if value.contains(" at ") { when.split(" every ").next() } else { every };
                let mut change = toml::Table::new();
                change.insert("at".into(), at.unwrap_or_default().into());
                change.insert("link".into(), "down".into());
                change.insert("for".into(), length.into());
                if let Some(every) = every {
                    change.insert("every".into(), every.into());
                }
                changes.push(change.into());
            }
            Property::Keyword(keyword) => set(keyword, value.into()),
        };
    }
    if changed || !changes.is_empty() {
        set("changes", changes.into());
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::path;

    #[test]
    fn a_path_is_the_same_in_a_file() {
        let registries = ropewalk_algorithms::Registries::builtin();
        for text in [
            "wifi: 50 Mbit/s, 20 ms +-5 ms, jitter normal, 0.5 %, up 10 Mbit/s, queue 100 packets, \
             reordering",
            "dsl: 16/1 Mbit/s, 30 ms, mtu 1400 B, backup, price 2 EUR/GB",
            "sky: starlink, down 90 Mbit/s, metered",
            "lte: 40 Mbit/s, 55 ms, outage 2 s at 5 s every 30 s, 1 % in bursts of 5",
            "lte: 40 Mbit/s, 55 ms, outage 100 ms every 15 s",
            "sky: starlink, outage none",
            "lte: 40 Mbit/s, 55 ms, outage 1 s at 3 s, none, queue codel",
            "lte: 40 Mbit/s, 55 ms, outage 1 s at 3 s, 5 Mbit/s at 4 s, outage 10 ms every 2 s",
            "lte: rate 5 MB/s, rtt 55 ms, loss 1 percent, mtu 1466, up 10mbit",
        ] {
            let paths = toml::Value::Array(vec![
                path_table(text, ropewalk_settings::input::no_files).unwrap().into(),
            ]);
            let file: toml::Table = [("path".to_string(), paths)].into_iter().collect();
            let source = ropewalk_settings::diagnostic::Source::new("s.toml", file.to_string());
            let read = crate::scenario::parse(&source, "s", std::path::Path::new(""), &registries);
            let read = read.unwrap_or_else(|error| panic!("{}", error.render(false)));
            assert_eq!(read.scenario.paths, [path(text).unwrap()], "{text}");
        }
    }

    #[test]
    fn changes_take_the_place_of_all_changes() {
        let text = "a: starlink, outage 1 s at 2 s, 40 ms, 5 Mbit/s at 3 s";
        let changes = ["10 Mbit/s at 1 s".to_string(), "outage 1 s at 4 s".into()];
        let changed = with_changes(text, &changes);
        assert_eq!(changed, "a: starlink, 40 ms, 10 Mbit/s at 1 s, outage 1 s at 4 s");
        assert_eq!(with_changes(&changed, &[]), "a: starlink, 40 ms, outage none");
        assert_eq!(with_changes("a: starlink, outage none", &changes[..1]), "a: starlink, 10 Mbit/s at 1 s");
        assert_eq!(with_changes("a: dsl, outage 1 s at 2 s", &[]), "a: dsl");
    }

    #[test]
    fn a_clause_takes_the_place_of_the_one_about_the_same_thing() {
        let text = "wifi: 50 Mbit/s, up 5 Mbit/s, 20 ms +-5 ms, 0.5 %, queue 9 packets";
        for (clause, expected) in [
            ("30/3 Mbit/s", "wifi: 30/3 Mbit/s, 20 ms +-5 ms, 0.5 %, queue 9 packets"),
            ("7 ms", "wifi: 50 Mbit/s, up 5 Mbit/s, 7 ms, 0.5 %, queue 9 packets"),
            ("none", "wifi: 50 Mbit/s, up 5 Mbit/s, 20 ms +-5 ms, none, queue 9 packets"),
            ("queue 64 KiB", "wifi: 50 Mbit/s, up 5 Mbit/s, 20 ms +-5 ms, 0.5 %, queue 64 KiB"),
            ("backup", "wifi: 50 Mbit/s, up 5 Mbit/s, 20 ms +-5 ms, 0.5 %, queue 9 packets, backup"),
        ] {
            assert_eq!(with_clause(text, clause), expected);
        }
        assert_eq!(with_clause("a : dsl", "1 %"), "a: dsl, 1 %");
        assert_eq!(with_clause("no path", "1 %"), "no path");
    }
}
