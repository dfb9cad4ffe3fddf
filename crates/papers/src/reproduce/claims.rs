//! `claims.toml`: what a paper claims, as tests.

use serde::Deserialize;

/// A claim.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// Its name.
    pub id: String,
    /// What the paper says, where, and the tolerance.
    pub text: String,
    /// The figure that it is about.
    #[serde(default)]
    pub figure: String,
    /// Other figures that the same sentence is about: their cells count with the figure's.
    #[serde(default)]
    pub also: Vec<String>,
    /// Figures of another reading of the same sentence, each instead of the figure: the best counts, and is
    /// named.
    #[serde(default)]
    pub or: Vec<String>,
    /// How it is tested.
    pub test: Test,
}

impl Claim {
    /// All figures that it is about.
    pub fn figures(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.figure).chain(&self.also).chain(&self.or)
    }
}

/// Which columns.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(untagged)]
pub enum Over {
    /// By label.
    These(Vec<String>),
    /// `"all"`.
    Word(String),
}

/// How a claim is tested.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case")]
pub enum Test {
    /// A row against another, per cent; in each of the columns, or their geometric mean.
    Change {
        /// The row.
        row: String,
        /// More rows that the same sentence is about.
        #[serde(default)]
        more: Vec<String>,
        /// What it is compared with.
        against: String,
        /// Where.
        columns: Over,
        /// Per cent.
        between: [f64; 2],
        /// Whether the mean over the columns counts, not each.
        #[serde(default)]
        mean: bool,
    },
    /// Rows from the least to the greatest, in each of the columns.
    Order {
        /// The rows.
        rows: Vec<String>,
        /// Where.
        columns: Over,
        /// Whether a difference that doesn't count is allowed.
        ties: bool,
        /// Whether the geometric mean over the columns counts, not each.
        #[serde(default)]
        mean: bool,
    },
    /// No other row is smaller (or greater, if `most`).
    Best {
        /// The row.
        row: String,
        /// Where.
        columns: Over,
        /// Whether a difference that doesn't count is allowed.
        ties: bool,
        /// Whether greater is better.
        #[serde(default)]
        most: bool,
        /// Whether the sum over the columns counts, not each: for counts, which may be 0.
        #[serde(default)]
        sum: bool,
    },
    /// Means within a range.
    Value {
        /// The rows.
        rows: Vec<String>,
        /// Where.
        columns: Over,
        /// In the metric's unit.
        between: [f64; 2],
    },
    /// Two rows within so much of each other, in the metric's unit.
    Agree {
        /// The two.
        rows: [String; 2],
        /// Where.
        columns: Over,
        /// The most.
        within: f64,
    },
    /// Two rows cross once between two places on the columns' axis.
    Crossing {
        /// The one that is smaller before the crossing.
        row: String,
        /// The other.
        against: String,
        /// Places.
        between: [f64; 2],
    },
    /// Means grow (or fall) from column to column, but for so many per cent.
    Trend {
        /// The rows.
        rows: Vec<String>,
        /// Which way.
        falls: bool,
        /// Per cent by which a step may go the other way.
        tolerance: f64,
    },
    /// Curves, means over all runs, that from some second on never leave a range.
    Settles {
        /// Curves by row.
        rows: Vec<String>,
        /// Seconds.
        from: f64,
        /// In the metric's unit.
        between: [f64; 2],
    },
    /// The published numbers, within so many per cent.
    Published {
        /// Per cent.
        within: f64,
    },
    /// In each column the rows that have published numbers, in their order.
    PublishedOrder {},
    /// Can't be tested here.
    Untestable {
        /// Why.
        reason: String,
    },
}
