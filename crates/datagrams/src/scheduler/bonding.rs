//! All links for one flow.

use super::{Choice, DatagramScheduler, LinkView, PacketView, used};
use crate::MILLISECOND;

/// A packet takes the fastest link that has room now: the far end puts the flow in order. That makes all of
/// it as slow as its slowest link, so a link has to bring enough for that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bonding;

/// Whether a link adds to a download's rate at least half as much, as a share, as it adds to its round-trip
/// time. A download that loses packets is as fast as its round-trip time is short.
fn is_worth_it(one: &LinkView, fastest: &LinkView) -> bool {
    let more = one.delay.saturating_sub(fastest.delay) as f64;
    let by_time = more / (2 * fastest.delay + 5 * MILLISECOND) as f64;
    match (one.rate, fastest.rate) {
        (Some(own), Some(other)) => own as f64 / other.max(1) as f64 >= by_time / 2.0,
        _ => by_time <= 4.0,
    }
}

impl DatagramScheduler for Bonding {
    fn choose(&mut self, links: &[LinkView], _packet: &PacketView) -> Choice {
        let Some(fastest) = used(links).min_by_key(|one| one.delay) else { return Choice::Wait };
        let has_room = |one: &&LinkView| one.wait == Some(0) && is_worth_it(one, fastest);
        let chosen = used(links).filter(has_room).min_by_key(|one| one.delay);
        chosen.map_or(Choice::Wait, LinkView::when_ready)
    }
}
