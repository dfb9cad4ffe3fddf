//! By the kind of flow.

use super::{Bonding, ByFlow, Choice, DatagramScheduler, LinkView, PacketView, Redundant};
use crate::flow::Class;

/// The one that is used, unless another is named: [`Redundant`] for small packets, [`ByFlow`] for media,
/// [`Bonding`] for downloads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adaptive;

impl DatagramScheduler for Adaptive {
    fn choose(&mut self, links: &[LinkView], packet: &PacketView) -> Choice {
        match packet.class {
            Class::Small => Redundant.choose(links, packet),
            Class::Media => ByFlow.choose(links, packet),
            Class::Bulk => Bonding.choose(links, packet),
        }
    }
}
