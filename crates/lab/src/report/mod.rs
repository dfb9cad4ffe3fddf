//! The report: one self-contained HTML page about a comparison or a sweep.
//!
//! A page is one JSON document, put into a frame of HTML, style and program that lives in `web/`. The same document
//! is what `compare --json` prints, so that a saved run makes the same page later.

mod columns;
pub mod comparison;
mod html;
pub mod reasons;
pub mod rope;
pub mod saved;

use serde_json::{Map, Value};

pub use html::page;

/// The version of the document; a page of another one is refused rather than misread.
pub const FORMAT: u32 = 1;

/// What made a page: for its last section.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The command line.
    pub command: String,
    /// Version of the program.
    pub version: String,
}

impl Origin {
    /// The fields that every document opens with.
    pub(crate) fn fields(&self, kind: &str) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("format".into(), FORMAT.into());
        fields.insert("kind".into(), kind.into());
        fields.insert("command".into(), self.command.clone().into());
        fields.insert("version".into(), self.version.clone().into());
        fields
    }
}
