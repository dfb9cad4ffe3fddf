//! What the fuzz target of Convert messages (RFC 8803) checks. `cargo test -p ropewalk-gateway` replays its
//! corpus.

use ropewalk_gateway::convert::message::{LARGEST, Message};

/// A check.
pub type Check = fn(&[u8]);

/// All of them by name.
pub const CHECKS: [(&str, Check); 1] = [("convert_message", convert_message)];

/// Any bytes as a message: what is read survives a round trip, what isn't has an answer that is a message,
/// and an error stays one when more follows.
pub fn convert_message(data: &[u8]) {
    match Message::parse(data) {
        Ok(Some((message, len))) => {
            let again = message.encode();
            assert!(again.len() <= len, "it has grown");
            assert_eq!(Message::parse(&again), Ok(Some((message, again.len()))));
        }
        Ok(None) => assert!(data.len() < LARGEST),
        Err(error) => {
            assert_eq!(Message::parse(&[data, b"more"].concat()), Err(error));
            let answer = error.answer(data).encode();
            assert!(matches!(Message::parse(&answer), Ok(Some((_, len))) if len == answer.len()));
        }
    }
}
