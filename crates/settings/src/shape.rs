//! The contents of a file, as data: its tables, their keys, and what each value may be. The reader, its error messages and the
//! JSON Schema are all made from it, so they agree.

use serde_json::Value;

/// The kind of a value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// The name of a path or a scenario.
    Name,
    /// `"20 ms"`.
    Time,
    /// `"20 ms"` or `"20 ms +-5 ms"`.
    TimeWithSpread,
    /// `"50 Mbit/s"`, or `"unlimited"`.
    Rate,
    /// The same, or `"16/1 Mbit/s"`: down and up.
    Rates,
    /// `"2 EUR/GB"`.
    Price,
    /// `"64 KiB"`, not 0.
    Bytes,
    /// `"38 B"`, or 0.
    BytesOrNone,
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

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// One line; ends with the default, if there is one.
    pub summary: &'static str,
    /// Whether it is required.
    pub required: bool,
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

/// A key that may be left out.
pub const fn key(name: &'static str, kind: Kind, summary: &'static str) -> Field {
    Field { name, kind, summary, required: false }
}

/// A key that is needed.
pub const fn required(name: &'static str, kind: Kind, summary: &'static str) -> Field {
    Field { name, kind, summary, required: true }
}
