//! Threads for independent jobs.

use ropewalk_lab::parallel::Workers;

/// So many threads; none: one per core.
pub fn threads(count: Option<usize>) -> Workers {
    let count = count.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    Workers { count, start }
}

fn start(count: usize, worker: &(dyn Fn() + Sync)) {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use ropewalk_lab::parallel::run_jobs;

    use super::threads;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let never = AtomicBool::new(false);
        for count in [0, 1, 3, 20] {
            let squares = run_jobs(threads(Some(count)), 10, &never, |index| Some(index * index));
            assert_eq!(squares, (0..10).map(|index| Some(index * index)).collect::<Vec<_>>());
        }
    }

    #[test]
    #[should_panic(expected = "job 1")]
    fn a_panic_is_passed_on() {
        run_jobs(threads(Some(2)), 2, &AtomicBool::new(false), |index| {
            assert_ne!(index, 1, "job 1");
            Some(())
        });
    }
}
