//! Schedulers' reasons in few characters: the words once, the numbers for each.
//!
//! `wifi has the least srtt with room, 28.9 ms` differs from its neighbours in a number. The words are kept
//! as a template in which `#1` stands for a number with one decimal; the page puts them together again.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::columns;

/// Reasons as they come, each once.
#[derive(Debug, Default)]
pub struct Reasons {
    templates: Vec<String>,
    template_of: HashMap<String, usize>,
    /// By reason: its template.
    template: Vec<usize>,
    /// Of all reasons in turn, with their decimals shifted away: the template knows how many.
    numbers: Vec<i64>,
    known: HashMap<String, usize>,
}

impl Reasons {
    /// The number of a reason.
    pub fn add(&mut self, reason: &str) -> usize {
        if let Some(&number) = self.known.get(reason) {
            return number;
        }
        let (template, numbers) = split(reason);
        let next = self.templates.len();
        let index = *self.template_of.entry(template).or_insert_with_key(|template| {
            self.templates.push(template.clone());
            next
        });
        self.template.push(index);
        self.numbers.extend(numbers);
        self.known.insert(reason.into(), self.template.len() - 1);
        self.template.len() - 1
    }

    /// As the page reads them.
    pub fn to_json(&self) -> Value {
        json!({
            "templates": self.templates,
            "template": columns::runs(self.template.iter().map(|index| *index as i64)),
            "numbers": columns::plain(self.numbers.iter().copied()),
        })
    }
}

/// Takes numbers out. A `#` of the text itself is doubled. A number that would not come back as it was
/// (leading zeros, too many digits) stays in the words.
fn split(reason: &str) -> (String, Vec<i64>) {
    let (mut template, mut numbers) = (String::new(), Vec::new());
    let mut rest = reason;
    while let Some(c) = rest.chars().next() {
        let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        if whole == 0 {
            template.push(c);
            if c == '#' {
                template.push(c);
            }
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let decimals = match rest[whole..].strip_prefix('.') {
            Some(after) => after.bytes().take_while(u8::is_ascii_digit).count(),
            None => 0,
        };
        let length = if decimals > 0 { whole + 1 + decimals } else { whole };
        let digits = format!("{}{}", &rest[..whole], &rest[length - decimals..length]);
        let led_by_zero = whole > 1 && rest.starts_with('0');
        match digits.parse::<i64>() {
            // 15 digits are exact in the page's floating point.
            Ok(number) if !led_by_zero && digits.len() <= 15 && decimals <= 9 => {
                template += &format!("#{decimals}");
                numbers.push(number);
            }
            _ => template += &rest[..length],
        }
        rest = &rest[length..];
    }
    (template, numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page does.
    fn join(template: &str, numbers: &[i64]) -> String {
        let (mut text, mut numbers) = (String::new(), numbers.iter());
        let mut chars = template.chars();
        while let Some(c) = chars.next() {
            match (c, chars.clone().next()) {
                ('#', Some('#')) => {
                    chars.next();
                    text.push('#');
                }
                ('#', Some(decimals)) => {
                    chars.next();
                    let decimals = decimals.to_digit(10).expect("a digit") as usize;
                    let digits = format!("{:0>width$}", numbers.next().expect("one"), width = decimals + 1);
                    let whole = digits.len() - decimals;
                    text += &digits[..whole];
                    if decimals > 0 {
                        text += &format!(".{}", &digits[whole..]);
                    }
                }
                _ => text.push(c),
            }
        }
        text
    }

    #[test]
    fn reasons_come_back_as_they_were() {
        for reason in [
            "wifi has the least srtt with room, 28.9 ms",
            "lte at 69.7 ms: it leaves 255 KB of the window, 219 KB is needed, lambda=0.97",
            "path #2 of 007; 0.05, -3.50 and 1. 99999999999999999999 é",
            "",
        ] {
            let (template, numbers) = split(reason);
            assert_eq!(join(&template, &numbers), reason, "{template}");
        }
    }

    #[test]
    fn the_words_are_kept_once() {
        let mut reasons = Reasons::default();
        let numbers: Vec<_> = ["least srtt, 28.9 ms", "least srtt, 30.0 ms", "least srtt, 28.9 ms"]
            .map(|r| reasons.add(r))
            .into();
        assert_eq!(numbers, [0, 1, 0]);
        let expected =
            json!({ "templates": ["least srtt, #1 ms"], "template": [0, 2], "numbers": [289, 300] });
        assert_eq!(reasons.to_json(), expected);
    }
}
