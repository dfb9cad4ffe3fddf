//! Transfers of other programs than iperf3: `netperf`, `nuttcp`, `wget`, and `iperf -y C` of iperf 2.

use ropewalk_sim::Direction;

use super::iperf::{Test, Transfer};
use super::{Input, Measured, MeasurementError, RoundTrip, positive};

/// `MIGRATED TCP STREAM TEST from ... to ...`; the numbers of the result stand under `10^6bits/sec`.
pub(super) fn read_netperf(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let is_test = |line: &&str| line.contains("TCP STREAM TEST") || line.contains("TCP MAERTS TEST");
    let tests = input.text.lines().filter(is_test).count();
    let head = input.text.lines().find(is_test)?;
    if tests > 1 {
        return Some(Err(MeasurementError::SeveralResults(tests)));
    }
    // Receive socket, send socket, message, seconds, rate.
    let numbers = input.text.lines().rev().find_map(|line| {
        let all: Option<Vec<f64>> = line.split_whitespace().map(positive).collect();
        all.filter(|all| all.len() == 5)
    });
    let factor = [("10^3bits", 1e3), ("10^6bits", 1e6), ("10^9bits", 1e9)];
    let factor = factor.into_iter().find(|(name, _)| input.text.contains(name)).map_or(1e6, |found| found.1);
    let direction = if head.contains("MAERTS") { Direction::Download } else { Direction::Upload };
    Some(match numbers {
        Some(all) => one(Transfer {
            direction: Some(direction),
            bits: all[4] * factor,
            seconds: Some(all[3]),
            ..Transfer::default()
        }),
        None => Err(MeasurementError::NoResult),
    })
}

/// `  112.5 MB /  10.05 sec =   93.98 Mbps 3 %TX 8 %RX 0 retrans 21.30 msRTT`.
pub(super) fn read_nuttcp(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let last = input.text.lines().rfind(|line| line.contains(" sec = ") && line.contains("bps"))?;
    let words: Vec<&str> = last.split_whitespace().filter(|word| *word != "/" && *word != "=").collect();
    let before = |name: &str| {
        words.iter().position(|word| *word == name).and_then(|at| positive(words[at.checked_sub(1)?]))
    };
    let units = [("Kbps", 1e3), ("Mbps", 1e6), ("Gbps", 1e9)];
    let bits = units.into_iter().find_map(|(name, factor)| before(name).map(|number| number * factor))?;
    let bytes = before("MB").map(|number| number * 1_048_576.0);
    let lines = input.text.lines().filter(|line| line.contains(" sec = "));
    let intervals = lines.clone().count().saturating_sub(1);
    let found = one(Transfer {
        direction: None,
        bits,
        seconds: before("sec"),
        bytes,
        retransmits: before("retrans").map(|number| number as u64),
        intervals: Vec::with_capacity(intervals),
        ..Transfer::default()
    });
    Some(found.map(|mut found| {
        // Taken as the connection was opened.
        found.rtt = before("msRTT").filter(|ms| *ms > 0.0 && *ms < 1e6).map(|ms| RoundTrip {
            min: ms,
            mean: ms,
            sd: 0.1 * ms,
            max: ms,
            count: Some(2),
            loaded: false,
            smoothed: false,
        });
        found.notes.push("which way isn't said: taken as both".into());
        found
    }))
}

/// `2026-01-01 12:00:09 (11.1 MB/s) - '/dev/null' saved [104857600/104857600]`: one short flow rarely fills a
/// link.
pub(super) fn read_wget(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let saved: Vec<&str> =
        input.text.lines().filter(|line| line.contains("/s) - ") && line.contains('[')).collect();
    let rate = |line: &&str| {
        let (_, rest) = line.split_once('(')?;
        let (rate, _) = rest.split_once("/s) - ")?;
        let (number, unit) = rate.split_once(' ')?;
        let factor = match unit {
            "B" => 1.0,
            "KB" => 1024.0,
            "MB" => 1_048_576.0,
            "GB" => 1_073_741_824.0,
            _ => return None,
        };
        positive(&number.replace(',', ".")).map(|number| number * factor * 8.0)
    };
    let best = saved.iter().filter_map(rate).reduce(f64::max)?;
    let mut found = Measured::default();
    let bits = Some(best).filter(|bits| (1000.0..=1e12).contains(bits));
    if let Some(bits) = bits {
        let direction = Some(Direction::Download);
        found.rates.push(super::Throughput { bits, sd: 0.3, direction, at_least: true });
        found.notes.push(super::at_least(direction, bits, "one flow; `iperf3 -R -P 8` would tell"));
    }
    Some(Ok(found))
}

/// `20260101120000,10.0.0.7,47000,192.0.2.1,5001,3,0.0-10.0,25000000,20000000`; UDP has five more.
pub(super) fn read_iperf_csv(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [when, _, _, _, _, id, span, bytes, bits, rest @ ..] = cells.as_slice() else { return None };
        let is_date = when.len() >= 14 && positive(when.split('.').next()?).is_some();
        if !is_date || !matches!(rest.len(), 0 | 5) {
            return None;
        }
        let (from, to) = span.split_once('-')?;
        let count = |at: usize| rest.get(at).and_then(|cell| cell.parse::<u64>().ok());
        let lost = count(1).zip(count(2));
        Some((
            id.parse::<i64>().ok()?,
            (positive(from)?, positive(to)?),
            positive(bytes)?,
            positive(bits)?,
            lost,
        ))
    };
    let lines = || input.text.lines().filter(|line| !line.trim().is_empty());
    let rows: Vec<_> = lines().map_while(row).collect();
    if rows.is_empty() || rows.len() != lines().count() {
        return None;
    }
    let longest = rows.iter().map(|of| of.1.1 - of.1.0).fold(0.0, f64::max);
    // The sum has the number -1; one flow has none.
    let of = |id: i64| rows.iter().filter(move |of| of.0 == id);
    let id = if of(-1).next().is_some() { -1 } else { rows[rows.len() - 1].0 };
    let whole: Vec<_> = of(id).filter(|of| of.1.0 == 0.0 && of.1.1 - of.1.0 >= 0.9 * longest).collect();
    let (_, span, bytes, bits, lost) = **whole.last()?;
    let streams = rows.iter().map(|of| of.0).filter(|id| *id >= 0).collect::<std::collections::BTreeSet<_>>();
    let test = Test { udp: lost.is_some(), streams: streams.len() as u64, ..Test::default() };
    let transfer = Transfer {
        direction: None,
        bits,
        seconds: Some(span.1 - span.0),
        bytes: Some(bytes),
        lost,
        intervals: of(id).filter(|of| of.1.1 - of.1.0 < 0.5 * longest).map(|of| of.3).collect(),
        ..Transfer::default()
    };
    Some(told(test, transfer).map(|mut found| {
        found.notes.push("which way isn't said: taken as both".into());
        found
    }))
}

fn one(transfer: Transfer) -> Result<Measured, MeasurementError> {
    told(Test { streams: 1, ..Test::default() }, transfer)
}

fn told(test: Test, transfer: Transfer) -> Result<Measured, MeasurementError> {
    if !(1000.0..=1e12).contains(&transfer.bits) {
        return Err(MeasurementError::NoResult);
    }
    let mut found = Measured::default();
    transfer.tell(test, &mut found);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn rate(text: &str) -> (u64, Option<Direction>, bool) {
        let found = parse("f", text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let [rate] = found.rates[..] else { panic!("{found:?}") };
        (rate.bits as u64, rate.direction, rate.at_least)
    }

    #[test]
    fn netperf_and_nuttcp() {
        let text = "MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to 192.0.2.1 () port 0 \
                    AF_INET : demo
Recv   Send    Send
Socket Socket  Message  Elapsed
Size   Size    Size     Time     Throughput
bytes  bytes   bytes    secs.    10^6bits/sec

131072  16384  16384    10.03      93.21\n";
        let (bits, direction, _) = rate(text);
        assert_eq!((bits, direction), (93_210_000, Some(Direction::Upload)));
        assert_eq!(rate(&text.replace("STREAM", "MAERTS")).1, Some(Direction::Download));
        assert!(parse("f", &text.repeat(2)).unwrap_err().message.contains("2 results"));
        let text = "  112.5625 MB /  10.05 sec =   93.9873 Mbps 3 %TX 8 %RX 0 retrans 21.30 msRTT\n";
        let found = parse("f", text).unwrap();
        assert_eq!((found.rtt.unwrap().mean, found.retransmitted.unwrap().0), (21.3, 0));
        assert_eq!((rate(text).0, rate(text).1), (93_987_300, None));
    }

    #[test]
    fn wget_and_the_csv_of_iperf_2() {
        let text = "Length: 104857600 (100M) [application/octet-stream]\nSaving to: '/dev/null'\n
2026-01-01 12:00:09 (11.1 MB/s) - '/dev/null' saved [104857600/104857600]\n";
        assert_eq!(rate(text), (93_113_548, Some(Direction::Download), true));
        let row = |span: &str, bits: u32| {
            format!("20260101120000,10.0.0.7,47000,192.0.2.1,5001,3,{span},1,{bits}\n")
        };
        let text = row("0.0-1.0", 19_000_000) + &row("1.0-2.0", 21_000_000) + &row("0.0-10.0", 20_000_000);
        assert_eq!((rate(&text).0, rate(&text).1), (20_000_000, None));
        let udp = "20260101120000,192.0.2.1,5001,10.0.0.7,47000,3,0.0-10.0,1,1048576,0.2,10,893,1.12,0\n";
        // A line that was cut off.
        for length in 0..udp.len() {
            let _ = parse("f", &udp[..length]);
        }
        let found = parse("f", udp).unwrap();
        assert_eq!(found.loss.map(|of| (of.lost, of.sent, of.round_trip)), Some((10, 893, false)));
        assert!(found.rates[0].at_least, "{found:?}");
    }
}
