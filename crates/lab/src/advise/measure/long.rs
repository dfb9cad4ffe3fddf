//! Files too long to be kept: read line by line, in memory that doesn't grow with them.

use std::io::{BufRead, BufReader, Read};

use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_settings::input::{Opened, ReadError};

use super::{Measured, MeasurementError, RoundTrip, round_trips};

/// How much of a file is looked at to tell what it is, bytes. What isn't longer is read as a whole.
pub(super) const HEAD: usize = 1 << 20;

/// The longest line, bytes.
const LONGEST_LINE: usize = 1 << 20;

/// What reads a format line by line.
pub(super) trait ByLine {
    /// Takes the next line.
    fn line(&mut self, line: &str) -> Result<(), MeasurementError>;
    /// What the file says.
    fn end(self: Box<Self>) -> Result<Measured, MeasurementError>;
}

/// Has this read a text.
pub(super) fn of_text(mut reader: Box<dyn ByLine>, text: &str) -> Result<Measured, MeasurementError> {
    for line in text.lines() {
        reader.line(line)?;
    }
    reader.end()
}

/// How two bytes are a unit of UTF-16.
type Unit = fn([u8; 2]) -> u16;

/// Bytes as UTF-8: those of UTF-16, as Windows redirects it, are converted, by its byte order mark or the
/// zero beside its first letter.
pub(super) struct Utf8<R> {
    from: R,
    /// How UTF-16's units are read; none: it is none. Unknown before the first byte.
    unit: Option<Option<Unit>>,
    /// Half of a unit, and half of a pair of units.
    byte: Option<u8>,
    high: Option<u16>,
    /// What is converted and wasn't taken yet, and from where.
    ready: (Vec<u8>, usize),
}

impl<R: Read> Utf8<R> {
    pub(super) fn new(from: R) -> Self {
        Utf8 { from, unit: None, byte: None, high: None, ready: (Vec::new(), 0) }
    }

    /// Reads on until there is something, or the end.
    fn fill(&mut self) -> std::io::Result<()> {
        let mut block = [0; 8192];
        let mut first = 0;
        if self.unit.is_none() {
            while first < 2 {
                match self.from.read(&mut block[first..2])? {
                    0 => break,
                    read => first += read,
                }
            }
            self.unit = Some(match &block[..first] {
                [0xff, 0xfe] => Some(u16::from_le_bytes),
                [0xfe, 0xff] => Some(u16::from_be_bytes),
                [1..0x80, 0] => Some(u16::from_le_bytes),
                [0, 1..0x80] => Some(u16::from_be_bytes),
                _ => None,
            });
            // Without a mark these two bytes are text.
            let text = block[..first].iter().copied();
            self.ready = match self.unit {
                Some(Some(_)) => (text.filter(|byte| (1..0x80).contains(byte)).collect(), 0),
                _ => (text.collect(), 0),
            };
            if first < 2 || self.unit == Some(None) || !self.ready.0.is_empty() {
                return Ok(());
            }
        }
        let Some(Some(unit)) = self.unit else { return Ok(()) };
        self.ready.0.clear();
        self.ready.1 = 0;
        while self.ready.0.is_empty() {
            let read = self.from.read(&mut block)?;
            let bytes: Vec<u8> = self.byte.take().into_iter().chain(block[..read].iter().copied()).collect();
            let whole = bytes.len() / 2 * 2;
            self.byte = bytes.get(whole).copied();
            let units = bytes[..whole].chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
            let mut units: Vec<u16> = self.high.take().into_iter().chain(units).collect();
            if read > 0 && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
                self.high = units.pop();
            }
            self.ready.0 = String::from_utf16_lossy(&units).into_bytes();
            if read == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for Utf8<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.ready.1 == self.ready.0.len() {
            if self.unit == Some(None) {
                return self.from.read(into);
            }
            self.fill()?;
        }
        let left = &self.ready.0[self.ready.1..];
        let count = left.len().min(into.len());
        into[..count].copy_from_slice(&left[..count]);
        self.ready.1 += count;
        Ok(count)
    }
}

/// A file's beginning, and the rest of it.
pub(super) struct Source {
    rest: BufReader<Utf8<Opened>>,
}

/// A beginning.
pub(super) enum Head {
    /// It is the whole file.
    Whole(String),
    /// There is more. It ends with a line, where one ends in it.
    Part(String),
}

impl Source {
    pub(super) fn new(file: Opened) -> Self {
        Source { rest: BufReader::with_capacity(1 << 16, Utf8::new(file)) }
    }

    /// The beginning.
    pub(super) fn head(&mut self) -> Result<Head, ReadError> {
        let mut bytes = Vec::new();
        self.rest.by_ref().take(HEAD as u64).read_to_end(&mut bytes)?;
        if bytes.len() < HEAD {
            return Ok(Head::Whole(text(bytes)));
        }
        self.rest.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut bytes)?;
        Ok(Head::Part(text(bytes)))
    }

    /// Appends the rest, if all is no longer than this.
    pub(super) fn whole(&mut self, head: String, most: usize) -> Result<Option<String>, ReadError> {
        let mut bytes = head.into_bytes();
        let left = (most + 1).saturating_sub(bytes.len());
        self.rest.by_ref().take(left as u64).read_to_end(&mut bytes)?;
        Ok((bytes.len() <= most).then(|| text(bytes)))
    }

    /// Hands the rest to a reader, line by line.
    pub(super) fn lines(
        &mut self,
        reader: &mut dyn ByLine,
        unreadable: &dyn Fn(&str) -> Diagnostic,
    ) -> Result<Result<(), MeasurementError>, Diagnostic> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = self.rest.by_ref().take(LONGEST_LINE as u64 + 1).read_until(b'\n', &mut bytes);
            let read = read.map_err(|error| unreadable(&ReadError::from(error).to_string()))?;
            if read == 0 {
                return Ok(Ok(()));
            }
            if bytes.len() > LONGEST_LINE {
                return Err(unreadable("it has a line that is longer than 1 MiB"));
            }
            let line = String::from_utf8_lossy(&bytes);
            if let Err(reason) = reader.line(line.trim_end_matches(['\n', '\r'])) {
                return Ok(Err(reason));
            }
        }
    }
}

/// Text; what isn't UTF-8 in it is replaced.
pub(super) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Round trips that are kept at most.
const SAMPLES: usize = 1 << 20;

/// Round-trip times in order. Of more than a million, every second, fourth, ... is kept.
#[derive(Default)]
pub(super) struct Samples {
    kept: Vec<f64>,
    /// How many of the kept ones' neighbours aren't: 0, 1, 3, ...
    skipped: u64,
    count: u64,
    ends: Option<(f64, f64)>,
}

impl Samples {
    pub(super) fn push(&mut self, ms: f64) {
        if self.count.is_multiple_of(self.skipped + 1) {
            self.kept.push(ms);
        }
        self.count += 1;
        let (min, max) = self.ends.unwrap_or((ms, ms));
        self.ends = Some((min.min(ms), max.max(ms)));
        if self.kept.len() > SAMPLES {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.skipped = 2 * self.skipped + 1;
        }
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// As [`round_trips`] of them.
    pub(super) fn round_trips(&self) -> Option<(RoundTrip, Option<String>)> {
        let (of_kept, note) = round_trips(&self.kept, false)?;
        let (min, max) = self.ends?;
        let every = self.skipped + 1;
        let note = note.map(|note| if every > 1 { format!("of one in {every}: {note}") } else { note });
        Some((RoundTrip { min, max, count: Some(self.count), ..of_kept }, note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let Some((first, rest)) = self.0.split_first().filter(|_| !into.is_empty()) else { return Ok(0) };
            (into[0], self.0) = (*first, rest);
            Ok(1)
        }
    }

    #[test]
    fn utf_16_is_converted_wherever_it_is_cut() {
        let wanted = "Antwort: Bytes=32 Zeit=14ms 🦀 TTL=55\r\né";
        for unit in [u16::to_le_bytes as fn(u16) -> [u8; 2], u16::to_be_bytes] {
            let bytes: Vec<u8> = format!("\u{feff}{wanted}").encode_utf16().flat_map(unit).collect();
            for slow in [true, false] {
                let from: Box<dyn Read> = if slow { Box::new(Slow(&bytes)) } else { Box::new(&bytes[..]) };
                let mut found = String::new();
                Utf8::new(from).read_to_string(&mut found).unwrap();
                assert_eq!(found, wanted);
            }
        }
        for plain in ["", "a", "ab", "\u{feff}abc", wanted] {
            let mut found = String::new();
            Utf8::new(Slow(plain.as_bytes())).read_to_string(&mut found).unwrap();
            assert_eq!(found, plain);
        }
        // A lone half of a pair, and half of a unit.
        let mut found = String::new();
        Utf8::new(&[0xff, 0xfe, b'a', 0, 0x00, 0xd8, b'b'][..]).read_to_string(&mut found).unwrap();
        assert_eq!(found, "a\u{fffd}");
    }

    #[test]
    fn of_very_many_round_trips_some_are_kept() {
        let mut samples = Samples::default();
        for number in 0..3_000_000u64 {
            samples.push(40.0 + (number % 7) as f64 * 0.1 + if number == 77 { 5.0 } else { 0.0 });
        }
        let (found, note) = samples.round_trips().unwrap();
        assert!(samples.kept.len() <= SAMPLES && samples.kept.len() > SAMPLES / 2);
        assert_eq!((found.count, found.min, note), (Some(3_000_000), 40.0, None));
        assert!((found.mean - 40.3).abs() < 0.001 && found.max >= 45.0, "{found:?}");
    }
}
