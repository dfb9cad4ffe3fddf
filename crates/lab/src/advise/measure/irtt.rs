//! `irtt client -o`: JSON with times in nanoseconds, and losses of each way where the server counts.

use super::{Counted, Input, Measured, MeasurementError, number, round_trips};

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let [document] = input.json else { return None };
    let trips = document["round_trips"].as_array()?;
    let samples: Vec<f64> = trips
        .iter()
        .filter(|trip| trip["lost"] == "false")
        .filter_map(|trip| number(&trip["delay"]["rtt"]))
        .map(|ns| ns / 1e6)
        .collect();
    let stats = &document["stats"];
    let (sent, back) = (stats["packets_sent"].as_u64(), stats["packets_received"].as_u64());
    let loss = sent.zip(back).filter(|(sent, _)| *sent > 0).map(|(sent, back)| Counted {
        lost: sent.saturating_sub(back),
        sent,
        round_trip: true,
    });
    Some(match round_trips(&samples, false) {
        Some((rtt, note)) => {
            Ok(Measured { rtt: Some(rtt), loss, notes: note.into_iter().collect(), ..Measured::default() })
        }
        None => Err(MeasurementError::NoAnswer),
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn times_and_losses() {
        let trip = |ns: u64, lost: &str| format!(r#"{{"seqno":0,"lost":"{lost}","delay":{{"rtt":{ns}}}}}"#);
        let text = format!(
            r#"{{"version":{{"irtt":"0.9.0"}},"stats":{{"packets_sent":3,"packets_received":2}},
                "round_trips":[{},{},{}]}}"#,
            trip(20_100_000, "false"),
            trip(0, "true"),
            trip(20_300_000, "false"),
        );
        let found = parse("f", &text).unwrap();
        assert_eq!(
            (found.rtt.unwrap().min, found.rtt.unwrap().count, found.loss.unwrap().lost),
            (20.1, Some(2), 1)
        );
    }
}
