//! Columns of integers in few characters: differences, and runs of the same value.
//!
//! A trace has 100,000 rows; as objects with named fields they would be ten times the text.

use serde_json::Value;

/// Differences to the value before, the first to 0.
pub(super) fn deltas(values: impl IntoIterator<Item = i64>) -> Value {
    let mut before = 0i64;
    let of = |value: i64| {
        let delta = value.wrapping_sub(before);
        before = value;
        Value::from(delta)
    };
    Value::Array(values.into_iter().map(of).collect())
}

/// `value, count, value, count, ...`
pub(super) fn runs(values: impl IntoIterator<Item = i64>) -> Value {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for value in values {
        match runs.last_mut() {
            Some((last, count)) if *last == value => *count += 1,
            _ => runs.push((value, 1)),
        }
    }
    Value::Array(runs.into_iter().flat_map(|(value, count)| [value.into(), count.into()]).collect())
}

/// As they are.
pub(super) fn plain(values: impl IntoIterator<Item = i64>) -> Value {
    Value::Array(values.into_iter().map(Value::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_say_what_changes() {
        assert_eq!(deltas([5, 7, 7, 3]), json!([5, 2, 0, -4]));
        assert_eq!(runs([1, 1, 1, 0, 2, 2]), json!([1, 3, 0, 1, 2, 2]));
        assert_eq!(runs([]), json!([]));
        assert_eq!(plain([3, 1]), json!([3, 1]));
    }
}
