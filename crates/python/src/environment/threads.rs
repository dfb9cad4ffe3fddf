//! Threads that step environments.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};

use super::episode::Environment;
use super::external::lock;

/// Threads that step environments; the calling thread helps.
pub(super) struct ThreadPool {
    pub(super) work: Arc<Work>,
    threads: Vec<(Thread, JoinHandle<()>)>,
}

pub(super) struct Work {
    pub(super) envs: Vec<Mutex<Environment>>,
    pub(super) actions: Vec<AtomicI64>,
    /// The next environment to step; beyond the last: there is nothing to do.
    next: AtomicUsize,
    done: AtomicUsize,
    end: AtomicBool,
    idle: Vec<AtomicBool>,
}

/// How often an idle thread looks for work before it sleeps: some tens of microseconds.
const PATIENCE: u32 = 2_000;

impl Work {
    /// Steps environments until none is left.
    fn help(&self) {
        loop {
            let index = self.next.fetch_add(1, Ordering::AcqRel);
            let Some(env) = self.envs.get(index) else {
                // Far below where it could wrap.
                self.next.fetch_min(usize::MAX / 2, Ordering::AcqRel);
                return;
            };
            lock(env).step(self.actions[index].load(Ordering::Relaxed));
            self.done.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn serve(&self, me: usize) {
        let mut looked = 0;
        while !self.end.load(Ordering::Acquire) {
            if self.next.load(Ordering::Acquire) < self.envs.len() {
                looked = 0;
                self.help();
            } else if looked < PATIENCE {
                looked += 1;
                std::hint::spin_loop();
            } else {
                self.idle[me].store(true, Ordering::SeqCst);
                if self.next.load(Ordering::SeqCst) >= self.envs.len() && !self.end.load(Ordering::SeqCst) {
                    thread::park();
                }
                self.idle[me].store(false, Ordering::SeqCst);
                looked = 0;
            }
        }
    }
}

impl ThreadPool {
    pub(super) fn new(envs: Vec<Environment>, threads: usize) -> Self {
        let count = envs.len();
        let helpers = threads.min(count).saturating_sub(1);
        let work = Arc::new(Work {
            envs: envs.into_iter().map(Mutex::new).collect(),
            actions: (0..count).map(|_| AtomicI64::new(0)).collect(),
            next: AtomicUsize::new(count),
            done: AtomicUsize::new(0),
            end: AtomicBool::new(false),
            idle: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
        });
        let threads = (0..helpers)
            .map(|me| {
                let work = Arc::clone(&work);
                let handle = thread::spawn(move || work.serve(me));
                (handle.thread().clone(), handle)
            })
            .collect();
        ThreadPool { work, threads }
    }

    /// Steps all.
    pub(super) fn step(&self) {
        let work = &self.work;
        work.done.store(0, Ordering::SeqCst);
        work.next.store(0, Ordering::SeqCst);
        for ((thread, _), idle) in self.threads.iter().zip(&work.idle) {
            if idle.load(Ordering::SeqCst) {
                thread.unpark();
            }
        }
        work.help();
        let mut looked = 0;
        while work.done.load(Ordering::Acquire) < work.envs.len() {
            if looked < PATIENCE {
                looked += 1;
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.work.end.store(true, Ordering::SeqCst);
        for (thread, handle) in self.threads.drain(..) {
            thread.unpark();
            let _ = handle.join();
        }
    }
}
