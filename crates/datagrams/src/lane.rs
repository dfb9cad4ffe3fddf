//! What waits, apart for each rule: packets of one don't wait for links that another keeps to.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::codel::CoDel;
use crate::flow::Class;
use crate::packet::FlowKey;
use crate::scheduler::DatagramScheduler;

/// Most lanes: where no rule holds, and for rules.
pub const MOST_LANES: usize = 16;

/// How packets of a lane use a link.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LinkUse {
    /// Not at all.
    pub is_shut: bool,
    /// While no other works.
    pub is_backup: bool,
    /// While links of a lower order don't work or are full.
    pub order: u8,
    /// A flow that it carries stays on it for as long as it works.
    pub keeps: bool,
}

/// A packet that waits.
#[derive(Debug)]
pub(crate) struct Queued {
    pub packet: Bytes,
    pub flow: FlowKey,
    pub since: u64,
}

/// What waits where one rule holds.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Who chooses.
    pub scheduler: Box<dyn DatagramScheduler>,
    /// By their classes.
    pub queues: [VecDeque<Queued>; 3],
    /// Of downloads.
    pub queued_bytes: usize,
    pub codel: CoDel,
}

impl Lane {
    pub fn new(scheduler: Box<dyn DatagramScheduler>) -> Lane {
        Lane { scheduler, queues: Default::default(), queued_bytes: 0, codel: CoDel::default() }
    }

    pub fn push(&mut self, class: Class, queued: Queued) {
        if class == Class::Bulk {
            self.queued_bytes += queued.packet.len();
        }
        self.queues[class as usize].push_back(queued);
    }

    pub fn pop(&mut self, class: Class) -> Option<Queued> {
        let queued = self.queues[class as usize].pop_front()?;
        if class == Class::Bulk {
            self.queued_bytes -= queued.packet.len();
        }
        Some(queued)
    }
}
