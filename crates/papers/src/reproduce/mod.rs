//! The papers: each one's experiments as data (`papers/<name>/` at the root of the repository, compiled in),
//! run, set beside the numbers that it prints, and its claims judged.
//!
//! - `paper.toml`: figures as grids of rows and columns, and the settings that the paper leaves open;
//! - scenario files, whose keys rows, columns and settings change;
//! - `published.csv`: every number that the paper prints;
//! - `claims.toml`: its claims as tests, with tolerances that were fixed before the first run;
//! - `open.toml`: the settings that the paper leaves open, each with a prior, and the figures that they are
//!   fitted to;
//! - `fitted.toml`: what `ropewalk-papers reproduce fit` found;
//! - `notes.toml`: what was found, in words; numbers are references to results.

mod abc;
mod axis;
mod cells;
mod chart;
mod check;
mod claims;
mod csv;
mod document;
mod effect;
mod error;
mod figures;
mod files;
mod finalists;
mod fit;
mod hosts;
mod judge;
mod marginals;
mod measure;
mod notes;
mod open;
mod overview;
mod pages;
mod plan;
mod published;
mod readings;
mod reordering;
mod report;
mod run;
mod self_test;
mod series;
mod settings;
mod svg;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use cells::{Progress, Request};
pub use check::check;
pub use claims::{Claim, Over, Test};
pub use csv::results;
pub use document::document;
pub use error::{
    CellError, KeyError, NoteError, PaperError, PublishedError, ReferenceError, SettingError, TableError,
};
pub use figures::redrawn;
pub use files::{NAMES, load, load_from};
pub use fit::{Fit, FitRequest, Tried, fit};
pub use hosts::{Difference, differences, hosts_page};
pub use judge::{Judgement, Verdict};
pub use notes::{Agreements, Counted, Results, fill, numbers_in_prose, of as notes_of};
pub use open::{Choice, Fitted, Read, Reading, Tested, Unknown, Unknowns};
pub use overview::{Entry, entry_path, text as overview, world_of as world_of_overview};
pub use pages::{pages, reworded};
pub use published::Published;
pub use readings::read;
pub use report::{json, tables};
pub use run::{Outcome, Run, Runs, execute};
pub use self_test::{SelfTest, self_test};
pub use series::Series;

/// A paper's experiments.
#[derive(Clone, PartialEq, Debug)]
pub struct Paper {
    /// Its short name: `cfs-2019`.
    pub name: String,
    /// What is run.
    pub plan: Plan,
    /// What it claims.
    pub claims: Vec<Claim>,
    /// What it prints.
    pub published: Vec<Published>,
    /// What was found, by claim; `summary` is about the whole paper, `real-summary` about its results in real
    /// time.
    pub notes: BTreeMap<String, String>,
    /// What it leaves open, with priors.
    pub unknowns: Unknowns,
    /// The setting that was fitted to some of its figures.
    pub fitted: Option<Fitted>,
    /// Scenario files by name.
    pub scenarios: BTreeMap<String, String>,
}

/// `paper.toml`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// The paper's title.
    pub title: String,
    /// Authors and where it appeared.
    pub source: String,
    /// What the paper measured on.
    pub testbed: String,
    /// Runs of each, the paper's own number where it gives one.
    pub runs: u32,
    /// Runs of each in the settings that aren't the main one, if fewer.
    #[serde(default)]
    pub sweep_runs: Option<u32>,
    /// Opportunistic retransmission and penalisation of all schedulers, unless a row says otherwise: `off`,
    /// `paper`, `linux`; `linux, no penalisation` and `paper, no penalisation`.
    pub mechanisms: String,
    /// Decisions that hold for all of its figures.
    #[serde(default)]
    pub assumptions: Vec<String>,
    /// Decisions for what is repeated in real time.
    #[serde(default)]
    pub real_assumptions: Vec<String>,
    /// Its tables and figures.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
    /// What it leaves open.
    #[serde(default, rename = "open")]
    pub open: Vec<Open>,
}

/// A table or figure: each row with each column is a cell of so many runs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Figure {
    /// Its name in `published.csv` and `claims.toml`.
    pub id: String,
    /// Its name in the paper, and what it shows.
    pub title: String,
    /// How it is made.
    #[serde(default)]
    pub kind: Kind,
    /// Where it is made.
    #[serde(default)]
    pub world: World,
    /// What it shows, unless a row or column says otherwise; see `measure`.
    #[serde(default)]
    pub metric: String,
    /// Shown as a change against this row, per cent.
    #[serde(default)]
    pub against: Option<String>,
    /// Runs of each cell, where not the paper's number.
    #[serde(default)]
    pub runs: Option<u32>,
    /// Part of the run's start that isn't measured.
    #[serde(default)]
    pub skip: Option<String>,
    /// What holds for all of its cells.
    #[serde(default, flatten)]
    pub settings: Settings,
    /// Its rows.
    pub rows: Vec<Line>,
    /// Its columns.
    pub columns: Vec<Line>,
}

/// Where a figure is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// In the simulator.
    #[default]
    Simulated,
    /// With real packets in real time: the engine sends, the Linux kernel receives.
    Emulated,
}

/// How a figure is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Simulations, one measure of each.
    #[default]
    Grid,
    /// Simulations, a measure over time.
    Series,
    /// Two exponential variables, by formula and by drawing them.
    Reordering,
}

/// A row or a column.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Line {
    /// Its heading.
    pub label: String,
    /// Its place on an axis.
    #[serde(default)]
    pub x: Option<f64>,
    /// What it shows, if not the figure's metric.
    #[serde(default)]
    pub metric: Option<String>,
    /// Of a column: runs of each of its cells, where not the figure's number.
    #[serde(default)]
    pub runs: Option<u32>,
    /// Of a row: why its mechanisms aren't those of the rows that it is compared with.
    #[serde(default)]
    pub mechanisms_reason: Option<String>,
    /// What it changes.
    #[serde(default, flatten)]
    pub settings: Settings,
}

/// What a figure, a line or an open setting changes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Settings {
    /// Scenario file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// Keys of the scenario file: `path.wlan.loss`, `path.*.queue`, `workload.size`;
    /// `workload[web].persistent` where the workload's kind is `web`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, toml::Value>,
    /// The path that the connection opens on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// Scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// Plain TCP on this path instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
    /// Congestion control of Multipath TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Congestion control of plain TCP, where it isn't the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_congestion: Option<String>,
    /// Opportunistic retransmission and penalisation of Multipath TCP: as [`Plan::mechanisms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanisms: Option<String>,
    /// Schedulers that stand in for others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replace: BTreeMap<String, String>,
}

/// A setting that the paper leaves open.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Open {
    /// What.
    pub name: String,
    /// Why it is open.
    pub why: String,
    /// The value that the main runs have.
    pub main: String,
    /// Whether its values change the fitted setting, not the main one.
    #[serde(default)]
    pub fitted: bool,
    /// Figures that it concerns; none named: all.
    #[serde(default)]
    pub figures: Vec<String>,
    /// The other values.
    pub values: Vec<OpenValue>,
}

/// Another value of an open setting.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct OpenValue {
    /// Its name.
    pub label: String,
    /// What it changes.
    #[serde(default, flatten)]
    pub settings: Settings,
}

impl Paper {
    /// Whether it has anything to run in a world.
    pub fn runs_in(&self, world: World) -> bool {
        self.plan.figures.iter().any(|figure| figure.world == world)
    }

    /// The world of a claim: its figure's.
    pub fn world_of(&self, claim: &Claim) -> World {
        self.figure(&claim.figure).map_or(World::Simulated, |figure| figure.world)
    }

    /// A figure by its name.
    pub fn figure(&self, id: &str) -> Option<&Figure> {
        self.plan.figures.iter().find(|figure| figure.id == id)
    }
}
