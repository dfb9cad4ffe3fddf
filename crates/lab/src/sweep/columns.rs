//! A run's metrics as columns of a tidy table.

use super::metrics::{BOUND, Ending, PATH, RUN, RunMetrics};
use crate::objective::OBJECTIVE;
use crate::tidy::{Column, Head, plain_name};

/// The columns of a run's metrics, the paths' after the run's. `paths`: names.
pub fn metric_heads(paths: &[String]) -> Vec<Head> {
    let head = |name: &str, unit: &str, meaning: &str, whole: bool| {
        if name == "finished" {
            Head::flag(name, meaning)
        } else if whole {
            Head::whole(name, unit, meaning)
        } else {
            Head::number(name, unit, meaning)
        }
    };
    let run = RUN.iter().map(|m| head(m.name, m.unit, m.meaning, m.whole));
    let objective = head(OBJECTIVE.0, OBJECTIVE.1, OBJECTIVE.2, false);
    let bound = BOUND.iter().map(|m| head(m.name, m.unit, m.meaning, false));
    let of_path = |path: &String| {
        let path = plain_name(path);
        PATH.iter().map(move |m| head(&format!("path_{path}_{}", m.name), m.unit, m.meaning, false))
    };
    run.chain([objective]).chain(bound).chain(paths.iter().flat_map(of_path)).collect()
}

/// Adds a run's metrics to columns as [`metric_heads`] has them for these paths.
pub fn push_metrics(kept: &RunMetrics, paths: &[String], columns: &mut [Column]) {
    let there = |value: &f64| Some(*value).filter(|value| !value.is_nan());
    let (own, of_paths) = columns.split_at_mut(kept.values.len());
    for (column, value) in own.iter_mut().zip(&kept.values) {
        column.push_number(there(value));
    }
    let of = |name: &String| kept.paths.iter().find(|(known, _)| known == name);
    let values = paths.iter().flat_map(|name| {
        let known = of(name);
        (0..PATH.len()).map(move |index| known.and_then(|(_, values)| there(&values[index])))
    });
    for (column, value) in of_paths.iter_mut().zip(values) {
        column.push_number(value);
    }
}

/// A run's ending as the column `outcome` has it.
pub fn outcome(ending: &Ending) -> &'static str {
    match ending {
        Ending::Complete => "complete",
        Ending::Limit => "limit",
        Ending::Failed(_) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{Table, suffix};

    #[test]
    fn names_need_no_quoting() {
        for head in metric_heads(&["lte".into()]) {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(head.name.chars().all(plain), "{}", head.name);
            assert!(head.name.ends_with(suffix(&head.unit)), "{} in {}", head.name, head.unit);
        }
    }

    #[test]
    fn a_path_that_never_began_leaves_gaps() {
        let kept = crate::sweep::metrics::tests::kept(3);
        let paths = ["wifi".to_string(), "dsl".to_string()];
        let mut table = Table::new(metric_heads(&paths));
        push_metrics(&kept, &paths, &mut table.columns);
        assert!(table.columns.iter().all(|column| column.len() == 1));
        let at = |name: &str| table.heads.iter().position(|head| head.name == name).unwrap();
        assert_eq!(table.columns[at("path_wifi_lost_packets")], Column::Number(vec![Some(2.0)]));
        assert_eq!(table.columns[at("path_dsl_lost_packets")], Column::Number(vec![None]));
    }
}
