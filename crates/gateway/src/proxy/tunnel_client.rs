//! The proxy's end: a QUIC connection over each link, from the address by which TCP's subflows leave by it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quinn::{Connection, Endpoint, SendStream};
use ropewalk_datagrams::packet::{FlowKey, Summary};
use ropewalk_os::entropy::random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::client::Client;
use super::lanes::Lanes;
use super::link::{Knowledge, Link};
use super::link_addresses::kernel_address;
use super::reach::Reach;
use super::remote::{Gateway, Wish, in_order};
use super::serve::Server;
use super::settings::Settings;
use crate::carry::Carried;
use crate::tls::{Connector, NAME};
use crate::tunnel::drive::{Event, Gate, MOST_EVENTS, connected, drive, read};
use crate::tunnel::word::{Use, Word};
use crate::tunnel::{Answer, Device, Inner, MOST_LINKS, STREAM, carrier, stream};

/// How long a gateway may take to be connected.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long until a link is tried again, and how often it is looked whether links have come or gone.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause doubles with each try that fails, so often: a network that lets no UDP through may be metered.
const DOUBLINGS: u32 = 6;
/// The same for streams, which any network should let through.
const STREAMS_DOUBLINGS: u32 = 2;
/// How long a try goes on that nobody answers, and how many datagrams it sends: the first, two after 0.3, 0.9
/// and 2.1 seconds each (RFC 9002, section 6.2.4), and one that ends it. Seen in a capture.
const UNANSWERED: (Duration, u64) = (Duration::from_secs(3), 8);
/// The same once a few tries were in vain, and how many.
const STILL_UNANSWERED: (Duration, u64) = (Duration::from_secs(2), 6);
/// Such a datagram (RFC 9000, section 14.1), and its headers over IPv4 and over IPv6, bytes.
const INITIAL: u64 = 1200;
const HEADERS: (u64, u64) = (28, 48);
const FEW: u32 = 4;
/// The share of a link's rate that datagrams may take: headers have the rest.
const BESIDE_HEADERS: f64 = 0.92;
/// How often it is looked what a link has carried, and how it is to be used.
const WATCH: Duration = Duration::from_millis(250);
/// How long the tunnel may be without any link before packets follow the kernel's routes again.
const LOST: Duration = Duration::from_secs(10);
/// How long nothing may come by UDP until a stream is opened, and how long something has to until it is
/// closed.
const CUT_OFF: Duration = Duration::from_millis(1500);
const WORKS: Duration = Duration::from_secs(5);
/// How often it is looked whether something comes.
const LOOK: Duration = Duration::from_millis(100);
/// How often the log tells why a link isn't connected.
const TELL_EVERY: u32 = 60;

/// What the links' tasks share.
#[derive(Debug)]
struct Shared {
    server: Arc<Server>,
    session: [u8; 16],
    events: mpsc::Sender<Event>,
    /// The links that are connected, and the gateway that they are connected to.
    connected: watch::Sender<BTreeMap<usize, (String, Inner)>>,
    /// The rules.
    lanes: watch::Sender<Lanes>,
    /// How many streams have carried datagrams so far.
    streams: AtomicU64,
}

impl Shared {
    /// How a link is used; `None`: not at all.
    fn uses(&self, link: &Link) -> Option<Vec<Use>> {
        self.lanes.borrow().uses(&self.server.links(), link)
    }

    /// Whether a gateway of this name is configured for the tunnel.
    fn is_listed(&self, gateway: &str) -> bool {
        let settings = self.server.settings();
        settings.gateways.iter().any(|one| one.tls.is_some() && one.target.to_string() == gateway)
    }
}

/// The proxy's end: packets of its own addresses pass, by the rules that its file has.
struct Near {
    inner: watch::Receiver<Option<Inner>>,
    lanes: watch::Receiver<Lanes>,
}

impl Gate for Near {
    fn admits(&mut self, flow: &FlowKey, is_outward: bool) -> bool {
        let inner = *self.inner.borrow();
        inner.is_some_and(|inner| if is_outward { inner.sends(flow) } else { inner.receives(flow) })
    }

    fn lane(&mut self, packet: &Summary) -> Option<usize> {
        Some(self.lanes.borrow().lane(packet))
    }
}

/// Runs the proxy's end. `inner` is told the addresses that the gateway gives it, while there is a tunnel.
pub(super) async fn run(server: Arc<Server>, device: Arc<Device>, inner: watch::Sender<Option<Inner>>) {
    let (events, heard) = mpsc::channel(MOST_EVENTS);
    let mut session = [0; 16];
    session[..8].copy_from_slice(&random().to_be_bytes());
    session[8..].copy_from_slice(&random().to_be_bytes());
    let connected = watch::Sender::new(BTreeMap::new());
    let lanes = watch::Sender::new(Lanes::default());
    let (own, taken) = (Arc::clone(&server), events.clone());
    let streams = AtomicU64::default();
    let shared = Arc::new(Shared { server: own, session, events: taken, connected, lanes, streams });
    let mut tasks = JoinSet::new();
    let gate = Near { inner: inner.subscribe(), lanes: shared.lanes.subscribe() };
    tasks.spawn(drive(heard, Arc::clone(&device), Arc::clone(&server.datagrams), gate));
    tasks.spawn(take_packets(device, events));
    tasks.spawn(tell(shared.connected.subscribe(), inner));
    tasks.spawn(fall_back(Arc::clone(&shared)));
    let mut links: BTreeMap<usize, AbortHandle> = BTreeMap::new();
    loop {
        let lanes = Lanes::of(&server.settings().policies);
        if *shared.lanes.borrow() != lanes {
            if lanes.left_out > 0 {
                tracing::warn!(
                    rules = lanes.left_out,
                    "too many policies: rules that don't hold for datagrams"
                );
            }
            shared.lanes.send_replace(lanes);
        }
        let all = server.links();
        for link in all.iter().filter(|link| link.index < usize::from(MOST_LINKS)) {
            let is_there = links.get(&link.index).is_some_and(|task| !task.is_finished());
            if !is_there {
                links.insert(link.index, tasks.spawn(follow(Arc::clone(&shared), Arc::clone(link))));
            }
        }
        while tasks.try_join_next().is_some() {}
        sleep(PAUSE).await;
    }
}

async fn take_packets(device: Arc<Device>, events: mpsc::Sender<Event>) {
    let mut packets = Vec::new();
    while device.receive(&mut packets, 64).await.is_ok() {
        for packet in packets.drain(..) {
            // What there is no room for is lost.
            let _ = events.try_send(Event::Packet(packet));
        }
    }
}

/// Tells the addresses inside the tunnel, as long as a link is connected.
async fn tell(
    mut connected: watch::Receiver<BTreeMap<usize, (String, Inner)>>,
    inner: watch::Sender<Option<Inner>>,
) {
    loop {
        let now = connected.borrow_and_update().values().next().map(|(_, inner)| *inner);
        if now.is_none() && inner.borrow().is_some() {
            // It may be back in a moment.
            if timeout(LOST, connected.wait_for(|links| !links.is_empty())).await.is_ok() {
                continue;
            }
        }
        inner.send_if_modified(|told| std::mem::replace(told, now) != now);
        if connected.changed().await.is_err() {
            return;
        }
    }
}

/// Keeps a link connected for as long as there is one of its number and name.
async fn follow(shared: Arc<Shared>, link: Arc<Link>) {
    // Tries in vain: all of them, and those since something changed.
    let (mut tries, mut failures) = (0, 0);
    while shared.server.links().iter().any(|known| Arc::ptr_eq(known, &link)) {
        if shared.uses(&link).is_none() {
            sleep(PAUSE).await;
            continue;
        }
        let now = || Outlook::of(&shared, &link);
        let before = now();
        let unanswered = if failures < FEW { UNANSWERED } else { STILL_UNANSWERED };
        match connect(&shared, &link, tries, unanswered).await {
            Ok((Connected { endpoint, connection, words, answer }, gateway)) => {
                failures = 0;
                let since = Instant::now();
                tracing::info!(link = link.name, gateway, "datagrams go over this link");
                let entry = (gateway.clone(), answer.inner);
                shared.connected.send_modify(|all| drop(all.insert(link.index, entry)));
                connected(link.index, &connection, answer.tunnel, &shared.events).await;
                let mut counted = Counted { link: Arc::clone(&link), connection, bytes: [0; 2] };
                carry(&shared, &mut counted, words, &gateway).await;
                // What comes late is carried, too.
                tokio::spawn(async move {
                    let _ = timeout(PATIENCE, endpoint.wait_idle()).await;
                    counted.count();
                });
                shared.connected.send_modify(|all| drop(all.remove(&link.index)));
                tracing::info!(link = link.name, "datagrams go over this link no more");
                if since.elapsed() > PAUSE {
                    // The gateway may be there again.
                    continue;
                }
            }
            Err(error) => {
                if failures % TELL_EVERY == 0 {
                    tracing::warn!(link = link.name, %error, "no datagrams over this link");
                }
                tries += 1;
                let is_in_vain = stays(before, now, PAUSE * 2u32.pow(failures.min(DOUBLINGS))).await;
                failures = if is_in_vain { failures + 1 } else { 0 };
                continue;
            }
        }
        sleep(PAUSE).await;
    }
}

/// What decides whether a try may succeed, as far as it is known: the link's network, whether it answers, how
/// many streams have reached the gateway, and the configuration.
struct Outlook {
    reach: Reach,
    address_changes: [u32; 2],
    works: [bool; 2],
    streams: u64,
    settings: Arc<Settings>,
}

impl Outlook {
    fn of(shared: &Shared, link: &Link) -> Outlook {
        let Knowledge { reach, address_changes, alive, seen, .. } = link.known();
        let (streams, settings) = (shared.streams.load(Ordering::Relaxed), shared.server.settings());
        Outlook { reach, address_changes, works: [alive, seen], streams, settings }
    }
}

impl PartialEq for Outlook {
    fn eq(&self, other: &Outlook) -> bool {
        let of = |one: &Outlook| (one.reach, one.address_changes, one.works, one.streams);
        of(self) == of(other) && Arc::ptr_eq(&self.settings, &other.settings)
    }
}

/// Waits, and returns true; ends soon, and returns false, if something isn't as it was `before`. What changed
/// during a try counts: it may have been too late for that.
async fn stays<T: PartialEq>(before: T, now: impl Fn() -> T, pause: Duration) -> bool {
    let deadline = Instant::now() + pause;
    while Instant::now() < deadline {
        sleep(LOOK).await;
        if now() != before {
            return false;
        }
    }
    true
}

/// A link's connection, whose traffic counts as the link's.
struct Counted {
    link: Arc<Link>,
    connection: Connection,
    /// Bytes of IP packets, sent and received, that are counted already.
    bytes: [u64; 2],
}

impl Counted {
    /// Counts what isn't counted yet.
    fn count(&mut self) {
        let headers = if self.connection.remote_address().is_ipv6() { 48 } else { 28 };
        let stats = self.connection.stats();
        let now = [stats.udp_tx, stats.udp_rx].map(|one| one.bytes + headers * one.datagrams);
        self.link.counters.count_datagrams(now[0] - self.bytes[0], now[1] - self.bytes[1]);
        self.bytes = now;
    }
}

/// Carries until the connection ends, or the link or the gateway isn't wanted any more.
async fn carry(shared: &Shared, counted: &mut Counted, mut words: SendStream, gateway: &str) {
    let (link, connection) = (Arc::clone(&counted.link), counted.connection.clone());
    let reading = read(link.index, connection.clone(), shared.events.clone());
    let watching = async {
        let mut told = [Word::default(), Word::default()];
        while let Some(lanes) = shared.uses(&link).filter(|_| shared.is_listed(gateway)) {
            let rates = link.rate();
            let of = |rate: Option<u64>| {
                let most = rate.map_or(0, |rate| (rate as f64 / 8.0 * BESIDE_HEADERS) as u32);
                Word { most, lanes: lanes.clone() }
            };
            let now = [of(rates.map(|rates| rates.up)), of(rates.map(|rates| rates.down))];
            if now != told {
                // The gateway is told, too: it sends as the proxy does.
                told = now;
                let [word, far] = &told;
                let _ = shared.events.send(Event::Word { link: link.index, word: word.clone() }).await;
                if words.write_all(&far.encode()).await.is_err() {
                    return;
                }
            }
            sleep(WATCH).await;
            counted.count();
        }
    };
    tokio::select! {
        () = reading => {}
        () = watching => {}
    }
    connection.close(0u8.into(), b"");
    let down = Event::Down { link: link.index, connection: connection.stable_id() };
    let _ = shared.events.send(down).await;
}

/// Carries the tunnel's datagrams in a TLS stream while nothing is received by UDP, as where a network blocks
/// it. QUIC connections are tried on all the same.
async fn fall_back(shared: Arc<Shared>) {
    let seen = &shared.server.datagrams;
    let by_udp = || seen.hears().0;
    // Refusals: those in a row at the end of the failures.
    let (mut failures, mut refusals) = (0, 0);
    loop {
        lasts(CUT_OFF, || !by_udp()).await;
        if shared.server.is_draining() {
            return;
        }
        // Whether a gateway was asked that gave no answer, and ended the stream.
        let mut is_refused = false;
        let done = async {
            let (entry, gateway) = shared.server.open_datagrams(Client::nobody(), Wish::Tunnel).await?;
            let flow = &entry.flow;
            let none = || io::Error::new(ErrorKind::NotFound, "no gateway that has a key");
            let mut secure = flow.take_secure().ok_or_else(none)?;
            secure.write_all(&shared.session).await?;
            secure.flush().await?;
            let mut answer = [0; Answer::LEN];
            let read = timeout(PATIENCE, secure.read_exact(&mut answer)).await?;
            is_refused = read.is_err();
            read?;
            let Answer { inner, tunnel } = Answer::decode(answer).ok_or_else(refused)?;
            let gateway = gateway.to_string();
            tracing::warn!(gateway, "nothing comes by UDP: datagrams go by a stream");
            (failures, refusals) = (0, 0);
            shared.streams.fetch_add(1, Ordering::Relaxed);
            shared.connected.send_modify(|all| drop(all.insert(STREAM, (gateway.clone(), inner))));
            let carried = Carried { from_stream: &flow.downloaded, to_stream: &flow.uploaded };
            let done = tokio::select! {
                done = stream::carry(secure, &shared.events, tunnel, carried) => done,
                () = lasts(WORKS, by_udp) => {
                    tracing::info!("datagrams go by UDP again");
                    Ok(())
                }
                () = lasts(LOOK, || shared.server.is_draining() || !shared.is_listed(&gateway)) => Ok(()),
                () = lasts(LOST, || !seen.hears().1) => Err(ErrorKind::TimedOut.into()),
            };
            shared.connected.send_modify(|all| drop(all.remove(&STREAM)));
            flow.stream.reset();
            done
        };
        if let Err(error) = done.await {
            if failures % TELL_EVERY == 0 {
                tracing::warn!(%error, "no datagrams by a stream either");
            }
            // One that refuses isn't asked all the time.
            let is_denied = matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported);
            refusals = if is_refused || is_denied { refusals + 1 } else { 0 };
            let doublings = match refusals {
                0 => failures.min(STREAMS_DOUBLINGS),
                count => (count - 1).min(DOUBLINGS),
            };
            sleep(PAUSE * 2u32.pow(doublings)).await;
            failures += 1;
        }
    }
}

/// Waits until something has been so for a while.
async fn lasts(time: Duration, mut is_so: impl FnMut() -> bool) {
    let mut since = Instant::now();
    while since.elapsed() < time {
        sleep(LOOK).await;
        if !is_so() {
            since = Instant::now();
        }
    }
}

fn refused() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the gateway gives addresses that can't be")
}

/// What a handshake has led to.
struct Connected {
    endpoint: Endpoint,
    connection: Connection,
    words: SendStream,
    answer: Answer,
}

/// Connects to the gateway, and tells its name. `tries`: those that were in vain; `silence`, `sent`: how
/// long a try goes on that isn't answered, and how many datagrams it sends.
async fn connect(
    shared: &Shared,
    link: &Link,
    tries: u32,
    (silence, sent): (Duration, u64),
) -> io::Result<(Connected, String)> {
    let settings = shared.server.settings();
    let none = || io::Error::new(ErrorKind::NotFound, "no gateway that has a key");
    let with_keys = in_order(&settings.gateways).into_iter().filter(|gateway| gateway.tls.is_some());
    // All links lead to the same one.
    let used = shared.connected.borrow().values().next().map(|(name, _)| name.clone());
    let mut gateways =
        with_keys.filter(|one| used.as_ref().is_none_or(|used| *used == one.target.to_string()));
    let gateway = gateways.next().ok_or_else(none)?;
    let Some(tls) = &gateway.tls else { return Err(none()) };
    let address = address_for(&shared.server, link, &gateway, tries).await?;
    let connecting = handshake(shared, link, tls, address, silence);
    match timeout(PATIENCE, connecting).await.map_err(io::Error::from).and_then(|done| done) {
        Ok(connected) => Ok((connected, gateway.target.to_string())),
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            let headers = if address.is_ipv6() { HEADERS.1 } else { HEADERS.0 };
            link.counters.count_datagrams(sent * (INITIAL + headers), 0);
            Err(io::Error::new(ErrorKind::TimedOut, format!("{address} doesn't answer by UDP")))
        }
        Err(error) => Err(error),
    }
}

/// An address of the gateway's that this link has a route to: another one after each try in vain, else the
/// one that worked last.
async fn address_for(server: &Server, link: &Link, gateway: &Gateway, tries: u32) -> io::Result<SocketAddr> {
    let mut all = server.addresses_of(gateway).await?;
    all.retain(|address| link.has_route(address.is_ipv6()));
    let found = all.get(tries as usize % all.len().max(1)).copied();
    found.ok_or_else(|| io::Error::new(ErrorKind::NetworkUnreachable, "no route to the gateway"))
}

/// `silence`: how long nothing may come of the gateway.
async fn handshake(
    shared: &Shared,
    link: &Link,
    tls: &Connector,
    gateway: SocketAddr,
    silence: Duration,
) -> io::Result<Connected> {
    let local = SocketAddr::new(kernel_address(link.index, gateway.is_ipv6()), 0);
    let endpoint = carrier::endpoint(local, None)?;
    let mut connecting =
        endpoint.connect_with(carrier::client(tls)?, gateway, NAME).map_err(io::Error::other)?;
    timeout(silence, connecting.handshake_data()).await??;
    let connection = connecting.await?;
    let (mut words, mut receive) = connection.open_bi().await?;
    words.write_all(&shared.session).await?;
    words.write_all(&[link.index as u8]).await?;
    let mut answer = [0; Answer::LEN];
    receive.read_exact(&mut answer).await.map_err(io::Error::other)?;
    Ok(Connected { endpoint, connection, words, answer: Answer::decode(answer).ok_or_else(refused)? })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_ends_with_what_has_changed_since_before_the_try() {
        let (state, begin) = (AtomicU32::new(0), Instant::now());
        let (now, pause) = (|| state.load(Ordering::Relaxed), PAUSE * 2u32.pow(DOUBLINGS));
        let before = now();
        assert!(stays(before, now, pause).await && begin.elapsed() >= pause);
        // During the try.
        state.store(1, Ordering::Relaxed);
        let begin = Instant::now();
        assert!(!stays(before, now, pause).await && begin.elapsed() <= 2 * LOOK);
        // During the pause.
        let change = async {
            sleep(PAUSE).await;
            state.store(2, Ordering::Relaxed);
        };
        let begin = Instant::now();
        assert!(!tokio::join!(stays(now(), now, pause), change).0 && begin.elapsed() <= PAUSE + 2 * LOOK);
    }
}
