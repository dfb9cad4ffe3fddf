//! flent's data files (JSON, unpacked): rates in Mbit/s and round trips in ms over time. Before and after the
//! load the round trips are idle ones.

use ropewalk_sim::Direction;
use serde_json::Value;

use super::{Input, Measured, MeasurementError, RoundTrip, Throughput, number};
use crate::stats;

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let [document] = input.json else { return None };
    let results = document["results"].as_object()?;
    document["x_values"].as_array()?;
    Some(parse(results))
}

type Series = Vec<Option<f64>>;

fn series(value: &Value) -> Series {
    value.as_array().into_iter().flatten().map(number).collect()
}

/// The sum of a direction's flows: as flent gives it, or of those that have this name.
fn rates(results: &serde_json::Map<String, Value>, name: &str) -> Option<Series> {
    let own = |key: &String| key.to_lowercase().contains(name) && key.contains("TCP");
    let sum = results.iter().find(|(key, _)| own(key) && key.to_lowercase().ends_with("sum"));
    if let Some((_, sum)) = sum {
        return Some(series(sum));
    }
    let derived = ["avg", "totals", "total"];
    let flows = results
        .iter()
        .filter(|(key, _)| own(key) && !derived.iter().any(|word| key.to_lowercase().ends_with(word)));
    flows.map(|(_, flow)| series(flow)).reduce(|all, one| {
        let length = all.len().max(one.len());
        let at = |of: &Series, place: usize| of.get(place).copied().flatten();
        (0..length)
            .map(|place| match (at(&all, place), at(&one, place)) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            })
            .collect()
    })
}

fn parse(results: &serde_json::Map<String, Value>) -> Result<Measured, MeasurementError> {
    let ping = results
        .iter()
        .filter(|(key, _)| key.starts_with("Ping (ms)"))
        .min_by_key(|(key, _)| (!key.contains("ICMP"), !key.contains("avg")))
        .map(|(_, ping)| series(ping));
    let ways = [(Direction::Upload, "upload"), (Direction::Download, "download")];
    let flows: Vec<(Direction, Series)> =
        ways.into_iter().filter_map(|(direction, name)| Some((direction, rates(results, name)?))).collect();
    let busy = |place: usize| {
        flows.iter().any(|(_, rates)| rates.get(place).copied().flatten().is_some_and(|mbit| mbit > 0.01))
    };
    let mut found = Measured::default();
    for (direction, rates) in &flows {
        let carried: Vec<f64> = rates.iter().flatten().copied().filter(|mbit| *mbit > 0.01).collect();
        if carried.len() < 5 {
            continue;
        }
        // The first is slow start.
        let carried = &carried[carried.len() / 10..];
        let mean = stats::mean(carried);
        let bits = mean * 1e6;
        if !(1000.0..=1e12).contains(&bits) {
            continue;
        }
        found.rates.push(Throughput { bits, sd: 0.08, direction: Some(*direction), at_least: false });
    }
    if let Some(ping) = ping {
        let of = |loaded: bool| -> Vec<f64> {
            let all = ping.iter().enumerate().filter(|(place, _)| busy(*place) == loaded);
            all.filter_map(|(_, ms)| *ms).filter(|ms| *ms > 0.0).collect()
        };
        let times = |loaded: bool| -> Option<RoundTrip> {
            super::round_trips(&of(loaded), loaded).map(|(rtt, _)| rtt)
        };
        found.rtt = times(false).filter(|rtt| rtt.count >= Some(3));
        found.under_load = times(true);
        if found.rtt.is_none() {
            found.rtt = found.under_load.take();
        }
    }
    found.notes.push("loss unknown: flent counts none".into());
    if found.is_empty() { Err(MeasurementError::NoResult) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn rates_and_both_kinds_of_round_trips() {
        let x: Vec<f64> = (0..100).map(|at| f64::from(at) * 0.2).collect();
        let idle = |at: usize| !(20..80).contains(&at);
        let ping: Vec<f64> =
            (0..100).map(|at| if idle(at) { 20.0 + (at % 3) as f64 } else { 70.0 }).collect();
        let down: Vec<Option<f64>> = (0..100).map(|at| (!idle(at)).then_some(9.5)).collect();
        let text = serde_json::json!({ "version": 4, "metadata": { "NAME": "rrul" }, "x_values": x,
            "results": {
            "Ping (ms) ICMP": ping, "Ping (ms) avg": ping,
            "TCP download BE": down, "TCP download BK": down, "TCP download avg": down,
            "TCP upload sum": down, "TCP upload BE": down, "TCP totals": down } });
        let found = parse("f", &text.to_string()).unwrap();
        let rates: Vec<_> = found.rates.iter().map(|rate| (rate.bits, rate.direction)).collect();
        assert_eq!(rates, [(9.5e6, Some(Direction::Upload)), (19e6, Some(Direction::Download))]);
        let (idle, loaded) = (found.rtt.unwrap(), found.under_load.unwrap());
        assert!(idle.mean < 22.0 && !idle.loaded && loaded.max == 70.0 && loaded.loaded, "{found:?}");
    }
}
