//! The first comment of each algorithm's file has what a reader needs to check it: its source, the rule, the
//! decisions where the source is silent, and every parameter with its default and range. The files are found
//! by the registries, so that a new algorithm and a new parameter are tested once they are registered.

use std::path::Path;

use ropewalk_engine::registry::{Entry, Kind, Parameter, Registry};
use ropewalk_engine::{congestion, scheduler};

/// The comment that an algorithm's file opens with, as one line of text.
fn header(folder: &str, name: &str) -> String {
    let file = format!("{}.rs", name.replace('-', "_"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder).join(&file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{folder}/{file}: {error}"));
    let comment: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    comment.join(" ")
}

/// The text in brackets after a parameter's name.
fn brackets<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let at = text.find(&format!("`{name}` ("))?;
    let rest = &text[at..];
    Some(&rest[..=rest.find(')')?])
}

/// Whether `text` has `word` with nothing that goes on before or after it: 1 is not in 10.
fn has_word(text: &str, word: &str) -> bool {
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '.';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let mut after = text[at + word.len()..].chars();
        let ends = match after.next() {
            Some('.') => !after.next().is_some_and(|c| c.is_ascii_digit()),
            Some(c) => !goes_on(c),
            None => true,
        };
        ends && !before.is_some_and(goes_on)
    })
}

fn faults_of(parameter: &Parameter, parameters: &str) -> Option<String> {
    let name = parameter.name;
    let default = parameter.write(parameter.default);
    if name == "opportunistic" || name == "penalise" {
        let both = format!("`opportunistic` and `penalise` (default `{default}`");
        return (!parameters.contains(&both)).then(|| format!("`{both}` is not said"));
    }
    let Some(said) = brackets(parameters, name) else {
        return Some(format!("parameter `{name}` is not named with its default in brackets"));
    };
    if !has_word(said, &default) {
        return Some(format!("`{name}`: the default {default} is not in `{said}`"));
    }
    let range = match parameter.kind {
        Kind::Number | Kind::Whole => vec![format!("{} to {}", parameter.range.0, parameter.range.1)],
        Kind::Choice(words) => words.iter().map(ToString::to_string).collect(),
        Kind::Switch => Vec::new(),
    };
    let missing = range.iter().find(|word| !has_word(said, word))?;
    Some(format!("`{name}`: the range's {missing} is not in `{said}`"))
}

fn faults<T: ?Sized>(folder: &str, entry: &Entry<T>, words: &[&str]) -> Vec<String> {
    let header = header(folder, entry.name);
    let mut faults: Vec<String> = Vec::new();
    for word in words {
        if !header.contains(word) {
            faults.push(format!("no `{word}`"));
        }
    }
    let parameters = header.find("Parameters").map_or("", |at| &header[at..]);
    if entry.parameters.is_empty() && !parameters.starts_with("Parameters: none") {
        faults.push("it has no parameters and doesn't say so".into());
    }
    faults.extend(entry.parameters.iter().filter_map(|parameter| faults_of(parameter, parameters)));
    for preset in entry.presets {
        if !header.contains(&format!("`{}`", preset.name)) {
            faults.push(format!("preset `{}` is not explained", preset.name));
        }
    }
    faults.into_iter().map(|fault| format!("{folder}/{}: {fault}", entry.name)).collect()
}

fn all<T: ?Sized>(folder: &str, registry: &Registry<T>, words: &[&str]) -> Vec<String> {
    registry.entries().iter().flat_map(|entry| faults(folder, entry, words)).collect()
}

#[test]
fn every_file_opens_with_its_source_rule_rulings_and_parameters() {
    let mut found = all("scheduler", &scheduler::builtin(), &["Source:", "Rule", "Ruling", "Parameters"]);
    found.extend(all("congestion", &congestion::builtin(), &["Ruling", "Parameters", "egments"]));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn every_control_names_a_section_or_an_equation() {
    for entry in congestion::builtin().entries() {
        let header = header("congestion", entry.name);
        let named = ["section", "Equation", "abstract", "draft-"].iter().any(|word| header.contains(word));
        assert!(named, "{}: no section nor equation of its source is named", entry.name);
    }
}

#[test]
fn a_number_is_found_as_a_word_only() {
    assert!(has_word("(1 ms; 0.001 to 1000)", "0.001 to 1000"));
    assert!(!has_word("(10 ms; 0.001 to 1000)", "1"));
    assert!(!has_word("(0.5; 0 to 4)", "5"));
    assert!(has_word("`burst` (5.", "5"));
}
