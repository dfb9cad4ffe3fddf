//! UDP datagrams over a stream between the proxy and its gateway: SOCKS5's UDP ASSOCIATE on one side
//! ([`associate`]), sockets on the other ([`relay`]), frames between ([`frame`]).
//!
//! Each association has a stream of its own, so that programs don't wait for each other's lost packets.
//! Within one, a packet that is lost delays what follows it.

pub mod associate;
pub mod frame;
pub mod relay;
