//! Throughput over time in columns, as data sets of 5G and satellite links have it: CSV or separated by
//! spaces, with or without names, Mbit/s or kbit/s, seconds or milliseconds, both directions. It becomes a
//! trace: what the link carried at each moment.
//!
//! Where nothing was carried the trace is silent, and where rows are missing for up to ten seconds, too. A
//! longer gap is a pause of the recording: it is cut out.

use std::sync::Arc;

use ropewalk_link::RateTrace;
use serde_json::Value;

use super::{Input, Measured, MeasurementError, positive};
use crate::stats;

/// Bits that one opportunity of a trace carries.
const OPPORTUNITY: f64 = 12_000.0;

/// Opportunities that a trace has at most: an hour at 300 Mbit/s.
const MOST: usize = 100_000_000;

/// Opportunities from which a recording is long: of it every so many blocks of this many seconds are taken.
const LONG: f64 = 500_000.0;
const BLOCK: f64 = 10.0;

/// Seconds without a row from which the recording had paused.
const PAUSE: f64 = 10.0;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Column {
    Time,
    /// Rate by direction (upwards, downwards; both in one: `None`), and bits per second of its unit, if that
    /// is known.
    Rate(Option<usize>, Option<f64>),
    Other,
}

/// The unit that a name says.
fn unit(name: &str) -> Option<f64> {
    let lower = name.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    // Bytes have a capital.
    let bytes = ["MB/s", "MBps", "MB_s", "MByte"].iter().any(|word| name.contains(word))
        || has(&["mbyte", "megabyte"]);
    let kilobytes = ["kB/s", "KB/s", "kBps"].iter().any(|word| name.contains(word)) || has(&["kbyte"]);
    match () {
        () if bytes => Some(8e6),
        () if kilobytes => Some(8e3),
        () if has(&["gbit", "gbps", "gb/s"]) => Some(1e9),
        () if has(&["mbit", "mbps", "mb/s", "mb_per_s", "megabit"]) => Some(1e6),
        () if has(&["kbit", "kbps", "kb/s", "kilobit"]) => Some(1e3),
        () if has(&["bit/s", "bits/s", "bps", "bit_per_s", "bits_per_s"]) => Some(1.0),
        () if has(&["bytes/s", "bytes_per_s"]) => Some(8.0),
        () => None,
    }
}

fn column(name: &str) -> Column {
    let lower = name.trim().trim_matches('"').to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let has = |any: &[&str]| words.iter().any(|word| any.contains(word));
    let contains = |any: &[&str]| any.iter().any(|word| lower.contains(word));
    let down = contains(&["down", "recv", "receive"]) || has(&["dl", "rx", "in"]);
    let up = contains(&["upl", "upstream", "sent", "send"]) || has(&["ul", "up", "tx", "out"]);
    // A speed alone may be a car's.
    let is_rate = contains(&["bitrate", "throughput", "thput", "tput", "goodput", "bandwidth", "datarate"])
        || unit(name).is_some()
        || has(&["rate"])
        || contains(&["speed"]) && (up || down);
    if contains(&["time", "timestamp", "epoch", "second", "date", "zeit", "heure", "tiempo"])
        && unit(name).is_none()
        && !is_rate
        || has(&["t", "ts", "sec", "s", "ms"]) && !is_rate
    {
        Column::Time
    } else if (is_rate || has(&["dl", "ul", "down", "up", "download", "upload"]))
        && (up || down)
        && up != down
    {
        Column::Rate(Some(usize::from(down)), unit(name))
    } else if is_rate {
        Column::Rate(None, unit(name))
    } else {
        Column::Other
    }
}

/// A moment in seconds: a number (seconds, or since 1970 in ms, us, ns), or a time of day at the end of a
/// date.
fn moment(cell: &str) -> Option<f64> {
    let cell = cell.trim().trim_matches('"');
    if let Some(number) = positive(cell) {
        let factor = match number {
            n if n > 1e17 => 1e-9,
            n if n > 1e14 => 1e-6,
            n if n > 1e11 => 1e-3,
            _ => 1.0,
        };
        return Some(number * factor);
    }
    // `2019.11.28_07.27.31`, `2026-01-01T10:00:03.5Z`: the day doesn't matter but at midnight.
    let cell = cell.trim_end_matches('Z');
    let at = cell.rfind(['T', '_', ' '])?;
    let (date, time) = (&cell[..at], cell[at + 1..].split('+').next()?);
    let parts: Vec<f64> = time.splitn(3, [':', '.', '-']).map_while(positive).collect();
    let [hours, minutes, seconds] = parts[..] else { return None };
    let day: f64 = date.rsplit(|c: char| !c.is_ascii_digit()).find_map(positive)?;
    Some(day * 86_400.0 + hours * 3600.0 + minutes * 60.0 + seconds)
}

fn separator(line: &str) -> char {
    [';', '\t', ','].into_iter().find(|c| line.contains(*c)).unwrap_or(' ')
}

fn cells(line: &str, separator: char) -> Vec<&str> {
    if separator == ' ' {
        line.split_whitespace().collect()
    } else {
        line.split(separator).map(str::trim).collect()
    }
}

/// A number of a cell; between semicolons or tabs it may have a decimal comma.
fn value(cell: &str, separator: char) -> Option<f64> {
    let cell = cell.trim_matches('"');
    if separator == ',' { positive(cell) } else { positive(&cell.replace(',', ".")) }
}

/// The rows: a moment, and rates upwards and downwards.
struct Rows {
    times: Vec<Option<f64>>,
    rates: [Vec<Option<f64>>; 2],
    notes: Vec<String>,
}

fn rows(input: &Input<'_>) -> Option<Rows> {
    let mut lines = input
        .text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .peekable();
    let first = *lines.peek()?;
    let separator = separator(first);
    let is_data = |line: &str| cells(line, separator).iter().any(|cell| value(cell, separator).is_some());
    let named = !is_data(first);
    let columns: Vec<Column> = if named {
        lines.next();
        cells(first, separator).into_iter().map(column).collect()
    } else {
        match cells(first, separator).len() {
            1 => vec![Column::Rate(None, None)],
            2 => vec![Column::Time, Column::Rate(None, None)],
            // As most data sets have it.
            3 => vec![Column::Time, Column::Rate(Some(1), None), Column::Rate(Some(0), None)],
            _ => return None,
        }
    };
    let has_rate = columns.iter().any(|column| matches!(column, Column::Rate(..)));
    if !has_rate || columns.len() > 100 {
        return None;
    }
    let mut notes = Vec::new();
    if !named && columns.len() == 3 {
        notes.push("columns without names: taken as time, download, upload".to_string());
    }
    let time = columns.iter().position(|column| *column == Column::Time);
    // Of several columns for a direction the first counts.
    let of = |way: usize| {
        let one = |wanted: Option<usize>| {
            columns.iter().position(|c| matches!(c, Column::Rate(of, _) if *of == wanted))
        };
        one(Some(way))
    };
    let both = columns.iter().position(|column| matches!(column, Column::Rate(None, _)));
    let places = [of(0), of(1)];
    let places = if places == [None, None] { [both, both] } else { places };
    let (mut times, mut rates) = (Vec::new(), [Vec::new(), Vec::new()]);
    let mut bad = 0usize;
    for line in lines {
        let row = cells(line, separator);
        let at = |place: Option<usize>| place.and_then(|place| row.get(place));
        let found = places.map(|place| at(place).and_then(|cell| value(cell, separator)));
        if found == [None, None] {
            bad += 1;
        }
        times.push(at(time).and_then(|cell| moment(cell)));
        rates[0].push(found[0]);
        rates[1].push(found[1]);
    }
    if times.is_empty() || bad * 5 > times.len() {
        return None;
    }
    // Both directions have the same unit.
    let known: Vec<f64> = rates.iter().flatten().flatten().copied().collect();
    let typical = if known.is_empty() { 0.0 } else { stats::quantile(&stats::sorted(&known), 0.9) };
    for (way, place) in places.into_iter().enumerate() {
        let Some(place) = place else { continue };
        let said = match columns[place] {
            Column::Rate(_, said) => said.or_else(|| unit(input.name)),
            _ => None,
        };
        let factor = said.unwrap_or_else(|| {
            let (factor, name) = match typical {
                t if t > 5e6 => (1.0, "bit/s"),
                t if t > 4e3 => (1e3, "kbit/s"),
                _ => (1e6, "Mbit/s"),
            };
            let note = format!("the unit isn't said: taken as {name}");
            if !notes.contains(&note) {
                notes.push(note);
            }
            factor
        });
        for rate in rates[way].iter_mut().flatten() {
            *rate *= factor;
        }
    }
    Some(Rows { times, rates, notes })
}

/// Objects in a row, each with the numbers of a moment, as columns.
fn lines_of(json: &[Value]) -> Option<String> {
    let [first, _, _, ..] = json else { return None };
    let simple = |value: &Value| value.is_number() || value.is_string();
    let names: Vec<&String> =
        first.as_object()?.iter().filter(|(_, value)| simple(value)).map(|of| of.0).collect();
    let mut text: String =
        names.iter().map(|name| name.replace('\t', " ")).collect::<Vec<_>>().join("\t") + "\n";
    for one in json {
        let cell = |name: &&String| match &one[name.as_str()] {
            Value::String(text) => text.replace(['\t', '\n'], " "),
            Value::Number(number) => number.to_string(),
            _ => "-".into(),
        };
        text += &(names.iter().map(cell).collect::<Vec<_>>().join("\t") + "\n");
    }
    Some(text)
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let lines = lines_of(input.json);
    let rows = rows(&Input { text: lines.as_deref().unwrap_or(input.text), ..*input })?;
    Some(traces(input.name, rows))
}

fn traces(name: &str, rows: Rows) -> Result<Measured, MeasurementError> {
    let Rows { times, mut rates, mut notes } = rows;
    let count = times.len();
    // Where no moments are given, a row is a second.
    let given = times.iter().flatten().count() == count;
    let starts: Vec<f64> = if given {
        times.iter().flatten().copied().collect()
    } else {
        (0..count).map(|row| row as f64).collect()
    };
    let apart: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0.0).collect();
    let step = if apart.is_empty() { 1.0 } else { stats::quantile(&stats::sorted(&apart), 0.5) };
    if !given {
        notes.push("no time column: each row is taken as a second".into());
    }
    if !(0.001..=3600.0).contains(&step) {
        return Err(MeasurementError::NoTimes);
    }
    // When each row begins once pauses are cut out, and how long it lasts.
    let (mut now, mut pauses, mut gaps) = (0.0, 0, 0);
    let mut spans: Vec<(f64, f64)> = Vec::with_capacity(count);
    for row in 0..count {
        let gap = starts.get(row + 1).map_or(step, |next| next - starts[row]);
        let length = gap.clamp(0.0, step * 1.5).min(if gap > 1.5 * step { step } else { gap.max(0.0) });
        spans.push((now, length));
        now += length;
        if gap > 1.5 * step {
            if gap - step > PAUSE.max(3.0 * step) {
                pauses += 1;
            } else {
                (gaps, now) = (gaps + 1, now + gap - length);
            }
        }
    }
    if gaps > 0 {
        notes.push(format!("{gaps} gaps of up to {PAUSE:.0} s: nothing is carried there"));
    }
    if pauses > 0 {
        notes.push(format!("{pauses} pauses of the recording are cut out"));
    }
    let carried = |rates: &[Option<f64>]| -> f64 {
        spans.iter().zip(rates).map(|((_, length), rate)| length * rate.unwrap_or(0.0) / OPPORTUNITY).sum()
    };
    let most = rates.iter().map(|rates| carried(rates)).fold(0.0, f64::max);
    if most > LONG && most / LONG < 1e6 {
        let one_in = (most / LONG).ceil() as usize;
        let block = |begin: f64| (begin / BLOCK) as usize;
        let kept: Vec<bool> = spans.iter().map(|(begin, _)| block(*begin).is_multiple_of(one_in)).collect();
        for rates in &mut rates {
            let mut kept = kept.iter();
            rates.retain(|_| kept.next() == Some(&true));
        }
        let end = |of: &(f64, f64)| of.0 + of.1;
        spans = spans
            .iter()
            .zip(&kept)
            .filter(|(_, kept)| **kept)
            .map(|((begin, length), _)| {
                let number = block(*begin);
                (begin - (number - number / one_in) as f64 * BLOCK, *length)
            })
            .collect();
        now = spans.last().map_or(0.0, end);
        notes.push(format!("long: of its blocks of {BLOCK:.0} s one in {one_in} is taken"));
    }
    let count = spans.len();
    let mut found = Measured { notes, ..Measured::default() };
    for (way, rates) in rates.iter().enumerate() {
        if rates.iter().flatten().all(|bits| *bits == 0.0) {
            continue;
        }
        let trace = trace(name, &spans, rates, now)?;
        let silent = rates.iter().filter(|bits| **bits == Some(0.0)).count();
        if silent > 0 {
            let word = ["up", "down"][way];
            found.notes.push(format!("{word}: nothing carried in {silent} of {count} rows"));
        }
        found.traces[way] = Some(Arc::new(trace));
    }
    if found.is_empty() { Err(MeasurementError::NoResult) } else { Ok(found) }
}

/// Opportunities spread evenly over each row.
fn trace(
    name: &str,
    spans: &[(f64, f64)],
    rates: &[Option<f64>],
    length: f64,
) -> Result<RateTrace, MeasurementError> {
    let bits: f64 = spans.iter().zip(rates).map(|((_, length), rate)| length * rate.unwrap_or(0.0)).sum();
    if bits / OPPORTUNITY > MOST as f64 || length * 1e3 > f64::from(u32::MAX / 2) {
        return Err(MeasurementError::TooLong);
    }
    let mut opportunities = Vec::with_capacity((bits / OPPORTUNITY) as usize + 1);
    let mut credit = 0.0;
    for ((begin, length), rate) in spans.iter().zip(rates) {
        let rate = rate.unwrap_or(0.0);
        let (carried, before) = (length * rate, credit);
        credit += carried;
        let mut sent = 0.0;
        while credit >= OPPORTUNITY {
            credit -= OPPORTUNITY;
            sent += OPPORTUNITY;
            let at = begin + (sent - before).max(0.0) / rate;
            opportunities.push(((at * 1e3).ceil() as u32).max(1));
        }
    }
    // The last entry is the period.
    opportunities.push(((length * 1e3).round() as u32).max(1));
    opportunities.sort_unstable();
    Ok(RateTrace { name: name.to_string(), opportunities })
}

#[cfg(test)]
mod tests {
    use ropewalk_link::Rate;

    use super::super::parse;
    use crate::scenario::mean_rate;

    fn rates(name: &str, text: &str) -> [Option<f64>; 2] {
        let found = parse(name, text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        found.traces.map(|trace| trace.map(|trace| mean_rate(&Rate::Trace(trace)) as f64 / 1e6))
    }

    fn near(found: Option<f64>, wanted: f64) -> bool {
        found.is_some_and(|found| (found / wanted - 1.0).abs() < 0.02)
    }

    #[test]
    fn the_usual_shapes() {
        let body = |row: &dyn Fn(u32) -> String| (0..60).map(|at| row(at) + "\n").collect::<String>();
        for (name, text) in [
            (
                "a.csv",
                "second,download_mbit_per_s,upload_mbit_per_s\n".to_string()
                    + &body(&|at| format!("{at},20.0,5.0")),
            ),
            (
                "b.csv",
                "time;DL_bitrate (kbps);UL_bitrate (kbps)\n".to_string()
                    + &body(&|at| format!("{at};20000;5000")),
            ),
            (
                "c.csv",
                "Timestamp,Speed,RSRP,DL_bitrate,UL_bitrate\n".to_string()
                    + &body(&|at| {
                        format!("2019.11.28_07.{:02}.{:02},0,-95,20000,5000", 20 + at / 60, at % 60)
                    }),
            ),
            (
                "d.csv",
                "timestamp_ms,rx_bps,tx_bps\n".to_string()
                    + &body(&|at| {
                        format!("{},20000000,5000000", 1_700_000_000_000u64 + u64::from(at) * 1000)
                    }),
            ),
            ("e.txt", body(&|at| format!("{} 20.0 5.0", 1_700_000_000 + at))),
            (
                "f.tsv",
                "time\tdownload MB/s\tupload MB/s\n".to_string() + &body(&|at| format!("{at}\t2.5\t0.625")),
            ),
            (
                "g.csv",
                "time,download Mbit/s,upload Mbit/s\n".to_string()
                    + &body(&|at| format!("2026-01-01T10:00:{at:02}Z,20,5")),
            ),
            (
                "h.csv",
                "t,throughput_down_mbps,throughput_up_mbps\n".to_string()
                    + &(0..600).map(|at| format!("{:.1},20,5\n", f64::from(at) / 10.0)).collect::<String>(),
            ),
        ] {
            let [up, down] = rates(name, &text);
            assert!(near(up, 5.0) && near(down, 20.0), "{name}: {up:?} {down:?}");
        }
        let commas =
            "Zeit;Download (Mbit/s);Upload (Mbit/s)\n".to_string() + &body(&|at| format!("{at};20,5;5,1"));
        let [up, down] = rates("messung.csv", &commas);
        assert!(near(up, 5.1) && near(down, 20.5), "{up:?} {down:?}");
        let objects =
            body(&|at| format!(r#"{{"time":{at},"download_mbps":20.5,"upload_mbps":5.1,"cell":"x"}}"#));
        let [up, down] = rates("log.jsonl", &objects);
        assert!(near(up, 5.1) && near(down, 20.5), "{up:?} {down:?}");
        let dish = "datetimestamp_utc,samples,pop_ping_drop_rate,pop_ping_latency_ms,downlink_throughput_bps,uplink_throughput_bps\n"
            .to_string() + &body(&|at| format!("2026-01-01T12:00:{at:02},1,0.0,41.5,20500000.0,5100000.0"));
        let [up, down] = rates("dish.csv", &dish);
        assert!(near(up, 5.1) && near(down, 20.5), "{up:?} {down:?}");
        let [up, down] = rates("mbps-per-second.csv", "5.2\n7.9\n0\n3.1\n");
        assert!(near(down, 16.2 / 4.0) && up == down, "{up:?} {down:?}");
        let found = parse("x.csv", "5.2\n7.9\n0\n3.1\n").unwrap();
        let notes = found.notes.join("; ");
        assert!(notes.contains("taken as Mbit/s") && notes.contains("nothing carried in 1 of 4"), "{notes}");
        assert!(near(rates("kbps.csv", "5000\n7000\n6000\n")[1], 6.0));
    }

    #[test]
    fn of_a_long_recording_blocks_are_taken() {
        let rows: String = (0..3600).map(|at| format!("{at},{}\n", 50 + at / 10 % 2)).collect();
        let found = parse("x.csv", &format!("time,down_mbps\n{rows}")).unwrap();
        let trace = found.traces[1].clone().unwrap();
        assert!(
            trace.opportunities.len() < 600_000 && trace.opportunities.is_sorted(),
            "{}",
            trace.opportunities.len()
        );
        let mean = mean_rate(&Rate::Trace(trace)) as f64 / 1e6;
        assert!((49.0..52.0).contains(&mean), "{mean}");
        assert!(found.notes[0].contains("one in 31"), "{:?}", found.notes);
    }

    #[test]
    fn gaps_are_silent_and_pauses_are_cut_out() {
        let text = "time,down_mbps\n0,12\n1,12\n5,12\n6,0\n7,12\n100,12\n101,12\n";
        let found = parse("x.csv", text).unwrap();
        let trace = found.traces[1].clone().unwrap();
        assert!(found.traces[0].is_none());
        // Rows of a second: 0, 1, (2 to 4 missing), 5, 6, 7, (pause), 100, 101.
        assert_eq!(*trace.opportunities.last().unwrap(), 10_000);
        let longest = trace.opportunities.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert_eq!(longest, 3001);
        assert_eq!(trace.opportunities.len(), 6001);
        let notes = found.notes.join("; ");
        assert!(notes.contains("1 gaps") && notes.contains("1 pauses"), "{notes}");
        for nothing in ["a,b\n1,2\n", "hello there\nyou\n", "time,download_mbps\nx,y\n", "1,2,3,4,5\n"] {
            assert!(parse("x.csv", nothing).is_err(), "{nothing}");
        }
    }
}
