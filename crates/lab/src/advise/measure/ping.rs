//! `ping`, as iputils, BSD, busybox and Windows print it, in any language: the times of single answers, the
//! count of those lost, and the summary line where the answers themselves are missing (`ping -q`).

use super::long::{ByLine, Samples, of_text};
use super::{Counted, Input, Measured, MeasurementError, RoundTrip, positive};

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let found = parse(input.text);
    let words = ["PING ", "Pinging ", "packets transmitted"];
    (found.is_ok() || words.iter().any(|word| input.text.contains(word))).then_some(found)
}

/// Reads what ping printed. Several runs in one file are added up; without a summary, gaps in the answers'
/// numbers are counted.
///
/// # Errors
/// What is missing.
pub fn parse(text: &str) -> Result<Measured, MeasurementError> {
    of_text(by_line(""), text)
}

pub(super) fn by_line(_: &str) -> Box<dyn ByLine> {
    Box::<Ping>::default()
}

/// What was read so far.
#[derive(Default)]
struct Ping {
    samples: Samples,
    gaps: Gaps,
    /// Lost, sent.
    counted: Option<(u64, u64)>,
    summary: Option<RoundTrip>,
    before: String,
    windows: bool,
}

impl ByLine for Ping {
    fn line(&mut self, line: &str) -> Result<(), MeasurementError> {
        // Some translations of Windows break the line before the percentage.
        let joined = line.trim_start().starts_with('(').then(|| format!("{} {line}", self.before));
        self.before.clear();
        self.before.push_str(line);
        let line = joined.as_deref().unwrap_or(line);
        if let Some(ms) = answer(line) {
            self.windows |= line.contains("TTL=");
            // The second answer to the same is none of the path's.
            if !line.contains("DUP!") {
                self.samples.push(ms);
                self.gaps.add(sequence(line));
            }
        } else if let Some((lost, sent)) = counts(line) {
            let sum = self.counted.unwrap_or((0, 0));
            self.counted = Some((sum.0.saturating_add(lost), sum.1.saturating_add(sent)));
        }
        self.summary = self.summary.or_else(|| summarised(line));
        Ok(())
    }

    fn end(self: Box<Self>) -> Result<Measured, MeasurementError> {
        let Ping { samples, gaps, mut counted, summary, windows, .. } = *self;
        let (rtt, spikes) = match samples.round_trips() {
            Some((rtt, spikes)) => (Some(rtt), spikes),
            None => (summary, None),
        };
        if rtt.is_none() && counted.is_none() {
            return Err(MeasurementError::NoPing);
        }
        if rtt.is_none() {
            return Err(MeasurementError::NoAnswer);
        }
        let mut notes: Vec<String> = spikes.into_iter().collect();
        // Windows counts "Destination host unreachable" as an answer.
        if let Some((lost, sent)) = &mut counted
            && windows
        {
            *lost = (*lost).max(sent.saturating_sub(samples.count()));
        }
        if counted.is_none() {
            counted = gaps.counted();
            notes.push(match counted {
                Some(_) => "no summary: losses are the gaps in the numbers of the answers".into(),
                None => "loss unknown: neither a summary nor numbers of the answers".into(),
            });
        }
        let loss = counted.map(|(lost, sent)| Counted { lost, sent, round_trip: true });
        Ok(Measured { rtt, loss, notes, ..Measured::default() })
    }
}

/// `64 bytes from ...: icmp_seq=1 ttl=55 time=23.4 ms`, `Antwort von ...: Bytes=32 Zeit<1ms TTL=55`: whatever
/// the word, a number right behind `=` or `<` and before `ms`, or before what stands for it in front of
/// `TTL=`.
fn answer(line: &str) -> Option<f64> {
    let before = |at: usize| {
        let number = line[..at].trim_end();
        let start = number.rfind(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','))?;
        let sign = number[start..].starts_with(['=', '<', '\u{ff1d}']).then_some(start)?;
        let length = number[sign..].chars().next().map_or(1, char::len_utf8);
        positive(&number[sign + length..].replace(',', ".")).filter(|ms| *ms < 1e6)
    };
    let unit = |word: &str| line.match_indices(word).find_map(|(at, _)| before(at));
    // In Cyrillic; in the code pages of a console whatever came of that.
    let of_windows = || {
        let head = line[..line.find(" TTL=")?].trim_end();
        let letters: usize = head.chars().rev().take_while(|c| !c.is_ascii_digit()).map(char::len_utf8).sum();
        before(head.len().checked_sub(letters).filter(|_| letters <= 9)?)
    };
    unit("ms").or_else(|| unit("\u{43c}\u{441}")).or_else(of_windows)
}

/// The answer's number: `icmp_seq=7`, `icmp_req=7`, `seq=7`.
fn sequence(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("seq=").or_else(|| line.split_once("req="))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok().map(u64::from)
}

/// The numbers of answers. What was lost after the last one of a run isn't seen.
#[derive(Default)]
struct Gaps {
    /// Of the run: its first number, its last, and how many answers it has.
    run: Option<(u64, u64, u64)>,
    received: u64,
    sent: u64,
}

/// A number so much below the last one is of another run; less may have come out of order.
const ANOTHER_RUN: u64 = 20;

impl Gaps {
    fn add(&mut self, number: Option<u64>) {
        let Some(number) = number else { return };
        match &mut self.run {
            Some((first, last, count)) if number + ANOTHER_RUN > *last && number + ANOTHER_RUN > *first => {
                (*first, *last, *count) = ((*first).min(number), (*last).max(number), *count + 1);
            }
            // The number has 16 bits.
            Some((_, last, _)) if *last > 65_000 && number < 500 => {
                self.close();
                self.run = Some((0, number, 1));
            }
            _ => {
                self.close();
                // The first number is 1 with iputils, 0 with others; a log that begins later has lost its
                // beginning.
                let first = if number <= 10 { number.min(1) } else { number };
                self.run = Some((first, number, 1));
            }
        }
    }

    fn close(&mut self) {
        if let Some((first, last, count)) = self.run.take() {
            let sent = (last + 1).saturating_sub(first).max(count);
            (self.sent, self.received) = (self.sent + sent, self.received + count);
        }
    }

    /// Lost and sent.
    fn counted(mut self) -> Option<(u64, u64)> {
        self.close();
        (self.sent > 0).then(|| (self.sent - self.received.min(self.sent), self.sent))
    }
}

/// `20 packets transmitted, 19 received, 5% packet loss`;
/// `Gesendet = 4, Empfangen = 4, Verloren = 0 (0% Verlust)`: two counts whose difference the percentage
/// confirms. Lost and sent.
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
    Some(RoundTrip { min: *min, mean: *mean, sd, max: *max, count: None, loaded: false, smoothed: false })
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
        // The end of a log, one that went round, out of order, and two runs.
        assert_eq!(parse(&answers(&[5000, 5001, 5003])).unwrap().loss, lost(1, 4));
        assert_eq!(parse(&answers(&[65_534, 65_535, 0, 2])).unwrap().loss, lost(1, 5));
        assert_eq!(parse(&answers(&[1, 3, 2, 4])).unwrap().loss, lost(0, 4));
        let twice = answers(&(1..=40).collect::<Vec<_>>()) + &answers(&[1, 2, 4]);
        assert_eq!(parse(&twice).unwrap().loss, lost(1, 44));
        let found = parse("Antwort von 192.0.2.1: Bytes=32 Zeit=14ms TTL=55\n").unwrap();
        assert_eq!(found.loss, None);
        assert!(found.notes[0].contains("loss unknown"), "{:?}", found.notes);
    }

    #[test]
    fn stamps_duplicates_errors_and_floods() {
        let stamped = "[1795776123.1] 64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=40.1 ms
[1795776124.1] no answer yet for icmp_seq=2
[1795776125.1] 64 bytes from 192.0.2.1: icmp_seq=3 ttl=57 time=40.5 ms
3 packets transmitted, 2 received, 33.3333% packet loss, time 2003ms\n";
        let found = parse(stamped).unwrap();
        assert_eq!(
            (found.rtt.unwrap().min, found.rtt.unwrap().count, found.loss),
            (40.1, Some(2), lost(1, 3))
        );
        let odd = "64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=40.1 ms
64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=95.1 ms (DUP!)
From 198.51.100.1 icmp_seq=2 Destination Host Unreachable
64 bytes from 192.0.2.1: icmp_seq=3 ttl=57 time=39.1 ms
3 packets transmitted, 2 received, +1 duplicates, +1 errors, 33.3333% packet loss, time 2003ms\n";
        let found = parse(odd).unwrap();
        assert_eq!((found.rtt.unwrap().max, found.loss), (40.1, lost(1, 3)));
        let flood = "PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.\n..
1000 packets transmitted, 998 received, 0.2% packet loss, time 12000ms
rtt min/avg/max/mdev = 39.100/40.200/51.100/1.720 ms, pipe 4, ipg/ewma 12.012/40.1 ms\n";
        let found = parse(flood).unwrap();
        assert_eq!((found.rtt.unwrap().mean, found.loss), (40.2, lost(2, 1000)));
    }

    #[test]
    fn the_words_are_of_any_language() {
        let texts = [
            "64 Bytes von 192.0.2.1: icmp_seq=1 ttl=55 Zeit=23.4 ms\n20 Pakete gesendet, 19 empfangen, 5% \
             Paketverlust",
            "64 octets de 192.0.2.1 : icmp_seq=1 ttl=55 temps=23.4 ms\n20 paquets transmis, 19 reçus, 5 % \
             paquets perdus",
            "64 bytes desde 192.0.2.1: icmp_seq=1 ttl=55 tiempo=23,4 ms\n20 paquetes transmitidos, 19 \
             recibidos, 5% paquetes perdidos",
            "来自 192.0.2.1 的回复: 字节=32 时间=23ms TTL=55\n数据包: 已发送 = 20，已接收 = 19，丢失 = 1 (5% 丢失)，",
            "Antwort von 192.0.2.1: Bytes=32 Zeit=23ms TTL=55\n    Pakete: Gesendet = 20, Empfangen = 19, \
             Verloren = 1\n    (5% Verlust),",
            "64 bytes from 192.0.2.1: icmp_seq=0 ttl=57 time=23.4 ms\n20 packets transmitted, 19 packets \
             received, 5.0% packet loss",
            "Ответ от 192.0.2.1: число байт=32 время=23мс TTL=55\n    Пакетов: отправлено = 20, получено = \
             19, потеряно = 1\n    (5% потерь)",
            "192.0.2.1 からの応答: バイト数 =32 時間 =23ms TTL=55\n    パケット数: 送信 = 20、受信 = 19、損失 = 1 (5% の損失)、",
            "Respuesta desde 192.0.2.1: bytes=32 tiempo=23ms TTL=55\n    Paquetes: enviados = 20, recibidos \
             = 19, perdidos = 1\n    (5% perdidos),",
            "R\u{fffd}ponse de 192.0.2.1\u{a0}: octets=32 temps=23 ms TTL=55\n    Paquets\u{a0}: \
             envoy\u{fffd}s = 20, re\u{fffd}us = 19, perdus = 1 (perte 5%),",
            "\u{fffd}\u{fffd} 192.0.2.1: \u{fffd}=32 \u{fffd}=23\u{fffd}\u{fffd} \
             TTL=55\n    \u{fffd}: \u{fffd} = 20, \u{fffd} = 19, \u{fffd} = 1\n    (5% \u{fffd})",
            "Odpowiedź z 192.0.2.1: bajtów=32 czas=23ms TTL=55\n    Pakiety: Wysłane = 20, Odebrane = 19, \
             Utracone = 1\n    (5% straty),",
        ];
        for text in &texts {
            let found = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let windows = text.contains("TTL=");
            // Of Windows' twenty only one time is in these lines.
            assert_eq!(found.loss, if windows { lost(19, 20) } else { lost(1, 20) }, "{text}");
            assert!((found.rtt.unwrap().mean - 23.2).abs() < 0.3, "{text}");
        }
        let summary = "    Minimum = 14ms, Maximum = 15ms, Mittelwert = 14ms";
        assert_eq!(answer(summary), None);
    }

    #[test]
    fn what_windows_counts_as_answers_are_not_all_round_trips() {
        let text = "Reply from 192.0.2.1: bytes=32 time=14ms TTL=55\nReply from 10.0.0.7: Destination host \
                    unreachable.\n\
                    Reply from 192.0.2.1: bytes=32 time=15ms TTL=55\n    Packets: Sent = 3, Received = 3, \
                    Lost = 0 (0% loss),\n";
        assert_eq!(parse(text).unwrap().loss, lost(1, 3));
        let twice = "64 bytes from x: icmp_seq=1 time=20 ms\n64 bytes from x: icmp_seq=1 time=25 ms (DUP!)\n";
        assert_eq!(parse(twice).unwrap().rtt.unwrap().count, Some(1));
    }

    #[test]
    fn spikes_are_changes_over_time_and_no_jitter() {
        let line = |n: u32| {
            let ms = if n.is_multiple_of(15) { 160.0 } else { 40.0 + f64::from(n % 5) };
            format!("64 bytes from 192.0.2.1: icmp_seq={n} ttl=55 time={ms:.1} ms\n")
        };
        let found = parse(&(1..=120).map(line).collect::<String>()).unwrap();
        let rtt = found.rtt.unwrap();
        assert!(rtt.sd < 2.0 && (rtt.mean - 42.0).abs() < 0.2 && rtt.max == 160.0, "{rtt:?}");
        assert!(
            found.notes[0].contains("8 of 120 answers took 160 to 160 ms, every 15 answers"),
            "{:?}",
            found.notes
        );
        // A wide but steady jitter stays what it is.
        let wide = |n: u32| format!("64 bytes from x: icmp_seq={n} time={} ms\n", 40 + 7 * (n * 13 % 10));
        let found = parse(&(1..=120).map(wide).collect::<String>()).unwrap();
        assert!(found.rtt.unwrap().sd > 15.0 && found.notes.len() == 1, "{found:?}");
    }

    #[test]
    fn what_pings_print() {
        let found = parse(super::super::tests::PING).unwrap();
        let rtt = found.rtt.unwrap();
        assert_eq!((rtt.count, found.loss), (Some(19), lost(1, 20)));
        assert!((rtt.mean - 44.6).abs() < 0.2 && rtt.min == 38.2, "{rtt:?}");
        let quiet = "--- example.net ping statistics ---\n10 packets transmitted, 10 packets received, 0.0% \
                     packet \
                     loss\nround-trip min/avg/max/stddev = 11.5/12.0/13.5/0.6 ms\n";
        let rtt = parse(quiet).unwrap().rtt.unwrap();
        assert_eq!((rtt.min, rtt.mean, rtt.sd), (11.5, 12.0, 0.6));
        let windows = "Reply from 192.0.2.1: bytes=32 time=14ms TTL=55\nReply from 192.0.2.1: bytes=32 \
                       time<1ms \
                       TTL=55\n    Packets: Sent = 4, Received = 2, Lost = 2 (50% loss),\n";
        let found = parse(windows).unwrap();
        assert_eq!((found.loss, found.rtt.unwrap().mean), (lost(2, 4), 7.5));
        let dead = "3 packets transmitted, 0 received, 100% packet loss, time 2040ms\n";
        assert!(parse(dead).unwrap_err() == MeasurementError::NoAnswer);
        assert!(parse("ping: unknown host").is_err());
    }
}
