//! How often links are probed: those that stand by cost little while others carry.

use super::{ACTIVE, Tunnel};
use crate::send::Pace;

/// Whether traffic flows no more that was noted last then.
fn is_past(now: u64, last: u64) -> bool {
    now.saturating_sub(last) >= ACTIVE
}

impl Tunnel {
    /// Notes that packets of a lane flow, over a link if they do.
    pub(super) fn note_traffic(&mut self, now: u64, lane: usize, link: Option<usize>) {
        let lane = if lane < self.lanes.len() { lane } else { 0 };
        let mut is_new = is_past(now, std::mem::replace(&mut self.lanes[lane].last_traffic, now));
        if let Some(known) = link.and_then(|link| self.links.get_mut(&link)) {
            is_new |= is_past(now, std::mem::replace(&mut known.last_traffic, now));
        }
        if is_new {
            self.set_paces(now);
        }
    }

    /// Says anew how often each link is to be probed.
    pub(super) fn set_paces(&mut self, now: u64) {
        let paces: Vec<Pace> = self.links.keys().map(|link| self.pace(now, *link)).collect();
        for (known, pace) in self.links.values_mut().zip(paces) {
            known.sending.pace = pace;
        }
    }

    fn pace(&self, now: u64, link: usize) -> Pace {
        if self.links.get(&link).is_some_and(|known| !is_past(now, known.last_traffic)) {
            return Pace::Active;
        }
        let (mut is_wanted, mut flows) = (false, false);
        for (lane, known) in self.lanes.iter().enumerate() {
            if self.wants(lane, link) {
                is_wanted = true;
                flows |= !is_past(now, known.last_traffic);
            }
        }
        match (is_wanted, flows) {
            (true, true) => Pace::Active,
            (true, false) => Pace::Idle,
            (false, _) => Pace::Resting,
        }
    }

    /// Whether the next packet of a lane may take a link: none that works comes before it.
    fn wants(&self, lane: usize, link: usize) -> bool {
        let turn = |link: usize| {
            let how = self.use_of(lane, link);
            (!how.is_shut).then_some((how.is_backup, how.order))
        };
        let Some(own) = turn(link) else { return false };
        let mut working = self.links.iter().filter(|(_, known)| !known.sending.is_silent);
        working.all(|(other, _)| turn(*other).is_none_or(|other| other >= own))
    }
}
