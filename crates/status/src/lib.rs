//! What a running gateway or proxy is asked over its status socket: whoever connects and sends a line gets
//! one JSON value. The line says of what: `state`, `state before=NUMBER`, `recording`. The server is
//! `ropewalk_gateway::status`.
#![forbid(unsafe_code)]

pub mod record;

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A proxy's socket, where nothing else is said.
pub const OF_PROXY: &str = "/run/ropewalk/proxy.sock";
/// A gateway's.
pub const OF_GATEWAY: &str = "/run/ropewalk/gateway.sock";
/// Where they are looked for if nothing else is said: the defaults, and those of the systemd units.
pub const DEFAULTS: [&str; 4] =
    [OF_PROXY, OF_GATEWAY, "/run/ropewalk-proxy/status.sock", "/run/ropewalk-gateway/status.sock"];
/// What comes before the number where only older connections are asked for.
const BEFORE: &str = "state before=";

/// What is asked for a state in which only connections with a number below `before` are told of.
#[must_use]
pub fn state_before(before: Option<u64>) -> String {
    before.map_or("state".into(), |before| format!("{BEFORE}{before}"))
}

/// The number that such a question has.
#[must_use]
pub fn before(word: &str) -> Option<u64> {
    word.strip_prefix(BEFORE)?.parse().ok()
}

/// The sockets of [`DEFAULTS`] that are there. A socket that a killed process left isn't among them.
#[cfg(unix)]
#[must_use]
pub fn running() -> Vec<PathBuf> {
    let listens = |path: &PathBuf| match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound),
    };
    DEFAULTS.iter().map(PathBuf::from).filter(listens).collect()
}

/// None: gateways and proxies run on Linux.
#[cfg(not(unix))]
#[must_use]
pub fn running() -> Vec<PathBuf> {
    Vec::new()
}

/// Asks a running gateway or proxy: for its `state` (or [`state_before`]), or its `recording`.
///
/// # Errors
/// If nobody listens there, or the answer is no JSON.
#[cfg(unix)]
pub fn ask(path: &Path, word: &str) -> io::Result<Value> {
    use std::io::{Read, Write};
    /// Most bytes of an answer.
    const LARGEST: u64 = 64 << 20;
    let context = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut stream = std::os::unix::net::UnixStream::connect(path).map_err(context)?;
    stream.write_all(format!("{word}\n").as_bytes()).map_err(context)?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
    let mut text = String::new();
    stream.take(LARGEST).read_to_string(&mut text).map_err(context)?;
    serde_json::from_str(&text).map_err(|error| context(io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// Refuses: this system has no Unix sockets.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn ask(_path: &Path, _word: &str) -> io::Result<Value> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "status sockets need a Unix system"))
}

#[cfg(test)]
mod tests {
    use super::{before, state_before};

    #[test]
    fn a_question_has_its_number() {
        assert_eq!((before("state"), before("state before=x"), before("")), (None, None, None));
        assert_eq!(before(&state_before(Some(7))), Some(7));
    }
}
