//! `ss -ti`: the kernel's own view of live TCP connections. From those that sent data: the least round-trip
//! time, the best delivery rate, and the share of bytes that were retransmitted.
//!
//! A delivery rate that was limited by the application, the receiver's window or the send buffer is a lower
//! bound, so one that wasn't is preferred. Connections that received have none. Retransmissions count
//! congestion's losses too: they are an upper bound of the path's own loss, and all that `ss` has. Loopback
//! is left out; connections of several links are refused.

use super::{Input, Measured, MeasurementError, RoundTrip, Throughput, positive};

#[derive(Default)]
struct Connection {
    min_rtt: Option<f64>,
    rtt: Option<(f64, f64)>,
    delivery: Option<f64>,
    limited: bool,
    sent: u64,
    received: u64,
    retransmitted: u64,
    mss: u64,
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    input.text.contains("rtt:").then(|| parse(input.text))
}

/// Reads what `ss -ti` printed.
///
/// # Errors
/// What is missing.
pub fn parse(text: &str) -> Result<Measured, MeasurementError> {
    let (mut connections, mut links) = (Vec::new(), Vec::new());
    let mut address = None;
    for line in text.lines() {
        address = local_address(line).or(address);
        if !line.contains("rtt:") {
            continue;
        }
        let local = address.take();
        if local.is_some_and(is_loopback) {
            continue;
        }
        links.extend(local.filter(|local| !links.contains(local)));
        connections.push(connection(line));
    }
    if connections.is_empty() {
        return Err(MeasurementError::NoConnection);
    }
    if links.len() > 1 {
        return Err(MeasurementError::SeveralLinks(links.into_iter().map(String::from).collect()));
    }
    let receives = |c: &&Connection| c.received > c.sent.saturating_mul(10);
    let mut notes = Vec::new();
    if connections.iter().all(|c| receives(&c)) {
        notes.push("no rate: these connections received; `ss` at the sender tells it".into());
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
        smoothed: false,
    });
    let best = |limited: bool| {
        let senders = connections.iter().filter(|c| !receives(c) && c.limited == limited);
        let rates = senders.filter_map(|c| c.delivery);
        rates.fold(None, |best: Option<f64>, rate| Some(best.map_or(rate, |best| best.max(rate))))
    };
    let rates = match (best(false), best(true)) {
        (Some(bits), _) => vec![Throughput { bits, sd: 0.3, direction: None, at_least: false }],
        (None, Some(bits)) => {
            notes.push(
                "the rate is at least this: the application, the receiver's window or the send buffer \
                 limited it"
                    .into(),
            );
            vec![Throughput { bits, sd: 0.5, direction: None, at_least: true }]
        }
        (None, None) => Vec::new(),
    };
    let mss = connections.iter().map(|c| c.mss).max().unwrap_or(0).max(500);
    let (sent, lost) = connections
        .iter()
        .fold((0u64, 0u64), |sum, c| (sum.0.saturating_add(c.sent), sum.1.saturating_add(c.retransmitted)));
    // A hundred segments at least, or the share means nothing.
    let loss = (sent / mss >= 100).then(|| ((lost / mss).min(sent / mss), sent / mss));
    Ok(Measured { rtt, retransmitted: loss, rates, notes, ..Measured::default() })
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
            Some(("bytes_received", bytes)) => found.received = bytes.parse().unwrap_or(0),
            Some(("rwnd_limited" | "sndbuf_limited", time)) => found.limited |= most_of_the_time(time),
            Some(("bytes_sent", bytes)) => found.sent = bytes.parse().unwrap_or(0),
            Some(("bytes_retrans", bytes)) => found.retransmitted = bytes.parse().unwrap_or(0),
            None if word == "delivery_rate" => found.delivery = words.next().and_then(rate),
            None if word == "app_limited" => found.limited = true,
            _ => {}
        }
    }
    found
}

/// Of `3208ms(45.2%)`, whether it is more than half.
fn most_of_the_time(text: &str) -> bool {
    let percent = text.split_once('(').and_then(|(_, rest)| positive(rest.split('%').next()?));
    percent.is_some_and(|percent| percent > 50.0)
}

/// The first address with a port of a connection's line: the local one.
fn local_address(line: &str) -> Option<&str> {
    line.split_whitespace().find_map(|word| {
        let (address, port) = word.rsplit_once(':')?;
        let address = address.trim_matches(['[', ']']);
        let address = address.split('%').next().unwrap_or(address);
        let is_address = address.parse::<std::net::IpAddr>().is_ok();
        (is_address && port.parse::<u16>().is_ok()).then_some(address)
    })
}

fn is_loopback(address: &str) -> bool {
    address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
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

    fn shown(local: &str, details: &str) -> String {
        format!(
            "ESTAB 0 0 {local}:51704 192.0.2.10:443\n\t cubic rtt:12.1/1.4 mss:1448 minrtt:8.2 {details}\n"
        )
    }

    #[test]
    fn whose_connections_these_are() {
        let fast = "bytes_sent:9500000 delivery_rate 48Mbps";
        let two = shown("192.168.1.5", fast) + &shown("10.20.0.7", fast);
        let both = vec!["192.168.1.5".to_string(), "10.20.0.7".to_string()];
        assert_eq!(parse(&two).unwrap_err(), MeasurementError::SeveralLinks(both));
        let local = shown("127.0.0.1", "bytes_sent:9500000 delivery_rate 9Gbps");
        assert_eq!(parse(&(local.clone() + &shown("192.168.1.5%eth0", fast))).unwrap().rates[0].bits, 48e6);
        assert_eq!(parse(&local).unwrap_err(), MeasurementError::NoConnection);
        assert_eq!(local_address("ESTAB 0 0 [2001:db8::1]:443 [2001:db8::2]:5000"), Some("2001:db8::1"));
        // The receiver's delivery rate is that of its few requests.
        let received =
            parse(&shown("10.0.0.7", "bytes_sent:370 bytes_received:37339760 delivery_rate 192208bps"));
        let received = received.unwrap();
        assert!(received.rates.is_empty() && received.notes[0].contains("at the sender"), "{received:?}");
        for limit in ["app_limited", "rwnd_limited:3208ms(85.2%)", "sndbuf_limited:9000ms(90.0%)"] {
            let found = parse(&shown("10.0.0.7", &format!("{fast} {limit}"))).unwrap();
            assert!(found.rates[0].at_least, "{limit}");
        }
        assert!(
            !parse(&shown("10.0.0.7", &format!("{fast} rwnd_limited:10ms(2.0%)"))).unwrap().rates[0].at_least
        );
    }

    #[test]
    fn what_ss_prints() {
        let found = parse(super::super::tests::SS).unwrap();
        let rtt = found.rtt.unwrap();
        assert_eq!((rtt.min, rtt.max), (38.1, 61.2));
        // The bulk connection's rate, not the application-limited one's, though that is greater.
        assert_eq!(found.rates[0].bits, 18_600_000.0);
        assert_eq!((found.loss, found.retransmitted), (None, Some((44, 14_566))));
        assert_eq!(rate("12345bps"), Some(12_345.0));
        assert_eq!(rate("1.2Gbps"), Some(1.2e9));
        assert_eq!(rate("bps"), None);
        assert!(parse("State Recv-Q Send-Q").is_err());
    }
}
