//! What a program that runs for long needs: signals, and what systemd is told.

use std::io;

use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Tells systemd that everything is set up, where it asked to be told.
pub(crate) fn ready() {
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

/// Tells systemd that the end begins.
pub(crate) fn stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}

/// Tells systemd's watchdog that the program's tasks run, until it is cancelled; for ever if there is none.
pub(crate) async fn feed_watchdog() {
    let Some(interval) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    loop {
        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        tokio::time::sleep(interval / 2).await;
    }
}

/// SIGTERM and SIGINT.
pub(crate) struct End {
    terminated: Signal,
    interrupted: Signal,
}

impl End {
    pub fn new() -> io::Result<End> {
        let (terminated, interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(End { terminated, interrupted })
    }

    /// Waits until the program is to end.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminated.recv() => {}
            _ = self.interrupted.recv() => {}
        }
    }
}

/// SIGHUP.
pub(crate) fn hang_up() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}
