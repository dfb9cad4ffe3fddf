//! A link: an uplink of the proxy, with what is known of it.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use ropewalk_engine::PathId;
use ropewalk_engine::config::LocalEndpoint;
use ropewalk_tokio::{Offload, PacketDevice, Pool, StreamInfo};
use ropewalk_wire::virtio::VirtioNetHeader;
use serde::Serialize;
use tokio::time::Instant;

use super::link_addresses::{engine_v4, engine_v6};
use super::link_settings::{LinkSettings, Rates};
use super::reach::Reach;

/// A link is silent after so long, and so often it is probed then.
pub(super) const SILENT: Duration = Duration::from_millis(200);
/// Time between probes of a dead link.
pub(super) const DEAD: Duration = Duration::from_secs(1);

/// Whether a link is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// It carries connections.
    Up,
    /// The interface is absent, down, or has no address or route.
    NoRoute,
    /// It answers no probe.
    Dead,
    /// The same, and nothing has ever been received over it.
    Unseen,
    /// A captive portal answers in the place of the Internet.
    Captive,
    /// Its quota is used up.
    QuotaSpent,
}

impl std::fmt::Display for LinkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LinkState::Up => "up",
            LinkState::NoRoute => "without a route",
            LinkState::Dead => "dead",
            LinkState::Unseen => "not yet seen working",
            LinkState::Captive => "behind a captive portal",
            LinkState::QuotaSpent => "over its quota",
        })
    }
}

/// What passed a link, and when something was received last. Times are nanoseconds since the proxy began.
#[derive(Debug)]
pub struct Counters {
    start: Instant,
    /// Bytes of IP packets that were sent.
    pub sent: AtomicU64,
    /// Bytes of IP packets that were received.
    pub received: AtomicU64,
    last_received: AtomicU64,
    last_data: AtomicU64,
    /// When data was sent first since something was received; 0: since then none was.
    unanswered: AtomicU64,
    /// Time between two packets that counts as a gap, and the sum of those gaps.
    long_gap: AtomicU64,
    gaps: AtomicU64,
}

/// The MTU of a link that has no interface yet.
const DEFAULT_MTU: u32 = 1500;
/// How long a path MTU holds that was found smaller than the interface's.
const PATH_MTU_AGE: Duration = Duration::from_secs(600);
/// Packets beyond this length carry data; ACKs and handshakes are shorter.
const DATA: u64 = 160;

impl Counters {
    fn new(start: Instant) -> Counters {
        let zero = AtomicU64::default;
        Counters {
            start,
            sent: zero(),
            received: zero(),
            last_received: zero(),
            last_data: zero(),
            unanswered: zero(),
            long_gap: AtomicU64::new(u64::MAX),
            gaps: zero(),
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn since(&self, at: &AtomicU64) -> Duration {
        Duration::from_nanos(self.now().saturating_sub(at.load(Ordering::Relaxed)))
    }

    /// How long ago something was received last; `None`: nothing was.
    pub fn received_ago(&self) -> Option<Duration> {
        (self.last_received.load(Ordering::Relaxed) != 0).then(|| self.silence())
    }

    /// How long nothing was received.
    pub fn silence(&self) -> Duration {
        self.since(&self.last_received)
    }

    /// How long no data was received.
    pub fn since_data(&self) -> Duration {
        self.since(&self.last_data)
    }

    /// How long data has had no answer of any kind, if there is such data.
    pub fn unanswered_data(&self) -> Option<Duration> {
        (self.unanswered.load(Ordering::Relaxed) != 0).then(|| self.since(&self.unanswered))
    }

    fn on_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
        if bytes > DATA && self.unanswered.load(Ordering::Relaxed) == 0 {
            self.unanswered.store(self.now().max(1), Ordering::Relaxed);
        }
    }

    /// What was carried beside the engine, bytes of IP packets.
    pub(crate) fn count_datagrams(&self, sent: u64, received: u64) {
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.received.fetch_add(received, Ordering::Relaxed);
    }

    pub(super) fn count_received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
        let now = self.now();
        let gap = now.saturating_sub(self.last_received.swap(now, Ordering::Relaxed));
        if gap > self.long_gap.load(Ordering::Relaxed) {
            self.gaps.fetch_add(gap, Ordering::Relaxed);
        }
        self.unanswered.store(0, Ordering::Relaxed);
        if bytes > DATA {
            self.last_data.store(now, Ordering::Relaxed);
        }
    }

    /// How long nothing was received in all, in gaps longer than was last said, and says another length.
    pub(super) fn take_gaps(&self, long_gap: Duration) -> Duration {
        self.long_gap.store(long_gap.as_nanos() as u64, Ordering::Relaxed);
        Duration::from_nanos(self.gaps.swap(0, Ordering::Relaxed))
    }

    /// Bytes of IP packets that were sent and received.
    pub fn bytes(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }

    /// Bytes both ways.
    pub fn total(&self) -> u64 {
        let (sent, received) = self.bytes();
        sent + received
    }
}

/// A device whose packets are counted.
pub(super) struct CountedDevice<D> {
    pub device: D,
    pub counters: Arc<Counters>,
}

/// The bytes of IP packets that a frame of a device is on the wire: each segment of a super-packet has
/// headers of its own there. `read` gives a byte of it.
fn on_wire(offload: Offload, len: usize, read: impl Fn(usize) -> Option<u8>) -> u64 {
    if offload == Offload::None {
        return len as u64;
    }
    let mut head = [0; VirtioNetHeader::LEN];
    for (at, byte) in head.iter_mut().enumerate() {
        *byte = read(at).unwrap_or_default();
    }
    let packet = len.saturating_sub(VirtioNetHeader::LEN);
    let VirtioNetHeader { gso_type, gso_size, csum_start, .. } =
        VirtioNetHeader::parse(&head).unwrap_or_default();
    if gso_type == VirtioNetHeader::GSO_NONE || gso_size == 0 {
        return packet as u64;
    }
    // What is checksummed is TCP's header and data; the header's length is in its thirteenth byte.
    let tcp = usize::from(csum_start);
    let words = read(VirtioNetHeader::LEN + tcp + 12).unwrap_or_default() >> 4;
    let headers = tcp + 4 * usize::from(words);
    let segments = packet.saturating_sub(headers).div_ceil(gso_size.into());
    (packet + segments.saturating_sub(1) * headers) as u64
}

impl<D: PacketDevice> PacketDevice for CountedDevice<D> {
    fn offload(&self) -> Offload {
        self.device.offload()
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, pool: &mut Pool) -> Poll<io::Result<Bytes>> {
        let packet = ready!(self.device.poll_receive(cx, pool))?;
        let bytes = on_wire(self.offload(), packet.len(), |at| packet.get(at).copied());
        self.counters.count_received(bytes);
        Poll::Ready(Ok(packet))
    }

    fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let read = |mut at: usize| {
            pieces.iter().find_map(|piece| {
                let byte = piece.get(at).copied();
                at = at.saturating_sub(piece.len());
                byte
            })
        };
        let len = pieces.iter().map(|piece| piece.len()).sum();
        self.counters.on_sent(on_wire(self.offload(), len, read));
        self.device.send(pieces)
    }
}

/// What is known of a link.
#[derive(Clone, Copy, Debug)]
pub struct Knowledge {
    /// Its routes.
    pub reach: Reach,
    /// How often its address has changed, in IPv4 and IPv6.
    pub address_changes: [u32; 2],
    /// It answered the last probes.
    pub alive: bool,
    /// Something was received over it since it has its routes.
    pub seen: bool,
    /// Whether a captive portal answered in place of the page of `--captive-check`.
    pub captive: bool,
    /// Whether a `--captive-check` has ended: until one does the link isn't used.
    pub checked: bool,
    /// No link passes the check: it isn't believed.
    pub doubted: bool,
    /// Its quota is used up.
    pub spent: bool,
    /// The largest IP packet that gets through, bytes, and when that was found: smaller than the interface's.
    pub path_mtu: Option<(u32, Instant)>,
    /// Smoothed round-trip time of probes; before the first answer that of a connection.
    pub rtt: Option<Duration>,
    /// Share of probes without an answer, smoothed.
    pub loss: f64,
    /// What it carried in its quota's period, bytes.
    pub carried: u64,
    /// What it carried to the clients in the last second, bits per second.
    pub rate_down: u64,
    /// What it carried from the clients in the last second, bits per second.
    pub rate_up: u64,
    /// Queues grew before it, and it hasn't had room since.
    pub full: bool,
}

/// The link of a number, if it is still there.
pub fn find(links: &[Arc<Link>], index: usize) -> Option<&Arc<Link>> {
    links.iter().find(|link| link.index == index)
}

/// An uplink.
#[derive(Debug)]
pub struct Link {
    /// The number of its device, and of its path in the engine. The links' order is the configuration's.
    pub index: usize,
    /// Its name: its network interface's, if no other is given.
    pub name: String,
    settings: Mutex<Arc<LinkSettings>>,
    /// What passed it.
    pub counters: Arc<Counters>,
    known: Mutex<Knowledge>,
    /// The last destination that answered over it.
    answered: Mutex<Option<SocketAddr>>,
}

impl Link {
    pub(super) fn new(index: usize, settings: LinkSettings, start: Instant, captive: bool) -> Link {
        let known = Knowledge {
            reach: Reach::default(),
            address_changes: [0; 2],
            alive: true,
            seen: false,
            captive,
            checked: false,
            doubted: false,
            spent: false,
            path_mtu: None,
            rtt: None,
            loss: 0.0,
            carried: 0,
            rate_down: 0,
            rate_up: 0,
            full: false,
        };
        Link {
            index,
            name: settings.name().to_string(),
            settings: Mutex::new(Arc::new(settings)),
            counters: Arc::new(Counters::new(start)),
            known: Mutex::new(known),
            answered: Mutex::default(),
        }
    }

    /// What was asked for.
    pub fn settings(&self) -> Arc<LinkSettings> {
        Arc::clone(&self.settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_settings(&self, settings: LinkSettings) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// Its path in the engine.
    pub fn path(&self) -> PathId {
        PathId(self.index as u16)
    }

    /// The engine's address on it.
    pub fn address(&self, v6: bool) -> IpAddr {
        if v6 { engine_v6(self.index).into() } else { engine_v4(self.index).into() }
    }

    /// What connections open subflows from. `backup`: they are backups.
    pub(super) fn endpoint(&self, v6: bool, backup: bool) -> LocalEndpoint {
        LocalEndpoint {
            address: self.address(v6),
            port: None,
            path: self.path(),
            id: self.index as u8 + 1,
            signal: false,
            subflow: true,
            backup,
        }
    }

    /// What is known of it.
    pub fn known(&self) -> Knowledge {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last destination that answered over this link. A link that works needn't reach every destination.
    pub(super) fn answered(&self) -> Option<SocketAddr> {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note_answer(&self, destination: SocketAddr, stream: Option<&StreamInfo>) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(destination);
        let own = stream.iter().flat_map(|info| &info.subflows).filter(|one| one.path == self.path());
        if let Some(rtt) = own.map(|one| one.tcp.rtt.min).filter(|rtt| !rtt.is_zero()).min() {
            self.learn(|known| known.rtt = known.rtt.or(Some(rtt.into())));
        }
    }

    /// The largest IP packet that is sent on it, and that far ends are to send, bytes. What was found of the
    /// path holds for ten minutes (RFC 8201, section 5.3).
    pub fn mtu(&self) -> u32 {
        let known = self.known();
        let found = known.path_mtu.filter(|(_, at)| at.elapsed() < PATH_MTU_AGE).map(|(mtu, _)| mtu);
        let interface = if known.reach.mtu == 0 { DEFAULT_MTU } else { known.reach.mtu };
        found.map_or(interface, |mtu| mtu.min(interface))
    }

    /// A subflow has found the path MTU.
    pub(super) fn note_path_mtu(&self, mtu: u32) {
        // The new ones are opened with what was found, so this is news.
        if mtu < self.mtu() {
            self.learn(|known| known.path_mtu = Some((mtu, Instant::now())));
            tracing::warn!(
                link = self.name,
                bytes = mtu,
                "larger packets don't get through: it carries small packets only"
            );
        }
    }

    pub(super) fn learn(&self, change: impl FnOnce(&mut Knowledge)) {
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether it is used.
    pub fn state(&self) -> LinkState {
        let known = self.known();
        if !known.reach.any() {
            LinkState::NoRoute
        } else if !known.alive {
            if known.seen { LinkState::Dead } else { LinkState::Unseen }
        } else if known.captive && !known.doubted {
            LinkState::Captive
        } else if known.spent && self.settings().throttle.is_none() {
            LinkState::QuotaSpent
        } else {
            LinkState::Up
        }
    }

    /// Whether it carries what its `rate` allows, or nearly so, or what it can.
    pub fn is_full(&self) -> bool {
        let known = self.known();
        if known.full {
            return true;
        }
        let is_at = |carried: u64, rate: u64| carried >= rate / 10 * 9;
        let rate = self.rate();
        rate.is_some_and(|rate| is_at(known.rate_down, rate.down) || is_at(known.rate_up, rate.up))
    }

    /// Whether it goes on beyond its quota, at a lower rate.
    fn is_throttled(&self) -> bool {
        self.known().spent && self.settings().throttle.is_some()
    }

    /// Most that it carries now.
    pub fn rate(&self) -> Option<Rates> {
        self.rate_by(&self.settings())
    }

    /// The same by other settings.
    pub fn rate_by(&self, settings: &LinkSettings) -> Option<Rates> {
        settings.throttle.filter(|_| self.known().spent).or(settings.rate)
    }

    /// Whether it is used only while no other works, as far as its settings say.
    pub fn stands_by(&self) -> bool {
        self.settings().backup || self.is_throttled()
    }

    /// Whether it has a route, in this family.
    pub fn has_route(&self, v6: bool) -> bool {
        let reach = self.known().reach;
        if v6 { reach.v6.is_some() } else { reach.v4.is_some() }
    }

    /// Whether it is used, in this family.
    pub fn is_usable(&self, v6: bool) -> bool {
        self.has_route(v6) && self.state() == LinkState::Up
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_os::tun::VNET_HEADER;

    use super::*;

    /// A device that hands out one frame and takes any.
    struct Frames(Offload, Bytes);

    impl PacketDevice for Frames {
        fn offload(&self) -> Offload {
            self.0
        }

        fn poll_receive(&mut self, _: &mut Context<'_>, _: &mut Pool) -> Poll<io::Result<Bytes>> {
            Poll::Ready(Ok(self.1.clone()))
        }

        fn send(&mut self, _: &[IoSlice<'_>]) -> io::Result<()> {
            Ok(())
        }
    }

    /// A frame with IP and TCP headers of this length and so many bytes of data, `gso_size` in a segment.
    fn frame((ip, tcp): (usize, usize), data: usize, gso_size: u16) -> Bytes {
        let types = [VirtioNetHeader::GSO_TCPV4, VirtioNetHeader::GSO_TCPV6];
        let vnet = VirtioNetHeader {
            flags: VirtioNetHeader::NEEDS_CSUM,
            gso_type: if gso_size == 0 { VirtioNetHeader::GSO_NONE } else { types[usize::from(ip == 40)] },
            hdr_len: 0,
            gso_size,
            csum_start: ip as u16,
            csum_offset: 16,
        };
        let mut frame = vnet.encode().to_vec();
        frame.resize(VNET_HEADER + ip + tcp + data, 0);
        frame[VNET_HEADER] = if ip == 40 { 0x60 } else { 0x45 };
        frame[VNET_HEADER + ip + 12] = (tcp as u8 / 4) << 4;
        frame.into()
    }

    /// What a device's counters say of a frame: sent in pieces that are cut there, and received.
    fn counted(offload: Offload, frame: &Bytes, cut: usize) -> (u64, u64) {
        let counters = Arc::new(Counters::new(Instant::now()));
        let mut device =
            CountedDevice { device: Frames(offload, frame.clone()), counters: Arc::clone(&counters) };
        let (first, rest) = frame.split_at(cut);
        device.send(&[IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(rest)]).unwrap();
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(device.poll_receive(&mut context, &mut Pool::new(1000)).is_ready());
        counters.bytes()
    }

    #[tokio::test]
    async fn each_segment_of_a_super_packet_is_counted_with_its_headers() {
        let cases = [
            ((20, 32), 0, 0, 52),
            ((20, 32), 1000, 0, 1052),
            // One segment, two, and as many as fit.
            ((20, 32), 1448, 1448, 1500),
            ((20, 32), 1449, 1448, 1501 + 52),
            ((20, 40), 64_000, 1440, 64_000 + 45 * 60),
            ((40, 20), 14_400, 1440, 10 * 1500),
            ((40, 32), 2 * 1428, 1428, 2 * 1500),
        ];
        for (headers, data, gso_size, expected) in cases {
            let frame = frame(headers, data, gso_size);
            for cut in [0, 7, VNET_HEADER, VNET_HEADER + headers.0 + headers.1, frame.len()] {
                let counted = counted(Offload::Segmentation, &frame, cut);
                assert_eq!(counted, (expected, expected), "{headers:?} {data} {gso_size}, cut at {cut}");
            }
        }
        // Without offload a packet is what it is; and what is cut short is no reason to panic.
        let packet = Bytes::from_static(&[0x45; 60]);
        assert_eq!(counted(Offload::None, &packet, 20), (60, 60));
        let whole = frame((20, 32), 5000, 1448);
        for len in 0..VNET_HEADER + 52 {
            counted(Offload::Segmentation, &whole.slice(..len), len / 2);
        }
    }
}
