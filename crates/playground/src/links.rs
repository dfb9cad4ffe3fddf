//! The links of the first field one by one: their numbers, for sliders, and lines changed by a slider or a
//! measurement.

use ropewalk_lab::advise::measure;
use ropewalk_lab::scenario;
use ropewalk_link::{Change, ChangeAction, LinkSpec, Loss, Queue, Rate};
use ropewalk_settings::diagnostic::{Diagnostic, InputError};
use ropewalk_settings::input::OpenFile;
use ropewalk_settings::units;
use ropewalk_sim::PathSpec;
use ropewalk_time::Span;
use serde_json::{Value, json};

/// A line's numbers; null where a slider can't say what it is.
pub(crate) fn numbers(path: &PathSpec) -> Value {
    let rate = |link: &LinkSpec| match link.rate {
        Rate::Constant(rate) => Some(rate as f64 / 1e6),
        Rate::Trace(_) => None,
    };
    json!({
        "name": path.name,
        "down": rate(&path.down),
        "up": rate(&path.up),
        "rtt": (path.up.delay + path.down.delay).as_millis_f64(),
        "spread": spread(path).as_millis_f64(),
        "loss": match path.down.loss {
            Loss::None => Some(0.0),
            Loss::Bernoulli(p) => Some(p * 100.0),
            Loss::GilbertElliott { .. } => None,
        },
        "queue": match path.down.queue {
            Queue::Packets { limit, .. } => Some(limit),
            _ => None,
        },
        "changes": changes(path),
    })
}

/// The spread of both directions' jitter together.
fn spread(path: &PathSpec) -> Span {
    [&path.up, &path.down].into_iter().filter_map(|link| link.jitter).map(|jitter| jitter.spread).sum()
}

/// What changes over time, where `--path` has words for it: outages, and other rates from a time on. Times in
/// seconds.
fn changes(path: &PathSpec) -> Option<Vec<Value>> {
    let changes = &path.down.changes;
    let mut found = Vec::new();
    for change in changes {
        found.push(match &change.action {
            ChangeAction::Rate(Rate::Constant(rate)) if change.every.is_none() => {
                json!({ "at": change.at.as_secs_f64(), "rate": *rate as f64 / 1e6 })
            }
            ChangeAction::Down => {
                let ends = |up: &&Change| {
                    up.action == ChangeAction::Up && up.at > change.at && up.every == change.every
                };
                let up = changes.iter().find(ends)?;
                let mut outage =
                    json!({ "at": change.at.as_secs_f64(), "for": (up.at - change.at).as_secs_f64() });
                if let Some(every) = change.every {
                    outage["every"] = every.as_secs_f64().into();
                }
                outage
            }
            ChangeAction::Up => continue,
            _ => return None,
        });
    }
    (path.up.changes == *changes).then_some(found)
}

/// A line with what a measurement's file says of its path, as `advise --measured` understands it. A recorded
/// link is named as a trace: the page hands it in with the question.
pub(crate) fn measured(line: &str, name: &str, text: &str, open_file: OpenFile) -> Result<Value, InputError> {
    let found = measure::parse(name, text)?;
    let known = scenario::paths(&[line.to_string()], open_file).ok().and_then(|mut paths| paths.pop());
    let label = line.split(':').next().unwrap_or_default().trim();
    if found.traces.iter().any(Option::is_some) {
        if name.contains([',', '\n']) || name.trim() != name {
            let message = format!("`{name}` can't be named in a path");
            return Err(Diagnostic::new(message).help("a file's name without commas").into());
        }
        let line = scenario::with_clause(line, &format!("trace {name}"));
        return Ok(json!({ "line": line, "attach": true, "notes": found.notes }));
    }
    let notes = found.notes.clone();
    let path = measure::refine(label, known.clone(), &[found])?.path;
    let mut line = line.to_string();
    let mut set = |clause: String| line = scenario::with_clause(&line, &clause);
    let is_new = |of: &dyn Fn(&PathSpec) -> bool| known.as_ref().is_none_or(of);
    if let (Rate::Constant(down), Rate::Constant(up)) = (&path.down.rate, &path.up.rate)
        && is_new(&|known| (&known.down.rate, &known.up.rate) != (&path.down.rate, &path.up.rate))
    {
        let mbit = |rate: u64| rounded(rate as f64 / 1e6);
        set(if down == up {
            format!("{} Mbit/s", mbit(*down))
        } else {
            format!("{}/{} Mbit/s", mbit(*down), mbit(*up))
        });
    }
    let round_trip = |path: &PathSpec| path.up.delay + path.down.delay;
    if is_new(&|known| (round_trip(known), spread(known)) != (round_trip(&path), spread(&path))) {
        let ms = |span: Span| rounded(span.as_millis_f64());
        let spread = Some(spread(&path)).filter(|spread| !spread.is_zero());
        let spread = spread.map_or(String::new(), |spread| format!(" +-{} ms", ms(spread)));
        set(format!("{} ms{spread}", ms(round_trip(&path))));
    }
    if let Loss::Bernoulli(p) = path.down.loss
        && is_new(&|known| known.down.loss != path.down.loss)
    {
        set(format!("{} %", rounded(p * 100.0)));
    }
    if is_new(&|known| known.down.queue != path.down.queue) {
        match path.down.queue {
            Queue::Packets { limit, .. } => set(format!("queue {}", units::write_packets(limit))),
            Queue::Bytes { limit, .. } => set(format!("queue {}", units::write_bytes(limit))),
            Queue::CoDel { .. } => {}
        }
    }
    Ok(json!({ "line": line, "attach": false, "notes": notes }))
}

/// A number as one would write it: three digits.
fn rounded(value: f64) -> String {
    let places = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

#[cfg(test)]
mod tests {
    use ropewalk_settings::input::no_files;

    use super::*;

    #[test]
    fn a_lines_numbers_are_those_of_its_path() {
        let path = scenario::path("w: 50/20 Mbit/s, 30 ms +-6 ms, 0.5 %, queue 120 packets").unwrap();
        let expected = json!({ "name": "w", "down": 50.0, "up": 20.0, "rtt": 30.0, "spread": 6.0,
            "loss": 0.5, "queue": 120, "changes": [] });
        assert_eq!(numbers(&path), expected);
    }

    #[test]
    fn changes_over_time_are_told_in_the_words_of_paths() {
        let changes = |line: &str| changes(&scenario::path(line).unwrap()).map(Value::from);
        assert_eq!(
            changes(
                "w: 50/20 Mbit/s, 30 ms, outage 200 ms at 3 s, 5 Mbit/s at 1 s, outage 100 ms every 15 s"
            ),
            Some(json!([{ "at": 1.0, "rate": 5.0 }, { "at": 3.0, "for": 0.2 }, { "at": 15.0, "for": 0.1,
                    "every": 15.0 }]))
        );
    }

    #[test]
    fn measurements_change_a_line_as_they_change_a_path() {
        let ping = include_str!("../../lab/tests/measured/ping.txt");
        let iperf = include_str!("../../lab/tests/measured/iperf3.json");
        let line = |of: &str, name: &str, text: &str| -> String {
            measured(of, name, text, no_files).unwrap()["line"].as_str().unwrap().into()
        };
        let pinged = line("w: 50 Mbit/s, 80 ms", "ping.txt", ping);
        assert!(pinged.starts_with("w: 50 Mbit/s, ") && !pinged.contains("80 ms"), "{pinged}");
        let sent = line(&pinged, "iperf3.json", iperf);
        assert!(sent.starts_with("w: 19.6/50 Mbit/s, "), "{sent}");
        let path = scenario::path(&sent).unwrap_or_else(|error| panic!("{sent}: {}", error.message));
        assert!(path.down.delay > Span::ZERO);
        let traced = measured("w: 20 ms, 5 Mbit/s", "lte.down", "0\n5\n5\n9\n", no_files);
        let traced = traced.unwrap();
        assert_eq!((&traced["line"], &traced["attach"]), (&json!("w: 20 ms, trace lte.down"), &json!(true)));
        let wrong = measured("w: dsl", "x", "no measurement", no_files).unwrap_err().to_string();
        assert!(wrong.contains("iperf3 --json"), "{wrong}");
        let wrong = measured("w: dsl", "a,b", "1\n2\n", no_files).unwrap_err().to_string();
        assert!(wrong.contains("without commas"), "{wrong}");
    }
}
