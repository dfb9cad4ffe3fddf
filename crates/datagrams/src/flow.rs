//! Flows: what kind of traffic each carries, by its packets' sizes and rate.

use std::collections::BTreeMap;

use crate::packet::{FlowKey, Summary, protocol};
use crate::{MILLISECOND, SECOND};

/// Most flows that are known at a time; beyond, the one that was idle longest is forgotten.
pub const MOST_FLOWS: usize = 2048;
/// Packets of more bytes aren't small.
const SMALL_PACKET: usize = 400;
/// A flow of small packets with more bytes per second isn't voice, nor a game: acknowledgements, perhaps.
const SMALL_RATE: f64 = 50_000.0;
/// A flow with more bytes per second is a download; a flow of QUIC with large packets is one from its start.
/// Its sender slows down after losses, and takes reordered packets for lost ones: its packets are put in
/// order at the far end, and may use all links.
const BULK_RATE: f64 = 1_000_000.0;
/// Over how long a flow's rate is averaged, seconds.
const AVERAGED: f64 = 0.25;
/// How long a download of QUIC may pause and still be one.
const PAUSE: u64 = 200 * MILLISECOND;
/// DSCP's Expedited Forwarding (RFC 3246): voice.
const EXPEDITED: u8 = 46;

/// What is done for a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Voice, games, DNS, ping: few bytes that are wanted now. Sent twice within a budget.
    Small,
    /// Video, and whatever is neither of the others. It keeps to a link while that is good.
    Media,
    /// Downloads. They use all links, and are put in order at the far end.
    Bulk,
}

/// A flow.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// When its last packet came.
    last: u64,
    /// The lane that the far end says of it.
    lane: u8,
    /// Smoothed, bytes per second.
    rate: f64,
    link: Option<usize>,
    is_quic: bool,
    /// When its last large packet came, if it is QUIC: it is a download then.
    bulk: Option<u64>,
    /// Its number while it is kept in order, and its next packet's.
    ordered: Option<(u16, u32)>,
}

/// The flows.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    all: BTreeMap<FlowKey, Flow>,
    has_lanes: bool,
    next_ordered: u16,
}

impl Flows {
    /// The flow, which is known from now on.
    fn entry(&mut self, now: u64, key: FlowKey) -> &mut Flow {
        if self.all.len() >= MOST_FLOWS && !self.all.contains_key(&key) {
            let oldest = self.all.iter().min_by_key(|(_, flow)| flow.last).map(|(key, _)| *key);
            oldest.map(|key| self.all.remove(&key));
        }
        let new =
            Flow { last: now, lane: 0, rate: 0.0, link: None, is_quic: false, bulk: None, ordered: None };
        self.all.entry(key).or_insert(new)
    }

    /// Notes what the far end says of a flow by what it sends of it: its lane, and the link that it keeps to.
    pub fn learn(&mut self, now: u64, key: FlowKey, lane: u8, link: Option<usize>) {
        // One that is in no lane needn't be known for that.
        if lane == 0 {
            if let Some(flow) = self.all.get_mut(&key) {
                flow.lane = 0;
            }
            return;
        }
        self.has_lanes = true;
        let flow = self.entry(now, key);
        flow.lane = lane;
        if link.is_some() {
            (flow.link, flow.last) = (link, now);
        }
    }

    /// Whether the far end has said a lane of any flow.
    pub fn has_lanes(&self) -> bool {
        self.has_lanes
    }

    /// The lane that the far end says of a flow.
    pub fn lane(&self, key: &FlowKey) -> u8 {
        self.all.get(key).map_or(0, |flow| flow.lane)
    }

    /// Notes a packet, and returns its class.
    pub fn note(&mut self, now: u64, summary: &Summary, len: usize) -> Class {
        let next_ordered = self.next_ordered;
        let flow = self.entry(now, summary.flow);
        let passed = (now - flow.last.min(now)) as f64 / SECOND as f64;
        // An exponential average, to first order.
        let kept = 1.0 / (1.0 + passed / AVERAGED);
        flow.rate = (flow.rate + len as f64 / AVERAGED) * kept;
        flow.last = now;
        flow.is_quic |= summary.is_quic;
        let is_icmp = [protocol::ICMP, protocol::ICMPV6].contains(&summary.flow.protocol);
        let is_small = len <= SMALL_PACKET && flow.rate <= SMALL_RATE;
        if flow.is_quic && len > SMALL_PACKET {
            flow.bulk = Some(now);
        }
        // A small packet of a download doesn't overtake the others.
        let is_bulk = flow.bulk.is_some_and(|at| now.saturating_sub(at) < PAUSE);
        if is_small && !is_bulk
            || summary.dscp == EXPEDITED && flow.rate <= BULK_RATE
            || is_icmp && len <= SMALL_PACKET
        {
            Class::Small
        } else if is_bulk || flow.rate > BULK_RATE || flow.ordered.is_some() && flow.rate > BULK_RATE / 4.0 {
            if flow.ordered.is_none() {
                flow.ordered = Some((next_ordered, 0));
                self.next_ordered = next_ordered.wrapping_add(1);
            }
            Class::Bulk
        } else {
            if !flow.is_quic {
                flow.ordered = None;
            }
            Class::Media
        }
    }

    /// The next place in a flow that is kept in order.
    pub fn take_place(&mut self, key: &FlowKey) -> Option<crate::frame::Place> {
        let (flow, number) = self.all.get_mut(key)?.ordered.as_mut()?;
        let place = crate::frame::Place { flow: *flow, number: *number };
        *number = number.wrapping_add(1);
        Some(place)
    }

    /// The link that its last packet took, if that is not long ago.
    pub fn link(&self, key: &FlowKey, now: u64) -> Option<usize> {
        let flow = self.all.get(key)?;
        flow.link.filter(|_| now - flow.last.min(now) < 10 * SECOND)
    }

    pub fn set_link(&mut self, key: &FlowKey, link: usize) {
        if let Some(flow) = self.all.get_mut(key) {
            flow.link = Some(link);
        }
    }
}

/// How long a packet of a class may take, its repairs included.
pub(crate) fn patience(class: Class) -> u64 {
    match class {
        Class::Small | Class::Media => 150 * MILLISECOND,
        Class::Bulk => 400 * MILLISECOND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::inspect;

    fn summary(port: u16) -> Summary {
        let mut bytes = Vec::new();
        let builder = etherparse::PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64);
        builder.udp(port, 443).write(&mut bytes, b"").unwrap();
        inspect(&bytes).unwrap()
    }

    /// The classes of a flow's packets.
    fn classes(len: usize, every: u64, count: u64) -> Vec<Class> {
        let mut flows = Flows::default();
        (0..count).map(|at| flows.note(at * every, &summary(1), len)).collect()
    }

    #[test]
    fn a_flow_whose_rule_is_gone_is_in_no_lane() {
        let mut flows = Flows::default();
        let key = |port| summary(port).flow;
        flows.learn(0, key(1), 0, None);
        assert!(!flows.has_lanes() && flows.all.is_empty());
        flows.learn(0, key(1), 3, Some(1));
        assert_eq!((flows.lane(&key(1)), flows.has_lanes()), (3, true));
        flows.learn(0, key(1), 0, None);
        flows.learn(0, key(2), 0, None);
        assert_eq!((flows.lane(&key(1)), flows.all.len()), (0, 1));
    }

    #[test]
    fn kinds_of_traffic_are_told_apart() {
        let ms = MILLISECOND;
        // Voice of 50 packets a second, a game of 60.
        assert!(classes(200, 20 * ms, 500).iter().all(|class| *class == Class::Small));
        assert!(classes(120, 16 * ms, 500).iter().all(|class| *class == Class::Small));
        // Video of 2.5 Mbit/s.
        assert!(classes(1200, 4 * ms, 500).iter().all(|class| *class == Class::Media));
        // A download of 40 Mbit/s, and its acknowledgements.
        let download = classes(1252, ms / 4, 2000);
        assert!(download[0] == Class::Media && download[1000..].iter().all(|class| *class == Class::Bulk));
        assert_eq!(classes(80, ms / 2, 2000)[1999], Class::Media);
    }

    #[test]
    fn a_small_packet_of_a_download_doesnt_overtake() {
        let (mut flows, quic) = (Flows::default(), Summary { is_quic: true, ..summary(1) });
        let plain = Summary { is_quic: false, ..quic };
        assert_eq!(flows.note(0, &plain, 60), Class::Small);
        assert_eq!(flows.note(0, &quic, 1200), Class::Bulk);
        assert_eq!(flows.note(MILLISECOND, &plain, 60), Class::Bulk);
        assert_eq!(flows.note(SECOND, &plain, 60), Class::Small);
    }

    #[test]
    fn flows_are_bounded_and_the_idlest_goes() {
        let mut flows = Flows::default();
        for port in 0..MOST_FLOWS as u16 + 10 {
            flows.note(u64::from(port), &summary(port), 100);
            flows.note(u64::from(port), &summary(0), 100);
        }
        assert_eq!(flows.all.len(), MOST_FLOWS);
        assert!(flows.all.contains_key(&summary(0).flow) && !flows.all.contains_key(&summary(1).flow));
    }
}
