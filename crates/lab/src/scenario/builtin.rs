//! The built-in scenarios: TOML files of `scenarios/`, compiled in. A new one is a new file plus one line
//! here.

use std::path::Path;

use ropewalk_algorithms::Registries;
use ropewalk_settings::diagnostic::{InputError, Source};

use super::{Loaded, parse};

/// A scenario that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// Its file's text.
    pub text: &'static str,
}

impl BuiltIn {
    /// Parses it.
    ///
    /// # Errors
    /// If an algorithm that it names is not in `registries`.
    pub fn load(&self, registries: &Registries) -> Result<Loaded, InputError> {
        parse(
            &Source::new(format!("{} (built in)", self.name), self.text),
            self.name,
            Path::new(""),
            registries,
        )
    }
}

macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        &[$(BuiltIn { name: $name, text: include_str!(concat!("../../scenarios/", $name, ".toml")) }),*]
    };
}

/// The one that `compare` takes when none is named.
pub const DEFAULT: &str = "wifi-lte";

/// All of them.
pub fn builtins() -> &'static [BuiltIn] {
    scenarios![
        "wifi-lte",
        "small-buffers",
        "equal-paths",
        "fast-slow",
        "bad-third-link",
        "satellite-lte",
        "dying-path",
        "cellular",
        "mptcp-selftest",
        "cfs-2019",
        "kim-choi",
        "blest-2016-3g-wlan",
        "blest-2016-wlan-wlan",
        "yang-2013",
        "5g-2019-separate",
        "5g-2019-competing",
        "5g-2019-shared",
    ]
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT, builtins};
    use ropewalk_algorithms::Registries;

    #[test]
    fn every_built_in_scenario_is_valid_and_bears_its_own_name() {
        let registries = Registries::builtin();
        for built_in in builtins() {
            let loaded = built_in.load(&registries).unwrap_or_else(|error| panic!("{}", error.render(false)));
            assert_eq!(loaded.scenario.name, built_in.name);
            assert!(!loaded.scenario.summary.is_empty());
        }
        assert!(builtins().iter().any(|built_in| built_in.name == DEFAULT));
    }
}
