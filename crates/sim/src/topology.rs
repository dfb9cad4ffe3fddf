//! The topology: addresses, the order of the links, and which link follows which.
//!
//! Link numbers: path i has `2 i` (up) and `2 i + 1` (down); bottleneck j, of n paths, `2 n + 2 j` (up) and
//! `2 n + 2 j + 1` (down). Going up, a packet takes its path's link and then the bottleneck; coming down the
//! other way round.

use std::net::{IpAddr, Ipv4Addr};

use ropewalk_engine::Time;
use ropewalk_link::{Change, ChangeAction, LinkSpec};

use crate::Side;
use crate::spec::Scenario;

/// Which side an endpoint is on.
#[inline]
pub(crate) fn side_of(end: usize) -> Side {
    if end & 1 == 0 { Side::Client } else { Side::Server }
}

/// What follows a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hop {
    /// The host at this side.
    Host(Side),
    /// Another link.
    Link(usize),
    /// The down link of the packet's own path.
    OwnDown,
}

/// The links of a scenario and how they are joined.
#[derive(Debug)]
pub(crate) struct Topology {
    /// What follows each link.
    pub(crate) next: Vec<Hop>,
    /// By path: the first link from the client, and from the server.
    pub(crate) entry: Vec<[usize; 2]>,
}

impl Topology {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let paths = scenario.paths.len();
        let mut next = Vec::new();
        let mut entry = Vec::new();
        for (i, path) in scenario.paths.iter().enumerate() {
            let shared = path.bottleneck.map(|j| 2 * (paths + j));
            next.push(shared.map_or(Hop::Host(Side::Server), Hop::Link));
            next.push(Hop::Host(Side::Client));
            entry.push([2 * i, shared.map_or(2 * i + 1, |up| up + 1)]);
        }
        for _ in &scenario.bottlenecks {
            next.push(Hop::Host(Side::Server));
            next.push(Hop::OwnDown);
        }
        Topology { next, entry }
    }

    /// The links' specifications, in order of their numbers.
    pub(crate) fn specs(scenario: &Scenario) -> impl Iterator<Item = &LinkSpec> {
        let own = scenario.paths.iter().flat_map(|path| [&path.up, &path.down]);
        own.chain(scenario.bottlenecks.iter().flat_map(|shared| [&shared.up, &shared.down]))
    }
}

/// The client's address on a path.
pub(crate) fn client_address(path: usize) -> IpAddr {
    let [high, low] = (path as u16).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, high, low, 2))
}

/// The server's address.
pub(crate) fn server_address() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))
}

/// The paths of the competing flows' hosts: the source, and the path of the scenario that it is on there. The
/// first are each source's own; then come the others that sources over Multipath TCP have.
pub(crate) fn background_paths(scenario: &Scenario) -> Vec<(usize, usize)> {
    let sources = || scenario.background.iter().enumerate();
    let others =
        sources().filter(|(_, source)| source.traffic.scheduler().is_some()).flat_map(|(i, source)| {
            (0..scenario.paths.len()).filter(|path| *path != source.path).map(move |path| (i, path))
        });
    sources().map(|(i, source)| (i, source.path)).chain(others).collect()
}

/// The client of a background source, on a path of [`background_paths`].
pub(crate) fn background_client_address(path: usize) -> IpAddr {
    let [high, low] = (path as u16).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(172, 16 | high & 15, low, 2))
}

/// The server of a background source.
pub(crate) fn background_server_address(source: usize) -> IpAddr {
    let [high, low] = (source as u16).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(198, 18 | high & 1, low, 1))
}

/// Whether a link is up at this moment: what the latest of its changes up or down says, of simultaneous ones
/// the last.
fn up_at(link: &LinkSpec, at: Time) -> bool {
    let due = link.changes.iter().filter(|change| change.at <= at);
    let states = due.filter(|change| matches!(change.action, ChangeAction::Down | ChangeAction::Up));
    let latest = |change: &Change| match change.every {
        Some(every) if !every.is_zero() => change.at + (at - change.at) / every * every,
        _ => change.at,
    };
    states.max_by_key(|change| latest(change)).is_none_or(|change| change.action == ChangeAction::Up)
}

/// The path that a connection opened at this moment starts on: the first that is up both ways and no backup,
/// else the first that is up, else the first.
pub fn first_path(scenario: &Scenario, at: Time) -> usize {
    let up = |i: &usize| up_at(&scenario.paths[*i].up, at) && up_at(&scenario.paths[*i].down, at);
    let all = 0..scenario.paths.len();
    all.clone().filter(up).find(|i| !scenario.paths[*i].backup).or_else(|| all.clone().find(up)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::Span;
    use ropewalk_link::Change;

    use super::*;
    use crate::networks;

    #[test]
    fn a_path_with_a_bottleneck_takes_two_links_each_way() {
        let scenario = networks::shared_bottleneck();
        let topology = Topology::new(&scenario);
        // Two paths, one bottleneck: links 4 (up) and 5 (down).
        assert_eq!(topology.next[0], Hop::Link(4));
        assert_eq!(topology.next[2], Hop::Link(4));
        assert_eq!(topology.next[4], Hop::Host(Side::Server));
        assert_eq!(topology.entry, [[0, 5], [2, 5]]);
        assert_eq!(topology.next[5], Hop::OwnDown);
        assert_eq!(topology.next[3], Hop::Host(Side::Client));
        assert_eq!(Topology::specs(&scenario).count(), topology.next.len());
    }

    #[test]
    fn the_first_path_is_one_that_is_up() {
        let mut scenario = networks::two_equal(10_000_000, Span::from_millis(1));
        let at = Time::from_nanos;
        let first_at = |scenario: &Scenario, nanos| first_path(scenario, at(nanos));
        assert_eq!(first_at(&scenario, 0), 0);
        scenario.paths[0].down.changes.push(Change::once(at(5), ChangeAction::Down));
        assert_eq!(first_at(&scenario, 4), 0);
        assert_eq!(first_at(&scenario, 5), 1);
        // Down from 10 on, for 2, every 20; the other is down from 5 on.
        let again = |at, action| Change { at, action, every: Some(Span::from_nanos(20)) };
        scenario.paths[1].down.changes =
            vec![again(at(10), ChangeAction::Down), again(at(12), ChangeAction::Up)];
        assert_eq!([9, 10, 12, 29, 31, 32].map(|at| first_at(&scenario, at)), [1, 0, 1, 1, 0, 1]);
        scenario.paths[1].down.changes.clear();
        scenario.paths[1].backup = true;
        assert_eq!(first_at(&scenario, 4), 0);
        assert_eq!(first_at(&scenario, 5), 1);
    }
}
