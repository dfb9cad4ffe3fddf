//! Notices changes of interfaces, addresses and routes.
//!
//! The kernel's netlink messages (`rtnetlink(7)`) are only a signal to look again with `ip`, which sets everything up as
//! well: so one tool reads and writes, and no message is parsed here.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use tokio::io::unix::AsyncFd;

/// RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR and RTMGRP_IPV6_ROUTE (linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/// A subscription to changes.
#[derive(Debug)]
pub(super) struct Changes(AsyncFd<OwnedFd>);

impl Changes {
    /// Subscribes, in the calling thread's network namespace.
    #[expect(deprecated, reason = "its successor is unsafe; the descriptor is owned and never replaced")]
    pub fn subscribe() -> io::Result<Changes> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(Changes(AsyncFd::new(socket)?))
    }

    /// Waits for a change, and drops all messages that have come by then.
    pub async fn next(&self) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        let mut buffer = [0; 8192];
        loop {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                // Messages were lost, which says that there was a change too.
                Ok(_) | Err(nix::Error::ENOBUFS) => {}
                Err(nix::Error::EAGAIN) => {
                    ready.clear_ready();
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
