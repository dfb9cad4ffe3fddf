//! Values that several commands' options share.

use clap::ValueEnum;
use ropewalk_algorithms::Registries;
use ropewalk_command_line::Failure;
use ropewalk_lab::compare::ask;
use ropewalk_lab::scenario::{self, Experiment};
use ropewalk_settings::diagnostic::InputError;
use ropewalk_sim::Scenario;
use ropewalk_sim::datagrams::Datagrams;

/// The scenario that `--scenario` names.
pub(crate) fn load(registries: &Registries, name: &str) -> Result<scenario::Loaded, Failure> {
    scenario::load(name, registries).map_err(|error| error.of_argument("--scenario", name).into())
}

/// What is asked for: where, what its file says of experiments, and the datagrams that are sent, if they are.
pub(crate) type Asked = (Scenario, Experiment, Option<Datagrams>);

/// Reads a scenario.
type Read = fn(&str, &Registries) -> Result<scenario::Loaded, InputError>;

/// A word of a shell's command line.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Options of every command that runs transfers: the paths, what is sent, in which direction, and by which
/// scheduler.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Common {
    /// A path of your own; repeat it for each. `ropewalk compare --help` says what it may hold
    #[arg(long = "path", value_name = "PATH", conflicts_with = "scenario")]
    pub(crate) paths: Vec<String>,
    /// A built-in scenario's name, or a scenario file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) scenario: Option<String>,
    /// Schedulers, separated by commas
    #[arg(long, alias = "scheduler", value_name = "LIST")]
    pub(crate) schedulers: Option<String>,
    /// Flow size, 1 B to 1 TiB; repeat it, or separate by commas
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) size: Vec<String>,
    /// Which end sends the data
    #[arg(long)]
    pub(crate) direction: Option<Direction>,
}

impl Common {
    /// The paths that are given, or the scenario, or else the default one; and what its file says of
    /// experiments.
    pub(crate) fn load(&self, registries: &Registries) -> Result<(Scenario, Experiment), Failure> {
        let (scenario, experiment, _) = self.load_by(registries, scenario::load)?;
        Ok((scenario, experiment))
    }

    /// As [`Common::load`], of any workload: also the datagrams that are sent instead of the scenario's.
    pub(crate) fn load_any(&self, registries: &Registries) -> Result<Asked, Failure> {
        self.load_by(registries, scenario::load_any)
    }

    fn load_by(&self, registries: &Registries, read: Read) -> Result<Asked, Failure> {
        let (mut scenario, experiment, datagrams) = if self.paths.is_empty() {
            let name = self.scenario.as_deref().unwrap_or(scenario::DEFAULT);
            let loaded = read(name, registries).map_err(|error| error.of_argument("--scenario", name))?;
            (loaded.scenario, loaded.experiment, loaded.datagrams)
        } else {
            let paths = scenario::paths(&self.paths, registries.open_file)?;
            (scenario::default_around(paths), Experiment::default(), None)
        };
        if let Some(direction) = self.direction {
            scenario.direction = direction.into();
        }
        Ok((scenario, experiment, datagrams))
    }

    /// The sizes that are given, at most `most` bytes each.
    pub(crate) fn sizes(&self, most: u64) -> Result<Vec<u64>, Failure> {
        Ok(ask::sizes("--size", self.size.iter().map(String::as_str), most)?)
    }

    /// The schedulers that are named, if any are.
    pub(crate) fn names(&self) -> Result<Option<Vec<String>>, Failure> {
        let names = self.schedulers.as_deref().map(|text| ask::schedulers("--schedulers", text));
        Ok(names.transpose()?)
    }

    /// Whether it says what is sent, and how.
    pub(crate) fn asks_for_transfers(&self) -> bool {
        self.schedulers.is_some() || !self.size.is_empty() || self.direction.is_some()
    }

    /// The paths or the scenario, and the direction, to be typed again after a command's name: empty, or with
    /// a space before.
    pub(crate) fn links_again(&self) -> String {
        let paths = self.paths.iter().map(|path| format!(" --path {}", quoted(path)));
        let scenario = self.scenario.iter().map(|name| format!(" --scenario {}", quoted(name)));
        let direction = self.direction.iter().filter_map(ValueEnum::to_possible_value);
        let direction = direction.map(|way| format!(" --direction {}", way.get_name()));
        paths.chain(scenario).chain(direction).collect()
    }

    /// The sizes, likewise.
    pub(crate) fn sizes_again(&self) -> String {
        self.size.iter().map(|size| format!(" --size {}", quoted(size))).collect()
    }

    /// Whether nothing is given.
    pub(crate) fn is_default(&self) -> bool {
        self.paths.is_empty() && self.scenario.is_none() && !self.asks_for_transfers()
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

/// Which end sends the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Direction {
    /// The server
    Download,
    /// The client
    Upload,
}

impl From<Direction> for ropewalk_sim::Direction {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Download => ropewalk_sim::Direction::Download,
            Direction::Upload => ropewalk_sim::Direction::Upload,
        }
    }
}

/// Whether something is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    /// Yes
    On,
    /// No
    Off,
}
