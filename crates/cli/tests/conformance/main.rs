//! docs/conformance.md is what the sources say: the requirements of RFC 9293 and RFC 8684 listed beside this file,
//! with the places that bear their annotations. `UPDATE=1 cargo test -p ropewalk --test conformance` rewrites it.
//!
//! An annotation is a comment of its own line: `//= RFC 9293 MUST-8`, with more ids after it if one place does more
//! than one thing, and words for the reader after them; `//= test RFC 9293 MUST-8` above a test that fails when the
//! statement is broken. What is done, or done in part, has a test; a line of the list that can't have one says why with
//! `untested: ...`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const LISTS: [(&str, &str); 2] =
    [("9293", include_str!("rfc9293.txt")), ("8684", include_str!("rfc8684.txt"))];

/// Where sources with annotations are.
const FOLDERS: [&str; 2] = ["crates", "fuzz/src"];

/// What is asked, and what is said about it.
#[derive(Debug, PartialEq)]
struct Requirement {
    id: String,
    level: String,
    words: String,
    /// "no: ..." or "partly: ...".
    remark: Option<String>,
    /// Why there is no test.
    untested: Option<String>,
}

/// A line of a list.
#[derive(Debug, PartialEq)]
enum Line {
    Heading(String),
    Requirement(Requirement),
}

/// The level that an id of RFC 9293 has.
fn level_of(id: &str) -> Option<&'static str> {
    match id.split_once('-')?.0 {
        "MUST" => Some("MUST"),
        "SHLD" | "REC" => Some("SHOULD"),
        _ => None,
    }
}

/// Reads a list; a line that isn't understood is an error with its number.
fn read_list(text: &str) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(heading) = line.strip_prefix("## ") {
            lines.push(Line::Heading(heading.to_string()));
            continue;
        }
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let mut fields: Vec<&str> = line.split(" | ").collect();
        let id = fields.remove(0);
        let level = match level_of(id) {
            Some(level) => level,
            None if fields.len() > 1 => fields.remove(0),
            None => return Err(format!("line {}: no level", number + 1)),
        };
        let untested = match fields.last().and_then(|last| last.strip_prefix("untested: ")) {
            Some(reason) => {
                fields.pop();
                Some(reason.to_string())
            }
            None => None,
        };
        let (words, remark) = match fields[..] {
            [words] => (words, None),
            [words, remark] if remark.starts_with("no: ") || remark.starts_with("partly: ") => {
                (words, Some(remark.to_string()))
            }
            _ => return Err(format!("line {}: `{line}`", number + 1)),
        };
        let (id, level, words) = (id.to_string(), level.to_string(), words.to_string());
        lines.push(Line::Requirement(Requirement { id, level, words, remark, untested }));
    }
    Ok(lines)
}

/// Whether a word is an id of RFC 9293 or of our numbering of RFC 8684's sections.
fn is_id(rfc: &str, word: &str) -> bool {
    match rfc {
        "9293" => level_of(word).is_some(),
        _ => word.split_once('-').is_some_and(|(section, number)| {
            section.starts_with(|c: char| c.is_ascii_digit()) && number.parse::<u32>().is_ok()
        }),
    }
}

/// An annotation's RFC, ids, and whether it is a test's.
fn annotation(line: &str) -> Option<(&str, Vec<&str>, bool)> {
    let text = line.trim_start().strip_prefix("//= ")?;
    let (text, test) = text.strip_prefix("test ").map_or((text, false), |rest| (rest, true));
    let mut words = text.strip_prefix("RFC ")?.split_whitespace();
    let rfc = words.next()?;
    Some((rfc, words.take_while(|word| is_id(rfc, word)).collect(), test))
}

/// Rust files below a folder, in order.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder of the repository")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// By RFC and id: files that do it, and files that test it.
type Places = BTreeMap<(String, String), [BTreeSet<String>; 2]>;

fn places(root: &Path) -> Places {
    let mut files = Vec::new();
    for folder in FOLDERS {
        sources(&root.join(folder), &mut files);
    }
    let mut places = Places::new();
    for file in files {
        let name = file.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
        if name == "crates/cli/tests/conformance/main.rs" {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a readable source");
        for (rfc, ids, test) in text.lines().filter_map(annotation) {
            for id in ids {
                let key = (rfc.to_string(), id.to_string());
                places.entry(key).or_default()[usize::from(test)].insert(name.clone());
            }
        }
    }
    places
}

fn links(files: &BTreeSet<String>) -> String {
    let link = |file: &String| {
        let short = file.strip_prefix("crates/").unwrap_or(file).replace("/src/", "/");
        format!("[{short}](../{file})")
    };
    files.iter().map(link).collect::<Vec<_>>().join("<br>")
}

/// The page; and what contradicts itself.
fn page(places: &Places) -> (String, Vec<String>) {
    let mut text = String::from(
        "# Conformance\n\n\
         What RFC 9293 and RFC 8684 ask of an endpoint with MUST or SHOULD, in our own words, and where it is done: \
         search the file for the id. Ids of RFC 9293 are those of its Appendix B; RFC 8684 has none, so they are \
         its section and a number of ours. Statements about applications, middleboxes and documents are left out.\n\n\
         Written by `UPDATE=1 cargo test -p ropewalk --test conformance` from annotations in the sources and the lists \
         in `crates/cli/tests/conformance`; the same test fails when this page, the lists and the sources disagree.\n",
    );
    let mut wrong = Vec::new();
    let mut known = BTreeSet::new();
    for (rfc, list) in LISTS {
        let lines = read_list(list).unwrap_or_else(|error| panic!("rfc{rfc}.txt: {error}"));
        let title = list.lines().next().unwrap_or_default().trim_start_matches("# ");
        let requirements = || {
            lines.iter().filter_map(|line| match line {
                Line::Requirement(requirement) => Some(requirement),
                Line::Heading(_) => None,
            })
        };
        let count = |prefix: &str| {
            requirements()
                .filter(|r| r.remark.as_ref().is_some_and(|remark| remark.starts_with(prefix)))
                .count()
        };
        let (all, no, partly) = (requirements().count(), count("no: "), count("partly: "));
        let done = all - no - partly;
        let _ =
            writeln!(text, "\n## {title}\n\n{all} statements: {done} done, {partly} in part, {no} not done.");
        for line in &lines {
            match line {
                Line::Heading(heading) => {
                    let _ = writeln!(
                        text,
                        "\n### {heading}\n\n| id | level | what | where | test |\n|---|---|---|---|---|"
                    );
                }
                Line::Requirement(requirement) => {
                    let key = (rfc.to_string(), requirement.id.clone());
                    let found = places.get(&key).cloned().unwrap_or_default();
                    row(&mut text, &mut wrong, rfc, requirement, &found);
                    if !known.insert(key) {
                        wrong.push(format!("RFC {rfc} {} is listed twice", requirement.id));
                    }
                }
            }
        }
    }
    for ((rfc, id), files) in places {
        let listed = LISTS.iter().any(|(known, _)| known == rfc);
        if listed && !known.contains(&(rfc.clone(), id.clone())) {
            wrong.push(format!("RFC {rfc} {id} is annotated in {files:?} and not in the list"));
        }
    }
    (text, wrong)
}

fn row(
    text: &mut String,
    wrong: &mut Vec<String>,
    rfc: &str,
    requirement: &Requirement,
    [done, tested]: &[BTreeSet<String>; 2],
) {
    let Requirement { id, level, words, remark, untested } = requirement;
    let place = match remark {
        Some(remark) if remark.starts_with("no: ") => {
            if !done.is_empty() {
                wrong.push(format!("RFC {rfc} {id} is listed as not done and annotated in {done:?}"));
            }
            format!("not done, because: {}", &remark[4..])
        }
        _ if done.is_empty() => {
            wrong.push(format!("RFC {rfc} {id} has neither an annotation nor a reason why not"));
            String::new()
        }
        Some(remark) => format!("{}<br>{}", links(done), remark),
        None => links(done),
    };
    let undone = remark.as_ref().is_some_and(|remark| remark.starts_with("no: "));
    let test = match untested {
        Some(reason) if tested.is_empty() && !undone => format!("none, because: {reason}"),
        Some(_) => {
            wrong.push(format!("RFC {rfc} {id} says why it has no test, and has {tested:?} or isn't done"));
            String::new()
        }
        None => {
            if tested.is_empty() && !undone {
                wrong.push(format!(
                    "RFC {rfc} {id} has neither a test nor a reason why not (`untested: ...`)"
                ));
            }
            links(tested)
        }
    };
    let _ = writeln!(text, "| {id} | {level} | {words} | {place} | {test} |");
}

#[test]
fn the_page_is_what_the_sources_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (fresh, wrong) = page(&places(&root));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let file = root.join("docs/conformance.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &fresh).expect("docs/conformance.md can be written");
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = there.lines().zip(fresh.lines()).find(|(old, new)| old != new);
    assert!(
        there == fresh,
        "docs/conformance.md is stale; `UPDATE=1 cargo test -p ropewalk --test conformance` rewrites it.\n{differs:?}"
    );
}

#[test]
fn annotations_and_lists_are_read() {
    assert_eq!(
        annotation("    //= RFC 9293 MUST-8 SHLD-1 a keyed clock"),
        Some(("9293", vec!["MUST-8", "SHLD-1"], false))
    );
    assert_eq!(annotation("//= test RFC 8684 3.4.1-2"), Some(("8684", vec!["3.4.1-2"], true)));
    assert_eq!(annotation("//= RFC 7323 2.3 a shift"), Some(("7323", vec![], false)));
    assert_eq!(annotation("// RFC 9293 MUST-8"), None);
    let list =
        read_list("# title\n## Part\nMUST-1 | words | no: reason\n3.1-1 | MAY | words | untested: reason\n")
            .expect("valid");
    assert_eq!(list.len(), 3);
    assert!(matches!(&list[1], Line::Requirement(r) if r.level == "MUST" && r.remark.is_some()));
    assert!(matches!(&list[2], Line::Requirement(r) if r.level == "MAY" && r.untested.is_some()));
    for bad in ["MUST-1 | words | perhaps", "3.1-1", "MUST-1"] {
        assert!(read_list(bad).is_err(), "{bad}");
    }
}

#[test]
fn contradictions_are_found() {
    let requirement = |remark: Option<&str>| Requirement {
        id: "MUST-1".into(),
        level: "MUST".into(),
        words: "words".into(),
        remark: remark.map(str::to_string),
        untested: None,
    };
    let files = |name: &str| BTreeSet::from([name.to_string()]);
    let count = |requirement: Requirement, found: [BTreeSet<String>; 2]| {
        let (mut text, mut wrong) = (String::new(), Vec::new());
        row(&mut text, &mut wrong, "9293", &requirement, &found);
        wrong.len()
    };
    let wrong = |remark, found| count(requirement(remark), found);
    let both = || [files("a.rs"), files("b.rs")];
    assert_eq!(wrong(None, both()), 0);
    assert_eq!(wrong(None, [files("a.rs"), BTreeSet::new()]), 1, "no test");
    assert_eq!(wrong(None, [BTreeSet::new(), files("a.rs")]), 1, "no code");
    assert_eq!(wrong(Some("no: reason"), [files("a.rs"), BTreeSet::new()]), 1);
    assert_eq!(wrong(Some("no: reason"), Default::default()), 0);
    assert_eq!(wrong(Some("partly: reason"), Default::default()), 2);
    assert_eq!(wrong(Some("partly: reason"), both()), 0);
    let untested = |remark| Requirement { untested: Some("reason".into()), ..requirement(remark) };
    assert_eq!(count(untested(None), [files("a.rs"), BTreeSet::new()]), 0);
    assert_eq!(count(untested(None), both()), 1, "a test and a reason why there is none");
    assert_eq!(count(untested(Some("no: reason")), Default::default()), 1);
}
