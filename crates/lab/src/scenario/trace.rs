//! Recorded links in mahimahi's format, and a generator of cellular-like ones.
//!
//! The format: one whole number per line, the millisecond at which one packet of 1500 bytes may leave; in
//! order; several lines may share a millisecond; the trace repeats after its last. The generator is a
//! bounded Ornstein-Uhlenbeck walk of the logarithm of the rate, stepped every 20 ms, with exponentially
//! spaced outages: the shape that published LTE measurements agree on, and no claim beyond it.

use std::path::Path;
use std::sync::Arc;

use rand_core::Rng;
use rand_pcg::Pcg64;
use ropewalk_engine::{SECOND, Span};
use ropewalk_link::RateTrace;
use ropewalk_settings::diagnostic::{Diagnostic, Source};
use ropewalk_settings::input::{OpenFile, Opened, Want};

/// Largest trace that is read, bytes; an hour at 1 Gbit/s is about as long as this.
const LARGEST: u64 = 2 << 30;

/// Reads a trace.
///
/// # Errors
/// A file that can't be read, or a line that isn't a millisecond in order: the place is in the trace itself.
pub fn read(path: &Path, open_file: OpenFile) -> Result<Arc<RateTrace>, Diagnostic> {
    let shown = path.display().to_string();
    let unreadable = |reason: &str| Diagnostic::new(format!("can't read the trace `{shown}`: {reason}"));
    let want = Want { most: LARGEST, pipe: false };
    let bytes =
        open_file(path, want).and_then(Opened::whole).map_err(|error| unreadable(&error.to_string()))?;
    parse(&shown, &text(&shown, bytes)?).map(Arc::new)
}

/// A file's bytes as text.
///
/// # Errors
/// The place of the first byte that is none.
pub(crate) fn text(name: &str, bytes: Vec<u8>) -> Result<String, Diagnostic> {
    String::from_utf8(bytes).map_err(|error| {
        let (good, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        let before = String::from_utf8_lossy(&bytes[..good]);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        // As much of the line as helps to find it.
        let shown = format!("{}\u{fffd}", &before[start..]);
        let at = shown.len() - '\u{fffd}'.len_utf8();
        Diagnostic::new(format!("{name} is not text"))
            .at(&Source::from_line(name, shown.clone(), line), at..shown.len())
            .label(format!("byte 0x{:02x} is not UTF-8", bytes[good]))
    })
}

/// Parses a trace's text.
///
/// # Errors
/// See [`read`].
pub fn parse(name: &str, text: &str) -> Result<RateTrace, Diagnostic> {
    let mut opportunities = Vec::new();
    let mut offset = 0;
    let mut last = 0;
    for line in text.split_inclusive('\n') {
        let (start, number) = (offset, line.trim());
        offset += line.len();
        if number.is_empty() {
            continue;
        }
        // The line alone is the source: a trace may have millions.
        let wrong = |message: &str, help: &str| {
            let line_number = text[..start].matches('\n').count() + 1;
            let source = Source::from_line(name, line.trim_end(), line_number);
            Diagnostic::new(message)
                .at(&source, 0..line.trim_end().len())
                .label(format!("found `{number}`"))
                .help(help)
        };
        let Ok(millisecond) = number.parse::<u32>() else {
            return Err(wrong(
                "a trace holds whole milliseconds",
                "mahimahi's format: one number per line, the millisecond at which 1500 bytes may leave",
            ));
        };
        if millisecond < last {
            return Err(wrong(
                "a trace's milliseconds must not go back",
                &format!("the line before has {last}"),
            ));
        }
        last = millisecond;
        opportunities.push(millisecond);
    }
    if last == 0 {
        return Err(Diagnostic::new(format!("the trace `{name}` has no delivery opportunity after 0 ms")));
    }
    Ok(RateTrace::new(name, opportunities))
}

/// What the generator needs to know.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cellular {
    /// Mean rate outside outages, bits per second.
    pub mean: u64,
    /// Standard deviation of the natural logarithm of the rate.
    pub variation: f64,
    /// Correlation time.
    pub memory: Span,
    /// Mean time between outages.
    pub outage_every: Option<Span>,
    /// Mean length of an outage.
    pub outage: Span,
    /// Length of the trace.
    pub length: Span,
    /// Its seed.
    pub seed: u64,
}

impl Cellular {
    /// A walk about `mean` with the defaults that the scenario file's schema names.
    pub fn new(mean: u64) -> Self {
        Cellular {
            mean,
            variation: 0.5,
            memory: SECOND,
            outage_every: None,
            outage: Span::from_millis(500),
            length: 60 * SECOND,
            seed: 1,
        }
    }

    /// Generates it. The same numbers give the same trace on any machine.
    pub fn generate(&self) -> RateTrace {
        const STEP_MS: u32 = 20;
        let mut random = Pcg64::new(u128::from(self.seed), 0xce11);
        let memory_steps = (self.memory.as_nanos() as f64 / (f64::from(STEP_MS) * 1e6)).max(1.0);
        let keep = libm::exp(-1.0 / memory_steps);
        let push = self.variation * libm::sqrt(1.0 - keep * keep);
        // E[exp(x)] = exp(s^2/2) for normal x: taken off, so that the mean rate is `mean`.
        let centre = -self.variation * self.variation / 2.0;
        let length_ms = self.length.as_millis().clamp(u64::from(STEP_MS), u64::from(u32::MAX)) as u32;
        let mut walk = self.variation * normal(&mut random);
        let mut to_outage = self.exponential_ms(&mut random);
        let mut outage_left = 0.0;
        let mut credit_bits = 0.0;
        let mut opportunities = Vec::new();
        for ms in 1..=length_ms {
            if ms % STEP_MS == 0 {
                walk = keep * walk + push * normal(&mut random);
            }
            if outage_left > 0.0 {
                outage_left -= 1.0;
                continue;
            }
            to_outage -= 1.0;
            if to_outage <= 0.0 {
                outage_left = -libm::log(uniform(&mut random)) * self.outage.as_nanos() as f64 / 1e6;
                to_outage = self.exponential_ms(&mut random);
            }
            let factor = libm::exp((walk + centre).clamp(-3.0, 3.0));
            credit_bits += self.mean as f64 * factor / 1000.0;
            while credit_bits >= 12_000.0 {
                credit_bits -= 12_000.0;
                opportunities.push(ms);
            }
        }
        // The last entry is the period; a trace must also offer something.
        opportunities.push(length_ms);
        RateTrace::new(format!("cellular, seed {}", self.seed), opportunities)
    }

    fn exponential_ms(&self, random: &mut Pcg64) -> f64 {
        match self.outage_every {
            None => f64::INFINITY,
            Some(mean) => -libm::log(uniform(random)) * mean.as_nanos() as f64 / 1e6,
        }
    }
}

/// In (0, 1].
fn uniform(random: &mut Pcg64) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Box and Muller's transform, the cosine half.
fn normal(random: &mut Pcg64) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(uniform(random)));
    radius * libm::cos(2.0 * std::f64::consts::PI * uniform(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_mahimahis_format() {
        assert_eq!(parse("t", "1\n1\n\n5\r\n").unwrap().opportunities().collect::<Vec<_>>(), [1, 1, 5]);
        assert!(parse("t", "1\nx\n").unwrap_err().message.contains("whole milliseconds"));
        assert!(parse("t", "5\n4\n").unwrap_err().message.contains("go back"));
        assert!(parse("t", "-1\n").unwrap_err().message.contains("whole milliseconds"));
        assert!(parse("t", "").unwrap_err().message.contains("no delivery opportunity"));
        assert!(parse("t", "0\n0\n").unwrap_err().message.contains("no delivery opportunity"));
    }

    #[test]
    fn what_is_no_text_is_shown_where_it_begins() {
        let error = text("t.down", b"1\n2\n3\xff4\n".to_vec()).unwrap_err();
        let (source, span) = error.place.unwrap();
        assert_eq!(
            (source.line_and_column(span.start), error.label.as_str()),
            ((3, 2), "byte 0xff is not UTF-8")
        );
    }

    #[test]
    fn the_generator_keeps_its_mean_and_repeats_itself() {
        let plan =
            Cellular { length: 600 * SECOND, memory: Span::from_millis(200), ..Cellular::new(12_000_000) };
        let trace = plan.generate();
        assert_eq!(trace, plan.generate());
        assert_ne!(trace, Cellular { seed: 2, ..plan }.generate());
        let rate = crate::scenario::draft::trace_rate(&Arc::new(trace.clone()));
        assert!((10_500_000..13_500_000).contains(&rate), "{rate}");
        assert!(trace.opportunities().is_sorted());
    }

    #[test]
    fn outages_are_silent() {
        let plan =
            Cellular { outage_every: Some(5 * SECOND), outage: 2 * SECOND, ..Cellular::new(12_000_000) };
        let longest = plan
            .generate()
            .opportunities()
            .collect::<Vec<_>>()
            .windows(2)
            .map(|w| w[1] - w[0])
            .max()
            .unwrap();
        assert!(longest > 500, "{longest}");
    }
}
