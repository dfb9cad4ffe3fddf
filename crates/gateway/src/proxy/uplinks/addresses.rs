//! What the interfaces' addresses mean for connections: the kernel gives each one of them, and keeps it for the
//! connection's life, whether the interface has it or not.

use std::net::IpAddr;

use super::{Changed, Uplinks};
use crate::proxy::reach::{Addresses, Reach};

/// The addresses of an uplink's interface, in one family.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    all: Vec<IpAddr>,
    /// The one that a rule states for connections: it was the only one when the route was new, or since.
    pub stated: Option<IpAddr>,
}

impl Uplinks {
    /// Takes in the addresses of an uplink's interface: while it has none, the last counts. Returns whether
    /// the rules change, and what else does.
    pub(super) fn learn_addresses(&mut self, link: usize, reach: Reach, now: Addresses) -> (bool, Changed) {
        let (mut is_new_rule, mut changed) = (false, Changed::default());
        let routes = self.reach.get(&link).copied().unwrap_or_default();
        for (&v6, all) in self.families().iter().zip(now) {
            if reach.route(v6).is_none() {
                continue;
            }
            let known = self.addresses.entry((link, v6)).or_default();
            let is_gone = |address: &IpAddr| !all.contains(address);
            // Another that comes is of no account, unless packets take another way now.
            let is_same_way = routes.route(v6).is_none_or(|route| Some(route) == reach.route(v6));
            let held = known.stated.filter(|address| is_same_way && !is_gone(address));
            let stated = held.or(all.first().copied().filter(|_| all.len() == 1));
            is_new_rule |= known.stated != stated;
            let family = usize::from(v6);
            changed.address[family] = known.stated.as_ref().is_some_and(is_gone);
            changed.one_of_several[family] = !changed.address[family] && known.all.iter().any(is_gone);
            *known = Known { all, stated };
        }
        (is_new_rule, changed)
    }
}
