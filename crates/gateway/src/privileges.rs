//! Privileges: nothing but CAP_NET_ADMIN is needed, so nothing else is kept.

use caps::{CapSet, Capability, CapsHashSet};

/// Gives up every capability but CAP_NET_ADMIN, for this process and the programs that it runs. To be called
/// before other threads are started.
pub fn keep_net_admin() {
    let kept = CapsHashSet::from([Capability::CAP_NET_ADMIN]);
    let mut all: Vec<Capability> = caps::all().into_iter().collect();
    all.sort_by_key(Capability::index);
    for capability in all {
        // Dropping from the bounding set needs CAP_SETPCAP; without it there is nothing to gain either.
        if capability != Capability::CAP_NET_ADMIN {
            let _ = caps::drop(None, CapSet::Bounding, capability);
        }
    }
    let has = caps::has_cap(None, CapSet::Permitted, Capability::CAP_NET_ADMIN).unwrap_or(false);
    let kept = if has { kept } else { CapsHashSet::new() };
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        if let Err(error) = caps::set(None, set, &kept) {
            tracing::debug!(target: "ropewalk::setup", ?set, %error, "capabilities are kept");
        }
    }
}
