//! One line on standard error that says how far a long command is; nothing where that isn't a terminal.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the line is drawn.
const EVERY: Duration = Duration::from_millis(100);
/// Moves to the beginning of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// How far a command is.
#[derive(Debug)]
pub struct ProgressLine {
    what: String,
    is_share: bool,
    is_shown: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    done: u64,
    total: u64,
    /// When it began, with how much done already.
    began: (Instant, u64),
    drawn: Option<Instant>,
    message: String,
}

#[expect(clippy::disallowed_methods, reason = "the line says how long it still takes")]
fn now() -> Instant {
    Instant::now()
}

impl ProgressLine {
    /// So many steps, by their name: `12/30 runs`.
    pub fn new(total: u64, what: &str) -> ProgressLine {
        let state = State { done: 0, total, began: (now(), 0), drawn: None, message: String::new() };
        let is_shown = std::io::stderr().is_terminal();
        ProgressLine { what: what.into(), is_share: false, is_shown, state: Mutex::new(state) }
    }

    /// As a share of the steps: `40 % of the budget`.
    pub fn share(total: u64, what: &str) -> ProgressLine {
        ProgressLine { is_share: true, ..ProgressLine::new(total, what) }
    }

    /// So many more steps are done.
    pub fn inc(&self, steps: u64) {
        self.change(|state| state.done += steps);
    }

    /// There are so many steps, of which so many were done before.
    pub fn resume(&self, total: u64, done: u64) {
        self.change(|state| (state.total, state.done, state.began) = (total, done, (now(), done)));
    }

    /// So many steps are done.
    pub fn set(&self, done: u64) {
        self.change(|state| state.done = done);
    }

    /// What the line ends in.
    pub fn message(&self, message: String) {
        self.change(|state| state.message = message);
    }

    /// Removes the line.
    pub fn clear(&self) {
        if self.state().drawn.take().is_some() {
            draw("");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        if !self.is_shown {
            return;
        }
        let now = now();
        if state.drawn.is_none_or(|drawn| now.duration_since(drawn) >= EVERY) {
            state.drawn = Some(now);
            draw(&self.line(&state, now.duration_since(state.began.0)));
        }
    }

    fn line(&self, state: &State, elapsed: Duration) -> String {
        let (done, total) = (state.done.min(state.total), state.total.max(1));
        let mut line = match self.is_share {
            true => format!("{} % {}", u128::from(done) * 100 / u128::from(total), self.what),
            false => format!("{done}/{total} {}", self.what),
        };
        // Before the first step has ended nobody knows how long one takes.
        if let Some(since) = done.checked_sub(state.began.1).filter(|since| *since > 0) {
            let left = elapsed.as_secs_f64() / since as f64 * (total - done) as f64;
            let _ = write!(line, ", {} left", duration(left));
        }
        line + &state.message
    }
}

fn draw(line: &str) {
    let mut out = std::io::stderr().lock();
    let _ = write!(out, "{CLEAR}{line}");
    let _ = out.flush();
}

/// Seconds for people.
fn duration(seconds: f64) -> String {
    match seconds.ceil() as u64 {
        whole @ ..100 => format!("{whole} s"),
        whole @ ..6000 => format!("{} min", whole.div_ceil(60)),
        whole => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_it_is_and_how_long_it_takes() {
        let runs = ProgressLine::new(30, "runs");
        let line =
            |progress: &ProgressLine, seconds| progress.line(&progress.state(), Duration::from_secs(seconds));
        assert_eq!(line(&runs, 5), "0/30 runs");
        runs.inc(10);
        assert_eq!(line(&runs, 20), "10/30 runs, 40 s left");
        runs.resume(40, 30);
        assert_eq!(line(&runs, 20), "30/40 runs");
        runs.set(31);
        runs.message("; `ecf` is at 300 MiB".into());
        assert_eq!(line(&runs, 60), "31/40 runs, 9 min left; `ecf` is at 300 MiB");
        let budget = ProgressLine::share(1000, "of the budget");
        budget.inc(1001);
        assert_eq!(line(&budget, 1), "100 % of the budget, 0 s left");
        assert_eq!(duration(7260.0), "2 h 1 min");
    }
}
