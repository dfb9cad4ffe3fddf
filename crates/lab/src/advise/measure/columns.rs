//! The columns of rates over time: by their names what each holds and in which unit, and a row's numbers.

use super::positive;

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
pub(super) fn unit(name: &str) -> Option<f64> {
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

/// A row: its moment, and rates upwards and downwards.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub time: Option<f64>,
    pub rates: [Option<f64>; 2],
}

/// Which columns count.
pub(super) struct Layout {
    separator: char,
    time: Option<usize>,
    /// Of the rates, upwards and downwards, with bits per second of their unit if that is said.
    pub rates: [Option<(usize, Option<f64>)>; 2],
    /// Whether columns have names.
    pub named: bool,
    pub columns: usize,
}

impl Layout {
    /// By the first line; none: it is none of such a file.
    pub fn of(first: &str) -> Option<Self> {
        let separator = separator(first);
        let is_data = |line: &str| cells(line, separator).iter().any(|cell| value(cell, separator).is_some());
        let named = !is_data(first);
        let columns: Vec<Column> = if named {
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
        if columns.len() > 100 {
            return None;
        }
        // Of several columns for a direction the first counts.
        let of = |wanted: Option<usize>| {
            columns.iter().enumerate().find_map(|(place, column)| match column {
                Column::Rate(of, unit) if *of == wanted => Some((place, *unit)),
                _ => None,
            })
        };
        let rates = [of(Some(0)), of(Some(1))];
        let rates = if rates == [None, None] { [of(None); 2] } else { rates };
        let time = columns.iter().position(|column| *column == Column::Time);
        let layout = Layout { separator, time, rates, named, columns: columns.len() };
        (rates != [None, None]).then_some(layout)
    }

    pub fn row(&self, line: &str) -> Row {
        let cells = cells(line, self.separator);
        let at = |place: usize| cells.get(place).copied();
        let rates = self
            .rates
            .map(|rate| rate.and_then(|(place, _)| at(place)).and_then(|cell| value(cell, self.separator)));
        Row { time: self.time.and_then(at).and_then(moment), rates }
    }
}
