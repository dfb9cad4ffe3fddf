//! What calls on an endpoint fail with.

use std::net::IpAddr;

use crate::registry::SpecError;

/// Why an option of a connection can't be set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// There is no such connection (any more).
    #[error("no such connection")]
    Unknown,
    /// The name of a scheduler or a congestion control, or its parameters.
    #[error(transparent)]
    Algorithm(#[from] SpecError),
}

/// Why a connection can't be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The endpoint's limit is reached.
    #[error("too many connections")]
    TooMany,
    /// The local port is 0 and none is free, or the four-tuple is in use.
    #[error("the address and port are in use")]
    InUse,
    /// Local and remote addresses are of different families.
    #[error("local and remote address are of different families")]
    Families,
    /// An address that no single host has: unspecified, broadcast or multicast.
    #[error("{0} is not the address of a host")]
    NotAHost(IpAddr),
}
