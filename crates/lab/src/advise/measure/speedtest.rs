//! `speedtest-cli --json` (bit/s), `librespeed-cli --json` (Mbit/s), and Ookla's `speedtest -f json` (bytes/s): several flows at once,
//! so that the link was full.

use ropewalk_sim::Direction;
use serde_json::Value;

use super::{Counted, Input, Measured, MeasurementError, RoundTrip, Throughput, number};

/// What one of them says.
struct Result_ {
    ping: Option<RoundTrip>,
    under_load: Option<RoundTrip>,
    /// Upwards, downwards, bits per second.
    rates: [Option<f64>; 2],
}

fn times(mean: Option<f64>, jitter: Option<f64>, low: Option<f64>, high: Option<f64>) -> Option<RoundTrip> {
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
        count,
        loaded: false,
        smoothed: false,
    })
}

fn ookla(document: &Value) -> Option<Result_> {
    let (ping, down, up) = (&document["ping"], &document["download"], &document["upload"]);
    let bits = |of: &Value| number(&of["bandwidth"]).map(|bytes| bytes * 8.0);
    bits(down).or_else(|| bits(up))?;
    let of = |of: &Value, mean: &str| {
        times(number(&of[mean]), number(&of["jitter"]), number(&of["low"]), number(&of["high"]))
    };
    let loaded = of(&down["latency"], "iqm").map(|rtt| RoundTrip { loaded: true, smoothed: false, ..rtt });
    Some(Result_ { ping: of(ping, "latency"), under_load: loaded, rates: [bits(up), bits(down)] })
}

fn command_line(document: &Value) -> Option<Result_> {
    let (down, up) = (number(&document["download"]), number(&document["upload"]));
    let ping = number(&document["ping"])?;
    down.or(up)?;
    // librespeed-cli has a jitter, and Mbit/s.
    let jitter = number(&document["jitter"]);
    let factor = if jitter.is_some() { 1e6 } else { 1.0 };
    let ping = times(Some(ping), jitter, None, None);
    Some(Result_ { ping, under_load: None, rates: [up, down].map(|rate| rate.map(|rate| rate * factor)) })
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let results: Vec<(&Value, Result_)> =
        input.json.iter().filter_map(|one| Some((one, ookla(one).or_else(|| command_line(one))?))).collect();
    match results.as_slice() {
        [] => None,
        [(document, of)] => Some(Ok(measured(document, of))),
        several => Some(Err(MeasurementError::SeveralResults(several.len()))),
    }
}

fn measured(document: &Value, of: &Result_) -> Measured {
    let rates = [Direction::Upload, Direction::Download].into_iter().zip(of.rates);
    let rates = rates.filter_map(|(direction, bits)| {
        let bits = bits.filter(|bits| (1000.0..=1e12).contains(bits))?;
        Some(Throughput { bits, sd: 0.12, direction: Some(direction), at_least: false })
    });
    // Ookla's is a percentage of some hundred packets of UDP.
    let loss = number(&document["packetLoss"]).map(|share| Counted {
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
        let libre = r#"[{"timestamp":"2026-01-01T10:00:00Z","server":{"name":"x"},"bytes_sent":1,"bytes_received":2,
            "ping":31.4,"jitter":0.8,"upload":0.95,"download":18.8,"share":""}]"#;
        let found = parse("f", libre).unwrap();
        assert_eq!((found.rates[1].bits, found.rtt.unwrap().sd), (18.8e6, 0.8));
        let ookla = r#"{"type":"result","ping":{"jitter":0.8,"latency":31.4,"low":30.2,"high":33.1},
            "download":{"bandwidth":2350000,"bytes":1,"elapsed":1,"latency":{"iqm":80.1,"low":31.0,"high":140.0,"jitter":9.0}},
            "upload":{"bandwidth":118750,"bytes":1,"elapsed":1},"packetLoss":1}"#;
        let found = parse("f", ookla).unwrap();
        assert_eq!((found.rates[1].bits, found.under_load.unwrap().max), (18.8e6, 140.0));
        assert_eq!(found.loss.unwrap(), Counted { lost: 3, sent: 300, round_trip: false });
        assert!(parse("f", &cli.repeat(2)).unwrap_err().message.contains("2 results"));
    }
}
