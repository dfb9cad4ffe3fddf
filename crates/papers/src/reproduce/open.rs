//! `open.toml`: the settings that a paper leaves open, each with a prior, and which figures they are fitted
//! to. `fitted.toml`: what the fit found.

use ropewalk_algorithms::Registries;
use serde::{Deserialize, Serialize};

use super::abc::Prior;
use super::settings::merge;
use super::{Paper, Settings, Test, plan};

/// `open.toml`.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Unknowns {
    /// Why there is nothing to fit, where there isn't.
    #[serde(default)]
    pub none: Option<String>,
    /// Runs of each cell while searching.
    #[serde(default)]
    pub runs: u32,
    /// Rows that the fit sees: those of the baseline, never those of the scheduler that the paper is about.
    #[serde(default)]
    pub rows: Vec<String>,
    /// Figures whose published numbers it is fitted to.
    #[serde(default)]
    pub fitted: Vec<String>,
    /// Columns that the fit sees; none named: all.
    #[serde(default)]
    pub columns: Vec<String>,
    /// Claims about the order of baseline rows that it is fitted to.
    #[serde(default)]
    pub claims: Vec<String>,
    /// Figures that test it.
    #[serde(default)]
    pub held_out: Vec<String>,
    /// Figures in real time that are made in the fitted setting too.
    #[serde(default)]
    pub real: Vec<String>,
    /// The settings.
    #[serde(default, rename = "setting")]
    pub settings: Vec<Unknown>,
    /// What the paper leaves open in its own scheduler's rule: no row of the baseline can tell, so claims are
    /// named that do.
    #[serde(default, rename = "reading")]
    pub readings: Vec<Reading>,
}

/// A part of a scheduler's rule that the paper leaves open. It is judged in the fitted setting, by the claims
/// named and by no other.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Reading {
    /// What.
    pub name: String,
    /// Why it is open, and why these values.
    pub why: String,
    /// Where the values come from.
    pub source: String,
    /// The claims that judge it.
    pub judged_by: Vec<String>,
    /// Figures that it concerns besides those of the fitted setting.
    #[serde(default)]
    pub figures: Vec<String>,
    /// Its values. Of those with which equally many comparisons agree the one of the most weight counts; of
    /// these the first.
    pub values: Vec<Weighted>,
}

/// A setting that the paper leaves open.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Unknown {
    /// What.
    pub name: String,
    /// Why it is open, and why this prior.
    pub why: String,
    /// Where the prior comes from.
    pub source: String,
    /// Its values with weights.
    #[serde(default)]
    pub values: Vec<Weighted>,
    /// Or a range.
    #[serde(default)]
    pub range: Option<Range>,
}

/// A value of an open setting.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Weighted {
    /// Its name.
    pub label: String,
    /// How plausible, beside the others.
    #[serde(default = "one")]
    pub weight: f64,
    /// What it changes.
    #[serde(default, flatten)]
    pub settings: Settings,
}

fn one() -> f64 {
    1.0
}

/// A range of an open setting.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Keys that get the value.
    pub keys: Vec<String>,
    /// The value with its unit: `{} ms`.
    pub format: String,
    /// Least.
    pub from: f64,
    /// Greatest.
    pub to: f64,
    /// Whether its logarithm is uniform, not the value.
    #[serde(default)]
    pub log: bool,
    /// Whether it is a whole number.
    #[serde(default)]
    pub whole: bool,
}

impl Range {
    /// The value at a place in [0, 1], to three digits.
    pub(super) fn value(&self, at: f64) -> f64 {
        let raw = if self.log {
            libm::exp(libm::log(self.from) + at * (libm::log(self.to) - libm::log(self.from)))
        } else {
            self.from + at * (self.to - self.from)
        };
        if self.whole {
            return libm::round(raw);
        }
        if raw == 0.0 {
            return 0.0;
        }
        let digits = libm::pow(10.0, 2.0 - libm::floor(libm::log10(raw.abs())));
        libm::round(raw * digits) / digits
    }

    fn text(&self, at: f64) -> String {
        self.format.replace("{}", &format!("{}", self.value(at)))
    }
}

impl Unknown {
    pub(super) fn prior(&self) -> Prior {
        if self.range.is_some() {
            return Prior::Range;
        }
        let sum: f64 = self.values.iter().map(|value| value.weight).sum();
        Prior::Choice(self.values.iter().map(|value| value.weight / sum).collect())
    }

    /// A value in words.
    pub(super) fn words(&self, at: f64) -> String {
        match &self.range {
            Some(range) => range.text(at),
            None => self.values.get(at as usize).map_or(String::new(), |value| value.label.clone()),
        }
    }

    fn apply(&self, at: f64) -> Settings {
        match &self.range {
            Some(range) => {
                let value = toml::Value::String(range.text(at));
                let set = range.keys.iter().map(|key| (key.clone(), value.clone()));
                Settings { set: set.collect(), ..Settings::default() }
            }
            None => self.values.get(at as usize).map_or_else(Settings::default, |it| it.settings.clone()),
        }
    }
}

impl Unknowns {
    pub(super) fn priors(&self) -> Vec<Prior> {
        self.settings.iter().map(Unknown::prior).collect()
    }

    /// What a point changes; later settings lie over earlier ones.
    pub(super) fn apply(&self, at: &[f64]) -> Settings {
        let each = self.settings.iter().zip(at);
        each.fold(Settings::default(), |all, (unknown, value)| merge(&all, &unknown.apply(*value)))
    }
}

pub(super) fn parse(text: &str) -> Result<Unknowns, toml::de::Error> {
    toml::from_str(text)
}

/// What is wrong in `open.toml` without anything being run.
pub(super) fn check(paper: &Paper, registries: &Registries) -> Vec<String> {
    let unknowns = &paper.unknowns;
    let mut wrong = Vec::new();
    if unknowns.none.is_some() != unknowns.settings.is_empty() {
        wrong.push("open.toml: either settings or `none`".into());
    }
    let fitted = unknowns.fitted.iter().chain(&unknowns.held_out);
    for id in fitted.filter(|id| paper.figure(id).is_none()) {
        wrong.push(format!("open.toml: there is no figure `{id}`"));
    }
    for id in &unknowns.claims {
        match paper.claims.iter().find(|claim| claim.id == *id).map(|claim| &claim.test) {
            Some(Test::Order { rows, .. } | Test::Trend { rows, .. })
                if rows.iter().all(|row| unknowns.rows.contains(row)) => {}
            _ => wrong.push(format!("open.toml: `{id}` isn't an order or trend of baseline rows")),
        }
    }
    for reading in &unknowns.readings {
        for id in reading.judged_by.iter().filter(|id| !paper.claims.iter().any(|claim| claim.id == **id)) {
            wrong.push(format!("open.toml: there is no claim `{id}`, which would judge `{}`", reading.name));
        }
        for id in reading.figures.iter().filter(|id| paper.figure(id).is_none()) {
            wrong.push(format!("open.toml: there is no figure `{id}`"));
        }
        if reading.judged_by.is_empty() || reading.values.len() < 2 {
            wrong.push(format!("open.toml: `{}` needs a claim that judges it and two values", reading.name));
        }
        let figures = || paper.plan.figures.iter();
        let named = |name: &String| {
            figures()
                .any(|figure| figure.rows.iter().any(|row| row.settings.scheduler.as_ref() == Some(name)))
        };
        for value in &reading.values {
            for (from, to) in &value.settings.replace {
                if !named(from) {
                    wrong.push(format!("open.toml: `{}` replaces `{from}`, which no row has", reading.name));
                }
                if let Err(error) = registries.schedulers.parse(to) {
                    wrong.push(format!("open.toml: `{}`: {error}", reading.name));
                }
            }
        }
    }
    for (place, unknown) in unknowns.settings.iter().enumerate() {
        if unknown.range.is_some() != unknown.values.is_empty() {
            wrong.push(format!("open.toml: `{}` has either values or a range", unknown.name));
        }
        // Each value, with the others as they come first.
        let ends = if unknown.range.is_some() {
            vec![0.0, 1.0]
        } else {
            (0..unknown.values.len()).map(|n| n as f64).collect()
        };
        for value in ends {
            let mut at = vec![0.0; unknowns.settings.len()];
            at[place] = value;
            let settings = unknowns.apply(&at);
            for id in &unknowns.fitted {
                let Some(figure) = paper.figure(id) else { continue };
                let (Some(row), Some(column)) = (figure.rows.first(), figure.columns.first()) else {
                    continue;
                };
                let mut known = std::collections::HashMap::new();
                if let Err(error) =
                    plan::template(paper, figure, &settings, row, column, registries, &mut known)
                {
                    wrong.push(format!("open.toml: {}: {}: {error}", unknown.name, unknown.words(value)));
                }
            }
        }
    }
    wrong
}

/// `fitted.toml`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Fitted {
    /// The command that made it.
    pub command: String,
    /// Settings tried.
    pub tried: usize,
    /// Distance of the best one, and of the main setting.
    pub distance: f64,
    /// The same of the setting that was ruled.
    pub ruled: f64,
    /// Largest distance in the last population.
    pub threshold: f64,
    /// Share of settings drawn from the prior that lie as near.
    pub prior_share: f64,
    /// Figures besides those that all settings concern.
    #[serde(default)]
    pub figures: Vec<String>,
    /// How the best was chosen; files of earlier fits have the nearest, and don't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
    /// The fitter's own test with the same settings and priors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_test: Option<Tested>,
    /// What it changes.
    pub apply: Settings,
    /// By setting.
    #[serde(rename = "value")]
    pub values: Vec<Value>,
    /// How open parts of the scheduler's own rule are read.
    #[serde(default, rename = "reading", skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Read>,
}

/// How an open part of a scheduler's rule is read.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Read {
    /// Its name.
    pub name: String,
    /// The value that counts.
    pub best: String,
    /// The claims that judged it.
    pub judged_by: Vec<String>,
    /// Figures that it concerns besides those of the fitted setting.
    #[serde(default)]
    pub figures: Vec<String>,
    /// By value: comparisons of those claims that agree, of how many, and what was measured.
    pub tried: Vec<(String, usize, usize, String)>,
    /// What it changes.
    #[serde(default)]
    pub apply: Settings,
}

/// How the best setting was chosen among the nearest.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Choice {
    /// Settings that ran again.
    pub finalists: usize,
    /// How many of these count as equally near: their runs can't tell their distance from the least, or they
    /// are within 10 % of the published numbers.
    pub equally_near: usize,
    /// Distance of the nearest.
    pub nearest: f64,
    /// How much more weight the prior gives to the best setting than to the nearest.
    pub plausibility: f64,
}

impl Choice {
    /// In words, for the page.
    pub(super) fn words(&self, distance: f64) -> String {
        let ran = format!(
            "The {} nearest ran again. Of the {} that can't be told from the nearest, or are within 10 % of \
             the published numbers, this is the most plausible by the prior",
            self.finalists, self.equally_near
        );
        if distance <= self.nearest {
            return format!("{ran}: it is the nearest.");
        }
        format!(
            "{ran}: {:.1} times as plausible as the nearest, whose distance is {:.3}.",
            self.plausibility, self.nearest
        )
    }
}

/// What the fitter's own test found, in sum.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tested {
    /// The command that made it.
    pub command: String,
    /// Settings that tables were made from.
    pub known: usize,
    /// How often an open setting's true value lies in the 80 % region, and of how many.
    pub inside: (usize, usize),
    /// Mean distance of the best setting from the table that it was fitted to.
    pub fitted: f64,
    /// Its mean distance from the cells that the fit doesn't see, and that of the setting as assumed; none if
    /// there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<(f64, f64)>,
}

impl Tested {
    /// In words, for the page.
    pub(super) fn words(&self) -> String {
        let (inside, of) = self.inside;
        let share = inside as f64 / of.max(1) as f64 * 100.0;
        let held_out = self.held_out.map_or(String::new(), |(best, ruled)| {
            format!(", and {best:.3} from the cells that it didn't see (the setting as assumed: {ruled:.3})")
        });
        format!(
            "The fitter's own test, `{}`, made {} tables from settings drawn from the priors. An open \
             setting's true value is in the \
             80 % region {inside} of {of} times ({share:.0} %). The best setting is {:.3} from its table on \
             average{held_out}.",
            self.command, self.known, self.fitted
        )
    }
}

/// An open setting in the fit.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Value {
    /// Its name.
    pub name: String,
    /// Its value in the best setting.
    pub best: String,
    /// Where 80 % of the last population are: values with their shares, or a range.
    pub region: String,
    /// Of each value, or each tenth of the range: its share of the prior, and of the last population.
    #[serde(default)]
    pub marginal: Vec<(String, f64, f64)>,
    /// By how much the distance grows when it alone is changed to its other values: the least and the most.
    pub matters: (f64, f64),
    /// By value, or fifth of the range: the least distance of all that were tried with it left there.
    #[serde(default)]
    pub fixed: Vec<(String, f64)>,
}

impl Fitted {
    /// What the readings change, the later over the earlier.
    pub(super) fn read(&self) -> Settings {
        self.readings.iter().fold(Settings::default(), |all, reading| merge(&all, &reading.apply))
    }

    /// As a file.
    ///
    /// # Errors
    /// What can't be written as TOML.
    pub fn text(&self) -> Result<String, toml::ser::Error> {
        let text = toml::to_string(self)?;
        Ok(format!("# Written by `{}`.\n{text}", self.command))
    }

    /// None if nothing is fitted yet.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, toml::de::Error> {
        if text.lines().all(|line| line.trim().is_empty() || line.starts_with('#')) {
            return Ok(None);
        }
        toml::from_str(text).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_three_digits_or_none_and_both_ends() {
        let mut range = Range {
            keys: vec!["k".into()],
            format: "{} ms".into(),
            from: 0.5,
            to: 50.0,
            log: true,
            whole: false,
        };
        assert_eq!((range.value(0.0), range.value(0.5), range.value(1.0)), (0.5, 5.0, 50.0));
        assert_eq!(range.text(0.51), "5.24 ms");
        range.whole = true;
        assert_eq!(range.text(0.51), "5 ms");
    }

    #[test]
    fn later_settings_lie_over_earlier_ones() {
        let text = "[[setting]]\nname = 'a'\nwhy = ''\nsource = ''\nvalues = [{ label = 'x', first = 'p' }]\n\
                    [[setting]]\nname = 'b'\nwhy = ''\nsource = ''\nvalues = [{ label = 'y' }, { label = \
                    'z', first = 'q' }]";
        let unknowns = parse(text).unwrap();
        assert_eq!(unknowns.apply(&[0.0, 0.0]).first.as_deref(), Some("p"));
        assert_eq!(unknowns.apply(&[0.0, 1.0]).first.as_deref(), Some("q"));
    }
}
