//! A thread for what carries datagrams: where one does everything, calls would wait for busy connections.

use std::io;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Such a thread, or those that do the rest. Dropping it ends one of its own, and all that runs on it.
#[derive(Debug)]
pub(crate) struct Thread {
    handle: Handle,
    end: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Thread {
    /// Starts one if it is to be `apart`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(apart: bool) -> io::Result<Thread> {
        if !apart {
            return Ok(Thread { handle: Handle::current(), end: None });
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || drop(runtime.block_on(ended));
        let running = thread::Builder::new().name("datagrams".into()).spawn(run)?;
        Ok(Thread { handle, end: Some((end, running)) })
    }

    /// Spawns tasks on it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let Some((end, running)) = self.end.take() else { return };
        drop(end);
        // A task on it may be the last that knows it.
        if running.thread().id() != thread::current().id() {
            let _ = running.join();
        }
    }
}
