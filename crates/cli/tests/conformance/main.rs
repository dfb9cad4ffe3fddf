//! docs/conformance.md is what the sources say: the requirements of the RFCs listed in this folder, with the
//! places that bear their annotations. `UPDATE=1 cargo test -p ropewalk --test conformance` rewrites it.
//!
//! An annotation is a comment of its own line: `//= RFC 9293 MUST-8`, with more ids after it if one place
//! does more than one thing, and words for the reader after them; `//= test RFC 9293 MUST-8` above a test
//! that fails when the statement is broken. What is done, or done in part, has a test; a line of the list
//! that can't have one says why with `untested: ...`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const LISTS: [(&str, &str); 10] = [
    ("9293", include_str!("rfc9293.txt")),
    ("8684", include_str!("rfc8684.txt")),
    ("5681", include_str!("rfc5681.txt")),
    ("6298", include_str!("rfc6298.txt")),
    ("2018", include_str!("rfc2018.txt")),
    ("8985", include_str!("rfc8985.txt")),
    ("6937", include_str!("rfc6937.txt")),
    ("7323", include_str!("rfc7323.txt")),
    ("5961", include_str!("rfc5961.txt")),
    ("8803", include_str!("rfc8803.txt")),
];

/// Every keyword of RFC 8684, by section.
const KEYWORDS: &str = include_str!("rfc8684-keywords.txt");

/// The last number of each kind in RFC 9293's Appendix B.
const APPENDIX_B: [(&str, u32); 3] = [("MUST", 69), ("SHLD", 31), ("REC", 1)];

/// Where sources with annotations are.
const FOLDERS: [&str; 2] = ["crates", "fuzz/src"];

/// How a remark begins: what isn't done, is done in part, or doesn't arise.
const REMARKS: [&str; 3] = ["no: ", "partly: ", "moot: "];

/// What is asked, and what is said about it.
#[derive(Debug, PartialEq)]
struct Requirement {
    id: String,
    level: String,
    words: String,
    /// "no: ...", "partly: ..." or "moot: ...".
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
            [words, remark] if REMARKS.iter().any(|kind| remark.starts_with(kind)) => {
                (words, Some(remark.to_string()))
            }
            _ => return Err(format!("line {}: `{line}`", number + 1)),
        };
        let (id, level, words) = (id.to_string(), level.to_string(), words.to_string());
        lines.push(Line::Requirement(Requirement { id, level, words, remark, untested }));
    }
    Ok(lines)
}

/// Whether a word is an id of RFC 9293 or of our numbering of another RFC's sections.
fn is_id(rfc: &str, word: &str) -> bool {
    match rfc {
        "9293" => level_of(word).is_some(),
        _ => word.split_once('-').is_some_and(|(section, number)| {
            let lettered = number.len() == 1 && number.starts_with(|c: char| c.is_ascii_lowercase());
            section.starts_with(|c: char| c.is_ascii_digit()) && (lettered || number.parse::<u32>().is_ok())
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

/// Rust files and packet scripts below a folder, in order.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder of the repository")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "pkt") {
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

/// A link to the first of these files.
fn link(files: &BTreeSet<String>, text: &str) -> String {
    files.first().map_or(String::new(), |file| format!("[{text}](../{file})"))
}

/// The page; and what contradicts itself.
fn page(places: &Places) -> (String, Vec<String>) {
    let mut text = String::from(
        "# Conformance\n\nWhat the RFCs of TCP and Multipath TCP ask of an endpoint with MUST or SHOULD: \
         search for the id. What is done is a link to the code, *t* to a test; what isn't, or only in \
         part, follows in words. `crates/cli/tests/conformance/rfc*.txt` say what each id asks; \
         `grep -rn 'RFC 9293 MUST-8' crates` shows the lines.\n\nIds of RFC 9293 are those of its Appendix \
         B, without MAY. In the other lists, which are ours, 3.4.1-9 is the ninth keyword in capitals of \
         section 3.4.1 of RFC 8684, and a letter marks what is stated without one, or a rule of another \
         RFC's section.\n\nMade from these lists and the annotations in the sources: `UPDATE=1 cargo test -p \
         ropewalk --test conformance`.\n",
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
        let [no, partly, moot] = REMARKS.map(count);
        let all = requirements().count();
        let done = all - no - partly - moot;
        let _ = writeln!(
            text,
            "\n## {title}\n\n{all} statements: {done} done, {partly} in part, {no} not done, {moot} don't \
             arise."
        );
        wrong.extend(omissions(rfc, &requirements().collect::<Vec<_>>()));
        // A section's ids that are done, in a paragraph; the others as a list.
        let (mut done, mut others) = (Vec::new(), Vec::new());
        for line in &lines {
            match line {
                Line::Heading(heading) => {
                    section(&mut text, &mut done, &mut others);
                    let _ = writeln!(text, "\n### {heading}");
                }
                Line::Requirement(requirement) => {
                    let key = (rfc.to_string(), requirement.id.clone());
                    let found = places.get(&key).cloned().unwrap_or_default();
                    match entry(&mut wrong, rfc, requirement, &found) {
                        Shown::Done(entry) => done.push(entry),
                        shown => others.push(shown),
                    }
                    if !known.insert(key) {
                        wrong.push(format!("RFC {rfc} {} is listed twice", requirement.id));
                    }
                }
            }
        }
        section(&mut text, &mut done, &mut others);
    }
    for ((rfc, id), files) in places {
        let listed = LISTS.iter().any(|(known, _)| known == rfc);
        if listed && !known.contains(&(rfc.clone(), id.clone())) {
            wrong.push(format!("RFC {rfc} {id} is annotated in {files:?} and not in the list"));
        }
    }
    (text, wrong)
}

/// What a list leaves out: numbers of RFC 9293's Appendix B, keywords of RFC 8684. Nothing is known of other
/// RFCs.
fn omissions(rfc: &str, listed: &[&Requirement]) -> Vec<String> {
    let find = |id: &str| listed.iter().find(|requirement| requirement.id == id);
    if rfc == "9293" {
        let all = APPENDIX_B.iter().flat_map(|(kind, last)| (1..=*last).map(move |n| format!("{kind}-{n}")));
        return all.filter(|id| find(id).is_none()).map(|id| format!("RFC 9293 {id} isn't listed")).collect();
    }
    let mut wrong = Vec::new();
    if rfc != "8684" {
        return wrong;
    }
    let mut counted = BTreeSet::new();
    for (section, keywords) in read_keywords(KEYWORDS) {
        for (n, keyword) in keywords.iter().enumerate() {
            let id = format!("{section}-{}", n + 1);
            match find(&id) {
                Some(requirement) if requirement.level == *keyword => {}
                Some(requirement) => {
                    wrong.push(format!("RFC 8684 {id} is a {keyword}, listed as {}", requirement.level));
                }
                None => wrong.push(format!("RFC 8684 {id}, a {keyword}, isn't listed")),
            }
            counted.insert(id);
        }
    }
    let stated = |r: &Requirement| r.level == "stated" && r.id.ends_with(|c: char| c.is_ascii_lowercase());
    let unknown = listed.iter().filter(|r| !stated(r) && !counted.contains(&r.id));
    wrong.extend(unknown.map(|r| format!("RFC 8684 {} has no keyword in the text", r.id)));
    wrong
}

/// The table of keywords: sections, and theirs in order.
fn read_keywords(table: &str) -> Vec<(&str, Vec<&str>)> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.filter_map(|line| line.split_once(" | "));
    rows.map(|(section, keywords)| (section, keywords.split(", ").collect())).collect()
}

/// The same from an RFC's text: sections begin at the margin with their number, and a keyword may be broken
/// over two lines. The first heading of a number is the table of contents', if it is indented; so it doesn't
/// count.
fn count_keywords(text: &str) -> Vec<(String, Vec<String>)> {
    let heading = |line: &str| {
        let (number, title) = line.split_once(".  ")?;
        let is_number =
            number.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
        (is_number && !title.is_empty()).then(|| number.to_string())
    };
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut section = None;
    let mut before = "";
    for line in text.lines() {
        if let Some(number) = heading(line) {
            section = Some(number);
            continue;
        }
        let Some(section) = &section else { continue };
        for word in line.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()) {
            let keywords = match found.last_mut() {
                Some((last, keywords)) if last == section => keywords,
                _ => {
                    found.push((section.clone(), Vec::new()));
                    &mut found.last_mut().expect("just pushed").1
                }
            };
            match (before, word) {
                ("MUST" | "SHALL" | "SHOULD", "NOT") => {
                    if let Some(last) = keywords.last_mut() {
                        last.push_str(" NOT");
                    }
                }
                ("NOT", "RECOMMENDED") => keywords.push("NOT RECOMMENDED".into()),
                (_, "MUST" | "SHALL" | "SHOULD" | "REQUIRED" | "RECOMMENDED") => keywords.push(word.into()),
                _ => {}
            }
            before = word;
        }
    }
    // Section 1.5 says what the keywords mean.
    found.retain(|(section, keywords)| section != "1.5" && !keywords.is_empty());
    found
}

fn section(text: &mut String, done: &mut Vec<String>, others: &mut Vec<Shown>) {
    if !done.is_empty() {
        let _ = writeln!(text, "\n{}.", done.join(", "));
    }
    // Neighbours with the same reason as another share a line.
    let same = |a: &Shown, b: &Shown| matches!((a, b), (Shown::As(_, a), Shown::As(_, b)) if a == b);
    for (n, alike) in others.chunk_by(same).enumerate() {
        text.push_str(if n == 0 { "\n- " } else { "- " });
        let names = alike.iter().map(|shown| match shown {
            Shown::Done(text) | Shown::Words(text) => text.as_str(),
            Shown::As(name, _) => name.as_str(),
        });
        text.push_str(&names.collect::<Vec<_>>().join(", "));
        if let [Shown::As(_, other), ..] = alike {
            let _ = write!(text, ": see {other}");
        }
        text.push('\n');
    }
    done.clear();
    others.clear();
}

/// A statement on the page.
enum Shown {
    /// It is done and tested.
    Done(String),
    /// What is missing, in words.
    Words(String),
    /// Its name, and the statement that has its reason.
    As(String, String),
}

/// A statement with its places; what contradicts itself goes to `wrong`.
fn entry(
    wrong: &mut Vec<String>,
    rfc: &str,
    requirement: &Requirement,
    [done, tested]: &[BTreeSet<String>; 2],
) -> Shown {
    let Requirement { id, level, words, remark, untested } = requirement;
    let undone = remark.as_ref().is_some_and(|remark| !remark.starts_with("partly: "));
    if undone && !done.is_empty() {
        wrong.push(format!("RFC {rfc} {id} is listed as not done and annotated in {done:?}"));
    }
    if !undone && done.is_empty() {
        wrong.push(format!("RFC {rfc} {id} has neither an annotation nor a reason why not"));
    }
    if untested.is_some() && (undone || !tested.is_empty()) {
        wrong.push(format!("RFC {rfc} {id} says why it has no test, and has {tested:?} or isn't done"));
    }
    if untested.is_none() && !undone && tested.is_empty() {
        wrong.push(format!("RFC {rfc} {id} has neither a test nor a reason why not (`untested: ...`)"));
    }
    let name = if undone { id.clone() } else { link(done, id) };
    let tests = if tested.is_empty() { String::new() } else { format!(" {}", link(tested, "t")) };
    if remark.is_none() && untested.is_none() {
        return Shown::Done(format!("{name}{tests}"));
    }
    let level = if level_of(id).is_some() { String::new() } else { format!(" ({level})") };
    let other = remark.as_ref().filter(|_| undone).and_then(|remark| remark.split_once(": see "));
    if let Some((_, other)) = other {
        return Shown::As(format!("{name}{level}"), other.to_string());
    }
    let mut entry = format!("{name}{tests}{level}: {words}");
    for (kind, shown) in [("no: ", "Not done"), ("partly: ", "Partly"), ("moot: ", "Doesn't arise")] {
        if let Some(reason) = remark.as_ref().and_then(|remark| remark.strip_prefix(kind)) {
            let _ = write!(entry, " **{shown}**: {reason}");
        }
    }
    if let Some(reason) = untested {
        let _ = write!(entry, " Untested: {reason}");
    }
    Shown::Words(entry)
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
        "docs/conformance.md is stale; `UPDATE=1 cargo test -p ropewalk --test conformance` rewrites \
         it.\n{differs:?}"
    );
}

/// The table of keywords is what a copy of the text says, where there is one.
#[test]
fn keywords_are_counted() {
    let made_up = "Contents\n   1.  One\n1.  One\n\n   A host MUST\n   NOT sleep and SHOULD eat; this is \
                   NOT RECOMMENDED\n\
        1.2.  Two\n   It must, it SHALL.\n3.  Empty\n   NOT REQUIRED\n";
    let owned = |rows: &[(&str, &[&str])]| -> Vec<(String, Vec<String>)> {
        rows.iter().map(|(s, k)| (s.to_string(), k.iter().map(|k| k.to_string()).collect())).collect()
    };
    let expected = owned(&[
        ("1", &["MUST NOT", "SHOULD", "NOT RECOMMENDED"]),
        ("1.2", &["SHALL"]),
        ("3", &["REQUIRED"]),
    ]);
    assert_eq!(count_keywords(made_up), expected);
    let table: Vec<_> = read_keywords(KEYWORDS);
    assert_eq!(table.iter().map(|(_, keywords)| keywords.len()).sum::<usize>(), 144);
    if let Some(path) = std::env::var_os("RFC8684") {
        let text = std::fs::read_to_string(&path).expect("the text of RFC 8684");
        let table: Vec<(&str, &[&str])> = table.iter().map(|(s, k)| (*s, k.as_slice())).collect();
        assert_eq!(count_keywords(&text), owned(&table));
    }
}

#[test]
fn omissions_are_found() {
    let read = |list: &str| -> Vec<Requirement> {
        let lines = read_list(list).expect("valid").into_iter();
        lines.filter_map(|l| if let Line::Requirement(r) = l { Some(r) } else { None }).collect()
    };
    let wrong = |rfc, list: &str| omissions(rfc, &read(list).iter().collect::<Vec<_>>());
    let all = LISTS[1].1;
    assert_eq!(wrong("8684", all), Vec::<String>::new());
    let without = all.replace("3.4.1-9 | SHOULD NOT |", "3.4.1-z | stated |");
    assert_eq!(wrong("8684", &without), ["RFC 8684 3.4.1-9, a SHOULD NOT, isn't listed"]);
    let weaker = all.replace("3.6-4 | MUST |", "3.6-4 | SHOULD |");
    assert_eq!(wrong("8684", &weaker), ["RFC 8684 3.6-4 is a MUST, listed as SHOULD"]);
    let invented = format!("{all}3.6-5 | MUST | words\n");
    assert_eq!(wrong("8684", &invented), ["RFC 8684 3.6-5 has no keyword in the text"]);
    let fewer = LISTS[0].1.replace("SHLD-13 | ", "SHLD-99 | ");
    assert_eq!(wrong("9293", &fewer), ["RFC 9293 SHLD-13 isn't listed"]);
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
        let mut wrong = Vec::new();
        entry(&mut wrong, "9293", &requirement, &found);
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
