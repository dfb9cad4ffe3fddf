//! A flow keeps to its link.

use super::{Choice, DatagramScheduler, LinkView, PacketView, used};
use crate::MILLISECOND;

/// How much earlier another link has to deliver before a flow moves.
const GAIN: u64 = 10 * MILLISECOND;

/// A flow keeps to its link, so that nothing is reordered, until another would deliver 10 ms earlier or its
/// own falls silent.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByFlow;

impl DatagramScheduler for ByFlow {
    fn choose(&mut self, links: &[LinkView], packet: &PacketView) -> Choice {
        let Some(best) = used(links).min_by_key(|one| one.arrival()) else { return Choice::Wait };
        let own = used(links).find(|one| Some(one.link) == packet.last_link);
        own.filter(|own| own.arrival() <= best.arrival() + GAIN).unwrap_or(best).when_ready()
    }
}
