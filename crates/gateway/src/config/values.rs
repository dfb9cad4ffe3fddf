//! Values that both files have.

use std::path::Path;

use ropewalk_settings::read::{Reader, Table, Value};

/// A text that something else parses; its mistakes are placed at the text.
pub(super) fn parsed<T, E: ToString>(
    reader: &mut Reader,
    value: &Value<'_>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let text = reader.text(value)?;
    match parse(text) {
        Ok(found) => Some(found),
        Err(error) => {
            reader.wrong(value.span(), error.to_string(), format!("found `{text}`"), "");
            None
        }
    }
}

/// What is read from the file that a text names.
pub(super) fn loaded<T, E: ToString>(
    reader: &mut Reader,
    value: &Value<'_>,
    load: impl FnOnce(&Path) -> Result<T, E>,
) -> Option<T> {
    let name = reader.text(value)?;
    let path = reader.file(name);
    parsed(reader, value, |_| load(&path))
}

/// A list of texts.
pub(super) fn texts<'a>(reader: &mut Reader, table: &'a Table<'_>, key: &str) -> Vec<&'a Value<'a>> {
    let Some(value) = table.get(key) else { return Vec::new() };
    match value.get_ref().as_array() {
        Some(list) => list.iter().collect(),
        None => {
            let help = format!("as in {key} = [\"...\", \"...\"]");
            reader.wrong(value.span(), "expected a list of texts", "not a list", help);
            Vec::new()
        }
    }
}

/// The word of a key that has a default.
pub(super) fn chosen<T: Copy>(reader: &mut Reader, table: &Table<'_>, key: &str, words: &[(&str, T)]) -> T {
    reader.with_default(table, key, |reader, table, key| reader.choice(table, key, words))
}
