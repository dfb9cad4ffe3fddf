//! `iperf3 --json`, run at the client: throughput and its direction, how it varied from second to second, and
//! the round trips that the sender's kernel saw under load. Of UDP also the loss.

use ropewalk_sim::Direction;
use serde_json::Value;

use super::{Counted, Input, Measured, MeasurementError, RoundTrip, Throughput, at_least, mbit, number};
use crate::stats;

/// Seconds below which a transfer is mostly slow start.
const SHORT: f64 = 2.0;

/// Share of UDP's packets that a link loses by being too slow for them: what is lost beyond is the queue's,
/// not the link's.
const OVERLOAD: f64 = 0.05;

/// Share of segments sent again from which one flow may be limited by losses instead of the link's rate,
/// where its round-trip time isn't known.
const LOSSY: f64 = 0.005;

/// Seconds from which their variation tells whether the link was full, and how much a full one varies.
const MANY: usize = 5;
const STEADY: f64 = 0.1;

/// CUBIC is at most so many times as fast as Reno on a path that loses segments at random.
const CUBIC_OVER_RENO: f64 = 3.0;

/// Without a target, iperf3 sends so much of UDP.
const UDP_TARGET: f64 = 1_048_576.0;

/// Bytes in a segment.
const SEGMENT: f64 = 1448.0;

/// What was asked of iperf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Test {
    pub udp: bool,
    /// Flows at once, as far as they are listed.
    pub streams: u64,
    /// `-b`.
    pub target: Option<f64>,
    /// The sender's congestion control models the path and doesn't slow down for single losses.
    pub model_based: bool,
}

/// What one direction carried.
#[derive(Clone, Debug, Default)]
pub(super) struct Transfer {
    pub direction: Option<Direction>,
    /// That arrived, a second.
    pub bits: f64,
    /// Only the sender's count is there.
    pub sent_only: bool,
    pub seconds: Option<f64>,
    /// That were sent.
    pub bytes: Option<f64>,
    pub retransmits: Option<u64>,
    /// UDP's, lost and sent.
    pub lost: Option<(u64, u64)>,
    /// A second each.
    pub intervals: Vec<f64>,
    pub rtt: Option<RoundTrip>,
}

impl Transfer {
    /// Adds what it says of the path.
    pub fn tell(&self, test: Test, found: &mut Measured) {
        let limit = self.limit(test);
        let sd =
            if self.sent_only { variation(&self.intervals).max(0.1) } else { variation(&self.intervals) };
        found.rates.push(Throughput {
            bits: self.bits,
            sd,
            direction: self.direction,
            at_least: limit.is_some(),
        });
        found.notes.extend(limit.map(|why| at_least(self.direction, self.bits, &why)));
        match self.lost {
            Some((lost, packets)) if test.udp && packets > 0 => {
                let lost = lost.min(packets);
                if lost as f64 > OVERLOAD * packets as f64 {
                    found.notes.push(
                        "loss unknown: more was sent than the link carries, and its queue lost the rest"
                            .into(),
                    );
                } else if found.loss.is_none() {
                    found.loss = Some(Counted { lost, sent: packets, round_trip: false });
                }
            }
            _ => {}
        }
        if found.retransmitted.is_none() && !test.udp {
            found.retransmitted = self.retransmitted();
        }
    }

    /// Segments retransmitted, of so many. Congestion's losses are among them: the path's own are at most
    /// these.
    fn retransmitted(&self) -> Option<(u64, u64)> {
        let sent = self.bytes.map(|bytes| (bytes / SEGMENT) as u64);
        self.retransmits.zip(sent.filter(|sent| *sent >= 100))
    }

    /// What kept the transfer below the link's rate, and what would tell that; none where the link was full.
    fn limit(&self, test: Test) -> Option<String> {
        let target = test.target.filter(|bits| *bits > 0.0);
        if test.udp {
            let target = target.unwrap_or(UDP_TARGET);
            let share = self.lost.filter(|of| of.1 > 0).map(|(lost, sent)| lost as f64 / sent as f64);
            let lost = share.unwrap_or(1.0 - self.bits / target);
            return (lost <= OVERLOAD).then(|| {
                format!(
                    "{} Mbit/s of UDP were sent, and arrived; `-u -b` with twice the link's rate would tell",
                    mbit(target)
                )
            });
        }
        if let Some(target) = target.filter(|target| self.bits > 0.8 * target) {
            return Some(format!("no more was sent (`-b`, {} Mbit/s)", mbit(target)));
        }
        if self.seconds.is_some_and(|seconds| seconds < SHORT) {
            return Some("the transfer was short; 10 s would tell".into());
        }
        // A full link carries much the same every second; what losses limit goes up and down.
        let later = &self.intervals[(self.intervals.len() / 5).min(2)..];
        let many = later.len() >= MANY;
        let steady = many && stats::standard_deviation(later) < STEADY * stats::mean(later);
        // What grows under load is the queue of a link that is full.
        let queued = self.rtt.is_some_and(|rtt| rtt.mean > 1.3 * rtt.min);
        let (again, sent) = self.retransmitted()?;
        let share = again as f64 / sent as f64;
        // Reno's rate with this share lost at random (Mathis et al. 1997): 1.22 segments per round trip over
        // its root.
        let reno =
            |rtt: RoundTrip| 1.22 * SEGMENT * 8000.0 / rtt.min.max(0.01) / libm::sqrt(share.max(1e-12));
        let lossy = match self.rtt {
            Some(rtt) => again > 0 && self.bits < CUBIC_OVER_RENO * reno(rtt),
            None if many => again > 0,
            None => share > LOSSY,
        };
        let lossy = lossy && !steady;
        (test.streams < 4 && !test.model_based && !queued && lossy).then(|| {
            let would = "`-P 8` or `-u -b` with twice the link's rate would tell";
            format!("losses may have limited the one flow; {would}")
        })
    }
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let first = input.json.first()?;
    let is_ours = first["event"].is_string()
        || input.json.iter().any(|one| one["start"].is_object() || one["end"].is_object())
        || first["error"].is_string();
    is_ours.then(|| result(input.json))
}

/// Reads what iperf3 wrote: one result, also as `--json-stream` has it, a line for each event.
///
/// # Errors
/// What is missing.
pub fn parse(text: &str) -> Result<Measured, MeasurementError> {
    result(&super::documents(text)?)
}

fn result(documents: &[Value]) -> Result<Measured, MeasurementError> {
    let document = match documents {
        [one] if one["event"].is_null() => one.clone(),
        [one, ..] if !one["event"].is_null() => stream(documents),
        several => return Err(MeasurementError::SeveralResults(several.len())),
    };
    if let Some(error) = document["error"].as_str() {
        let short: String = error.chars().take(200).collect();
        return Err(MeasurementError::Iperf(short));
    }
    let start = &document["start"]["test_start"];
    let end = &document["end"];
    let udp = start["protocol"].as_str() == Some("UDP");
    let (direction, other) = match start["reverse"].as_u64() {
        Some(0) => (Some(Direction::Upload), Some(Direction::Download)),
        Some(_) => (Some(Direction::Download), Some(Direction::Upload)),
        None => (None, None),
    };
    let sender = end["sender_tcp_congestion"].as_str();
    let test = Test {
        udp,
        streams: start["num_streams"].as_u64().unwrap_or(1),
        target: number(&start["target_bitrate"])
            .filter(|bits| *bits > 0.0)
            .or_else(|| number(&end["sum_sent"]["bits_per_second"]).filter(|_| udp)),
        model_based: sender.is_some_and(|name| name.starts_with("bbr")),
    };
    let rtt = round_trips(end);
    let mut found = Measured { rtt, ..Measured::default() };
    for (suffix, intervals, direction) in
        [("", "sum", direction), ("_bidir_reverse", "sum_bidir_reverse", other)]
    {
        let of = |name: &str| &end[format!("{name}{suffix}")];
        let received = if of("sum_received").is_object() { of("sum_received") } else { of("sum") };
        let sent = of("sum_sent");
        let rate = |of: &Value| number(&of["bits_per_second"]).filter(|bits| (1000.0..=1e12).contains(bits));
        let Some(bits) = rate(received).or_else(|| rate(sent)) else { continue };
        let transfer = Transfer {
            direction,
            bits,
            sent_only: rate(received).is_none(),
            seconds: number(&received["seconds"]).or_else(|| number(&sent["seconds"])),
            bytes: number(&sent["bytes"]),
            retransmits: sent["retransmits"].as_u64(),
            lost: received["lost_packets"].as_u64().zip(received["packets"].as_u64()),
            intervals: seconds(&document["intervals"], intervals),
            rtt: rtt.filter(|_| suffix.is_empty()),
        };
        transfer.tell(test, &mut found);
    }
    if found.is_empty() {
        return Err(MeasurementError::NoResult);
    }
    if rtt.is_none() && direction == Some(Direction::Download) && !udp {
        found.notes.push("no round trips: with -R the sender is at the other end (mean_rtt is 0)".into());
    }
    Ok(found)
}

/// The events of `--json-stream` as the document that `--json` writes.
fn stream(events: &[Value]) -> Value {
    let data = |name: &str| events.iter().find(|event| event["event"] == name).map(|event| &event["data"]);
    let intervals: Vec<&Value> =
        events.iter().filter(|event| event["event"] == "interval").map(|event| &event["data"]).collect();
    let error = data("error").and_then(Value::as_str);
    serde_json::json!({ "start": data("start"), "intervals": intervals, "end": data("end"), "error": error })
}

/// The rates of the seconds that count.
fn seconds(intervals: &Value, sum: &str) -> Vec<f64> {
    let none = Vec::new();
    let all = intervals.as_array().unwrap_or(&none).iter().map(|interval| &interval[sum]);
    all.filter(|sum| sum["omitted"].as_bool() != Some(true))
        .filter_map(|sum| number(&sum["bits_per_second"]))
        .collect()
}

/// How sure the mean of the seconds is: the standard deviation of its logarithm.
fn variation(seconds: &[f64]) -> f64 {
    let rates: Vec<f64> = seconds.iter().copied().filter(|bits| *bits > 0.0).map(libm::log).collect();
    // Seconds average out, but what one transfer met, another may not: never surer than 6 %.
    if rates.len() < 3 {
        0.2
    } else {
        let mean = stats::standard_deviation(&rates) / libm::sqrt(rates.len() as f64);
        libm::sqrt(mean * mean + 0.06 * 0.06).min(0.5)
    }
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
        count: None,
        loaded: true,
        smoothed: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_iperf3_writes() {
        let found = parse(super::super::tests::IPERF).unwrap();
        let [rate] = found.rates[..] else { panic!("{found:?}") };
        assert_eq!((rate.bits, rate.direction), (18_900_000.0, Some(Direction::Download)));
        assert!(rate.sd >= 0.06 && rate.sd < 0.1, "{}", rate.sd);
        let udp = r#"{"start":{"test_start":{"protocol":"UDP","reverse":0}},
            "end":{"sum":{"bits_per_second":5e6,"lost_packets":12,"packets":4000}}}"#;
        let found = parse(udp).unwrap();
        let lost = Counted { lost: 12, sent: 4000, round_trip: false };
        assert_eq!((found.loss, found.rates[0].direction), (Some(lost), Some(Direction::Upload)));
        let sender = r#"{"end":{"streams":[{"sender":{"min_rtt":20000,"mean_rtt":45000,"max_rtt":90000}}]}}"#;
        let rtt = parse(sender).unwrap().rtt.unwrap();
        assert_eq!((rtt.min, rtt.max, rtt.loaded), (20.0, 90.0, true));
        assert!(
            parse(r#"{"error":"unable to connect"}"#).unwrap_err().to_string().contains("unable to connect")
        );
    }

    /// A TCP test of ten seconds: what `test_start` and `end` say besides.
    fn tcp(test: &str, end: &str) -> Measured {
        let text = format!(
            r#"{{"start":{{"test_start":{{"protocol":"TCP","reverse":1{test}}}}},"end":{{"streams":[],
                "sum_sent":{{"seconds":10,"bytes":25000000,"bits_per_second":2e7,"retransmits":400}},
                "sum_received":{{"seconds":10,"bytes":25000000,"bits_per_second":2e7}}{end}}}}}"#
        );
        parse(&text).unwrap()
    }

    #[test]
    fn a_rate_is_at_least_what_was_seen_unless_the_link_was_full() {
        let rtt = |mean: u64| {
            let sender = format!(r#"{{"sender":{{"min_rtt":4000,"mean_rtt":{mean},"max_rtt":90000}}}}"#);
            format!(r#","streams":[{sender}]"#)
        };
        let open = |test: &str, end: &str| tcp(test, end).rates[0].at_least;
        assert!(open("", ""), "losses may have limited it");
        assert!(open("", &rtt(4_200)), "no queue grew");
        assert!(!open("", &rtt(80_000)), "the queue grew");
        assert!(!open(r#","num_streams":8"#, ""), "eight flows share the losses");
        assert!(!open("", r#","sender_tcp_congestion":"bbr""#), "BBR doesn't slow down for them");
        assert!(open(r#","num_streams":8,"target_bitrate":21000000"#, ""), "no more was sent");
        assert!(!open(r#","num_streams":8,"target_bitrate":90000000"#, ""), "the link was slower than asked");
        let udp = |lost: u64, target: u64| {
            let text = format!(
                r#"{{"start":{{"test_start":{{"protocol":"UDP","reverse":1,"target_bitrate":{target}}}}},
                    "end":{{"sum_received":{{"seconds":10,"bits_per_second":1.9e7,"lost_packets":{lost},
                        "packets":43164}}}}}}"#
            );
            parse(&text).unwrap()
        };
        let overload = udp(26_600, 50_000_000);
        assert!(!overload.rates[0].at_least && overload.loss.is_none(), "{overload:?}");
        let fits = udp(43, 19_000_000);
        assert!(fits.rates[0].at_least && fits.loss.unwrap().lost == 43, "{fits:?}");
        let short = r#"{"start":{"test_start":{"protocol":"TCP","reverse":0,"bytes":10240}},
            "end":{"sum_received":{"seconds":0.129,"bytes":14480,"bits_per_second":898444}}}"#;
        assert!(parse(short).unwrap().rates[0].at_least);
    }

    #[test]
    fn both_directions_and_events_are_read_and_several_results_are_named() {
        let bidir = r#"{"start":{"test_start":{"protocol":"TCP","reverse":0,"bidir":1}},"end":{
            "sum_received":{"seconds":10,"bits_per_second":4800000},
            "sum_received_bidir_reverse":{"seconds":10,"bits_per_second":47200000}}}"#;
        let rates: Vec<_> =
            parse(bidir).unwrap().rates.iter().map(|rate| (rate.direction, rate.bits)).collect();
        assert_eq!(rates, [(Some(Direction::Upload), 4.8e6), (Some(Direction::Download), 4.72e7)]);
        let events = concat!(
            r#"{"event":"start","data":{"test_start":{"protocol":"TCP","reverse":1}}}"#,
            "\n",
            r#"{"event":"end","data":{"sum_received":{"seconds":10,"bits_per_second":19000000}}}"#
        );
        assert_eq!(parse(events).unwrap().rates[0].bits, 1.9e7);
        let twice = bidir.repeat(2);
        assert_eq!(parse(&twice).unwrap_err(), MeasurementError::SeveralResults(2));
    }
}
