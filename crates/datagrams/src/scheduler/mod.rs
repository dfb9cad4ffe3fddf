//! Which link a packet takes: a plug-in, asked once for each packet when something can be sent. A new one is
//! a file here and a line in [`SCHEDULERS`].

mod adaptive;
mod bonding;
mod by_flow;
mod redundant;
mod smallest_delay;

use std::fmt;

pub use adaptive::Adaptive;
pub use bonding::Bonding;
pub use by_flow::ByFlow;
pub use redundant::Redundant;
pub use smallest_delay::SmallestDelay;

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

/// A name, what it does, and how it is made.
type Known = (&'static str, &'static str, fn() -> Box<dyn DatagramScheduler>);

/// The schedulers; the first is used unless another is named.
pub const SCHEDULERS: [Known; 5] = [
    ("adaptive", "`redundant`, `by-flow` or `bonding`, by the kind of flow", || Box::new(Adaptive)),
    ("smallest-delay", "the link by which a packet arrives first, its wait included", || {
        Box::new(SmallestDelay)
    }),
    ("by-flow", "a flow keeps to its link until another is clearly better", || Box::new(ByFlow)),
    ("redundant", "the two links by which a packet arrives first, within a budget", || Box::new(Redundant)),
    ("bonding", "all links that are worth it; the far end puts packets in order", || Box::new(Bonding)),
];

/// A scheduler by its name.
pub fn by_name(name: &str) -> Option<Box<dyn DatagramScheduler>> {
    SCHEDULERS.iter().find(|(known, ..)| *known == name).map(|(_, _, make)| make())
}

/// The links of those that may be used that work, or as few as possible don't: backups, and silent ones, are
/// used while there is no other.
pub(crate) fn used(links: &[LinkView]) -> impl Iterator<Item = &LinkView> + Clone {
    let rank = |one: &LinkView| (one.is_silent, one.is_backup);
    let best = links.iter().map(rank).min();
    links.iter().filter(move |one| Some(rank(one)) == best)
}

impl LinkView {
    /// How long until a packet that is chosen for this link arrives. Without feedback there is no room before
    /// about a round trip has passed.
    fn arrival(&self) -> u64 {
        self.delay.saturating_add(self.wait.unwrap_or(50 * MILLISECOND))
    }

    /// Sends over this link if there is room.
    fn when_ready(&self) -> Choice {
        match self.wait {
            Some(0) => Choice::Send { link: self.link, copy: None },
            _ => Choice::Wait,
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
    }

    #[test]
    fn each_is_found_by_its_name_and_chooses_a_link_that_is_there() {
        for (name, ..) in SCHEDULERS {
            let mut scheduler = by_name(name).unwrap();
            for class in [Class::Small, Class::Media, Class::Bulk] {
                let packet = PacketView { class, len: 1000, last_link: Some(7), waited: 0, may_copy: true };
                assert_eq!(scheduler.choose(&[], &packet), Choice::Wait, "{name}");
                let silent = LinkView { is_silent: true, ..link(0, 10) };
                let choice = scheduler.choose(&[silent, link(1, 20)], &packet);
                assert!(matches!(choice, Choice::Send { link: 1, .. }), "{name}: {choice:?}");
            }
        }
        assert!(by_name("none").is_none());
    }

    #[test]
    fn the_smallest_delay_counts_the_wait() {
        let mut links = [link(0, 30), link(1, 20)];
        let packet =
            PacketView { class: Class::Media, len: 1, last_link: Some(0), waited: 0, may_copy: true };
        assert_eq!(SmallestDelay.choose(&links, &packet), send(1));
        links[1].wait = Some(9 * MILLISECOND);
        assert_eq!(SmallestDelay.choose(&links, &packet), Choice::Wait);
        links[1].wait = Some(11 * MILLISECOND);
        assert_eq!(SmallestDelay.choose(&links, &packet), send(0));
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
