//! `docs/threats.md` names a test for each threat: every one of them exists.

use std::path::Path;

#[test]
fn every_test_that_the_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| {
        std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let page = read("docs/threats.md");
    let spans = page.split('`').skip(1).step_by(2);
    let named: Vec<&str> =
        spans.filter(|span| span.starts_with("crates/") || span.starts_with("fuzz/")).collect();
    assert!(named.len() > 40, "{} tests are named", named.len());
    for span in named {
        let (path, test) = span.split_once("::").unwrap_or((span, ""));
        let text = read(path);
        assert!(test.is_empty() || text.contains(&format!("fn {test}(")), "{path} has no test `{test}`");
        let is_whole = path.ends_with(".pkt") || text.contains("fuzz_target!");
        assert!(is_whole || !test.is_empty(), "{span}: which test of it?");
    }
    // Every row names a test.
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.contains("| tests |"));
    rows.for_each(|row| assert!(row.contains("`crates/") || row.contains("`fuzz/"), "no test: {row}"));
}
