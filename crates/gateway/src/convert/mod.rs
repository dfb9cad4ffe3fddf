//! 0-RTT TCP Convert (RFC 8803): a client asks the gateway, in the first bytes of a connection, for a
//! connection to a server. What follows is carried.
//!
//! [`message`] is the codec, [`server`] the gateway's side, [`client`] the proxy's. The gateway connects only
//! to its [`Destinations`], and only for clients that know its [`Cookie`].

pub mod client;
mod cookie;
mod destinations;
pub mod message;
pub mod server;

pub use self::cookie::{Cookie, CookieError};
pub use self::destinations::{Current, Destination, DestinationError, Destinations};
pub use self::server::Converter;
