//! `published.csv`: the numbers that a paper prints.

use super::error::PublishedError;

/// The heading.
const HEAD: &str = "table,row,column,value,unit";

/// A printed number.
#[derive(Clone, PartialEq, Debug)]
pub struct Published {
    /// Table or figure.
    pub table: String,
    /// Row.
    pub row: String,
    /// Column.
    pub column: String,
    /// The number.
    pub value: f64,
    /// Half of a unit of its last printed digit.
    pub half: f64,
    /// Its unit.
    pub unit: String,
}

/// Reads the file: a heading, then five fields a line; a field may be quoted.
///
/// # Errors
/// The line and what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Vec<Published>, PublishedError> {
    let mut lines = text.lines().enumerate();
    match lines.next() {
        Some((_, HEAD)) => {}
        _ => return Err(PublishedError::Heading(HEAD)),
    }
    let mut found = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let (text, number) = (|| line.to_string(), number + 1);
        let [table, row, column, value, unit] = <[String; 5]>::try_from(split(line))
            .map_err(|fields| PublishedError::Fields { line: number, found: fields.len(), text: text() })?;
        let decimals = value.split_once('.').map_or(0, |(_, digits)| digits.len());
        let half = 0.5 * libm::pow(10.0, -(decimals as f64));
        let value = value.parse().map_err(|_| PublishedError::Number { line: number, text: text() })?;
        found.push(Published { table, row, column, value, half, unit });
    }
    Ok(found)
}

/// Splits at commas outside quotes.
pub(super) fn split(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            _ => field.push(letter),
        }
    }
    fields.push(field);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_quoted_fields() {
        let found = parse("table,row,column,value,unit\nt,\"P-(0.5,1.0)\",c,-1.5,%\n").unwrap();
        assert_eq!(
            (found[0].row.as_str(), found[0].value, found[0].unit.as_str()),
            ("P-(0.5,1.0)", -1.5, "%")
        );
    }

    #[test]
    fn says_where_it_is_wrong() {
        let error = |lines: &str| parse(&format!("{HEAD}\n{lines}\n")).unwrap_err().to_string();
        assert_eq!(error("a,b,c,1"), "line 2: expected 5 fields, found 4: `a,b,c,1`");
        assert_eq!(error("\na,b,c,x,s"), "line 3: the fourth field isn't a number: `a,b,c,x,s`");
        assert_eq!(parse("").unwrap_err(), PublishedError::Heading(HEAD));
    }
}
