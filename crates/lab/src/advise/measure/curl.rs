//! `curl -w '%{json}'`, or its variables as `name: value` or `name=value`: the TCP handshake is a round trip,
//! and a transfer is at least the link's rate, since one short flow rarely fills it.

use ropewalk_sim::Direction;
use serde_json::Value;

use super::{Input, Measured, MeasurementError, Throughput, at_least, number, positive, round_trips};

/// Bytes below which a transfer says nothing of a rate.
const SMALL: f64 = 100_000.0;

const VARIABLES: [&str; 8] = [
    "time_namelookup",
    "time_connect",
    "time_starttransfer",
    "time_total",
    "size_download",
    "speed_download",
    "size_upload",
    "speed_upload",
];

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let (json, documents);
    let runs = if input.json.is_empty() {
        documents = variables(input.text);
        &documents
    } else {
        json = input.json.to_vec();
        &json
    };
    let is_ours = runs.iter().any(|run| number(&run["time_connect"]).is_some());
    is_ours.then(|| parse(runs))
}

/// What stands in lines, run by run.
fn variables(text: &str) -> Vec<Value> {
    let mut runs: Vec<Value> = Vec::new();
    let words =
        text.split(|c: char| c.is_whitespace() || ",;:=\"'{}".contains(c)).filter(|word| !word.is_empty());
    let mut last: Option<&str> = None;
    for word in words {
        if let Some(name) = VARIABLES.iter().find(|name| **name == word) {
            last = Some(name);
        } else if let (Some(name), Some(value)) = (last.take(), positive(word.trim_end_matches('s'))) {
            if runs.last().is_none_or(|run| !run[name].is_null()) {
                runs.push(Value::Object(serde_json::Map::new()));
            }
            if let Some(run) = runs.last_mut() {
                run[name] = value.into();
            }
        }
    }
    runs
}

fn parse(runs: &[Value]) -> Result<Measured, MeasurementError> {
    let of = |run: &Value, name: &str| number(&run[name]);
    let handshakes: Vec<f64> = runs
        .iter()
        .filter_map(|run| {
            let seconds = of(run, "time_connect")? - of(run, "time_namelookup").unwrap_or(0.0);
            (seconds > 0.0).then_some(seconds * 1e3)
        })
        .collect();
    let mut found = Measured::default();
    if let Some((rtt, note)) = round_trips(&handshakes, false) {
        found.rtt = Some(rtt);
        found.notes.extend(note);
    }
    for (direction, size, speed) in [
        (Direction::Download, "size_download", "speed_download"),
        (Direction::Upload, "size_upload", "speed_upload"),
    ] {
        let rates = runs.iter().filter_map(|run| {
            let bytes = of(run, size).filter(|bytes| *bytes >= SMALL)?;
            // The handshake and the server's thinking aren't the transfer.
            let after = match direction {
                Direction::Download => of(run, "time_starttransfer"),
                Direction::Upload => of(run, "time_connect"),
            };
            let seconds = of(run, "time_total").zip(after).map(|(total, after)| total - after);
            let bits = seconds.filter(|seconds| *seconds > 0.001).map(|seconds| bytes * 8.0 / seconds);
            bits.or_else(|| of(run, speed).map(|bytes| bytes * 8.0))
                .filter(|bits| (1000.0..=1e12).contains(bits))
        });
        if let Some(bits) = rates.reduce(f64::max) {
            found.rates.push(Throughput { bits, sd: 0.3, direction: Some(direction), at_least: true });
            found.notes.push(at_least(Some(direction), bits, "one flow; `iperf3 -P 8` would tell"));
        }
    }
    found.notes.push("loss unknown: curl counts none".into());
    if found.is_empty() { Err(MeasurementError::NoAnswer) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn json_and_variables() {
        let json = r#"{"http_code":200,"time_namelookup":0.01,"time_connect":0.05,"time_appconnect":0.09,
            "time_starttransfer":0.15,"time_total":4.15,"size_download":10000000,"speed_download":2409638,
                "size_upload":0}"#;
        let found = parse("f", &json.repeat(3)).unwrap();
        let rtt = found.rtt.unwrap();
        assert!((rtt.mean - 40.0).abs() < 0.01 && rtt.count == Some(3), "{rtt:?}");
        let rate = found.rates[0];
        assert!(
            (rate.bits - 2e7).abs() < 1.0 && rate.at_least && rate.direction == Some(Direction::Download)
        );
        let text = "time_namelookup: 0.010\ntime_connect:  0.050\ntime_starttransfer: 0.15\ntime_total: 0.2\n\
                    time_namelookup: 0.010\ntime_connect:  0.060s\ntime_total: 0.2\n";
        let found = parse("f", text).unwrap();
        assert!((found.rtt.unwrap().mean - 45.0).abs() < 0.01 && found.rates.is_empty(), "{found:?}");
        let line = "time_connect=0.04 size_download=20000000 speed_download=2500000";
        assert_eq!(parse("f", line).unwrap().rates[0].bits, 2e7);
    }
}
