//! `speedtest-cli --json` (bit/s), `librespeed-cli --json` (Mbit/s), and Ookla's `speedtest -f json`
//! (bytes/s): several flows at once, so that the link was full. Likewise `fast --json` and the summary of
//! `ndt7-client`.

use ropewalk_sim::Direction;
use serde_json::Value;

use super::{Counted, Input, Measured, MeasurementError, RoundTrip, Throughput, number};

/// What one of them says.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub ping: Option<RoundTrip>,
    pub under_load: Option<RoundTrip>,
    /// Upwards, downwards, bits per second.
    pub rates: [Option<f64>; 2],
}

pub(super) fn times(
    mean: Option<f64>,
    jitter: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
) -> Option<RoundTrip> {
    let mean = mean.filter(|ms| *ms > 0.0 && *ms < 1e6)?;
    // Without a jitter it is one number, of a few requests over HTTP.
    let count = if jitter.is_some() { 10 } else { 2 };
    let jitter = jitter.unwrap_or(0.1 * mean);
    let (min, max) = (low.unwrap_or((mean - jitter).max(0.1)), high.unwrap_or(mean + jitter));
    Some(RoundTrip {
        min: min.min(mean),
        mean,
        sd: jitter,
        max: max.max(mean),
        count: Some(count),
        loaded: false,
        smoothed: false,
    })
}

fn ookla(document: &Value) -> Option<Told> {
    let (ping, down, up) = (&document["ping"], &document["download"], &document["upload"]);
    let bits = |of: &Value| number(&of["bandwidth"]).map(|bytes| bytes * 8.0);
    bits(down).or_else(|| bits(up))?;
    let of = |of: &Value, mean: &str| {
        times(number(&of[mean]), number(&of["jitter"]), number(&of["low"]), number(&of["high"]))
    };
    let loaded = of(&down["latency"], "iqm").map(|rtt| RoundTrip { loaded: true, smoothed: false, ..rtt });
    Some(Told { ping: of(ping, "latency"), under_load: loaded, rates: [bits(up), bits(down)] })
}

/// `fast --json`: Mbit/s.
fn fast(document: &Value) -> Option<Told> {
    let (down, up) = (number(&document["downloadSpeed"])?, number(&document["uploadSpeed"]));
    let ping = times(number(&document["latency"]), None, None, None);
    let loaded = times(number(&document["bufferBloat"]), None, None, None);
    let under_load = loaded.map(|rtt| RoundTrip { loaded: true, ..rtt });
    Some(Told { ping, under_load, rates: [up, Some(down)].map(|rate| rate.map(|rate| rate * 1e6)) })
}

/// The summary of `ndt7-client -format json -quiet`, of both versions.
fn ndt7(document: &Value) -> Option<Told> {
    let value = |of: &Value| {
        let factor = match of["Unit"].as_str()? {
            "Mbit/s" => 1e6,
            "ms" => 1.0,
            _ => return None,
        };
        number(&of["Value"]).map(|number| number * factor)
    };
    let (down, up) = (&document["Download"], &document["Upload"]);
    let rate = |of: &Value| value(&of["Throughput"]).or_else(|| value(of));
    rate(down).or_else(|| rate(up))?;
    let least = value(&document["MinRTT"]).or_else(|| value(&down["Latency"]));
    // The least during the download.
    Some(Told { ping: times(least, None, least, None), under_load: None, rates: [rate(up), rate(down)] })
}

fn command_line(document: &Value) -> Option<Told> {
    let (down, up) = (number(&document["download"]), number(&document["upload"]));
    let ping = number(&document["ping"])?;
    down.or(up)?;
    // librespeed-cli has a jitter, and Mbit/s.
    let jitter = number(&document["jitter"]);
    let factor = if jitter.is_some() { 1e6 } else { 1.0 };
    let ping = times(Some(ping), jitter, None, None);
    Some(Told { ping, under_load: None, rates: [up, down].map(|rate| rate.map(|rate| rate * factor)) })
}

fn told(document: &Value) -> Option<(&Value, Told)> {
    let found = ookla(document)
        .or_else(|| command_line(document))
        .or_else(|| fast(document))
        .or_else(|| ndt7(document));
    Some((document, found?))
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let results: Vec<(&Value, Told)> = input.json.iter().filter_map(told).collect();
    match results.as_slice() {
        [] => None,
        [(document, of)] => Some(Ok(measured(number(&document["packetLoss"]), of))),
        several => Some(Err(MeasurementError::SeveralResults(several.len()))),
    }
}

/// `loss`: a percentage.
pub(super) fn measured(loss: Option<f64>, of: &Told) -> Measured {
    let rates = [Direction::Upload, Direction::Download].into_iter().zip(of.rates);
    let rates = rates.filter_map(|(direction, bits)| {
        let bits = bits.filter(|bits| (1000.0..=1e12).contains(bits))?;
        Some(Throughput { bits, sd: 0.12, direction: Some(direction), at_least: false })
    });
    // Ookla's is a percentage of some hundred packets of UDP.
    let loss = loss.map(|share| Counted {
        lost: (share * 3.0).round().min(300.0) as u64,
        sent: 300,
        round_trip: false,
    });
    let mut notes = Vec::new();
    if loss.is_none() {
        notes.push("loss unknown: the speed test counts none".to_string());
    }
    Measured {
        rtt: of.ping,
        under_load: of.under_load,
        loss,
        rates: rates.collect(),
        notes,
        ..Measured::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn three_programs_and_their_units() {
        let cli = r#"{"download": 18800000.5, "upload": 950000.2, "ping": 31.4, "server": {"latency": 31.4},
            "timestamp": "2026-01-01T10:00:00Z", "bytes_sent": 1, "bytes_received": 2, "share": null}"#;
        let found = parse("f", cli).unwrap();
        let rates: Vec<_> = found.rates.iter().map(|rate| (rate.bits as u64, rate.direction)).collect();
        assert_eq!(rates, [(950_000, Some(Direction::Upload)), (18_800_000, Some(Direction::Download))]);
        assert_eq!((found.rtt.unwrap().mean, found.loss), (31.4, None));
        let libre = r#"[{"timestamp":"2026-01-01T10:00:00Z","server":{"name":"x"},"bytes_sent":1,
            "bytes_received":2,
            "ping":31.4,"jitter":0.8,"upload":0.95,"download":18.8,"share":""}]"#;
        let found = parse("f", libre).unwrap();
        assert_eq!((found.rates[1].bits, found.rtt.unwrap().sd), (18.8e6, 0.8));
        let ookla = r#"{"type":"result","ping":{"jitter":0.8,"latency":31.4,"low":30.2,"high":33.1},
            "download":{"bandwidth":2350000,"bytes":1,"elapsed":1,"latency":{"iqm":80.1,"low":31.0,
                "high":140.0,"jitter":9.0}},
            "upload":{"bandwidth":118750,"bytes":1,"elapsed":1},"packetLoss":1}"#;
        let found = parse("f", ookla).unwrap();
        assert_eq!((found.rates[1].bits, found.under_load.unwrap().max), (18.8e6, 140.0));
        assert_eq!(found.loss.unwrap(), Counted { lost: 3, sent: 300, round_trip: false });
        let fast = r#"{"downloadSpeed":93,"uploadSpeed":18,"downloaded":130,"uploaded":30,"latency":21,
            "bufferBloat":60}"#;
        let found = parse("f", fast).unwrap();
        assert_eq!(
            (found.rates[1].bits, found.rtt.unwrap().mean, found.under_load.unwrap().mean),
            (93e6, 21.0, 60.0)
        );
        for ndt in [
            r#"{"ServerFQDN":"x","Download":{"Value":93.2,"Unit":"Mbit/s"},"Upload":{"Value":18.4,
                "Unit":"Mbit/s"},
                "DownloadRetrans":{"Value":0.4,"Unit":"%"},"MinRTT":{"Value":21.3,"Unit":"ms"}}"#,
            r#"{"ServerFQDN":"x","Download":{"Throughput":{"Value":93.2,"Unit":"Mbit/s"},
                "Latency":{"Value":21.3,"Unit":"ms"}},
                "Upload":{"Throughput":{"Value":18.4,"Unit":"Mbit/s"},"Latency":{"Value":22.1,
                    "Unit":"ms"}}}"#,
        ] {
            let found = parse("f", ndt).unwrap();
            assert_eq!(
                (found.rates[1].bits, found.rates[0].bits, found.rtt.unwrap().min),
                (93.2e6, 18.4e6, 21.3)
            );
        }
        assert!(parse("f", &cli.repeat(2)).unwrap_err().message.contains("2 results"));
    }
}
