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
    /// Whether a running program can't take another value.
    pub restart: bool,
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

    /// A running program can't take another value: what reads it does so at the start.
    #[must_use]
    pub const fn restart(mut self) -> Field {
        self.restart = true;
        self
    }

    /// The line about it, with its default.
    pub fn description(&self) -> String {
        match self.default {
            "" => self.summary.to_string(),
            default => format!("{}. Default: {default}", self.summary),
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
        restart: false,
    }
}

/// A key that is needed.
pub const fn required(name: &'static str, kind: Kind, summary: &'static str) -> Field {
    Field { required: true, ..key(name, kind, summary) }
}
