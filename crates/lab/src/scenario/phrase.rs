//! Phrases that the scenario file and `--path` share: queues, losses, rates, names.

use ropewalk_link::{JitterShape, Loss};

use super::draft::{CODEL, QueueDraft, bursts};
use crate::units::{self, UnitError};

/// The words for jitter's distributions.
pub const JITTER_SHAPES: &[(&str, JitterShape)] =
    &[("uniform", JitterShape::Uniform), ("normal", JitterShape::Normal), ("pareto", JitterShape::Pareto)];

/// `100 packets`, `64 KiB`, `200 ms` or `codel`.
pub fn queue(text: &str) -> Result<QueueDraft, UnitError> {
    let body = text.trim();
    if body == "codel" {
        return Ok(CODEL);
    }
    let unit = body.trim_start_matches(|c: char| c.is_ascii_digit() || "+-._ ".contains(c));
    let draft = if units::is_time(unit) {
        units::duration(text).map(|limit| QueueDraft::Time { limit, ecn_threshold: None })
    } else if units::is_size(unit) {
        units::bytes(text).map(|limit| QueueDraft::Bytes { limit, ecn_threshold: None })
    } else {
        units::packets(text).map(|limit| QueueDraft::Packets { limit, ecn_threshold: None }).map_err(|mut error| {
            error.message = match error.message.as_str() {
                "a number of packets needs a unit" => "a queue's limit needs a unit".into(),
                "expected a number of packets" => "expected a queue's limit".into(),
                _ if error.message.contains("is not a unit") => format!("`{unit}` is not a unit of a queue's limit"),
                other => other.into(),
            };
            error.help = "allowed: packets (`100 packets`), a size (`64 KiB`), a time at the link's rate (`200 ms`), `codel`".into();
            error
        })
    }?;
    let empty = match draft {
        QueueDraft::Packets { limit, .. } => limit == 0,
        QueueDraft::Bytes { limit, .. } => limit < 1500,
        QueueDraft::Time { limit, .. } => limit == 0,
        QueueDraft::CoDel { .. } => false,
    };
    if empty {
        return Err(UnitError {
            message: "this queue can't hold a packet".into(),
            span: 0..text.len(),
            label: format!("found `{body}`"),
            help: "allowed: at least 1 packet, 1500 B, or some time".into(),
        });
    }
    Ok(draft)
}

/// `none`, `0.5 %` or `1 % in bursts of 5`.
pub fn loss(text: &str) -> Result<Loss, UnitError> {
    if text.trim() == "none" {
        return Ok(Loss::None);
    }
    let Some(at) = text.find(" in bursts of ") else {
        let probability = units::probability(text)?;
        return Ok(if probability == 0.0 { Loss::None } else { Loss::Bernoulli(probability) });
    };
    let probability = units::probability(&text[..at])?;
    let start = at + " in bursts of ".len();
    let number = text[start..].trim();
    let number = number.strip_suffix("packets").unwrap_or(number).trim();
    match number.parse::<f64>() {
        Ok(length) if (1.0..=10_000.0).contains(&length) => Ok(bursts(probability, length)),
        _ => Err(UnitError {
            message: "expected the mean length of a burst".into(),
            span: start..text.len(),
            label: format!("found `{number}`"),
            help: "allowed: a number of packets from 1 to 10000, as in `1 % in bursts of 5`".into(),
        }),
    }
}

/// A rate, or `unlimited`.
pub fn rate(text: &str) -> Result<u64, UnitError> {
    if text.trim() == "unlimited" { Ok(u64::MAX) } else { units::rate(text) }
}

/// Most characters of a name.
pub const LONGEST_NAME: usize = 40;

/// Why a name can't be used, if it can't.
pub fn bad_name(name: &str) -> Option<&'static str> {
    let allowed = |c: char| c.is_alphanumeric() || "-_.+ ".contains(c);
    if name.is_empty() {
        Some("it is empty")
    } else if name.chars().count() > LONGEST_NAME {
        Some("it is longer than 40 characters")
    } else if !name.chars().all(allowed) || name.trim() != name {
        Some("allowed: letters, digits, spaces inside, `-`, `_`, `.`, `+`")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues() {
        assert_eq!(queue("100 packets"), Ok(QueueDraft::Packets { limit: 100, ecn_threshold: None }));
        assert_eq!(queue("64 KiB"), Ok(QueueDraft::Bytes { limit: 65_536, ecn_threshold: None }));
        assert_eq!(queue("200ms"), Ok(QueueDraft::Time { limit: 200_000_000, ecn_threshold: None }));
        assert_eq!(queue("codel"), Ok(CODEL));
        assert!(queue("100").unwrap_err().help.contains("100 packets"));
        assert!(queue("100 pakets").unwrap_err().message.contains("`pakets`"));
        assert!(queue("0 packets").unwrap_err().message.contains("can't hold"));
        assert!(queue("10 B").unwrap_err().message.contains("can't hold"));
        assert!(queue("").is_err());
    }

    #[test]
    fn losses() {
        assert_eq!(loss("0.5 %"), Ok(Loss::Bernoulli(0.005)));
        assert_eq!(loss("0 %"), Ok(Loss::None));
        assert_eq!(loss("none"), Ok(Loss::None));
        assert_eq!(loss("1 % in bursts of 5"), Ok(bursts(0.01, 5.0)));
        assert_eq!(loss("1 % in bursts of x").unwrap_err().span, 17..18);
    }
}
