//! Errors that aren't the engine's. Why a connection was lost says the engine's
//! [`CloseReason`](ropewalk_engine::mptcp::CloseReason), which is the source of the [`io::Error`] that a
//! stream returns.

use std::io;

use ropewalk_engine::endpoint::{ConnectError, OptionError};
use ropewalk_engine::registry::SpecError;

/// Everything after the drivers' end.
pub(crate) fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the network's drivers have ended with their runtime")
}

pub(crate) fn unknown_algorithm(error: SpecError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

pub(crate) fn option(error: OptionError) -> io::Error {
    let kind = match error {
        OptionError::Unknown => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}

pub(crate) fn opening(error: ConnectError) -> io::Error {
    let kind = match error {
        ConnectError::InUse => io::ErrorKind::AddrInUse,
        ConnectError::TooMany => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}
