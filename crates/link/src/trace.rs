//! Recorded rates: the format of mahimahi (Netravali et al., USENIX ATC 2015): text, one integer per line,
//! the millisecond at which 1500 bytes may leave.

use std::sync::Arc;

use ropewalk_time::Span;

use crate::spec::{Moved, RateTrace};

/// What one line of a trace lets leave.
pub const OPPORTUNITY_BYTES: u32 = 1500;

/// Why a text isn't a trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name}, line {line}: expected {expected}, found {found}")]
pub struct TraceError {
    /// The name given with the text.
    pub name: String,
    /// The line, from 1.
    pub line: usize,
    /// What is there.
    pub found: String,
    /// What should be.
    pub expected: String,
}

impl RateTrace {
    /// Reads mahimahi's format: one number of milliseconds per line, in order, the last above 0. Blank lines
    /// are skipped.
    pub fn parse(name: &str, text: &str) -> Result<Self, TraceError> {
        let error = |line: usize, found: String, expected: String| TraceError {
            name: name.to_owned(),
            line,
            found,
            expected,
        };
        let mut opportunities: Vec<u32> = Vec::new();
        let mut last_line = 1;
        for (index, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() {
                continue;
            }
            last_line = index + 1;
            let milliseconds = text.parse::<u32>().map_err(|_| {
                error(last_line, quote(text), "a whole number of milliseconds, 0 to 4294967295".into())
            })?;
            if let Some(&previous) = opportunities.last()
                && milliseconds < previous
            {
                let expected = format!("{previous} or more (the line before says {previous})");
                return Err(error(last_line, quote(text), expected));
            }
            opportunities.push(milliseconds);
        }
        match opportunities.last() {
            None => Err(error(1, "no numbers".into(), "one number of milliseconds per line".into())),
            Some(0) => Err(error(
                last_line,
                "only zeros".into(),
                "a last line above 0: it is the time after which the trace repeats".into(),
            )),
            Some(_) => Ok(RateTrace::new(name, opportunities)),
        }
    }

    /// A trace of these opportunities, milliseconds, in order.
    pub fn new(name: impl Into<String>, opportunities: Vec<u32>) -> RateTrace {
        RateTrace { name: name.into(), recorded: opportunities.into(), moved: None }
    }

    /// The same trace begun at `phase` of its period, 0 to 1, with `factor` times its rate: the time of each
    /// opportunity is divided by it, and is 1 ms at least.
    #[must_use]
    pub fn moved(&self, factor: f64, phase: f64) -> RateTrace {
        let recorded =
            if self.moved.is_some() { self.opportunities().collect() } else { Arc::clone(&self.recorded) };
        let period = recorded.last().copied().unwrap_or(1).max(1);
        let begins = ((f64::from(period) * phase) as u32).min(period - 1);
        let first = recorded.partition_point(|at| *at <= begins);
        RateTrace { name: self.name.clone(), recorded, moved: Some(Moved { first, begins, factor }) }
    }

    /// How many opportunities a period has.
    pub fn len(&self) -> usize {
        self.recorded.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.recorded.is_empty()
    }

    /// The opportunities of a period, milliseconds from its start.
    pub fn opportunities(&self) -> impl Iterator<Item = u32> {
        (0..self.len()).map(|index| self.millisecond(index))
    }

    #[inline]
    fn millisecond(&self, index: usize) -> u32 {
        let Some(Moved { first, begins, factor }) = self.moved else { return self.recorded[index] };
        let at = match self.recorded.get(first + index) {
            Some(at) => at - begins,
            // What came before it comes after the recording's end.
            None => {
                let (before, end) = (first + index - self.len(), self.recorded[self.len() - 1].max(1));
                self.recorded[before] + (end - begins)
            }
        };
        ((f64::from(at) / factor) as u32).max(1)
    }

    /// The text that [`parse`](Self::parse) reads.
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(self.len() * 7);
        for opportunity in self.opportunities() {
            text.push_str(&opportunity.to_string());
            text.push('\n');
        }
        text
    }

    /// The time after which the trace repeats; zero when it never lets anything leave.
    pub fn period(&self) -> Span {
        self.len().checked_sub(1).map_or(Span::ZERO, |last| self.at(last))
    }

    /// The mean rate over a period in bits per second, rounded down; 0 when the trace lets nothing leave.
    pub fn mean_rate(&self) -> u64 {
        let bits = self.len() as u128 * u128::from(OPPORTUNITY_BYTES) * 8;
        let rate = (bits * 1_000_000_000).checked_div(u128::from(self.period().as_nanos()));
        rate.map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// When the opportunity of this index is, from the start of its period.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> Span {
        Span::from_millis(self.millisecond(index).into())
    }

    /// Periods before the first opportunity later than `time` from the trace's start, and its index. The
    /// trace has a period.
    pub(crate) fn first_after(&self, time: Span) -> (u64, usize) {
        let (cycle, within) = (time / self.period(), time % self.period());
        // Binary search: all before `least` are too early, none from `most` on is.
        let (mut least, mut most) = (0, self.len());
        while least < most {
            let middle = least.midpoint(most);
            if self.at(middle) <= within { least = middle + 1 } else { most = middle }
        }
        (cycle, least)
    }

    /// Opportunities up to and including `time` from the trace's start. The trace has a period.
    pub(crate) fn count_until(&self, time: Span) -> u64 {
        let (cycle, index) = self.first_after(time);
        cycle.saturating_mul(self.len() as u64).saturating_add(index as u64)
    }
}

/// A line for a message: not too long.
fn quote(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use ropewalk_time::MILLISECOND;

    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let trace = RateTrace::parse("t", "0\n0\n 5\r\n\n10\n").unwrap();
        assert_eq!(trace.opportunities().collect::<Vec<_>>(), [0, 0, 5, 10]);
        assert_eq!(RateTrace::parse("t", &trace.to_text()), Ok(trace));
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        let message = |text: &str| RateTrace::parse("lte.down", text).unwrap_err().to_string();
        assert_eq!(
            message(""),
            "lte.down, line 1: expected one number of milliseconds per line, found no numbers"
        );
        assert_eq!(
            message("1\n2\nthree\n"),
            "lte.down, line 3: expected a whole number of milliseconds, 0 to 4294967295, found \"three\""
        );
        assert_eq!(
            message("1\n\n5\n4\n"),
            "lte.down, line 4: expected 5 or more (the line before says 5), found \"4\""
        );
        assert_eq!(
            message("0\n0\n"),
            "lte.down, line 2: expected a last line above 0: it is the time after which the trace repeats, \
             found only zeros"
        );
        for text in ["-1", "1.5", "4294967296", "1 2", "0x10"] {
            assert_eq!(RateTrace::parse("t", text).unwrap_err().line, 1, "{text}");
        }
        assert!(message(&"9".repeat(1000)).len() < 200);
    }

    #[test]
    fn the_mean_rate_is_that_of_a_period() {
        // 4 x 12,000 bits in 10 ms.
        assert_eq!(RateTrace::parse("t", "0\n0\n5\n10").unwrap().mean_rate(), 4_800_000);
    }

    #[test]
    fn it_is_begun_elsewhere_and_keeps_its_mean_rate() {
        let trace = RateTrace::new("t", vec![1, 2, 5, 9, 10]);
        let found = |trace: &RateTrace| trace.opportunities().collect::<Vec<_>>();
        let moved = trace.moved(1.0, 0.5);
        assert_eq!(found(&moved), [4, 5, 6, 7, 10]);
        assert_eq!(moved.mean_rate(), trace.mean_rate());
        assert_eq!(moved.first_after(Span::from_millis(16)), (1, 3));
        assert_eq!(found(&moved.moved(0.5, 0.0)), [8, 10, 12, 14, 20]);
        // Where it is begun at its end, and where times become 0.
        assert_eq!(found(&trace.moved(1.0, 1.0)), [1, 2, 3, 6, 10]);
        assert_eq!(found(&trace.moved(100.0, 0.0)), [1; 5]);
    }

    #[test]
    fn counts_across_periods() {
        let trace = RateTrace::parse("t", "0\n2\n5").unwrap();
        let ms = MILLISECOND;
        let counts: Vec<u64> = [0, 1, 2, 4, 5, 6, 7, 10].map(|t| trace.count_until(t * ms)).to_vec();
        // At 5 ms the last of a period and the first of the next coincide.
        assert_eq!(counts, [1, 1, 2, 2, 4, 4, 5, 7]);
        assert_eq!(trace.first_after(5 * ms - Span::from_nanos(1)), (0, 2));
        assert_eq!(trace.first_after(5 * ms), (1, 1));
    }
}
