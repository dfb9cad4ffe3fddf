//! Names of paths and scenarios.

/// Most characters of a name.
pub const LONGEST_NAME: usize = 40;

/// Why a name can't be used, if it can't.
pub fn bad_name(name: &str) -> Option<&'static str> {
    let allowed = |c: char| c.is_alphanumeric() || "-_.+ ".contains(c);
    if name.is_empty() {
        Some("it is empty")
    } else if name.chars().count() > LONGEST_NAME {
        Some("it is longer than 40 characters")
    } else if !name.chars().all(allowed) || name.trim() != name {
        Some("allowed: letters, digits, spaces inside, `-`, `_`, `.`, `+`")
    } else {
        None
    }
}
