//! The gateway's end: accepts the proxies that it knows, gives each an address inside the tunnel, and lets
//! out what is the proxy's own and goes where the listener's list says.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quinn::{Connection, Endpoint, Incoming, RecvStream};
use ropewalk_datagrams::packet::{FlowKey, Summary, inspect, protocol};
use ropewalk_os::entropy::random;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::carry::Carried;
use crate::convert::{Current, Destinations};
use crate::tls::keys::Identity;
use crate::tls::{Acceptor, Secure};
use crate::tunnel::drive::{self, Event, MOST_EVENTS, connected, drive, read};
use crate::tunnel::ports::{Forward, PortGrant, Ports};
use crate::tunnel::thread::Thread;
use crate::tunnel::word::Word;
use crate::tunnel::{Answer, Device, FAR_DEVICE, Inner, MOST_LINKS, Seen, carrier, stream};
use crate::udp::relay::Peers;

/// How long a proxy may take for its handshake and to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most connections of a listener, and from how many on whoever comes has to show that its address is its
/// own.
const MOST_CONNECTIONS: usize = 1024;
const RETRY_FROM: usize = 64;
/// Most connections of a proxy at a time: one for each link, and those that replace them.
const MOST_OF_PROXY: usize = 2 * MOST_LINKS as usize;
/// Most proxies: the addresses inside the tunnel, but for the gateway's own, the network's and the one for
/// all.
const MOST_PROXIES: u16 = 65_533;
/// How long proxies are told that a listener closes.
const CLOSING: Duration = Duration::from_secs(1);
/// Why a proxy that has shown who it is gets no tunnel.
const NOT_NOW: &str = "too many connections of this proxy, or it isn't known any more";
/// How often this host's addresses are asked for.
const OWN_AGE: Duration = Duration::from_secs(5);

/// A proxy's tunnel.
#[derive(Debug)]
struct Session {
    /// The proxy's number for this run.
    id: [u8; 16],
    /// What it is known by to the proxy.
    tunnel: u64,
    /// By which listener it began, and whose it is.
    of: (SocketAddr, Identity),
    events: mpsc::Sender<Event>,
    task: AbortHandle,
    connections: Arc<()>,
    seen: Arc<Seen>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All proxies' tunnels.
#[derive(Debug, Default)]
struct Known {
    /// Who may have one, by which listeners.
    admitted: BTreeSet<(SocketAddr, Identity)>,
    /// The proxies' numbers; they keep them.
    numbers: BTreeMap<Identity, u16>,
    sessions: BTreeMap<u16, Session>,
}

/// A listener's part of it.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The listener's first address.
    pub listen: SocketAddr,
    /// All of them.
    pub sockets: Vec<SocketAddr>,
    /// Who may use it.
    pub acceptor: Acceptor,
    /// Where they may send.
    pub list: Current,
}

/// An address at which QUIC listens.
#[derive(Debug)]
struct Open {
    /// Its listener's first one.
    listen: SocketAddr,
    endpoint: Endpoint,
    task: AbortHandle,
}

/// What all listeners share: the device, and the tunnels.
#[derive(Debug)]
pub struct Far {
    /// The threads that its tasks run on.
    thread: Thread,
    device: Arc<Device>,
    known: Mutex<Known>,
    open: tokio::sync::Mutex<BTreeMap<SocketAddr, Open>>,
    given: Arc<Mutex<PortsGiven>>,
}

/// The ports that lead to proxies, by their numbers.
type PortsGiven = BTreeMap<u16, Vec<Ports>>;

/// Gives a proxy a number, which it keeps: by its certificate, so that it has the same one after a restart,
/// and at another gateway, whoever came first. Flows behind it go on then.
fn number(numbers: &mut BTreeMap<Identity, u16>, identity: Identity) -> u16 {
    if let Some(known) = numbers.get(&identity) {
        return *known;
    }
    let [high, low, ..] = identity;
    let first = u16::from_be_bytes([high, low]) % MOST_PROXIES;
    let mut others = (0..MOST_PROXIES).map(|more| 1 + (first + more) % MOST_PROXIES);
    let free = others.find(|one| numbers.values().all(|taken| taken != one)).unwrap_or(1);
    *numbers.entry(identity).or_insert(free)
}

/// Where ports lead to, by the proxies' numbers: those that have none get one.
pub(super) fn forwards(given: &[PortGrant], numbers: &mut BTreeMap<Identity, u16>) -> Vec<Forward> {
    let mut forwards = Vec::new();
    for one in given {
        let inner = Inner::of(number(numbers, one.proxy));
        for address in &one.addresses {
            let to = if address.is_ipv6() { inner.v6.into() } else { inner.v4.into() };
            forwards.extend(one.ports.iter().map(|ports| Forward { address: *address, ports: *ports, to }));
        }
    }
    forwards
}

/// An endpoint at an address, which one that was closed may hold for a moment.
async fn bind(handle: &Handle, socket: SocketAddr, acceptor: &Acceptor) -> io::Result<quinn::Endpoint> {
    let begin = Instant::now();
    loop {
        let made = {
            let _entered = handle.enter();
            carrier::endpoint(socket, Some(acceptor))
        };
        match made {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < CLOSING => {
                sleep(CLOSING / 20).await;
            }
            done => return done,
        }
    }
}

impl Far {
    /// Makes the device. `apart`: it is served by a thread of its own.
    ///
    /// # Errors
    /// If there can't be one.
    pub fn new(apart: bool) -> io::Result<Far> {
        let thread = Thread::start(apart)?;
        let device = {
            let _entered = thread.handle().enter();
            Arc::new(Device::create(FAR_DEVICE)?)
        };
        Ok(Far { thread, device, known: Mutex::default(), open: Default::default(), given: Arc::default() })
    }

    /// The threads that its tasks run on.
    pub fn handle(&self) -> &Handle {
        self.thread.handle()
    }

    /// Gives proxies these ports, and no others. Returns where they lead to.
    pub fn give(&self, given: &[PortGrant]) -> Vec<Forward> {
        let mut known = self.known();
        let forwards = forwards(given, &mut known.numbers);
        let mut ports = PortsGiven::new();
        for one in given {
            ports.entry(number(&mut known.numbers, one.proxy)).or_default().extend(&one.ports);
        }
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = ports;
        forwards
    }

    /// Serves these listeners, and no others. Connections of proxies that go on to be known aren't touched.
    pub(super) async fn serve(self: &Arc<Far>, parts: &[Part]) {
        let mut open = self.open.lock().await;
        let sockets = || parts.iter().flat_map(|part| part.sockets.iter().map(move |socket| (*socket, part)));
        let mut gone = Vec::new();
        open.retain(|known, one| {
            let stays = sockets().any(|(socket, part)| socket == *known && part.listen == one.listen);
            if !stays {
                one.endpoint.close(0u8.into(), b"");
                one.task.abort();
                gone.push(one.endpoint.clone());
            }
            stays
        });
        // Others may listen there then.
        for endpoint in gone {
            let _ = timeout(CLOSING, endpoint.wait_idle()).await;
        }
        let of = |part: &Part| part.acceptor.proxies().iter().map(|one| (part.listen, *one)).collect();
        {
            let mut known = self.known();
            known.admitted = parts.iter().flat_map(|part| -> Vec<_> { of(part) }).collect();
            let Known { admitted, sessions, .. } = &mut *known;
            sessions.retain(|_, session| admitted.contains(&session.of));
        }
        for (socket, part) in sockets() {
            let done = match open.get(&socket) {
                Some(known) => carrier::server_config(&part.acceptor)
                    .map(|config| known.endpoint.set_server_config(Some(config))),
                None => bind(self.handle(), socket, &part.acceptor).await.map(|endpoint| {
                    let (far, listen) = (Arc::clone(self), part.listen);
                    let accepting = accept(far, endpoint.clone(), listen, part.list.clone());
                    let task = self.handle().spawn(accepting).abort_handle();
                    open.insert(socket, Open { listen, endpoint, task });
                }),
            };
            // TCP goes on; proxies carry what they can by streams.
            if let Err(error) = done {
                tracing::warn!(target: "ropewalk::gateway", %socket, %error, "no datagrams by QUIC");
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is told of each proxy's tunnel.
    pub fn told(&self) -> Vec<Value> {
        let known = self.known();
        let one = |(number, session): (&u16, &Session)| {
            let told = session.seen.told(|link| Some(link.to_string()))?;
            Some(json!({ "address": Inner::of(*number).v4, "tunnel": told }))
        };
        known.sessions.iter().filter_map(one).collect()
    }

    /// Hands packets of the device to the tunnels that they are for, until the future is dropped.
    pub async fn take_packets(self: Arc<Far>) {
        let mut packets = Vec::new();
        loop {
            if let Err(error) = self.device.receive(&mut packets, 64).await {
                tracing::warn!(target: "ropewalk::gateway", %error, "no datagrams any more");
                return;
            }
            let known = self.known();
            for packet in packets.drain(..) {
                let Some(summary) = inspect(&packet) else { continue };
                let Some(number) = number_of(summary.flow.destination) else { continue };
                if let Some(session) = known.sessions.get(&number) {
                    // What there is no room for is lost.
                    let _ = session.events.try_send(Event::Packet(packet));
                }
            }
        }
    }

    /// The tunnel of a proxy: that of an earlier run ends.
    fn session(
        &self,
        of: (SocketAddr, Identity),
        id: [u8; 16],
        list: &Current,
    ) -> Option<(mpsc::Sender<Event>, Answer, Arc<()>)> {
        let mut known = self.known();
        if !known.admitted.contains(&of) {
            return None;
        }
        let number = number(&mut known.numbers, of.1);
        let inner = Inner::of(number);
        if known.sessions.get(&number).is_none_or(|session| session.id != id || session.task.is_finished()) {
            let (events, heard) = mpsc::channel(MOST_EVENTS);
            let seen = Arc::<Seen>::default();
            let gate = Gate::new(number, list.clone(), Arc::clone(&self.given));
            let driving = drive(heard, Arc::clone(&self.device), Arc::clone(&seen), gate);
            let task = self.handle().spawn(driving).abort_handle();
            let connections = Arc::default();
            let tunnel = random();
            known.sessions.insert(number, Session { id, tunnel, of, events, task, connections, seen });
        }
        let session = known.sessions.get(&number)?;
        let is_full = Arc::strong_count(&session.connections) > MOST_OF_PROXY;
        let answer = Answer { inner, tunnel: session.tunnel };
        (!is_full).then(|| (session.events.clone(), answer, Arc::clone(&session.connections)))
    }
}

/// The number of the proxy that has an address inside the tunnel.
fn number_of(address: IpAddr) -> Option<u16> {
    let number = match address {
        IpAddr::V4(v4) => u16::from_be_bytes([v4.octets()[2], v4.octets()[3]]),
        IpAddr::V6(v6) => v6.segments()[7],
    };
    let number = number.wrapping_sub(1);
    Inner::of(number).has(address).then_some(number)
}

/// What a proxy may send, and be sent.
struct Gate {
    number: u16,
    inner: Inner,
    list: Current,
    given: Arc<Mutex<PortsGiven>>,
    /// Who has sent by UDP to a port that leads to the proxy.
    peers: Peers,
    own: Vec<IpAddr>,
    asked: Option<Instant>,
}

impl Gate {
    fn new(number: u16, list: Current, given: Arc<Mutex<PortsGiven>>) -> Gate {
        let (inner, peers) = (Inner::of(number), Peers::default());
        Gate { number, inner, list, given, peers, own: Vec::new(), asked: None }
    }

    fn is_given(&self, protocol: u8, port: u16) -> bool {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.get(&self.number).is_some_and(|all| all.iter().any(|ports| ports.has(protocol, port)))
    }

    /// Notes who asks by UDP at a port that leads to the proxy.
    fn note(&mut self, flow: &FlowKey) {
        if let (protocol::UDP, Some((from, to))) = (flow.protocol, flow.ports)
            && self.is_given(protocol::UDP, to)
        {
            self.peers.sent(SocketAddr::new(flow.source, from), Instant::now());
        }
    }

    /// Whether it is an answer from such a port. Of TCP the kernel lets out what belongs to a connection that
    /// came from outside.
    fn is_answer(&self, flow: &FlowKey) -> bool {
        if self.own.contains(&flow.destination) {
            return false;
        }
        let Some((from, to)) = flow.ports else {
            // A later fragment: the kernel lets nothing out before it has the first one.
            return flow.protocol == protocol::UDP
                && self.peers.has_address(flow.destination, Instant::now());
        };
        if !self.is_given(flow.protocol, from) {
            return false;
        }
        let peer = SocketAddr::new(flow.destination, to);
        flow.protocol == protocol::TCP || self.peers.may_answer(peer, Instant::now())
    }
}

impl drive::Gate for Gate {
    fn admits(&mut self, flow: &FlowKey, is_outward: bool) -> bool {
        if is_outward {
            self.note(flow);
            return self.inner.receives(flow);
        }
        if self.asked.is_none_or(|asked| asked.elapsed() > OWN_AGE) {
            (self.own, self.asked) = (crate::setup::own_addresses(), Some(Instant::now()));
        }
        self.inner.sends(flow) && (allows(&self.list.get(), flow, &self.own) || self.is_answer(flow))
    }

    fn lane(&mut self, _: &Summary) -> Option<usize> {
        None
    }
}

/// Whether a packet may go where it wants. TCP has its own way; what has no ports goes where any port may be
/// reached.
fn allows(list: &Destinations, flow: &FlowKey, own: &[IpAddr]) -> bool {
    match (flow.protocol, flow.ports) {
        (protocol::TCP, _) => false,
        (_, Some((_, port))) => list.allow(SocketAddr::new(flow.destination, port), own),
        _ => list.allow_address(flow.destination, own),
    }
}

/// Accepts proxies, until the endpoint is closed or the future dropped.
async fn accept(far: Arc<Far>, endpoint: Endpoint, listen: SocketAddr, list: Current) {
    let mut tasks = JoinSet::new();
    while let Some(incoming) = endpoint.accept().await {
        while tasks.try_join_next().is_some() {}
        let open = endpoint.open_connections();
        if open >= MOST_CONNECTIONS {
            incoming.refuse();
        } else if open >= RETRY_FROM && incoming.may_retry() && !incoming.remote_address_validated() {
            let _ = incoming.retry();
        } else {
            tasks.spawn(serve(Arc::clone(&far), incoming, listen, list.clone()));
        }
    }
}

/// Serves one connection: one link of a proxy.
async fn serve(far: Arc<Far>, incoming: Incoming, listen: SocketAddr, list: Current) {
    let peer = incoming.remote_address();
    match timeout(PATIENCE, greet(&far, incoming, listen, &list)).await {
        Ok(Ok((link, connection, words, events, _place))) => {
            tracing::info!(target: "ropewalk::gateway", %peer, link, "datagrams");
            // A proxy is one for as long as its tunnel: a new one has a new session.
            connected(link, &connection, 0, &events).await;
            let heeding = heed(link, words, events.clone());
            tokio::select! {
                () = read(link, connection, events) => {}
                () = heeding => {}
            }
        }
        Ok(Err(error)) => crate::log::note("denied", peer, format_args!("datagrams: {error}")),
        Err(_) => tracing::debug!(target: "ropewalk::gateway", %peer, "no handshake for datagrams"),
    }
}

/// Follows what the proxy says of a link.
async fn heed(link: usize, mut words: RecvStream, events: mpsc::Sender<Event>) {
    while let Ok(word) = Word::read(&mut words).await {
        let _ = events.send(Event::Word { link, word }).await;
    }
    // Its end is that of the connection, which is told elsewhere.
    std::future::pending().await
}

/// Serves a tunnel's stream: a proxy's that UDP doesn't reach.
pub(super) async fn serve_stream(
    far: &Far,
    mut secure: Secure,
    (listen, list): (SocketAddr, &Current),
    carried: Carried<'_>,
) -> io::Result<()> {
    let refused = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
    let identity =
        identity(secure.get_ref().1.peer_certificates()).ok_or_else(|| refused("no certificate"))?;
    let mut id = [0; 16];
    timeout(PATIENCE, secure.read_exact(&mut id)).await??;
    let session = far.session((listen, identity), id, list);
    let (events, answer, _place) = session.ok_or_else(|| refused(NOT_NOW))?;
    secure.write_all(&answer.encode()).await?;
    stream::carry(secure, &events, 0, carried).await
}

fn identity(shown: Option<&[CertificateDer<'static>]>) -> Option<Identity> {
    shown?.first().map(Sha256::digest).map(Identity::from)
}

async fn greet(
    far: &Far,
    incoming: Incoming,
    listen: SocketAddr,
    list: &Current,
) -> io::Result<(usize, Connection, RecvStream, mpsc::Sender<Event>, Arc<()>)> {
    let connection = incoming.accept()?.await?;
    let (mut send, mut receive) = connection.accept_bi().await?;
    let mut hello = [0; 17];
    receive.read_exact(&mut hello).await.map_err(io::Error::other)?;
    let [id @ .., link] = hello;
    let refuse = |why: &'static str| {
        connection.close(1u8.into(), why.as_bytes());
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    if link >= MOST_LINKS {
        return Err(refuse("a link with such a number can't be"));
    }
    let shown =
        connection.peer_identity().and_then(|one| one.downcast::<Vec<CertificateDer<'static>>>().ok());
    let identity = identity(shown.as_deref().map(Vec::as_slice)).ok_or_else(|| refuse("no certificate"))?;
    let session = far.session((listen, identity), id, list);
    let (events, answer, place) = session.ok_or_else(|| refuse(NOT_NOW))?;
    send.write_all(&answer.encode()).await?;
    Ok((link.into(), connection, receive, events, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_proxys_own_packets_to_what_is_listed_get_out() {
        let list =
            Destinations(["10.9.0.0/16 53,4433", "2001:db8::/32"].map(|one| one.parse().unwrap()).into());
        let own = ["10.9.9.1".parse().unwrap()];
        let flow = |to: &str, protocol, port: Option<u16>| FlowKey {
            source: Inner::of(1).v4.into(),
            destination: to.parse().unwrap(),
            protocol,
            ports: port.map(|port| (5060, port)),
        };
        let cases = [
            (flow("10.9.9.9", protocol::UDP, Some(53)), true),
            (flow("10.9.9.9", protocol::UDP, Some(54)), false),
            (flow("10.9.9.9", protocol::ICMP, None), true),
            (flow("10.9.9.1", protocol::ICMP, None), false),
            (flow("10.9.9.1", protocol::UDP, Some(53)), false),
            (flow("10.8.9.9", protocol::ICMP, None), false),
            (flow("2001:db8::1", protocol::UDP, Some(1)), true),
            (flow("127.0.0.1", protocol::ICMP, None), false),
            (flow("10.9.9.9", protocol::TCP, Some(53)), false),
        ];
        for (flow, expected) in cases {
            assert_eq!(allows(&list, &flow, &own), expected, "{flow:?}");
        }
        assert_eq!(number_of(Inner::of(7).v4.into()), Some(7));
        assert_eq!(number_of(Inner::of(300).v6.into()), Some(300));
        assert_eq!(number_of("198.19.0.8".parse().unwrap()), None);
    }

    #[test]
    fn from_a_port_that_leads_to_a_proxy_go_answers_alone() {
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let ports = |all: &[&str]| all.iter().map(|one| one.parse().unwrap()).collect::<Vec<Ports>>();
        let give = |proxy, all| PortGrant { addresses: vec![address], proxy: [proxy; 32], ports: ports(all) };
        let given = [give(7, &["udp/5070", "tcp/8022"]), give(8, &["udp/5071"])];
        let mut numbers = BTreeMap::new();
        let lead: Vec<_> = forwards(&given, &mut numbers).into_iter().map(|one| one.to.to_string()).collect();
        let of = |proxy: u8| Inner::of(numbers[&[proxy; 32]]).v4.to_string();
        assert_eq!(lead, [of(7), of(7), of(8)]);
        let all = BTreeMap::from([(1, ports(&["udp/5070", "tcp/8022"])), (2, ports(&["udp/5071"]))]);
        let list = Destinations(vec!["10.0.0.0/8".parse().unwrap()]);
        let mut gate = Gate::new(1, list.into(), Arc::new(Mutex::new(all)));
        let mut admits = |flow: &FlowKey, is_outward| drive::Gate::admits(&mut gate, flow, is_outward);
        let client: IpAddr = "203.0.113.9".parse().unwrap();
        let from_client = |protocol, port| FlowKey {
            source: client,
            destination: Inner::of(1).v4.into(),
            protocol,
            ports: Some((4000, port)),
        };
        let answer = |protocol, port, to| FlowKey {
            source: Inner::of(1).v4.into(),
            destination: client,
            protocol,
            ports: Some((port, to)),
        };
        assert!(!admits(&answer(protocol::UDP, 5070, 4000), false), "nobody has asked");
        assert!(admits(&from_client(protocol::UDP, 5070), true));
        assert!(admits(&answer(protocol::UDP, 5070, 4000), false));
        assert!(!admits(&answer(protocol::UDP, 5070, 4001), false), "another has asked");
        assert!(admits(&answer(protocol::TCP, 8022, 4000), false), "the kernel knows the connection");
        for port in [8023, 5070] {
            assert!(!admits(&answer(protocol::TCP, port, 4000), false), "{port}");
        }
        let fragment = |from, protocol| FlowKey { ports: None, ..answer(protocol, from, 0) };
        assert!(admits(&fragment(5070, protocol::UDP), false), "the rest of an answer");
        assert!(!admits(&fragment(5070, protocol::TCP), false));
        let to_this_host = FlowKey { destination: [127, 0, 0, 1].into(), ..answer(protocol::TCP, 8022, 22) };
        assert!(!admits(&to_this_host, false), "the gateway's own services");
        // Another proxy's.
        admits(&from_client(protocol::UDP, 5071), true);
        assert!(!admits(&answer(protocol::UDP, 5071, 4000), false));
    }

    #[test]
    fn proxies_have_the_same_addresses_whoever_comes_first() {
        let of = |order: &[u8]| -> BTreeMap<Identity, u16> {
            let mut numbers = BTreeMap::new();
            for one in order {
                number(&mut numbers, [*one; 32]);
            }
            numbers
        };
        assert_eq!(of(&[1, 2, 255, 3]), of(&[255, 3, 2, 1]));
        // Where two certificates want the same, the later one has the next.
        let mut numbers = of(&[255]);
        let mut other = [255; 32];
        other[31] = 7;
        let [first, second] = [number(&mut numbers, [255; 32]), number(&mut numbers, other)];
        assert!(second == first + 1 && number(&mut numbers, other) == second);
        for number in [1, MOST_PROXIES] {
            let v4 = Inner::of(number).v4;
            assert!(v4 > Inner::of(0).v4 && v4.octets() < [198, 18, 255, 255], "{v4}");
        }
    }

    #[test]
    fn a_proxy_uses_its_own_address() {
        let packet = |source: IpAddr| FlowKey {
            source,
            destination: "10.9.9.9".parse().unwrap(),
            protocol: protocol::ICMP,
            ports: None,
        };
        let list = Destinations(vec!["10.0.0.0/8".parse().unwrap()]);
        let mut gate = Gate::new(1, list.into(), Arc::default());
        let mut admits = |flow: &FlowKey, is_outward| drive::Gate::admits(&mut gate, flow, is_outward);
        assert!(admits(&packet(Inner::of(1).v4.into()), false));
        for other in [Inner::of(2).v4.into(), Inner::of(0).v4.into(), IpAddr::from([192, 168, 1, 2])] {
            assert!(!admits(&packet(other), false), "{other}");
        }
    }
}
