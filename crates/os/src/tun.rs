//! TUN devices with segmentation offload: `IFF_VNET_HDR` lets whole super-packets through, which is where the
//! speed is (a plain TUN costs about 3 us of CPU per packet, nearly all of it inside the kernel).
//!
//! Source: Linux `include/uapi/linux/if_tun.h` and `virtio_net.h`.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use bytes::BytesMut;
use nix::libc;

/// Bytes of the virtio header before each packet.
pub const VNET_HEADER: usize = 10;

/// Room for the largest super-packet with its virtio header.
pub const BUFFER: usize = 65_536 + VNET_HEADER;

const IFF_TUN: libc::c_short = 0x0001;
const IFF_NO_PI: libc::c_short = 0x1000;
const IFF_MULTI_QUEUE: libc::c_short = 0x0100;
const IFF_VNET_HDR: libc::c_short = 0x4000;
/// The device must be new (bit 15).
const IFF_TUN_EXCL: libc::c_short = libc::c_short::MIN;
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
    /// Classifies an error of [`Tun::receive`] or [`Tun::send`]; `None` for errors that say nothing about the
    /// device.
    ///
    /// Linux `drivers/net/tun.c` answers EIO for an interface that isn't up (write) or no longer registered
    /// (read), and EBADFD once the interface is detached from the descriptor.
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

/// A TUN device, or one queue of it. It isn't persistent: it is gone when the descriptor is closed.
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
        Tun::open(name, offload, IFF_TUN_EXCL)
    }

    /// As [`create`](Self::create), with `count` queues, so that several threads can serve the device. The
    /// kernel spreads connections over the queues by a hash, and sends a connection's packets to the queue
    /// that last sent one for it. The device is gone when the last queue is closed.
    ///
    /// # Errors
    /// Those of [`create`](Self::create); a kernel takes 256 queues at most.
    pub fn create_queues(name: &str, offload: Offload, count: usize) -> io::Result<Vec<Tun>> {
        if count <= 1 {
            return Ok(vec![Tun::create(name, offload)?]);
        }
        // Without the flag the first would be one more queue of another process's device.
        let first = Tun::open(name, offload, IFF_MULTI_QUEUE | IFF_TUN_EXCL);
        let more = (1..count).map(|_| Tun::open(name, offload, IFF_MULTI_QUEUE));
        std::iter::once(first).chain(more).collect()
    }

    fn open(name: &str, offload: Offload, flags: libc::c_short) -> io::Result<Tun> {
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
        request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI | vnet | flags;
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

    /// As [`receive`](Self::receive), to the end of a buffer. Its spare capacity needn't be initialised,
    /// which saves filling it with zeros for each packet.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_to(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        let room = buffer.spare_capacity_mut();
        // SAFETY: the descriptor is open, and at most `room.len()` bytes are written to `room`.
        let read = unsafe { libc::read(self.file.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
        let len = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: these bytes of the spare capacity were just written.
        unsafe { buffer.set_len(buffer.len() + len) };
        Ok(len)
    }

    /// Writes one packet, given in pieces (the virtio header first with [`Offload::Segmentation`]).
    ///
    /// # Errors
    /// Those of [`DeviceError`].
    pub fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.file).write_vectored(pieces)
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Brings the device up in the calling thread's network namespace, and gives the kernel's end of it an
/// address. It is done by `ip`, the tool with which one would do the same by hand.
///
/// # Errors
/// If `ip` can't be run, or refuses: the message has the command and what it said.
pub fn bring_up(name: &str, mtu: u32, kernel: IpAddr, prefix: u8) -> io::Result<()> {
    // The kernel has no link-local address to talk from, where there is IPv6 at all.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode"), "1");
    let nodad = if kernel.is_ipv6() { " nodad" } else { "" };
    ip(&format!("link set dev {name} mtu {mtu} txqueuelen 10000 up"))?;
    ip(&format!("address add {kernel}/{prefix} dev {name}{nodad}"))
}

fn ip(line: &str) -> io::Result<()> {
    let output = Command::new("ip")
        .args(line.split_whitespace())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("ip: {error}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("`ip {line}`: {}", text.trim())));
    }
    Ok(())
}
