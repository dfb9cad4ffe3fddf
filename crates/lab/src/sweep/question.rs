//! What `compare` is asked at a sweep's points, for the playground.

use std::collections::BTreeMap;
use std::path::Path;

use ropewalk_algorithms::Registries;
use ropewalk_settings::diagnostic::Source;
use ropewalk_settings::input::no_files;

use super::axis::Level;
use super::design::Design;
use super::space::{Space, congestion_text, document, scheduler_text};
use crate::scenario;

/// The field with the scenario's file.
const LINKS: &str = "links";

/// The playground's fields for every point of a sweep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Questions {
    /// By name. `@0@` stands for the value of the first varied parameter: in the scenario's file as it is, in
    /// other fields without quotation marks.
    pub fields: BTreeMap<&'static str, String>,
    /// By point: the values as TOML has them.
    pub values: Vec<Vec<String>>,
}

impl Questions {
    /// None: the scenario or a scheduler needs a file.
    pub fn new(design: &Design) -> Option<Self> {
        let registries = Registries { open_file: no_files, ..Registries::builtin() };
        let names: Vec<&String> = design.schedulers.iter().filter(|text| !text.starts_with("tcp:")).collect();
        if !names.iter().all(|text| registries.schedulers.parse(text).is_ok()) {
            return None;
        }
        let mark = |axis: usize| format!("@{axis}@");
        let marks: Vec<Level> = (0..design.axes.len())
            .map(|axis| Level { value: mark(axis).into(), shown: mark(axis), number: None })
            .collect();
        let mut links = document(design, &marks).ok()?;
        // Other fields have these.
        links.remove("experiment");
        let links = marks.iter().fold(links.to_string(), |text, Level { shown, value, .. }| {
            text.replace(&value.to_string(), shown)
        });
        let schedulers: Vec<String> = names.iter().map(|text| scheduler_text(design, &marks, text)).collect();
        let fields = BTreeMap::from([
            (LINKS, links),
            ("schedulers", schedulers.join(", ")),
            ("congestion", congestion_text(design, &marks, design.congestion.first()?)),
            ("seed", design.seed.to_string()),
        ]);
        let space = Space::new(design);
        let values = (0..design.points()).map(|point| {
            let levels = space.point(design, point);
            levels.iter().map(|level| level.value.to_string()).collect()
        });
        let questions = Questions { fields, values: values.collect() };
        let source = Source::new("scenario.toml", questions.at(0)?.remove(LINKS)?);
        scenario::parse(&source, "scenario", Path::new(""), &registries).ok()?;
        Some(questions)
    }

    /// The fields at a point.
    pub fn at(&self, point: usize) -> Option<BTreeMap<&'static str, String>> {
        let values = self.values.get(point)?;
        let fill = |(name, text): (&&'static str, &String)| {
            let filled = values.iter().enumerate().fold(text.clone(), |text, (axis, value)| {
                let value = if *name == LINKS { value } else { value.trim_matches('"') };
                text.replace(&format!("@{axis}@"), value)
            });
            (*name, filled)
        };
        Some(self.fields.iter().map(fill).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{parse, prepare};

    fn design(text: &str) -> Design {
        let source = Source::new("sweep.toml", text);
        parse(&source, Path::new(""), &Registries::builtin())
            .unwrap_or_else(|e| panic!("{}", e.render(false)))
    }

    #[test]
    fn a_points_question_has_its_scenario_and_algorithms() {
        let design = design(
            "scenario = 'wifi-lte'\nschedulers = ['minrtt', 'ecf', 'tcp']\nseed = 7\n\
             [[vary]]\nparameter = 'path.lte.rtt'\nfrom = '40 ms'\nto = '80 ms'\nsteps = 2\n\
             as = '{} +-4 ms'\n\
             [[vary]]\nparameter = 'scheduler.ecf.beta'\nvalues = [0.5, 1.5]\n\
             [[vary]]\nparameter = 'workload.size'\nvalues = ['32 KiB']",
        );
        let questions = Questions::new(&design).unwrap();
        let registries = Registries::builtin();
        for point in 0..4 {
            let asked = questions.at(point).unwrap();
            let levels = Space::new(&design).point(&design, point as u64);
            let prepared = prepare(&design, &levels, &registries).unwrap();
            let source = Source::new("scenario.toml", asked[LINKS].clone());
            let read = scenario::parse(&source, "wifi-lte", Path::new(""), &registries)
                .unwrap_or_else(|error| panic!("{}", error.render(false)));
            assert_eq!(read.scenario, *prepared.scenario);
            assert_eq!(read.experiment, scenario::Experiment::default());
            let beta = levels[1].shown.as_str();
            assert_eq!(asked["schedulers"], format!("minrtt, ecf(beta={beta})"));
            assert_eq!((asked["congestion"].as_str(), asked["seed"].as_str()), ("cubic", "7"));
        }
        assert_eq!(questions.at(4), None);
    }

    #[test]
    fn what_needs_a_file_is_no_question() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t.down"), "1\n5\n").unwrap();
        std::fs::write(
            folder.path().join("s.toml"),
            "[[path]]\nname = 'a'\nrtt = '20 ms'\ntrace = 't.down'\n\
             [workload]\nkind = 'flow'\nsize = '1 MiB'\n",
        )
        .unwrap();
        let source = Source::new(
            "sweep.toml",
            "scenario = 's.toml'\n[[vary]]\nparameter = 'path.a.rtt'\nvalues = ['9 ms']",
        );
        let design = parse(&source, folder.path(), &Registries::builtin());
        assert_eq!(Questions::new(&design.unwrap_or_else(|e| panic!("{}", e.render(false)))), None);
    }
}
