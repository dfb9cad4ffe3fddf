//! The receiving side: what a link has brought, packets that come twice, parts of packets, and flows that are
//! kept in order.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use crate::frame::{Data, Feedback, Parity, Place, TOLD, add_body, of_body};
use crate::handover::Handover;
use crate::send::micros;
use crate::{MILLISECOND, SECOND};

/// How long a feedback waits for more.
const FEEDBACK_PAUSE: u64 = 5 * MILLISECOND;
/// Feedback doesn't wait beyond so many datagrams.
const MANY: u32 = 32;
/// Numbers of packets that are known.
const WINDOW: usize = 1 << 16;
/// Most packets of which parts are missing.
const MOST_PARTIAL: usize = 256;
/// Most flows that are kept in order, packets of one that wait, and bytes of all.
const MOST_FLOWS: usize = 256;
const MOST_WAITING: usize = 4096;
const MOST_BYTES: usize = 8 << 20;
/// How long a flow is remembered that sends nothing.
const FLOW_AGE: u64 = 30 * SECOND;

/// Datagrams of a link that are kept for parities.
const KEPT: usize = 64;

/// What a link has brought.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    highest: Option<u32>,
    bits: [u8; TOLD as usize / 8],
    /// When the last datagram was sent, by the far end's clock in microseconds, and when it arrived.
    pub last: (u32, u64),
    least_delay: Option<i32>,
    bytes: u32,
    /// The last datagrams: their numbers, and what they were.
    kept: VecDeque<(u32, Bytes)>,
    unreported: u32,
    /// When feedback is due.
    pub due: Option<u64>,
    last_feedback: u64,
}

impl Receiving {
    /// Notes a datagram.
    pub fn note(&mut self, now: u64, number: u32, sent: u32, len: usize) {
        let highest = *self.highest.get_or_insert(number);
        let ahead = number.wrapping_sub(highest);
        if ahead < 1 << 31 {
            self.shift(ahead);
            self.highest = Some(number);
            self.set(0);
        } else {
            self.set(highest.wrapping_sub(number));
        }
        self.last = (sent, now);
        let delay = micros(now).wrapping_sub(sent) as i32;
        self.least_delay = Some(self.least_delay.map_or(delay, |least| least.min(delay)));
        self.bytes = self.bytes.wrapping_add(len as u32);
        self.unreported += 1;
        let soonest = (self.last_feedback + FEEDBACK_PAUSE).max(now);
        let due = if self.unreported >= MANY { now } else { soonest };
        self.due = Some(self.due.map_or(due, |old| old.min(due)));
    }

    /// Keeps a datagram for the parity that may follow; an empty one of a probe.
    pub fn keep(&mut self, number: u32, frame: Bytes) {
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((number, frame));
    }

    /// What a parity brings back: of its datagrams one alone has not come.
    pub fn restore(&self, parity: &Parity) -> Option<Data> {
        let is_of_it = |(number, _): &&(u32, Bytes)| number.wrapping_sub(parity.base) < parity.count.into();
        let count = self.kept.iter().filter(is_of_it).count();
        if count + 1 != usize::from(parity.count) {
            return None;
        }
        let (mut len, mut body) = (parity.len, parity.body.to_vec());
        for (_, frame) in self.kept.iter().filter(is_of_it) {
            len ^= add_body(&mut body, frame);
        }
        of_body(body.get(..usize::from(len))?)
    }

    fn set(&mut self, back: u32) {
        if let Some(byte) = self.bits.get_mut((back / 8) as usize) {
            *byte |= 1 << (back % 8);
        }
    }

    fn shift(&mut self, by: u32) {
        if by >= TOLD {
            self.bits = [0; TOLD as usize / 8];
            return;
        }
        let (bytes, bits) = ((by / 8) as usize, by % 8);
        for at in (0..self.bits.len()).rev() {
            let low = at.checked_sub(bytes).map_or(0, |from| self.bits[from]);
            let below = at.checked_sub(bytes + 1).map_or(0, |from| self.bits[from]);
            self.bits[at] = if bits == 0 { low } else { low << bits | below >> (8 - bits) };
        }
    }

    /// The feedback that is due.
    pub fn take_feedback(&mut self, now: u64) -> Option<Feedback> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        self.due = None;
        self.unreported = 0;
        self.last_feedback = now;
        let (echo, arrived) = self.last;
        Some(Feedback {
            highest: self.highest?,
            echo,
            arrived: micros(arrived),
            now: micros(now),
            bytes: self.bytes,
            least_delay: self.least_delay.take()? as u32,
            bits: self.bits,
        })
    }
}

/// The numbers of packets that have come.
#[derive(Debug)]
pub(crate) struct Numbers {
    highest: Option<u32>,
    bits: Vec<u64>,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers { highest: None, bits: vec![0; WINDOW / 64] }
    }
}

impl Numbers {
    fn place(number: u32) -> (usize, u64) {
        let at = number as usize % WINDOW;
        (at / 64, 1 << (at % 64))
    }

    /// Whether a number has come. One that is too old has.
    pub fn has(&self, number: u32) -> bool {
        let Some(highest) = self.highest else { return false };
        let ahead = number.wrapping_sub(highest);
        if ahead != 0 && ahead < 1 << 31 {
            return false;
        }
        let (word, bit) = Numbers::place(number);
        highest.wrapping_sub(number) as usize >= WINDOW || self.bits[word] & bit != 0
    }

    /// Notes a number; returns whether it is new.
    pub fn insert(&mut self, number: u32) -> bool {
        if self.has(number) {
            return false;
        }
        let highest = self.highest.unwrap_or(number.wrapping_sub(1));
        let ahead = number.wrapping_sub(highest);
        if ahead < 1 << 31 {
            if ahead as usize >= WINDOW {
                self.bits.fill(0);
            } else {
                for between in 1..=ahead {
                    let (word, bit) = Numbers::place(highest.wrapping_add(between));
                    self.bits[word] &= !bit;
                }
            }
            self.highest = Some(number);
        }
        let (word, bit) = Numbers::place(number);
        self.bits[word] |= bit;
        true
    }
}

/// A packet of which parts are missing.
#[derive(Debug)]
struct Partial {
    since: u64,
    parts: Vec<Option<Bytes>>,
}

/// A flow that is kept in order.
#[derive(Debug)]
struct Ordered {
    next: u32,
    /// What waits, and since when.
    waiting: BTreeMap<u32, (Bytes, u64)>,
    last: u64,
}

/// Puts packets together and flows in order.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    numbers: Numbers,
    partial: BTreeMap<u32, Partial>,
    flows: BTreeMap<u16, Ordered>,
    waiting_bytes: usize,
    /// How long a packet waits for one before it.
    pub hold: u64,
    pub repeated: u64,
    pub skipped: u64,
}

/// `a` is before `b`, with numbers that wrap.
fn is_before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

impl Arrivals {
    /// What comes next is another far end's.
    pub fn begin_anew(&mut self) {
        let Arrivals { hold, repeated, skipped, .. } = *self;
        *self = Arrivals { hold, repeated, skipped, ..Arrivals::default() };
    }

    /// Takes what a datagram has; packets that are ready go to `deliver`.
    pub fn take(&mut self, now: u64, data: Data, deliver: &mut Handover) {
        let Data { number, part, place, payload, .. } = data;
        if self.numbers.has(number) {
            self.repeated += 1;
            return;
        }
        let packet = match part.count {
            1 => payload,
            count => {
                if self.partial.len() >= MOST_PARTIAL && !self.partial.contains_key(&number) {
                    let oldest =
                        self.partial.iter().min_by_key(|(_, one)| one.since).map(|(number, _)| *number);
                    oldest.map(|number| self.partial.remove(&number));
                }
                let partial = self
                    .partial
                    .entry(number)
                    .or_insert_with(|| Partial { since: now, parts: vec![None; usize::from(count)] });
                if partial.parts.len() != usize::from(count) {
                    return;
                }
                let own = &mut partial.parts[usize::from(part.index)];
                self.repeated += u64::from(own.is_some());
                own.get_or_insert(payload);
                if partial.parts.iter().any(Option::is_none) {
                    return;
                }
                let whole = self.partial.remove(&number).into_iter().flat_map(|one| one.parts).flatten();
                whole
                    .fold(BytesMut::new(), |mut whole, part| {
                        whole.extend_from_slice(&part);
                        whole
                    })
                    .freeze()
            }
        };
        self.numbers.insert(number);
        match place {
            None => deliver.push(packet),
            Some(place) => self.order(now, place, packet, deliver),
        }
    }

    fn order(&mut self, now: u64, place: Place, packet: Bytes, deliver: &mut Handover) {
        let Place { flow, number } = place;
        if self.flows.len() >= MOST_FLOWS && !self.flows.contains_key(&flow) {
            let idlest = self.flows.iter().min_by_key(|(_, one)| one.last).map(|(flow, _)| *flow);
            idlest.into_iter().for_each(|flow| self.release_all(now, flow, deliver));
        }
        let first = if number < TOLD { 0 } else { number };
        let new = || Ordered { next: first, waiting: BTreeMap::new(), last: now };
        let one = self.flows.entry(flow).or_insert_with(new);
        // Its number was used for another one.
        if now.saturating_sub(one.last) > FLOW_AGE && one.waiting.is_empty() {
            one.next = first;
        }
        one.last = now;
        if number == one.next {
            one.next = number.wrapping_add(1);
            deliver.push_in_order(packet);
            Arrivals::release(now, one, &mut self.waiting_bytes, deliver);
        } else if is_before(number, one.next) {
            // Late is better than never.
            deliver.push_in_order(packet);
        } else {
            self.waiting_bytes += packet.len();
            one.waiting.insert(number, (packet, now));
            let is_full = one.waiting.len() > MOST_WAITING || number.wrapping_sub(one.next) > 1 << 20;
            if is_full || self.waiting_bytes > MOST_BYTES {
                self.release_all(now, flow, deliver);
            }
        }
    }

    /// What follows without a gap.
    fn release(now: u64, one: &mut Ordered, bytes: &mut usize, deliver: &mut Handover) {
        let (mut released, mut first) = (0, now);
        while let Some((packet, since)) = one.waiting.remove(&one.next) {
            (released, first) = (released + packet.len(), first.min(since));
            one.next = one.next.wrapping_add(1);
            deliver.push_in_order(packet);
        }
        *bytes -= released;
        deliver.have_waited(now, released, now - first);
    }

    fn release_all(&mut self, now: u64, flow: u16, deliver: &mut Handover) {
        let Some(mut one) = self.flows.remove(&flow) else { return };
        let (mut next, mut released, mut first) = (one.next, 0, now);
        for (number, (packet, since)) in std::mem::take(&mut one.waiting) {
            (released, first) = (released + packet.len(), first.min(since));
            next = number.wrapping_add(1);
            deliver.push_in_order(packet);
        }
        self.waiting_bytes -= released;
        deliver.have_waited(now, released, now - first);
        self.skipped += 1;
        self.flows.insert(flow, Ordered { next, waiting: BTreeMap::new(), last: one.last });
        if self.flows.len() > MOST_FLOWS {
            self.flows.remove(&flow);
        }
    }

    /// Goes on without what hasn't come in time.
    pub fn on_timeout(&mut self, now: u64, deliver: &mut Handover) {
        let hold = self.hold;
        for one in self.flows.values_mut() {
            while let Some((number, since)) =
                one.waiting.iter().next().map(|(number, (_, since))| (*number, *since))
                && now >= since + hold
            {
                one.next = number;
                self.skipped += 1;
                Arrivals::release(now, one, &mut self.waiting_bytes, deliver);
            }
        }
        self.flows.retain(|_, one| !one.waiting.is_empty() || now.saturating_sub(one.last) < FLOW_AGE);
        self.partial.retain(|_, one| now.saturating_sub(one.since) < SECOND);
    }

    /// When something stops waiting.
    pub fn next_timeout(&self) -> Option<u64> {
        let waiting = self.flows.values().filter_map(|one| one.waiting.values().next());
        waiting.map(|(_, since)| since + self.hold).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Part};

    fn data(link_number: u32, number: u32, place: Option<u32>, payload: &'static [u8]) -> Data {
        let place = place.map(|number| Place { flow: 7, number });
        let payload = Bytes::from_static(payload);
        Data { link_number, sent: 0, number, part: Part::WHOLE, lane: 0, place, payload }
    }

    fn taken(arrivals: &mut Arrivals, now: u64, data: Data) -> Vec<Bytes> {
        let mut handover = Handover::default();
        arrivals.take(now, data, &mut handover);
        std::iter::from_fn(|| handover.pop(u64::MAX)).collect()
    }

    #[test]
    fn numbers_come_once_and_may_wrap() {
        let mut numbers = Numbers::default();
        for number in [u32::MAX - 1, 1, 0, u32::MAX] {
            assert!(numbers.insert(number) && !numbers.insert(number), "{number}");
        }
        assert!(numbers.insert(WINDOW as u32 + 7));
        assert!(!numbers.insert(1), "too old to be known");
        assert!(numbers.insert(20) && numbers.insert(WINDOW as u32 + 6));
        assert!(numbers.insert(1 << 30), "far ahead");
        assert!(!numbers.insert(WINDOW as u32 + 7));
    }

    #[test]
    fn a_gap_is_waited_for_and_then_left() {
        let mut arrivals = Arrivals { hold: 50, ..Arrivals::default() };
        assert_eq!(taken(&mut arrivals, 0, data(0, 0, Some(0), b"0")), ["0"]);
        assert!(taken(&mut arrivals, 10, data(1, 2, Some(2), b"2")).is_empty());
        assert_eq!(arrivals.next_timeout(), Some(60));
        assert_eq!(taken(&mut arrivals, 20, data(2, 1, Some(1), b"1")), ["1", "2"]);
        assert!(taken(&mut arrivals, 30, data(3, 4, Some(4), b"4")).is_empty());
        let mut handover = Handover::default();
        arrivals.on_timeout(79, &mut handover);
        assert_eq!(handover.pop(79), None);
        arrivals.on_timeout(80, &mut handover);
        assert_eq!((handover.pop(80), arrivals.skipped), (Some(Bytes::from_static(b"4")), 1));
        assert_eq!(handover.pop(80), None);
        // Late is better than never; twice isn't.
        assert_eq!(taken(&mut arrivals, 90, data(4, 3, Some(3), b"3")), ["3"]);
        assert!(taken(&mut arrivals, 91, data(5, 3, Some(3), b"3")).is_empty());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut arrivals = Arrivals { hold: SECOND, ..Arrivals::default() };
        let mut delivered = taken(&mut arrivals, 0, data(0, 0, Some(0), b"0")).len();
        for number in 2..20_000 {
            delivered += taken(&mut arrivals, 1, data(number, number, Some(number), b"x")).len();
            assert!(arrivals.flows[&7].waiting.len() <= MOST_WAITING);
        }
        assert!(delivered > 10_000);
        for number in 0..1000u32 {
            let part = Part { index: 0, count: 2 };
            let half = Data { part, ..data(number, 100_000 + number, None, b"x") };
            assert!(taken(&mut arrivals, 2, half).is_empty() && arrivals.partial.len() <= MOST_PARTIAL);
        }
    }

    #[test]
    fn a_parity_brings_back_one_of_its_datagrams() {
        let all = [data(5, 1, None, b"first"), data(6, 2, Some(9), b"the second"), data(7, 3, None, b"3")];
        let (mut len, mut body) = (0, Vec::new());
        for one in &all {
            len ^= add_body(&mut body, &Frame::Data(one.clone()).encode());
        }
        // The last is a probe.
        let parity = Parity { link_number: 9, sent: 0, base: 5, count: 4, len, body: body.into() };
        for (lost, missing) in all.iter().enumerate() {
            let mut link = Receiving::default();
            let others = all.iter().enumerate().filter(|(at, _)| *at != lost);
            others.for_each(|(_, one)| link.keep(one.link_number, Frame::Data(one.clone()).encode()));
            assert_eq!(link.restore(&parity), None, "two are missing");
            link.keep(8, Bytes::new());
            let expected = Data { link_number: 0, ..missing.clone() };
            assert_eq!(link.restore(&parity), Some(expected));
        }
    }
}
