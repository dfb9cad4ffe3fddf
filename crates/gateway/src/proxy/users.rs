//! Files with users: one NAME:PASSWORD a line.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Most bytes of a file with users.
const LARGEST: u64 = 1 << 20;

/// Reads a name and its password.
///
/// # Errors
/// If it is neither.
pub fn parse(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, password))
            if !name.is_empty() && name.len() < 256 && (1..256).contains(&password.len()) =>
        {
            Ok((name.to_string(), password.to_string()))
        }
        _ => Err("expected NAME:PASSWORD, each of 1 to 255 bytes".into()),
    }
}

/// Reads a file.
///
/// # Errors
/// If it can't be read, or has something else in it: the line is named.
pub fn read(path: &Path) -> Result<Vec<(String, String)>, String> {
    let shown = path.display();
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text));
    read.map_err(|error| format!("{shown}: {error}"))?;
    if text.len() as u64 > LARGEST {
        return Err(format!("{shown}: it is larger than 1 MiB"));
    }
    let mut users = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        users.push(parse(line.trim()).map_err(|error| format!("{shown}, line {}: {error}", at + 1))?);
    }
    if users.is_empty() {
        return Err(format!("{shown}: no NAME:PASSWORD in it"));
    }
    Ok(users)
}
