//! `ping`, as iputils, BSD, busybox and Windows print it: the times of single answers, the count of those lost, and the
//! summary line where the answers themselves are missing (`ping -q`).

use super::{Measured, MeasurementError, RoundTrip, positive, round_trips};

/// Reads what ping printed.
///
/// # Errors
/// What is missing.
pub fn parse(text: &str) -> Result<Measured, MeasurementError> {
    let mut samples = Vec::new();
    let (mut counted, mut summary) = (None, None);
    for line in text.lines() {
        if let Some(ms) = answer(line) {
            samples.push(ms);
        }
        counted = counted.or_else(|| counts(line));
        summary = summary.or_else(|| summarised(line));
    }
    let rtt = round_trips(&samples, false).or(summary);
    if rtt.is_none() && counted.is_none() {
        return Err(MeasurementError::NoPing);
    }
    if rtt.is_none() {
        return Err(MeasurementError::NoAnswer);
    }
    Ok(Measured { rtt, loss: counted, ..Measured::default() })
}

/// `64 bytes from ...: icmp_seq=1 ttl=55 time=23.4 ms`, `Reply from ...: bytes=32 time<1ms TTL=55`.
fn answer(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once("time=").or_else(|| line.split_once("time<"))?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    let (number, unit) = rest.split_at(end);
    unit.trim_start().starts_with("ms").then(|| positive(number)).flatten().filter(|ms| *ms < 1e6)
}

/// `20 packets transmitted, 19 received, 5% packet loss`; `Packets: Sent = 4, Received = 4, Lost = 0 (0% loss)`.
fn counts(line: &str) -> Option<(u64, u64)> {
    let (sent, received) = if line.contains("transmitted") {
        let mut parts = line.split(',');
        let number = |part: Option<&str>| part?.split_whitespace().next()?.parse::<u64>().ok();
        (number(parts.next())?, number(parts.next())?)
    } else {
        let after = |word: &str| {
            let (_, rest) = line.split_once(word)?;
            rest.trim_start_matches([' ', '='])
                .split(|c: char| !c.is_ascii_digit())
                .next()?
                .parse::<u64>()
                .ok()
        };
        (after("Sent")?, after("Received")?)
    };
    // Duplicates can make more come back than went out.
    (sent > 0).then(|| (sent.saturating_sub(received), sent))
}

/// `rtt min/avg/max/mdev = 21.3/25.4/38.1/4.2 ms`; busybox has no fourth.
fn summarised(line: &str) -> Option<RoundTrip> {
    let (head, numbers) = line.split_once('=')?;
    if !head.contains("min/avg/max") {
        return None;
    }
    let numbers = numbers.split_whitespace().next()?;
    let numbers: Vec<f64> = numbers.split('/').map_while(positive).filter(|ms| *ms < 1e6).collect();
    let [min, mean, max, rest @ ..] = numbers.as_slice() else { return None };
    let sd = rest.first().copied().unwrap_or((max - min) / 4.0).max(0.0);
    Some(RoundTrip { min: *min, mean: *mean, sd, max: *max, count: 0, loaded: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pings_print() {
        let found = parse(super::super::tests::PING).unwrap();
        let rtt = found.rtt.unwrap();
        assert_eq!((rtt.count, found.loss), (19, Some((1, 20))));
        assert!((rtt.mean - 44.6).abs() < 0.2 && rtt.min == 38.2, "{rtt:?}");
        let quiet = "--- example.net ping statistics ---\n10 packets transmitted, 10 packets received, 0.0% packet \
                     loss\nround-trip min/avg/max/stddev = 11.5/12.0/13.5/0.6 ms\n";
        let rtt = parse(quiet).unwrap().rtt.unwrap();
        assert_eq!((rtt.min, rtt.mean, rtt.sd), (11.5, 12.0, 0.6));
        let windows = "Reply from 192.0.2.1: bytes=32 time=14ms TTL=55\nReply from 192.0.2.1: bytes=32 time<1ms \
                       TTL=55\n    Packets: Sent = 4, Received = 2, Lost = 2 (50% loss),\n";
        let found = parse(windows).unwrap();
        assert_eq!((found.loss, found.rtt.unwrap().mean), (Some((2, 4)), 7.5));
        let dead = "3 packets transmitted, 0 received, 100% packet loss, time 2040ms\n";
        assert!(parse(dead).unwrap_err() == MeasurementError::NoAnswer);
        assert!(parse("ping: unknown host").is_err());
    }
}
