//! What the page's fields say, made into a request by the rules of `ropewalk compare`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use ropewalk_algorithms::Registries;
use ropewalk_lab::ask;
use ropewalk_lab::compare::{self, Request};
use ropewalk_lab::parallel::Workers;
use ropewalk_lab::report::Origin;
use ropewalk_lab::scenario::{self, Experiment};
use ropewalk_settings::diagnostic::{Diagnostic, InputError, Source};
use ropewalk_settings::given::Given;
use ropewalk_settings::input::{Opened, ReadError, Want};
use ropewalk_settings::units;
use ropewalk_sim::Scenario;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// The fields, each as on the command line; empty: its default there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fields {
    /// A path a line, a scenario file's text, or a built-in scenario's name.
    pub links: String,
    /// Flow sizes.
    pub sizes: String,
    /// `download` or `upload`.
    pub direction: String,
    /// Schedulers.
    pub schedulers: String,
    /// The congestion control.
    pub congestion: String,
    /// The budget.
    pub budget: String,
    /// The first seed.
    pub seed: String,
    /// What bytes on metered paths are worth.
    pub value: String,
    /// A scheduler of one's own, `mine`: a rule in Rhai.
    pub rule: String,
    /// Files that links name, such as traces.
    pub files: BTreeMap<String, String>,
}

thread_local! {
    /// The question's files: what reads them is handed a path and nothing else.
    static FILES: RefCell<BTreeMap<String, String>> = const { RefCell::new(BTreeMap::new()) };
}

/// Opens one of the files that came with the question.
///
/// # Errors
/// There is none of this name.
pub(crate) fn open_attached(path: &Path, want: Want) -> Result<Opened, ReadError> {
    let found = FILES.with_borrow(|files| files.get(&*path.to_string_lossy()).cloned());
    let found = found.ok_or(ReadError::NoFiles)?;
    Ok(Opened::new(std::io::Cursor::new(found), want.most))
}

/// The file that a scenario's text is saved as.
const FILE: &str = "scenario.toml";

/// What the first field holds.
#[derive(Debug)]
enum Links<'a> {
    Default,
    BuiltIn(&'a str),
    File(&'a str),
    Paths(Vec<String>),
}

impl Links<'_> {
    fn of(text: &str) -> Links<'_> {
        let Some((_, first)) = lines(text).next() else { return Links::Default };
        let before_colon = first.split(':').next().unwrap_or_default();
        if first.starts_with('[') || before_colon.contains('=') {
            Links::File(text)
        } else if lines(text).count() == 1 && before_colon == first && !first.contains(',') {
            Links::BuiltIn(first)
        } else {
            Links::Paths(lines(text).map(|(_, line)| line.to_string()).collect())
        }
    }
}

/// Lines that say something, each with its place.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().map(str::trim).enumerate();
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

impl Fields {
    /// The request.
    ///
    /// # Errors
    /// What in it isn't allowed, and what is. Lines are those of the field.
    pub fn request(&self) -> Result<Request, InputError> {
        FILES.set(self.files.clone());
        let registries = &self.registries()?;
        let mut usual = false;
        let (scenario, mut experiment) = match Links::of(&self.links) {
            Links::Default => self.load(scenario::DEFAULT, registries)?,
            Links::BuiltIn(name) => self.load(name, registries)?,
            Links::File(text) => {
                let source = Source::new(FILE, text);
                let loaded = scenario::parse(&source, "scenario", Path::new(""), registries)?;
                (loaded.scenario, loaded.experiment)
            }
            Links::Paths(paths) => {
                usual = true;
                let paths = scenario::paths(&paths, registries.open_file)
                    .map_err(|error| InputError::from(self.in_its_line(error)))?;
                (scenario::default_around(paths), Experiment::default())
            }
        };
        let own = |names: &[String]| {
            let named = names.iter().any(|name| name == ropewalk_rule::NAME || name == "all");
            self.has_rule() && !names.is_empty() && !named
        };
        if own(&experiment.schedulers) {
            experiment.schedulers.push(ropewalk_rule::NAME.into());
        }
        let mut given = self.given("");
        if own(&ask::schedulers(&given)?.unwrap_or_default()) {
            given = self.given(&format!(",{}", ropewalk_rule::NAME));
        }
        compare::request(&given, usual, scenario, experiment, Workers::ONE, registries)
    }

    /// Options, each with the field that says it.
    fn options(&self) -> [(&'static str, &str); 7] {
        [
            ("size", &self.sizes),
            ("direction", &self.direction),
            ("schedulers", &self.schedulers),
            ("congestion", &self.congestion),
            ("budget", &self.budget),
            ("seed", &self.seed),
            ("value", &self.value),
        ]
    }

    /// What the fields ask of a comparison, with `more` schedulers.
    fn given(&self, more: &str) -> Given {
        let given = self.options().into_iter().filter_map(|(option, text)| {
            let more = if option == "schedulers" { more } else { "" };
            Some((option, vec![format!("{}{more}", filled(text)?)]))
        });
        Given::by_option(ask::COMPARE, given)
    }

    /// The built-in algorithms, and the rule. Files are those that came with the question.
    fn registries(&self) -> Result<Registries, InputError> {
        let mut registries = Registries { open_file: open_attached, ..Registries::builtin() };
        if self.has_rule() {
            ropewalk_rule::register(&mut registries, &self.rule)?;
        }
        Ok(registries)
    }

    fn has_rule(&self) -> bool {
        filled(&self.rule).is_some()
    }

    /// The lines of the first field that are paths, each its place and text.
    pub(crate) fn path_lines(&self) -> Vec<(usize, &str)> {
        match Links::of(&self.links) {
            Links::Paths(_) => lines(&self.links).collect(),
            _ => Vec::new(),
        }
    }

    fn load(&self, name: &str, registries: &Registries) -> Result<(Scenario, Experiment), InputError> {
        // There are no files here: a name is a built-in scenario's.
        let known = scenario::builtins().iter().find(|known| known.name == name);
        let Some(known) = known else {
            let names = scenario::builtins().iter().map(|known| known.name);
            let help = format!("built-in scenarios: {}", names.collect::<Vec<_>>().join(", "));
            let error = Diagnostic::new(format!("`{name}` is neither a path nor a built-in scenario"))
                .help("a path is as in `wifi: 50 Mbit/s, 20 ms`, one a line")
                .help(help);
            let source = Source::new("--scenario", name);
            return Err(error.at(&source, 0..name.len()).label("here").into());
        };
        let loaded = known.load(registries)?;
        Ok((loaded.scenario, loaded.experiment))
    }

    /// The question as a scenario file: its text as it is, where no other field says anything. A rule, the
    /// budget and the seed have no place in one.
    ///
    /// # Errors
    /// As [`Fields::request`].
    pub fn file(&self) -> Result<String, InputError> {
        self.request()?;
        let known = |name: &str| scenario::builtins().iter().find(|known| known.name == name);
        let text = match Links::of(&self.links) {
            Links::Default => known(scenario::DEFAULT).map_or("", |known| known.text),
            Links::BuiltIn(name) => known(name).map_or("", |known| known.text),
            Links::File(text) => text,
            Links::Paths(_) => "",
        };
        let given = [&self.sizes, &self.direction, &self.schedulers, &self.congestion];
        if !text.is_empty() && given.iter().all(|text| filled(text).is_none()) {
            return Ok(text.into());
        }
        let mut file: Table = text.parse().unwrap_or_default();
        if let Links::Paths(paths) = Links::of(&self.links) {
            let tables = paths.iter().map(|path| scenario::path_table(path, open_attached));
            let tables = tables.map(|table| table.map(Value::from)).collect::<Result<Vec<_>, _>>()?;
            let flow = [("kind", "flow"), ("size", "1 MiB")].map(|(key, text)| (key.into(), text.into()));
            file.insert("path".into(), tables.into());
            file.insert("workload".into(), Table::from_iter(flow).into());
        }
        if let Some(direction) = filled(&self.direction) {
            file.insert("direction".into(), direction.into());
        }
        let mut experiment =
            file.remove("experiment").and_then(|old| old.try_into().ok()).unwrap_or_default();
        let mut set = |key: &str, value: Value| Table::insert(&mut experiment, key.into(), value);
        let given = self.given("");
        let sizes = ask::sizes(&given, scenario::MOST_BYTES)?;
        if !sizes.is_empty() {
            let sizes: Vec<String> = sizes.into_iter().map(units::write_bytes).collect();
            set("sizes", sizes.into());
        }
        if let Some(names) = ask::schedulers(&given)? {
            set("schedulers", names.into());
        }
        if let Some(text) = filled(&self.congestion) {
            set("congestion", text.into());
        }
        if !experiment.is_empty() {
            file.insert("experiment".into(), experiment.into());
        }
        Ok(file.to_string())
    }

    /// The same error in the line of the field that it is about.
    fn in_its_line(&self, mut error: Diagnostic) -> Diagnostic {
        if let Some((source, _)) = &mut error.place
            && let Some((line, _)) = lines(&self.links).find(|(_, line)| *line == source.text)
        {
            *source = Source::from_line("links", source.text.clone(), line + 1);
        }
        error
    }

    /// The command that gives the same answer; for a scenario's text it names a file that has it.
    pub fn command(&self) -> Origin {
        let mut words = vec!["ropewalk".to_string(), "compare".into()];
        let mut option = |name: &str, value: &str| words.extend([name.to_string(), value.to_string()]);
        match Links::of(&self.links) {
            Links::Default => {}
            Links::BuiltIn(name) => option("--scenario", name),
            Links::File(_) => option("--scenario", FILE),
            Links::Paths(paths) => paths.iter().for_each(|path| option("--path", path)),
        }
        for (name, value) in self.options() {
            if let Some(value) = filled(value) {
                option(&format!("--{name}"), value);
            }
        }
        let mut origin = Origin::of(&words, env!("CARGO_PKG_VERSION"));
        if self.has_rule() {
            origin.command += &format!("  # without `{}`, which only the page has", ropewalk_rule::NAME);
        }
        origin
    }
}

/// A field's text, if it has any.
fn filled(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(links: &str) -> Fields {
        Fields { links: links.into(), ..Fields::default() }
    }

    fn refusal(asked: &Fields) -> String {
        asked.request().unwrap_err().render(false)
    }

    #[test]
    fn a_question_is_a_file_that_asks_the_same() {
        let asks = |asked: &Fields| {
            let request = asked.request().unwrap_or_else(|error| panic!("{}", error.render(false)));
            let candidates: Vec<String> = request.candidates.into_iter().map(|one| one.label).collect();
            let congestion = request.congestion.text.clone();
            (request.scenario.paths, request.scenario.direction, request.workloads, candidates, congestion)
        };
        let full = Fields {
            sizes: "64 KiB, 1 MiB".into(),
            direction: "upload".into(),
            schedulers: "minrtt, ecf(beta=0.5)".into(),
            congestion: "lia".into(),
            ..of("home: dsl, outage 1 s at 2 s\n# a note\nsky: starlink, outage none, price 2 EUR/GB")
        };
        for asked in [full.clone(), Fields { links: "satellite-lte".into(), ..full }, of(""), of("wifi-lte")]
        {
            let file = of(&asked.file().unwrap());
            assert_eq!(asks(&file), asks(&asked), "{}", file.links);
        }
        let text = "# mine\n[[path]]\nname = 'a'\nrate = '5 Mbit/s'\nrtt = '20 ms'\n\
                    [workload]\nkind = 'flow'\n\
                    size = '1 MiB'\n";
        assert_eq!(of(text).file().unwrap(), text);
        assert!(of("a: 5 parsecs").file().is_err());
    }

    #[test]
    fn the_first_field_takes_paths_a_name_or_a_file() {
        let name = |links: &str| of(links).request().unwrap().scenario.name;
        assert_eq!(name(""), scenario::DEFAULT);
        assert_eq!(name("  satellite-lte\n"), "satellite-lte");
        assert_eq!(name("# home\nhome: dsl\n\nphone: 20 Mbit/s, 60 ms\n"), "command line");
        for known in scenario::builtins() {
            assert_eq!(name(known.text), known.name);
        }
    }

    #[test]
    fn errors_name_the_line_and_what_is_allowed() {
        let text = refusal(&of("home: dsl\n\nphone: 20 Mbit/s, 60 parsecs"));
        assert!(text.contains("links:3:22") && text.contains("20 ms"), "{text}");
        let text = refusal(&of("name = \"x\"\n[[path]]\nname = \"a\"\nrate = 5\n"));
        assert!(text.contains("scenario.toml:4"), "{text}");
        let text = refusal(&of("satelite"));
        assert!(text.contains("satellite-lte") && text.contains("wifi: 50 Mbit/s"), "{text}");
        let text = refusal(&Fields { direction: "sideways".into(), ..Fields::default() });
        assert!(text.contains(r#""download", "upload""#), "{text}");
        let text = refusal(&Fields { schedulers: "minrtt,blset".into(), ..Fields::default() });
        assert!(text.contains("blest"), "{text}");
        let text = refusal(&Fields { seed: "-1".into(), ..Fields::default() });
        assert!(text.contains("whole number"), "{text}");
    }

    #[test]
    fn the_command_line_asks_the_same() {
        let asked = Fields { sizes: "1 MiB, 4 MiB".into(), seed: "7".into(), ..of("home: dsl\nphone: 4g") };
        let command = "ropewalk compare --path 'home: dsl' --path 'phone: 4g' --size '1 MiB, 4 MiB' --seed 7";
        assert_eq!(asked.command().command, command);
        assert_eq!(of("cellular").command().command, "ropewalk compare --scenario cellular");
    }

    #[test]
    fn a_rule_is_compared_with_the_others() {
        let with = |asked: Fields| Fields { rule: "\nview.available[0]".into(), ..asked };
        let labels = |asked: Fields| -> Vec<String> {
            let candidates = with(asked).request().unwrap().candidates;
            candidates.into_iter().map(|one| one.label).filter(|label| !label.starts_with("tcp")).collect()
        };
        assert!(labels(Fields::default()).contains(&"mine".to_string()));
        let some = Fields { schedulers: "minrtt,blest".into(), ..Fields::default() };
        assert_eq!(labels(some), ["minrtt", "blest", "mine", "linux"]);
        let file = "[[path]]\nname = \"a\"\nrate = \"5 Mbit/s\"\nrtt = \"20 ms\"\n[experiment]\nschedulers \
                    = [\"minrtt\"]\n";
        assert_eq!(labels(of(file)), ["minrtt", "mine", "linux"]);
        let command = with(Fields::default()).command().command;
        assert_eq!(command, "ropewalk compare  # without `mine`, which only the page has");
        let error = refusal(&Fields { rule: "view.available[0]\n)".into(), ..Fields::default() });
        assert!(error.contains("rule:2:1"), "{error}");
    }
}
