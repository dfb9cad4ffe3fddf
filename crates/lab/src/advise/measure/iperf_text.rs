//! What iperf3 prints without `--json`, at the client or the server; iperf 2 likewise. The lines of the whole
//! test count: `[SUM]` where there are several flows, the receiver's where there is one.

use ropewalk_settings::units;
use ropewalk_sim::Direction;

use super::iperf::{Test, Transfer};
use super::{Input, Measured, MeasurementError, positive};

/// `[  5][TX-C]   0.00-10.00  sec  22.9 MBytes  19.2 Mbits/sec   12             sender`.
struct Line<'a> {
    /// `5`, `SUM`.
    id: &'a str,
    /// `TX-C`, of `--bidir`.
    role: Option<&'a str>,
    from: f64,
    to: f64,
    bytes: f64,
    bits: f64,
    /// What follows the rate.
    rest: Vec<&'a str>,
}

fn line(text: &str) -> Option<Line<'_>> {
    let (id, rest) = text.trim_start().strip_prefix('[')?.split_once(']')?;
    let (role, rest) = match rest.strip_prefix('[') {
        Some(role) => role.split_once(']').map(|(role, rest)| (Some(role), rest))?,
        None => (None, rest),
    };
    // `0.0- 1.0 sec` of iperf 2 has a space.
    let (span, rest) = rest.split_once(" sec ")?;
    let (from, to) = span.trim().split_once('-')?;
    let mut words = rest.split_whitespace();
    let bytes = units_of(words.next()?, words.next()?)?;
    let bits = rate(words.next()?, words.next()?)?;
    let (from, to) = (positive(from.trim())?, positive(to.trim())?);
    Some(Line { id: id.trim(), role, from, to, bytes, bits, rest: words.collect() })
}

/// `19.2 Mbits/sec`; with `-f M` `2.29 MBytes/sec`, in powers of 1024.
fn rate(number: &str, unit: &str) -> Option<f64> {
    match unit.strip_suffix("/sec").filter(|unit| unit.ends_with("Bytes")) {
        Some(unit) => units_of(number, unit).map(|bytes| bytes * 8.0),
        None => units::rate(&format!("{number} {unit}")).ok().map(|bits| bits as f64),
    }
}

/// `22.9 MBytes`: powers of 1024.
fn units_of(number: &str, unit: &str) -> Option<f64> {
    let factor = match unit {
        "Bytes" => 1.0,
        "KBytes" => 1024.0,
        "MBytes" => 1_048_576.0,
        "GBytes" => 1_073_741_824.0,
        "TBytes" => 1_099_511_627_776.0,
        _ => return None,
    };
    positive(number).map(|number| number * factor)
}

/// `0/906 (0%)`: lost and sent.
fn lost(words: &[&str]) -> Option<(u64, u64)> {
    words.iter().find_map(|word| {
        let (lost, sent) = word.split_once('/')?;
        Some((lost.parse().ok()?, sent.parse().ok()?))
    })
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let text = input.text;
    let is_ours = (text.contains("bits/sec") || text.contains("Bytes/sec"))
        && text.lines().any(|text| line(text).is_some());
    is_ours.then(|| parse(text))
}

fn parse(text: &str) -> Result<Measured, MeasurementError> {
    if let Some(error) = text.lines().find_map(|line| line.strip_prefix("iperf3: error - ")) {
        return Err(MeasurementError::Iperf(error.chars().take(200).collect()));
    }
    let tests =
        text.matches("Accepted connection from").count().max(text.matches("Connecting to host").count());
    if tests > 1 {
        return Err(MeasurementError::SeveralResults(tests));
    }
    let lines: Vec<Line<'_>> = text.lines().filter_map(line).collect();
    let is_server = text.contains("Server listening");
    let reverse = text.contains("Reverse mode");
    let streams = text.matches(" connected ").count() as u64;
    let udp = text.contains("Datagrams");
    let mut found = Measured::default();
    for role in [None, Some("TX-C"), Some("RX-C"), Some("TX-S"), Some("RX-S")] {
        let of: Vec<&Line<'_>> = lines.iter().filter(|line| line.role == role).collect();
        let whole = of.iter().map(|line| line.to - line.from).fold(0.0, f64::max);
        // The summary of the test has the longest span; of the same span the sum of the flows.
        let total = |word: &str| {
            let fits = |line: &&&Line<'_>| {
                line.from == 0.0 && line.to >= 0.9 * whole && (word.is_empty() || line.rest.contains(&word))
            };
            let all: Vec<&&Line<'_>> = of.iter().filter(fits).collect();
            all.iter().rev().find(|line| line.id == "SUM").or(all.last()).map(|line| **line)
        };
        let (sent, received) = (total("sender"), total("receiver"));
        let Some(counts) = received.or(sent).or_else(|| total("")) else { continue };
        let direction = match role {
            Some("TX-C" | "RX-S") => Some(Direction::Upload),
            Some(_) => Some(Direction::Download),
            // A server's log has its own side alone; iperf 2's, which receives, doesn't name it.
            None if is_server && sent.is_some() && received.is_none() => Some(Direction::Download),
            None if is_server => Some(Direction::Upload),
            None if reverse => Some(Direction::Download),
            None => Some(Direction::Upload),
        };
        let id = counts.id;
        let intervals = of
            .iter()
            .filter(|line| line.id == id && line.to - line.from < 0.5 * whole && line.to > line.from);
        let test = Test {
            udp,
            streams: if role.is_some() { streams / 2 } else { streams },
            target: sent.filter(|_| udp).map(|line| line.bits),
            model_based: false,
        };
        let transfer = Transfer {
            direction,
            bits: counts.bits,
            sent_only: received.is_none() && sent.is_some(),
            seconds: Some(counts.to - counts.from),
            bytes: sent.map(|line| line.bytes),
            retransmits: sent.filter(|_| !udp).and_then(|line| line.rest.first()?.parse().ok()),
            lost: lost(&counts.rest),
            intervals: intervals.map(|line| line.bits).collect(),
            rtt: None,
        };
        transfer.tell(test, &mut found);
    }
    if found.is_empty() { Err(MeasurementError::NoResult) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::super::parse as read;
    use super::*;

    const CLIENT: &str = "Connecting to host 192.0.2.1, port 5201
[  5] local 10.0.0.7 port 46362 connected to 192.0.2.1 port 5201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  2.25 MBytes  18.9 Mbits/sec    0    212 KBytes
[  5]   1.00-2.00   sec  2.30 MBytes  19.3 Mbits/sec    2    180 KBytes
[  5]   2.00-3.00   sec  2.28 MBytes  19.1 Mbits/sec    0    190 KBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  22.9 MBytes  19.2 Mbits/sec   2             sender
[  5]   0.00-10.04  sec  22.5 MBytes  18.8 Mbits/sec                  receiver

iperf Done.
";

    #[test]
    fn what_the_client_prints() {
        let found = read("f", CLIENT).unwrap();
        let [rate] = found.rates[..] else { panic!("{found:?}") };
        assert_eq!((rate.bits, rate.direction, rate.at_least), (18.8e6, Some(Direction::Upload), false));
        assert!(rate.sd < 0.07 && found.retransmitted.unwrap().0 == 2, "{found:?}");
        let reverse =
            CLIENT.replace("[  5] local", "Reverse mode, remote host 192.0.2.1 is sending\n[  5] local");
        assert_eq!(read("f", &reverse).unwrap().rates[0].direction, Some(Direction::Download));
        let error = "iperf3: error - unable to connect to server: Connection \
                     refused\n[  5]   0.00-1.00   sec  \
                     2.25 MBytes  18.9 Mbits/sec\n";
        assert!(read("f", error).unwrap_err().message.contains("Connection refused"));
    }

    #[test]
    fn servers_sums_both_directions_and_udp() {
        let server = "Server listening on 5201 (test #1)\nAccepted connection from 192.0.2.9, port 46352
[  5] local 10.0.0.7 port 5201 connected to 192.0.2.9 port 46362
[  5]   0.00-1.00   sec  2.45 MBytes  21.0 Mbits/sec
[  5]   0.00-10.00   sec  22.9 MBytes  19.2 Mbits/sec                  receiver
";
        let found = read("f", server).unwrap();
        assert_eq!((found.rates[0].bits, found.rates[0].direction), (19.2e6, Some(Direction::Upload)));
        assert!(read("f", &server.repeat(2)).unwrap_err().message.contains("2 results"));
        let sum = "[SUM][TX-C]   0.00-10.00   sec  1.21 GBytes  5.18 Mbits/sec    2             sender
[  5][TX-C]   0.00-10.00   sec  1.21 GBytes  1.18 Mbits/sec    2             receiver
[SUM][TX-C]   0.00-10.00   sec  1.20 GBytes  5.16 Mbits/sec                  receiver
[SUM][RX-C]   0.00-10.00   sec  1.18 GBytes  50.6 Mbits/sec                  receiver\n";
        let rates: Vec<_> =
            read("f", sum).unwrap().rates.iter().map(|one| (one.bits, one.direction)).collect();
        assert_eq!(rates, [(5.16e6, Some(Direction::Upload)), (50.6e6, Some(Direction::Download))]);
        let udp = |rate: &str, lost: &str| {
            format!(
                "[ ID] Interval Transfer Bitrate Jitter Lost/Total Datagrams
[  5]   0.00-10.00   sec   1.25 MBytes  50.0 Mbits/sec  0.000 ms  0/43164 (0%)  sender
[  5]   0.00-10.00   sec   1.25 MBytes  {rate} Mbits/sec  0.006 ms  {lost}  receiver\n"
            )
        };
        let fits = read("f", &udp("49.9", "20/43164 (0.05%)")).unwrap();
        assert!(fits.rates[0].at_least && fits.loss.unwrap().lost == 20, "{fits:?}");
        let over = read("f", &udp("19.2", "26600/43164 (62%)")).unwrap();
        assert!(!over.rates[0].at_least && over.loss.is_none(), "{over:?}");
        let bytes =
            CLIENT.replace("18.8 Mbits/sec", "2.25 MBytes/sec").replace("19.2 Mbits/sec", "2350 KBytes/sec");
        assert_eq!(read("f", &bytes).unwrap().rates[0].bits, 2.25 * 1_048_576.0 * 8.0);
        let several = "[ ID] Interval           Transfer     Bitrate         Retr
[  5] local 10.0.0.7 port 1 connected to 192.0.2.1 port 5201\n[  7] local 10.0.0.7 port 2 connected to \
192.0.2.1 port 5201
[  5]   0.00-10.00  sec  11.9 MBytes  10.0 Mbits/sec    3             sender
[  5]   0.00-10.00  sec  11.9 MBytes  10.0 Mbits/sec                  receiver
[  7]   0.00-10.00  sec  11.9 MBytes  9.90 Mbits/sec    2             sender
[  7]   0.00-10.00  sec  11.9 MBytes  9.90 Mbits/sec                  receiver
[SUM]   0.00-10.00  sec  23.8 MBytes  20.0 Mbits/sec    5             sender
[SUM]   0.00-10.00  sec  23.8 MBytes  19.9 Mbits/sec                  receiver\n";
        let found = read("f", several).unwrap();
        assert_eq!((found.rates[0].bits, found.retransmitted.unwrap().0), (19.9e6, 5));
        let second = "[  3]  0.0-10.0 sec  22.5 MBytes  18.8 Mbits/sec\n";
        assert_eq!(read("f", second).unwrap().rates[0].bits, 18.8e6);
        let second = format!("Server listening on TCP port 5001\n{second}");
        assert_eq!(read("f", &second).unwrap().rates[0].direction, Some(Direction::Upload));
    }
}
