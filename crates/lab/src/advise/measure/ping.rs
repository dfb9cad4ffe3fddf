//! `ping`, as iputils, BSD, busybox and Windows print it, in any language: the times of single answers, the count of those
//! lost, and the summary line where the answers themselves are missing (`ping -q`).

use super::{Counted, Measured, MeasurementError, RoundTrip, positive, round_trips};

/// Reads what ping printed. Several runs in one file are added up; without a summary, gaps in the answers' numbers are counted.
///
/// # Errors
/// What is missing.
pub fn parse(text: &str) -> Result<Measured, MeasurementError> {
    let (mut samples, mut numbers) = (Vec::new(), Vec::new());
    let (mut counted, mut summary): (Option<(u64, u64)>, _) = (None, None);
    let mut before = "";
    for line in text.lines() {
        // Some translations of Windows break the line before the percentage.
        let joined = line.trim_start().starts_with('(').then(|| format!("{before} {line}"));
        before = line;
        let line = joined.as_deref().unwrap_or(line);
        if let Some(ms) = answer(line) {
            samples.push(ms);
            numbers.extend(sequence(line));
        } else if let Some((lost, sent)) = counts(line) {
            let sum = counted.unwrap_or((0, 0));
            counted = Some((sum.0.saturating_add(lost), sum.1.saturating_add(sent)));
        }
        summary = summary.or_else(|| summarised(line));
    }
    let rtt = round_trips(&samples, false).or(summary);
    if rtt.is_none() && counted.is_none() {
        return Err(MeasurementError::NoPing);
    }
    if rtt.is_none() {
        return Err(MeasurementError::NoAnswer);
    }
    let mut notes = Vec::new();
    if counted.is_none() {
        counted = gaps(&mut numbers);
        notes.push(match counted {
            Some(_) => "no summary: losses are the gaps in the numbers of the answers".into(),
            None => "loss unknown: neither a summary nor numbers of the answers".into(),
        });
    }
    let loss = counted.map(|(lost, sent)| Counted { lost, sent, round_trip: true });
    Ok(Measured { rtt, loss, notes, ..Measured::default() })
}

/// `64 bytes from ...: icmp_seq=1 ttl=55 time=23.4 ms`, `Antwort von ...: Bytes=32 Zeit<1ms TTL=55`: whatever the word, a number
/// right behind `=` or `<` and before `ms`.
fn answer(line: &str) -> Option<f64> {
    let (rest, _) = line.match_indices("ms").find_map(|(at, _)| {
        let number = line[..at].trim_end();
        let start = number.rfind(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','))?;
        number[start..].starts_with(['=', '<']).then(|| (&number[start + 1..], at))
    })?;
    positive(&rest.replace(',', ".")).filter(|ms| *ms < 1e6)
}

/// The answer's number: `icmp_seq=7`, `icmp_req=7`, `seq=7`.
fn sequence(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("seq=").or_else(|| line.split_once("req="))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Lost and sent, by the numbers of the answers; what was lost after the last one isn't seen.
fn gaps(numbers: &mut Vec<u64>) -> Option<(u64, u64)> {
    numbers.sort_unstable();
    numbers.dedup();
    let (first, last) = (*numbers.first()?, *numbers.last()?);
    // The first number is 1 with iputils, 0 with others.
    let sent = last - first.min(1) + 1;
    Some((sent.saturating_sub(numbers.len() as u64), sent))
}

/// `20 packets transmitted, 19 received, 5% packet loss`; `Gesendet = 4, Empfangen = 4, Verloren = 0 (0% Verlust)`: two counts
/// whose difference the percentage confirms. Lost and sent.
fn counts(line: &str) -> Option<(u64, u64)> {
    let percentage = line.split_once('%');
    let before = percentage.map_or(line, |(before, _)| before);
    let numbers: Vec<f64> = before
        .split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .filter_map(|text| positive(text.trim_matches('.')))
        .collect();
    let (sent, received, percent) = match numbers.as_slice() {
        [sent, received, .., percent] if percentage.is_some() => (sent, received, Some(percent)),
        // Where the percentage is cut off, by its English words alone.
        [sent, received, ..] if line.contains("transmitted") => (sent, received, None),
        _ => return None,
    };
    let whole = |number: f64| number.fract() == 0.0 && number < 1e12;
    if *sent < 1.0 || !whole(*sent) || !whole(*received) {
        return None;
    }
    // Duplicates can make more come back than went out.
    let lost = (sent - received).max(0.0);
    let confirmed = percent.is_none_or(|percent| (lost / sent * 100.0 - percent).abs() <= 1.0);
    confirmed.then_some((lost as u64, *sent as u64))
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

    fn lost(lost: u64, sent: u64) -> Option<Counted> {
        Some(Counted { lost, sent, round_trip: true })
    }

    #[test]
    fn several_runs_in_a_file_add_up() {
        let one = "1 packets transmitted, 0 received, 100% packet loss, time 0ms\n\
                   64 bytes from 192.0.2.1: icmp_seq=1 ttl=55 time=40.7 ms\n\
                   1 packets transmitted, 1 received, 0% packet loss, time 0ms\n";
        assert_eq!(parse(&one.repeat(3)).unwrap().loss, lost(3, 6));
    }

    #[test]
    fn without_a_summary_gaps_are_counted_and_else_the_loss_is_unknown() {
        let answers = |numbers: &[u32]| -> String {
            let line = |n: &u32| format!("64 bytes from 192.0.2.1: icmp_seq={n} ttl=55 time=40.{n} ms\n");
            numbers.iter().map(line).collect()
        };
        assert_eq!(parse(&answers(&[1, 2, 4, 5, 8])).unwrap().loss, lost(3, 8));
        assert_eq!(parse(&answers(&[0, 1, 2])).unwrap().loss, lost(0, 3));
        assert_eq!(parse(&answers(&[3, 4])).unwrap().loss, lost(2, 4));
        let found = parse("Antwort von 192.0.2.1: Bytes=32 Zeit=14ms TTL=55\n").unwrap();
        assert_eq!(found.loss, None);
        assert!(found.notes[0].contains("loss unknown"), "{:?}", found.notes);
    }

    #[test]
    fn the_words_are_of_any_language() {
        let texts = [
            "64 Bytes von 192.0.2.1: icmp_seq=1 ttl=55 Zeit=23.4 ms\n20 Pakete gesendet, 19 empfangen, 5% Paketverlust",
            "64 octets de 192.0.2.1 : icmp_seq=1 ttl=55 temps=23.4 ms\n20 paquets transmis, 19 reçus, 5 % paquets perdus",
            "64 bytes desde 192.0.2.1: icmp_seq=1 ttl=55 tiempo=23,4 ms\n20 paquetes transmitidos, 19 recibidos, 5% paquetes perdidos",
            "来自 192.0.2.1 的回复: 字节=32 时间=23ms TTL=55\n数据包: 已发送 = 20，已接收 = 19，丢失 = 1 (5% 丢失)，",
            "Antwort von 192.0.2.1: Bytes=32 Zeit=23ms TTL=55\n    Pakete: Gesendet = 20, Empfangen = 19, Verloren = 1\n    (5% Verlust),",
        ];
        for text in &texts {
            let found = parse(text).unwrap();
            assert_eq!(found.loss, lost(1, 20), "{text}");
            assert!((found.rtt.unwrap().mean - 23.2).abs() < 0.3, "{text}");
        }
        let summary = "    Minimum = 14ms, Maximum = 15ms, Mittelwert = 14ms";
        assert_eq!(answer(summary), None);
    }

    #[test]
    fn what_pings_print() {
        let found = parse(super::super::tests::PING).unwrap();
        let rtt = found.rtt.unwrap();
        assert_eq!((rtt.count, found.loss), (19, lost(1, 20)));
        assert!((rtt.mean - 44.6).abs() < 0.2 && rtt.min == 38.2, "{rtt:?}");
        let quiet = "--- example.net ping statistics ---\n10 packets transmitted, 10 packets received, 0.0% packet \
                     loss\nround-trip min/avg/max/stddev = 11.5/12.0/13.5/0.6 ms\n";
        let rtt = parse(quiet).unwrap().rtt.unwrap();
        assert_eq!((rtt.min, rtt.mean, rtt.sd), (11.5, 12.0, 0.6));
        let windows = "Reply from 192.0.2.1: bytes=32 time=14ms TTL=55\nReply from 192.0.2.1: bytes=32 time<1ms \
                       TTL=55\n    Packets: Sent = 4, Received = 2, Lost = 2 (50% loss),\n";
        let found = parse(windows).unwrap();
        assert_eq!((found.loss, found.rtt.unwrap().mean), (lost(2, 4), 7.5));
        let dead = "3 packets transmitted, 0 received, 100% packet loss, time 2040ms\n";
        assert!(parse(dead).unwrap_err() == MeasurementError::NoAnswer);
        assert!(parse("ping: unknown host").is_err());
    }
}
