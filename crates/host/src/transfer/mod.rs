//! The program that both worlds run to measure: a client asks for bytes, or brings them, and every byte is
//! checked.
//!
//! A request is 16 bytes: `rope`, version 1, direction (0 upload, 1 download), two zeros, and the number of
//! bytes as a 64-bit big-endian number. In an upload the client's bytes follow, and the server closes when it
//! has them; in a download the server's bytes follow, and it closes after them. The bytes are those of
//! [`pattern`], so that either side can find each one's offset in the stream.

mod engine;
mod socket;

use crate::kernel::MptcpInfo;
use bytes::Bytes;
use ropewalk_engine::endpoint::{ConnectError, StreamError};
use ropewalk_engine::mptcp::{CloseReason, ConnectionStats};
use ropewalk_engine::{Span, Time};

pub use engine::{Role, Transfers};
pub use socket::SocketTransfer;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the client.
    Upload,
    /// To the client.
    Download,
}

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Which way.
    pub direction: Direction,
    /// How many.
    pub bytes: u64,
}

/// Length of a request.
pub const REQUEST: usize = 16;
/// The pattern's period: a prime, so that no power of two hides an error.
const PERIOD: usize = 65_521;
/// So many bytes alike are no chance: shifted by some numbers, the pattern resembles itself for dozens.
const SAMPLE: usize = 256;
/// How long a sender waits for the subflows that it wants.
const JOIN_PATIENCE: Span = Span::from_secs(1);

impl Request {
    /// As bytes.
    pub fn encode(self) -> [u8; REQUEST] {
        let mut bytes = *b"rope\x01\0\0\0\0\0\0\0\0\0\0\0";
        bytes[5] = u8::from(self.direction == Direction::Download);
        bytes[8..].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    /// From bytes; `None` for anything else.
    pub fn parse(bytes: &[u8; REQUEST]) -> Option<Request> {
        let direction = match bytes[5] {
            0 => Direction::Upload,
            1 => Direction::Download,
            _ => return None,
        };
        let count = u64::from_be_bytes(*bytes.last_chunk()?);
        (bytes.starts_with(b"rope\x01") && bytes[6..8] == [0, 0])
            .then_some(Request { direction, bytes: count })
    }
}

/// The stream's bytes, twice over, so that a slice of up to a period can start anywhere in the first.
pub fn pattern() -> Bytes {
    repeated(2 * PERIOD)
}

fn repeated(len: usize) -> Bytes {
    (0..len)
        .map(|at| {
            let at = (at % PERIOD) as u32;
            (at.wrapping_mul(0x9e37_79b1) >> 24) as u8
        })
        .collect()
}

/// How a transfer ended, as one side saw it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// When the connection was asked for (client) or accepted (server).
    pub started: Time,
    /// When the last byte of the stream was delivered (receiver) or the peer closed (sender).
    pub finished: Option<Time>,
    /// Stream bytes received, the request not counted.
    pub received: u64,
    /// What went wrong.
    pub error: Option<TransferError>,
    /// Whether it was Multipath TCP to the end.
    pub multipath: bool,
    /// Subflows that were ever usable.
    pub subflows: usize,
    /// The engine's counters, at the end.
    pub stats: Option<ConnectionStats>,
    /// The kernel's, before closing.
    pub info: Option<MptcpInfo>,
}

/// Why a transfer failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The client couldn't connect its socket; what the system says.
    #[error("connect: {0}")]
    Connect(String),
    /// No connection came to the server's socket; what the system says.
    #[error("accept: {0}")]
    Accept(String),
    /// A socket failed; what the system says.
    #[error("{0}")]
    Socket(String),
    /// The engine can't open a connection.
    #[error(transparent)]
    Open(#[from] ConnectError),
    /// The engine's stream takes no more.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The engine's connection was reset; its reason.
    #[error("{0}")]
    Reset(CloseReason),
    /// The server got something else first.
    #[error("what came first was no request")]
    NoRequest,
    /// The stream ended early.
    #[error("{received} of {total} bytes came")]
    Short {
        /// Bytes that came.
        received: u64,
        /// Bytes that were asked for.
        total: u64,
    },
    /// Bytes came that aren't the stream's; which, and where they belong.
    #[error("{0}")]
    WrongBytes(String),
    /// Bytes came after the stream's end.
    #[error("bytes after the end of the stream")]
    TooLong,
    /// This side aborted it, as configured.
    #[error("aborted by this side")]
    Aborted,
    /// It was under way when the world stopped; how far it had come.
    #[error("unfinished: {0}")]
    Unfinished(String),
}

impl From<std::io::Error> for TransferError {
    fn from(error: std::io::Error) -> Self {
        TransferError::Socket(error.to_string())
    }
}

/// Checks `found`, read after `received` bytes of the stream: at most a period of it.
///
/// # Errors
/// Which bytes are wrong.
pub fn check(pattern: &[u8], received: u64, found: &[u8]) -> Result<(), TransferError> {
    let start = (received % PERIOD as u64) as usize;
    if found == &pattern[start..start + found.len()] {
        return Ok(());
    }
    Err(TransferError::WrongBytes(describe_wrong(pattern, received, found)))
}

/// Tells which bytes of `found`, read after `received` of the stream, are wrong, and where in the stream they
/// belong.
fn describe_wrong(pattern: &[u8], received: u64, found: &[u8]) -> String {
    let start = (received % PERIOD as u64) as usize;
    let differ = |at: &usize| found[*at] != pattern[start + at];
    let first = (0..found.len()).find(differ).unwrap_or(0);
    let last = (0..found.len()).rfind(differ).unwrap_or(0);
    let stretch = &found[first..=last];
    let alike = |place: &usize| stretch.iter().zip(&pattern[*place..]).take_while(|(a, b)| a == b).count();
    let place = (0..PERIOD).max_by_key(alike).unwrap_or(0);
    let whose = match alike(&place) {
        count if count >= SAMPLE => format!("the first {count} are those of {place} (modulo {PERIOD})"),
        _ => "they are not the stream's".into(),
    };
    format!(
        "wrong bytes at {} of the stream: {}, among {} that were read at {received}; {whose}",
        received + first as u64,
        stretch.len(),
        found.len()
    )
}

#[cfg(test)]
mod tests {
    use super::{Direction, PERIOD, Request, describe_wrong, pattern};

    #[test]
    fn a_request_comes_back_and_nothing_else_is_one() {
        let request = Request { direction: Direction::Download, bytes: 0x0102_0304_0506_0708 };
        let bytes = request.encode();
        assert_eq!(Request::parse(&bytes), Some(request));
        for at in 0..8 {
            let mut wrong = bytes;
            wrong[at] ^= 0x40;
            assert_eq!(Request::parse(&wrong), None, "byte {at}");
        }
    }

    #[test]
    fn wrong_bytes_are_told_with_their_place_and_the_one_where_they_belong() {
        let pattern = pattern();
        let received = 2 * PERIOD as u64 + 100;
        let mut found = pattern[100..10_000].to_vec();
        found[1424..2848].copy_from_slice(&pattern[60_000..61_424]);
        let told = describe_wrong(&pattern, received, &found);
        let start = format!("wrong bytes at {} of the stream: 1424, among 9900 that", received + 1424);
        assert!(told.starts_with(&start) && told.ends_with("are those of 60000 (modulo 65521)"), "{told}");
        found[1424..2848].fill(0);
        let told = describe_wrong(&pattern, received, &found);
        assert!(told.ends_with("not the stream's"), "{told}");
    }

    #[test]
    fn the_pattern_has_no_short_period() {
        let pattern = pattern();
        for shift in [1, 2, 256, 1424, 1448, 4096, 65_536] {
            assert_ne!(pattern[..4096], pattern[shift..shift + 4096]);
        }
    }
}
