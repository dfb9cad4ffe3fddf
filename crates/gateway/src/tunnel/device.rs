//! The TUN devices of both ends: one packet at a time.

use std::io::{self, IoSlice};

use bytes::{Bytes, BytesMut};
use ropewalk_os::tun::{DeviceError, Offload, Tun};
use tokio::io::unix::AsyncFd;

/// Room for a packet; the devices' MTU is smaller.
const ROOM: usize = 2048;

/// A device.
#[derive(Debug)]
pub(crate) struct Device(AsyncFd<Tun>);

impl Device {
    #[expect(
        deprecated,
        reason = "its successor is unsafe; a `Tun` owns its one descriptor for as long as it lives"
    )]
    pub fn create(name: &str) -> io::Result<Device> {
        Ok(Device(AsyncFd::new(Tun::create(name, Offload::None)?)?))
    }

    /// Waits for packets, and takes up to `most` of them.
    pub async fn receive(&self, packets: &mut Vec<Bytes>, most: usize) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut buffer = BytesMut::with_capacity(ROOM * 8);
            while packets.len() < most {
                buffer.reserve(ROOM);
                match ready.try_io(|tun| tun.get_ref().receive_to(&mut buffer)) {
                    Ok(Ok(_)) => packets.push(buffer.split().freeze()),
                    Ok(Err(error)) => match DeviceError::of(&error) {
                        Some(DeviceError::Full | DeviceError::Malformed) => {}
                        _ => return Err(error),
                    },
                    Err(_would_block) => break,
                }
            }
            if !packets.is_empty() {
                return Ok(());
            }
        }
    }

    /// What isn't taken is lost, as on any network.
    pub fn send(&self, packet: &[u8]) {
        let _ = self.0.get_ref().send(&[IoSlice::new(packet)]);
    }
}
