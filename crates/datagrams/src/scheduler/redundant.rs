//! Two links at once.

use super::{Choice, DatagramScheduler, LinkView, PacketView, used};
use crate::flow::Class;

/// A packet takes the link by which it arrives first, and the second best too, within a budget of bytes.
/// Small ones don't wait for room.
#[derive(Clone, Copy, Debug, Default)]
pub struct Redundant;

impl DatagramScheduler for Redundant {
    fn choose(&mut self, links: &[LinkView], packet: &PacketView) -> Choice {
        let has_room = |one: &LinkView| packet.class == Class::Small || one.wait == Some(0);
        let Some(best) = used(links).min_by_key(|one| one.delay).filter(|one| has_room(one)) else {
            return Choice::Wait;
        };
        let others = links.iter().filter(|one| one.link != best.link && !one.is_backup && has_room(one));
        let copy = others.min_by_key(|one| (one.is_silent, one.delay)).filter(|_| packet.may_copy);
        Choice::Send { link: best.link, copy: copy.map(|one| one.link) }
    }
}
