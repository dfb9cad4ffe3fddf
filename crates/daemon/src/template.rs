//! A configuration's file to begin with: every key behind its summary, commented out but for those that are
//! given.

use ropewalk_command_line::settings::placeholder;
use ropewalk_settings::shape::{Change, Field, Kind, Shape};

/// Most columns of a comment.
const COLUMNS: usize = 100;

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    // JSON's escapes are TOML's, too.
    serde_json::Value::from(text).to_string()
}

/// A value as TOML has it, of what a command line or a default says.
fn value(kind: Kind, words: &[&str]) -> String {
    let first = words.first().copied().unwrap_or_default();
    match kind {
        Kind::Texts => format!("[{}]", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", ")),
        Kind::Switch if first.is_empty() => "true".into(),
        Kind::Switch | Kind::Integer(..) | Kind::Number(..) => first.into(),
        _ => quoted(first),
    }
}

/// Appends a comment, a line of it at a time.
fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split(' ') {
        if line.len() + word.len() >= COLUMNS {
            text.push_str(&line);
            text.push('\n');
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}

/// Whether both are the same key: a table that is a constant may have several places in memory.
fn is_same(one: &Field, other: &Field) -> bool {
    (one.name, one.option) == (other.name, other.option)
}

/// Appends a table. `given` are the keys that it has; without any, a table of which there may be many is
/// commented out as a whole.
pub(crate) fn table(text: &mut String, header: &str, shape: &Shape, given: &[(&Field, Vec<&str>)]) {
    let own: Vec<_> =
        given.iter().filter(|(field, _)| shape.fields.iter().any(|one| is_same(one, field))).collect();
    text.push('\n');
    comment(text, &format!("{}.", shape.summary));
    let mark = if header.starts_with("[[") && own.is_empty() { "#" } else { "" };
    text.push_str(&format!("{mark}{header}\n"));
    for field in shape.fields {
        let said = own.iter().find(|(known, _)| is_same(known, field));
        let needed = if field.required { " Needed." } else { "" };
        let restart = if field.change == Some(Change::Restart) { " Restart after a change." } else { "" };
        comment(text, &format!("{}.{needed}{restart}", field.line()));
        let (mark, value) = match said {
            Some((_, words)) => ("", value(field.kind, words)),
            None if field.default.is_empty() => ("#", value(field.kind, &[placeholder(field)])),
            None => ("#", value(field.kind, &[field.default])),
        };
        text.push_str(&format!("{mark}{} = {value}\n", field.name));
    }
}

/// The keys of a link that is given as one argument: `wlan0,metered,price=2.5`.
pub(crate) fn link<'a>(shape: &'static Shape, via: &'a str) -> Vec<(&'static Field, Vec<&'a str>)> {
    let words = via.split(',').map(str::trim).enumerate();
    let key = |(at, word): (usize, &'a str)| {
        let (name, value) =
            if at == 0 { ("interface", word) } else { word.split_once('=').unwrap_or((word, "")) };
        Some((shape.fields.iter().find(|field| field.name == name)?, vec![value]))
    };
    words.filter_map(key).collect()
}

#[cfg(test)]
mod tests {
    use ropewalk_gateway::config;
    use ropewalk_settings::diagnostic::Source;

    use super::*;

    /// Removes the mark of every key that has a default, but for those that go with a gateway.
    fn uncommented(text: &str, tables: &[(&str, &Shape)]) -> String {
        let has_default = |line: &str| {
            let name = line.strip_prefix('#').and_then(|line| line.split(" = ").next()).unwrap_or_default();
            let fields = tables.iter().flat_map(|(_, shape)| shape.fields);
            fields
                .clone()
                .any(|field| field.name == name && !field.default.is_empty() && !name.starts_with("gateway-"))
        };
        let line = |line: &str| if has_default(line) { line[1..].to_string() } else { line.to_string() };
        text.lines().map(|one| line(one) + "\n").collect()
    }

    #[test]
    fn the_gateways_file_says_what_is_so_without_it() {
        let mut text = String::new();
        let listener = config::TABLES[0].1;
        let given = [
            (listener.field("listen"), vec!["192.0.2.1:443"]),
            (listener.field("to"), vec!["127.0.0.1:8443"]),
        ];
        for (header, shape) in [config::TABLES[1], config::TABLES[0]] {
            table(&mut text, header, shape, &given);
        }
        assert!(text.lines().all(|line| line.len() <= 110), "{text}");
        let read = |text: &str| {
            let source = Source::new("gateway.toml", text);
            let registries = ropewalk_algorithms::Registries::builtin();
            let settings = config::parse(&source, std::path::Path::new(""), &registries);
            // What a restart is needed for is known by what the file says, which differs.
            let mut settings = settings.unwrap_or_else(|error| panic!("{error}"));
            settings.fixed.clear();
            format!("{settings:?}")
        };
        assert_eq!(read(&text), read(&uncommented(&text, config::TABLES)));
        let mut empty = String::new();
        table(&mut empty, "[[listener]]", listener, &[]);
        assert!(empty.lines().all(|line| line.is_empty() || line.starts_with('#')), "{empty}");
    }

    #[test]
    fn the_proxys_file_says_what_is_so_without_it() {
        let (mut text, shape) = (String::new(), config::proxy::REPEATED[0].1);
        table(&mut text, "[proxy]", config::proxy::TABLES[0].1, &[]);
        for via in ["wlan0", "wwan0,metered,price=2.5,quota=5GB/monthly@12"] {
            table(&mut text, "[[link]]", shape, &link(shape, via));
        }
        let read = |text: &str| {
            let config = config::proxy::parse(&Source::new("proxy.toml", text), std::path::Path::new(""));
            let mut config = config.unwrap_or_else(|error| panic!("{error}"));
            config.fixed.clear();
            format!("{config:?}")
        };
        let told = read(&text);
        assert!(told.contains("price: Some(2.5)") && told.contains("metered: true"), "{told}");
        assert_eq!(told, read(&uncommented(&text, config::proxy::TABLES)));
    }
}
