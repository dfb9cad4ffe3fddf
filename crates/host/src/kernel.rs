//! Sockets of the kernel's own Multipath TCP, in a namespace, and what the kernel says about them.
//!
//! Source: Linux `include/uapi/linux/mptcp.h`; RFC 8684's state comes from
//! `getsockopt(SOL_MPTCP, MPTCP_INFO)`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ropewalk_engine::congestion::DEFAULT_NAME;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::netns::Namespace;

const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
const MPTCP_TCPINFO: libc::c_int = 2;
const FALLBACK: u32 = 1;
/// Most subflows that are asked about.
const MOST_SUBFLOWS: usize = 16;
/// The part of `struct tcp_info` that is read, and `struct mptcp_subflow_data` before an array of them.
const TCP_INFO_LEN: usize = 136;
const SUBFLOW_DATA_LEN: usize = 16;

/// Settings of a kernel socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketConfig<'a> {
    /// Multipath TCP, or plain TCP.
    pub multipath: bool,
    /// The congestion control by the kernel's name; `None`: the system's default, which no comparison should
    /// rest on.
    pub congestion: Option<&'a str>,
    /// Send buffer in bytes; `None` lets the kernel tune it.
    pub send_buffer: Option<usize>,
    /// Receive buffer in bytes; `None` lets the kernel tune it.
    pub receive_buffer: Option<usize>,
    /// How long `connect` may take; `None` leaves it to the kernel, which tries for two minutes.
    pub connect_timeout: Option<Duration>,
}

impl Default for SocketConfig<'_> {
    fn default() -> Self {
        SocketConfig {
            multipath: true,
            congestion: Some(DEFAULT_NAME),
            send_buffer: None,
            receive_buffer: None,
            connect_timeout: None,
        }
    }
}

/// A socket in the calling thread's namespace, neither bound nor connected.
///
/// # Errors
/// What the kernel refuses.
pub fn socket(v6: bool, config: &SocketConfig<'_>) -> io::Result<Socket> {
    let context = |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let protocol = if config.multipath { Protocol::MPTCP } else { Protocol::TCP };
    let socket = Socket::new(domain, Type::STREAM, Some(protocol))
        .map_err(|error| context("a Multipath TCP socket (is net.mptcp.enabled 1?)", error))?;
    if let Some(name) = config.congestion {
        // A Multipath TCP socket without subflows takes any name and forgets it: plain TCP knows better.
        Socket::new(domain, Type::STREAM, Some(Protocol::TCP))
            .and_then(|probe| probe.set_tcp_congestion(name.as_bytes()))
            .and_then(|()| socket.set_tcp_congestion(name.as_bytes()))
            .map_err(|error| context(&format!("congestion control `{name}`"), error))?;
    }
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
    let remote = SockAddr::from(remote);
    match config.connect_timeout {
        Some(patience) => socket.connect_timeout(&remote, patience)?,
        None => socket.connect(&remote)?,
    }
    Ok(socket)
}

/// The next connection of a listener's, if one comes in time: `accept` of a Multipath TCP socket heeds no
/// timeout.
///
/// # Errors
/// If none comes, or the kernel refuses.
pub fn accept(listener: &Socket, patience: Duration) -> io::Result<Socket> {
    let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    if poll(&mut ready, timeout)? == 0 {
        let message = format!("no connection came within {:.1} s", patience.as_secs_f64());
        return Err(io::Error::new(io::ErrorKind::TimedOut, message));
    }
    Ok(listener.accept()?.0)
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

/// Asks the kernel; `None` when it says that this is plain TCP (a fallback completed at accept gives a TCP
/// socket).
///
/// # Errors
/// Any other refusal.
pub fn info(socket: &Socket) -> io::Result<Option<MptcpInfo>> {
    let mut bytes = [0u8; 256];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `len` bytes into `bytes`, which lives
    // across the call.
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

/// Bytes that a socket has taken and the peer hasn't acknowledged, at the connection's level (`SIOCOUTQ`).
///
/// # Errors
/// If the kernel doesn't say.
pub fn unacknowledged(socket: &Socket) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the kernel writes one int into `bytes`, which lives across the
    // call.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.max(0) as u64)
}

/// The counters of the calling thread's namespace, as `nstat -asz` names them.
///
/// # Errors
/// If /proc can't be read.
pub fn counters() -> io::Result<Vec<(String, u64)>> {
    let mut text = std::fs::read_to_string("/proc/thread-self/net/netstat")?;
    text += &std::fs::read_to_string("/proc/thread-self/net/snmp")?;
    let lines: Vec<_> = text.lines().collect();
    let mut counters = Vec::new();
    // Names and values, line by line in turn.
    for pair in lines.chunks_exact(2) {
        let (Some((group, names)), Some((_, values))) = (pair[0].split_once(": "), pair[1].split_once(": "))
        else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            if let Ok(value) = value.parse() {
                counters.push((format!("{group}{name}"), value));
            }
        }
    }
    Ok(counters)
}

/// What the kernel says of one subflow, or of a TCP connection (`struct tcp_info`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// Smoothed round-trip time, microseconds.
    pub srtt_us: u32,
    /// Segments sent again so far.
    pub retransmitted: u32,
    /// Bytes that the peer acknowledged.
    pub acknowledged: u64,
}

impl TcpInfo {
    /// From the struct's bytes.
    fn parse(bytes: &[u8]) -> TcpInfo {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_ne_bytes(word)
        };
        let mut long = [0; 8];
        long.copy_from_slice(&bytes[120..128]);
        TcpInfo { srtt_us: word(68), retransmitted: word(100), acknowledged: u64::from_ne_bytes(long) }
    }
}

/// Asks the kernel about every subflow of a socket; a TCP connection has one.
///
/// # Errors
/// What it refuses.
pub fn tcp_infos(socket: &Socket) -> io::Result<Vec<TcpInfo>> {
    let mut bytes = [0u8; SUBFLOW_DATA_LEN + MOST_SUBFLOWS * TCP_INFO_LEN];
    // size_subflow_data and size_user: how long we think that the structs are.
    bytes[..4].copy_from_slice(&(SUBFLOW_DATA_LEN as u32).to_ne_bytes());
    bytes[12..16].copy_from_slice(&(TCP_INFO_LEN as u32).to_ne_bytes());
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `len` bytes into `bytes`, which lives
    // across the call.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_MPTCP,
            MPTCP_TCPINFO,
            bytes.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if status == 0 {
        let count = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
        let (_, array) = bytes.split_at(SUBFLOW_DATA_LEN);
        return Ok(array.chunks_exact(TCP_INFO_LEN).take(count).map(TcpInfo::parse).collect());
    }
    let error = io::Error::last_os_error();
    if !matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT)) {
        return Err(error);
    }
    let mut bytes = [0u8; TCP_INFO_LEN];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: as above.
    let status = unsafe {
        let to = bytes.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut len)
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(vec![TcpInfo::parse(&bytes)])
}
