//! Reads values from a parsed TOML document and collects all errors with their places.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::shape::{Field, Shape, renamed};
use crate::diagnostic::{Diagnostic, Source, did_you_mean};
use crate::units::{self, UnitError};

/// A value with its place.
pub type Value<'t> = Spanned<DeValue<'t>>;

/// Reads values and collects errors.
#[derive(Debug)]
pub struct Reader {
    /// What is read.
    pub source: Arc<Source>,
    /// The folder that trace files are relative to.
    pub folder: PathBuf,
    /// What is wrong with it.
    pub errors: Vec<Diagnostic>,
}

/// A table whose keys are known.
#[derive(Clone, Debug)]
pub struct Table<'t> {
    /// The keys that it may have.
    pub shape: &'static Shape,
    /// The keys that it has.
    pub entries: &'t DeTable<'t>,
    /// Where it is.
    pub span: Range<usize>,
}

impl<'t> Table<'t> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&'t Value<'t>> {
        debug_assert!(self.shape.fields.iter().any(|field| field.name == key), "`{key}` is not in the shape");
        self.entries.get(key)
    }

    /// The span of a key, or else of the table.
    pub fn place(&self, key: &str) -> Range<usize> {
        self.entries.get_key_value(key).map_or(self.span.clone(), |(key, _)| key.span())
    }
}

/// The type of a value, for "found ...".
fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

impl Reader {
    /// Adds an error at `span` of the file.
    pub fn wrong(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<String>,
    ) {
        let diagnostic = Diagnostic::new(message).at(&self.source, span).label(label).help(help);
        self.errors.push(diagnostic);
    }

    fn wrong_kind(&mut self, value: &Value<'_>, expected: &str) {
        let label = format!("found {}", kind_of(value.get_ref()));
        self.wrong(value.span(), format!("expected {expected}"), label, "");
    }

    /// A table of this shape. Unknown and missing keys are errors.
    pub fn table<'t>(&mut self, shape: &'static Shape, value: &'t Value<'t>) -> Option<Table<'t>> {
        let Some(entries) = value.get_ref().as_table() else {
            self.wrong_kind(value, &format!("a {} table", shape.name));
            return None;
        };
        Some(self.check(shape, entries, value.span(), None))
    }

    /// As [`Reader::table`], for a table's entries; `tag` is an additional allowed key.
    pub fn check<'t>(
        &mut self,
        shape: &'static Shape,
        entries: &'t DeTable<'t>,
        span: Range<usize>,
        tag: Option<&str>,
    ) -> Table<'t> {
        let names = || shape.fields.iter().map(|field| field.name).chain(tag);
        for (key, _) in entries {
            let name = key.get_ref().as_ref();
            if names().any(|known| known == name) {
                continue;
            }
            if let Some(new) = renamed(name).filter(|new| names().any(|known| known == *new)) {
                let message = format!("`{name}` is now called `{new}`");
                self.wrong(key.span(), message, "the old name", format!("write `{new}`"));
                continue;
            }
            let allowed: Vec<_> = names().collect();
            let mut help = format!("allowed: {}", allowed.join(", "));
            let near = did_you_mean(name, names());
            if !near.is_empty() {
                help = format!("{near} {help}");
            }
            self.wrong(key.span(), format!("unknown key `{name}` in {}", of(shape)), "not known here", help);
        }
        for Field { name, summary, .. } in shape.fields.iter().filter(|field| field.required) {
            if !entries.contains_key(*name) {
                let help = format!("{name}: {}", lower_first(summary));
                self.wrong(
                    span.clone(),
                    format!("{} needs `{name}`", of(shape)),
                    "`".to_owned() + name + "` is missing",
                    help,
                );
            }
        }
        Table { shape, entries, span }
    }

    /// A table whose `kind` selects its shape.
    pub fn tagged<'t>(
        &mut self,
        shapes: &'static [Shape],
        what: &str,
        value: &'t Value<'t>,
    ) -> Option<Table<'t>> {
        let Some(entries) = value.get_ref().as_table() else {
            self.wrong_kind(value, &format!("a {what} table with a `kind`"));
            return None;
        };
        let names = || shapes.iter().map(|shape| shape.name);
        let list = names().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let Some(kind) = entries.get("kind") else {
            self.wrong(
                value.span(),
                format!("a {what} needs a `kind`"),
                "`kind` is missing",
                format!("allowed: {list}"),
            );
            return None;
        };
        let text = self.text(kind)?;
        match shapes.iter().find(|shape| shape.name == text) {
            Some(shape) => Some(self.check(shape, entries, value.span(), Some("kind"))),
            None => {
                let help = format!("{} allowed: {list}", did_you_mean(text, names()));
                self.wrong(
                    kind.span(),
                    format!("unknown kind of {what} `{text}`"),
                    format!("found `{text}`"),
                    help.trim(),
                );
                None
            }
        }
    }

    /// The tables of an array of tables; empty if the key is absent.
    pub fn array<'t>(&mut self, table: &Table<'t>, key: &str) -> &'t [Value<'t>] {
        match table.get(key) {
            None => &[],
            Some(value) => match value.get_ref().as_array() {
                Some(array) => array,
                None => {
                    self.wrong_kind(value, &format!("a list of tables: `[[{key}]]`"));
                    &[]
                }
            },
        }
    }

    /// A text.
    pub fn text<'t>(&mut self, value: &'t Value<'t>) -> Option<&'t str> {
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.wrong_kind(value, "a text in quotes");
        }
        text
    }

    /// `true` or `false`.
    pub fn switch(&mut self, table: &Table<'_>, key: &str) -> Option<bool> {
        let value = table.get(key)?;
        match value.get_ref() {
            DeValue::Boolean(on) => Some(*on),
            _ => {
                self.wrong_kind(value, "true or false");
                None
            }
        }
    }

    /// A whole number in a range.
    pub fn integer(&mut self, table: &Table<'_>, key: &str, range: (u64, u64)) -> Option<u64> {
        let value = table.get(key)?;
        let found = match value.get_ref() {
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        match found {
            Some(number) if (i128::from(range.0)..=i128::from(range.1)).contains(&number) => {
                Some(number as u64)
            }
            _ => {
                let shown = self.source.text[value.span()].to_string();
                let expected = format!("`{key}` must be a whole number from {} to {}", range.0, range.1);
                self.wrong(value.span(), expected, format!("found `{shown}`"), "");
                None
            }
        }
    }

    /// A number in a range.
    pub fn number(&mut self, table: &Table<'_>, key: &str, range: (f64, f64)) -> Option<f64> {
        let value = table.get(key)?;
        let found = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            _ => None,
        };
        match found {
            Some(number) if number >= range.0 && number <= range.1 => Some(number),
            _ => {
                let shown = self.source.text[value.span()].to_string();
                let expected = format!("`{key}` must be a number from {} to {}", range.0, range.1);
                self.wrong(value.span(), expected, format!("found `{shown}`"), "");
                None
            }
        }
    }

    /// One of some words.
    pub fn choice<T: Copy>(&mut self, table: &Table<'_>, key: &str, words: &[(&str, T)]) -> Option<T> {
        let value = table.get(key)?;
        let list = words.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
        let Some(text) = value.get_ref().as_str() else {
            self.wrong_kind(value, &format!("one of {list}"));
            return None;
        };
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let help = format!("{} allowed: {list}", did_you_mean(text, words.iter().map(|(word, _)| *word)));
            self.wrong(
                value.span(),
                format!("`{key}` can't be `{text}`"),
                format!("found `{text}`"),
                help.trim(),
            );
        }
        found.map(|(_, choice)| *choice)
    }

    /// A quantity with its unit. Errors point at the wrong part of the text.
    pub fn quantity<T>(
        &mut self,
        value: &Value<'_>,
        example: &str,
        parse: impl FnOnce(&str) -> Result<T, UnitError>,
    ) -> Option<T> {
        let span = value.span();
        let text = match value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) if number.as_str() == "0" => "0",
            _ => {
                let shown = self.source.text[span.clone()].to_string();
                let label = match value.get_ref() {
                    DeValue::Integer(_) | DeValue::Float(_) => format!("found `{shown}`"),
                    other => format!("found {}", kind_of(other)),
                };
                let help = format!("write it in quotes and with its unit: \"{example}\"");
                self.wrong(span, "expected a quantity with its unit", label, help);
                return None;
            }
        };
        match parse(text) {
            Ok(quantity) => Some(quantity),
            Err(error) => {
                self.unit_error(span, text, error);
                None
            }
        }
    }

    /// Adds an error inside a text value.
    pub fn unit_error(&mut self, span: Range<usize>, text: &str, error: UnitError) {
        let place = self.inside(span, text, error.span);
        self.wrong(place, error.message, error.label, error.help);
    }

    /// The span of `part` of a text value; of the whole value if it has escapes.
    pub fn inside(&self, span: Range<usize>, text: &str, part: Range<usize>) -> Range<usize> {
        let written = &self.source.text[span.clone()];
        match written.find(text) {
            Some(start) if !text.is_empty() => {
                let start = span.start + start;
                start + part.start..start + part.end.max(part.start + 1).min(text.len())
            }
            _ => span,
        }
    }

    /// A time.
    pub fn time(&mut self, table: &Table<'_>, key: &str) -> Option<u64> {
        self.quantity(table.get(key)?, "20 ms", units::duration)
    }

    /// A size in a range.
    pub fn bytes_within(&mut self, table: &Table<'_>, key: &str, range: (u64, u64)) -> Option<u64> {
        let mut out_of_range = false;
        let found = self.quantity(table.get(key)?, "64 KiB", |text| {
            units::bytes_within(text, range)
                .inspect_err(|error| out_of_range = error.message.ends_with("out of range"))
        });
        // The key is clearer than "this size".
        if let Some(last) = self.errors.last_mut().filter(|_| out_of_range) {
            last.message = format!("`{key}` is out of range");
        }
        found
    }

    /// A probability.
    pub fn probability(&mut self, table: &Table<'_>, key: &str) -> Option<f64> {
        self.quantity(table.get(key)?, "0.5 %", units::probability)
    }
}

/// "a path", "the scenario".
fn of(shape: &Shape) -> String {
    match shape.name {
        "scenario" => "the scenario".into(),
        "experiment" => "the experiment".into(),
        name if name.starts_with(['a', 'e', 'i', 'o', 'u']) => format!("an `{name}`"),
        name => format!("a `{name}`"),
    }
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}
