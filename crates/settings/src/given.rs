//! Settings that a command line or a script gives for the keys of a file's tables. What is given is written
//! as such a file ([`Written`]), which the file's own reader reads.

use std::sync::Arc;

use crate::diagnostic::{InputError, Source};
use crate::read::{Reader, Table};
use crate::shape::{Field, Shape};
use crate::written::Written;

/// Tables of a file: headers, as in `[proxy]` and `[[listener]]`, and what they may hold. A table in two
/// brackets is there even if no key of it is given.
pub type Tables = [(&'static str, &'static Shape)];

/// Settings that are given.
#[derive(Clone, Debug)]
pub struct Given {
    tables: &'static Tables,
    values: Vec<(&'static Field, Vec<Arc<Source>>)>,
}

impl Given {
    /// By a script: names of keys, with `_` for `-`, and their values.
    pub fn by_key<'a>(
        tables: &'static Tables,
        given: impl IntoIterator<Item = (&'a str, Vec<String>)>,
    ) -> Given {
        Given::new(tables, given, "", |field, name| field.name == name.replace('_', "-"))
    }

    /// By a command line: options, and their values.
    pub fn by_option<'a>(
        tables: &'static Tables,
        given: impl IntoIterator<Item = (&'a str, Vec<String>)>,
    ) -> Given {
        Given::new(tables, given, "--", |field, name| field.option == Some(name))
    }

    /// It is a mistake of the program to give what isn't in the tables.
    fn new<'a>(
        tables: &'static Tables,
        given: impl IntoIterator<Item = (&'a str, Vec<String>)>,
        before: &str,
        is: fn(&Field, &str) -> bool,
    ) -> Given {
        let values = given.into_iter().filter(|(_, values)| !values.is_empty()).map(|(name, values)| {
            let mut all = tables.iter().flat_map(|(_, shape)| shape.fields);
            let found = all.find(|field| is(field, name));
            let field = found.unwrap_or_else(|| panic!("there is no setting `{name}`"));
            let source = |value| Source::new(format!("{before}{name}"), value);
            (field, values.into_iter().map(source).collect())
        });
        Given { tables, values: values.collect() }
    }

    /// The file that says the same.
    pub fn written(&self) -> Written {
        let mut written = Written::default();
        for (header, shape) in self.tables {
            written.table(header);
            for (field, values) in &self.values {
                if shape.fields.iter().any(|of_table| std::ptr::eq(of_table, *field)) {
                    written.key(shape, field.name, values);
                }
            }
        }
        written
    }

    /// Reads the first table; `read` gives nothing where a value is wrong.
    ///
    /// # Errors
    /// All mistakes, with their place.
    pub fn read<T>(&self, read: impl FnOnce(&mut Reader, &Table<'_>) -> Option<T>) -> Result<T, InputError> {
        let (header, shape) = self.tables[0];
        let name = header.trim_matches(['[', ']']);
        let found = self.written().read(|reader, document, _| {
            let table = reader.table(shape, document.get(name)?)?;
            read(reader, &table)
        })?;
        Ok(found.expect("what isn't there has a default"))
    }

    /// What is given for a key.
    pub fn texts(&self, key: &str) -> &[Arc<Source>] {
        let found = self.values.iter().find(|(field, _)| field.name == key);
        found.map_or(&[], |(_, values)| values)
    }

    /// What is given for a key of one value, or its default.
    pub fn text(&self, key: &str) -> Option<Arc<Source>> {
        let default = || {
            let mut fields = self.tables.iter().flat_map(|(_, shape)| shape.fields);
            let field = fields.find(|field| field.name == key && !field.default.is_empty())?;
            Some(Source::new(key, field.default))
        };
        self.texts(key).first().cloned().or_else(default)
    }

    /// The keys that are given, with their values.
    pub fn keys(&self) -> impl Iterator<Item = (&'static Field, Vec<&str>)> {
        self.values
            .iter()
            .map(|(field, values)| (*field, values.iter().map(|one| one.text.as_ref()).collect()))
    }

    /// The names of the options that are given.
    pub fn options(&self) -> impl Iterator<Item = &'static str> {
        self.values.iter().filter_map(|(field, _)| field.option)
    }
}
