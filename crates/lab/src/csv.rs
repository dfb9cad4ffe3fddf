//! Tables as CSV (RFC 4180): a line of names, then a line per row. A missing value is an empty field; numbers
//! have as many digits as it takes to read the same number back.

use std::fmt::{Display, Write as _};
use std::io::{self, BufRead};

use crate::tidy::{Column, Head};

/// A field, in quotes where it needs them.
pub fn field(text: &str) -> String {
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

/// A number, or an empty field.
pub fn optional(value: Option<impl Display>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// The line of names.
pub fn head(heads: &[Head]) -> String {
    let names: Vec<String> = heads.iter().map(|head| field(&head.name)).collect();
    names.join(",") + "\n"
}

/// Appends the columns' rows.
pub fn write_rows(columns: &[Column], text: &mut String) {
    for row in 0..columns.first().map_or(0, Column::len) {
        for (place, column) in columns.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            let _ = match column {
                Column::Whole(values) => write!(text, "{}", values[row]),
                Column::Number(values) => write!(text, "{}", optional(values[row])),
                Column::Text(values) => write!(text, "{}", field(values[row].as_deref().unwrap_or_default())),
                Column::Flag(values) => write!(text, "{}", values[row]),
            };
        }
        text.push('\n');
    }
}

/// Reads a record into `fields`; false at the end of the file.
///
/// # Errors
/// The reader's errors, and text that isn't UTF-8.
pub fn read_record(input: &mut impl BufRead, fields: &mut Vec<String>) -> io::Result<bool> {
    fields.clear();
    let mut line = String::new();
    // A field in quotes may hold line breaks.
    while line.is_empty() || line.matches('"').count() % 2 == 1 {
        if input.read_line(&mut line)? == 0 {
            break;
        }
    }
    if line.is_empty() {
        return Ok(false);
    }
    let line = line.strip_suffix('\n').unwrap_or(&line);
    let mut letters = line.strip_suffix('\r').unwrap_or(line).chars().peekable();
    let (mut one, mut quoted) = (String::new(), false);
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => one.extend(letters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut one)),
            other => one.push(other),
        }
    }
    fields.push(one);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tables_read_back(
            texts in proptest::collection::vec("[a-c,\"\r\n é]{0,6}", 1..5),
            number in any::<f64>(), whole: i64,
        ) {
            let number = number.is_finite().then_some(number);
            let mut columns: Vec<Column> =
                texts.iter().map(|text| Column::Text(vec![Some(text.clone()), None])).collect();
            columns.push(Column::Number(vec![number, None]));
            columns.push(Column::Whole(vec![whole, 0]));
            columns.push(Column::Flag(vec![true, false]));
            let mut written = String::new();
            write_rows(&columns, &mut written);
            let (mut input, mut fields) = (written.as_bytes(), Vec::new());
            prop_assert!(read_record(&mut input, &mut fields).unwrap());
            let rest = fields.split_off(texts.len());
            prop_assert_eq!(&fields, &texts);
            prop_assert_eq!(rest[0].parse::<f64>().ok(), number);
            prop_assert_eq!(&rest[1..], [whole.to_string(), "true".into()]);
            prop_assert!(read_record(&mut input, &mut fields).unwrap());
            prop_assert_eq!(fields.len(), columns.len());
            prop_assert!(!read_record(&mut input, &mut fields).unwrap());
        }
    }
}
