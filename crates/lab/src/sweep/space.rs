//! The points of a design, and the scenario at a point.
//!
//! Latin hypercube (McKay, Beckman, Conover 1979): with n points each axis is cut into n strata of equal
//! width; every stratum holds one point, at a random place in it, and the strata of the axes are matched by
//! random permutations.

use std::sync::Arc;

use rand_core::Rng;
use rand_pcg::Pcg64;
use ropewalk_algorithms::Registries;
use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_settings::diagnostic::{Diagnostic, InputError, Source};
use ropewalk_sim::{Mode, Scenario};

use super::axis::{Level, Values};
use super::design::{Design, Layout};
use super::target::{self, Target};
use crate::scenario;

/// The points of a design, by number.
#[derive(Clone, Debug)]
pub struct Space {
    /// Of a Latin hypercube: by axis, the stratum of each point.
    strata: Vec<Vec<u32>>,
}

/// In [0, 1).
fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

impl Space {
    /// The points of a design.
    pub fn new(design: &Design) -> Self {
        let strata = match design.layout {
            Layout::Grid => Vec::new(),
            Layout::LatinHypercube { points, seed } => (0..design.axes.len())
                .map(|axis| {
                    let mut random = Pcg64::new(u128::from(seed), 0x1a71 + 2 * axis as u128);
                    let mut order: Vec<u32> = (0..points as u32).collect();
                    // Fisher and Yates's shuffle.
                    for last in (1..order.len()).rev() {
                        let draw = uniform(&mut random) * (last + 1) as f64;
                        order.swap(last, draw as usize);
                    }
                    order
                })
                .collect(),
        };
        Space { strata }
    }

    /// The values of a point, by axis. The last axis of a grid changes first.
    pub fn point(&self, design: &Design, point: u64) -> Vec<Level> {
        match design.layout {
            Layout::Grid => {
                let mut rest = point;
                let mut levels: Vec<Level> = Vec::with_capacity(design.axes.len());
                for axis in design.axes.iter().rev() {
                    let Values::Listed(list) = &axis.values else { continue };
                    levels.push(list[(rest % list.len() as u64) as usize].clone());
                    rest /= list.len() as u64;
                }
                levels.reverse();
                levels
            }
            Layout::LatinHypercube { points, seed } => {
                // Each point has its own random stream, so that it can be generated alone.
                let mut random = Pcg64::new(u128::from(seed) << 64 | u128::from(point), 0x1a70);
                let strata = self.strata.iter().map(|strata| strata[point as usize]);
                let within = |stratum: u32| (f64::from(stratum) + uniform(&mut random)) / points as f64;
                design.axes.iter().zip(strata.map(within)).map(|(axis, part)| axis.at(part)).collect()
            }
        }
    }
}

/// A scheduler and congestion control at a point.
#[derive(Clone, Debug)]
pub struct Runner {
    /// The scheduler as the design names it, or `tcp PATH`.
    pub label: String,
    /// The congestion control as the design names it.
    pub congestion_label: String,
    /// The scheduler with the point's parameters.
    pub scheduler: Spec<dyn Scheduler>,
    /// The congestion control with the point's parameters.
    pub congestion: Spec<dyn CongestionControl>,
    /// Multipath, or one path.
    pub mode: Mode,
}

/// A prepared point.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The scenario.
    pub scenario: Arc<Scenario>,
    /// The schedulers and congestion controls.
    pub runners: Vec<Runner>,
}

/// `path.lte.rtt = 40 ms, workload.size = 1 MiB`.
pub fn describe(design: &Design, levels: &[Level]) -> String {
    let parts =
        design.axes.iter().zip(levels).map(|(axis, level)| format!("{} = {}", axis.name, level.shown));
    parts.collect::<Vec<_>>().join(", ")
}

/// Prepares a point.
///
/// # Errors
/// A value that the scenario or an algorithm doesn't allow.
pub fn prepare(design: &Design, levels: &[Level], registries: &Registries) -> Result<Prepared, InputError> {
    let place = describe(design, levels);
    let wrong = |message: String| InputError::from(Diagnostic::new(message).help(format!("at {place}")));
    let touched = settings(design, levels).any(|(target, _)| matches!(target, Target::Scenario(_)));
    let scenario = if touched {
        let document = document(design, levels).map_err(wrong)?;
        let source = Source::new(format!("{} with {place}", design.base_name), document.to_string());
        scenario::parse(&source, &design.base.scenario.name, &design.folder, registries)?.scenario
    } else {
        design.base.scenario.clone()
    };
    let mut runners = Vec::new();
    for congestion_label in &design.congestion {
        let text = congestion_text(design, levels, congestion_label);
        let congestion = registries.congestion.parse(&text).map_err(|error| wrong(error.message))?;
        for label in &design.schedulers {
            let (text, mode, label) = match label.strip_prefix("tcp:") {
                None => (label.clone(), Mode::Multipath, label.clone()),
                Some(path) => {
                    let index = scenario.paths.iter().position(|known| known.name == path);
                    let index = index.ok_or_else(|| wrong(format!("there is no path `{path}`")))?;
                    ("single".to_string(), Mode::SinglePath(index), format!("tcp {path}"))
                }
            };
            let text = scheduler_text(design, levels, &text);
            let scheduler =
                registries.scheduler(&text, scenario.paths.len()).map_err(|error| wrong(error.message))?;
            let congestion_label = congestion_label.clone();
            runners.push(Runner { label, congestion_label, scheduler, congestion: congestion.clone(), mode });
        }
    }
    Ok(Prepared { scenario: Arc::new(scenario), runners })
}

/// What a point sets.
fn settings<'a>(design: &'a Design, levels: &'a [Level]) -> impl Iterator<Item = (&'a Target, &'a Level)> {
    let pairs = design.axes.iter().zip(levels);
    pairs.flat_map(|(axis, level)| axis.targets.iter().map(move |target| (target, level)))
}

/// The scenario's file at a point; an error in words.
pub(super) fn document(design: &Design, levels: &[Level]) -> Result<toml::Table, String> {
    let mut document: toml::Table = design.base.text.parse().map_err(|error| format!("{error}"))?;
    for (target, level) in settings(design, levels) {
        if let Target::Scenario(name) = target {
            target::set(&mut document, name, level.value.clone())
                .map_err(|reason| format!("`{name}` can't be varied: {reason}"))?;
        }
    }
    Ok(document)
}

/// A scheduler with a point's parameters.
pub(super) fn scheduler_text(design: &Design, levels: &[Level], text: &str) -> String {
    settings(design, levels).fold(text.to_string(), |text, (target, level)| match target {
        Target::Scheduler(who, what) => with_parameter(&text, who, what, &level.shown),
        _ => text,
    })
}

/// A congestion control with a point's parameters.
pub(super) fn congestion_text(design: &Design, levels: &[Level], text: &str) -> String {
    settings(design, levels).fold(text.to_string(), |text, (target, level)| match target {
        Target::Congestion(who, what) => with_parameter(&text, who, what, &level.shown),
        _ => text,
    })
}

/// `text` with a parameter set, if it names that algorithm.
fn with_parameter(text: &str, who: &str, what: &str, value: &str) -> String {
    let (head, inside) = match text.split_once('(') {
        None => (text.trim(), ""),
        Some((head, rest)) => (head.trim(), rest.trim_end().strip_suffix(')').unwrap_or(rest)),
    };
    if head.split(':').next().map(str::trim) != Some(who) {
        return text.to_string();
    }
    let kept = inside
        .split(',')
        .map(str::trim)
        .filter(|argument| !argument.is_empty() && argument.split('=').next().map(str::trim) != Some(what));
    let arguments: Vec<String> = kept.map(String::from).chain([format!("{what}={value}")]).collect();
    format!("{head}({})", arguments.join(", "))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ropewalk_engine::Span;

    use super::*;
    use crate::sweep::design::parse;

    fn design(text: &str) -> Design {
        let source = Source::new("sweep.toml", text);
        parse(&source, Path::new(""), &Registries::builtin())
            .unwrap_or_else(|e| panic!("{}", e.render(false)))
    }

    #[test]
    fn a_grid_is_every_combination() {
        let design = design(
            "scenario = 'wifi-lte'\n[[vary]]\nparameter = 'path.lte.rtt'\nvalues = ['20 ms', '90 ms']\n\
             [[vary]]\nparameter = 'workload.size'\nvalues = ['64 KiB', '1 MiB', '4 MiB']",
        );
        assert_eq!(design.points(), 6);
        let space = Space::new(&design);
        let all: Vec<String> = (0..6).map(|p| describe(&design, &space.point(&design, p))).collect();
        assert_eq!(all[0], "path.lte.rtt = 20 ms, workload.size = 64 KiB");
        assert_eq!(all[1], "path.lte.rtt = 20 ms, workload.size = 1 MiB");
        assert_eq!(all[5], "path.lte.rtt = 90 ms, workload.size = 4 MiB");
    }

    #[test]
    fn a_latin_hypercube_has_one_point_in_each_stratum_of_each_axis() {
        let design = design(
            "scenario = 'wifi-lte'\ndesign = 'latin-hypercube'\npoints = 50\n\
             [[vary]]\nparameter = 'path.lte.rtt'\nfrom = '0 ms'\nto = '500 ms'\n\
             [[vary]]\nparameter = 'path.wifi.rtt'\nfrom = '0 ms'\nto = '500 ms'",
        );
        let space = Space::new(&design);
        let mut different = false;
        for axis in 0..2 {
            let mut strata: Vec<u64> = (0..50)
                .map(|point| (space.point(&design, point)[axis].number.unwrap() * 100.0).floor() as u64)
                .collect();
            different |= !strata.is_sorted();
            strata.sort_unstable();
            assert_eq!(strata, (0..50).collect::<Vec<_>>());
        }
        assert!(different);
    }

    #[test]
    fn a_point_changes_scenario_and_algorithms() {
        let design = design(
            "scenario = 'wifi-lte'\nschedulers = ['minrtt', 'ecf', 'tcp']\n\
             [[vary]]\nparameter = 'path.lte.rtt'\nalso = ['path.wifi.rtt']\nvalues = ['80 ms']\n\
             [[vary]]\nparameter = 'scheduler.ecf.beta'\nvalues = [0.5]",
        );
        let levels = Space::new(&design).point(&design, 0);
        let prepared = prepare(&design, &levels, &Registries::builtin()).unwrap();
        assert!(prepared.scenario.paths.iter().all(|path| path.down.delay == Span::from_millis(40)));
        let texts: Vec<&str> = prepared.runners.iter().map(|r| r.scheduler.text.as_str()).collect();
        assert_eq!(texts, ["minrtt", "ecf(beta=0.5)", "single", "single"]);
        assert_eq!(prepared.runners[3].label, "tcp lte");
    }

    #[test]
    fn a_parameter_replaces_the_one_that_was_given() {
        assert_eq!(with_parameter("ecf(beta=0.2)", "ecf", "beta", "1"), "ecf(beta=1)");
        assert_eq!(with_parameter("blest:linux", "blest", "delta", "1"), "blest:linux(delta=1)");
        assert_eq!(with_parameter("a(x=1, y=2)", "a", "y", "3"), "a(x=1, y=3)");
        assert_eq!(with_parameter("minrtt", "ecf", "beta", "1"), "minrtt");
    }

    #[test]
    fn values_that_are_not_allowed_are_shown_in_their_place() {
        let design =
            design("scenario = 'wifi-lte'\n[[vary]]\nparameter = 'path.lte.rtt'\nvalues = ['20 parsecs']");
        let levels = Space::new(&design).point(&design, 0);
        let error = prepare(&design, &levels, &Registries::builtin()).unwrap_err();
        assert!(error.to_string().contains("wifi-lte with path.lte.rtt = 20 parsecs"), "{error}");
    }
}
