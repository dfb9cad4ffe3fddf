//! Traces in mahimahi's format. A name that ends in `.up` or `.down` says which way; another is both.

use std::sync::Arc;

use super::{Input, Measured, MeasurementError};
use crate::scenario;

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
    (count > 0).then(|| {
        let trace = scenario::parse_trace(input.name, input.text);
        let trace = Arc::new(trace.map_err(|error| MeasurementError::Trace(error.message))?);
        let stem = input.name.to_lowercase();
        let traces = match () {
            () if stem.ends_with(".up") || stem.ends_with(".uplink") => [Some(trace), None],
            () if stem.ends_with(".down") || stem.ends_with(".downlink") => [None, Some(trace)],
            () => [Some(trace.clone()), Some(trace)],
        };
        Ok(Measured { traces, ..Measured::default() })
    })
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
