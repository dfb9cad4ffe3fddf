//! Logs, on standard error: lines for people, or JSON for programs.
//!
//! What comes from clients can't write lines of its own, nor control a terminal. What they cause as often as
//! they like is told once a minute.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{FormatFields, Writer, debug_fn};

/// Starts logging from this level on. It does nothing if logging was started before.
pub fn start(level: LevelFilter, json: bool) {
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    // systemd's journal has the time of each line already.
    let in_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let styled = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let _ = match (json, in_journal) {
        (true, _) => builder.json().flatten_event(true).try_init(),
        (false, true) => builder.fmt_fields(fields()).without_time().with_ansi(false).try_init(),
        (false, false) => builder.fmt_fields(fields()).with_ansi(styled).try_init(),
    };
}

/// A line's fields, of which each stays on the line.
fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    let one = |writer: &mut Writer<'_>, field: &tracing::field::Field, value: &dyn fmt::Debug| {
        let text = escape(&format!("{value:?}"));
        if field.name() == "message" { writer.write_str(&text) } else { write!(writer, "{field}={text}") }
    };
    debug_fn(one).delimited(" ")
}

/// A text without line breaks, control characters, and characters that change the direction of others: those
/// are escaped.
pub fn escape(text: &str) -> String {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

/// After so long the next line of a kind is written.
const MINUTE: Duration = Duration::from_secs(60);
/// How often it is looked whether a line is due.
const LOOK: Duration = Duration::from_secs(5);
/// Most characters that a line has of what a client said.
const LONGEST: usize = 200;

/// What clients did since the last line, by kind.
static NOTED: Mutex<BTreeMap<&'static str, Noted>> = Mutex::new(BTreeMap::new());

struct Noted {
    told: Instant,
    untold: u64,
    last: (String, String),
}

/// Warns of what a client did, and could do as often as it likes: at once the first time, later once a minute
/// with how often it was. `what` is the kind. Whoever debugs sees each.
pub(crate) fn note(what: &'static str, client: impl fmt::Display, why: impl fmt::Display) {
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    match noted.get_mut(what) {
        Some(known) => {
            known.untold += 1;
            known.last = (client.to_string(), shorten(&why.to_string()));
            tracing::debug!(target: "ropewalk::clients", %client, why = known.last.1, "{what}");
        }
        None => {
            let why = shorten(&why.to_string());
            tracing::warn!(target: "ropewalk::clients", %client, why, "{what}");
            noted.insert(what, Noted { told: Instant::now(), untold: 0, last: Default::default() });
        }
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

/// Writes the lines that are due.
fn tell(now: Instant) {
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    noted.retain(|what, known| {
        if now.duration_since(known.told) < MINUTE {
            return true;
        }
        let (times, (client, why)) = (std::mem::take(&mut known.untold), std::mem::take(&mut known.last));
        known.told = now;
        if times > 0 {
            tracing::warn!(target: "ropewalk::clients", times, client, why, "{what}, in the last minute; \
                the last");
        }
        times > 0
    });
}

/// Writes lines as they are due, until it is cancelled.
pub(crate) async fn tell_noted() {
    loop {
        tokio::time::sleep(LOOK).await;
        tell(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(data);
            Ok(data.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: LevelFilter, work: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let builder = tracing_subscriber::fmt().with_max_level(level).without_time().with_ansi(false);
        let subscriber = builder.fmt_fields(fields()).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, work);
        let text = lines.0.lock().unwrap().clone();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn what_clients_say_stays_on_its_line() {
        let name = "a\nWARN forged\r\u{1b}[2J\u{202e}b\u{9b}\u{2028}é";
        let text = logged(LevelFilter::TRACE, || {
            tracing::warn!(target: "x", %name, number = 3, "looked up {name}");
            tracing::trace!(target: "x", name, ?name);
        });
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.lines().next().unwrap().starts_with(" WARN x: looked up a\\nWARN forged\\r\\u{1b}[2J"),
            "{text}"
        );
        assert!(text.contains("\\u{202e}b\\u{9b}\\u{2028}é number=3"), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    }

    #[test]
    fn a_kind_has_one_line_a_minute() {
        let begin = Instant::now();
        let text = logged(LevelFilter::INFO, || {
            for at in 0..1000 {
                note("tested", at, "why ".repeat(100));
            }
            tell(begin + Duration::from_secs(59));
            note("tested also", 7, "x");
            tell(begin + Duration::from_secs(61));
            note("tested", 1000, "again");
            tell(begin + Duration::from_secs(100));
            tell(begin + Duration::from_secs(122));
            // A minute was quiet: the next is told at once.
            tell(begin + Duration::from_secs(183));
            note("tested", 1001, "later");
        });
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("tested also")).collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].contains("tested client=0") && lines[0].len() < 300, "{text}");
        assert!(lines[1].contains("times=999 client=\"999\""), "{text}");
        assert!(lines[2].contains("times=1 client=\"1000\" why=\"again\""), "{text}");
        assert!(lines[3].contains("tested client=1001 why=\"later\""), "{text}");
    }
}
