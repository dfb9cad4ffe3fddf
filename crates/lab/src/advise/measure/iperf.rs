//! `iperf3 --json`, run at the client: throughput and its direction, how it varied from second to second, and the round
//! trips that the sender's kernel saw under load. Of UDP also the loss.

use ropewalk_sim::Direction;
use serde_json::Value;

use super::{Measured, MeasurementError, RoundTrip, Throughput};
use crate::stats;

fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite() && *number >= 0.0 && *number < 1e15)
}

/// Reads what iperf3 wrote.
///
/// # Errors
/// What is missing.
pub fn parse(text: &str) -> Result<Measured, MeasurementError> {
    let document: Value =
        serde_json::from_str(text).map_err(|error| MeasurementError::NotJson(error.to_string()))?;
    if let Some(error) = document["error"].as_str() {
        let short: String = error.chars().take(200).collect();
        return Err(MeasurementError::Iperf(short));
    }
    let start = &document["start"]["test_start"];
    let udp = start["protocol"].as_str() == Some("UDP");
    let direction = match start["reverse"].as_u64() {
        Some(0) => Some(Direction::Upload),
        Some(_) => Some(Direction::Download),
        None => None,
    };
    let end = &document["end"];
    let sum = if end["sum_received"].is_object() { &end["sum_received"] } else { &end["sum"] };
    let bits = number(&sum["bits_per_second"]).filter(|bits| (1000.0..=1e12).contains(bits));
    let none = Vec::new();
    let intervals = document["intervals"].as_array().unwrap_or(&none);
    let rates: Vec<f64> = intervals
        .iter()
        .filter(|interval| interval["sum"]["omitted"].as_bool() != Some(true))
        .filter_map(|interval| number(&interval["sum"]["bits_per_second"]))
        .filter(|bits| *bits > 0.0)
        .map(libm::log)
        .collect();
    // Seconds average out, but what one transfer met, another may not: never surer than 6 %.
    let sd = if rates.len() < 3 {
        0.2
    } else {
        let mean = stats::standard_deviation(&rates) / libm::sqrt(rates.len() as f64);
        libm::sqrt(mean * mean + 0.06 * 0.06).min(0.5)
    };
    let rate = bits.map(|bits| Throughput { bits, sd, direction });
    let loss = match (udp, sum["lost_packets"].as_u64(), sum["packets"].as_u64()) {
        (true, Some(lost), Some(packets)) if packets > 0 => Some((lost.min(packets), packets)),
        _ => None,
    };
    let rtt = round_trips(end);
    if rate.is_none() && loss.is_none() && rtt.is_none() {
        return Err(MeasurementError::NoResult);
    }
    // Congestion's losses are among them: the path's own are at most these.
    let sent =
        number(&end["sum_sent"]["bytes"]).map(|bytes| (bytes / 1448.0) as u64).filter(|sent| *sent >= 100);
    let retransmitted = end["sum_sent"]["retransmits"].as_u64().zip(sent).filter(|_| !udp);
    let note = match (rtt, direction) {
        (None, Some(Direction::Download)) if !udp => {
            Some("no round trips: with -R the sender is at the other end (mean_rtt is 0)".into())
        }
        _ => None,
    };
    Ok(Measured { rtt, loss, rate, trace: None, retransmitted, note })
}

/// The sender's, in microseconds; 0 where this end didn't send.
fn round_trips(end: &Value) -> Option<RoundTrip> {
    let streams = end["streams"].as_array()?;
    let all = |key: &str| -> Vec<f64> {
        let values = streams.iter().filter_map(|stream| number(&stream["sender"][key]));
        values.filter(|us| *us > 0.0 && *us < 1e9).map(|us| us / 1e3).collect()
    };
    let (min, mean, max) = (all("min_rtt"), all("mean_rtt"), all("max_rtt"));
    let least = min.iter().copied().reduce(f64::min)?;
    let most = max.iter().copied().reduce(f64::max)?;
    let mean = stats::mean(&mean).max(least);
    Some(RoundTrip {
        min: least,
        mean,
        sd: (most - least).max(0.0) / 4.0,
        max: most.max(least),
        count: 0,
        loaded: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_iperf3_writes() {
        let found = parse(super::super::tests::IPERF).unwrap();
        let rate = found.rate.unwrap();
        assert_eq!((rate.bits, rate.direction), (18_900_000.0, Some(Direction::Download)));
        assert!(rate.sd >= 0.06 && rate.sd < 0.1, "{}", rate.sd);
        let udp = r#"{"start":{"test_start":{"protocol":"UDP","reverse":0}},
            "end":{"sum":{"bits_per_second":5e6,"lost_packets":12,"packets":4000}}}"#;
        let found = parse(udp).unwrap();
        assert_eq!((found.loss, found.rate.unwrap().direction), (Some((12, 4000)), Some(Direction::Upload)));
        let sender = r#"{"end":{"streams":[{"sender":{"min_rtt":20000,"mean_rtt":45000,"max_rtt":90000}}]}}"#;
        let rtt = parse(sender).unwrap().rtt.unwrap();
        assert_eq!((rtt.min, rtt.max, rtt.loaded), (20.0, 90.0, true));
        assert!(
            parse(r#"{"error":"unable to connect"}"#).unwrap_err().to_string().contains("unable to connect")
        );
    }
}
