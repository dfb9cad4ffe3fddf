//! What the proxy has to change of interfaces that aren't its own.

use super::super::reach::Uplink;
use super::{PROTOCOL, Uplinks};
use crate::setup::{Step, has_force_forwarding, note, read_sysctl};

/// A sysctl that isn't what the proxy needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    pub key: String,
    pub needed: &'static str,
    pub old: String,
}

impl Uplinks {
    /// The steps that note what sysctls were.
    pub(super) fn notes(&self) -> impl Iterator<Item = Step> + '_ {
        self.changed.iter().filter_map(|change| note(&change.key, &change.old, PROTOCOL))
    }

    /// Sysctls beyond the proxy's own devices that aren't what they have to be. Interfaces may come later:
    /// theirs then.
    pub(super) fn needed_changes(&self) -> Vec<Change> {
        let mut needed = Vec::new();
        for Uplink { interface, .. } in self.uplinks.values() {
            needed.push((format!("net/ipv4/conf/{interface}/forwarding"), "1"));
            if self.v6 && has_force_forwarding() {
                needed.push((format!("net/ipv6/conf/{interface}/force_forwarding"), "1"));
            } else if self.has_had_v6 {
                // A host that forwards ignores router advertisements unless it is told not to.
                needed.push((format!("net/ipv6/conf/{interface}/accept_ra"), "2"));
            }
        }
        if self.has_had_v6 && !has_force_forwarding() {
            needed.push(("net/ipv6/conf/all/forwarding".into(), "1"));
        }
        for interface in self.taken.transparent.iter().filter(|_| self.taken.datagrams) {
            needed.push((format!("net/ipv4/conf/{interface}/forwarding"), "1"));
            if has_force_forwarding() {
                needed.push((format!("net/ipv6/conf/{interface}/force_forwarding"), "1"));
            }
        }
        if self.taken.datagrams {
            // What comes back past the tunnel needn't come by the main table's default route.
            let of = |uplink: &Uplink| (format!("net/ipv4/conf/{}/rp_filter", uplink.interface), "2");
            needed.extend(self.uplinks.values().map(of));
        }
        let is_filtered = || read_sysctl("net/ipv4/conf/all/rp_filter").is_some_and(|value| value == "1");
        let change = |(key, needed): (String, &'static str)| {
            let old = read_sysctl(&key)?;
            let ignores = key.ends_with("accept_ra") && old == "0"
                || key.ends_with("rp_filter") && old == "0" && !is_filtered();
            (old != needed && !ignores).then_some(Change { key, needed, old })
        };
        // Two uplinks may have one interface. Forwarding comes last: routes by router advertisements go with
        // it where these aren't accepted yet.
        needed.sort_by_key(|(key, needed)| (!key.ends_with("accept_ra"), key.clone(), *needed));
        needed.dedup();
        needed.into_iter().filter_map(change).collect()
    }
}
