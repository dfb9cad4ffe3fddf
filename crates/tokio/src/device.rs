//! Devices: what carries IP packets between the engine and the rest of the world.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use ropewalk_os::tun::{BUFFER, Tun};
use ropewalk_wire::pool::Pool;
use tokio::io::unix::AsyncFd;

pub use ropewalk_os::tun::{DeviceError, Offload};

/// A device that carries IP packets, or one queue of it.
///
/// With [`Offload::Segmentation`] each packet has a virtio header before it
/// ([`VirtioNetHeader`](ropewalk_wire::virtio::VirtioNetHeader)), may be as long as 64 KiB, and its checksum
/// may be left to whoever takes it. With [`Offload::None`] a packet is as it is on the wire.
pub trait PacketDevice: Send + 'static {
    /// What it does for the engine.
    fn offload(&self) -> Offload;

    /// Receives one packet. `pool` is memory that may be used for it.
    ///
    /// # Errors
    /// Those that [`DeviceError::of`] knows mean that the path is down or gone; after any other the device
    /// isn't asked again.
    fn poll_receive(&mut self, cx: &mut Context<'_>, pool: &mut Pool) -> Poll<io::Result<Bytes>>;

    /// Receives one packet that is there already, where it can be done without a task to be woken.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none; any other is seen by `poll_receive`, too.
    fn try_receive(&mut self, _pool: &mut Pool) -> io::Result<Bytes> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Sends one packet, given in pieces. It never waits: a packet that isn't taken is lost, as on any
    /// network.
    ///
    /// # Errors
    /// As [`poll_receive`](Self::poll_receive).
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()>;
}

impl PacketDevice for Box<dyn PacketDevice> {
    fn offload(&self) -> Offload {
        (**self).offload()
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, pool: &mut Pool) -> Poll<io::Result<Bytes>> {
        (**self).poll_receive(cx, pool)
    }

    fn try_receive(&mut self, pool: &mut Pool) -> io::Result<Bytes> {
        (**self).try_receive(pool)
    }

    fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        (**self).send(pieces)
    }
}

/// A TUN device, or one queue of it.
#[derive(Debug)]
pub struct TunDevice {
    tun: Registration,
}

/// A descriptor is registered with the runtime that polls it first.
#[derive(Debug)]
enum Registration {
    New(Tun),
    Registered(AsyncFd<Tun>),
    Failed,
}

impl TunDevice {
    /// Wraps a device.
    pub fn new(tun: Tun) -> TunDevice {
        TunDevice { tun: Registration::New(tun) }
    }

    #[expect(
        deprecated,
        reason = "its successor is unsafe; a `Tun` owns its one descriptor for as long as it lives"
    )]
    fn registered(&mut self) -> io::Result<&AsyncFd<Tun>> {
        if let Registration::New(_) = self.tun
            && let Registration::New(tun) = std::mem::replace(&mut self.tun, Registration::Failed)
        {
            self.tun = Registration::Registered(AsyncFd::new(tun)?);
        }
        match &self.tun {
            Registration::Registered(registered) => Ok(registered),
            _ => Err(io::Error::other("the device couldn't be registered with the runtime")),
        }
    }
}

impl From<Tun> for TunDevice {
    fn from(tun: Tun) -> TunDevice {
        TunDevice::new(tun)
    }
}

impl PacketDevice for TunDevice {
    fn offload(&self) -> Offload {
        match &self.tun {
            Registration::New(tun) => tun.offload(),
            Registration::Registered(registered) => registered.get_ref().offload(),
            Registration::Failed => Offload::None,
        }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, pool: &mut Pool) -> Poll<io::Result<Bytes>> {
        let registered = self.registered()?;
        loop {
            let mut ready = ready!(registered.poll_read_ready(cx))?;
            let buffer = pool.room(BUFFER);
            buffer.clear();
            match ready.try_io(|tun| tun.get_ref().receive_to(buffer)) {
                Ok(Ok(_)) => return Poll::Ready(Ok(buffer.split().freeze())),
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }

    fn try_receive(&mut self, pool: &mut Pool) -> io::Result<Bytes> {
        let Registration::Registered(registered) = &self.tun else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let buffer = pool.room(BUFFER);
        buffer.clear();
        registered.get_ref().receive_to(buffer)?;
        Ok(buffer.split().freeze())
    }

    fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        match &self.tun {
            Registration::New(tun) => tun.send(pieces).map(drop),
            Registration::Registered(registered) => registered.get_ref().send(pieces).map(drop),
            Registration::Failed => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
