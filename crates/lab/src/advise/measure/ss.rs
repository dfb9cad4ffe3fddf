//! `ss -ti`: the kernel's own view of live TCP connections. From those that sent data: the least round-trip
//! time, the best delivery rate, and the share of bytes that were retransmitted.
//!
//! A delivery rate that was limited by the application, the receiver's window or the send buffer is a lower
//! bound, so one that wasn't is preferred. Connections that received have none. Retransmissions count
//! congestion's losses too: they are an upper bound of the path's own loss, and all that `ss` has. Loopback
//! is left out; connections of several links are refused.

use super::long::{ByLine, of_text};
use super::{Input, Measured, MeasurementError, RoundTrip, Throughput, at_least, positive};

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
    of_text(by_line(""), text)
}

pub(super) fn by_line(_: &str) -> Box<dyn ByLine> {
    Box::<Connections>::default()
}

/// What was read so far.
#[derive(Default)]
struct Connections {
    /// The local address of the connection whose numbers come next.
    address: Option<String>,
    links: Vec<String>,
    /// Connections, and those of them that sent.
    count: u64,
    senders: u64,
    min_rtt: Option<f64>,
    /// Smoothed round trips: the least, the greatest, and sums of them and of their variations.
    smoothed: Option<(f64, f64)>,
    sums: (f64, f64),
    smoothed_count: u64,
    /// The best delivery rates that nothing and that something else limited.
    best: [Option<f64>; 2],
    sent: u64,
    retransmitted: u64,
    mss: u64,
}

impl ByLine for Connections {
    fn line(&mut self, line: &str) -> Result<(), MeasurementError> {
        if let Some(address) = local_address(line) {
            self.address = Some(address.to_string());
        }
        if !line.contains("rtt:") {
            return Ok(());
        }
        let local = self.address.take();
        if local.as_deref().is_some_and(is_loopback) {
            return Ok(());
        }
        // The first few say enough.
        self.links.extend(local.filter(|local| self.links.len() < 8 && !self.links.contains(local)));
        self.add(&connection(line));
        Ok(())
    }

    fn end(self: Box<Self>) -> Result<Measured, MeasurementError> {
        if self.count == 0 {
            return Err(MeasurementError::NoConnection);
        }
        if self.links.len() > 1 {
            return Err(MeasurementError::SeveralLinks(self.links));
        }
        let mut notes = Vec::new();
        if self.senders == 0 {
            notes.push("no rate: these connections received; `ss` at the sender tells it".into());
        }
        let count = self.smoothed_count.max(1) as f64;
        let min = self.min_rtt.or(self.smoothed.map(|(least, _)| least));
        let rtt = min.map(|min| RoundTrip {
            min,
            mean: (self.sums.0 / count).max(min),
            sd: self.sums.1 / count,
            max: self.smoothed.map_or(0.0, |(_, most)| most).max(min),
            count: None,
            loaded: true,
            smoothed: false,
        });
        let rates = match self.best {
            [Some(bits), _] => vec![Throughput { bits, sd: 0.3, direction: None, at_least: false }],
            [None, Some(bits)] => {
                let why = "the application, the receiver's window or the send buffer limited it";
                notes.push(at_least(None, bits, why));
                vec![Throughput { bits, sd: 0.5, direction: None, at_least: true }]
            }
            [None, None] => Vec::new(),
        };
        let mss = self.mss.max(500);
        let (sent, lost) = (self.sent, self.retransmitted);
        // A hundred segments at least, or the share means nothing.
        let loss = (sent / mss >= 100).then(|| ((lost / mss).min(sent / mss), sent / mss));
        Ok(Measured { rtt, retransmitted: loss, rates, notes, ..Measured::default() })
    }
}

impl Connections {
    fn add(&mut self, one: &Connection) {
        let receives = one.received > one.sent.saturating_mul(10);
        let least = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::min);
        self.count += 1;
        self.min_rtt = least(self.min_rtt, one.min_rtt);
        if let Some((rtt, var)) = one.rtt {
            let (min, max) = self.smoothed.unwrap_or((rtt, rtt));
            self.smoothed = Some((min.min(rtt), max.max(rtt)));
            self.sums = (self.sums.0 + rtt, self.sums.1 + var);
            self.smoothed_count += 1;
        }
        if !receives {
            self.senders += 1;
            let best = &mut self.best[usize::from(one.limited)];
            *best = best.iter().copied().chain(one.delivery).reduce(f64::max);
        }
        self.sent = self.sent.saturating_add(one.sent);
        self.retransmitted = self.retransmitted.saturating_add(one.retransmitted);
        self.mss = self.mss.max(one.mss);
    }
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
