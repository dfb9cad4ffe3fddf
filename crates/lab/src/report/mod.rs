//! The report: one self-contained HTML page about a comparison or a sweep.
//!
//! A page is one JSON document, put into a frame of HTML, style and program that lives in `web/`. The same
//! document is what `compare --json` prints, so that a saved run makes the same page later.

mod columns;
pub mod comparison;
pub mod reasons;
pub mod rope;
pub mod saved;
pub mod sweep;
pub mod terminal;

use serde_json::{Map, Value};

/// The version of the document; a page of another one is refused rather than misread.
pub const FORMAT: u32 = 2;

/// What made a page: for its last section.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The command line.
    pub command: String,
    /// Version of the program.
    pub version: String,
    /// The question as the playground's fields have it; null where it has no such fields.
    pub asked: Value,
}

impl Origin {
    /// Of a program's arguments, its name first: the command as one would type it.
    pub fn of(arguments: &[String], version: &str) -> Self {
        let quoted = |text: &String| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+%".contains(c);
            if !text.is_empty() && text.chars().all(plain) {
                text.clone()
            } else {
                format!("'{}'", text.replace('\'', r"'\''"))
            }
        };
        // However the program was called, its name is this.
        let command = std::iter::once("ropewalk".to_string()).chain(arguments.iter().skip(1).map(quoted));
        Origin { command: command.collect::<Vec<_>>().join(" "), version: version.into(), asked: Value::Null }
    }

    /// The fields that every document opens with.
    pub(crate) fn fields(&self, kind: &str) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("format".into(), FORMAT.into());
        fields.insert("kind".into(), kind.into());
        fields.insert("command".into(), self.command.clone().into());
        fields.insert("version".into(), self.version.clone().into());
        if !self.asked.is_null() {
            fields.insert("asked".into(), self.asked.clone());
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::Origin;

    #[test]
    fn a_command_can_be_typed_again() {
        let arguments = ["/opt/x", "compare", "--path", "it's: 5 Mbit/s", ""].map(String::from);
        assert_eq!(Origin::of(&arguments, "1").command, r"ropewalk compare --path 'it'\''s: 5 Mbit/s' ''");
    }
}
