//! What each connection takes as long as it lives, used or idle.

/// Most bytes of a connection's task.
const MOST: usize = 2560;

/// The same task, which is small: what only some connections need, or only at first, is in boxes of its own.
/// The compiler looks: a task that isn't small is an error.
pub(crate) fn small<F: Future>(task: F) -> F {
    const { assert!(size_of::<F>() <= MOST, "put what most connections don't need into a box") }
    task
}
