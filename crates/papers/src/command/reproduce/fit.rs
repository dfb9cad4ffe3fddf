//! `ropewalk-papers reproduce fit`.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ropewalk_algorithms::Registries;
use ropewalk_command_line::{Failure, ProgressLine, interrupt, output};
use ropewalk_lab::table::Table;
use ropewalk_runner::checkpoint;
use serde_json::json;

use super::{Shared, Watch, load, now, threads};
use crate::reproduce::{self, Fit, FitRequest, Fitted, Progress, SelfTest};

#[derive(Debug, clap::Args)]
pub(super) struct FitOptions {
    /// A paper's name
    name: String,
    /// Settings to try
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(32..=1_000_000))]
    budget: u32,
    /// Settings in a population
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=10_000))]
    population: u32,
    /// Seed of the search
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the result goes as papers/NAME/fitted.toml, for `reproduce run`; of a --self-test, added to
    /// what is fitted there
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Where the best setting goes as a scenario, for `compare --scenario`
    #[arg(long, value_name = "FILE")]
    scenario_to: Option<PathBuf>,
    /// Test the fitter instead: make tables from so many settings drawn from the priors, and fit each
    #[arg(long, value_name = "SETTINGS")]
    self_test: Option<u16>,
    /// Only find out how open parts of the scheduler's own rule are read, in the setting that is fitted
    /// already
    #[arg(long, conflicts_with = "self_test")]
    readings: bool,
    #[command(flatten)]
    shared: Shared,
}

pub(super) fn search(registries: &Registries, options: &FitOptions) -> Result<(), Failure> {
    let paper = load(&options.name, options.shared.papers.as_deref())?;
    let stop = interrupt::flag();
    let bar = ProgressLine::new(0, "settings");
    let watch = Watch { bar, began: now() };
    let mut command = format!("ropewalk-papers reproduce fit {} --budget {}", options.name, options.budget);
    if options.population != 64 {
        command += &format!(" --population {}", options.population);
    }
    if options.seed != 1 {
        command += &format!(" --seed {}", options.seed);
    }
    let request = FitRequest {
        paper: &paper,
        budget: options.budget as usize,
        population: options.population as usize,
        seed: options.seed,
        jobs: threads(options.shared.jobs),
        command: &command,
    };
    let stopped = || {
        let folder = options.shared.state.display();
        Failure::Other(format!("interrupted: what was tried is in {folder}, call it again to go on"))
    };
    let store =
        checkpoint::open(&options.shared.state, &format!("fit-{}", options.name), options.shared.fresh)
            .map_err(|failed| Failure::Output { path: failed.path, reason: failed.reason })?;
    if let Some(known) = options.self_test {
        let found = reproduce::self_test(&request, usize::from(known), registries, &store, &watch, &stop);
        watch.bar.clear();
        let tested = found.map_err(Failure::other)?.ok_or_else(stopped)?;
        if let (Some(path), Some(fitted)) = (&options.save, &paper.fitted) {
            let tested = tested.sum(&format!("{command} --self-test {known}"));
            let with = Fitted { self_test: Some(tested), ..fitted.clone() };
            output::write_file(path, &with.text().map_err(Failure::other)?)?;
        }
        return output::print(&self_test_text(known, &tested, options.shared.json));
    }
    if options.readings {
        let Some(fitted) = &paper.fitted else {
            return Err(Failure::Other(format!("nothing is fitted for {} yet", paper.name)));
        };
        let with = with_readings(fitted, &request, registries, &watch, &stop)?.ok_or_else(stopped)?;
        watch.bar.clear();
        if let Some(path) = &options.save {
            output::write_file(path, &with.text().map_err(Failure::other)?)?;
        }
        return output::print(&readings_text(&with, options.shared.json));
    }
    let found = reproduce::fit(&request, registries, &store, &watch, &stop);
    let mut fit = found.map_err(Failure::other)?.ok_or_else(stopped)?;
    fit.fitted = with_readings(&fit.fitted, &request, registries, &watch, &stop)?.ok_or_else(stopped)?;
    watch.bar.clear();
    if let Some(path) = &options.save {
        output::write_file(path, &fit.fitted.text().map_err(Failure::other)?)?;
    }
    if let Some(path) = &options.scenario_to {
        output::write_file(path, &fit.scenario)?;
    }
    if options.shared.json {
        return output::print(&format!("{:#}\n", fit_json(&fit)));
    }
    output::print(&fit_text(&fit, watch.clock()))
}

/// The fitted setting, with the scheduler's own rule read in it. None if it was told to stop.
fn with_readings(
    fitted: &Fitted,
    request: &FitRequest<'_>,
    registries: &Registries,
    watch: &Watch,
    stop: &AtomicBool,
) -> Result<Option<Fitted>, Failure> {
    let effort = (request.seed, request.jobs);
    reproduce::read(request.paper, fitted, effort, registries, watch, stop).map_err(Failure::other)
}

fn readings_text(fitted: &Fitted, json: bool) -> String {
    if json {
        return format!("{:#}\n", json!(fitted.readings));
    }
    let mut table = Table::new(2, &["what", "value", "comparisons that agree", "measured"]);
    for read in &fitted.readings {
        for (label, agree, cells, detail) in &read.tried {
            let shown = if *label == read.best { format!("{label} (best)") } else { label.clone() };
            table.row(vec![read.name.clone(), shown, format!("{agree} of {cells}"), detail.clone()]);
        }
    }
    table.render()
}

fn self_test_text(known: u16, tested: &SelfTest, json: bool) -> String {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (best, ruled): (Vec<f64>, Vec<f64>) = tested.held_out.iter().copied().unzip();
    if json {
        let value = json!({
            "known_settings": known,
            "in_80_percent_region": {
                "ranges": tested.ranges.0, "of_ranges": tested.ranges.1,
                "choices": tested.choices.0, "of_choices": tested.choices.1,
            },
            "distance_fitted": tested.fitted,
            "distance_held_out": best,
            "distance_held_out_as_ruled": ruled,
        });
        return format!("{value:#}\n");
    }
    let mut text = format!(
        "{known} known settings: the truth is in the 80 % region {} of {} times ({:.0} %): numbers {} of \
         {}, choices {} of {}. The best setting is {:.3} from its table on average",
        tested.ranges.0 + tested.choices.0,
        tested.ranges.1 + tested.choices.1,
        tested.coverage() * 100.0,
        tested.ranges.0,
        tested.ranges.1,
        tested.choices.0,
        tested.choices.1,
        mean(&tested.fitted)
    );
    if !best.is_empty() {
        text += &format!(
            ", and {:.3} from the cells that it didn't see (the setting as assumed: {:.3})",
            mean(&best),
            mean(&ruled)
        );
    }
    text + "\n"
}

fn fit_json(fit: &Fit) -> serde_json::Value {
    json!({
        "fitted": fit.fitted,
        "cells": fit.cells.iter().map(|(name, published, here)| json!({
            "cell": name, "published": published, "fitted": here,
        })).collect::<Vec<_>>(),
        "within_10_percent": fit.within(10.0),
        "within_25_percent": fit.within(25.0),
        "population": fit.population.iter().map(|(values, distance, weight)| json!({
            "values": values, "distance": distance, "weight": weight,
        })).collect::<Vec<_>>(),
    })
}

fn fit_text(fit: &Fit, took: Duration) -> String {
    let mut table = Table::new(
        5,
        &[
            "setting",
            "best",
            "80 % of the last population",
            "distance grows by, if changed",
            "least distance with it left at",
        ],
    );
    for value in &fit.fitted.values {
        let matters = format!("{:+.3} to {:+.3}", value.matters.0, value.matters.1);
        let fixed = value.fixed.iter().map(|(label, distance)| format!("{label}: {distance:.3}"));
        let fixed = fixed.collect::<Vec<_>>().join(", ");
        table.row(vec![value.name.clone(), value.best.clone(), value.region.clone(), matters, fixed]);
    }
    let mut cells = Table::new(1, &["fitted cell", "published", "fitted"]);
    for (name, published, here) in &fit.cells {
        cells.row(vec![name.clone(), format!("{published}"), format!("{here:.3}")]);
    }
    let fitted = &fit.fitted;
    format!(
        "{}\n{}\nDistance {:.3} (as assumed {:.3}); {} of {} cells within 10 %, {} within 25 %. {:.1} % of \
         the prior are as near as the last population. {} settings, {:.0} s.\n",
        table.render(),
        cells.render(),
        fitted.distance,
        fitted.ruled,
        fit.within(10.0),
        fit.cells.len(),
        fit.within(25.0),
        fitted.prior_share * 100.0,
        fitted.tried,
        took.as_secs_f64()
    ) + &if fitted.readings.is_empty() {
        String::new()
    } else {
        format!("\n{}", readings_text(fitted, false))
    }
}
