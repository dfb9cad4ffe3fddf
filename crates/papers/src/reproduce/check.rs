//! What can be wrong in a paper's files without anything being run: a claim about a row that isn't there, a
//! number of no cell, a scenario that can't be read.

use ropewalk_algorithms::Registries;

use super::plan::{self, Cell, Variant, Work, variants};
use super::{Claim, Figure, Kind, Over, Paper, Test, World, notes, open, settings};

/// Everything that is wrong.
pub fn check(paper: &Paper, registries: &Registries) -> Vec<String> {
    let mut wrong = Vec::new();
    let variants = variants(paper);
    for world in [World::Simulated, World::Emulated] {
        match plan::cells(paper, &variants, world, None, Some(1), registries) {
            Ok(cells) => wrong.extend(confounded(paper, &variants, &cells)),
            Err(error) => wrong.push(error.to_string()),
        }
    }
    wrong.extend(open::check(paper, registries));
    for variant in &variants {
        for id in variant.figures.iter().filter(|id| paper.figure(id).is_none()) {
            wrong.push(format!("setting `{}`: there is no figure `{id}`", variant.label));
        }
    }
    for claim in &paper.claims {
        if matches!(claim.test, Test::Untestable { .. }) {
            continue;
        }
        for id in claim.figures() {
            match paper.figure(id) {
                Some(figure) => wrong.extend(claim_in(claim, figure)),
                None => wrong.push(format!("claim `{}`: there is no figure `{id}`", claim.id)),
            }
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
    let whole = [World::Simulated, World::Emulated].map(notes::summary);
    let known =
        |id: &String| whole.contains(&id.as_str()) || paper.claims.iter().any(|claim| claim.id == *id);
    for id in paper.notes.keys().filter(|id| !known(id)) {
        wrong.push(format!("notes: there is no claim `{id}`"));
    }
    let mut ids: Vec<&str> = paper.claims.iter().map(|claim| claim.id.as_str()).collect();
    ids.sort_unstable();
    wrong.extend(
        ids.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| format!("two claims `{}`", pair[0])),
    );
    wrong
}

/// Rows that are compared with others and differ from them in opportunistic retransmission or penalisation,
/// without a reason. A scheduler that stands in with mechanisms of its own has its reason in the open
/// setting.
fn confounded(paper: &Paper, variants: &[Variant], cells: &[Cell]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut firsts: Vec<((usize, usize, usize), _, &str)> = Vec::new();
    for cell in cells {
        let figure = &paper.plan.figures[cell.figure];
        let row = &figure.rows[cell.row];
        let Work::Simulate(template) = &cell.work else { continue };
        let replace = &variants[cell.variant].settings.replace;
        let stand_in = row.settings.scheduler.as_ref().and_then(|name| replace.get(name));
        let explained = row.mechanisms_reason.is_some()
            || stand_in.is_some_and(|scheduler| settings::names_mechanisms(scheduler));
        if template.mode != ropewalk_sim::Mode::Multipath || explained {
            continue;
        }
        let place = (cell.figure, cell.variant, cell.column);
        let own = template.scheduler.build().mechanisms();
        match firsts.iter().find(|(known, ..)| *known == place) {
            None => firsts.push((place, own, &row.label)),
            Some((_, first, _)) if *first == own => {}
            Some((_, _, first)) => wrong.push(format!(
                "{}: {} and {first} differ in opportunistic retransmission or penalisation, and no reason \
                 is given",
                figure.id, row.label
            )),
        }
    }
    wrong.dedup();
    wrong
}

/// Rows and columns that a claim names and its figure doesn't have.
fn claim_in(claim: &Claim, figure: &Figure) -> Vec<String> {
    let none: Vec<String> = Vec::new();
    let all = Over::Word("all".into());
    let (rows, over) = match &claim.test {
        Test::Change { row, more, against, columns, .. } => {
            ([row.clone(), against.clone()].into_iter().chain(more.iter().cloned()).collect(), columns)
        }
        Test::Order { rows, columns, .. } | Test::Value { rows, columns, .. } => (rows.clone(), columns),
        Test::Best { row, columns, .. } => (vec![row.clone()], columns),
        Test::Agree { rows, columns, .. } => (rows.to_vec(), columns),
        Test::Crossing { row, against, .. } => (vec![row.clone(), against.clone()], &all),
        Test::Trend { rows, .. } | Test::Settles { rows, .. } => (rows.clone(), &all),
        Test::Published { .. } | Test::PublishedOrder {} | Test::Untestable { .. } => (none, &all),
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
