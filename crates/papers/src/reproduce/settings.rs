//! A scenario file with some of its keys changed: the change is made in the document, so that it is read and
//! checked as any file is.

use std::path::Path;

use ropewalk_algorithms::Registries;
use ropewalk_lab::scenario::{self, Loaded};
use ropewalk_settings::diagnostic::Source;
use toml::{Table, Value};

use super::error::{KeyError, SettingError};
use super::{Paper, Settings};

/// Lays `above` over `below`.
pub(super) fn merge(below: &Settings, above: &Settings) -> Settings {
    let mut merged = below.clone();
    merged.set.extend(above.set.clone());
    merged.replace.extend(above.replace.clone());
    let pick = |above: &Option<String>, below: &mut Option<String>| {
        if above.is_some() {
            below.clone_from(above);
        }
    };
    pick(&above.scenario, &mut merged.scenario);
    pick(&above.first, &mut merged.first);
    pick(&above.congestion, &mut merged.congestion);
    pick(&above.tcp_congestion, &mut merged.tcp_congestion);
    pick(&above.mechanisms, &mut merged.mechanisms);
    if above.scheduler.is_some() || above.tcp.is_some() {
        merged.scheduler.clone_from(&above.scheduler);
        merged.tcp.clone_from(&above.tcp);
    }
    merged
}

/// Whether a scheduler's specification says itself how it repeats and penalises.
pub(super) fn names_mechanisms(scheduler: &str) -> bool {
    scheduler.contains("opportunistic") || scheduler.contains("penalise")
}

/// A scheduler with both mechanisms by this rule; after it `, no penalisation` leaves opportunistic
/// retransmission alone.
pub(super) fn equip(scheduler: &str, mechanisms: &str) -> Result<String, SettingError> {
    let (opportunistic, penalise) = match mechanisms.strip_suffix(", no penalisation") {
        Some(rule) => (rule, "off"),
        None => (mechanisms, mechanisms),
    };
    let switches = format!("opportunistic={opportunistic}, penalise={penalise}");
    if names_mechanisms(scheduler) {
        return Err(SettingError::Mechanisms(scheduler.into()));
    }
    Ok(match scheduler.strip_suffix(')') {
        Some(open) => format!("{open}, {switches})"),
        None => format!("{scheduler}({switches})"),
    })
}

/// The scenario that settings ask for, and its text. A key `workload[web].persistent` concerns workloads of
/// the kind `web` only.
///
/// # Errors
/// No such file, key or path, or what the scenario's reader says.
pub(super) fn scenario(
    paper: &Paper,
    settings: &Settings,
    registries: &Registries,
) -> Result<Loaded, SettingError> {
    let name = settings.scenario.as_deref().ok_or(SettingError::NoScenario)?;
    let text = paper.scenarios.get(name).ok_or_else(|| SettingError::NoFile(name.into()))?;
    let toml = |reason: String| SettingError::Toml { file: name.into(), reason };
    let mut document: Table = toml::from_str(text).map_err(|error| toml(error.to_string()))?;
    for (key, value) in &settings.set {
        let mut parts: Vec<&str> = key.split('.').collect();
        if let Some((table, kind)) = parts[0].strip_suffix(']').and_then(|first| first.split_once('[')) {
            if document.get(table).and_then(|table| table.get("kind")).and_then(Value::as_str) != Some(kind) {
                continue;
            }
            parts[0] = table;
        }
        change(&mut document, &parts, value).map_err(|error| SettingError::Key {
            file: name.into(),
            key: key.clone(),
            error,
        })?;
    }
    if let Some(first) = &settings.first {
        let missing = || SettingError::NoPath(first.clone());
        let Some(Value::Array(paths)) = document.get_mut("path") else { return Err(missing()) };
        let at = paths
            .iter()
            .position(|path| path.get("name").and_then(Value::as_str) == Some(first))
            .ok_or_else(missing)?;
        paths[..=at].rotate_right(1);
    }
    let text = toml::to_string(&document).map_err(|error| toml(error.to_string()))?;
    scenario::parse(&Source::new(name, text), &paper.name, Path::new(""), registries)
        .map_err(|error| SettingError::Scenario(error.render(false)))
}

/// Changes one key; an empty text takes it out. Of an array of tables, `name` or a number (from 0) says
/// which, `*` all.
fn change(table: &mut Table, parts: &[&str], value: &Value) -> Result<(), KeyError> {
    let [first, rest @ ..] = parts else { return Ok(()) };
    if rest.is_empty() && value.as_str() == Some("") {
        table.remove(*first);
        return Ok(());
    }
    if rest.is_empty() {
        table.insert((*first).into(), value.clone());
        return Ok(());
    }
    match table.entry(*first).or_insert_with(|| Value::Table(Table::new())) {
        Value::Table(inner) => change(inner, rest, value),
        Value::Array(list) => {
            let [which, rest @ ..] = rest else { return Err(KeyError::Incomplete) };
            let mut any = false;
            for (index, item) in list.iter_mut().enumerate() {
                let named = item.get("name").and_then(Value::as_str) == Some(which);
                if *which != "*" && !named && which.parse() != Ok(index) {
                    continue;
                }
                any = true;
                match item {
                    Value::Table(inner) => change(inner, rest, value)?,
                    _ => return Err(KeyError::NotTables((*first).into())),
                }
            }
            let missing = || KeyError::Missing { which: (*which).into(), list: (*first).into() };
            any.then_some(()).ok_or_else(missing)
        }
        _ => Err(KeyError::NotTable((*first).into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_one_key_or_all_of_a_list() {
        let mut table: Table =
            toml::from_str("[[path]]\nname = 'a'\nqueue = '1 packets'\n[[path]]\nname = 'b'\n").unwrap();
        change(&mut table, &["path", "*", "queue"], &Value::String("9 packets".into())).unwrap();
        change(&mut table, &["path", "b", "loss"], &Value::String("1 %".into())).unwrap();
        change(&mut table, &["path", "0", "mtu"], &Value::String("576 B".into())).unwrap();
        change(&mut table, &["workload", "kind"], &Value::String("flow".into())).unwrap();
        assert_eq!(table["path"][0]["queue"].as_str(), Some("9 packets"));
        assert_eq!(table["path"][1]["queue"].as_str(), Some("9 packets"));
        assert_eq!(table["path"][0].get("loss"), None);
        assert_eq!(table["path"][0]["mtu"].as_str(), Some("576 B"));
        assert_eq!(table["workload"]["kind"].as_str(), Some("flow"));
        let missing = change(&mut table, &["path", "c", "loss"], &Value::Integer(1)).unwrap_err();
        assert_eq!(missing.to_string(), "there is no `c` in `path`");
    }

    #[test]
    fn penalisation_can_be_left_out() {
        assert_eq!(equip("minrtt", "linux").unwrap(), "minrtt(opportunistic=linux, penalise=linux)");
        let alone = equip("blest(delta=0.1)", "linux, no penalisation").unwrap();
        assert_eq!(alone, "blest(delta=0.1, opportunistic=linux, penalise=off)");
        assert!(equip("minrtt(penalise=off)", "linux").is_err());
    }

    #[test]
    fn a_key_of_one_kind_of_workload_leaves_the_others() {
        let paper = crate::reproduce::load("blest-2016").unwrap().unwrap();
        let text = |workload: Option<&str>| {
            let mut settings = Settings { scenario: Some("3g-wlan.toml".into()), ..Settings::default() };
            settings.set.insert("workload[web].persistent".into(), Value::Boolean(false));
            if let Some(workload) = workload {
                let table: Table = toml::from_str(workload).unwrap();
                settings.set.insert("workload".into(), table["workload"].clone());
            }
            scenario(&paper, &settings, &Registries::builtin()).unwrap().text
        };
        assert!(!text(None).contains("persistent"), "bulk");
        let page = "workload = { kind = 'web', objects = ['1 kB'] }";
        assert!(text(Some(page)).contains("persistent = false"));
    }
}
