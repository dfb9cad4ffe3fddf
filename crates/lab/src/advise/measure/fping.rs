//! `fping -c` or `-C` with one host: `192.0.2.1 : [0], 64 bytes, 20.1 ms (20.1 avg, 0% loss)`, and its
//! summary.

use super::long::{ByLine, Samples, of_text};
use super::{Counted, Input, Measured, MeasurementError, RoundTrip, positive};

/// `192.0.2.1 : xmt/rcv/%loss = 30/29/3%, min/avg/max = 20.1/22.3/40.2`.
fn summary(line: &str) -> Option<(u64, u64, Option<RoundTrip>)> {
    let (_, rest) = line.split_once("xmt/rcv/%loss = ")?;
    let (counts, times) = rest.split_once(',').map_or((rest, None), |(counts, times)| (counts, Some(times)));
    let mut counts = counts.split('/');
    let (sent, received): (u64, u64) = (counts.next()?.trim().parse().ok()?, counts.next()?.parse().ok()?);
    let times: Option<Vec<f64>> = times
        .and_then(|times| times.split_once("min/avg/max = "))
        .map(|(_, times)| times.trim().split('/').map_while(positive).collect());
    let rtt = times.filter(|times| times.len() == 3).map(|times| RoundTrip {
        min: times[0],
        mean: times[1],
        sd: (times[2] - times[0]).max(0.0) / 4.0,
        max: times[2],
        count: Some(received),
        loaded: false,
        smoothed: false,
    });
    Some((sent.saturating_sub(received.min(sent)), sent, rtt))
}

/// The time of one answer.
fn answer(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once(" : [")?;
    let (before, _) = rest.split_once(" ms (")?;
    positive(before.rsplit(' ').next()?)
}

/// `192.0.2.1 : 20.1 - 20.3`, of `-C`: a time or `-` for each.
fn all(line: &str) -> Option<Vec<Option<f64>>> {
    let (_, rest) = line.split_once(" : ")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let times: Vec<Option<f64>> = words.iter().map(|word| positive(word)).collect();
    let fits = words.iter().zip(&times).all(|(word, time)| time.is_some() || *word == "-");
    (fits && !words.is_empty()).then_some(times)
}

fn host(line: &str) -> Option<&str> {
    let (before, _) = line.split_once(" : ")?;
    before.split_whitespace().last()
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Measured, MeasurementError>> {
    let fits = |line: &str| summary(line).is_some() || answer(line).is_some();
    // Of `-C -q` there is nothing but the times.
    let only_times = || {
        let mut lines = input.text.lines().filter(|line| !line.trim().is_empty()).peekable();
        lines.peek().is_some() && lines.all(|line| all(line).is_some())
    };
    (input.text.lines().any(fits) || only_times()).then(|| of_text(by_line(""), input.text))
}

pub(super) fn by_line(_: &str) -> Box<dyn ByLine> {
    Box::<Fping>::default()
}

/// What was read so far.
#[derive(Default)]
struct Fping {
    samples: Samples,
    /// Lost, sent.
    counted: Option<(u64, u64)>,
    told: Option<RoundTrip>,
    hosts: Vec<String>,
}

impl ByLine for Fping {
    fn line(&mut self, line: &str) -> Result<(), MeasurementError> {
        let of_one = match (answer(line), summary(line), all(line)) {
            (Some(ms), _, _) => {
                self.samples.push(ms);
                true
            }
            (_, Some((lost, sent, rtt)), _) => {
                let before = self.counted.unwrap_or((0, 0));
                self.counted = Some((lost.saturating_add(before.0), sent.saturating_add(before.1)));
                self.told = self.told.or(rtt);
                true
            }
            (_, _, Some(times)) => {
                if self.counted.is_none() && self.samples.count() == 0 {
                    times.iter().flatten().for_each(|ms| self.samples.push(*ms));
                }
                let lost = times.iter().filter(|time| time.is_none()).count() as u64;
                self.counted = self.counted.or(Some((lost, times.len() as u64)));
                true
            }
            _ => false,
        };
        let host = host(line).filter(|host| of_one && !self.hosts.iter().any(|known| known == host));
        // The first few say enough.
        if let Some(host) = host.filter(|_| self.hosts.len() < 8) {
            self.hosts.push(host.to_string());
        }
        Ok(())
    }

    fn end(self: Box<Self>) -> Result<Measured, MeasurementError> {
        if self.hosts.len() > 1 {
            return Err(MeasurementError::SeveralHosts(self.hosts));
        }
        let counted = self.counted.filter(|of| of.1 > 0);
        let loss = counted.map(|(lost, sent)| Counted { lost, sent, round_trip: true });
        let (rtt, note) = match self.samples.round_trips() {
            Some((rtt, note)) => (rtt, note),
            None => (self.told.ok_or(MeasurementError::NoAnswer)?, None),
        };
        Ok(Measured { rtt: Some(rtt), loss, notes: note.into_iter().collect(), ..Measured::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn answers_summaries_and_columns() {
        let text = "192.0.2.1 : [0], 64 bytes, 20.1 ms (20.1 avg, 0% loss)\n\
                    [1795776123.2] 192.0.2.1 : [2], 64 bytes, 20.3 ms (20.2 avg, 33% loss)\n\n\
                    192.0.2.1 : xmt/rcv/%loss = 3/2/33%, min/avg/max = 20.1/20.2/20.3\n";
        let found = parse("f", text).unwrap();
        assert_eq!((found.rtt.unwrap().count, found.rtt.unwrap().min), (Some(2), 20.1));
        assert_eq!(found.loss, Some(Counted { lost: 1, sent: 3, round_trip: true }));
        let quiet = "192.0.2.1 : xmt/rcv/%loss = 30/29/3%, min/avg/max = 20.1/22.3/40.2\n";
        assert_eq!(parse("f", quiet).unwrap().rtt.unwrap().mean, 22.3);
        let columns = "192.0.2.1 : 91.7 37.0 - 36.8\n";
        let found = parse("f", columns).unwrap();
        assert_eq!((found.rtt.unwrap().count, found.loss.unwrap().lost), (Some(3), 1));
        let two = format!("{quiet}198.51.100.1 : xmt/rcv/%loss = 30/30/0%, min/avg/max = 1/2/3\n");
        assert!(parse("f", &two).unwrap_err().message.contains("192.0.2.1 and 198.51.100.1"));
        let dead = "192.0.2.1 : xmt/rcv/%loss = 3/0/100%\n";
        assert!(parse("f", dead).unwrap_err().message.contains("not one answer"));
    }
}
