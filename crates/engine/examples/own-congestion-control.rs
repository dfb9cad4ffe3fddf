//! A congestion control of one's own, without a line changed in the engine: `steady` keeps a window that is
//! worth a fixed rate, and halves it for a second after a loss. It is compared with `cubic` over a link of 20
//! Mbit/s with a short queue.
//!
//! ```text
//! cargo run -p ropewalk-engine --example own-congestion-control
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ropewalk_engine::congestion::{Ack, CongestionControl, LossCause, Siblings, builtin, half_window};
use ropewalk_engine::metrics::SubflowMetrics;
use ropewalk_engine::registry::{Entry, Parameter, Spec};
use ropewalk_engine::{
    ConnectionConfig, Endpoint, EndpointConfig, Entropy, MILLISECOND, PathId, SECOND, Span, Time,
};

const PARAMETERS: &[Parameter] =
    &[Parameter::whole("rate", 18.0, (1.0, 10_000.0), "Mbit/s that the window is worth")];

const STEADY: Entry<dyn CongestionControl> = Entry {
    name: "steady",
    summary: "a window worth a fixed rate; half of it for a second after a loss",
    source: "this example",
    parameters: PARAMETERS,
    ..Entry::of(|values| {
        Box::new(Steady { rate: values.number("rate") * 1e6 / 8.0, careful_until: Time::ZERO })
    })
};

#[derive(Debug)]
struct Steady {
    /// Bytes per second.
    rate: f64,
    /// Until when it stays at the half, after a loss.
    careful_until: Time,
}

impl CongestionControl for Steady {
    fn name(&self) -> &'static str {
        STEADY.name
    }

    fn on_ack(&mut self, subflow: &mut SubflowMetrics, _: Siblings<'_>, ack: &Ack) {
        let window = self.rate * subflow.rtt.min.as_secs_f64() / f64::from(subflow.mss);
        if ack.now >= self.careful_until {
            subflow.set_cwnd((window as u32).max(2));
        }
    }

    fn ssthresh(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>, _: LossCause, now: Time) -> u32 {
        self.careful_until = now + SECOND;
        half_window(subflow, 2)
    }
}

/// For an example: a program takes the operating system's random numbers.
struct Sequence(u64);

impl Entropy for Sequence {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 31
    }
}

/// Sends 5 MB; returns the time that it took, and the segments sent again.
fn transfer(congestion: Spec<dyn CongestionControl>) -> Result<(Time, u64), Box<dyn std::error::Error>> {
    let config = Arc::new(ConnectionConfig { congestion, ..ConnectionConfig::default() });
    let mut ends = [1, 2].map(|seed| Endpoint::<Bytes, _>::new(EndpointConfig::default(), Sequence(seed)));
    let (server, mut now) = ("192.0.2.1:80".parse()?, Time::ZERO);
    ends[1].listen(server, Arc::clone(&config));
    let client = ends[0].connect(now, PathId(0), "192.0.2.2:0".parse()?, server, config)?;
    let data = Bytes::from(vec![7; 5_000_000]);
    let (mut written, mut received, mut accepted) = (0, 0, None);
    // The link that sends at 20 Mbit/s, 400 ns a byte, with a queue of 20 ms; then 10 ms of delay.
    let (mut wire, mut busy, mut number) = (BTreeMap::new(), [Time::ZERO; 2], 0u64);
    while received < data.len() {
        written += ends[0].write(now, client, data.slice(written..))?;
        for (end, endpoint) in ends.iter_mut().enumerate() {
            while let Some((path, segment)) = endpoint.poll_transmit(now, 1) {
                if busy[end] > now + 20 * MILLISECOND {
                    continue;
                }
                busy[end] = now.max(busy[end]) + Span::from_nanos(400 * segment.wire_len() as u64);
                number += 1;
                wire.insert((busy[end] + 10 * MILLISECOND, number), (1 - end, path, segment));
            }
        }
        while ends[0].poll_event().is_some() {}
        while let Some((id, _)) = ends[1].poll_event() {
            accepted = Some(id);
        }
        while let Some(piece) = accepted.and_then(|id| ends[1].read(now, id, 65_536).ok()).flatten() {
            received += piece.len();
        }
        let timers = ends.iter_mut().filter_map(Endpoint::poll_timeout);
        now = wire.keys().next().map(|(at, _)| *at).into_iter().chain(timers).min().unwrap_or(now).max(now);
        while let Some(next) = wire.first_entry().filter(|next| next.key().0 <= now) {
            let (to, path, segment) = next.remove();
            ends[to].on_segment(now, path, segment);
        }
        ends.iter_mut().for_each(|end| end.on_timeout(now));
    }
    let again = ends[0].connection(client).map_or(0, |connection| connection.stats(now).retransmissions);
    Ok((now, again))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Known by its name, beside the built-in ones.
    let mut registry = builtin();
    registry.register(STEADY)?;
    for name in ["steady", "steady(rate=10)", "cubic"] {
        let (took, again) = transfer(registry.parse(name)?)?;
        println!("{name}: 5 MB in {} ms, {again} segments sent again", took.as_millis());
    }
    Ok(())
}
