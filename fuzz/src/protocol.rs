//! What the fuzz target of `ropewalk perf`'s protocol checks. `cargo test -p ropewalk-host` replays its
//! corpus.

use ropewalk_host::perf::protocol::{Answer, Hello, Trailer};

/// A check.
pub type Check = fn(&[u8]);

/// All of them by name.
pub const CHECKS: [(&str, Check); 1] = [("perf_protocol", perf_protocol)];

/// Any bytes as each message: what is read is written as it was read, and an error stays one when more
/// follows.
pub fn perf_protocol(data: &[u8]) {
    match Hello::parse(data) {
        Ok(Some((hello, len))) => assert_eq!(hello.encode(), data[..len]),
        Ok(None) => {}
        Err(_) => assert!(Hello::parse(&[data, b"more"].concat()).is_err()),
    }
    match Answer::parse(data) {
        Ok(Some((answer, len))) => {
            let again = answer.encode();
            assert_eq!(Answer::parse(&again), Ok(Some((answer, again.len()))));
            assert!(again.len() <= len);
        }
        Ok(None) => {}
        Err(_) => assert!(Answer::parse(&[data, b"more"].concat()).is_err()),
    }
    if let Some(trailer) = Trailer::parse(data) {
        assert_eq!(trailer.encode(), data);
    }
}
