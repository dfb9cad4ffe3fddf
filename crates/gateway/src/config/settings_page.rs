//! docs/settings.md: every setting of both files, made from their shapes.

use std::fmt::Write;

use ropewalk_settings::shape::{Change, Field, Kind, Shape};

const OPENING: &str = "# Settings of gateway and proxy

Every key of both files; its option on the command line has the same name, or the one beside it. *Restart*:
a reload (SIGHUP) refuses another value. [gateway.md](gateway.md) says what to use them for. Made from the
code by `UPDATE=1 cargo test -p ropewalk-gateway --lib settings_page`.
";

fn values(kind: &Kind) -> String {
    let what = match kind {
        Kind::Text => "a text",
        Kind::File => "a file",
        Kind::Socket => "address and port",
        Kind::Address => "an address",
        Kind::Time => "a time",
        Kind::Rate => "a rate",
        Kind::Rates => "a rate, or two",
        Kind::Texts => "a list",
        Kind::Switch => "true, false",
        _ => return kind.bounds().unwrap_or_else(|| panic!("say what a value of {kind:?} is")),
    };
    what.into()
}

/// A setting's line.
fn row(field: &Field, has_options: bool) -> String {
    let mut key = format!("`{}`", field.name);
    match field.option {
        _ if !has_options => {}
        None => key.push_str("; only in the file"),
        Some(option) if option != field.name => write!(key, "; `--{option}`").unwrap_or_default(),
        Some(_) => {}
    }
    let restart = if field.change == Some(Change::Restart) { " *Restart.*" } else { "" };
    let default = match field.default {
        "" if field.required => "needed".into(),
        "" => String::new(),
        default => format!("`{default}`"),
    };
    let summary = field.line();
    format!("| {key} | {summary}.{restart} | {} | {default} |\n", values(&field.kind))
}

/// One table of a file, as a table of Markdown. What is the same in another shape is only named.
fn table(header: &str, shape: &Shape, has_options: bool, other: Option<(&str, &Shape)>) -> String {
    let mut page = format!(
        "\n### `{header}`\n\n{}.\n\n| key | what it is | value | default |\n|---|---|---|---|\n",
        shape.summary
    );
    let there: Vec<String> = other
        .map_or(Vec::new(), |(_, shape)| shape.fields.iter().map(|field| row(field, has_options)).collect());
    let mut same = Vec::new();
    for field in shape.fields {
        let row = row(field, has_options);
        if there.contains(&row) {
            same.push(format!("`{}`", field.name));
        } else {
            page.push_str(&row);
        }
    }
    if let Some((header, _)) = other {
        let _ = writeln!(page, "\nAs in `{header}`: {}.", same.join(", "));
    }
    page
}

#[test]
fn the_settings_page_says_what_the_code_does() {
    let mut page = String::from(OPENING);
    page.push_str("\n## The gateway's file\n");
    page.push_str(&table("[gateway]", &super::GATEWAY, true, None));
    page.push_str(&table("[[listener]]", &super::listener::LISTENER, true, None));
    page.push_str("\n## The proxy's file\n");
    page.push_str(&table("[proxy]", &super::proxy::shape::PROXY, true, Some(("[gateway]", &super::GATEWAY))));
    page.push_str(&table("[[link]]", &super::proxy::shape::LINK, false, None));
    page.push_str(&table("[[rule]]", &super::proxy::shape::RULE, false, None));
    page.push_str(
        "\nOn the command line a link is `--via wlan0,metered,price=2.5`, a rule `--rule 'port=22 then \
         redundant'`.\n",
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == page,
        "docs/settings.md is out of date: UPDATE=1 cargo test -p ropewalk-gateway --lib settings_page"
    );
}
