//! Traces in mahimahi's format. A name that ends in `.up` or `.down` says which way; another is both.

use std::sync::Arc;

use super::long::{ByLine, of_text};
use super::recording::{MOST, Recording};
use super::{Input, Measured, MeasurementError};

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let mut last = 0;
    let mut count = 0;
    // Whole numbers that don't fall, one a line; rates per second fall now and then.
    for line in input.text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let number: u64 = line.parse().ok()?;
        if number < last {
            return None;
        }
        (last, count) = (number, count + 1);
    }
    (count > 0).then(|| of_text(by_line(input.name), input.text))
}

pub(super) fn by_line(name: &str) -> Box<dyn ByLine> {
    Box::new(Trace { name: name.to_string(), lines: 0, last: 0, recording: Recording::new(MOST / 2) })
}

/// What was read so far.
struct Trace {
    name: String,
    lines: u64,
    last: u32,
    recording: Recording,
}

impl ByLine for Trace {
    fn line(&mut self, line: &str) -> Result<(), MeasurementError> {
        self.lines += 1;
        let line = line.trim();
        if line.is_empty() {
            return Ok(());
        }
        let wrong = |what: &str| {
            let found: String = line.chars().take(40).collect();
            Err(MeasurementError::Trace(format!("line {}: {what}, found `{found}`", self.lines)))
        };
        let Ok(at) = line.parse::<u32>() else {
            return wrong("a trace holds whole milliseconds");
        };
        if at < self.last {
            return wrong("a trace's milliseconds must not go back");
        }
        self.last = at;
        if self.recording.push(0, u64::from(at)) { Ok(()) } else { Err(MeasurementError::TooLong) }
    }

    fn end(self: Box<Self>) -> Result<Measured, MeasurementError> {
        if self.last == 0 {
            let message = "the trace has no delivery opportunity after 0 ms";
            return Err(MeasurementError::Trace(message.into()));
        }
        let trace = Arc::new(self.recording.trace(&self.name, 0, u64::from(self.last), false));
        let stem = self.name.to_lowercase();
        let traces = match () {
            () if stem.ends_with(".up") || stem.ends_with(".uplink") => [Some(trace), None],
            () if stem.ends_with(".down") || stem.ends_with(".downlink") => [None, Some(trace)],
            () => [Some(trace.clone()), Some(trace)],
        };
        let notes = self.recording.note().into_iter().collect();
        Ok(Measured { traces, notes, ..Measured::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn names_say_which_way() {
        let has = |name: &str| parse(name, "1\n2\n5\n").unwrap().traces.map(|trace| trace.is_some());
        assert_eq!(
            (has("a/link.up"), has("link.down"), has("link")),
            ([true, false], [false, true], [true; 2])
        );
    }
}
