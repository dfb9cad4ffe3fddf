//! What the interfaces' addresses mean for connections: the kernel gives each one of them, and keeps it for
//! the connection's life, whether the interface has it or not.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::{Changed, Uplinks};
use crate::proxy::reach::{Addresses, Reach};

/// The addresses of an uplink's interface, in one family.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    all: Vec<IpAddr>,
    /// The source address that a rule gives connections (snat): the only one when it was chosen.
    pub stated: Option<IpAddr>,
    /// Those that were stated before, until when: older connections have them yet.
    former: Vec<(IpAddr, Instant)>,
}

/// So long after an address isn't stated any more few connections have it: for them the others aren't opened
/// again.
const FEW_HAVE_IT: Duration = Duration::from_secs(600);

/// Whether two addresses are of one network, as far as they tell.
fn is_one_network(a: IpAddr, b: IpAddr) -> bool {
    match (a, b) {
        (IpAddr::V6(a), IpAddr::V6(b)) => a.segments()[..4] == b.segments()[..4],
        // The next hop is the same, and in its network.
        _ => true,
    }
}

impl Uplinks {
    /// Takes in the addresses of an uplink's interface: while it has none, the last counts. Returns whether
    /// the rules change, and what else does.
    pub(super) fn learn_addresses(&mut self, link: usize, reach: Reach, now: Addresses) -> (bool, Changed) {
        let (mut is_new_rule, mut changed) = (false, Changed::default());
        let routes = self.reach.get(&link).copied().unwrap_or_default();
        for (&v6, now) in self.families().iter().zip(now) {
            if reach.route(v6).is_none() {
                continue;
            }
            let known = self.addresses.entry((link, v6)).or_default();
            let all: Vec<IpAddr> = now.iter().map(|(address, _)| *address).collect();
            let mut usable: Vec<IpAddr> =
                now.iter().filter(|(_, is_preferred)| *is_preferred).map(|(address, _)| *address).collect();
            if usable.is_empty() {
                usable.clone_from(&all);
            }
            let is_gone = |address: &IpAddr| !all.contains(address);
            // Another that comes is of no account, unless packets take another way now, or it is of another
            // network, as after a router's new prefix: then the kernel chooses.
            let is_same_way = routes.route(v6).is_none_or(|route| Some(route) == reach.route(v6));
            let is_alike = |address: &IpAddr| usable.iter().all(|other| is_one_network(*address, *other));
            let is_held = |address: &IpAddr| is_same_way && usable.contains(address) && is_alike(address);
            let stated =
                known.stated.filter(is_held).or(usable.first().copied().filter(|_| usable.len() == 1));
            is_new_rule |= known.stated != stated;
            let family = usize::from(v6);
            let mut former = std::mem::take(&mut known.former);
            former.extend(known.stated.map(|stated| (stated, Instant::now())));
            former.retain(|(_, until)| until.elapsed() < FEW_HAVE_IT);
            changed.address[family] = former.iter().any(|(address, _)| is_gone(address));
            changed.one_of_several[family] = !changed.address[family] && known.all.iter().any(is_gone);
            if changed.address[family] {
                // All are opened again.
                former.clear();
            }
            former.retain(|(address, _)| Some(*address) != stated);
            *known = Known { all, stated, former };
        }
        (is_new_rule, changed)
    }
}
