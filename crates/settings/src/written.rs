//! Settings that are given as arguments, written as the file that would say the same: one reader reads both.
//! Its errors are placed in the argument.

use std::fmt::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

use crate::diagnostic::{Diagnostic, InputError, Source};
use crate::read::{Reader, document};
use crate::shape::{Kind, Shape};

/// A file that is written of arguments.
#[derive(Clone, Debug, Default)]
pub struct Written {
    text: String,
    /// Which part of the text comes from which part of which argument.
    places: Vec<(Range<usize>, Arc<Source>, Range<usize>)>,
}

impl Written {
    /// Begins a table: `[proxy]`, `[[link]]`.
    pub fn table(&mut self, header: &str) {
        self.text.push_str(header);
        self.text.push('\n');
    }

    /// Writes a key, with whole arguments as its values. A list has many, any other key one.
    pub fn key(&mut self, shape: &Shape, key: &str, values: &[Arc<Source>]) {
        let Some(first) = values.first() else { return };
        let all: Vec<_> = values.iter().map(|source| (source, 0..source.text.len())).collect();
        self.key_of_parts(shape, key, (first, 0..first.text.len()), &all);
    }

    /// Writes a key, which is named by a part of an argument, with parts of arguments as its values.
    fn key_of_parts(
        &mut self,
        shape: &Shape,
        key: &str,
        named: (&Arc<Source>, Range<usize>),
        values: &[(&Arc<Source>, Range<usize>)],
    ) {
        let kind = shape.fields.iter().find(|field| field.name == key).map(|field| field.kind);
        let start = self.text.len();
        let _ = write!(self.text, "{} = ", quoted(key));
        let is_list = matches!(kind, Some(Kind::Texts | Kind::Sizes));
        self.text.push_str(if is_list { "[" } else { "" });
        for (source, part) in values {
            let value = &source.text[part.clone()];
            let at = self.text.len();
            self.text.push_str(&match kind {
                Some(Kind::Switch) if value.is_empty() => "true".into(),
                Some(Kind::Switch | Kind::Integer(..) | Kind::Number(..)) if is_bare(value) => value.into(),
                _ => quoted(value),
            });
            self.places.push((at..self.text.len(), Arc::clone(source), part.clone()));
            self.text.push_str(if is_list { ", " } else { "" });
        }
        self.text.push_str(if is_list { "]\n" } else { "\n" });
        self.places.push((start..self.text.len(), Arc::clone(named.0), named.1));
    }

    /// Writes a table that is given as one argument: `wlan0,metered,price=2.5`. The first word is the value
    /// of the key `first`, any other is `key=value`; a key alone is `true`.
    pub fn inline(&mut self, header: &str, shape: &Shape, first: &str, source: &Arc<Source>) {
        let start = self.text.len();
        self.table(header);
        for (number, word) in parts(&source.text, 0..source.text.len(), &[',']).into_iter().enumerate() {
            let whole = word.clone();
            let (key, value) = match source.text[word.clone()].find('=') {
                _ if number == 0 => (first, word),
                Some(at) => (&source.text[word.start..word.start + at], word.start + at + 1..word.end),
                None => (&source.text[word.clone()], word.end..word.end),
            };
            self.key_of_parts(shape, key, (source, whole), &[(source, value)]);
        }
        self.places.push((start..self.text.len(), Arc::clone(source), 0..source.text.len()));
    }

    /// Writes a table of one argument: `port=22,5060-5061 size=1MiB then redundant`. What follows `then` is
    /// the value of `last`; commas part a list.
    pub fn rule(&mut self, header: &str, shape: &Shape, last: &str, source: &Arc<Source>) {
        const THEN: &str = " then ";
        let start = self.text.len();
        self.table(header);
        let then = source.text.find(THEN);
        for word in parts(&source.text, 0..then.unwrap_or(source.text.len()), &[' ', '\t']) {
            if word.is_empty() {
                continue;
            }
            let text = &source.text[word.clone()];
            let at = text.find('=').unwrap_or(text.len());
            let (key, value) = (&text[..at], (word.start + at + 1).min(word.end)..word.end);
            let is_list =
                shape.fields.iter().any(|field| field.name == key && matches!(field.kind, Kind::Texts));
            let values = if is_list { parts(&source.text, value, &[',']) } else { vec![value] };
            let values: Vec<_> = values.into_iter().map(|value| (source, value)).collect();
            self.key_of_parts(shape, key, (source, word), &values);
        }
        if let Some(at) = then {
            let outcome = parts(&source.text, at + THEN.len()..source.text.len(), &['\n'])[0].clone();
            self.key_of_parts(shape, last, (source, outcome.clone()), &[(source, outcome)]);
        }
        self.places.push((start..self.text.len(), Arc::clone(source), 0..source.text.len()));
    }

    /// Reads it as a file whose folder is the working directory.
    ///
    /// # Errors
    /// All mistakes, with their place in the arguments.
    pub fn read<T>(
        &self,
        read_tables: impl FnOnce(&mut Reader, &DeTable<'_>, Range<usize>) -> T,
    ) -> Result<T, InputError> {
        let source = Source::new("the command line", self.text.as_str());
        document(&source, Path::new(""), read_tables).map_err(|error| InputError {
            diagnostics: error.diagnostics.into_iter().map(|found| self.placed(found)).collect(),
        })
    }

    /// The same error, in the argument.
    fn placed(&self, mut found: Diagnostic) -> Diagnostic {
        let Some((_, span)) = found.place.take() else { return found };
        found.other = None;
        // The shortest part that holds it.
        let holds = |part: &Range<usize>| part.start <= span.start && span.end <= part.end;
        let all = self.places.iter().filter(|(part, ..)| holds(part));
        let Some((part, source, from)) = all.min_by_key(|(part, ..)| part.len()) else { return found };
        // The same letters, if the value is written as it was given.
        let written = &self.text[part.clone()];
        let shift = written.find(&source.text[from.clone()]).map(|at| part.start + at);
        let within = shift
            .filter(|shift| *shift <= span.start && span.end <= shift + from.len())
            .map(|shift| from.start + span.start - shift..from.start + span.end - shift);
        found.at(source, within.unwrap_or_else(|| from.clone()))
    }
}

/// The parts of a text's range between separators, without the spaces around them.
pub fn parts(text: &str, range: Range<usize>, separators: &[char]) -> Vec<Range<usize>> {
    let mut start = range.start;
    let found = text[range].split(separators).map(|part| {
        let from = start + (part.len() - part.trim_start().len());
        start += part.len() + 1;
        from..from + part.trim().len()
    });
    found.collect()
}

/// A number or a switch, as TOML has them.
fn is_bare(value: &str) -> bool {
    value == "true" || value == "false" || value.parse::<i128>().is_ok() || is_float(value)
}

/// A number with digits on both sides of its point.
fn is_float(value: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let value = value.strip_prefix(['-', '+']).unwrap_or(value);
    value.split_once('.').is_some_and(|(whole, rest)| digits(whole) && digits(rest))
}

/// A text in quotes.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => _ = write!(quoted, "\\u{:04X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use ropewalk_time::Span;

    use super::*;
    use crate::shape::{key, required};

    const LINK: Shape = Shape {
        name: "link",
        summary: "An uplink",
        fields: &[
            required("interface", Kind::Text, "The interface"),
            key("metered", Kind::Switch, "Whether it costs").default("false"),
            key("price", Kind::Number(0.0, 9.0), "What it costs").default("1.5"),
            key("mtu", Kind::Integer(576, 65_535), "Largest packet").default("1500"),
            key("wait", Kind::Time, "A time").default("2 s"),
        ],
    };

    fn read(text: &str) -> Result<(String, bool, f64, u64, Span), String> {
        let mut written = Written::default();
        written.inline("[link]", &LINK, "interface", &Source::new("--via", text));
        let found = written.read(|reader, document, _| {
            let table = reader.table(&LINK, document.get("link")?)?;
            let name = table.get("interface").and_then(|value| reader.text(value))?.to_string();
            let (metered, price) = (reader.switch(&table, "metered")?, reader.number(&table, "price")?);
            Some((name, metered, price, reader.integer(&table, "mtu")?, reader.time(&table, "wait")?))
        });
        found.map(|found| found.expect("no error, but nothing")).map_err(|error| error.to_string())
    }

    #[test]
    fn an_argument_is_read_as_a_file_is() {
        assert_eq!(read("wlan0"), Ok(("wlan0".into(), false, 1.5, 1500, Span::from_secs(2))));
        let all = read("a\\\"b, metered ,price=2,mtu=9000,wait=1 ms");
        assert_eq!(all, Ok(("a\\\"b".into(), true, 2.0, 9000, Span::from_millis(1))));
        assert_eq!(read("a,metered=false").map(|found| found.1), Ok(false));
    }

    #[test]
    fn errors_have_their_place_in_the_argument() {
        for (text, expected) in [
            ("a,fast", "--via:1:3: unknown key `fast` in a `link`"),
            ("a,mtu=9", "--via:1:7: `mtu` must be a whole number from 576 to 65535 (found `9`)"),
            ("a,mtu=x y", "--via:1:7: `mtu` must be a whole number"),
            ("a,price=cheap", "--via:1:9: `price` must be a number from 0 to 9"),
            ("a,wait=5 x", "--via:1:10: "),
            ("a,metered=maybe", "--via:1:11: expected true or false"),
            ("a,mtu=600,mtu=700", "given twice"),
            ("a,=", "--via:1:3: unknown key ``"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_rule_is_read_as_a_table() {
        const RULE: Shape = Shape {
            name: "rule",
            summary: "A rule",
            fields: &[
                required("policy", Kind::Text, "What follows"),
                key("port", Kind::Texts, "Ports"),
                key("size", Kind::Bytes(1, 1 << 30), "Bytes"),
            ],
        };
        let read = |text: &str| {
            let mut written = Written::default();
            written.rule("[[rule]]", &RULE, "policy", &Source::new("--rule", text));
            written.read(|reader, document, _| {
                let rule = document["rule"].get_ref().as_array().map(|all| &all[0])?;
                let table = reader.table(&RULE, rule)?;
                let ports = table.get("port").map(|ports| ports.get_ref().as_array().unwrap().len());
                let policy = table.get("policy").and_then(|value| reader.text(value))?.to_string();
                Some((ports, reader.bytes(&table, "size"), policy))
            })
        };
        let all = read(" port=22,5060-5061  size=1KiB then redundant over a,b ").unwrap().unwrap();
        assert_eq!(all, (Some(2), Some(1024), "redundant over a,b".into()));
        for (text, expected) in [
            ("port=22", "--rule:1:1: a `rule` needs `policy`"),
            ("size=0 then a", "--rule:1:6: `size` is out of range"),
            ("prot=22 then a", "--rule:1:1: unknown key `prot`"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_is_given_panics(text in "\\PC{0,40}") {
            let _ = read(&text);
            let mut written = Written::default();
            written.rule("[rule]", &LINK, "interface", &Source::new("--rule", text));
            let _ = written.read(|reader, document, _| {
                document.get("rule").map(|rule| reader.table(&LINK, rule).is_some())
            });
        }

        #[test]
        fn what_is_quoted_is_read_as_it_was(text in ".{0,40}") {
            let name = text.trim();
            if !name.contains(',') {
                proptest::prop_assert_eq!(read(name).map(|found| found.0), Ok(name.to_string()));
            }
        }
    }
}
