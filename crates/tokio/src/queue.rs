//! A shard's queue of a path's device.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use ropewalk_os::tun::BUFFER;
use ropewalk_wire::pool::Pool;
use ropewalk_wire::virtio::encode_frame_headers;
use ropewalk_wire::{Coalescer, Segment, encode_packets};

use crate::device::{DeviceError, Offload, PacketDevice};

/// A device's state, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathState {
    /// It takes packets.
    Up,
    /// The interface is down: packets are lost until it comes up.
    Down,
    /// The device was removed, or failed; it doesn't come back.
    Removed,
}

/// The address that packets on a device have, and the one that the engine has in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Translation {
    pub device: IpAddr,
    pub public: IpAddr,
}

/// One path's state, for all shards.
#[derive(Debug, Default)]
pub(crate) struct PathFlag(AtomicU8);

impl PathFlag {
    pub fn get(&self) -> PathState {
        match self.0.load(Ordering::Relaxed) {
            0 => PathState::Up,
            1 => PathState::Down,
            _ => PathState::Removed,
        }
    }

    /// A path that was removed stays so: another shard may just have sent on its device.
    pub fn set(&self, state: PathState) {
        let is_there = |old| (old != PathState::Removed as u8).then_some(state as u8);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_there);
    }
}

/// In the place of a device that was taken away.
struct Absent;

impl PacketDevice for Absent {
    fn offload(&self) -> Offload {
        Offload::Segmentation
    }

    fn poll_receive(&mut self, _: &mut Context<'_>, _: &mut Pool) -> Poll<io::Result<Bytes>> {
        Poll::Pending
    }

    fn send(&mut self, _: &[IoSlice<'_>]) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }
}

/// One path's queue in a shard.
pub(crate) struct Queue {
    pub device: Box<dyn PacketDevice>,
    offload: Offload,
    translation: Option<Translation>,
    /// Memory for packets that are received.
    pub pool: Pool,
    /// For devices without offload: segments become packets and back in software.
    pub coalescer: Option<Box<Coalescer>>,
    pub flag: Arc<PathFlag>,
    pub is_removed: bool,
}

impl Queue {
    pub fn new(
        device: Box<dyn PacketDevice>,
        translation: Option<Translation>,
        flag: Arc<PathFlag>,
    ) -> Queue {
        let offload = device.offload();
        let coalescer = (offload == Offload::None).then(|| Box::new(Coalescer::new()));
        let pool = Pool::new(4 * BUFFER);
        Queue { device, offload, translation, pool, coalescer, flag, is_removed: false }
    }

    /// The queue of a path whose device was taken away.
    pub fn absent(flag: Arc<PathFlag>) -> Queue {
        Queue { is_removed: true, ..Queue::new(Box::new(Absent), None, flag) }
    }

    /// Gives a segment that arrived the engine's address.
    pub fn translate_arrival(&self, segment: &mut Segment<Bytes>) {
        if let Some(Translation { device, public }) = self.translation
            && segment.tuple.dst == device
        {
            segment.tuple.dst = public;
        }
    }

    /// Takes in what a device said of a packet; false if the packet was lost.
    pub fn on_result(&mut self, result: io::Result<()>) -> bool {
        let state = match &result {
            Ok(()) => PathState::Up,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) => match DeviceError::of(error) {
                Some(DeviceError::Full | DeviceError::Malformed) => return false,
                Some(DeviceError::Down) => PathState::Down,
                Some(DeviceError::Removed) | None => PathState::Removed,
            },
        };
        if self.flag.get() != state {
            self.flag.set(state);
        }
        self.is_removed |= state == PathState::Removed;
        result.is_ok()
    }

    /// Sends a segment; false if it is lost.
    pub fn send(&mut self, segment: &mut Segment<Bytes>, packets: &mut Packets) -> bool {
        if self.is_removed {
            return false;
        }
        if let Some(Translation { device, public }) = self.translation
            && segment.tuple.src == public
        {
            segment.tuple.src = device;
        }
        match self.offload {
            Offload::Segmentation => {
                let Ok(headers) = encode_frame_headers(segment) else { return false };
                let result = self.device.send(&[IoSlice::new(&headers), IoSlice::new(&segment.payload)]);
                self.on_result(result)
            }
            Offload::None => {
                packets.bytes.clear();
                packets.ends.clear();
                if encode_packets(segment, &mut packets.bytes, &mut packets.ends).is_err() {
                    return false;
                }
                let mut start = 0;
                let mut sent = true;
                for end in &packets.ends {
                    let result = self.device.send(&[IoSlice::new(&packets.bytes[start..*end])]);
                    start = *end;
                    sent &= self.on_result(result);
                }
                sent
            }
        }
    }
}

/// The packets of a super-segment, for devices without offload.
#[derive(Default)]
pub(crate) struct Packets {
    bytes: BytesMut,
    ends: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shard that has just sent on a device tells that it takes packets, while another thread takes the
    /// path away. Its place is free for another device all the same.
    #[test]
    fn a_path_that_was_removed_stays_so() {
        let flag = Arc::new(PathFlag::default());
        let mut queue = Queue::new(Box::new(Absent), None, Arc::clone(&flag));
        queue.on_result(Err(io::Error::from_raw_os_error(100))); // ENETDOWN
        assert_eq!(flag.get(), PathState::Down);
        queue.on_result(Ok(()));
        assert_eq!(flag.get(), PathState::Up);
        flag.set(PathState::Removed);
        queue.on_result(Ok(()));
        assert_eq!(flag.get(), PathState::Removed);
    }
}
