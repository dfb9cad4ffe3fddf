//! What can be wrong with a paper's files, and with what they say about results.

use ropewalk_runner::emulated::EmulatedError;

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
#[error("papers/{paper}: {figure}, {row}, {column}: {error}")]
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
    pub error: SettingError,
}

/// Why settings don't make a run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// No scenario is named.
    #[error("no scenario is named")]
    NoScenario,
    /// The paper has no such scenario file.
    #[error("there is no scenario file `{0}`")]
    NoFile(String),
    /// The scenario file isn't TOML.
    #[error("{file}: {reason}")]
    Toml {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A key that is to be changed can't be found.
    #[error("{file}: {key}: {error}")]
    Key {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// Why.
        error: KeyError,
    },
    /// The scenario has no such path.
    #[error("there is no path `{0}`")]
    NoPath(String),
    /// The scenario's reader refuses it, in its words.
    #[error("{0}")]
    Scenario(String),
    /// No scheduler is named.
    #[error("no scheduler is named")]
    NoScheduler,
    /// A scheduler's specification sets what `mechanisms` sets.
    #[error("`{0}`: set `mechanisms` instead")]
    Mechanisms(String),
    /// A scheduler or congestion control can't be built.
    #[error(transparent)]
    Spec(#[from] ropewalk_engine::registry::SpecError),
    /// A time can't be read.
    #[error("{0}")]
    Time(String),
}

/// Why a key of a scenario file can't be changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It ends where a name or number has to follow.
    #[error("nothing after it")]
    Incomplete,
    /// Something on its way is a list, but not of tables.
    #[error("`{0}` isn't a list of tables")]
    NotTables(String),
    /// Something on its way isn't a table.
    #[error("`{0}` isn't a table")]
    NotTable(String),
    /// A list has no such table.
    #[error("there is no `{which}` in `{list}`")]
    Missing {
        /// The table's name or number.
        which: String,
        /// The list.
        list: String,
    },
}

/// Why a text isn't a list of published numbers.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishedError {
    /// It doesn't begin with the heading.
    #[error("line 1: expected `{0}`")]
    Heading(&'static str),
    /// A line has too few or too many fields.
    #[error("line {line}: expected 5 fields, found {found}: `{text}`")]
    Fields {
        /// Its number, from 1.
        line: usize,
        /// How many it has.
        found: usize,
        /// The line.
        text: String,
    },
    /// The fourth field of a line isn't a number.
    #[error("line {line}: the fourth field isn't a number: `{text}`")]
    Number {
        /// Its number, from 1.
        line: usize,
        /// The line.
        text: String,
    },
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
    /// It names a setting that nothing was run in.
    #[error("there is no setting `{0}`")]
    Setting(String),
    /// It counts a claim that isn't judged in its setting.
    #[error("the claim `{0}` isn't judged in the setting `{1}`")]
    Claim(String, String),
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
    /// More or fewer comparisons agree than the note says.
    #[error("{agree} of {apart} agree, not `{relation}`")]
    Half {
        /// Comparisons that agree.
        agree: usize,
        /// Comparisons that are no ties.
        apart: usize,
        /// What the note says.
        relation: String,
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
