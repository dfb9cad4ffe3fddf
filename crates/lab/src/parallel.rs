//! Independent jobs on several threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Does jobs 0 to `total - 1`, each on the first of `threads` threads that is free, and returns their results in order.
/// Once `stop` is set, or a job returns `None`, no other begins; jobs that weren't done have `None`.
pub fn run_jobs<R: Send>(
    threads: usize,
    total: usize,
    stop: &AtomicBool,
    job: impl Fn(usize) -> Option<R> + Sync,
) -> Vec<Option<R>> {
    let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
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
        done
    };
    let mut results: Vec<Option<R>> = std::iter::repeat_with(|| None).take(total).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            match worker.join() {
                Ok(done) => done.into_iter().for_each(|(index, result)| results[index] = Some(result)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let never = AtomicBool::new(false);
        for threads in [0, 1, 3, 20] {
            let squares = run_jobs(threads, 10, &never, |index| Some(index * index));
            assert_eq!(squares, (0..10).map(|index| Some(index * index)).collect::<Vec<_>>());
        }
        assert!(run_jobs(2, 0, &never, |_| Some(())).is_empty());
    }

    #[test]
    fn nothing_begins_after_a_stop_or_a_job_without_a_result() {
        let stop = AtomicBool::new(false);
        let stopped = run_jobs(1, 5, &stop, |index| {
            stop.store(index == 2, Ordering::Relaxed);
            Some(index)
        });
        assert_eq!(stopped, [Some(0), Some(1), Some(2), None, None]);
        let failed = run_jobs(1, 5, &AtomicBool::new(false), |index| (index != 3).then_some(index));
        assert_eq!(failed, [Some(0), Some(1), Some(2), None, None]);
    }

    #[test]
    #[should_panic(expected = "job 1")]
    fn a_panic_is_passed_on() {
        run_jobs(2, 2, &AtomicBool::new(false), |index| {
            assert_ne!(index, 1, "job 1");
            Some(())
        });
    }
}
