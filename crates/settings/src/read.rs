//! Reads values from a parsed TOML document and collects all errors with their places.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use ropewalk_time::Span;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::diagnostic::{Diagnostic, InputError, Source, did_you_mean};
use crate::shape::{Change, Field, Kind, Shape};
use crate::units::{self, UnitError};

/// A value with its place.
pub type Value<'t> = Spanned<DeValue<'t>>;

/// Reads values and collects errors.
#[derive(Debug)]
pub struct Reader {
    /// What is read.
    pub source: Arc<Source>,
    /// The folder that files which it names are relative to.
    pub folder: PathBuf,
    /// The files that it names and are read.
    pub files: Vec<PathBuf>,
    /// What is wrong with it.
    pub errors: Vec<Diagnostic>,
    asked: Asked,
}

/// Keys whose values were asked for, each with the name of its table's shape.
type Asked = Rc<RefCell<BTreeSet<(&'static str, &'static str)>>>;

/// A table whose keys are known.
#[derive(Clone, Debug)]
pub struct Table<'t> {
    /// The keys that it may have.
    pub shape: &'static Shape,
    /// The keys that it has.
    pub entries: &'t DeTable<'t>,
    /// Where it is.
    pub span: Range<usize>,
    /// The values of keys that it doesn't have.
    defaults: DeTable<'static>,
    asked: Asked,
}

impl<'t> Table<'t> {
    /// A table with these entries.
    fn new(shape: &'static Shape, entries: &'t DeTable<'t>, span: Range<usize>, asked: &Asked) -> Table<'t> {
        let missing = |field: &&Field| !field.default.is_empty() && !entries.contains_key(field.name);
        let defaults = shape.fields.iter().filter(missing).map(|field| {
            let value = match field.kind {
                Kind::Switch | Kind::Integer(..) | Kind::Number(..) => {
                    DeValue::parse(field.default).expect("a default is TOML").into_inner()
                }
                _ => DeValue::String(field.default.into()),
            };
            (Spanned::new(span.clone(), field.name.into()), Spanned::new(span.clone(), value))
        });
        Table { shape, entries, defaults: defaults.collect(), span, asked: Rc::clone(asked) }
    }

    /// The value of a key, or its default.
    pub fn get(&self, key: &str) -> Option<&Value<'_>> {
        let field = self.shape.field(key);
        self.asked.borrow_mut().insert((self.shape.name, field.name));
        self.value(field)
    }

    fn value(&self, field: &Field) -> Option<&Value<'_>> {
        self.entries.get(field.name).or_else(|| self.defaults.get(field.name))
    }

    /// Whether it has this key itself. Its value isn't asked for by that.
    pub fn has(&self, key: &str) -> bool {
        self.shape.field(key);
        self.entries.contains_key(key)
    }

    /// The keys that a running program can't take another value of, and their values.
    pub fn fixed(&self) -> Vec<(&'static str, String)> {
        let fixed = self.shape.fields.iter().filter(|field| field.change == Some(Change::Restart));
        let text = |field: &Field| self.value(field).map(|value| plain(value.get_ref()));
        fixed.map(|field| (field.name, text(field).unwrap_or_default())).collect()
    }

    /// The span of a key, or else of the table.
    pub fn place(&self, key: &str) -> Range<usize> {
        self.entries.get_key_value(key).map_or(self.span.clone(), |(key, _)| key.span())
    }
}

/// A value without the place where it stands, to be compared.
fn plain(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Array(all) => {
            format!("{:?}", all.iter().map(|one| plain(one.get_ref())).collect::<Vec<_>>())
        }
        DeValue::Table(table) => {
            let entry =
                |(key, one): (&Spanned<DeString<'_>>, &Value<'_>)| (key.to_string(), plain(one.get_ref()));
            format!("{:?}", table.iter().map(entry).collect::<Vec<_>>())
        }
        other => format!("{other:?}"),
    }
}

/// Parses a text's TOML.
///
/// # Errors
/// The first mistakes of syntax.
pub fn parse(source: &Arc<Source>) -> Result<Spanned<DeTable<'_>>, InputError> {
    let (document, syntax) = DeTable::parse_recoverable(&source.text);
    if syntax.is_empty() { Ok(document) } else { Err(syntax_errors(source, &syntax)) }
}

/// A text's first line: the place for what is missing in it. A document's own span is the whole text.
pub fn first_line(source: &Source) -> Range<usize> {
    0..source.text.lines().next().map_or(0, str::len)
}

/// Reads a document: `read_tables` is given its entries, and its first line.
///
/// # Errors
/// All mistakes in it.
pub fn document<T>(
    source: &Arc<Source>,
    folder: &Path,
    read_tables: impl FnOnce(&mut Reader, &DeTable<'_>, Range<usize>) -> T,
) -> Result<T, InputError> {
    let document = parse(source)?;
    let mut reader = Reader::new(source, folder);
    let found = read_tables(&mut reader, document.get_ref(), first_line(source));
    if reader.errors.is_empty() { Ok(found) } else { Err(InputError { diagnostics: reader.errors }) }
}

/// What is wrong with a text that isn't TOML.
fn syntax_errors(source: &Arc<Source>, syntax: &[toml::de::Error]) -> InputError {
    // After a mistake of syntax the rest of the file means little: the first few are enough.
    let diagnostics = syntax.iter().take(3).map(|error| {
        let found = Diagnostic::new(error.message().to_string());
        match error.span() {
            Some(span) => match first_of(&source.text, &span) {
                Some(first) if error.message() == "duplicate key" => {
                    Diagnostic::new(format!("`{}` is given twice", &source.text[span.clone()]))
                        .at(source, span)
                        .label("the second; this is not valid TOML")
                        .other(first, "the first is here")
                }
                _ => found.at(source, span).label("this is not valid TOML"),
            },
            None => found,
        }
    });
    InputError { diagnostics: diagnostics.collect() }
}

/// Where the key at `second` stood before: in another header like its own, or earlier in its table.
fn first_of(text: &str, second: &Range<usize>) -> Option<Range<usize>> {
    let line_start = text[..second.start].rfind('\n').map_or(0, |at| at + 1);
    let before = &text[line_start..second.start];
    let key = text.get(second.clone())?;
    let found = |start: usize| Some(start..start + key.len());
    let lines = || {
        let mut start = 0;
        text[..line_start].split_inclusive('\n').map(move |line| {
            start += line.len();
            (start - line.len(), line)
        })
    };
    let is_header = |line: &str| line.trim_start().starts_with('[');
    // As the line has it up to the key's end, spaces aside: `[client`, `up.loss`.
    let lead = |line: &str| line.split(['=', ']']).next().unwrap_or_default().trim().to_string();
    let own = lead(text[line_start..].lines().next()?);
    let inside = |(start, line): (usize, &str)| found(start + line.find(key)?);
    if is_header(before) {
        return lines().find(|(_, line)| is_header(line) && lead(line) == own).and_then(inside);
    }
    if before.contains('=') {
        // In a table of one line.
        let opened = before.rfind('{').unwrap_or(0);
        return before[opened..].find(key).and_then(|at| found(line_start + opened + at));
    }
    let mut table: Vec<(usize, &str)> = lines().collect();
    if let Some(header) = table.iter().rposition(|(_, line)| is_header(line)) {
        table.drain(..=header);
    }
    table.into_iter().find(|(_, line)| line.contains('=') && lead(line) == own).and_then(inside)
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
    /// A reader of `source`; files that it names are relative to `folder`.
    pub fn new(source: &Arc<Source>, folder: &Path) -> Self {
        let (source, folder) = (source.clone(), folder.to_path_buf());
        Reader { source, folder, files: Vec::new(), errors: Vec::new(), asked: Rc::default() }
    }

    /// The keys of a shape that the program has read in none of its tables: what a file says there has no
    /// effect.
    pub fn unasked(&self, shape: &Shape) -> Vec<&'static str> {
        let asked = self.asked.borrow();
        let names = shape.fields.iter().map(|field| field.name);
        names.filter(|name| !asked.contains(&(shape.name, *name))).collect()
    }

    /// Reads a key that has a default. Where its value is wrong that is noted, and the default is returned.
    ///
    /// # Panics
    /// If the key has no default, or one that can't be read: a mistake of the program.
    pub fn with_default<T>(
        &mut self,
        table: &Table<'_>,
        key: &str,
        read: impl Fn(&mut Reader, &Table<'_>, &str) -> Option<T>,
    ) -> T {
        assert!(!table.shape.field(key).default.is_empty(), "`{key}` has no default");
        if let Some(found) = read(self, table, key) {
            return found;
        }
        let none = DeTable::new();
        let defaults = Table::new(table.shape, &none, table.span.clone(), &self.asked);
        read(self, &defaults, key).unwrap_or_else(|| panic!("the default of `{key}` can't be used"))
    }

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
        Table::new(shape, entries, span, &self.asked)
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
        let field = table.shape.field(key);
        table.asked.borrow_mut().insert((table.shape.name, field.name));
        match table.entries.get(key) {
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

    /// A file that is read; its name is relative to the folder.
    pub fn file(&mut self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        self.files.push(path.clone());
        path
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

    /// A whole number within its key's bounds.
    pub fn integer(&mut self, table: &Table<'_>, key: &str) -> Option<u64> {
        let Kind::Integer(least, most) = table.shape.field(key).kind else {
            panic!("`{key}` is no whole number");
        };
        let value = table.get(key)?;
        let found = match value.get_ref() {
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        match found {
            Some(number) if (i128::from(least)..=i128::from(most)).contains(&number) => Some(number as u64),
            _ => {
                let shown = self.source.text[value.span()].to_string();
                let expected = format!("`{key}` must be a whole number from {least} to {most}");
                self.wrong(value.span(), expected, format!("found `{shown}`"), "");
                None
            }
        }
    }

    /// A number within its key's bounds.
    pub fn number(&mut self, table: &Table<'_>, key: &str) -> Option<f64> {
        let Kind::Number(least, most) = table.shape.field(key).kind else { panic!("`{key}` is no number") };
        let value = table.get(key)?;
        let found = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            _ => None,
        };
        match found {
            Some(number) if number >= least && number <= most => Some(number),
            _ => {
                let shown = self.source.text[value.span()].to_string();
                let expected = format!("`{key}` must be a number from {least} to {most}");
                self.wrong(value.span(), expected, format!("found `{shown}`"), "");
                None
            }
        }
    }

    /// One of the words of its key.
    pub fn choice<T: Copy>(&mut self, table: &Table<'_>, key: &str, words: &[(&str, T)]) -> Option<T> {
        if let Kind::Choice(known) = table.shape.field(key).kind {
            let is_known = words.len() == known.len() && words.iter().all(|(word, _)| known.contains(word));
            debug_assert!(is_known, "`{key}` may be one of {known:?}");
        }
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

    /// A time within its key's bounds.
    pub fn time(&mut self, table: &Table<'_>, key: &str) -> Option<Span> {
        let kind = table.shape.field(key).kind;
        let value = table.get(key)?;
        let found = self.quantity(value, "20 ms", units::duration)?;
        match kind {
            Kind::TimeWithin(least, most) if !(least..=most).contains(&found) => {
                let allowed = kind.bounds().unwrap_or_default();
                let shown = self.source.text[value.span()].to_string();
                let message = format!("`{key}` is out of range");
                self.wrong(value.span(), message, format!("found {shown}"), format!("allowed: {allowed}"));
                None
            }
            _ => Some(found),
        }
    }

    /// A size within its key's bounds.
    pub fn bytes(&mut self, table: &Table<'_>, key: &str) -> Option<u64> {
        let (least, most) = match table.shape.field(key).kind {
            Kind::Bytes(least, most) => (least, most),
            Kind::BytesOrNone(most) => (0, most),
            _ => panic!("`{key}` is no size"),
        };
        let mut out_of_range = false;
        let found = self.quantity(table.get(key)?, "64 KiB", |text| {
            units::bytes_within(text, (least, most))
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
