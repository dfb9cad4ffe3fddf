//! What `advise --measured` says of files as people have them: `measured/variants.txt`. After a change that
//! is wanted, `UPDATE=1 cargo test -p ropewalk-lab --test all variants` renews it: read the difference.

use std::path::Path;

use ropewalk_lab::advise::measure::{Reading, parse, refine};
use ropewalk_lab::scenario;
use ropewalk_sim::Direction;

/// What is said of a file, or why it is refused.
fn said(name: &str, text: &str) -> String {
    let path = scenario::path("dsl: 16/1 Mbit/s, 30 ms").expect("a path");
    let read = parse(name, text)
        .and_then(|found| Ok((refine("dsl", Some(path), std::slice::from_ref(&found))?, found)));
    match read {
        Ok((refined, found)) => {
            let files = [(name.to_string(), found)];
            Reading::of(&refined.path, &refined.doubt, &files, &refined.notes, Direction::Download).text()
        }
        Err(refused) => format!("error: {}", refused.message),
    }
}

#[test]
fn files_as_people_have_them_are_read_as_what_they_say() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/measured/variants.txt");
    let text = std::fs::read_to_string(&file).expect("the variants");
    let (head, rest) = text.split_once("<<< ").expect("a first variant");
    let mut renewed = head.to_string();
    for variant in rest.split("<<< ") {
        let (title, rest) = variant.split_once('\n').expect("a title");
        let (input, _) = rest.split_once(">>>\n").expect("what is said");
        let name = title.split(':').next().expect("a name");
        renewed += &format!("<<< {title}\n{input}>>>\n{}\n\n", said(name, input));
    }
    if std::env::var_os("UPDATE").is_some() {
        return std::fs::write(&file, &renewed).expect("the variants can be written");
    }
    assert_eq!(text, renewed, "UPDATE=1 renews it");
}
