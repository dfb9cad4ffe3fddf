//! What a test says where the machine lacks what it needs.

use std::fmt::Display;
use std::io::Write;

/// Says that a test, or a part of it, is skipped and why: on standard error itself, since the test harness
/// shows what a test prints only when it fails.
///
/// # Panics
/// With `ROPEWALK_NO_SKIP=1` in the environment, where nothing may be skipped.
pub fn skipped(why: impl Display) {
    let strict = std::env::var_os("ROPEWALK_NO_SKIP").is_some_and(|value| value == "1");
    assert!(!strict, "this would be skipped, and ROPEWALK_NO_SKIP=1 allows no skips: {why}");
    let name = std::thread::current().name().unwrap_or("a test").to_string();
    // If standard error is closed, the message is lost.
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
}
