//! Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that Ctrl-C sets, so that a command can stop between runs.
pub(crate) fn flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let handler = Arc::clone(&stop);
    // If another handler is installed already, Ctrl-C ends the program at once. No output is left half-written.
    let _ = ctrlc::set_handler(move || handler.store(true, Ordering::Relaxed));
    stop
}
