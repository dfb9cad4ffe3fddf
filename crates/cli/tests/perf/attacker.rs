//! A host that speaks TCP by hand: it has a TUN device of its own in the server's namespace, and the kernel
//! routes its packets to the engine.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ropewalk_engine::mptcp::add_addr_hmac;
use ropewalk_host::clock::Clock;
use ropewalk_host::netns::Namespace;
use ropewalk_host::perf::protocol::{Hello, Mode};
use ropewalk_host::tun::{Offload, Tun};
use ropewalk_wire::{
    AddAddr, ChecksumMode, Flags, FourTuple, MpCapable, ParseMode, Segment, Seq, encode_into, parse,
};

/// The network behind the attacker's device; the kernel has address 1.
const NETWORKS: [&str; 2] = ["10.99.0.", "fd99::"];
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Attacker {
    tun: Tun,
    dice: u64,
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
        let [v4, v6] = NETWORKS;
        for line in [
            "link set dev attacker up".into(),
            format!("address add {v4}1/24 dev attacker"),
            format!("address add {v6}1/64 dev attacker nodad"),
        ] {
            namespace.check("ip", &line.split_whitespace().collect::<Vec<_>>())?;
        }
        for (name, value) in [
            ("ipv4.ip_forward", "1"),
            ("ipv6.conf.all.forwarding", "1"),
            // Forged segments come with addresses of this machine.
            ("ipv4.conf.all.rp_filter", "0"),
            ("ipv4.conf.attacker.rp_filter", "0"),
            ("ipv4.conf.attacker.accept_local", "1"),
        ] {
            namespace.sysctl(&format!("net.{name}"), value)?;
        }
        Ok(Attacker { tun, dice: 1 })
    }

    /// The next of a fixed sequence of numbers without a pattern (SplitMix64).
    pub fn random(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.dice ^ (self.dice >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An address of the attacker's, of the server's family, from 2 on.
    pub fn address(server: SocketAddr, number: u8, port: u16) -> SocketAddr {
        let network = NETWORKS[usize::from(server.is_ipv6())];
        let text =
            if server.is_ipv6() { format!("{network}{number:x}") } else { format!("{network}{number}") };
        SocketAddr::new(text.parse().expect("an address"), port)
    }

    pub fn send_packet(&self, packet: &[u8]) {
        while let Err(error) = self.tun.send(&[IoSlice::new(packet)]) {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
        }
    }

    pub fn send(&self, segment: &Segment<Bytes>) {
        self.send_packet(&packet(segment));
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

    /// Waits for a segment that `wanted` takes.
    fn wait(&self, wanted: impl Fn(&Segment<Bytes>) -> bool) -> Segment<Bytes> {
        let begin = Clock::start();
        loop {
            assert!(Duration::from_nanos(begin.now().as_nanos()) < PATIENCE, "no answer");
            match self.receive() {
                Some(segment) if wanted(&segment) => return segment,
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// A SYN that offers SACK.
    pub fn syn(source: SocketAddr, server: SocketAddr) -> Segment<Bytes> {
        let mut syn = Segment::new(FourTuple::new(source, server), Seq(1_000), Seq(0), Flags::SYN);
        syn.window = u16::MAX;
        syn.rare_mut().sack_permitted = true;
        syn.rare_mut().mss = Some(1_400);
        syn
    }

    /// Sends the SYN and waits for its answer.
    fn open(&self, syn: &Segment<Bytes>) -> (Open, Segment<Bytes>) {
        self.send(syn);
        let tuple = syn.tuple;
        let answer = self.wait(|answer| answer.tuple.answers(&tuple) && answer.flags.contains(Flags::SYN));
        (Open { tuple, next: Seq(1_001), expected: answer.seq.plus(1) }, answer)
    }

    /// Opens a plain TCP connection from `port`.
    pub fn connect(&self, port: u16, server: SocketAddr) -> Open {
        let (open, _) = self.open(&Attacker::syn(Attacker::address(server, 2, port), server));
        self.send(&open.segment(0, Bytes::new()));
        open
    }

    /// Opens a connection from `port` and asks for data without an end.
    pub fn download(&self, port: u16, server: SocketAddr) -> Open {
        let mut open = self.connect(port, server);
        let hello = Hello {
            mode: Mode::Down,
            flow: 0,
            flows: 1,
            milliseconds: 20_000,
            bytes: 0,
            session: u64::from(port),
            echo: 0,
            scheduler: String::new(),
            congestion: String::new(),
        };
        let hello = Bytes::from(hello.encode());
        self.send(&open.segment(0, hello.clone()));
        open.next = open.next.plus(hello.len() as u32);
        open
    }

    /// Opens a Multipath TCP connection; also gives the keys, the attacker's and the server's.
    pub fn connect_multipath(&self, port: u16, server: SocketAddr) -> (Open, [u64; 2]) {
        const KEY: u64 = 0x0123_4567_89ab_cdef;
        let mut syn = Attacker::syn(Attacker::address(server, 2, port), server);
        let offer = MpCapable { version: 1, hmac_sha256: true, ..MpCapable::default() };
        syn.rare_mut().mp_capable = Some(offer);
        let (open, answer) = self.open(&syn);
        let theirs = answer.rare.and_then(|rare| rare.mp_capable?.sender_key).expect("Multipath TCP");
        let mut third = open.segment(0, Bytes::new());
        third.rare_mut().mp_capable =
            Some(MpCapable { sender_key: Some(KEY), receiver_key: Some(theirs), ..offer });
        self.send(&third);
        (open, [KEY, theirs])
    }
}

pub fn packet(segment: &Segment<Bytes>) -> BytesMut {
    let mut packet = BytesMut::new();
    encode_into(segment, ChecksumMode::Full, &mut packet).expect("a packet");
    packet
}

impl Open {
    /// A segment with `payload`, so many bytes after the next sequence number.
    pub fn segment(&self, offset: u32, payload: Bytes) -> Segment<Bytes> {
        let mut segment = Segment::new(self.tuple, self.next.plus(offset), self.expected, Flags::ACK);
        segment.window = u16::MAX;
        segment.payload = payload;
        segment
    }

    /// An announcement of an address, with its HMAC.
    pub fn announcement(&self, keys: [u64; 2], id: u8, address: IpAddr) -> Segment<Bytes> {
        let hmac = add_addr_hmac(keys[0], keys[1], id, address, None);
        let mut segment = self.segment(0, Bytes::new());
        segment.rare_mut().add_addr =
            Some(AddAddr { echo: false, address_id: id, address, port: None, hmac: Some(hmac) });
        segment
    }
}
