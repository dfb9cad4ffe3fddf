//! The link by which a packet arrives first.

use super::{Choice, DatagramScheduler, LinkView, PacketView, used};

/// Each packet takes the link by which it arrives first, the wait for room included. A flow's packets are
/// reordered where links take turns.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmallestDelay;

impl DatagramScheduler for SmallestDelay {
    fn choose(&mut self, links: &[LinkView], _packet: &PacketView) -> Choice {
        used(links).min_by_key(|one| one.arrival()).map_or(Choice::Wait, LinkView::when_ready)
    }
}
