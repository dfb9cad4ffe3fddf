//! The DSCP that a TCP connection's peer sends.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;

/// Room for what the kernel tells of a connection's last handshake segment.
const ROOM: usize = 256;

/// The Diffserv code point (RFC 2474), 0 to 63, of the segment that completed an accepted connection's
/// handshake. `IP_PKTOPTIONS` and `IPV6_2292PKTOPTIONS` tell it.
///
/// # Errors
/// If the kernel refuses.
pub fn received(socket: BorrowedFd<'_>, v6: bool) -> io::Result<u8> {
    let (level, enable, options, kind) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, libc::IPV6_2292PKTOPTIONS, libc::IPV6_TCLASS)
    } else {
        (libc::IPPROTO_IP, libc::IP_RECVTOS, libc::IP_PKTOPTIONS, libc::IP_TOS)
    };
    let on: libc::c_int = 1;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and `on` is an integer of `size` bytes.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, enable, (&raw const on).cast(), size) };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    // Aligned as control messages are.
    let mut buffer = [0u64; ROOM / 8];
    let mut len = ROOM as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which the buffer has.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, options, buffer.as_mut_ptr().cast(), &raw mut len)
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).take(len as usize).collect();
    let class = traffic_class(&bytes, level, kind).ok_or(io::ErrorKind::NotFound)?;
    Ok(class >> 2)
}

/// The traffic class among control messages (`cmsg(3)`): each a length, a level, a type, and data, aligned to
/// a word.
fn traffic_class(mut bytes: &[u8], level: i32, kind: i32) -> Option<u8> {
    const WORD: usize = size_of::<usize>();
    const HEADER: usize = WORD + 8;
    while bytes.len() >= HEADER {
        let number = |at: usize| Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let len = usize::from_ne_bytes(bytes[..WORD].try_into().ok()?);
        if number(WORD)? == level && number(WORD + 4)? == kind {
            return number(HEADER).map(|value| value as u8);
        }
        bytes = bytes.get(len.max(HEADER).next_multiple_of(WORD)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use nix::sys::socket::{setsockopt, sockopt};

    #[test]
    fn a_connection_tells_its_peers_dscp() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A host may have no IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let v6 = address.starts_with('[');
            for dscp in [46u8, 0] {
                let local = listener.local_addr().unwrap();
                let family = if v6 {
                    nix::sys::socket::AddressFamily::Inet6
                } else {
                    nix::sys::socket::AddressFamily::Inet
                };
                let socket = nix::sys::socket::socket(
                    family,
                    nix::sys::socket::SockType::Stream,
                    nix::sys::socket::SockFlag::empty(),
                    None,
                )
                .unwrap();
                let class = i32::from(dscp) << 2;
                if v6 {
                    setsockopt(&socket, sockopt::Ipv6TClass, &class).unwrap();
                } else {
                    setsockopt(&socket, sockopt::Ipv4Tos, &class).unwrap();
                }
                let to = nix::sys::socket::SockaddrStorage::from(local);
                nix::sys::socket::connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &to).unwrap();
                let _client = TcpStream::from(socket);
                let (accepted, _) = listener.accept().unwrap();
                assert_eq!(super::received(accepted.as_fd(), v6).unwrap(), dscp, "{address}");
            }
        }
    }
}
