//! The first segments of a connection as qlog, on standard output.
//!
//! ```text
//! cargo run -p ropewalk-engine --features qlog --example qlog
//! ```

use std::sync::Arc;

use bytes::Bytes;
use ropewalk_engine::qlog::{Log, Vantage};
use ropewalk_engine::{ConnectionConfig, Endpoint, EndpointConfig, Entropy, PathId, Time};

/// For an example: a program takes the operating system's random numbers.
struct Sequence(u64);

impl Entropy for Sequence {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 31
    }
}

/// Writes the log of a connection that opens.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let now = Time::ZERO;
    let mut endpoint = Endpoint::<Bytes, _>::new(EndpointConfig::default(), Sequence(4));
    let config = Arc::new(ConnectionConfig::default());
    endpoint.connect(now, PathId(0), "192.0.2.2:0".parse()?, "192.0.2.1:80".parse()?, config)?;
    let mut log = Log::new(Vec::new(), "a download", Vantage::Client)?;
    while let Some((path, segment)) = endpoint.poll_transmit(now, 1) {
        log.sent(now, path, &segment)?;
    }
    while let Some((id, event)) = endpoint.poll_event() {
        log.event(now, id, &event)?;
    }
    let text = String::from_utf8(log.into_inner()?)?;
    assert!(text.starts_with("\u{1e}{\"file_schema\":\"urn:ietf:params:qlog:file:sequential\""), "{text}");
    assert!(text.contains("mptcp:segment_sent"), "{text}");
    print!("{text}");
    Ok(())
}
