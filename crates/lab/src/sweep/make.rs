//! Makes the runs of a design.

use std::sync::Arc;

use ropewalk_algorithms::Registries;
use ropewalk_settings::diagnostic::InputError;
use ropewalk_sim::{Recording, RunResult, RunSpec};
use sha2::{Digest, Sha256};

use super::Command;
use super::design::Design;
use super::metrics::RunMetrics;
use super::output::{Rows, RunIndex, identity, provenance, run_index};
use super::space::{Prepared, Space, prepare};
use super::summary::Summary;
use crate::tidy::Table;
use crate::{bound, compare};

/// Checks every point.
///
/// # Errors
/// The first value that isn't allowed.
pub fn check(design: &Design, registries: &Registries) -> Result<(), InputError> {
    let space = Space::new(design);
    for point in 0..design.points() {
        prepare(design, &space.point(design, point), registries)?;
    }
    Ok(())
}

/// 16 hexadecimal digits that name these bytes: the start of their SHA-256.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Identifies a sweep: 8 bytes of the digest of everything that its results depend on, and the same as text.
pub fn id(design: &Design, command: &Command) -> ([u8; 8], String) {
    let mut digest = Sha256::new();
    identity(design, command, &mut |bytes| digest.update(bytes));
    let digest = digest.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    (first, first.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Makes runs of a design, one after another.
#[derive(Debug)]
pub struct Maker<'a> {
    design: &'a Design,
    registries: &'a Registries,
    space: Space,
    /// The point at hand.
    prepared: Option<(u64, Prepared)>,
}

impl<'a> Maker<'a> {
    /// A maker of this design's runs.
    pub fn new(design: &'a Design, registries: &'a Registries) -> Self {
        Maker { design, registries, space: Space::new(design), prepared: None }
    }

    /// Makes one run. Those of a point follow each other best.
    ///
    /// # Errors
    /// A value that isn't allowed at its point.
    pub fn make(
        &mut self,
        run: u64,
        simulate: &impl Fn(&RunSpec) -> RunResult,
    ) -> Result<RunMetrics, InputError> {
        let at = run_index(self.design, run);
        let prepared = match self.prepared.take() {
            Some((point, prepared)) if point == at.point => prepared,
            _ => prepare(self.design, &self.space.point(self.design, at.point), self.registries)?,
        };
        let spec = one(self.design, &prepared, &at);
        self.prepared = Some((at.point, prepared));
        Ok(RunMetrics::new(run, &spec.scenario.workload, &simulate(&spec), bound::of(&spec)))
    }
}

fn one(design: &Design, prepared: &Prepared, at: &RunIndex) -> RunSpec {
    let runner = &prepared.runners[at.runner];
    RunSpec {
        scenario: Arc::clone(&prepared.scenario),
        scheduler: runner.scheduler.clone(),
        congestion: runner.congestion.clone(),
        mode: runner.mode,
        seed: design.seed.wrapping_add(u64::from(at.number)),
        start_phase: compare::start_phase(&prepared.scenario, at.number, design.runs),
        recording: Recording::default(),
    }
}

/// The table and the summary of all runs of a design, in order of their numbers, without a folder.
pub fn in_memory(design: &Design, command: &Command, runs: &[RunMetrics]) -> (Table, Summary) {
    let space = Space::new(design);
    let mut rows = Rows::new(design, &space);
    let mut table = Table::new(std::mem::take(&mut rows.heads));
    let id = id(design, command).1;
    let (sweep, scenario) = (&design.source.text, &design.base.text);
    table.provenance = provenance(&command.build, &id, sweep, scenario, design.seed);
    let mut summary = Summary::new(design);
    for kept in runs {
        let at = run_index(design, kept.run);
        rows.push(&at, kept, &mut table.columns);
        summary.take(at.point, at.runner, kept);
    }
    summary.finish();
    (table, summary)
}
