//! What `speedtest-cli` (with `--simple`, and as CSV) and Ookla's `speedtest` print as text.

use ropewalk_settings::units;

use super::speedtest::{Told, measured, times};
use super::{Input, Measured, MeasurementError, positive};

/// The number in front of a unit: `21.34 ms`.
fn before(text: &str, unit: &str) -> Option<f64> {
    let (number, _) = text.split_once(unit)?;
    positive(number.split_whitespace().next_back()?)
}

/// A rate at the beginning: `93.21 Mbit/s`, `93.21 Mbps (data used: 110.3 MB)`.
fn rate(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    units::rate(&format!("{} {}", words.next()?, words.next()?)).ok().map(|bits| bits as f64)
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    if let Some(found) = csv(input.text) {
        return Some(found);
    }
    let mut of = Told::default();
    let (mut loss, mut results) = (None, 0);
    let mut under_download = false;
    for line in input.text.lines().map(str::trim) {
        let loaded = std::mem::take(&mut under_download);
        if let Some((_, rest)) = line.split_once("Latency:") {
            // `21.34 ms   (jitter: 1.20ms, low: 20.10ms, high: 24.00ms)`.
            of.ping = spread(rest);
        } else if let Some(rest) = line.strip_prefix("Ping:") {
            of.ping = times(before(rest, "ms"), None, None, None);
        } else if let Some((_, rest)) = line.strip_prefix("Hosted by").and_then(|line| line.rsplit_once("]:"))
        {
            of.ping = times(before(rest, "ms"), None, None, None);
        } else if let Some(bits) = line.strip_prefix("Download:").and_then(rate) {
            (of.rates[1], results, under_download) = (Some(bits), results + 1, true);
        } else if let Some(bits) = line.strip_prefix("Upload:").and_then(rate) {
            of.rates[0] = Some(bits);
        } else if let Some(rest) = line.strip_prefix("Packet Loss:") {
            loss = before(rest, "%");
        } else if loaded && line.contains("jitter:") {
            of.under_load = spread(line).map(|rtt| super::RoundTrip { loaded: true, ..rtt });
        }
    }
    match results {
        0 => None,
        1 => Some(Ok(measured(loss, &of))),
        several => Some(Err(MeasurementError::SeveralResults(several))),
    }
}

/// `21.34 ms   (jitter: 1.20ms, low: 20.10ms, high: 24.00ms)`.
fn spread(text: &str) -> Option<super::RoundTrip> {
    let of = |name: &str| before(text.split_once(name)?.1, "ms");
    times(before(text, "ms"), of("jitter:"), of("low:"), of("high:"))
}

/// `speedtest-cli --csv --csv-header`:
/// `Server ID,Sponsor,Server Name,Timestamp,Distance,Ping,Download,Upload,Share,IP Address`.
fn csv(text: &str) -> Option<Result<Measured, MeasurementError>> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let head: Vec<&str> = lines.next()?.split(',').map(str::trim).collect();
    let place = |name: &str| head.iter().position(|cell| *cell == name);
    place("Server ID").or_else(|| place("Sponsor"))?;
    let (ping, down, up) = (place("Ping")?, place("Download")?, place("Upload")?);
    let rows: Vec<Vec<&str>> = lines.map(|line| cells(line)).collect();
    let [row] = rows.as_slice() else {
        return Some(match rows.len() {
            0 => Err(MeasurementError::NoResult),
            several => Err(MeasurementError::SeveralResults(several)),
        });
    };
    let at = |place: usize| row.get(place).and_then(|cell| positive(cell));
    let told = Told { ping: times(at(ping), None, None, None), rates: [at(up), at(down)], ..Told::default() };
    Some(Ok(measured(None, &told)))
}

/// Between commas; what stands in quotes may have some.
fn cells(line: &str) -> Vec<&str> {
    let (mut found, mut start, mut quoted) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => {
                found.push(line[start..at].trim().trim_matches('"'));
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(line[start..].trim().trim_matches('"'));
    found
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    fn read(text: &str) -> (f64, [u64; 2]) {
        let found = parse("f", text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let [up, down] = found.rates[..] else { panic!("{found:?}") };
        (found.rtt.unwrap().mean, [up.bits as u64, down.bits as u64])
    }

    const BOTH: [u64; 2] = [18_440_000, 93_210_000];

    #[test]
    fn texts_of_two_programs() {
        assert_eq!(read("Ping: 21.345 ms\nDownload: 93.21 Mbit/s\nUpload: 18.44 Mbit/s\n"), (21.345, BOTH));
        let text = "Retrieving speedtest.net configuration...\nTesting from Example (192.0.2.5)...
Hosted by Example (Berlin) [3.14 km]: 21.345 ms\nTesting download speed......\nDownload: 93.21 Mbit/s
Testing upload speed......\nUpload: 18.44 Mbit/s\n";
        assert_eq!(read(text), (21.345, BOTH));
        assert!(parse("f", &text.repeat(2)).unwrap_err().message.contains("2 results"));
        let ookla =
            "\n   Speedtest by Ookla\n\n      Server: Example - Berlin (id: 1234)\n         ISP: Example
Idle Latency:    21.34 ms   (jitter: 1.20ms, low: 20.10ms, high: 24.00ms)
    Download:    93.21 Mbps (data used: 110.3 MB)
                 88.10 ms   (jitter: 20.10ms, low: 22.00ms, high: 300.10ms)
      Upload:    18.44 Mbps (data used: 20.3 MB)
                 60.10 ms   (jitter: 10.10ms, low: 22.00ms, high: 200.10ms)
 Packet Loss:     1.0%\n";
        assert_eq!(read(ookla), (21.34, BOTH));
        let found = parse("f", ookla).unwrap();
        assert_eq!((found.under_load.unwrap().max, found.loss.unwrap().lost), (300.1, 3));
        let csv = "Server ID,Sponsor,Server Name,Timestamp,Distance,Ping,Download,Upload,Share,IP Address
1234,\"Example, Inc.\",Berlin,2026-01-01T12:00:00.000000Z,3.14,21.345,93210000.5,18440000.25,,192.0.2.5\n";
        assert_eq!(read(csv), (21.345, BOTH));
    }
}
