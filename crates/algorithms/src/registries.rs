//! The registries of algorithms. A program may add its own.

use ropewalk_engine::congestion::{self, CongestionControl};
use ropewalk_engine::registry::{Registry, Spec, SpecError};
use ropewalk_engine::scheduler::{self, Scheduler};
use ropewalk_settings::input::{self, OpenFile};

use crate::policy;

/// Schedulers and congestion controls. Start from [`Registries::builtin`] and add your own.
#[derive(Debug)]
pub struct Registries {
    /// Packet schedulers.
    pub schedulers: Registry<dyn Scheduler>,
    /// Congestion controls.
    pub congestion: Registry<dyn CongestionControl>,
    /// How the files are read that a name or a scenario refers to.
    pub open_file: OpenFile,
}

impl Registries {
    /// All built-in algorithms. Files are read from the file system.
    pub fn builtin() -> Self {
        Registries {
            schedulers: scheduler::builtin(),
            congestion: congestion::builtin(),
            open_file: input::open,
        }
    }

    /// Checks a scheduler's specification as in `compare` (`tcp` is plain TCP), for this number of paths.
    pub fn check_scheduler(&self, text: &str, paths: usize) -> Option<SpecError> {
        if text == "tcp" || text.starts_with("tcp:") { None } else { self.scheduler(text, paths).err() }
    }

    /// Parses a scheduler's specification, for this number of paths. `policy:FILE` is a learned one
    /// ([`crate::policy`]).
    ///
    /// # Errors
    /// As [`Registry::parse`]; also a parameter that names a path that doesn't exist.
    pub fn scheduler(&self, text: &str, paths: usize) -> Result<Spec<dyn Scheduler>, SpecError> {
        if let Some(file) = text.trim().strip_prefix("policy:") {
            return policy::scheduler(text.trim(), file, self.open_file, Some(paths));
        }
        let spec = self.schedulers.parse(text)?;
        // The canonical text has every parameter that differs from the default.
        let arguments =
            spec.text.split_once('(').map_or("", |(_, arguments)| arguments.trim_end_matches(')'));
        let named =
            arguments.split(", ").find_map(|argument| argument.strip_prefix("path=")?.parse::<usize>().ok());
        match named.filter(|path| *path >= paths) {
            None => Ok(spec),
            Some(path) => {
                let start = text.find("path").unwrap_or(0);
                let end = text[start..].find([',', ')']).map_or(text.len(), |length| start + length);
                let allowed = match paths {
                    1 => "only 0: there is one path".to_string(),
                    _ => format!("0 to {}: there are {paths} paths", paths.saturating_sub(1)),
                };
                let message = format!("`{}`: there is no path {path}; allowed: {allowed}", spec.entry.name);
                Err(SpecError { message, span: (start, end) })
            }
        }
    }

    /// As [`Registries::scheduler`], for connections whose paths aren't known yet. A policy doesn't use paths
    /// beyond its own.
    ///
    /// # Errors
    /// As [`Registry::parse`], and a policy's file that can't be used.
    pub fn scheduler_on_wire(&self, text: &str) -> Result<Spec<dyn Scheduler>, SpecError> {
        match text.trim().strip_prefix("policy:") {
            Some(file) => policy::scheduler(text.trim(), file, self.open_file, None),
            None => self.schedulers.parse(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Registries;

    #[test]
    fn a_scheduler_names_only_paths_that_there_are() {
        let registries = Registries::builtin();
        for good in ["single", "single(path=1)", "single(path=-1)", "minrtt"] {
            assert!(registries.scheduler(good, 2).is_ok(), "{good}");
        }
        let text = "single( path=5, penalise=off)";
        let error = registries.scheduler(text, 2).unwrap_err();
        assert!(error.message.contains("no path 5") && error.message.contains("0 to 1"), "{error}");
        assert_eq!(&text[error.span.0..error.span.1], "path=5");
        assert!(registries.check_scheduler("tcp:wifi", 2).is_none());
    }
}
