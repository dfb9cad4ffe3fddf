//! Phrases that the scenario file and `--path` share: queues, losses, rates, names.

use ropewalk_engine::{Span, Time};
use ropewalk_link::{Change, ChangeAction, JitterShape, Loss, Rate};
use ropewalk_settings::units::{self, UnitError};

use super::draft::{CODEL, QueueDraft, bursts};

/// The words for jitter's distributions.
pub const JITTER_SHAPES: &[(&str, JitterShape)] =
    &[("uniform", JitterShape::Uniform), ("normal", JitterShape::Normal), ("pareto", JitterShape::Pareto)];

/// `100 packets`, `64 KiB`, `200 ms` or `codel`.
pub fn queue(text: &str) -> Result<QueueDraft, UnitError> {
    let body = text.trim();
    if body == "codel" {
        return Ok(CODEL);
    }
    let unit = units::unit_of(body);
    let draft = if units::is_time(unit) {
        units::duration(text).map(|limit| QueueDraft::Time { limit, ecn_threshold: None })
    } else if units::is_size(unit) {
        units::bytes(text).map(|limit| QueueDraft::Bytes { limit, ecn_threshold: None })
    } else {
        units::packets(text).map(|limit| QueueDraft::Packets { limit, ecn_threshold: None }).map_err(
            |mut error| {
                error.message = match error.message.as_str() {
                    "a number of packets needs a unit" => "a queue's limit needs a unit".into(),
                    "expected a number of packets" => "expected a queue's limit".into(),
                    _ if error.message.contains("is not a unit") => format!(
                        "`{unit}` is not a unit of a \
                    queue's limit"
                    ),
                    other => other.into(),
                };
                error.help =
                    "allowed: packets (`100 packets`), a size (`64 KiB`), a time at the link's rate \
                          (`200 ms`), `codel`"
                        .into();
                error
            },
        )
    }?;
    let empty = match draft {
        QueueDraft::Packets { limit, .. } => limit == 0,
        QueueDraft::Bytes { limit, .. } => limit < 1500,
        QueueDraft::Time { limit, .. } => limit.is_zero(),
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

/// Rates down and up: `50 Mbit/s` for both, or `16/1 Mbit/s`.
pub fn rates(text: &str) -> Result<(u64, u64), UnitError> {
    let numeric = |part: &str| {
        let part = part.trim();
        part.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && part.chars().all(|c| c.is_ascii_digit() || ".,_".contains(c))
    };
    let Some((down, up)) = text.split_once('/').filter(|(down, _)| numeric(down)) else {
        return rate(text).map(|rate| (rate, rate));
    };
    let shift = down.len() + 1;
    let up_rate = units::rate(up).map_err(|mut error| {
        error.span = error.span.start + shift..error.span.end + shift;
        error
    })?;
    let unit = units::unit_of(up);
    let down_rate = units::rate(&format!("{down} {unit}")).map_err(|mut error| {
        error.span = 0..down.len();
        error
    })?;
    Ok((down_rate, up_rate))
}

/// The price of 10^9 bytes: `2 EUR/GB`. Any currency will do, as long as all paths have the same.
pub fn price(text: &str) -> Result<f64, UnitError> {
    let wrong = |message: &str| UnitError {
        message: message.into(),
        span: 0..text.len(),
        label: format!("found `{}`", text.trim()),
        help: "write a price per GB, such as `2 EUR/GB`".into(),
    };
    let body = text.trim();
    let Some(amount) = body.strip_suffix("/GB").or_else(|| body.strip_suffix("per GB")) else {
        return Err(wrong("a price is per GB"));
    };
    let number =
        amount.trim().trim_matches(|c: char| c.is_alphabetic() || "$\u{20ac}\u{a3}\u{a5} ".contains(c));
    match number.parse::<f64>() {
        Ok(price) if (0.0..=1e6).contains(&price) => Ok(price),
        Ok(_) => Err(wrong("this price is out of range")),
        Err(_) => Err(wrong("expected a price")),
    }
}

/// A rate from a time on: `10 Mbit/s at 5 s`.
pub fn rate_at(text: &str) -> Result<Change, UnitError> {
    let place = text.find(" at ").unwrap_or(text.len());
    let (rate, at) = (&text[..place], text.get(place + " at ".len()..).unwrap_or_default());
    if rate.contains('/') && rates(rate).is_ok_and(|(down, up)| down != up) {
        return Err(UnitError {
            message: "a change has one rate for both directions".into(),
            span: 0..rate.len(),
            label: format!("found `{}`", rate.trim()),
            help: "as in `10 Mbit/s at 5 s`".into(),
        });
    }
    let (rate, _) = rates(rate)?;
    let at = units::duration(at).map_err(|mut error| {
        let from = place + " at ".len();
        error.span = error.span.start + from..error.span.end + from;
        error
    })?;
    Ok(Change::once(Time::ZERO + at, ChangeAction::Rate(Rate::Constant(rate))))
}

/// Least time between two changes that repeat.
pub const LEAST_PERIOD: Span = Span::from_millis(1);

/// What says that a kind of link has no outage.
pub const NO_OUTAGE: &str = "none";

/// Down for a time, once or again and again: `500 ms at 3 s`, `100 ms every 15 s`. `none`: not at all.
pub fn outage(text: &str) -> Result<Vec<Change>, UnitError> {
    if text.trim() == NO_OUTAGE {
        return Ok(Vec::new());
    }
    let wrong = |message: &str, help: &str| UnitError {
        message: message.into(),
        span: 0..text.len(),
        label: format!("found `{}`", text.trim()),
        help: help.into(),
    };
    let example = "as in `100 ms every 15 s`, `2 s at 5 s`, `2 s at 5 s every 30 s` or `none`";
    let part = |from: usize, to: usize| {
        units::duration(&text[from..to]).map_err(|mut error| {
            error.span = error.span.start + from..error.span.end + from;
            error
        })
    };
    let (at, every) = (text.find(" at "), text.find(" every "));
    let ends = |from: usize| [at, every].into_iter().flatten().filter(|end| *end > from).min();
    let length = part(0, ends(0).unwrap_or(text.len()))?;
    let of = |place: Option<usize>, word: &str| {
        place.map(|place| part(place + word.len(), ends(place).unwrap_or(text.len()))).transpose()
    };
    let (at, every) = (of(at, " at ")?, of(every, " every ")?);
    let Some(begin) = at.or(every) else {
        return Err(wrong("this outage has no time", example));
    };
    let begin = Time::ZERO + begin;
    if length.is_zero() || every.is_some_and(|every| every <= length || every < LEAST_PERIOD) {
        return Err(wrong("an outage must last, and end before the next", example));
    }
    let change = |at, action| Change { at, action, every };
    Ok(vec![change(begin, ChangeAction::Down), change(begin.saturating_add(length), ChangeAction::Up)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues() {
        assert_eq!(queue("100 packets"), Ok(QueueDraft::Packets { limit: 100, ecn_threshold: None }));
        assert_eq!(queue("64 KiB"), Ok(QueueDraft::Bytes { limit: 65_536, ecn_threshold: None }));
        assert_eq!(
            queue("200ms"),
            Ok(QueueDraft::Time { limit: Span::from_millis(200), ecn_threshold: None })
        );
        assert_eq!(queue("codel"), Ok(CODEL));
        assert!(queue("100").unwrap_err().help.contains("100 packets"));
        assert!(queue("100 pakets").unwrap_err().message.contains("`pakets`"));
        assert!(queue("0 packets").unwrap_err().message.contains("can't hold"));
        assert!(queue("10 B").unwrap_err().message.contains("can't hold"));
        assert!(queue("").is_err());
    }

    #[test]
    fn rates_down_and_up() {
        assert_eq!(rates("16/1 Mbit/s"), Ok((16_000_000, 1_000_000)));
        assert_eq!(rates("16 / 0.5 Mbit/s"), Ok((16_000_000, 500_000)));
        assert_eq!(rates("50 Mbit/s"), Ok((50_000_000, 50_000_000)));
        assert_eq!(rates("2.5 MB/s"), Ok((20_000_000, 20_000_000)));
        assert_eq!(rates("16/1 Mbyts").unwrap_err().span, 5..10);
        assert_eq!(rates("16/0 Mbit/s").unwrap_err().message, "this rate is out of range");
        assert_eq!(rates("99999999/1 Mbit/s").unwrap_err().span, 0..8);
    }

    #[test]
    fn prices() {
        for text in ["2 EUR/GB", "$2/GB", "2 per GB", "2/GB", "2\u{20ac}/GB"] {
            assert_eq!(price(text), Ok(2.0), "{text}");
        }
        assert_eq!(price("2 EUR").unwrap_err().message, "a price is per GB");
        assert_eq!(price("-2 EUR/GB").unwrap_err().message, "this price is out of range");
        assert_eq!(price("EUR/GB").unwrap_err().message, "expected a price");
    }

    #[test]
    fn outages() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let read = |text: &str| <[Change; 2]>::try_from(outage(text).unwrap()).unwrap();
        let [down, up] = read("100 ms every 15 s");
        assert_eq!((down.at, down.every), (at(15_000), Some(Span::from_secs(15))));
        assert_eq!((up.at, &up.action), (at(15_100), &ChangeAction::Up));
        let [down, _] = read("2 s at 5 s");
        assert_eq!((down.at, down.every), (at(5000), None));
        let [down, _] = read("2 s at 5 s every 30 s");
        assert_eq!((down.at, down.every), (at(5000), Some(Span::from_secs(30))));
        assert_eq!(outage(" none"), Ok(Vec::new()));
        assert_eq!(outage("2 s").unwrap_err().message, "this outage has no time");
        assert_eq!(outage("2 s at 5").unwrap_err().span, 7..8);
        assert!(outage("2 s every 1 s").unwrap_err().message.contains("end before"));
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
