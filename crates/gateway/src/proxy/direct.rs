//! Flows of the networks behind the proxy that aren't TCP: which of them rules send past the tunnel, and by
//! which link.
//!
//! nftables decides, by a flow's first packet, so rules by name or size don't concern them. A flow stays on
//! its link until that can't be used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::link::{Link, LinkState};
use super::link_addresses::MOST_LINKS;
use super::policy::{self, PacketConditions, Policy};
use super::settings::Settings;

/// Where a flow goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Into the tunnel.
    Tunnel,
    /// By the links of these numbers, in IPv4 and IPv6; `None`: nowhere.
    Links([Option<usize>; 2]),
}

/// Where some flows go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Which.
    pub flows: PacketConditions,
    /// Where.
    pub way: Way,
}

/// The ways past the tunnel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Direct {
    /// The first that fits decides; where none does, flows go into the tunnel.
    pub choices: Vec<Choice>,
    /// Numbers of links whose flows have to go elsewhere.
    pub closed: BTreeSet<usize>,
}

impl Direct {
    /// Links whose flows go elsewhere as these ways become `new`. Flows that began while no link worked are
    /// on one that doesn't: once another opens they leave it.
    pub fn to_leave(&self, new: &Direct) -> Vec<usize> {
        let opens = !self.closed.is_subset(&new.closed);
        new.closed.iter().copied().filter(|link| opens || !self.closed.contains(link)).collect()
    }
}

/// The ways as the rules and the links are now. `old`: as they were.
pub(super) fn ways(settings: &Settings, links: &[Arc<Link>], old: &Direct) -> Direct {
    let mut choices: Vec<Choice> = Vec::new();
    let way = |at: usize, policy: &Policy| way(policy, links, old.choices.get(at).map(|one| one.way));
    for rule in &settings.policies.rules {
        let Some(flows) = rule.of_packets() else { continue };
        choices.push(Choice { flows, way: way(choices.len(), &rule.policy) });
    }
    let flows = PacketConditions::default();
    choices.push(Choice { flows, way: way(choices.len(), &settings.policies.other) });
    // What follows the last one past the tunnel goes there anyway.
    let used = choices.iter().rposition(|one| one.way != Way::Tunnel).map_or(0, |last| last + 1);
    choices.truncate(used);
    let is_closed = |link: &usize| {
        let known = links.iter().find(|known| known.index == *link);
        known.is_none_or(|link| link.state() != LinkState::Up)
    };
    // Flows stay past the tunnel that began there by rules that are gone.
    Direct { choices, closed: (0..MOST_LINKS).filter(is_closed).collect() }
}

/// What links have carried past the tunnel, as it was counted last.
#[derive(Debug, Default)]
pub(super) struct Counted(Option<BTreeMap<usize, [u64; 2]>>);

impl Counted {
    /// Adds what they have carried since to the links' counters.
    pub fn note(&mut self, links: &[Arc<Link>], now: BTreeMap<usize, [u64; 2]>) {
        let more = self.since(now);
        for link in links {
            let [sent, received] = more.get(&link.index).copied().unwrap_or_default();
            link.counters.count_datagrams(sent, received);
        }
    }

    /// What has come since the last time. A quota that is new begins with what comes from now on.
    fn since(&mut self, now: BTreeMap<usize, [u64; 2]>) -> BTreeMap<usize, [u64; 2]> {
        let Some(before) = self.0.replace(now.clone()) else { return BTreeMap::new() };
        let of_link = |(link, [sent, received]): (usize, [u64; 2])| {
            let before = before.get(&link).copied().unwrap_or_default();
            // Rules that are set anew count from 0.
            let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
            (link, [since(sent, before[0]), since(received, before[1])])
        };
        now.into_iter().map(of_link).collect()
    }
}

fn way(policy: &Policy, links: &[Arc<Link>], old: Option<Way>) -> Way {
    if !policy.direct {
        return Way::Tunnel;
    }
    Way::Links([false, true].map(|v6| {
        let roles = policy::plan(policy, links, v6, None).roles;
        let old = match old {
            Some(Way::Links(old)) if !policy.mode.is_ordered() => old[usize::from(v6)],
            _ => None,
        };
        // Of two that are as near new flows keep to one.
        let is_active = |link: &usize| roles.iter().any(|role| role.link == *link && !role.backup);
        old.filter(is_active).or(roles.first().map(|role| role.link))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_quota_is_charged_what_comes_from_then_on() {
        let mut counted = Counted::default();
        let at = |bytes| BTreeMap::from([(0, [bytes, 0])]);
        assert_eq!(counted.since(at(50_000)), BTreeMap::new());
        assert_eq!(counted.since(at(50_300)), at(300));
        // Set anew, and another link.
        assert_eq!(
            counted.since(BTreeMap::from([(0, [7, 0]), (1, [0, 5])])),
            BTreeMap::from([(0, [7, 0]), (1, [0, 5])])
        );
    }

    #[test]
    fn flows_leave_a_link_that_closes_and_one_on_which_they_waited_for_any() {
        let closed =
            |links: &[usize]| Direct { closed: links.iter().copied().collect(), ..Direct::default() };
        let leaves = |old: &[usize], new: &[usize]| closed(old).to_leave(&closed(new));
        assert_eq!(leaves(&[], &[0]), [0]);
        assert!(leaves(&[0], &[0]).is_empty());
        assert_eq!(leaves(&[0], &[0, 1]), [1]);
        assert_eq!(leaves(&[0, 1], &[0]), [0]);
        assert!(leaves(&[0, 1], &[]).is_empty());
    }
}
