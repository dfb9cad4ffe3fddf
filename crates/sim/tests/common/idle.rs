//! What a connection of two subflows keeps at both ends together when it has nothing to do: after it carried
//! 64 KiB, with everything acknowledged. It includes what the endpoints' tables and queues have grown to.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ropewalk_engine::config::{BufferConfig, ConnectionConfig, LocalEndpoint, PathManagerConfig, TcpConfig};
use ropewalk_engine::endpoint::{Endpoint, EndpointConfig};
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{Entropy, PathId, Span, Time, congestion, scheduler};
use ropewalk_wire::{Segment, SyntheticPayload};

pub struct Counting(u64);

impl Entropy for Counting {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ (self.0 >> 29)
    }
}

fn config(second: Option<IpAddr>) -> Arc<ConnectionConfig> {
    let endpoints = second.map(|address| LocalEndpoint {
        address,
        port: None,
        path: PathId(1),
        id: 1,
        signal: false,
        subflow: true,
        backup: false,
    });
    let buffer = BufferConfig { initial: 64 << 10, max: 4 << 20 };
    Arc::new(ConnectionConfig {
        tcp: TcpConfig::default(),
        multipath: true,
        checksum: false,
        send_buffer: buffer,
        receive_buffer: buffer,
        scheduler: scheduler::builtin().parse("minrtt").expect("a scheduler"),
        congestion: congestion::builtin().parse("lia").expect("a congestion control"),
        path_manager: PathManagerConfig {
            subflows: 1,
            endpoints: endpoints.into_iter().collect(),
            ..PathManagerConfig::default()
        },
        trace_decisions: false,
        ..ConnectionConfig::default()
    })
}

pub type Ends = [Endpoint<SyntheticPayload, Counting>; 2];

/// Carries segments both ways until neither end has any; returns how many bytes the server read.
fn exchange(ends: &mut Ends, now: &mut Time) -> u64 {
    let mut wire: VecDeque<(usize, PathId, Segment<SyntheticPayload>)> = VecDeque::new();
    let mut read = 0;
    loop {
        for (from, end) in ends.iter_mut().enumerate() {
            while let Some((path, segment)) = end.poll_transmit(*now, 1) {
                wire.push_back((1 - from, path, segment));
            }
            while let Some((id, event)) = end.poll_event() {
                if matches!(event, Event::Readable) {
                    while let Ok(Some(piece)) = end.read(*now, id, usize::MAX) {
                        read += u64::from(piece.0);
                    }
                }
            }
        }
        if wire.is_empty() {
            return read;
        }
        *now += Span::from_millis(1);
        for (to, path, segment) in wire.drain(..) {
            ends[to].on_segment(*now, path, segment);
        }
    }
}

/// Both ends of so many idle connections.
pub fn connections(count: u32) -> Ends {
    const BYTES: u32 = 64 << 10;
    let address = |side: u8, path: u8| IpAddr::V4(Ipv4Addr::new(10, side, path, 1));
    let server = SocketAddr::new(address(2, 0), 80);
    let (near, far) = (config(Some(address(1, 1))), config(None));
    let settings = EndpointConfig { backlog: count as usize, ..EndpointConfig::default() };
    let mut ends = [Endpoint::new(settings.clone(), Counting(1)), Endpoint::new(settings, Counting(2))];
    ends[1].listen(server, far);
    let mut now = Time::from_nanos(1_000_000);
    let ids: Vec<_> = (0..count)
        .map(|_| {
            let local = SocketAddr::new(address(1, 0), 0);
            let id = ends[0].connect(now, PathId(0), local, server, Arc::clone(&near)).expect("a free port");
            exchange(&mut ends, &mut now);
            id
        })
        .collect();
    let mut read = 0;
    for id in &ids {
        let taken = ends[0].write(now, *id, SyntheticPayload(BYTES)).expect("an open connection");
        assert_eq!(taken, BYTES as usize);
        read += exchange(&mut ends, &mut now);
    }
    assert_eq!(read, u64::from(count) * u64::from(BYTES), "everything arrived");
    let both = |id| {
        ends[0].connection(id).is_some_and(|c| c.subflow_metrics().iter().filter(|f| f.usable()).count() == 2)
    };
    assert!(ids.iter().all(|id| both(*id)), "two subflows each");
    ends
}
