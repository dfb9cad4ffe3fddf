//! Names of parameters: a key of the scenario file (`path.lte.rtt`, `workload.size`), or a parameter of an
//! algorithm (`scheduler.ecf.beta`). Members of a list go by their name, or by their number from 1.

use ropewalk_algorithms::Registries;
use ropewalk_engine::registry::Registry;
use ropewalk_settings::diagnostic::did_you_mean;
use toml::{Table, Value};

/// What a parameter's name refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A key of the scenario file, its parts joined by dots.
    Scenario(String),
    /// A scheduler's parameter: the scheduler, the parameter.
    Scheduler(String, String),
    /// A congestion control's parameter: the control, the parameter.
    Congestion(String, String),
}

/// Reads a parameter's name.
///
/// # Errors
/// An unknown algorithm or parameter, and the known ones.
pub fn parse(name: &str, registries: &Registries) -> Result<Target, (String, String)> {
    let mut parts = name.splitn(3, '.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("scheduler"), Some(who), Some(what)) => {
            algorithm("scheduler", who, what, &registries.schedulers)?;
            Ok(Target::Scheduler(who.into(), what.into()))
        }
        (Some("congestion"), Some(who), Some(what)) => {
            algorithm("congestion control", who, what, &registries.congestion)?;
            Ok(Target::Congestion(who.into(), what.into()))
        }
        (Some(kind @ ("scheduler" | "congestion")), ..) => Err((
            format!("`{name}` names no parameter"),
            format!("write `{kind}.NAME.PARAMETER`, as in `scheduler.ecf.beta`"),
        )),
        (Some("experiment"), ..) => Err((
            "`experiment` holds defaults of `compare`, nothing of the scenario".into(),
            "schedulers, congestion and runs have keys of their own in a sweep".into(),
        )),
        _ if name.split('.').any(str::is_empty) => {
            Err((format!("`{name}` names no parameter"), "as in `path.lte.rtt` or `workload.size`".into()))
        }
        _ => Ok(Target::Scenario(name.into())),
    }
}

fn algorithm<T: ?Sized>(
    kind: &str,
    who: &str,
    what: &str,
    registry: &Registry<T>,
) -> Result<(), (String, String)> {
    let names = || registry.entries().iter().map(|entry| entry.name);
    let Some(entry) = registry.entries().iter().find(|entry| entry.name == who) else {
        let near = did_you_mean(who, names());
        let near =
            if near.is_empty() { format!("known: {}", names().collect::<Vec<_>>().join(", ")) } else { near };
        return Err((format!("there is no {kind} `{who}`"), near));
    };
    if entry.parameters.iter().any(|parameter| parameter.name == what) {
        return Ok(());
    }
    let list = entry.shown_parameters().map(|parameter| parameter.name).collect::<Vec<_>>().join(", ");
    let list = if list.is_empty() { "it has none".into() } else { format!("allowed: {list}") };
    Err((format!("{kind} `{who}` has no parameter `{what}`"), list))
}

/// Why a parameter can't be set: its name leads nowhere.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// A key holds a single value, but the name continues behind it.
    #[error("`{key}` is a single value here: it holds no `{rest}`")]
    NotATable {
        /// The key.
        key: String,
        /// The rest of the name.
        rest: String,
    },
    /// A list has no such item.
    #[error("there is no `{key}` called `{name}`; there are: {known}")]
    NoSuchItem {
        /// The list's key.
        key: String,
        /// The item's name or number.
        name: String,
        /// What there is, for people.
        known: String,
    },
}

/// Sets a value in a scenario's document. Missing tables are created.
///
/// # Errors
/// A part of the name doesn't exist.
pub fn set(document: &mut Table, name: &str, value: Value) -> Result<(), SetError> {
    let (key, rest) = name.split_once('.').unwrap_or((name, ""));
    if rest.is_empty() {
        document.insert(key.to_string(), value);
        return Ok(());
    }
    let next = document.entry(key).or_insert_with(|| Value::Table(Table::new()));
    inside(next, key, rest, value)
}

fn inside(place: &mut Value, key: &str, rest: &str, value: Value) -> Result<(), SetError> {
    match place {
        _ if rest.is_empty() => {
            *place = value;
            Ok(())
        }
        Value::Table(table) => set(table, rest, value),
        Value::Array(list) => {
            let (index, rest) = member(list, key, rest)?;
            inside(&mut list[index], key, rest, value)
        }
        _ => Err(SetError::NotATable { key: key.into(), rest: rest.into() }),
    }
}

/// The place in a list that `rest` begins with, and what follows.
fn member<'n>(list: &[Value], key: &str, rest: &'n str) -> Result<(usize, &'n str), SetError> {
    let names = || list.iter().map(|item| item.get("name").and_then(Value::as_str));
    // Names may contain dots, so look for the name and not for the part before a dot.
    let named = names().enumerate().find_map(|(index, name)| {
        let after = rest.strip_prefix(name?)?;
        let after = if after.is_empty() { after } else { after.strip_prefix('.')? };
        Some((index, after))
    });
    let (first, after) = rest.split_once('.').unwrap_or((rest, ""));
    let numbered = || {
        let index = first.parse::<usize>().ok()?.checked_sub(1)?;
        (index < list.len()).then_some((index, after))
    };
    named.or_else(numbered).ok_or_else(|| {
        let known = names().flatten().collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { format!("1 to {}", list.len()) } else { known };
        SetError::NoSuchItem { key: key.into(), name: first.into(), known }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Table {
        "limit = '9 s'\n[[path]]\nname = 'wifi'\nrtt = '20 ms'\n[[path]]\nname = 'l.te'\nrtt = '60 ms'\n\
         [workload]\nobjects = ['1 KiB', '2 KiB']"
            .parse()
            .unwrap()
    }

    fn with(name: &str) -> Result<String, SetError> {
        let mut document = document();
        set(&mut document, name, Value::String("NEW".into()))?;
        Ok(document.to_string())
    }

    #[test]
    fn keys_go_by_name_and_number() {
        assert!(with("limit").unwrap().contains("limit = \"NEW\""));
        let changed: Table = with("path.l.te.rtt").unwrap().parse().unwrap();
        assert_eq!(changed["path"][1]["rtt"].as_str(), Some("NEW"));
        let changed: Table = with("path.1.up.rate").unwrap().parse().unwrap();
        assert_eq!(changed["path"][0]["up"]["rate"].as_str(), Some("NEW"));
        let changed: Table = with("ends.receive-buffer").unwrap().parse().unwrap();
        assert_eq!(changed["ends"]["receive-buffer"].as_str(), Some("NEW"));
        let changed: Table = with("workload.objects.2").unwrap().parse().unwrap();
        assert_eq!(changed["workload"]["objects"][1].as_str(), Some("NEW"));
    }

    #[test]
    fn unknown_names_are_errors() {
        assert!(with("path.lte.rtt").unwrap_err().to_string().contains("wifi, l.te"));
        assert!(with("path.3.rtt").unwrap_err().to_string().contains("no `path` called `3`"));
        assert!(with("path.0.rtt").unwrap_err().to_string().contains("no `path` called `0`"));
        assert!(with("limit.rate").unwrap_err().to_string().contains("single value"));
    }

    #[test]
    fn algorithms_and_their_parameters_must_be_known() {
        let registries = Registries::builtin();
        assert_eq!(
            parse("scheduler.ecf.beta", &registries),
            Ok(Target::Scheduler("ecf".into(), "beta".into()))
        );
        assert!(parse("scheduler.efc.beta", &registries).unwrap_err().1.contains("ecf"));
        assert!(parse("scheduler.ecf.gamma", &registries).unwrap_err().1.contains("beta"));
        assert!(parse("scheduler.ecf", &registries).is_err());
        assert!(parse("experiment.runs", &registries).is_err());
        assert!(parse("path..rtt", &registries).is_err());
    }
}
