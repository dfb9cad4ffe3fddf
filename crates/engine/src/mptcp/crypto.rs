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
    //= RFC 8684 3.1-11
    /// The 64 least significant bits of SHA-256(key): the initial data sequence number. The first byte of
    /// data has the number after it.
    pub idsn: u64,
}

impl Key {
    /// Derives token and IDSN.
    pub fn new(key: u64) -> Self {
        //= RFC 8684 3.2-2
        //= RFC 8684 3.1-10
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

//= RFC 8684 3.4.1-1
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
