//! The kernel's connection tracking: flows that it is to forget.

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// `IPCTNL_MSG_CT_DELETE` of `NFNL_SUBSYS_CTNETLINK` (linux/netfilter/nfnetlink_conntrack.h).
const DELETE: u16 = 1 << 8 | 2;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const FLAGS: u16 = 1 | 4;
/// Attributes of nfnetlink_conntrack.h.
const CTA_MARK: u16 = 8;
const CTA_MARK_MASK: u16 = 21;

/// The message that has flows of a mark forgotten.
fn message(mark: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The length of all, the kind, flags, a number, and whose answer it is.
    bytes.extend(36u32.to_ne_bytes());
    bytes.extend(DELETE.to_ne_bytes());
    bytes.extend(FLAGS.to_ne_bytes());
    bytes.extend([0; 8]);
    // Of all families.
    bytes.extend([0; 4]);
    for (kind, value) in [(CTA_MARK, mark), (CTA_MARK_MASK, u32::MAX)] {
        bytes.extend(8u16.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value.to_be_bytes());
    }
    bytes
}

/// Has the kernel forget the flows of a mark: their next packets are those of new ones, which get another
/// link and its address.
///
/// # Errors
/// If the kernel can't be asked, or refuses.
pub(crate) fn forget_marked(mark: u32) -> io::Result<()> {
    let protocol = SockProtocol::NetlinkNetFilter;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    send(socket.as_raw_fd(), &message(mark), MsgFlags::empty())?;
    let mut answer = [0; 256];
    let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // NLMSG_ERROR: the header, then the error's number, negative; 0 acknowledges.
    let error = answer[..len].get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match error {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer that is too short")),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_is_as_long_as_it_says() {
        let bytes = super::message(0x726f_7070);
        assert_eq!((bytes.len(), &bytes[..4]), (36, &36u32.to_ne_bytes()[..]));
        assert_eq!(&bytes[24..28], [0x72, 0x6f, 0x70, 0x70]);
    }
}
