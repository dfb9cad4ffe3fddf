//! Opening connections: the best link first, the next after a moment without an answer. No link is needed.
//! Over one that comes back, or has another address, it is tried anew at once: what was lost would be
//! repeated seconds later.
//!
//! The order and the pause are those of RFC 8305, with links in the place of address families alone. Links
//! that are tried at once race: each attempt is a connection of its own, with its own key (RFC 8684 3.1). The
//! first SYN/ACK wins; the other SYN/ACKs are answered with RST (RFC 9293 3.10.7.1), and their links joined.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ropewalk_tokio::{ConnectOptions, ConnectionConfig, MptcpStream, Network};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep, sleep_until};

use super::link::Link;

/// The links that a connection may be opened on now, the best first, and how many of them are tried at once.
pub(super) type Openings = (Vec<Arc<Link>>, usize);

/// How long an attempt may be without an answer before the next begins (RFC 8305 5: the recommended delay).
const PAUSE: Duration = Duration::from_millis(250);

/// Attempts in order: each address over each link that has its family, the first link's first.
fn attempts(addresses: &[SocketAddr], links: &[Arc<Link>]) -> Vec<(SocketAddr, Arc<Link>)> {
    let mut attempts = Vec::new();
    for address in addresses {
        let usable = links.iter().filter(|link| link.has_route(address.is_ipv6()));
        attempts.extend(usable.map(|link| (*address, Arc::clone(link))));
    }
    attempts
}

/// Whether every host has this address: loopback, or none at all.
fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified()
}

/// Ends once a link is usable that wasn't meanwhile, or has another address.
pub(super) async fn comes_back(link: &Link, v6: bool) {
    let changes = || link.known().address_changes[usize::from(v6)];
    let before = changes();
    let mut was_usable = true;
    while !link.is_usable(v6) || was_usable && changes() == before {
        was_usable = link.is_usable(v6);
        sleep(PAUSE).await;
    }
}

/// Opens a connection to one of `addresses`. `openings` is asked again while no attempt has an answer: links
/// come and go.
///
/// # Errors
/// The first attempt's, or that no link is there.
pub(super) async fn dial(
    network: &Network,
    addresses: &[SocketAddr],
    openings: &(dyn Fn() -> Openings + Sync),
    config: &ConnectionConfig,
    limit: Duration,
) -> io::Result<(MptcpStream, Arc<Link>)> {
    // Those of this host itself: no link leads there, and nobody would answer.
    let reachable: Vec<SocketAddr> =
        addresses.iter().filter(|address| !is_own(address.ip())).copied().collect();
    if let (Some(own), []) = (addresses.first(), &*reachable) {
        let message = format!("{} is an address of this host itself: no uplink leads to it", own.ip());
        return Err(io::Error::new(io::ErrorKind::NetworkUnreachable, message));
    }
    let addresses = &*reachable;
    let (links, at_once) = openings();
    let mut waiting = VecDeque::from(attempts(addresses, &links));
    let mut known: Vec<_> = waiting.iter().map(|(address, link)| (*address, link.index)).collect();
    if waiting.is_empty() {
        let family = match addresses.first() {
            Some(address) if address.is_ipv6() => "IPv6",
            _ => "IPv4",
        };
        let message = format!("no uplink is usable for {family}");
        return Err(io::Error::new(io::ErrorKind::NetworkUnreachable, message));
    }
    let deadline = Instant::now() + limit;
    let mut running: JoinSet<(io::Result<MptcpStream>, Arc<Link>)> = JoinSet::new();
    let mut first_error = None;
    let mut next = Instant::now();
    let mut looks = interval_at(next + PAUSE, PAUSE);
    let mut at_once =
        links.iter().take(at_once).filter(|link| link.has_route(addresses[0].is_ipv6())).count();
    loop {
        while (at_once > 0 || next <= Instant::now())
            && let Some((address, link)) = waiting.pop_front()
        {
            at_once = at_once.saturating_sub(1);
            let options = ConnectOptions::new()
                .config(config.clone())
                .local(SocketAddr::new(link.address(address.is_ipv6()), 0))
                .path(link.path());
            let network = network.clone();
            running.spawn(async move {
                loop {
                    tokio::select! {
                        opened = MptcpStream::connect_with(&network, address, &options) => {
                            return (opened, link);
                        }
                        () = comes_back(&link, address.is_ipv6()) => {}
                    }
                }
            });
            next = Instant::now() + PAUSE;
        }
        tokio::select! {
            biased;
            Some(ended) = running.join_next() => match ended {
                // The others are cancelled when the set is dropped.
                Ok((Ok(stream), link)) => return Ok((stream, link)),
                Ok((Err(error), _)) => {
                    first_error.get_or_insert(error);
                    next = Instant::now();
                }
                Err(_) => {}
            },
            () = sleep_until(next), if !waiting.is_empty() => {}
            _ = looks.tick() => {
                for (address, link) in attempts(addresses, &openings().0) {
                    if !known.contains(&(address, link.index)) {
                        known.push((address, link.index));
                        waiting.push_back((address, link));
                    }
                }
            }
            () = sleep_until(deadline) => break,
        }
        if running.is_empty() && waiting.is_empty() {
            break;
        }
    }
    Err(first_error.unwrap_or_else(|| {
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer over any uplink within {} s", limit.as_secs()),
        )
    }))
}
