//! Logs, on standard error: lines for people, or JSON for programs.

use tracing_subscriber::filter::LevelFilter;

/// Starts logging from this level on. It does nothing if logging was started before.
pub fn start(level: LevelFilter, json: bool) {
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    // systemd's journal has the time of each line already.
    let in_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let styled = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let _ = match (json, in_journal) {
        (true, _) => builder.json().flatten_event(true).try_init(),
        (false, true) => builder.without_time().with_ansi(false).try_init(),
        (false, false) => builder.with_ansi(styled).try_init(),
    };
}
