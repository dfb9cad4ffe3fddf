//! Independent jobs, on threads that the caller brings: the laboratory starts none.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Runs a worker on so many threads at once, and returns when all have returned.
pub type Start = fn(usize, &(dyn Fn() + Sync));

/// The threads that jobs run on.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    /// How many threads, at least one.
    pub count: usize,
    /// Starts them.
    pub start: Start,
}

impl Workers {
    /// The caller's thread alone.
    pub const ONE: Workers = Workers { count: 1, start: |_, worker| worker() };
}

/// Does jobs 0 to `total - 1`, each on the first worker that is free, and returns their results in order.
/// Once `stop` is set, or a job returns `None`, no other begins; jobs that weren't done have `None`.
pub fn run_jobs<R: Send>(
    workers: Workers,
    total: usize,
    stop: &AtomicBool,
    job: impl Fn(usize) -> Option<R> + Sync,
) -> Vec<Option<R>> {
    let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Vec<Option<R>> = std::iter::repeat_with(|| None).take(total).collect();
    let results = Mutex::new(results);
    let worker = || {
        let mut done = Vec::new();
        while !stop.load(Ordering::Relaxed) && !ended.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= total {
                break;
            }
            match job(index) {
                Some(result) => done.push((index, result)),
                None => ended.store(true, Ordering::Relaxed),
            }
        }
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        done.into_iter().for_each(|(index, result)| results[index] = Some(result));
    };
    (workers.start)(workers.count.max(1), &worker);
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let never = AtomicBool::new(false);
        let twice: Start = |_, worker| (0..2).for_each(|_| worker());
        for workers in
            [Workers::ONE, Workers { count: 0, ..Workers::ONE }, Workers { count: 2, start: twice }]
        {
            let squares = run_jobs(workers, 10, &never, |index| Some(index * index));
            assert_eq!(squares, (0..10).map(|index| Some(index * index)).collect::<Vec<_>>());
        }
        assert!(run_jobs(Workers::ONE, 0, &never, |_| Some(())).is_empty());
    }

    #[test]
    fn nothing_begins_after_a_stop_or_a_job_without_a_result() {
        let stop = AtomicBool::new(false);
        let stopped = run_jobs(Workers::ONE, 5, &stop, |index| {
            stop.store(index == 2, Ordering::Relaxed);
            Some(index)
        });
        assert_eq!(stopped, [Some(0), Some(1), Some(2), None, None]);
        let failed =
            run_jobs(Workers::ONE, 5, &AtomicBool::new(false), |index| (index != 3).then_some(index));
        assert_eq!(failed, [Some(0), Some(1), Some(2), None, None]);
    }
}
