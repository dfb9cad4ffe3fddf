//! A host that speaks TCP by hand: it has a TUN device of its own in the server's namespace, and the kernel routes its
//! packets to the engine.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ropewalk_host::clock::Clock;
use ropewalk_host::netns::Namespace;
use ropewalk_host::tun::{Offload, Tun};
use ropewalk_wire::{ChecksumMode, Flags, FourTuple, ParseMode, Segment, Seq, encode_into, parse};

/// The network behind the attacker's device; the kernel has .1.
const ADDRESS: &str = "10.99.0.2";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Attacker {
    tun: Tun,
}

/// What the attacker knows of a connection of its own.
#[derive(Clone, Copy)]
pub struct Open {
    pub tuple: FourTuple,
    /// The next sequence number of each side.
    pub next: Seq,
    pub expected: Seq,
}

impl Attacker {
    pub fn new(namespace: &Namespace) -> io::Result<Attacker> {
        let tun = namespace.run(|| Tun::create("attacker", Offload::None))?;
        namespace.check("ip", &["link", "set", "dev", "attacker", "up"])?;
        namespace.check("ip", &["address", "add", "10.99.0.1/24", "dev", "attacker"])?;
        namespace.sysctl("net.ipv4.ip_forward", "1")?;
        Ok(Attacker { tun })
    }

    pub fn send(&self, segment: &Segment<Bytes>) {
        let mut packet = BytesMut::new();
        encode_into(segment, ChecksumMode::Full, &mut packet).expect("a packet");
        while let Err(error) = self.tun.send(&[IoSlice::new(&packet)]) {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
        }
    }

    /// The next TCP segment for the attacker, if there is one.
    pub fn receive(&self) -> Option<Segment<Bytes>> {
        let mut buffer = [0; 65_536];
        while let Ok(len) = self.tun.receive(&mut buffer) {
            if let Ok(segment) = parse(Bytes::copy_from_slice(&buffer[..len]), ParseMode::Verify) {
                return Some(segment);
            }
        }
        None
    }

    /// Opens a plain TCP connection from `port`.
    pub fn connect(&self, port: u16, server: SocketAddr) -> Open {
        let source = SocketAddr::new(ADDRESS.parse().expect("an address"), port);
        let tuple = FourTuple::new(source, server);
        let mut syn = Segment::new(tuple, Seq(1_000), Seq(0), Flags::SYN);
        syn.window = u16::MAX;
        self.send(&syn);
        let begin = Clock::start();
        loop {
            assert!(Duration::from_nanos(begin.now()) < PATIENCE, "no SYN/ACK");
            let Some(answer) = self.receive() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            if answer.tuple.answers(&tuple) && answer.flags.contains(Flags::SYN) {
                let open = Open { tuple, next: Seq(1_001), expected: answer.seq.plus(1) };
                self.send(&open.segment(0, Bytes::new()));
                return open;
            }
        }
    }
}

impl Open {
    /// A segment with `payload`, so many bytes after the next sequence number.
    pub fn segment(&self, offset: u32, payload: Bytes) -> Segment<Bytes> {
        let mut segment = Segment::new(self.tuple, self.next.plus(offset), self.expected, Flags::ACK);
        segment.window = u16::MAX;
        segment.payload = payload;
        segment
    }
}
