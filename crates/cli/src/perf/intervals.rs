//! Interim reports: what was transferred in each interval.

use ropewalk_command_line::output;
use ropewalk_engine::{Span, Time};
use ropewalk_host::perf::protocol::{Hello, Mode};
use ropewalk_host::perf::{ClientProgress, ConnectionResult, Sample};

use super::text;

/// One flow in one interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) flow: u16,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) retransmitted: u64,
    pub(super) srtt: Span,
}

/// One interval: from, to (since the first flow began), and its flows.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) from: Span,
    pub(super) to: Span,
    pub(super) rows: Vec<Row>,
}

/// Reads the gauges periodically.
#[derive(Debug)]
pub(super) struct Intervals {
    /// How often to report, if at all.
    every: Option<Span>,
    verbose: bool,
    modes: Vec<Mode>,
    /// When the flows stop sending; `None` if they end by their size.
    ends: Option<Span>,
    began: Option<Time>,
    last: Time,
    before: Vec<Sample>,
    stretches: Vec<Stretch>,
}

impl Intervals {
    /// A report after `every` such span, printed at once if `verbose`.
    pub(super) fn new(every: Option<Span>, hellos: &[Hello], verbose: bool) -> Self {
        Intervals {
            every,
            verbose,
            modes: hellos.iter().map(|hello| hello.mode).collect(),
            ends: hellos
                .first()
                .map(|hello| Span::from_millis(hello.milliseconds.into()))
                .filter(|ends| !ends.is_zero()),
            began: None,
            last: Time::ZERO,
            before: vec![Sample::default(); hellos.len()],
            stretches: Vec::new(),
        }
    }

    /// The intervals so far.
    pub(super) fn rows(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Reads the gauges. Call it every few milliseconds.
    pub(super) fn look(&mut self, progress: &ClientProgress) {
        let Some(every) = self.every.filter(|_| progress.is_running()) else { return };
        let now = progress.clock.now();
        let Some(began) = self.began else {
            (self.began, self.last) = (Some(now), now);
            if self.verbose {
                let _ = output::print(&format!("{HEAD}\n"));
            }
            return;
        };
        if now < self.last + every {
            return;
        }
        let readings = progress.counters.iter().map(|counters| Some(counters.read())).collect();
        self.report(began, now, readings);
    }

    /// What came after the last full interval: with it the intervals add up to the whole.
    pub(super) fn finish(&mut self, flows: &[ConnectionResult]) {
        let Some(began) = self.began else { return };
        let received = |done: &ConnectionResult| {
            done.trailer.map_or(done.sending, |trailer| trailer.receiving).max(done.receiving)
        };
        let end = began + flows.iter().map(received).max().unwrap_or(Span::ZERO);
        let mut readings = vec![None; self.before.len()];
        for done in flows {
            if let Some(reading) = readings.get_mut(usize::from(done.flow)) {
                *reading = Some(Sample {
                    sent: done.trailer.map_or(done.sent, |trailer| trailer.received),
                    received: done.received,
                    retransmitted: done.info.retransmitted,
                    srtt: done.info.srtt,
                });
            }
        }
        let more = |(reading, before): (&Option<Sample>, &Sample)| {
            reading.is_some_and(|reading| {
                reading.sent > before.sent
                    || reading.received > before.received
                    || reading.retransmitted > before.retransmitted
            })
        };
        if end > self.last && readings.iter().zip(&self.before).any(more) {
            self.report(began, end, readings);
        }
    }

    /// Reports from the last time until `now`. A flow without a reading stays where it was.
    fn report(&mut self, began: Time, now: Time, readings: Vec<Option<Sample>>) {
        let mut rows = Vec::new();
        for (at, (reading, before)) in readings.into_iter().zip(&mut self.before).enumerate() {
            let reading = reading.unwrap_or(*before);
            if self.modes[at] != Mode::Echo {
                rows.push(Row {
                    flow: at as u16,
                    sent: reading.sent.saturating_sub(before.sent),
                    received: reading.received.saturating_sub(before.received),
                    retransmitted: reading.retransmitted.saturating_sub(before.retransmitted),
                    srtt: reading.srtt,
                });
            }
            *before = reading;
        }
        let stretch = Stretch { from: self.last - began, to: now - began, rows };
        self.last = now;
        if self.verbose {
            let _ = output::print(&self.lines(&stretch));
        }
        self.stretches.push(stretch);
    }

    fn lines(&self, stretch: &Stretch) -> String {
        let mut lines = String::new();
        let time = stretch.to - stretch.from;
        let (from, to) = (stretch.from.as_secs_f64(), stretch.to.as_secs_f64());
        for row in &stretch.rows {
            let mode = self.modes[usize::from(row.flow)];
            if mode.sends(true) {
                lines += &line(
                    &row.flow.to_string(),
                    "up",
                    (from, to),
                    row.sent,
                    time,
                    Some(row.retransmitted),
                    row.srtt,
                );
            }
            if mode.sends(false) {
                lines += &line(&row.flow.to_string(), "down", (from, to), row.received, time, None, row.srtt);
            }
        }
        // Nothing new is sent, but what is in buffers still arrives.
        let half = self.every.unwrap_or_default() / 2;
        if self.ends.is_some_and(|ends| stretch.from + half > ends) {
            lines = lines.lines().map(|line| format!("{line}  draining\n")).collect();
        }
        if stretch.rows.len() > 1 {
            let sum = |of: fn(&Row) -> u64| stretch.rows.iter().map(of).sum();
            if self.modes.iter().any(|mode| mode.sends(true)) {
                let retransmits = sum(|row| row.retransmitted);
                lines +=
                    &line("sum", "up", (from, to), sum(|row| row.sent), time, Some(retransmits), Span::ZERO);
            }
            if self.modes.iter().any(|mode| mode.sends(false)) {
                lines += &line("sum", "down", (from, to), sum(|row| row.received), time, None, Span::ZERO);
            }
        }
        lines
    }
}

/// The heading of the reports.
pub(super) const HEAD: &str = "flow          interval    transfer           rate  retransmits  srtt";

/// One line; only the sender knows how many segments it retransmitted.
pub(super) fn line(
    flow: &str,
    mode: &str,
    (from, to): (f64, f64),
    bytes: u64,
    time: Span,
    retransmits: Option<u64>,
    srtt: Span,
) -> String {
    let retransmits = retransmits.map_or_else(|| "-".into(), |count| count.to_string());
    let line = format!(
        "[{flow:>3}] {mode:<4} {:>11} s {:>10}  {:>13} {retransmits:>12}  {}",
        format!("{from:.1}-{to:.1}"),
        text::bytes(bytes),
        text::rate(bytes, time),
        if srtt.is_zero() { String::new() } else { text::time(srtt) },
    );
    format!("{}\n", line.trim_end())
}
