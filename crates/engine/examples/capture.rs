//! A transfer between two endpoints in one process, written to a pcapng file that Wireshark and tshark read.
//!
//! ```text
//! cargo run -p ropewalk-engine --example capture -- loopback.pcapng && tshark -r loopback.pcapng -Y mptcp
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use bytes::Bytes;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use ropewalk_engine::{
    ConnectionConfig, Endpoint, EndpointConfig, Entropy, Event, MILLISECOND, PathId, Time,
};
use ropewalk_wire::{ChecksumMode, encode};

/// For an example: a program takes the operating system's random numbers.
struct Sequence(u64);

impl Entropy for Sequence {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 31
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "loopback.pcapng".into());
    let mut capture = PcapNgWriter::new(BufWriter::new(File::create(&file)?))?;
    for _ in 0..2 {
        // A path is an interface; times are in nanoseconds.
        let options = vec![InterfaceDescriptionOption::IfTsResol(9)];
        capture.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen: 0,
            options,
        })?;
    }
    let mut config = ConnectionConfig::with_algorithms("roundrobin", "lia")?;
    config.path_manager.subflows = 1;
    let config = Arc::new(config);
    let mut ends = [1, 2].map(|seed| Endpoint::<Bytes, _>::new(EndpointConfig::default(), Sequence(seed)));
    let (server, mut now, mut packets) = ("192.0.2.1:80".parse()?, Time::ZERO, 0);
    ends[1].listen(server, Arc::clone(&config));
    let client = ends[0].connect(now, PathId(0), "192.0.2.2:0".parse()?, server, config)?;
    ends[0].write(now, client, Bytes::from(vec![b'x'; 50_000]))?;
    let mut wire = VecDeque::new();
    let mut packet = vec![0; 1500];
    while !ends[0].is_empty() && now < Time::ZERO + 10_000 * MILLISECOND {
        for (end, endpoint) in ends.iter_mut().enumerate() {
            while let Some((path, segment)) = endpoint.poll_transmit(now, 1) {
                let len = encode(&segment, ChecksumMode::Full, &mut packet)?;
                capture.write_pcapng_block(EnhancedPacketBlock {
                    interface_id: u32::from(path.0),
                    timestamp: now.since_origin().into(),
                    original_len: len as u32,
                    data: (&packet[..len]).into(),
                    options: vec![],
                })?;
                packets += 1;
                wire.push_back((now + 5 * MILLISECOND, 1 - end, path, segment));
            }
            while let Some((id, event)) = endpoint.poll_event() {
                match event {
                    Event::Connected { .. } => {
                        endpoint.add_path(now, id, PathId(1), "198.51.100.2:0".parse()?, None, 1);
                    }
                    Event::SubflowAdded { .. } if end == 0 => endpoint.shutdown(now, id),
                    Event::Readable => {
                        while endpoint.read(now, id, 65_536)?.is_some_and(|data| !data.is_empty()) {}
                    }
                    Event::PeerClosed => endpoint.shutdown(now, id),
                    _ => {}
                }
            }
        }
        let timers = ends.iter_mut().filter_map(Endpoint::poll_timeout);
        now = wire.front().map(|(at, ..)| *at).into_iter().chain(timers).min().unwrap_or(now).max(now);
        while wire.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, to, path, segment)) = wire.pop_front() else { break };
            ends[to].on_segment(now, path, segment);
        }
        ends.iter_mut().for_each(|end| end.on_timeout(now));
    }
    capture.into_inner().flush()?;
    println!("{packets} packets in {file}");
    Ok(())
}
