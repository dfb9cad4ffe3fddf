//! Throughput over time in columns, as data sets of 5G and satellite links have it: CSV or separated by
//! spaces, with or without names, Mbit/s or kbit/s, seconds or milliseconds, both directions. It becomes a
//! trace: what the link carried at each moment.
//!
//! Where nothing was carried the trace is silent, and where rows are missing for up to ten seconds, too. A
//! longer gap is a pause of the recording: it is cut out.

use std::sync::Arc;

use serde_json::Value;

use super::columns::{Layout, Row, unit};
use super::long::ByLine;
use super::recording::{BLOCK, Recording};
use super::{Input, Measured, MeasurementError};
use crate::stats;

/// Bits that one opportunity of a trace carries.
const OPPORTUNITY: f64 = 12_000.0;

/// Opportunities of both directions that are kept: of a longer recording blocks are left out.
const LONG: usize = 500_000;

/// Rows from which unit and step are told.
const BEGINNING: usize = 100_000;

/// Bits that a row carries at most.
const MOST: f64 = 1.2e12;

/// Seconds without a row from which the recording had paused.
const PAUSE: f64 = 10.0;

/// Rows in order: buffered until unit and step can be told, then recorded one by one.
#[derive(Default)]
struct Table {
    name: String,
    layout: Option<Layout>,
    /// The first line isn't that of such a file.
    unfit: bool,
    /// The names of the columns, where rows are JSON.
    names: Option<Vec<String>>,
    rows: u64,
    /// Rows without a rate.
    bad: u64,
    beginning: Vec<Row>,
    carried: Option<Carried>,
    notes: Vec<String>,
}

impl Table {
    fn new(name: &str) -> Self {
        Table { name: name.to_string(), ..Table::default() }
    }

    /// Whether it is such a file, by what was read so far.
    fn fits(&self) -> bool {
        !self.unfit && self.rows > 0 && self.bad * 5 <= self.rows
    }

    fn text(&mut self, line: &str) -> Result<(), MeasurementError> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || self.unfit {
            return Ok(());
        }
        let Some(layout) = &self.layout else {
            let Some(layout) = Layout::of(line) else {
                self.unfit = true;
                return Ok(());
            };
            let is_row = !layout.named;
            if is_row && layout.columns == 3 {
                self.notes.push("columns without names: taken as time, download, upload".into());
            }
            if layout.rates[0] == layout.rates[1] {
                self.notes.push("which way the rates are isn't said: taken for both".into());
            }
            self.layout = Some(layout);
            return if is_row { self.text(line) } else { Ok(()) };
        };
        let row = layout.row(line);
        self.rows += 1;
        self.bad += u64::from(row.rates == [None, None]);
        match &mut self.carried {
            Some(carried) => carried.row(row),
            None => {
                self.beginning.push(row);
                if self.beginning.len() < BEGINNING { Ok(()) } else { self.begin().map(|_| ()) }
            }
        }
    }

    /// A row that is an object with the numbers of a moment.
    fn object(&mut self, one: &Value) -> Result<(), MeasurementError> {
        if self.names.is_none() {
            let simple = |value: &Value| value.is_number() || value.is_string();
            let Some(object) = one.as_object() else {
                self.unfit = true;
                return Ok(());
            };
            let names: Vec<String> =
                object.iter().filter(|(_, value)| simple(value)).map(|(name, _)| name.clone()).collect();
            let line =
                names.iter().map(|name| name.replace(['\t', '\n'], " ")).collect::<Vec<_>>().join("\t");
            self.names = Some(names);
            self.text(&line)?;
        }
        let cell = |name: &String| match &one[name.as_str()] {
            Value::String(text) => text.replace(['\t', '\n'], " "),
            Value::Number(number) => number.to_string(),
            _ => "-".into(),
        };
        let cells: Vec<String> = self.names.iter().flatten().map(cell).collect();
        self.text(&cells.join("\t"))
    }

    /// Tells unit and step from the rows so far, and records them.
    fn begin(&mut self) -> Result<&mut Carried, MeasurementError> {
        let rows = std::mem::take(&mut self.beginning);
        // Both directions have the same unit.
        let known: Vec<f64> = rows.iter().flat_map(|row| row.rates).flatten().collect();
        let typical = if known.is_empty() { 0.0 } else { stats::quantile(&stats::sorted(&known), 0.9) };
        let mut factors = [1.0; 2];
        for (way, rate) in self.layout.iter().flat_map(|layout| layout.rates).enumerate() {
            let Some((_, said)) = rate else { continue };
            factors[way] = said.or_else(|| unit(&self.name)).unwrap_or_else(|| {
                let (factor, name) = match typical {
                    t if t > 5e6 => (1.0, "bit/s"),
                    t if t > 4e3 => (1e3, "kbit/s"),
                    _ => (1e6, "Mbit/s"),
                };
                self.notes.push(format!("the unit isn't said: taken as {name}"));
                factor
            });
        }
        self.notes.dedup();
        // Where no moments are given, a row is a second.
        let given = rows.iter().all(|row| row.time.is_some());
        let times: Vec<f64> = rows.iter().filter_map(|row| row.time).collect();
        let apart: Vec<f64> =
            times.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0.0).collect();
        let step =
            if apart.is_empty() || !given { 1.0 } else { stats::quantile(&stats::sorted(&apart), 0.5) };
        if !given {
            self.notes.push("no time column: each row is taken as a second".into());
        }
        if !(0.001..=3600.0).contains(&step) {
            return Err(MeasurementError::NoTimes);
        }
        let carried = self.carried.insert(Carried::new(step, given, factors));
        for row in rows {
            carried.row(row)?;
        }
        Ok(carried)
    }

    fn finish(mut self) -> Result<Measured, MeasurementError> {
        if self.carried.is_none() {
            self.begin()?;
        }
        let Some(carried) = self.carried else { return Err(MeasurementError::NoResult) };
        carried.end(&self.name, self.notes)
    }
}

impl ByLine for Table {
    fn line(&mut self, line: &str) -> Result<(), MeasurementError> {
        if line.trim_start().starts_with('{') {
            let one =
                serde_json::from_str(line).map_err(|error| MeasurementError::NotJson(error.to_string()))?;
            return self.object(&one);
        }
        self.text(line)
    }

    fn end(self: Box<Self>) -> Result<Measured, MeasurementError> {
        if self.fits() { self.finish() } else { Err(MeasurementError::NoResult) }
    }
}

/// What rows carried.
struct Carried {
    /// Seconds from row to row, and whether rows have moments.
    step: f64,
    given: bool,
    /// Bits per second of the units.
    factors: [f64; 2],
    /// The row whose length the next one tells, and when it was.
    last: Option<(Row, f64)>,
    /// Where it begins once pauses are cut out, seconds.
    now: f64,
    /// Bits that were carried and are no opportunity yet, by direction.
    credit: [f64; 2],
    recording: Recording,
    /// Rows in all, of these without anything carried by direction, and whether anything ever was.
    rows: u64,
    silent: [u64; 2],
    any: [bool; 2],
    gaps: u64,
    pauses: u64,
}

impl Carried {
    fn new(step: f64, given: bool, factors: [f64; 2]) -> Self {
        Carried {
            step,
            given,
            factors,
            last: None,
            now: 0.0,
            credit: [0.0; 2],
            recording: Recording::new(LONG),
            rows: 0,
            silent: [0; 2],
            any: [false; 2],
            gaps: 0,
            pauses: 0,
        }
    }

    fn row(&mut self, row: Row) -> Result<(), MeasurementError> {
        let next = self.last.map_or(0.0, |(_, at)| at + self.step);
        let at = row.time.filter(|_| self.given).unwrap_or(next);
        if let Some((last, began)) = self.last.replace((row, at)) {
            self.carry(last, at - began)?;
        }
        Ok(())
    }

    /// A row and the time until the next.
    fn carry(&mut self, row: Row, gap: f64) -> Result<(), MeasurementError> {
        let step = self.step;
        let length = if gap > 1.5 * step { step } else { gap.max(0.0) };
        self.rows += 1;
        for (way, rate) in row.rates.into_iter().enumerate() {
            let rate = rate.unwrap_or(f64::NAN) * self.factors[way];
            self.silent[way] += u64::from(rate == 0.0);
            if rate > 0.0 {
                self.any[way] = true;
                self.opportunities(way, length, rate)?;
            }
        }
        self.now += length;
        if gap > 1.5 * step {
            if gap - step > PAUSE.max(3.0 * step) {
                self.pauses += 1;
            } else {
                (self.gaps, self.now) = (self.gaps + 1, self.now + gap - length);
            }
        }
        Ok(())
    }

    /// Opportunities spread evenly over a row.
    fn opportunities(&mut self, way: usize, length: f64, rate: f64) -> Result<(), MeasurementError> {
        if length * rate > MOST || !self.now.is_finite() || self.now > 1e12 {
            return Err(MeasurementError::TooLong);
        }
        let most = BLOCK as f64 / 1e3;
        let mut done = 0.0;
        while done < length {
            let (begin, part) = (self.now + done, f64::min(length - done, most));
            done += most;
            let before = self.credit[way];
            self.credit[way] += part * rate;
            let of = |seconds: f64| ((seconds * 1e3).ceil() as u64).max(1);
            if !self.recording.keeps(of(begin), of(begin + part)) {
                self.credit[way] %= OPPORTUNITY;
                continue;
            }
            let mut sent = 0.0;
            while self.credit[way] >= OPPORTUNITY {
                self.credit[way] -= OPPORTUNITY;
                sent += OPPORTUNITY;
                if !self.recording.push(way, of(begin + (sent - before).max(0.0) / rate)) {
                    return Err(MeasurementError::TooLong);
                }
            }
        }
        Ok(())
    }

    fn end(mut self, name: &str, mut notes: Vec<String>) -> Result<Measured, MeasurementError> {
        if let Some((last, _)) = self.last.take() {
            self.carry(last, self.step)?;
        }
        let Carried { gaps, pauses, rows, .. } = self;
        if gaps > 0 {
            notes.push(format!("gaps of up to {PAUSE:.0} s, in which nothing is carried: {gaps}"));
        }
        if pauses > 0 {
            notes.push(format!("pauses of the recording, which are cut out: {pauses}"));
        }
        notes.extend(self.recording.note());
        let mut found = Measured { notes, ..Measured::default() };
        for way in [0, 1] {
            if !self.any[way] {
                continue;
            }
            let length = (self.now * 1e3).round() as u64;
            found.traces[way] = Some(Arc::new(self.recording.trace(name, way, length, true)));
            let silent = self.silent[way];
            if silent > 0 {
                let word = ["up", "down"][way];
                found.notes.push(format!("{word}: nothing carried in {silent} of {rows} rows"));
            }
        }
        if found.is_empty() { Err(MeasurementError::NoResult) } else { Ok(found) }
    }
}

pub(super) fn by_line(name: &str) -> Box<dyn ByLine> {
    Box::new(Table::new(name))
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let mut table = Table::new(input.name);
    let read = match input.json {
        [first, _, _, ..] if first.is_object() => input.json.iter().try_for_each(|one| table.object(one)),
        _ => input.text.lines().try_for_each(|line| table.text(line)),
    };
    table.fits().then(|| read.and_then(|()| table.finish()))
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
        let dish = "datetimestamp_utc,samples,pop_ping_drop_rate,pop_ping_latency_ms,\
                    downlink_throughput_bps,uplink_throughput_bps\n"
            .to_string()
            + &body(&|at| format!("2026-01-01T12:00:{at:02},1,0.0,41.5,20500000.0,5100000.0"));
        let [up, down] = rates("dish.csv", &dish);
        assert!(near(up, 5.1) && near(down, 20.5), "{up:?} {down:?}");
        let [up, down] = rates("mbps-per-second.csv", "5.2\n7.9\n0\n3.1\n");
        assert!(near(down, 16.2 / 4.0) && up == down, "{up:?} {down:?}");
        let notes = parse("x.csv", "5.2\n7.9\n0\n3.1\n").unwrap().notes.join("; ");
        for said in ["taken as Mbit/s", "taken for both", "nothing carried in 1 of 4"] {
            assert!(notes.contains(said), "{notes}");
        }
        assert!(near(rates("kbps.csv", "5000\n7000\n6000\n")[1], 6.0));
    }

    #[test]
    fn of_a_long_recording_blocks_are_taken() {
        let rows: String = (0..3600).map(|at| format!("{at},{}\n", 50 + at / 10 % 2)).collect();
        let found = parse("x.csv", &format!("time,down_mbps\n{rows}")).unwrap();
        let trace = found.traces[1].clone().unwrap();
        assert!(trace.len() <= 500_001 && trace.opportunities().is_sorted(), "{}", trace.len());
        let mean = mean_rate(&Rate::Trace(trace)) as f64 / 1e6;
        assert!((49.0..52.0).contains(&mean), "{mean}");
        assert!(found.notes[0].contains("one in 32"), "{:?}", found.notes);
    }

    #[test]
    fn gaps_are_silent_and_pauses_are_cut_out() {
        let text = "time,down_mbps\n0,12\n1,12\n5,12\n6,0\n7,12\n100,12\n101,12\n";
        let found = parse("x.csv", text).unwrap();
        let trace = found.traces[1].clone().unwrap();
        assert!(found.traces[0].is_none());
        // Rows of a second: 0, 1, (2 to 4 missing), 5, 6, 7, (pause), 100, 101.
        let opportunities: Vec<u32> = trace.opportunities().collect();
        assert_eq!(*opportunities.last().unwrap(), 10_000);
        let longest = opportunities.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert_eq!(longest, 3001);
        assert_eq!(trace.len(), 6001);
        let notes = found.notes.join("; ");
        assert!(notes.contains("is carried: 1") && notes.contains("cut out: 1"), "{notes}");
        for nothing in ["a,b\n1,2\n", "hello there\nyou\n", "time,download_mbps\nx,y\n", "1,2,3,4,5\n"] {
            assert!(parse("x.csv", nothing).is_err(), "{nothing}");
        }
    }
}
