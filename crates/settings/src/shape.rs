//! The contents of a file, as data: its tables, their keys, and what each value may be. The reader, its error
//! messages and the JSON Schema are all made from it, so they agree.

use ropewalk_time::Span;
use serde_json::Value;

use crate::units::{short, write_bytes, write_duration};

/// The kind of a value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// The name of a file.
    File,
    /// An address and a port: `"192.0.2.1:443"`.
    Socket,
    /// The name of a path or a scenario.
    Name,
    /// `"20 ms"`.
    Time,
    /// A time within these bounds.
    TimeWithin(Span, Span),
    /// An IP address.
    Address,
    /// `"20 ms"` or `"20 ms +-5 ms"`.
    TimeWithSpread,
    /// `"50 Mbit/s"`, or `"unlimited"`.
    Rate,
    /// The same, or `"16/1 Mbit/s"`: down and up.
    Rates,
    /// `"2 EUR/GB"`.
    Price,
    /// `"64 KiB"`, within these bounds.
    Bytes(u64, u64),
    /// `"38 B"`, or 0, up to this.
    BytesOrNone(u64),
    /// `"0.5 %"`.
    Probability,
    /// `true` or `false`.
    Switch,
    /// A whole number in this range.
    Integer(u64, u64),
    /// A number in this range.
    Number(f64, f64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A table.
    Table(&'static Shape),
    /// An array of tables.
    Tables(&'static Shape),
    /// An array of one to so many tables.
    SomeTables(&'static Shape, usize),
    /// A table whose `kind` says what else it holds.
    Tagged(&'static [Shape]),
    /// An array of such tables.
    TaggedTables(&'static [Shape]),
    /// An array of texts.
    Texts,
    /// An array of sizes; `"12 x 5 KiB"` stands for twelve.
    Sizes,
    /// What only this file has: the function gives its JSON Schema.
    Own(fn() -> Value),
    /// Any value.
    Any,
    /// An array of any values.
    Anys,
}

impl Kind {
    /// What a value may be, where its kind says so: `1 to 64`.
    pub fn bounds(&self) -> Option<String> {
        let between = |least: String, most: String| Some(format!("{least} to {most}"));
        match self {
            Kind::Integer(_, u64::MAX) => None,
            Kind::Integer(least, most) => between(least.to_string(), most.to_string()),
            Kind::Number(least, most) => between(short(*least), short(*most)),
            Kind::Bytes(least, most) => between(write_bytes(*least), write_bytes(*most)),
            Kind::BytesOrNone(most) => between("0".into(), write_bytes(*most)),
            Kind::TimeWithin(least, most) => between(write_duration(*least), write_duration(*most)),
            Kind::Choice(words) => Some(words.join(", ")),
            _ => None,
        }
    }
}

/// One key: all that is said of a setting. The reader, the command line, the JSON Schema and the tables in
/// the documentation are made from it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// The kind of its value, with its bounds.
    pub kind: Kind,
    /// One line, without the default (but one that is worked out from others), and without a full stop.
    pub summary: &'static str,
    /// Whether it is required.
    pub required: bool,
    /// Its value where a file doesn't have it, as it is written there, without quotes; empty: none.
    pub default: &'static str,
    /// Its name on a command line; `None`: only a file has it.
    pub option: Option<&'static str>,
    /// Another name of it there, which help doesn't say.
    pub alias: Option<&'static str>,
    /// What stands for its value in help: `NETWORK`; empty: what its kind says.
    pub value: &'static str,
    /// What help says of its default, if the program computes it: "half of `connections`".
    pub otherwise: &'static str,
    /// When another value takes effect in a running program, where a program runs for long.
    pub change: Option<Change>,
    /// What becomes of the files that it names.
    pub files: Option<Files>,
}

/// When another value of a key takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// When the program reads its file again.
    Reload,
    /// When it is started again: what reads the value does so at the start.
    Restart,
}

/// Files that a key's values name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// Each value is a file that is read.
    Read,
    /// Each value is a file that is read, and one more word.
    ReadBeforeWord,
    /// It is written.
    Written,
}

impl Files {
    /// The file that a value names, and what follows it there.
    pub fn split(self, value: &str) -> (&str, &str) {
        let value = value.trim();
        match self {
            Files::ReadBeforeWord => {
                let at = value.rfind(' ').unwrap_or(value.len());
                (value[..at].trim_end(), &value[at..])
            }
            Files::Read | Files::Written => (value, ""),
        }
    }
}

/// The words of a choice, for [`Kind::Choice`]: the reader is given the same list.
pub const fn words<T: Copy, const N: usize>(choices: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut at = 0;
    while at < N {
        words[at] = choices[at].0;
        at += 1;
    }
    words
}

/// One kind of table.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The name in messages: "path". In a tagged table, the value of `kind`.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Its keys.
    pub fields: &'static [Field],
}

impl Shape {
    /// The key of this name. It is a mistake of the program to ask for one that isn't there.
    pub fn field(&self, name: &str) -> &'static Field {
        let found = self.fields.iter().find(|field| field.name == name);
        found.unwrap_or_else(|| panic!("`{name}` is not in the shape `{}`", self.name))
    }
}

impl Field {
    /// Sets its default.
    #[must_use]
    pub const fn default(mut self, default: &'static str) -> Field {
        self.default = default;
        self
    }

    /// Sets its name on a command line.
    #[must_use]
    pub const fn option(mut self, option: &'static str) -> Field {
        self.option = Some(option);
        self
    }

    /// Sets another name of it on a command line.
    #[must_use]
    pub const fn alias(mut self, alias: &'static str) -> Field {
        self.alias = Some(alias);
        self
    }

    /// Sets what stands for its value in help.
    #[must_use]
    pub const fn value(mut self, value: &'static str) -> Field {
        self.value = value;
        self
    }

    /// Leaves it to files.
    #[must_use]
    pub const fn only_in_files(mut self) -> Field {
        self.option = None;
        self
    }

    /// Another value takes effect at a restart only.
    #[must_use]
    pub const fn restart(mut self) -> Field {
        self.change = Some(Change::Restart);
        self
    }

    /// Another value takes effect when the file is read again.
    #[must_use]
    pub const fn reload(mut self) -> Field {
        self.change = Some(Change::Reload);
        self
    }

    /// Says what becomes of the files that it names.
    #[must_use]
    pub const fn files(mut self, files: Files) -> Field {
        self.files = Some(files);
        self
    }

    /// Says what the program does without it, where that is no value of its own.
    #[must_use]
    pub const fn otherwise(mut self, otherwise: &'static str) -> Field {
        self.otherwise = otherwise;
        self
    }

    /// The line about it, with a default that is worked out.
    pub fn line(&self) -> String {
        match self.otherwise {
            "" => self.summary.to_string(),
            otherwise => format!("{}. Default: {otherwise}", self.summary),
        }
    }

    /// The line about it, with its bounds if the JSON Schema has no other word for them, and its default.
    pub fn description(&self) -> String {
        let mut line = self.line();
        if let (Kind::TimeWithin(..) | Kind::Bytes(..) | Kind::BytesOrNone(_), Some(bounds)) =
            (self.kind, self.kind.bounds())
        {
            line.push_str(&format!(" ({bounds})"));
        }
        match self.default {
            "" => line,
            default => format!("{line}. Default: {default}"),
        }
    }
}

/// A key that may be left out.
pub const fn key(name: &'static str, kind: Kind, summary: &'static str) -> Field {
    Field {
        name,
        kind,
        summary,
        required: false,
        default: "",
        option: Some(name),
        alias: None,
        value: "",
        otherwise: "",
        change: None,
        files: None,
    }
}

/// A key that is needed.
pub const fn required(name: &'static str, kind: Kind, summary: &'static str) -> Field {
    Field { required: true, ..key(name, kind, summary) }
}
