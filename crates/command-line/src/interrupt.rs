//! Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit;

/// A flag that Ctrl-C sets, so that a command can stop between runs. A second Ctrl-C ends the program at
/// once.
pub fn flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let handler = Arc::clone(&stop);
    // If another handler is installed already, Ctrl-C ends the program at once. No output is left
    // half-written.
    let _ = ctrlc::set_handler(move || {
        if handler.swap(true, Ordering::Relaxed) {
            std::process::exit(exit::INTERRUPTED.into());
        }
    });
    stop
}
