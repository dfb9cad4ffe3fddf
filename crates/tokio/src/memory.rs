//! A device pair in memory: what one sends the other receives. For tests, and for two ends in one process.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use ropewalk_os::tun::{BUFFER, Offload};
use ropewalk_wire::pool::Pool;

use crate::device::PacketDevice;

/// Most packets that wait in one direction of a queue; what comes then is lost.
const MOST_WAITING: usize = 1024;

/// One direction of a queue.
#[derive(Debug, Default)]
struct Lane {
    packets: VecDeque<Bytes>,
    receiver: Option<Waker>,
}

type SharedLane = Arc<Mutex<Lane>>;

/// One end of a queue in memory, with offload.
#[derive(Debug)]
pub struct MemoryDevice {
    incoming: SharedLane,
    outgoing: SharedLane,
    pool: Pool,
    offload: Offload,
}

impl MemoryDevice {
    /// Two devices of `queues` queues each. Queue N of the one is joined to queue N of the other.
    pub fn pair(queues: usize) -> [Vec<MemoryDevice>; 2] {
        let lanes = |_| (SharedLane::default(), SharedLane::default());
        let lanes: Vec<_> = (0..queues).map(lanes).collect();
        let device = |incoming: &SharedLane, outgoing: &SharedLane| MemoryDevice {
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            pool: Pool::new(4 * BUFFER),
            offload: Offload::Segmentation,
        };
        [
            lanes.iter().map(|(there, back)| device(back, there)).collect(),
            lanes.iter().map(|(there, back)| device(there, back)).collect(),
        ]
    }

    /// Carries packets as they are on the wire, one at a time. Both ends have to.
    pub fn without_offload(mut self) -> MemoryDevice {
        self.offload = Offload::None;
        self
    }
}

impl PacketDevice for MemoryDevice {
    fn offload(&self) -> Offload {
        self.offload
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, _pool: &mut Pool) -> Poll<io::Result<Bytes>> {
        let mut lane = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        match lane.packets.pop_front() {
            Some(packet) => Poll::Ready(Ok(packet)),
            None => {
                lane.receiver = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let buffer = self.pool.room(pieces.iter().map(|piece| piece.len()).sum());
        buffer.clear();
        for piece in pieces {
            buffer.extend_from_slice(piece);
        }
        let packet = buffer.split().freeze();
        let receiver = {
            let mut lane = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
            if lane.packets.len() >= MOST_WAITING {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            lane.packets.push_back(packet);
            lane.receiver.take()
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        Ok(())
    }
}
