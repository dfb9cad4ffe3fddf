//! Finished runs that are kept, so that an interrupted command can continue. Where they are kept is the
//! caller's.

/// Where finished runs are kept.
pub trait Kept<T> {
    /// The name of a run: it depends on everything that the run depends on.
    fn key(&self, parts: &[&str]) -> String;

    /// A finished run.
    fn get(&self, key: &str) -> Option<&T>;

    /// Keeps a run.
    fn put(&self, key: &str, result: &T);
}

/// Keeps nothing.
impl<T> Kept<T> for () {
    fn key(&self, _: &[&str]) -> String {
        String::new()
    }

    fn get(&self, _: &str) -> Option<&T> {
        None
    }

    fn put(&self, _: &str, _: &T) {}
}
