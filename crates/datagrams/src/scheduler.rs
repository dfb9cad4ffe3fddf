//! Which link a packet takes: a plug-in, asked once for each packet when something can be sent.

use std::fmt;

use crate::MILLISECOND;
use crate::flow::Class;

/// What a scheduler knows of a link that is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkView {
    /// Its number.
    pub link: usize,
    /// Something was sent over it, and nothing was heard for longer than a round trip takes.
    pub is_silent: bool,
    /// It is used while no other works.
    pub is_backup: bool,
    /// How long a packet takes to the far end that is sent now, its wait on the link included, nanoseconds.
    /// Links can be compared to the microsecond.
    pub delay: u64,
    /// How long until there is room for this packet, by pacing; `None`: not before the far end has been
    /// heard.
    pub wait: Option<u64>,
    /// What it carries, bytes per second; `None`: that isn't known yet.
    pub rate: Option<u64>,
}

/// The packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketView {
    /// What kind of flow it belongs to.
    pub class: Class,
    /// Its length, bytes.
    pub len: usize,
    /// The link that its flow's last packet took.
    pub last_link: Option<usize>,
    /// How long it has waited, nanoseconds.
    pub waited: u64,
    /// Whether the budget allows to send it twice.
    pub may_copy: bool,
}

/// What a scheduler decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// It goes over this link, and perhaps over another one too.
    Send {
        /// The link.
        link: usize,
        /// The other one.
        copy: Option<usize>,
    },
    /// It waits until something changes.
    Wait,
}

/// A packet scheduler for datagrams.
pub trait DatagramScheduler: fmt::Debug + Send {
    /// Chooses for a packet. There is one link at least.
    fn choose(&mut self, links: &[LinkView], packet: &PacketView) -> Choice;
}

/// The one that is used, unless another is named.
///
/// - Small packets take the link by which they arrive first, and the second best too, within the budget. They
///   don't wait for room.
/// - Media keep to their link, so that nothing is reordered, until another would deliver [`GAIN`] earlier or
///   theirs falls silent.
/// - Downloads take the fastest link that has room now: the far end puts them in order. That makes all of a
///   download as slow as its slowest link, so a link has to bring enough for that.
///
/// A link that is silent, or a backup, takes packets while there is no other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adaptive;

/// How much earlier another link has to deliver before a flow moves.
pub const GAIN: u64 = 10 * MILLISECOND;

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

impl DatagramScheduler for Adaptive {
    fn choose(&mut self, links: &[LinkView], packet: &PacketView) -> Choice {
        let rank = |one: &LinkView| (one.is_silent, one.is_backup);
        let Some(best_rank) = links.iter().map(rank).min() else { return Choice::Wait };
        let used = || links.iter().filter(move |one| rank(one) == best_rank);
        // Without feedback there is no room before about a round trip has passed.
        let arrival = |one: &LinkView| one.delay.saturating_add(one.wait.unwrap_or(50 * MILLISECOND));
        match packet.class {
            Class::Small => {
                let Some(best) = used().min_by_key(|one| one.delay) else { return Choice::Wait };
                let others = links.iter().filter(|one| one.link != best.link && !one.is_backup);
                let copy = others.min_by_key(|one| (one.is_silent, one.delay)).filter(|_| packet.may_copy);
                Choice::Send { link: best.link, copy: copy.map(|one| one.link) }
            }
            Class::Media => {
                let Some(best) = used().min_by_key(|one| arrival(one)) else { return Choice::Wait };
                let own = used().find(|one| Some(one.link) == packet.last_link);
                let chosen = own.filter(|own| arrival(own) <= arrival(best) + GAIN).unwrap_or(best);
                match chosen.wait {
                    Some(0) => Choice::Send { link: chosen.link, copy: None },
                    _ => Choice::Wait,
                }
            }
            Class::Bulk => {
                let Some(fastest) = used().min_by_key(|one| one.delay) else { return Choice::Wait };
                let has_room = |one: &&LinkView| one.wait == Some(0) && is_worth_it(one, fastest);
                match used().filter(has_room).min_by_key(|one| one.delay) {
                    Some(one) => Choice::Send { link: one.link, copy: None },
                    None => Choice::Wait,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(link: usize, delay_ms: u64) -> LinkView {
        let delay = delay_ms * MILLISECOND;
        LinkView { link, is_silent: false, is_backup: false, delay, wait: Some(0), rate: Some(1_000_000) }
    }

    fn choose(links: &[LinkView], class: Class, last_link: Option<usize>) -> Choice {
        Adaptive.choose(links, &PacketView { class, len: 1000, last_link, waited: 0, may_copy: true })
    }

    fn send(link: usize) -> Choice {
        Choice::Send { link, copy: None }
    }

    #[test]
    fn small_packets_go_twice_and_never_wait() {
        let mut links = [link(0, 30), link(1, 20), link(2, 25)];
        assert_eq!(choose(&links, Class::Small, None), Choice::Send { link: 1, copy: Some(2) });
        links[1].wait = None;
        assert_eq!(choose(&links, Class::Small, None), Choice::Send { link: 1, copy: Some(2) });
        links[1].is_silent = true;
        assert_eq!(choose(&links, Class::Small, None), Choice::Send { link: 2, copy: Some(0) });
        (links[0].is_backup, links[1].is_backup) = (true, true);
        assert_eq!(choose(&links, Class::Small, None), send(2));
    }

    #[test]
    fn video_keeps_to_its_link_until_another_is_clearly_better() {
        let mut links = [link(0, 29), link(1, 20)];
        assert_eq!(choose(&links, Class::Media, Some(0)), send(0));
        assert_eq!(choose(&links, Class::Media, None), send(1));
        links[0].delay = 31 * MILLISECOND;
        assert_eq!(choose(&links, Class::Media, Some(0)), send(1));
        links[1].is_silent = true;
        assert_eq!(choose(&links, Class::Media, Some(1)), send(0));
        links[0].wait = Some(1);
        assert_eq!(choose(&links, Class::Media, Some(0)), Choice::Wait);
        assert_eq!(choose(&[], Class::Media, None), Choice::Wait);
    }

    #[test]
    fn downloads_use_what_is_worth_it() {
        let mut links = [link(0, 22), link(1, 25)];
        assert_eq!(choose(&links, Class::Bulk, None), send(0));
        links[0].wait = Some(MILLISECOND);
        assert_eq!(choose(&links, Class::Bulk, None), send(1));
        // A tenth more rate for three times the round-trip time isn't.
        links[1] = LinkView { rate: Some(100_000), ..link(1, 70) };
        assert_eq!(choose(&links, Class::Bulk, None), Choice::Wait);
        // Until its rate is known it is tried.
        links[1].rate = None;
        assert_eq!(choose(&links, Class::Bulk, None), send(1));
        // A backup is for when there is no other.
        links[1] = LinkView { is_backup: true, ..link(1, 22) };
        assert_eq!(choose(&links, Class::Bulk, None), Choice::Wait);
        links[0].is_silent = true;
        assert_eq!(choose(&links, Class::Bulk, None), send(1));
    }
}
