//! SYN cookies (RFC 4987 3.6): beyond the backlog a SYN is answered without keeping anything. What has to be
//! known of it comes back with the third ACK: in the acknowledgement number the MSS, in the echoed timestamp
//! the other options, as in Linux (`tcp_syncookies.c`); in MP_CAPABLE both keys (RFC 8684 3.1), of which ours
//! is computed again.

use std::sync::Arc;

use ropewalk_wire::{Flags, FourTuple, Payload, Segment, Seq, Timestamps};

use super::stray::{MOST_STATELESS, understood_capable};
use super::{ConnectionConfig, Endpoint};
use crate::mptcp::Key;
use crate::tcp::keyed_digest;
use crate::{Entropy, PathId, Span, Time};

/// A cookie counts minutes, and is good for the one in which it was made and the next.
const MINUTE: Span = Span::from_secs(60);
const MINUTES: u32 = 2;

/// The MSS that a cookie can tell: the largest that isn't above the peer's.
const MSS: [u16; 8] = [64, 536, 1220, 1300, 1400, 1440, 1460, 8960];

/// Bits of a cookie below its count of minutes.
const LOW: u32 = (1 << 24) - 1;

/// What the low bits of the SYN/ACK's timestamp tell: the peer's window shift, or that there is none; SACK;
/// ECN.
const OPTION_BITS: u32 = 63;
const NO_SHIFT: u32 = 15;
const SACK: u32 = 16;
const ECN: u32 = 32;

fn word(digest: [u8; 32]) -> u32 {
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// The part of a cookie that doesn't change with time.
fn base(secret: &[u8; 32], tuple: &FourTuple, peer_isn: u32) -> u32 {
    word(keyed_digest(secret, b"syncookie", tuple, &[])).wrapping_add(peer_isn)
}

/// What is added to the index of the MSS in a minute.
fn mask(secret: &[u8; 32], tuple: &FourTuple, peer_isn: u32, minute: u32) -> u32 {
    let further = [peer_isn.to_be_bytes(), minute.to_be_bytes()].concat();
    word(keyed_digest(secret, b"syncookie mss", tuple, &further))
}

/// The cookie for a SYN: the initial sequence number of our answer. `tuple` is as we send.
fn cookie(secret: &[u8; 32], tuple: &FourTuple, peer_isn: u32, now: Time, mss: u16) -> u32 {
    let minute = (now.since_origin() / MINUTE) as u32;
    let index = MSS.partition_point(|known| *known <= mss).saturating_sub(1) as u32;
    let low = mask(secret, tuple, peer_isn, minute).wrapping_add(index) & LOW;
    base(secret, tuple, peer_isn).wrapping_add(minute << 24).wrapping_add(low)
}

/// The MSS that a cookie tells, if it is ours and not too old.
fn check(secret: &[u8; 32], tuple: &FourTuple, peer_isn: u32, now: Time, cookie: u32) -> Option<u16> {
    let minute = (now.since_origin() / MINUTE) as u32;
    let rest = cookie.wrapping_sub(base(secret, tuple, peer_isn));
    let age = (minute << 24).wrapping_sub(rest & !LOW) >> 24;
    let made = minute.checked_sub(age).filter(|_| age < MINUTES)?;
    let index = rest.wrapping_sub(mask(secret, tuple, peer_isn, made)) & LOW;
    MSS.get(index as usize).copied()
}

/// Our key of a connection that began with this cookie.
fn key(secret: &[u8; 32], tuple: &FourTuple, peer_isn: u32, cookie: u32) -> u64 {
    let further = [peer_isn.to_be_bytes(), cookie.to_be_bytes()].concat();
    let digest = keyed_digest(secret, b"syncookie key", tuple, &further);
    digest.iter().take(8).fold(0, |key, byte| key << 8 | u64::from(*byte))
}

/// Puts the options of a SYN into the timestamp of its answer, which doesn't become later.
fn with_options<P>(now: u32, syn: &Segment<P>) -> u32 {
    let rare = syn.rare.as_deref();
    let shift = rare.and_then(|rare| rare.window_scale).map_or(NO_SHIFT, |shift| u32::from(shift.min(14)));
    let sack = if rare.is_some_and(|rare| rare.sack_permitted) { SACK } else { 0 };
    let ecn = if syn.flags.contains(Flags::ECE.with(Flags::CWR)) { ECN } else { 0 };
    let value = now & !OPTION_BITS | shift | sack | ecn;
    if value.wrapping_sub(now) as i32 > 0 { value.wrapping_sub(OPTION_BITS + 1) } else { value }
}

/// The SYN that a third ACK belongs to, as far as it matters.
fn syn_of<P: Payload>(ack: &Segment<P>, mss: u16, timestamps: bool) -> Segment<P> {
    let mut syn = Segment::new(ack.tuple, Seq(ack.seq.0.wrapping_sub(1)), Seq(0), Flags::SYN);
    syn.window = ack.window;
    let options = syn.rare_mut();
    options.mss = Some(mss);
    options.mp_capable = understood_capable(ack);
    if let Some(stamp) = ack.timestamps.filter(|_| timestamps) {
        let shift = stamp.echo & NO_SHIFT;
        options.window_scale = (shift != NO_SHIFT).then_some(shift as u8);
        options.sack_permitted = stamp.echo & SACK != 0;
        if stamp.echo & ECN != 0 {
            syn.flags = syn.flags.with(Flags::ECE).with(Flags::CWR);
        }
        syn.timestamps = Some(Timestamps { value: stamp.value, echo: 0 });
    }
    syn
}

impl<P: Payload, E: Entropy> Endpoint<P, E> {
    /// Answers a SYN without keeping anything.
    #[cold]
    pub(super) fn send_cookie(
        &mut self,
        now: Time,
        path: PathId,
        syn: &Segment<P>,
        config: Arc<ConnectionConfig>,
    ) {
        if self.stateless.len() >= MOST_STATELESS {
            self.counters.listen_overflows += 1;
            return;
        }
        let (tuple, peer_isn) = (syn.tuple.reversed(), syn.seq.0);
        let mut known = syn.clone();
        if syn.timestamps.is_none() || !config.tcp.timestamps {
            // Nothing will bring these back.
            known.flags = Flags::SYN;
            let options = known.rare_mut();
            (options.window_scale, options.sack_permitted) = (None, false);
        }
        let default = if tuple.src.is_ipv4() { 536 } else { 1220 };
        let mss = syn.rare.as_deref().and_then(|rare| rare.mss).unwrap_or(default);
        let isn = cookie(&self.isn_secret, &tuple, peer_isn, now, mss);
        let key = key(&self.isn_secret, &tuple, peer_isn, isn);
        //= RFC 8684 3.1-6
        if self.tokens.contains_key(&Key::new(key).token) {
            //= RFC 8684 3.1-7
            known.rare_mut().mp_capable = None;
        }
        let mut connection = self.accept(now, path, &known, config, key, isn);
        let mut answer = Segment::blank();
        if connection.poll_transmit(now, 1, &mut answer).is_some() {
            if let Some(stamp) = answer.timestamps.as_mut() {
                stamp.value = with_options(stamp.value, &known);
            }
            self.stateless.push_back((path, answer));
            self.counters.cookies_sent += 1;
            self.cookies_until = now + u64::from(MINUTES) * MINUTE;
        }
    }

    /// A segment of no connection may be the third ACK that answers a cookie, or data after it. Returns
    /// whether that is so.
    #[cold]
    pub(super) fn on_cookie(&mut self, now: Time, path: PathId, segment: &mut Segment<P>) -> bool {
        if now >= self.cookies_until
            || !segment.flags.contains(Flags::ACK)
            || segment.flags.contains(Flags::SYN)
        {
            return false;
        }
        let Some(config) = self.listener(segment.tuple.destination()) else { return false };
        let (tuple, peer_isn) = (segment.tuple.reversed(), segment.seq.0.wrapping_sub(1));
        let isn = segment.ack.0.wrapping_sub(1);
        let Some(mss) = check(&self.isn_secret, &tuple, peer_isn, now, isn) else {
            self.counters.cookies_failed += 1;
            return false;
        };
        let syn = syn_of(segment, mss, config.tcp.timestamps);
        let key = match understood_capable(&syn) {
            Some(_) => key(&self.isn_secret, &tuple, peer_isn, isn),
            None => self.fresh_key(),
        };
        if !self.make_room(now) || self.tokens.contains_key(&Key::new(key).token) {
            self.counters.listen_overflows += 1;
            return true;
        }
        self.counters.cookies_recv += 1;
        let mut connection = self.accept(now, path, &syn, config, key, isn);
        connection.subflows.skip_syn_ack();
        self.mib.received(segment);
        connection.on_segment(now, 0, segment);
        let index = self.insert_accepted(connection, segment, false);
        self.on_changed(now, index);
        true
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_wire::{MpCapable, SyntheticPayload};

    use super::*;
    use crate::{EndpointConfig, SECOND};

    const SECRET: [u8; 32] = [7; 32];

    fn tuple(port: u16) -> FourTuple {
        FourTuple::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], port).into())
    }

    #[test]
    fn a_cookie_tells_the_mss_for_two_minutes() {
        for (mss, told) in
            [(20, 64), (64, 64), (535, 64), (536, 536), (1459, 1440), (1460, 1460), (65_535, 8960)]
        {
            for start in [Span::ZERO, 59 * SECOND, 300 * MINUTE - Span::from_nanos(1)] {
                let start = Time::ZERO + start;
                let made = cookie(&SECRET, &tuple(1), 77, start, mss);
                assert_eq!(check(&SECRET, &tuple(1), 77, start, made), Some(told));
                assert_eq!(check(&SECRET, &tuple(1), 77, start + MINUTE, made), Some(told));
                assert_eq!(check(&SECRET, &tuple(1), 77, start + 2 * MINUTE, made), None);
            }
        }
    }

    /// One guess in 2^28 is right.
    #[test]
    fn a_cookie_cant_be_guessed_or_moved() {
        let made = cookie(&SECRET, &tuple(1), 77, Time::ZERO, 1460);
        assert_eq!(check(&SECRET, &tuple(2), 77, Time::ZERO, made), None, "another port");
        assert_eq!(check(&SECRET, &tuple(1), 78, Time::ZERO, made), None, "another sequence number");
        assert_eq!(check(&[8; 32], &tuple(1), 77, Time::ZERO, made), None, "another secret");
        let guesses = (0..1_000_000u32).map(|n| n.wrapping_mul(0x9e37_79b9));
        let right =
            guesses.filter(|guess| check(&SECRET, &tuple(1), 77, Time::ZERO, *guess).is_some()).count();
        assert_eq!(right, 0);
    }

    #[test]
    fn the_timestamp_tells_the_options_and_is_never_late() {
        for now in [0, 1, 63, 64, 1000, u32::MAX, 1 << 31] {
            for (shift, sack, ecn) in [(None, false, false), (Some(0), true, false), (Some(14), true, true)] {
                let flags = Flags(Flags::SYN.0 | if ecn { Flags::ECE.0 | Flags::CWR.0 } else { 0 });
                let mut syn: Segment<SyntheticPayload> = Segment::new(tuple(1), Seq(1), Seq(0), flags);
                (syn.rare_mut().window_scale, syn.rare_mut().sack_permitted) = (shift, sack);
                let value = with_options(now, &syn);
                assert!(now.wrapping_sub(value) < 128, "{now} {value}");
                let mut ack: Segment<SyntheticPayload> = Segment::new(tuple(1), Seq(2), Seq(9), Flags::ACK);
                ack.timestamps = Some(Timestamps { value: 5, echo: value });
                let again = syn_of(&ack, 1460, true);
                let options = again.rare.as_deref().expect("options");
                assert_eq!((options.window_scale, options.sack_permitted, again.flags), (shift, sack, flags));
            }
        }
    }

    struct Counter(u64);

    impl Entropy for Counter {
        fn next_u64(&mut self) -> u64 {
            self.0 += 1;
            self.0
        }
    }

    //= test RFC 8684 3.1-6 3.1-7
    #[test]
    fn a_cookie_whose_token_is_taken_is_plain_tcps() {
        let limits = EndpointConfig { backlog: 0, ..EndpointConfig::default() };
        let mut server = Endpoint::<SyntheticPayload, _>::new(limits, Counter(1));
        server.listen(tuple(1).source(), Arc::new(ConnectionConfig::default()));
        let knock = |server: &mut Endpoint<SyntheticPayload, Counter>| {
            let mut syn = Segment::new(tuple(1).reversed(), Seq(77), Seq(0), Flags::SYN);
            let capable = MpCapable { version: 1, hmac_sha256: true, ..MpCapable::default() };
            (syn.rare_mut().mss, syn.rare_mut().mp_capable) = (Some(1460), Some(capable));
            server.on_segment(Time::ZERO, PathId(0), syn);
            server.poll_transmit(Time::ZERO, 1).expect("a SYN/ACK").1
        };
        let answer = knock(&mut server);
        let sender_key = understood_capable(&answer).and_then(|capable| capable.sender_key).expect("a key");
        server.tokens.insert(Key::new(sender_key).token, 0);
        let plain = knock(&mut server);
        assert_eq!((understood_capable(&plain), plain.seq), (None, answer.seq));
        server.on_segment(
            Time::ZERO,
            PathId(0),
            Segment::new(tuple(1).reversed(), Seq(78), plain.seq.plus(1), Flags::ACK),
        );
        assert_eq!((server.len(), server.counters().cookies_recv), (1, 1));
        let accepted = std::iter::from_fn(|| server.poll_event()).map(|(id, _)| id).next().expect("an event");
        assert!(!server.connection(accepted).expect("a connection").is_multipath());
    }

    #[test]
    fn keys_differ() {
        let keys: std::collections::BTreeSet<u64> =
            (0..1000).map(|n| key(&SECRET, &tuple(n), 1, 2)).collect();
        assert_eq!(keys.len(), 1000);
        assert_ne!(key(&SECRET, &tuple(1), 1, 2), key(&SECRET, &tuple(1), 1, 3));
    }
}
