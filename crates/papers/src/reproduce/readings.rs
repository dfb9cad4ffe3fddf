//! How an open part of a scheduler's own rule is read. No row of the baseline can tell, so the paper's file
//! names the claims that do; each value is run in the fitted setting, and judged by these claims alone. All
//! others test it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ropewalk_algorithms::Registries;
use ropewalk_runner::checkpoint::Store;

use super::cells::{Progress, Request};
use super::open::{Fitted, Read, Reading, Weighted};
use super::plan::FITTED;
use super::run::execute;
use super::{Paper, PaperError, World, fit};

/// Says nothing of its own runs.
struct Quiet<'a>(&'a dyn Progress);

impl Progress for Quiet<'_> {
    fn total(&self, _runs: usize, _known: usize) {}
    fn done(&self) {}
    fn clock(&self) -> Duration {
        self.0.clock()
    }
}

/// The fitted setting with each reading in turn, the earlier ones as they were read. None if it was told to
/// stop.
///
/// # Errors
/// What in the paper's files can't be run.
pub fn read(
    paper: &Paper,
    fitted: &Fitted,
    (seed, jobs): (u64, usize),
    registries: &Registries,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Option<Fitted>, PaperError> {
    let fitted = Fitted { figures: fit::figures(paper), ..fitted.clone() };
    let mut known: Vec<Read> = Vec::new();
    for reading in &paper.unknowns.readings {
        let mut tried = Vec::new();
        for value in &reading.values {
            let read = as_read(reading, value, Vec::new());
            let readings = known.iter().cloned().chain([read]).collect();
            let candidate = candidate(paper, reading, Fitted { readings, ..fitted.clone() });
            let (mut agree, mut cells, mut details) = (0, 0, Vec::new());
            let mut figures: Vec<&str> =
                candidate.claims.iter().flat_map(|claim| claim.figures().map(String::as_str)).collect();
            figures.dedup();
            for figure in figures {
                let request = Request {
                    paper: &candidate,
                    world: World::Simulated,
                    figure: Some(figure),
                    runs: None,
                    seed,
                    jobs,
                };
                let outcome = execute(&request, registries, &Store::none(), &Quiet(progress), stop)?;
                if outcome.interrupted {
                    return Ok(None);
                }
                let settings = outcome.judgements.iter().flat_map(|judgement| &judgement.settings);
                for setting in settings.filter(|setting| setting.variant == FITTED) {
                    agree += setting.agree;
                    cells += setting.cells;
                    details.push(setting.detail.clone());
                }
            }
            tried.push((value.label.clone(), agree, cells, details.join("; ")));
        }
        let Some(best) = best(&reading.values, &tried) else { continue };
        known.push(as_read(reading, &reading.values[best], tried));
    }
    Ok(Some(Fitted { readings: known, ..fitted }))
}

fn as_read(reading: &Reading, value: &Weighted, tried: Vec<(String, usize, usize, String)>) -> Read {
    Read {
        name: reading.name.clone(),
        best: value.label.clone(),
        judged_by: reading.judged_by.clone(),
        figures: reading.figures.clone(),
        tried,
        apply: value.settings.clone(),
    }
}

/// The paper with this setting, and nothing but what judges the reading.
fn candidate(paper: &Paper, reading: &Reading, fitted: Fitted) -> Paper {
    let mut candidate = paper.clone();
    candidate.plan.open.clear();
    candidate.claims.retain(|claim| reading.judged_by.contains(&claim.id));
    candidate.fitted = Some(fitted);
    candidate
}

/// The one with which the most comparisons agree; of several the one of the most weight; of these the first.
fn best(values: &[Weighted], tried: &[(String, usize, usize, String)]) -> Option<usize> {
    (0..values.len()).max_by(|a, b| {
        let weight = || values[*a].weight.total_cmp(&values[*b].weight);
        tried[*a].1.cmp(&tried[*b].1).then_with(weight).then_with(|| b.cmp(a))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreement_counts_then_weight_then_order() {
        let values = |weights: &[f64]| -> Vec<Weighted> {
            let one = |weight: &f64| Weighted {
                label: String::new(),
                weight: *weight,
                settings: super::super::Settings::default(),
            };
            weights.iter().map(one).collect()
        };
        let tried = |agree: &[usize]| -> Vec<(String, usize, usize, String)> {
            agree.iter().map(|agree| (String::new(), *agree, 5, String::new())).collect()
        };
        assert_eq!(best(&values(&[9.0, 1.0, 1.0]), &tried(&[3, 4, 4])), Some(1));
        assert_eq!(best(&values(&[1.0, 1.0, 2.0]), &tried(&[4, 4, 4])), Some(2));
        assert_eq!(best(&[], &[]), None);
    }

    /// At 10 ms Multipath TCP is faster than plain TCP, unless it may hardly send: the claim that says so
    /// finds which it is.
    #[test]
    fn the_claim_that_is_named_finds_the_reading() {
        let mut paper = super::super::load("kim-choi").unwrap().unwrap();
        let figure = paper.plan.figures.iter_mut().find(|figure| figure.id == "fig2").unwrap();
        figure.runs = Some(3);
        figure.columns.truncate(1);
        let claim = "id = 'named'\ntext = ''\nfigure = 'fig2'\n\
                     test = { kind = 'order', rows = ['MPTCP', 'SPTCP'], columns = 'all', ties = false }";
        paper.claims.push(toml::from_str(claim).unwrap());
        let reading = "[[reading]]\nname = 'r'\nwhy = ''\nsource = ''\njudged-by = ['named']\nfigures = \
                       ['fig2']\n\
                       values = [{ label = 'ten segments', replace = { minrtt = 'capacity(initial=20, \
                       delta=0.5)' } }, { label = 'as it is' }]";
        paper.unknowns.readings = super::super::open::parse(reading).unwrap().readings;
        struct Silent;
        impl Progress for Silent {
            fn total(&self, _runs: usize, _known: usize) {}
            fn done(&self) {}
            fn clock(&self) -> Duration {
                Duration::ZERO
            }
        }
        let registries = Registries::builtin();
        // The fitted setting is of another figure: this one is run as assumed, but for the reading.
        paper.unknowns.fitted = vec!["fig5".into()];
        paper.unknowns.claims.clear();
        paper.unknowns.held_out.clear();
        let fitted = Fitted::default();
        let found =
            read(&paper, &fitted, (1, 2), &registries, &Silent, &AtomicBool::new(false)).unwrap().unwrap();
        let found = &found.readings;
        let agree: Vec<(usize, usize)> = found[0].tried.iter().map(|one| (one.1, one.2)).collect();
        assert_eq!((found[0].best.as_str(), agree), ("as it is", vec![(0, 1), (1, 1)]), "{found:?}");
    }
}
