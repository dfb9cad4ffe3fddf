//! What can be wrong with a paper's files, and with what they say about results.

use super::plan::FITTED;
use crate::emulated::EmulatedError;

/// Why a paper's experiments can't be loaded, run, fitted or reported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PaperError {
    /// A file can't be read.
    #[error("{file}: {reason}")]
    Unreadable {
        /// Its path.
        file: String,
        /// What the system says.
        reason: String,
    },
    /// A file says what can't be understood.
    #[error("papers/{paper}/{file}: {reason}")]
    File {
        /// The paper.
        paper: String,
        /// The file's name.
        file: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A cell of a figure can't be run.
    #[error(transparent)]
    Cell(Box<CellError>),
    /// A note can't be filled in.
    #[error("papers/{paper}/notes.toml: {note}: {error}")]
    Note {
        /// The paper.
        paper: String,
        /// The note's claim, or `summary`.
        note: String,
        /// Why.
        error: Box<NoteError>,
    },
    /// The paper leaves nothing open that could be fitted.
    #[error("{paper}: nothing to fit: {reason}")]
    NothingToFit {
        /// The paper.
        paper: String,
        /// Why.
        reason: String,
    },
    /// A table of results can't be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A run with real packets failed.
    #[error(transparent)]
    Emulated(#[from] EmulatedError),
}

/// A cell of a figure that can't be run as its settings say.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("papers/{paper}: {figure}, {row}, {column}: {reason}")]
pub struct CellError {
    /// The paper.
    pub paper: String,
    /// The figure.
    pub figure: String,
    /// The cell's row.
    pub row: String,
    /// Its column.
    pub column: String,
    /// What is wrong.
    pub reason: String,
}

/// Why a text isn't a table of results.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// It doesn't begin with the heading.
    #[error("the first line isn't `{0}`")]
    Heading(&'static str),
    /// A line has too few fields.
    #[error("not a result: `{0}`")]
    Line(String),
}

/// Why a note can't be filled in.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoteError {
    /// A brace isn't closed.
    #[error("`{{{0}`: no `}}`")]
    Unclosed(String),
    /// A reference is wrong, or its result is not what the note says.
    #[error("`{{{reference}}}`: {error}")]
    Reference {
        /// The reference.
        reference: String,
        /// Why.
        error: ReferenceError,
    },
}

/// Why a reference can't be filled in.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// It names another setting than the fitted one.
    #[error("`{0}` isn't `{FITTED}`")]
    Setting(String),
    /// It has too few parts.
    #[error("expected figure/row/column")]
    Parts,
    /// It names a relation that there isn't.
    #[error("`{0}` isn't `less`, `more` or `level`")]
    Relation(String),
    /// There is no such result.
    #[error("no result {figure}, {setting}, {row}, {column}")]
    NoResult {
        /// The figure.
        figure: String,
        /// The setting.
        setting: String,
        /// The row.
        row: String,
        /// The column.
        column: String,
    },
    /// The result doesn't have the relation that the note says.
    #[error("it is {change} %, not {relation}")]
    Contradicted {
        /// The change that was measured, per cent, with its sign.
        change: String,
        /// The relation.
        relation: String,
    },
}
