//! Sockets of the kernel's own Multipath TCP, in a namespace, and what the kernel says about them.
//!
//! Source: Linux `include/uapi/linux/mptcp.h`; RFC 8684's state is told by `getsockopt(SOL_MPTCP, MPTCP_INFO)`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use nix::libc;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::netns::Namespace;

const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
const FALLBACK: u32 = 1;

/// Settings of a kernel socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketConfig<'a> {
    /// Multipath TCP, or plain TCP.
    pub multipath: bool,
    /// The congestion control by the kernel's name: never left to the system's default.
    pub congestion: &'a str,
    /// Send buffer in bytes; `None` lets the kernel tune it.
    pub send_buffer: Option<usize>,
    /// Receive buffer in bytes; `None` lets the kernel tune it.
    pub receive_buffer: Option<usize>,
}

impl Default for SocketConfig<'_> {
    fn default() -> Self {
        SocketConfig { multipath: true, congestion: "cubic", send_buffer: None, receive_buffer: None }
    }
}

fn socket(v6: bool, config: &SocketConfig<'_>) -> io::Result<Socket> {
    let context = |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let protocol = if config.multipath { Protocol::MPTCP } else { Protocol::TCP };
    let socket = Socket::new(domain, Type::STREAM, Some(protocol))
        .map_err(|error| context("a Multipath TCP socket (is net.mptcp.enabled 1?)", error))?;
    socket
        .set_tcp_congestion(config.congestion.as_bytes())
        .map_err(|error| context(&format!("congestion control `{}`", config.congestion), error))?;
    if let Some(bytes) = config.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = config.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(socket)
}

/// A listening socket in `namespace`.
///
/// # Errors
/// What the kernel refuses.
pub fn listen(namespace: &Namespace, address: SocketAddr, config: &SocketConfig<'_>) -> io::Result<Socket> {
    namespace.run(|| {
        let socket = socket(address.is_ipv6(), config)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(address))?;
        socket.listen(1024)?;
        Ok(socket)
    })
}

/// A connected socket in `namespace`, from `local` if it is given.
///
/// # Errors
/// What the kernel refuses, or the peer.
pub fn connect(
    namespace: &Namespace,
    local: Option<IpAddr>,
    remote: SocketAddr,
    config: &SocketConfig<'_>,
) -> io::Result<Socket> {
    namespace.run(|| connect_here(local, remote, config))
}

/// A connected socket in the calling thread's namespace.
///
/// # Errors
/// What the kernel refuses, or the peer.
pub fn connect_here(
    local: Option<IpAddr>,
    remote: SocketAddr,
    config: &SocketConfig<'_>,
) -> io::Result<Socket> {
    let socket = socket(remote.is_ipv6(), config)?;
    if let Some(local) = local {
        socket.bind(&SockAddr::from(SocketAddr::new(local, 0)))?;
    }
    socket.connect(&SockAddr::from(remote))?;
    Ok(socket)
}

/// What the kernel says of a Multipath TCP socket (`struct mptcp_info`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MptcpInfo {
    /// Subflows besides the first.
    pub extra_subflows: u8,
    /// Addresses of the peer's that were announced and accepted.
    pub add_addr_accepted: u8,
    /// Addresses announced by us.
    pub add_addr_signal: u8,
    /// Whether the connection is plain TCP.
    pub fallback: bool,
    /// Whether checksums are in use.
    pub checksum: bool,
    /// Bytes retransmitted at data level.
    pub bytes_retrans: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
}

/// Asks the kernel; `None` when it says that this is plain TCP (a fallback completed at accept gives a TCP socket).
///
/// # Errors
/// Any other refusal.
pub fn info(socket: &Socket) -> io::Result<Option<MptcpInfo>> {
    let mut bytes = [0u8; 256];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `len` bytes into `bytes`, which lives across
    // the call.
    let status = unsafe {
        libc::getsockopt(socket.as_raw_fd(), SOL_MPTCP, MPTCP_INFO, bytes.as_mut_ptr().cast(), &raw mut len)
    };
    if status != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT) => Ok(None),
            _ => Err(error),
        };
    }
    let u32_at = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let u64_at = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    };
    Ok(Some(MptcpInfo {
        extra_subflows: bytes[0],
        add_addr_signal: bytes[1],
        add_addr_accepted: bytes[2],
        fallback: u32_at(8) & FALLBACK != 0,
        checksum: bytes[42] != 0,
        bytes_retrans: u64_at(48),
        bytes_sent: u64_at(56),
        bytes_received: u64_at(64),
    }))
}
