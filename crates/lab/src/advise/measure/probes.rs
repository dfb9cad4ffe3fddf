//! Round trips of other programs than ping: `traceroute` (the last hop counts), `tcping`, `twping` of OWAMP,
//! PowerShell's `Test-Connection`, and the results of RIPE Atlas as JSON.

use super::{Counted, Input, Measured, MeasurementError, RoundTrip, number, positive, round_trips};

fn told(samples: &[f64], counted: Option<(u64, u64)>) -> Result<Measured, MeasurementError> {
    let (rtt, note) = round_trips(samples, false).ok_or(MeasurementError::NoAnswer)?;
    let loss = counted.filter(|of| of.1 > 0).map(|(lost, sent)| Counted { lost, sent, round_trip: true });
    let mut notes: Vec<String> = note.into_iter().collect();
    if loss.is_none() {
        notes.push("loss unknown: nothing counts what was sent".into());
    }
    Ok(Measured { rtt: Some(rtt), loss, notes, ..Measured::default() })
}

/// ` 3  192.0.2.1 (192.0.2.1)  40.1 ms  40.0 ms *`.
pub(super) fn read_traceroute(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let mut lines = input.text.lines().map(str::trim);
    lines.next().filter(|first| first.starts_with("traceroute") || first.starts_with("Tracing route"))?;
    let mut last = None;
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first().is_none_or(|hop| hop.parse::<u8>().is_err()) {
            continue;
        }
        let of = |word: &str| positive(word.trim_start_matches('<'));
        let pairs = words.windows(2).filter(|pair| pair[1] == "ms");
        let samples: Vec<f64> = pairs.filter_map(|pair| of(pair[0])).collect();
        last = Some((samples, words.iter().filter(|word| **word == "*").count()));
    }
    let (samples, _) = last?;
    Some(told(&samples, None).map(|mut found| {
        found
            .notes
            .push("of a route the last hop is read: three round trips; `ping -c 30` tells more".into());
        found
    }))
}

/// `Probing 192.0.2.1:443/tcp - Port is open - time=40.1ms`, `TCP connection ... time=40.1 ms`.
pub(super) fn read_tcping(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    input.text.contains("/tcp - ").then_some(())?;
    let mut samples = Vec::new();
    let mut sent = 0;
    for line in input.text.lines().filter(|line| line.contains("/tcp - ")) {
        sent += 1;
        let is_open = line.contains("Port is open");
        let time = line.split_once("time=").and_then(|(_, rest)| positive(rest.split("ms").next()?.trim()));
        samples.extend(time.filter(|_| is_open));
    }
    let lost = sent - samples.len() as u64;
    Some(told(&samples, Some((lost, sent))))
}

/// `100 sent, 1 lost (1.000%), ...` and `round-trip time min/median/max = 39.1/40.2/44 ms, (err=0.1 ms)`.
pub(super) fn read_twping(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let times = input.text.lines().find_map(|line| line.split_once("round-trip time min/median/max = "))?.1;
    let numbers: Vec<f64> = times.split_whitespace().next()?.split('/').map_while(positive).collect();
    let [min, median, max] = numbers[..] else { return None };
    let counts = input.text.lines().find_map(|line| {
        let (sent, rest) = line.split_once(" sent, ")?;
        let (lost, _) = rest.split_once(" lost")?;
        Some((lost.trim().parse::<u64>().ok()?, sent.trim().parse::<u64>().ok()?))
    });
    let count = counts.map_or(0, |(lost, sent)| sent.saturating_sub(lost));
    let rtt = RoundTrip {
        min,
        mean: median,
        sd: (max - min).max(0.0) / 4.0,
        max: max.max(min),
        count: Some(count),
        loaded: false,
        smoothed: false,
    };
    let loss = counts.filter(|of| of.1 > 0).map(|(lost, sent)| Counted {
        lost: lost.min(sent),
        sent,
        round_trip: true,
    });
    Some(Ok(Measured { rtt: Some(rtt), loss, ..Measured::default() }))
}

/// PowerShell's `Test-Connection`: a table whose column `Latency (ms)` or `Time(ms)` has a number or `*`.
pub(super) fn read_test_connection(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let mut lines = input.text.lines();
    let head = lines
        .find(|line| line.contains("Source") && (line.contains("Latency") || line.contains("Time(ms)")))?;
    // Columns are aligned to the left or to the right: a cell stands below a part of its name.
    let name = if head.contains("Latency") { "Latency" } else { "Time(ms)" };
    let start = head.find(name).map(|at| head[..at].chars().count())?;
    let end = start + name.len();
    let (mut samples, mut sent) = (Vec::new(), 0u64);
    for line in lines.filter(|line| line.split_whitespace().count() >= 4) {
        let below: String = line.chars().take(end).collect();
        let words = below.split_whitespace().next_back();
        let long = below.chars().count() > start && below.chars().skip(start).any(|c| !c.is_whitespace());
        match words.filter(|_| long) {
            Some("*") => sent += 1,
            Some(cell) => {
                if let Some(ms) = positive(cell) {
                    sent += 1;
                    samples.push(ms);
                }
            }
            None => {}
        }
    }
    let lost = sent - samples.len() as u64;
    (sent > 0).then(|| told(&samples, Some((lost, sent))))
}

/// RIPE Atlas: `"type": "ping"`, with `sent`, `rcvd` and `result`.
pub(super) fn read_atlas(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let pings: Vec<_> =
        input.json.iter().filter(|one| one["type"] == "ping" && one["result"].is_array()).collect();
    if pings.is_empty() {
        return None;
    }
    let targets: std::collections::BTreeSet<&str> =
        pings.iter().filter_map(|one| one["dst_addr"].as_str()).collect();
    if targets.len() > 1 {
        return Some(Err(MeasurementError::SeveralHosts(targets.into_iter().map(String::from).collect())));
    }
    let probes: std::collections::BTreeSet<u64> =
        pings.iter().filter_map(|one| one["prb_id"].as_u64()).collect();
    if probes.len() > 1 {
        return Some(Err(MeasurementError::SeveralHosts(
            probes.into_iter().map(|number| format!("from probe {number}")).collect(),
        )));
    }
    let results = pings.iter().flat_map(|one| one["result"].as_array().into_iter().flatten());
    let samples: Vec<f64> = results.filter_map(|answer| number(&answer["rtt"])).collect();
    let count = |key: &str| pings.iter().filter_map(|one| one[key].as_u64()).fold(0, u64::saturating_add);
    let (sent, back) = (count("sent"), count("rcvd"));
    Some(told(&samples, Some((sent.saturating_sub(back), sent))))
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    fn read(text: &str) -> (f64, f64, Option<(u64, u64)>) {
        let found = parse("f", text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let rtt = found.rtt.unwrap();
        (rtt.min, rtt.max, found.loss.map(|of| (of.lost, of.sent)))
    }

    #[test]
    fn routes_and_ports() {
        let route = "traceroute to 192.0.2.1 (192.0.2.1), 30 hops max, 60 byte packets
 1  198.51.100.1 (198.51.100.1)  1.123 ms  1.050 ms  0.990 ms
 2  * * *
 3  192.0.2.1 (192.0.2.1)  40.123 ms  40.050 ms  39.990 ms\n";
        assert_eq!(read(route), (39.99, 40.123, None));
        let silent = route.replace(" 3  192.0.2.1 (192.0.2.1)  40.123 ms  40.050 ms  39.990 ms", " 3  * * *");
        assert!(parse("f", &silent).unwrap_err().message.contains("not one answer"));
        let windows = "Tracing route to 192.0.2.1 over a maximum of 30 hops\n\n  1     1 ms    <1 ms     1 \
                       ms  198.51.100.1
  2    40 ms    41 ms    40 ms  192.0.2.1\n\nTrace complete.\n";
        assert_eq!(read(windows), (40.0, 41.0, None));
        let port = "Probing 192.0.2.1:443/tcp - Port is open - time=40.123ms
Probing 192.0.2.1:443/tcp - Port is open - time=41.5ms
Probing 192.0.2.1:443/tcp - No response - time=2000.1ms

Ping statistics for 192.0.2.1:443
     3 probes sent.
     2 successful, 1 failed.  (33.33% fail)
Approximate trip times in milli-seconds:
     Minimum = 40.123ms, Maximum = 41.5ms, Average = 40.8ms\n";
        assert_eq!(read(port), (40.123, 41.5, Some((1, 3))));
        let hping = "HPING 192.0.2.1 (eth0 192.0.2.1): S set, 40 headers + 0 data bytes
len=44 ip=192.0.2.1 ttl=57 DF id=0 sport=443 flags=SA seq=0 win=64240 rtt=40.1 ms
len=44 ip=192.0.2.1 ttl=57 DF id=0 sport=443 flags=SA seq=1 win=64240 rtt=41.9 ms

--- 192.0.2.1 hping statistic ---
4 packets transmitted, 2 packets received, 50% packet loss
round-trip min/avg/max = 40.1/41.0/41.9 ms\n";
        assert_eq!(read(hping), (40.1, 41.9, Some((2, 4))));
    }

    #[test]
    fn twping_and_power_shell() {
        let twping = "--- twping statistics from [198.51.100.2]:8760 to [192.0.2.1]:18760 ---
SID:\tc0000201e2
100 sent, 1 lost (1.000%), 0 send duplicates, 0 reflect duplicates
round-trip time min/median/max = 39.1/40.2/44 ms, (err=0.1 ms)
send time min/median/max = 19/20/22 ms, (err=0.1 ms)\n";
        assert_eq!(read(twping), (39.1, 44.0, Some((1, 100))));
        let seven = "\n   Destination: 192.0.2.1\n
Ping Source           Address                   Latency BufferSize Status
                                                   (ms)        (B)
---- ------           -------                   ------- ---------- ------
   1 LAPTOP           192.0.2.1                      40         32 Success
   2 LAPTOP           192.0.2.1                      42         32 Success
   3 LAPTOP           192.0.2.1                       *         32 TimedOut\n";
        assert_eq!(read(seven), (40.0, 42.0, Some((1, 3))));
        let five = "
Source        Destination     IPV4Address      IPV6Address                              Bytes    Time(ms)
------        -----------     -----------      -----------                              -----    --------
LAPTOP        192.0.2.1       192.0.2.1                                                 32       40
LAPTOP        192.0.2.1       192.0.2.1                                                 32       42\n";
        assert_eq!(read(five), (40.0, 42.0, Some((0, 2))));
    }

    #[test]
    fn probes_of_ripe_atlas() {
        let one = |target: &str| {
            format!(
                r#"{{"fw":5080,"type":"ping","prb_id":1,"dst_addr":"{target}","proto":"ICMP","sent":3,
                    "rcvd":2,"min":39.1,
                "avg":40.05,"max":41.0,"result":[{{"rtt":39.1}},{{"rtt":41.0}},{{"x":"*"}}]}}"#
            )
        };
        let text = format!("[{},{}]", one("192.0.2.1"), one("192.0.2.1"));
        assert_eq!(read(&text), (39.1, 41.0, Some((2, 6))));
        let several = format!("[{},{}]", one("192.0.2.1"), one("192.0.2.2"));
        assert!(parse("f", &several).unwrap_err().message.contains("192.0.2.1 and 192.0.2.2"));
    }
}
