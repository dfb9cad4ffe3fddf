//! Keys, tokens, initial data sequence numbers and HMACs (RFC 8684 3.1, 3.2, 3.4.1): SHA-256 and
//! HMAC-SHA256 (RFC 6234, RFC 2104).

use std::net::IpAddr;

use hmac::{Hmac, KeyInit, Mac};
use ropewalk_wire::AddressId;
use sha2::{Digest, Sha256};

/// What follows from one side's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Key {
    /// The key itself, as in MP_CAPABLE.
    pub key: u64,
    /// The 32 most significant bits of SHA-256(key): names the connection in MP_JOIN.
    pub token: u32,
    //= RFC 8684 3.1-b
    /// The 64 least significant bits of SHA-256(key): the initial data sequence number. The first byte of
    /// data has the number after it.
    pub idsn: u64,
}

impl Key {
    /// Derives token and IDSN.
    pub fn new(key: u64) -> Self {
        //= RFC 8684 3.1-18
        //= RFC 8684 3.1-19 3.1-20 3.1-21 3.1-30
        let hash = Sha256::digest(key.to_be_bytes());
        let token = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
        let mut low = [0u8; 8];
        low.copy_from_slice(&hash[24..32]);
        Key { key, token, idsn: u64::from_be_bytes(low) }
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC takes a key of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// The HMAC of MP_JOIN (RFC 8684 3.2): key = the sender's key then the receiver's, message = the sender's
/// nonce then the receiver's.
pub fn join_hmac(sender_key: u64, receiver_key: u64, sender_nonce: u32, receiver_nonce: u32) -> [u8; 32] {
    let mut key = [0u8; 16];
    key[..8].copy_from_slice(&sender_key.to_be_bytes());
    key[8..].copy_from_slice(&receiver_key.to_be_bytes());
    hmac(&key, &[&sender_nonce.to_be_bytes(), &receiver_nonce.to_be_bytes()])
}

/// The leftmost 64 bits, as MP_JOIN's SYN/ACK carries them.
pub fn leftmost_64(hmac: &[u8; 32]) -> u64 {
    let mut bytes = [0u8; 8];
    bytes.copy_from_slice(&hmac[..8]);
    u64::from_be_bytes(bytes)
}

/// The leftmost 160 bits, as MP_JOIN's third ACK carries them.
pub fn leftmost_160(hmac: &[u8; 32]) -> [u8; 20] {
    let mut bytes = [0u8; 20];
    bytes.copy_from_slice(&hmac[..20]);
    bytes
}

//= RFC 8684 3.4.1-a
/// The rightmost 64 bits of the HMAC of ADD_ADDR (RFC 8684 3.4.1): key = the announcer's key then the
/// other's, message = address id, address, port (0 where none is given).
pub fn add_addr_hmac(
    sender_key: u64,
    receiver_key: u64,
    id: AddressId,
    address: IpAddr,
    port: Option<u16>,
) -> u64 {
    let mut key = [0u8; 16];
    key[..8].copy_from_slice(&sender_key.to_be_bytes());
    key[8..].copy_from_slice(&receiver_key.to_be_bytes());
    let port = port.unwrap_or(0).to_be_bytes();
    let mac = match address {
        IpAddr::V4(v4) => hmac(&key, &[&[id], &v4.octets(), &port]),
        IpAddr::V6(v6) => hmac(&key, &[&[id], &v6.octets(), &port]),
    };
    let mut bytes = [0u8; 8];
    bytes.copy_from_slice(&mac[24..]);
    u64::from_be_bytes(bytes)
}

/// Expected values were computed with Python's `hashlib` and `hmac`, which share no code with the crates used
/// here: `sha256(key.to_bytes(8, "big"))`, and `hmac.new(both keys, message, sha256)`.
#[cfg(test)]
mod tests {
    use super::*;

    const OURS: u64 = 0x0123_4567_89ab_cdef;
    const THEIRS: u64 = 0xfedc_ba98_7654_3210;

    //= test RFC 8684 3.1-18 3.1-19 3.1-20 3.1-21 3.1-30
    #[test]
    fn token_and_idsn_are_the_two_ends_of_the_keys_hash() {
        for (key, token, idsn) in [
            (0x0706_0504_0302_0100, 0x033f_c8b9, 0x4c63_560d_71b8_a821),
            (0, 0xaf55_70f5, 0xe5b2_328d_e0e8_3dfc),
            (u64::MAX, 0x12a3_ae44, 0x57fb_595b_bbac_f0ca),
            (OURS, 0x55c5_3f5d, 0x5707_62cd_38be_9818),
        ] {
            assert_eq!(Key::new(key), Key { key, token, idsn });
        }
    }

    #[test]
    fn a_joins_hmac_takes_the_senders_key_and_nonce_first() {
        let hash = join_hmac(OURS, THEIRS, 0x1122_3344, 0x5566_7788);
        assert_eq!(leftmost_64(&hash), 0xd8b5_e46b_7a78_2e79);
        let words: Vec<_> = leftmost_160(&hash)
            .chunks_exact(4)
            .map(|word| u32::from_be_bytes(word.try_into().expect("four bytes")))
            .collect();
        assert_eq!(words, [0xd8b5_e46b, 0x7a78_2e79, 0xd3ec_fd78, 0x3077_51df, 0x993e_222b]);
        let answer = join_hmac(THEIRS, OURS, 0x5566_7788, 0x1122_3344);
        assert_eq!(leftmost_64(&answer), 0x0d44_dc5f_5551_21b7);
    }

    //= test RFC 8684 3.4.1-a
    #[test]
    fn an_announcements_hmac_covers_id_address_and_port() {
        for (id, address, port, hmac) in [
            (1, "192.0.2.1", None, 0x7faa_8ea2_6898_8972),
            (1, "192.0.2.1", Some(8080), 0x248e_e85c_0990_a985),
            (7, "2001:db8::1", None, 0x4794_6eb5_5e64_5431),
            (255, "2001:db8::1", Some(443), 0x8888_9690_ecae_56d7),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(add_addr_hmac(OURS, THEIRS, id, address, port), hmac, "{id} {address} {port:?}");
        }
    }
}
