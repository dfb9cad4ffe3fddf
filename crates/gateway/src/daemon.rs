//! What a program that runs for long needs: signals, and what systemd is told.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Allows as many open files as the system does: each connection needs a socket, and the usual soft limit of
/// 1,024 is for programs that use `select`.
pub(crate) fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(target: "ropewalk::setup", %error, "the limit of open files stays as it is");
    }
}

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
