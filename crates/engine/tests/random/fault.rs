//! Faults injected between the engine and the network, as if the engine had them. The judges must find each.

use std::collections::BTreeMap;

use bytes::Bytes;
use ropewalk_engine::{PathId, SECOND, Time};
use ropewalk_wire::{Flags, Segment};

use crate::judge::Judge;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Data given to another subflow than at first never leaves.
    LostReinjection,
    /// The sender takes the window for one unit larger than it was advertised.
    WindowOffByOne,
    /// A byte is altered where no checksum can tell.
    WrongByte,
    /// DATA_FIN is never sent.
    LostDataFin,
    /// Timers fire half a minute late.
    LateTimers,
}

impl Fault {
    pub const ALL: [Fault; 5] = [
        Fault::LostReinjection,
        Fault::WindowOffByOne,
        Fault::WrongByte,
        Fault::LostDataFin,
        Fault::LateTimers,
    ];

    /// The judge that must find it.
    pub fn found_by(self) -> Judge {
        match self {
            Fault::LostReinjection | Fault::LostDataFin | Fault::LateTimers => Judge::TooLate,
            Fault::WindowOffByOne => Judge::WindowExceeded,
            Fault::WrongByte => Judge::WrongByte,
        }
    }
}

pub struct Saboteur {
    fault: Option<Fault>,
    /// By sender and data sequence number: the port of the subflow that carried it first.
    carried: BTreeMap<(usize, u64), u16>,
    packets: u64,
}

impl Saboteur {
    pub fn new(fault: Option<Fault>) -> Self {
        Saboteur { fault, carried: BTreeMap::new(), packets: 0 }
    }

    /// False if the packet is to be lost.
    pub fn on_sent(&mut self, from: usize, _: PathId, packet: &mut Segment<Bytes>) -> bool {
        let Some(fault) = self.fault else { return true };
        let mapping = packet.dss.and_then(|dss| dss.mapping);
        match fault {
            Fault::LostReinjection => {
                let Some(mapping) = mapping.filter(|_| !packet.payload.is_empty()) else { return true };
                let port = packet.tuple.src_port ^ packet.tuple.dst_port;
                *self.carried.entry((from, mapping.dsn)).or_insert(port) == port
            }
            Fault::WrongByte => {
                self.packets += u64::from(!packet.payload.is_empty());
                if self.packets == 5 && !packet.payload.is_empty() {
                    let mut data = packet.payload.to_vec();
                    data[0] ^= 1;
                    packet.payload = Bytes::from(data);
                    if let Some(mapping) = packet.dss.as_mut().and_then(|dss| dss.mapping.as_mut())
                        && mapping.checksum.is_some()
                    {
                        self.packets = 4;
                        return false;
                    }
                }
                true
            }
            Fault::LostDataFin => {
                if let Some(dss) = packet.dss.as_mut().filter(|dss| dss.data_fin) {
                    dss.data_fin = false;
                    if packet.payload.is_empty() {
                        dss.mapping = None;
                    }
                }
                true
            }
            Fault::WindowOffByOne | Fault::LateTimers => true,
        }
    }

    pub fn on_heard(&mut self, _: usize, packet: &mut Segment<Bytes>) {
        if self.fault == Some(Fault::WindowOffByOne) && !packet.flags.contains(Flags::SYN) {
            packet.window = packet.window.saturating_add(1);
        }
    }

    pub fn timeout(&self, at: Time) -> Time {
        if self.fault == Some(Fault::LateTimers) { at + 30 * SECOND } else { at }
    }
}
