//! What the tests of this crate send.

use crate::Packet;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Datagram {
    pub(crate) id: u64,
    pub(crate) len: u32,
    pub(crate) ect: bool,
    pub(crate) ce: bool,
}

impl Datagram {
    pub(crate) fn new(id: u64, len: u32, ect: bool) -> Self {
        Datagram { id, len, ect, ce: false }
    }
}

impl Packet for Datagram {
    fn wire_len(&self) -> u32 {
        self.len
    }

    fn is_ect(&self) -> bool {
        self.ect
    }

    fn mark_ce(&mut self) {
        self.ce = true;
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }
}
