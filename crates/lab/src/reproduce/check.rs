//! What can be wrong in a paper's files without anything being run: a claim about a row that isn't there, a number of
//! no cell, a scenario that can't be read.

use super::plan::{self, variants};
use super::{Claim, Figure, Kind, Over, Paper, Test, World};
use crate::Registries;

/// Everything that is wrong.
pub fn check(paper: &Paper, registries: &Registries) -> Vec<String> {
    let mut wrong = Vec::new();
    let variants = variants(paper);
    for world in [World::Simulated, World::Emulated] {
        if let Err(error) = plan::cells(paper, &variants, world, None, Some(1), registries) {
            wrong.push(error);
        }
    }
    for variant in &variants {
        for id in variant.figures.iter().filter(|id| paper.figure(id).is_none()) {
            wrong.push(format!("setting `{}`: there is no figure `{id}`", variant.label));
        }
    }
    for claim in &paper.claims {
        if matches!(claim.test, Test::Untestable { .. }) {
            continue;
        }
        match paper.figure(&claim.figure) {
            Some(figure) => wrong.extend(claim_in(claim, figure)),
            None => wrong.push(format!("claim `{}`: there is no figure `{}`", claim.id, claim.figure)),
        }
    }
    for number in &paper.published {
        let Some(figure) = paper.figure(&number.table) else { continue };
        let row = figure.rows.iter().any(|row| row.label == number.row);
        let column = figure.columns.iter().any(|column| column.label == number.column);
        if !(row && column) {
            wrong.push(format!("published: {} has no {}, {}", number.table, number.row, number.column));
        }
    }
    for id in paper.notes.keys().filter(|id| !paper.claims.iter().any(|claim| claim.id == **id)) {
        wrong.push(format!("notes: there is no claim `{id}`"));
    }
    let mut ids: Vec<&str> = paper.claims.iter().map(|claim| claim.id.as_str()).collect();
    ids.sort_unstable();
    wrong.extend(
        ids.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| format!("two claims `{}`", pair[0])),
    );
    wrong
}

/// Rows and columns that a claim names and its figure doesn't have.
fn claim_in(claim: &Claim, figure: &Figure) -> Vec<String> {
    let none: Vec<String> = Vec::new();
    let all = Over::Word("all".into());
    let (rows, over) = match &claim.test {
        Test::Change { row, against, columns, .. } => (vec![row.clone(), against.clone()], columns),
        Test::Order { rows, columns, .. } | Test::Value { rows, columns, .. } => (rows.clone(), columns),
        Test::Best { row, columns, .. } => (vec![row.clone()], columns),
        Test::Agree { rows, columns, .. } => (rows.to_vec(), columns),
        Test::Crossing { row, against, .. } => (vec![row.clone(), against.clone()], &all),
        Test::Trend { rows, .. } | Test::Settles { rows, .. } => (rows.clone(), &all),
        Test::Published { .. } | Test::Untestable { .. } => (none, &all),
    };
    let columns = match over {
        Over::These(labels) => labels.clone(),
        Over::Word(word) if word == "all" => Vec::new(),
        Over::Word(word) => vec![word.clone()],
    };
    let mut wrong = Vec::new();
    for label in rows.iter().filter(|label| !figure.rows.iter().any(|row| row.label == **label)) {
        wrong.push(format!("claim `{}`: {} has no row `{label}`", claim.id, figure.id));
    }
    for label in columns.iter().filter(|label| !figure.columns.iter().any(|column| column.label == **label)) {
        wrong.push(format!("claim `{}`: {} has no column `{label}`", claim.id, figure.id));
    }
    if matches!(claim.test, Test::Settles { .. }) != (figure.kind == Kind::Series) {
        wrong.push(format!("claim `{}`: its test doesn't suit {}", claim.id, figure.id));
    }
    wrong
}
