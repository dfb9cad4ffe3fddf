//! `ss -ti`: the kernel's own view of live TCP connections. From those that sent data: the least round-trip time, the
//! best delivery rate, and the share of bytes that were retransmitted.
//!
//! An application-limited delivery rate is a lower bound, so one that isn't is preferred. Retransmissions count
//! congestion's losses too: they are an upper bound of the path's own loss, and all that `ss` has.

use super::{Measured, MeasurementError, RoundTrip, Throughput, positive};

#[derive(Default)]
struct Connection {
    min_rtt: Option<f64>,
    rtt: Option<(f64, f64)>,
    delivery: Option<f64>,
    limited: bool,
    sent: u64,
    retransmitted: u64,
    mss: u64,
}

/// Reads what `ss -ti` printed.
///
/// # Errors
/// What is missing.
pub fn parse(text: &str) -> Result<Measured, MeasurementError> {
    let connections: Vec<Connection> =
        text.lines().filter(|line| line.contains("rtt:")).map(connection).collect();
    if connections.is_empty() {
        return Err(MeasurementError::NoConnection);
    }
    let least = |of: &dyn Fn(&Connection) -> Option<f64>| {
        connections
            .iter()
            .filter_map(of)
            .fold(None, |least: Option<f64>, ms| Some(least.map_or(ms, |least| least.min(ms))))
    };
    let smoothed = connections
        .iter()
        .filter_map(|c| c.rtt)
        .fold((0.0, 0.0, 0.0f64), |sum, (rtt, var)| (sum.0 + rtt, sum.1 + var, sum.2.max(rtt)));
    let count = connections.iter().filter(|c| c.rtt.is_some()).count().max(1) as f64;
    let min = least(&|c| c.min_rtt).or_else(|| least(&|c| c.rtt.map(|(rtt, _)| rtt)));
    let rtt = min.map(|min| RoundTrip {
        min,
        mean: (smoothed.0 / count).max(min),
        sd: smoothed.1 / count,
        max: smoothed.2.max(min),
        count: 0,
        loaded: true,
    });
    let best = |limited: bool| {
        let rates = connections.iter().filter(|c| c.limited == limited).filter_map(|c| c.delivery);
        rates.fold(None, |best: Option<f64>, rate| Some(best.map_or(rate, |best| best.max(rate))))
    };
    let rate = match (best(false), best(true)) {
        (Some(bits), _) => Some(Throughput { bits, sd: 0.3, direction: None }),
        (None, Some(bits)) => Some(Throughput { bits, sd: 0.5, direction: None }),
        (None, None) => None,
    };
    let mss = connections.iter().map(|c| c.mss).max().unwrap_or(0).max(500);
    let (sent, lost) = connections
        .iter()
        .fold((0u64, 0u64), |sum, c| (sum.0.saturating_add(c.sent), sum.1.saturating_add(c.retransmitted)));
    // A hundred segments at least, or the share means nothing.
    let loss = (sent / mss >= 100).then(|| ((lost / mss).min(sent / mss), sent / mss));
    Ok(Measured { rtt, retransmitted: loss, rate, ..Measured::default() })
}

fn connection(line: &str) -> Connection {
    let mut found = Connection::default();
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        match word.split_once(':') {
            Some(("rtt", pair)) => {
                let (rtt, var) = pair.split_once('/').unwrap_or((pair, "0"));
                found.rtt = positive(rtt).zip(positive(var)).filter(|(rtt, var)| *rtt < 1e6 && *var < 1e6);
            }
            Some(("minrtt", ms)) => found.min_rtt = positive(ms).filter(|ms| *ms > 0.0 && *ms < 1e6),
            Some(("mss", bytes)) => found.mss = bytes.parse().unwrap_or(0),
            Some(("bytes_sent", bytes)) => found.sent = bytes.parse().unwrap_or(0),
            Some(("bytes_retrans", bytes)) => found.retransmitted = bytes.parse().unwrap_or(0),
            None if word == "delivery_rate" => found.delivery = words.next().and_then(rate),
            None if word == "app_limited" => found.limited = true,
            _ => {}
        }
    }
    found
}

/// `4.93Mbps`, `640Kbps`, `12345bps`, `1.2Gbps`.
fn rate(text: &str) -> Option<f64> {
    let number = text.strip_suffix("bps")?;
    let (number, factor) = match number.as_bytes().last()? {
        b'K' => (&number[..number.len() - 1], 1e3),
        b'M' => (&number[..number.len() - 1], 1e6),
        b'G' => (&number[..number.len() - 1], 1e9),
        _ => (number, 1.0),
    };
    positive(number).map(|number| number * factor).filter(|rate| *rate >= 1000.0 && *rate <= 1e12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ss_prints() {
        let found = parse(super::super::tests::SS).unwrap();
        let rtt = found.rtt.unwrap();
        assert_eq!((rtt.min, rtt.max), (38.1, 61.2));
        // The bulk connection's rate, not the application-limited one's, though that is greater.
        assert_eq!(found.rate.unwrap().bits, 18_600_000.0);
        assert_eq!((found.loss, found.retransmitted), (None, Some((44, 14_566))));
        assert_eq!(rate("12345bps"), Some(12_345.0));
        assert_eq!(rate("1.2Gbps"), Some(1.2e9));
        assert_eq!(rate("bps"), None);
        assert!(parse("State Recv-Q Send-Q").is_err());
    }
}
