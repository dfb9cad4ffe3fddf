//! Checks that every key of a shape has an effect, and is marked with what becomes of its value.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ropewalk_settings::diagnostic::Source;
use ropewalk_settings::read::{Reader, document};
use ropewalk_settings::shape::{Files, Kind, Shape};
use toml::de::DeTable;

use super::GATEWAY;
use super::listener::LISTENER;
use super::proxy::shape::{LINK, PROXY, RULE};

/// The tables that a file may have, by name.
pub(super) type Tables = [(&'static str, &'static Shape)];

/// The gateway's.
pub(super) const OF_GATEWAY: &Tables = &[("gateway", &GATEWAY), ("listener", &LISTENER)];
/// The proxy's.
pub(super) const OF_PROXY: &Tables = &[("proxy", &PROXY), ("link", &LINK), ("rule", &RULE)];

/// The tables of a name, of which there may be one or an array.
fn tables_of<'a>(file: &'a toml::Table, name: &str) -> Vec<&'a toml::Table> {
    match file.get(name) {
        Some(toml::Value::Table(table)) => vec![table],
        Some(toml::Value::Array(all)) => all.iter().filter_map(toml::Value::as_table).collect(),
        _ => Vec::new(),
    }
}

/// The paths in a file that its keys mark as files to be read.
fn marked(file: &toml::Table, tables: &Tables) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for (name, shape) in tables {
        for table in tables_of(file, name) {
            for field in shape.fields {
                let Some(files) = field.files.filter(|one| *one != Files::Written) else { continue };
                let value = table.get(field.name);
                let list = value.and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
                let texts = value.into_iter().chain(list).filter_map(toml::Value::as_str);
                found.extend(texts.map(|text| PathBuf::from(files.split(text).0)));
            }
        }
    }
    found
}

/// Checks valid example files: together they have every key of the tables, the program reads each key, and it
/// opens exactly the paths that the keys mark as files to be read.
pub(super) fn check<T>(
    folder: &Path,
    tables: &Tables,
    texts: &[&str],
    read: impl Fn(&mut Reader, &DeTable<'_>, Range<usize>) -> T,
) {
    let all = |(_, shape): &(&str, &'static Shape)| -> Vec<(&str, &str)> {
        shape.fields.iter().map(|field| (shape.name, field.name)).collect()
    };
    let mut ungiven: BTreeSet<_> = tables.iter().flat_map(all).collect();
    let mut unasked = ungiven.clone();
    for text in texts {
        let file: toml::Table = text.parse().unwrap();
        for (name, shape) in tables {
            for key in tables_of(&file, name).into_iter().flat_map(toml::Table::keys) {
                ungiven.retain(|(known, given)| *known != shape.name || *given != key);
            }
        }
        let found = document(&Source::new("test.toml", *text), folder, |reader, document, first_line| {
            read(reader, document, first_line);
            let left: BTreeSet<_> = tables
                .iter()
                .flat_map(|(_, shape)| reader.unasked(shape).into_iter().map(|key| (shape.name, key)))
                .collect();
            let files =
                reader.files.iter().map(|file| file.strip_prefix(folder).unwrap_or(file).to_path_buf());
            (left, files.collect::<BTreeSet<_>>())
        });
        let (left, files) = found.unwrap_or_else(|error| panic!("{error}"));
        unasked.retain(|key| left.contains(key));
        assert_eq!(files, marked(&file, tables), "files that are read, and those that marks name");
    }
    assert!(ungiven.is_empty(), "keys that no file of the test has: {ungiven:?}");
    assert!(unasked.is_empty(), "keys whose values nothing asks for: {unasked:?}");
}

#[test]
fn each_key_says_when_a_change_takes_effect_and_what_becomes_of_files() {
    for (_, shape) in OF_GATEWAY.iter().chain(OF_PROXY) {
        for field in shape.fields {
            let name = format!("`{}` of `{}`", field.name, shape.name);
            assert!(field.change.is_some(), "{name}: say `.restart()` or `.reload()`");
            let names_files = matches!(field.kind, Kind::File) || field.value.contains("FILE");
            assert_eq!(
                field.files.is_some(),
                names_files,
                "{name}: `.files(..)` goes with values that are files"
            );
        }
    }
}
