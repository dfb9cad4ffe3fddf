//! Asking resolvers over the links: over each in turn until one answers, by UDP and at last by TCP. A cut
//! link, or a resolver that only one network has, is no outage.
//!
//! A query goes to the resolver that it is for, over the link that answered for it last; after a moment over
//! the next link, and when none is left, to the other resolvers of this host. What has just been silent comes
//! last.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ropewalk_tokio::{ConnectOptions, MptcpStream, Network};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::dns::{self, Found};
use super::link::{Link, LinkState};
use super::link_addresses::kernel_address;

/// How long an attempt may be without an answer before the next begins.
const PAUSE: Duration = Duration::from_millis(300);
/// How long a query may take: programs ask again after 5 s.
pub(super) const PATIENCE: Duration = Duration::from_millis(4500);
/// How long a resolver that was silent over a link comes behind the others.
const SILENT: Duration = Duration::from_secs(30);
/// Most attempts for one query.
const MOST_ATTEMPTS: usize = 16;
/// Most pairs of resolver and link that are remembered.
const MOST_KNOWN: usize = 256;
/// Where programs on Linux keep the addresses of resolvers, those of systemd-resolved, OpenWrt and dnsmasq
/// included.
const FILES: [&str; 3] =
    ["/run/systemd/resolve/resolv.conf", "/tmp/resolv.conf.d/resolv.conf.auto", "/etc/resolv.conf"];
/// Their port.
const PORT: u16 = 53;

/// How a resolver did over a link, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    at: Instant,
    answered: bool,
}

/// What is known of resolvers.
#[derive(Debug, Default)]
pub(super) struct Resolvers(Mutex<BTreeMap<(SocketAddr, usize), Known>>);

/// One way to ask.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    resolver: SocketAddr,
    link: Arc<Link>,
    by_tcp: bool,
}

/// The addresses of resolvers in a file like resolv.conf(5), but for those of this host itself.
fn listed(text: &str) -> Vec<SocketAddr> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then_some(())?;
        let address: IpAddr = words.next()?.parse().ok()?;
        (!address.is_loopback() && !address.is_unspecified()).then_some(SocketAddr::new(address, PORT))
    };
    text.lines().filter_map(of_line).collect()
}

/// The resolvers that this host knows.
pub(super) fn of_host() -> Vec<SocketAddr> {
    let mut all: Vec<SocketAddr> = Vec::new();
    for file in FILES {
        let found = listed(&std::fs::read_to_string(file).unwrap_or_default());
        all.extend(found.into_iter().filter(|one| !all.contains(one)).collect::<Vec<_>>());
    }
    all
}

/// A message, and what it is as an answer.
type Answer = (Vec<u8>, Found);

impl Resolvers {
    fn note(&self, attempt: &Attempt, answered: bool) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        let key = (attempt.resolver, attempt.link.index);
        known.insert(key, Known { at: Instant::now(), answered });
    }

    /// The ways to ask, the most promising first.
    pub(super) fn attempts(
        &self,
        first: Option<SocketAddr>,
        others: &[SocketAddr],
        links: &[Arc<Link>],
    ) -> Vec<Attempt> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = others.iter().copied().filter(|other| Some(*other) != first);
        let mut attempts = Vec::new();
        for resolver in first.into_iter().chain(others) {
            for link in links.iter().filter(|link| link.has_route(resolver.is_ipv6())) {
                let known = known.get(&(resolver, link.index));
                let is_silent = known.is_some_and(|known| !known.answered && known.at.elapsed() < SILENT);
                let answered = known.filter(|known| known.answered).map(|known| known.at);
                let rank = (
                    is_silent,
                    link.state() != LinkState::Up,
                    Some(resolver) != first,
                    link.stands_by(),
                    std::cmp::Reverse(answered),
                );
                attempts.push((rank, Attempt { resolver, link: Arc::clone(link), by_tcp: false }));
            }
        }
        attempts.sort_by_key(|(rank, _)| *rank);
        let mut attempts: Vec<Attempt> = attempts.into_iter().map(|(_, attempt)| attempt).collect();
        attempts.truncate(MOST_ATTEMPTS - links.len().min(4));
        // Where datagrams to this port are dropped everywhere.
        let by_tcp = attempts.iter().filter(|one| first.is_none_or(|first| first == one.resolver)).take(4);
        let by_tcp: Vec<Attempt> = by_tcp.map(|one| Attempt { by_tcp: true, ..one.clone() }).collect();
        attempts.extend(by_tcp);
        attempts
    }
}

impl Attempt {
    async fn ask(self, network: Network, query: Bytes) -> io::Result<Answer> {
        match self.by_tcp {
            false => self.by_udp(&query).await,
            true => self.by_tcp(&network, &query).await,
        }
    }

    async fn by_udp(&self, query: &[u8]) -> io::Result<Answer> {
        let v6 = self.resolver.is_ipv6();
        // The kernel's address on the link's device: its rule leads out by the link.
        let socket = UdpSocket::bind((kernel_address(self.link.index, v6), 0)).await?;
        socket.connect(self.resolver).await?;
        socket.send(query).await?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let len = socket.recv(&mut buffer).await?;
            if let Some(found) = dns::answers(query, &buffer[..len]) {
                self.link.counters.count_received(len as u64);
                return Ok((buffer[..len].to_vec(), found));
            }
        }
    }

    async fn by_tcp(&self, network: &Network, query: &[u8]) -> io::Result<Answer> {
        let options = ConnectOptions::new()
            .multipath(false)
            .local(SocketAddr::new(self.link.address(self.resolver.is_ipv6()), 0))
            .path(self.link.path());
        let stream = MptcpStream::connect_with(network, self.resolver, &options).await?;
        let mut stream = &stream;
        stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], query].concat()).await?;
        let len = stream.read_u16().await?;
        let mut message = vec![0; usize::from(len)];
        stream.read_exact(&mut message).await?;
        match dns::answers(query, &message) {
            Some(found) => Ok((message, found)),
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "not an answer to the query")),
        }
    }
}

/// Makes attempts one after another until one is answered. An answer that a resolver has failed is kept until
/// all have.
pub(super) async fn try_all(
    resolvers: &Resolvers,
    network: &Network,
    query: Bytes,
    attempts: Vec<Attempt>,
) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let mut waiting = attempts.into_iter();
    let mut running: JoinSet<(io::Result<Answer>, Attempt)> = JoinSet::new();
    let (mut begun, mut next, mut poor) = (Vec::new(), Instant::now(), None);
    loop {
        if next <= Instant::now()
            && let Some(attempt) = waiting.next()
        {
            let (network, query) = (network.clone(), query.clone());
            begun.push((Instant::now(), attempt.clone()));
            running.spawn(async move { (attempt.clone().ask(network, query).await, attempt) });
            next = Instant::now() + PAUSE;
        }
        let more = waiting.len() > 0;
        if running.is_empty() && !more {
            break;
        }
        tokio::select! {
            biased;
            Some(Ok((ended, attempt))) = running.join_next() => match ended {
                Ok((message, Found::Answer)) => {
                    for (at, late) in begun.iter().filter(|(at, _)| at.elapsed() >= PAUSE) {
                        let is_it =
                            late.resolver == attempt.resolver && late.link.index == attempt.link.index;
                        if !is_it && at.elapsed() >= PAUSE {
                            resolvers.note(late, false);
                        }
                    }
                    resolvers.note(&attempt, true);
                    return Ok(message);
                }
                Ok((message, Found::Nothing)) => {
                    resolvers.note(&attempt, false);
                    poor.get_or_insert(message);
                    next = Instant::now();
                }
                Err(_) => {
                    resolvers.note(&attempt, false);
                    next = Instant::now();
                }
            },
            () = sleep_until(next), if more => {}
            () = sleep_until(deadline) => break,
        }
    }
    begun.iter().filter(|(at, _)| at.elapsed() >= PAUSE).for_each(|(_, late)| resolvers.note(late, false));
    poor.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "no resolver answered over any link"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::reach::Reach;
    use crate::setup::Route;

    fn link(index: usize) -> Arc<Link> {
        let link = Link::new(index, format!("up{index}").parse().unwrap(), Instant::now(), false);
        link.learn(|known| known.reach = Reach { v4: Some(Route::Direct), ..Reach::default() });
        Arc::new(link)
    }

    #[test]
    fn resolvers_are_read_from_files() {
        let text = "# nameserver 192.0.2.9\nnameserver 127.0.0.53\nnameserver 192.0.2.1\n\
            search example.org\nnameserver 2001:db8::1 # second\nnameserver fe80::1%eth0\nnameserver\n";
        let expected = ["192.0.2.1:53", "[2001:db8::1]:53"].map(|one| one.parse().unwrap());
        assert_eq!(listed(text), expected);
    }

    #[test]
    fn the_most_promising_way_comes_first() {
        let (links, resolvers) = ([link(0), link(1)], Resolvers::default());
        let [one, other]: [SocketAddr; 2] = ["192.0.2.1:53", "192.0.2.2:53"].map(|one| one.parse().unwrap());
        let order = || -> Vec<(SocketAddr, usize)> {
            let all = resolvers.attempts(Some(one), &[one, other], &links);
            all.iter().filter(|one| !one.by_tcp).map(|one| (one.resolver, one.link.index)).collect()
        };
        assert_eq!(order(), [(one, 0), (one, 1), (other, 0), (other, 1)]);
        let attempt =
            |resolver, link: usize| Attempt { resolver, link: Arc::clone(&links[link]), by_tcp: false };
        resolvers.note(&attempt(one, 1), true);
        assert_eq!(order(), [(one, 1), (one, 0), (other, 0), (other, 1)]);
        resolvers.note(&attempt(one, 1), false);
        assert_eq!(order(), [(one, 0), (other, 0), (other, 1), (one, 1)]);
        // A link that isn't used is better than none.
        links[0].learn(|known| known.alive = false);
        assert_eq!(order(), [(other, 1), (one, 0), (other, 0), (one, 1)]);
        links[0].learn(|known| known.reach = Reach::default());
        assert_eq!(order(), [(other, 1), (one, 1)]);
        assert_eq!(resolvers.attempts(Some(one), &[], &links).iter().filter(|one| one.by_tcp).count(), 1);
    }
}
