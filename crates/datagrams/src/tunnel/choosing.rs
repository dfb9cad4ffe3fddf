//! Which link the packets that wait take, and when.

use std::ops::Bound::{Excluded, Unbounded};

use super::{COPIES, COPIES_BURST, COPIES_SHARE, FULL, LONGEST_WAIT, Link, Tunnel};
use crate::SECOND;
use crate::flow::Class;
use crate::frame::MOST_PARTS;
use crate::scheduler::{Choice, LinkView, PacketView, used};

/// How long a link that fell silent may work all the same.
const MOMENT: u64 = SECOND;

impl Tunnel {
    fn views(&self, now: u64, lane: usize, len: usize) -> Vec<LinkView> {
        let heard = || self.links.values().map(|link| &link.sending.rate).filter(|rate| rate.srtt.is_some());
        let least = heard().min_by_key(|rate| rate.delay);
        let view = |(link, known): (&usize, &Link)| {
            let (how, rate) = (self.use_of(lane, *link), &known.sending.rate);
            let delay = match (least, rate.srtt) {
                (Some(least), Some(_)) => {
                    let more = rate.delay.wrapping_sub(least.delay).max(0) as u64;
                    more * 1000 + least.least_rtt().unwrap_or(0) / 2
                }
                _ => SECOND,
            };
            let of_it = LinkView {
                link: *link,
                is_silent: known.sending.is_silent,
                is_backup: how.is_backup,
                delay,
                wait: rate.ready_at(now, len).map(|at| at - now),
                rate: (!rate.is_starting()).then(|| rate.rate() as u64),
            };
            (!how.is_shut).then_some(of_it)
        };
        let mut views: Vec<LinkView> = self.links.iter().filter_map(view).collect();
        if views.iter().all(|view| view.is_silent) {
            // It may be the far end that is busy: what worked a moment ago comes before what hasn't for long.
            for view in &mut views {
                let since = self.links.get(&view.link).and_then(|known| known.sending.silent_since());
                view.is_silent = since.is_none_or(|since| now.saturating_sub(since) >= MOMENT);
            }
        }
        views
    }

    /// Of these links those whose turn it is for a packet that has waited so long.
    fn in_order(&self, lane: usize, mut views: Vec<LinkView>, waited: u64) -> Vec<LinkView> {
        let order = |one: &LinkView| self.use_of(lane, one.link).order;
        let works = |one: &&LinkView| !one.is_silent && !one.is_backup;
        let first = views.iter().filter(works).map(order).min();
        let has_room = |one: &&LinkView| waited < FULL || one.wait == Some(0);
        let turn = views.iter().filter(works).filter(has_room).map(order).min().max(first);
        if let Some(turn) = turn {
            views.retain(|one| order(one) <= turn || !works(&one));
        }
        views
    }

    /// Retransmits a packet. A download's wait for the link's window: where a link was silent for a
    /// moment only, its next feedback says that most have arrived, and all at once would fill the other
    /// link's queue.
    pub(super) fn send_repair(&mut self, now: u64) {
        for is_download in [false, true] {
            while let Some((piece, from)) = self.repairs[usize::from(is_download)].pop_front() {
                if self.settled.has(piece.number) || piece.deadline <= now {
                    continue;
                }
                let lane = usize::from(piece.lane);
                let mut views = self.in_order(lane, self.views(now, lane, piece.payload.len()), 0);
                // A whole packet is cut as the link needs it. A part can't be.
                let is_whole = piece.part.count == 1;
                let most = if is_whole { MOST_PARTS.into() } else { 1 };
                if !views.is_empty() {
                    views.retain(|one| self.count_parts(one.link, &piece) <= most);
                    if views.is_empty() {
                        continue;
                    }
                }
                let has_room = |one: &&LinkView| !is_download || one.wait == Some(0);
                // Over the same link only if there is no other that is as fast.
                let best = used(&views).filter(has_room).min_by_key(|one| (one.delay, one.link == from));
                if let Some(best) = best {
                    let count = if is_whole { self.count_parts(best.link, &piece) } else { 1 };
                    self.stats.repaired += count as u64;
                    match is_whole {
                        true => self.send_parts(now, best.link, &piece, count),
                        false => self.send(now, best.link, piece),
                    }
                    return;
                }
                self.repairs[usize::from(is_download)].push_front((piece, from));
                break;
            }
        }
    }

    /// Lets the schedulers choose for the packets that wait first. Lanes take turns.
    pub(super) fn schedule(&mut self, now: u64) {
        let count = self.lanes.len();
        for class in [Class::Small, Class::Media, Class::Bulk] {
            for lane in (self.turn..self.turn + count).map(|lane| lane % count) {
                if self.schedule_lane(now, class, lane) {
                    self.turn = (lane + 1) % count;
                    return;
                }
            }
        }
    }

    /// Returns whether something was sent.
    fn schedule_lane(&mut self, now: u64, class: Class, lane: usize) -> bool {
        let mut next = self.lanes[lane].waiting.keys().next().copied();
        while let Some(kept) = next {
            if self.schedule_waiting(now, class, lane, kept) {
                return true;
            }
            let mut others = self.lanes[lane].waiting.range((Excluded(kept), Unbounded));
            next = others.next().map(|(kept, _)| *kept);
        }
        false
    }

    /// The same for the flows that keep to one link, or to none.
    fn schedule_waiting(&mut self, now: u64, class: Class, lane: usize, kept: Option<usize>) -> bool {
        while let Some(first) = self.lanes[lane].of(kept).queues[class as usize].front() {
            let (len, flow, waited) = (first.packet.len(), first.flow, now.saturating_sub(first.since));
            if class != Class::Bulk && waited > LONGEST_WAIT {
                self.lanes[lane].of(kept).pop(class);
                self.stats.dropped += 1;
                continue;
            }
            let last_link = self.flows.link(&flow, now);
            let mut views = self.in_order(lane, self.views(now, lane, len), waited);
            let own = last_link.map(|last| self.use_of(lane, last)).unwrap_or_default();
            let stays = |one: &LinkView| Some(one.link) == last_link && !one.is_silent && own.keeps;
            if views.iter().any(stays) {
                views.retain(stays);
            }
            if views.is_empty() {
                break;
            }
            let may_copy = self.may_copy(now, len);
            let packet = PacketView { class, len, last_link, waited, may_copy };
            let choice = self.lanes[lane].scheduler.choose(&views, &packet);
            // A link without room could have carried more.
            for view in views.iter().filter(|view| view.wait != Some(0) && class != Class::Small) {
                if let Some(known) = self.links.get_mut(&view.link) {
                    known.sending.rate.is_backlogged = true;
                }
            }
            let Choice::Send { link, copy } = choice else { break };
            let Some(mut queued) = self.lanes[lane].of(kept).pop(class) else { break };
            if class == Class::Bulk && self.lanes[lane].of(kept).codel.drops(now, waited) {
                let Some(marked) = self.marked(&queued.packet) else {
                    self.stats.dropped += 1;
                    continue;
                };
                queued.packet = marked;
            }
            // Silence may be a moment's: a flow that keeps to its link comes back to it.
            if !own.keeps || own.is_shut {
                self.flows.set_link(&flow, link);
            }
            self.send_packet(now, (class, lane), &queued, (link, copy));
            return true;
        }
        false
    }

    fn may_copy(&mut self, now: u64, len: usize) -> bool {
        let rates: f64 = self.links.values().map(|link| link.sending.rate.rate()).sum();
        let (left, since) = self.copies;
        let earned = (rates * COPIES_SHARE).max(COPIES) * now.saturating_sub(since) as f64 / SECOND as f64;
        self.copies = ((left + earned).min(COPIES_BURST), now);
        self.copies.0 >= len as f64
    }
}
