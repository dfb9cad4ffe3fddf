//! Values that several commands' options share.

use clap::ValueEnum;
use ropewalk_algorithms::Registries;
use ropewalk_command_line::Failure;
use ropewalk_command_line::settings::{Given, Tables};
use ropewalk_lab::ask;
use ropewalk_lab::scenario::{self, Experiment};
use ropewalk_settings::diagnostic::InputError;
use ropewalk_settings::given;
use ropewalk_sim::Scenario;
use ropewalk_sim::datagrams::Datagrams;

/// The scenario that `--scenario` names.
pub(crate) fn load(registries: &Registries, name: &str) -> Result<scenario::Loaded, Failure> {
    scenario::load(name, registries).map_err(|error| error.of_argument("--scenario", name).into())
}

/// What is asked for: where, what its file says of experiments, and the datagrams that are sent, if they are.
pub(crate) type LoadedParts = (Scenario, Experiment, Option<Datagrams>);

/// Reads a scenario.
type Read = fn(&str, &Registries) -> Result<scenario::Loaded, InputError>;

/// A word of a shell's command line.
fn quoted(text: &str) -> String {
    let is_word = text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.,/".contains(letter));
    if is_word { text.into() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// What every command that runs transfers is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Transfers;

impl Tables for Transfers {
    const TABLES: &'static given::Tables = ask::TRANSFERS;
}

/// Options of every command that runs transfers: the paths, and settings: what is sent, in which direction,
/// and by which scheduler, and what else its table `T` has.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Common<T: Tables = Transfers> {
    /// A path of your own; repeat it for each. `ropewalk compare --help` says what it may hold
    #[arg(long = "path", value_name = "PATH", conflicts_with = "scenario")]
    pub(crate) paths: Vec<String>,
    /// A built-in scenario's name, or a scenario file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) scenario: Option<String>,
    #[command(flatten)]
    pub(crate) given: Given<T>,
}

impl<T: Tables> Common<T> {
    /// The paths that are given, or the scenario, or else the default one; and what its file says of
    /// experiments.
    pub(crate) fn load(&self, registries: &Registries) -> Result<(Scenario, Experiment), Failure> {
        let (scenario, experiment, _) = self.load_by(registries, scenario::load)?;
        Ok((scenario, experiment))
    }

    /// As [`Common::load`], of any workload: also the datagrams that are sent instead of the scenario's.
    pub(crate) fn load_any(&self, registries: &Registries) -> Result<LoadedParts, Failure> {
        self.load_by(registries, scenario::load_any)
    }

    fn load_by(&self, registries: &Registries, read: Read) -> Result<LoadedParts, Failure> {
        let (mut scenario, experiment, datagrams) = if self.paths.is_empty() {
            let name = self.scenario.as_deref().unwrap_or(scenario::DEFAULT);
            let loaded = read(name, registries).map_err(|error| error.of_argument("--scenario", name))?;
            (loaded.scenario, loaded.experiment, loaded.datagrams)
        } else {
            let paths = scenario::paths(&self.paths, registries.open_file)?;
            (scenario::default_around(paths), Experiment::default(), None)
        };
        scenario.direction = ask::direction(&self.given)?.unwrap_or(scenario.direction);
        Ok((scenario, experiment, datagrams))
    }

    /// The paths or the scenario, and the direction, to be typed again after a command's name: empty, or with
    /// a space before.
    pub(crate) fn links_again(&self) -> String {
        let paths = self.paths.iter().map(|path| format!(" --path {}", quoted(path)));
        let scenario = self.scenario.iter().map(|name| format!(" --scenario {}", quoted(name)));
        paths.chain(scenario).collect::<String>() + &self.again("direction")
    }

    /// What is given for a key, likewise.
    pub(crate) fn again(&self, key: &str) -> String {
        let given = self.given.texts(key).iter();
        given.map(|source| format!(" {} {}", source.name, quoted(&source.text))).collect()
    }

    /// Whether nothing is said of the paths and of what is sent on them.
    pub(crate) fn is_default(&self) -> bool {
        let said = ["schedulers", "sizes", "direction"].map(|key| !self.given.texts(key).is_empty());
        self.paths.is_empty() && self.scenario.is_none() && !said.contains(&true)
    }
}

/// Whose Multipath TCP an end speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Stack {
    /// Ropewalk's engine
    Engine,
    /// The Linux kernel
    Kernel,
}

/// Whether something is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    /// Yes
    On,
    /// No
    Off,
}
