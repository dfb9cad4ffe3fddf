//! The workload `datagrams`, which a tunnel carries and no TCP.

use ropewalk_datagrams::SCHEDULERS;
use ropewalk_engine::Span;
use ropewalk_engine::registry::SpecError;
use ropewalk_settings::diagnostic::{Diagnostic, InputError, did_you_mean};
use ropewalk_settings::read::{Table, Value};
use ropewalk_sim::datagrams::{Datagrams, Kind};

use super::shape::{DATAGRAMS, MOST_FLOWS, WORKLOADS};
use super::{Loaded, ScenarioReader};

/// The default of `deadline`.
const DEADLINE: Span = Span::from_millis(150);

/// What of a file means nothing for datagrams.
const MEANINGLESS: [&str; 6] = ["background", "ends", "client", "server", "warmup", "limit"];

/// Whether a file has this workload.
pub(super) fn asked(document: &toml::de::DeTable<'_>) -> bool {
    let kind = document.get("workload").and_then(|workload| workload.get_ref().get("kind"));
    kind.and_then(|kind| kind.get_ref().as_str()) == Some(DATAGRAMS)
}

/// What is wrong with the name of a scheduler for datagrams, if anything.
pub(super) fn check_scheduler(name: &str) -> Option<SpecError> {
    let known = || SCHEDULERS.iter().map(|(name, ..)| *name);
    if known().any(|known| known == name) {
        return None;
    }
    let (near, all) = (did_you_mean(name, known()), known().collect::<Vec<_>>().join(", "));
    let message = format!("there is no scheduler `{name}` for datagrams. {near} known: {all}");
    Some(SpecError { message, span: (0, name.len()) })
}

/// For who can't use datagrams.
pub(super) fn refuse(loaded: Loaded) -> Result<Loaded, InputError> {
    if loaded.datagrams.is_none() {
        return Ok(loaded);
    }
    let message = format!("the workload of `{}` is datagrams, which TCP doesn't carry", loaded.scenario.name);
    Err(Diagnostic::new(message).help("`ropewalk compare` and `ropewalk scenario` take it").into())
}

impl ScenarioReader {
    /// `[workload]` of the kind `datagrams`.
    pub fn datagrams(&mut self, file: &Table<'_>) -> Option<Datagrams> {
        for key in MEANINGLESS {
            if file.get(key).is_some() {
                let message = format!("`{key}` means nothing for a workload of datagrams");
                self.wrong(file.place(key), message, "here", "leave it out");
            }
        }
        let table = self.tagged(WORKLOADS, "workload", file.get("workload")?)?;
        let flows = self.kinds(table.get("flows")?);
        let duration = self.some_time(&table, "duration")?;
        let deadline = match table.get("deadline") {
            Some(_) => self.some_time(&table, "deadline")?,
            None => DEADLINE,
        };
        Some(Datagrams { flows: flows?, duration, deadline })
    }

    fn kinds(&mut self, value: &Value<'_>) -> Option<Vec<Kind>> {
        let allowed = Kind::ALL.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let list = value.get_ref().as_array().filter(|list| (1..=MOST_FLOWS).contains(&list.len()));
        let Some(list) = list else {
            let message = format!("`flows` must be a list of 1 to {MOST_FLOWS} kinds");
            self.wrong(value.span(), message, "here", format!("allowed: {allowed}"));
            return None;
        };
        let mut kinds = Vec::new();
        for item in list {
            let text = self.text(item)?;
            let Some((_, kind)) = Kind::ALL.iter().find(|(name, _)| *name == text) else {
                let near = did_you_mean(text, Kind::ALL.iter().map(|(name, _)| *name));
                let help = format!("{near} allowed: {allowed}");
                let message = format!("there is no kind of flow `{text}`");
                self.wrong(item.span(), message, "here", help.trim());
                return None;
            };
            kinds.push(*kind);
        }
        Some(kinds)
    }
}
