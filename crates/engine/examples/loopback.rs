//! Two endpoints in one process, two paths, no device: what the client writes, the server reads.
//!
//! ```text
//! cargo run -p ropewalk-engine --example loopback
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use ropewalk_engine::{
    ConnectionConfig, Endpoint, EndpointConfig, Entropy, Event, MILLISECOND, PathId, Time,
};

/// For an example: a program takes the operating system's random numbers.
struct Sequence(u64);

impl Entropy for Sequence {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 31
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = ConnectionConfig::with_algorithms("minrtt", "olia")?;
    config.path_manager.subflows = 1;
    let config = Arc::new(config);
    let mut ends = [1, 2].map(|seed| Endpoint::<Bytes, _>::new(EndpointConfig::default(), Sequence(seed)));
    let (server, mut now) = ("192.0.2.1:80".parse()?, Time::ZERO);
    ends[1].listen(server, Arc::clone(&config));
    let client = ends[0].connect(now, PathId(0), "192.0.2.2:0".parse()?, server, config)?;
    let data = Bytes::from(vec![7; 1_000_000]);
    let (mut written, mut received) = (0, 0);
    // Each path delays by 5 ms, so that segments arrive in the order in which they were sent.
    let mut wire = VecDeque::new();
    while received < data.len() {
        written += ends[0].write(now, client, data.slice(written..))?;
        for (end, endpoint) in ends.iter_mut().enumerate() {
            while let Some((path, segment)) = endpoint.poll_transmit(now, 1) {
                wire.push_back((now + 5 * MILLISECOND, 1 - end, path, segment));
            }
            while let Some((id, event)) = endpoint.poll_event() {
                match event {
                    Event::Readable => {
                        while let Some(piece) = endpoint.read(now, id, 65_536)? {
                            received += piece.len();
                        }
                    }
                    Event::Connected { .. } => {
                        endpoint.add_path(now, id, PathId(1), "198.51.100.2:0".parse()?, None, 1);
                    }
                    Event::Writable => {}
                    event => println!("{} ms, {}: {event:?}", now.as_millis(), ["client", "server"][end]),
                }
            }
        }
        // Time passes until a segment arrives or a deadline comes.
        let timers = ends.iter_mut().filter_map(Endpoint::poll_timeout);
        now = wire.front().map(|(at, ..)| *at).into_iter().chain(timers).min().unwrap_or(now).max(now);
        while wire.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, to, path, segment)) = wire.pop_front() else { break };
            ends[to].on_segment(now, path, segment);
        }
        ends.iter_mut().for_each(|end| end.on_timeout(now));
    }
    println!("{received} bytes arrived by {} ms", now.as_millis());
    for subflow in ends[0].connection(client).into_iter().flat_map(|connection| connection.subflow_infos(now))
    {
        println!("path {}: {} bytes acknowledged", subflow.path.0, subflow.tcp.totals.bytes_acked);
    }
    Ok(())
}
