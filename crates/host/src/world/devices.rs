//! The devices at a kernel's end: reading from them, and what a failed read or write means for their paths.

use std::io;

use bytes::Bytes;
use ropewalk_engine::PathId;
use ropewalk_wire::pool::Pool;

use super::{BATCH, End, World};
use crate::frame::{Frame, Piece};
use crate::tun::{BUFFER, DeviceError, Tun};

/// The state of a path's device at a kernel end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeviceState {
    /// It takes packets, as far as is known.
    #[default]
    Up,
    /// The interface is down; packets for it are lost until it comes up.
    Down,
    /// The interface was removed; it doesn't come back.
    Removed,
}

impl World {
    /// Takes what the kernels have sent.
    pub(super) fn read_devices(&mut self) -> io::Result<bool> {
        let mut busy = false;
        for from in 0..2 {
            let End::Kernel(end) = &self.ends[from] else { continue };
            for path in 0..end.tuns.len() {
                if self.devices[from][path] == DeviceState::Removed {
                    continue;
                }
                for _ in 0..BATCH {
                    let End::Kernel(end) = &self.ends[from] else { break };
                    let tun = &end.tuns[path];
                    let offload = tun.offload();
                    let bytes = match read(tun, &mut self.received) {
                        Ok(Some(bytes)) => bytes,
                        Ok(None) => break,
                        // A device that is only down has nothing to read; any other error means that it was
                        // removed.
                        Err(error) if DeviceError::of(&error).is_some() => {
                            self.on_device_change(from, path, DeviceState::Removed);
                            break;
                        }
                        Err(error) => return Err(error),
                    };
                    busy = true;
                    match Frame::received(bytes, offload) {
                        Some(frame) => self.depart(from, Piece::whole(frame, path as u16))?,
                        None => self.counters.malformed += 1,
                    }
                }
            }
        }
        Ok(busy)
    }

    /// Takes in the result of a write to a device. A packet that a device doesn't take is lost, as on any
    /// network; a device that is down or removed is a path that is lost.
    pub(super) fn on_device(&mut self, side: usize, path: usize, result: io::Result<()>) -> io::Result<()> {
        let state = match result {
            Ok(()) => DeviceState::Up,
            Err(error) => match DeviceError::of(&error) {
                Some(DeviceError::Full | DeviceError::Malformed) => {
                    self.counters.refused += 1;
                    return Ok(());
                }
                Some(DeviceError::Down) => DeviceState::Down,
                Some(DeviceError::Removed) => DeviceState::Removed,
                None => return Err(error),
            },
        };
        if state != DeviceState::Up {
            self.counters.undeliverable += 1;
        }
        if self.devices[side][path] != state {
            self.on_device_change(side, path, state);
        }
        Ok(())
    }

    #[cold]
    fn on_device_change(&mut self, side: usize, path: usize, state: DeviceState) {
        let was_up = self.devices[side][path] == DeviceState::Up;
        self.devices[side][path] = state;
        let is_up = state == DeviceState::Up;
        if was_up == is_up {
            return;
        }
        self.counters.device_losses += u64::from(!is_up);
        let now = self.clock.now();
        if let End::Engine(endpoint, app) = &mut self.ends[1 - side] {
            app.on_path(now, endpoint, PathId(path as u16), is_up);
        }
    }
}

/// One frame, or `None` when there is none now.
fn read(tun: &Tun, pool: &mut Pool) -> io::Result<Option<Bytes>> {
    let buffer = pool.room(BUFFER);
    buffer.resize(BUFFER, 0);
    match tun.receive(buffer) {
        Ok(len) => {
            let frame = buffer.split_to(len);
            Ok(Some(frame.freeze()))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
