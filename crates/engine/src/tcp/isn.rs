//! Initial sequence numbers that can't be guessed (RFC 6528, RFC 9293 3.4.1): ISN = M + F(tuple, secret),
//! where M ticks every 4 microseconds (64 nanoseconds in Linux; here the RFC's) and F is HMAC-SHA-256.

use std::net::IpAddr;

use hmac::{Hmac, KeyInit, Mac};
use ropewalk_wire::FourTuple;
use sha2::Sha256;

use crate::Time;

/// The initial sequence number for a connection from `tuple.src` to `tuple.dst` opened at `now`.
///
/// Two incarnations of one connection move on with the clock; different connections share nothing that
/// could be learnt from one and used against another.
pub fn keyed_isn(secret: &[u8; 32], tuple: &FourTuple, now: Time) -> u32 {
    //= RFC 8684 3-4
    //= RFC 9293 MUST-8 MUST-9 SHLD-1 a clock, and a keyed function of the four-tuple
    let clock = (now.as_nanos() / 4_000) as u32;
    clock.wrapping_add(keyed_number(secret, b"isn", tuple))
}

/// The offset of a connection's timestamp clock, which hides the clock of the host (RFC 7323 7).
pub(crate) fn keyed_timestamp_offset(secret: &[u8; 32], tuple: &FourTuple) -> u32 {
    keyed_number(secret, b"tsoffset", tuple)
}

fn keyed_number(secret: &[u8; 32], purpose: &[u8], tuple: &FourTuple) -> u32 {
    let digest = keyed_digest(secret, purpose, tuple, &[]);
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// A keyed function of a four-tuple and further bytes, another one for each purpose.
pub(crate) fn keyed_digest(secret: &[u8; 32], purpose: &[u8], tuple: &FourTuple, further: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    // One secret serves all: the timestamp offset, which the peer sees, must not give the ISN away.
    mac.update(purpose);
    for address in [tuple.src, tuple.dst] {
        match address {
            IpAddr::V4(address) => mac.update(&address.octets()),
            IpAddr::V6(address) => mac.update(&address.octets()),
        }
    }
    mac.update(&tuple.src_port.to_be_bytes());
    mac.update(&tuple.dst_port.to_be_bytes());
    mac.update(further);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> FourTuple {
        FourTuple::new(
            std::net::SocketAddr::from(([10, 0, 0, 1], port)),
            std::net::SocketAddr::from(([10, 0, 0, 2], 80)),
        )
    }

    //= test RFC 9293 MUST-8
    #[test]
    fn ticks_every_four_microseconds() {
        let secret = [7; 32];
        let first = keyed_isn(&secret, &tuple(1), Time::ZERO);
        assert_eq!(keyed_isn(&secret, &tuple(1), Time::from_nanos(3_999)), first);
        assert_eq!(keyed_isn(&secret, &tuple(1), Time::from_nanos(4_000)), first.wrapping_add(1));
        assert_eq!(
            keyed_isn(&secret, &tuple(1), Time::from_nanos(4_000_000_000)),
            first.wrapping_add(1_000_000)
        );
    }

    //= test RFC 8684 3-4
    //= test RFC 9293 SHLD-1
    //= test RFC 9293 MUST-9
    #[test]
    fn depends_on_secret_and_tuple() {
        assert_ne!(keyed_isn(&[7; 32], &tuple(1), Time::ZERO), keyed_isn(&[7; 32], &tuple(2), Time::ZERO));
        assert_ne!(keyed_isn(&[7; 32], &tuple(1), Time::ZERO), keyed_isn(&[8; 32], &tuple(1), Time::ZERO));
        let other = keyed_digest(&[7; 32], b"syncookie", &tuple(1), &[]);
        assert_ne!(keyed_digest(&[7; 32], b"isn", &tuple(1), &[]), other, "another for each purpose");
    }
}
