//! `published.csv`: the numbers that a paper prints.

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
pub(super) fn parse(text: &str) -> Result<Vec<Published>, String> {
    let mut lines = text.lines().enumerate();
    match lines.next() {
        Some((_, "table,row,column,value,unit")) => {}
        _ => return Err("line 1: expected `table,row,column,value,unit`".into()),
    }
    let mut found = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |what: &str| format!("line {}: {what}: `{line}`", number + 1);
        let fields = split(line);
        let [table, row, column, value, unit] = <[String; 5]>::try_from(fields)
            .map_err(|fields| wrong(&format!("expected 5 fields, found {}", fields.len())))?;
        let decimals = value.split_once('.').map_or(0, |(_, digits)| digits.len());
        let half = 0.5 * libm::pow(10.0, -(decimals as f64));
        let value = value.parse().map_err(|_| wrong("the fourth field isn't a number"))?;
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
        assert!(parse("table,row,column,value,unit\na,b,c,1\n").unwrap_err().starts_with("line 2"));
        assert!(parse("table,row,column,value,unit\na,b,c,x,s\n").unwrap_err().contains("number"));
        assert!(parse("").is_err());
    }
}
