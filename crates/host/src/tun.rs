//! TUN devices with segmentation offload: `IFF_VNET_HDR` lets whole super-packets through, which is where the
//! speed is (a plain TUN costs about 3 us of CPU per packet, nearly all of it inside the kernel).
//!
//! Source: Linux `include/uapi/linux/if_tun.h` and `virtio_net.h`.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::libc;

/// Bytes of the virtio header before each packet.
pub const VNET_HEADER: usize = 10;

/// Room for the largest super-packet with its virtio header.
pub const BUFFER: usize = 65_536 + VNET_HEADER;

const IFF_TUN: libc::c_short = 0x0001;
const IFF_NO_PI: libc::c_short = 0x1000;
const IFF_VNET_HDR: libc::c_short = 0x4000;
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;

mod ioctl {
    //! TUNSETIFF and TUNSETOFFLOAD.
    #![allow(missing_docs, reason = "the macros make public functions and take no documentation")]
    use nix::libc;

    nix::ioctl_write_ptr_bad!(
        set_iff,
        nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
        libc::ifreq
    );
    nix::ioctl_write_int_bad!(set_offload, nix::request_code_write!(b'T', 208, size_of::<libc::c_uint>()));
}

/// What a device does for us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offload {
    /// One packet at a time, checksums complete, no header before it.
    None,
    /// A virtio header before each packet; checksums may be partial and packets up to 64 KiB.
    Segmentation,
}

/// What a failed read or write says about a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceError {
    /// The kernel's queue is full, or it has no memory now: this packet is lost.
    Full,
    /// The kernel refuses this packet.
    Malformed,
    /// The interface is down. It may come up again.
    Down,
    /// The interface was removed. The descriptor stays useless.
    Removed,
}

impl DeviceError {
    /// Classifies an error of [`Tun::receive`] or [`Tun::send`]; `None` for errors that say nothing about the device.
    ///
    /// Linux `drivers/net/tun.c` answers EIO for an interface that isn't up (write) or no longer registered (read), and
    /// EBADFD once the interface is detached from the descriptor.
    pub fn of(error: &io::Error) -> Option<DeviceError> {
        match error.raw_os_error()? {
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => Some(DeviceError::Full),
            libc::EINVAL => Some(DeviceError::Malformed),
            libc::EIO | libc::ENETDOWN | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENETRESET => {
                Some(DeviceError::Down)
            }
            libc::EBADFD | libc::ENODEV | libc::ENXIO => Some(DeviceError::Removed),
            _ => None,
        }
    }
}

/// A TUN device, not persistent: it is gone when the descriptor is closed.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    offload: Offload,
}

impl Tun {
    /// Makes the device `name` in the calling thread's network namespace; reads and writes don't block.
    ///
    /// # Errors
    /// If /dev/net/tun can't be opened or the name is taken or too long (15 bytes at most).
    pub fn create(name: &str, offload: Offload) -> io::Result<Tun> {
        let context = |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(|error| {
                context("opening /dev/net/tun (is the tun module there, and may you open it?)", error)
            })?;
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("device name `{name}`: 1 to {} bytes are allowed", libc::IFNAMSIZ - 1),
            ));
        }
        // SAFETY: ifreq is plain data for which all zeroes are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let vnet = if offload == Offload::Segmentation { IFF_VNET_HDR } else { 0 };
        request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI | vnet;
        // SAFETY: the descriptor is open, and TUNSETIFF reads one ifreq, which lives across the call.
        unsafe { ioctl::set_iff(file.as_raw_fd(), &request) }
            .map_err(|error| context(&format!("making TUN device `{name}`"), error.into()))?;
        if offload == Offload::Segmentation {
            let features = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
            // SAFETY: TUNSETOFFLOAD takes its argument by value.
            unsafe { ioctl::set_offload(file.as_raw_fd(), features as libc::c_int) }
                .map_err(|error| context(&format!("segmentation offload on `{name}`"), error.into()))?;
        }
        Ok(Tun { file, name: name.to_string(), offload })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does for us.
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Reads one packet (behind its virtio header with [`Offload::Segmentation`]).
    ///
    /// # Errors
    /// `WouldBlock` when there is none; see [`DeviceError`] for others.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Writes one packet, given in pieces (the virtio header first with [`Offload::Segmentation`]).
    ///
    /// # Errors
    /// Those of [`DeviceError`].
    pub fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.file).write_vectored(pieces)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::{BUFFER, DeviceError, Offload, Tun, VNET_HEADER};
    use crate::netns::Namespace;

    /// A namespace with a TUN of the given kind, or the reason why there can't be one here.
    fn device(offload: Offload) -> Result<(Namespace, Tun), String> {
        let namespace = Namespace::new("tun").map_err(|error| error.to_string())?;
        let tun = namespace.run(|| Tun::create("rope0", offload)).map_err(|error| error.to_string())?;
        Ok((namespace, tun))
    }

    fn wait_readable(tun: &Tun) {
        let mut fds = [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(tun), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, 2000_u16).unwrap();
    }

    #[test]
    fn packets_go_out_of_the_namespace_and_back_in() {
        for offload in [Offload::None, Offload::Segmentation] {
            let (namespace, tun) = match device(offload) {
                Ok(made) => made,
                Err(why) => {
                    crate::skip::skipped(why);
                    return;
                }
            };
            namespace.check("ip", &["address", "add", "192.0.2.1/24", "dev", "rope0"]).unwrap();
            namespace.sysctl("net.ipv6.conf.all.disable_ipv6", "1").unwrap();
            namespace.check("ip", &["link", "set", "rope0", "up"]).unwrap();
            let socket = namespace.run(|| std::net::UdpSocket::bind("192.0.2.1:7000")).unwrap();
            socket.send_to(b"strand", "192.0.2.2:7001").unwrap();
            let mut buffer = vec![0; BUFFER];
            let header = if offload == Offload::None { 0 } else { VNET_HEADER };
            let packet = loop {
                wait_readable(&tun);
                let len = tun.receive(&mut buffer).expect("the packet within two seconds");
                if buffer[header] >> 4 == 4 {
                    break &mut buffer[header..len];
                }
            };
            assert!(packet.ends_with(b"strand"));
            // Swap the addresses and ports: with the checksums' sums unchanged, it is a valid answer, unless the
            // UDP checksum was left to us; IPv4 allows none.
            let (source, destination) = (packet[12..16].to_vec(), packet[16..20].to_vec());
            packet[12..16].copy_from_slice(&destination);
            packet[16..20].copy_from_slice(&source);
            let (from, to) = (packet[20..22].to_vec(), packet[22..24].to_vec());
            packet[20..22].copy_from_slice(&to);
            packet[22..24].copy_from_slice(&from);
            packet[26..28].copy_from_slice(&[0, 0]);
            let vnet = [0; VNET_HEADER];
            tun.send(&[IoSlice::new(&vnet[..header]), IoSlice::new(packet)]).unwrap();
            socket.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
            let mut answer = [0; 16];
            let (len, from) = socket.recv_from(&mut answer).unwrap();
            assert_eq!((&answer[..len], from.to_string()), (&b"strand"[..], "192.0.2.2:7001".to_string()));
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_with_its_limit() {
        match Tun::create("a-name-of-far-too-many-bytes", Offload::None) {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                assert!(error.to_string().contains("1 to 15 bytes"), "{error}");
            }
            Err(error) => crate::skip::skipped(error),
            Ok(_) => panic!("the name was taken"),
        }
    }

    #[test]
    fn errors_tell_an_interface_that_is_down_from_one_that_was_removed() {
        let (namespace, tun) = match device(Offload::None) {
            Ok(made) => made,
            Err(why) => {
                crate::skip::skipped(why);
                return;
            }
        };
        // A minimal IPv4 header; the rest has no meaning.
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[3] = 20;
        let send = || tun.send(&[IoSlice::new(&packet)]).map_err(|error| DeviceError::of(&error));
        assert_eq!(send(), Err(Some(DeviceError::Down)));
        namespace.check("ip", &["link", "set", "rope0", "up"]).unwrap();
        assert_eq!(send(), Ok(20));
        namespace.check("ip", &["link", "set", "rope0", "down"]).unwrap();
        assert_eq!(send(), Err(Some(DeviceError::Down)));
        // The kernel may have sent something of its own, such as a multicast report.
        let empty = loop {
            match tun.receive(&mut [0; 2000]) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(DeviceError::of(&empty), Some(DeviceError::Full));
        namespace.check("ip", &["link", "delete", "rope0"]).unwrap();
        assert_eq!(send(), Err(Some(DeviceError::Removed)));
        let gone = tun.receive(&mut [0; 100]).expect_err("no device");
        assert_eq!(DeviceError::of(&gone), Some(DeviceError::Removed));
    }
}
