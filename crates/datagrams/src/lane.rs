//! What waits, apart for each rule: packets of one don't wait for links that another keeps to.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;

use crate::codel::CoDel;
use crate::flow::Class;
use crate::packet::FlowKey;
use crate::scheduler::DatagramScheduler;

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

/// What waits for the same links.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// By their classes.
    pub queues: [VecDeque<Queued>; 3],
    /// Of downloads.
    pub bulk_bytes: usize,
    pub codel: CoDel,
}

impl Waiting {
    pub fn push(&mut self, class: Class, queued: Queued) {
        if class == Class::Bulk {
            self.bulk_bytes += queued.packet.len();
        }
        self.queues[class as usize].push_back(queued);
    }

    pub fn pop(&mut self, class: Class) -> Option<Queued> {
        let queued = self.queues[class as usize].pop_front()?;
        if class == Class::Bulk {
            self.bulk_bytes -= queued.packet.len();
        }
        Some(queued)
    }
}

/// What waits where one rule holds.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Who chooses.
    pub scheduler: Box<dyn DatagramScheduler>,
    /// By the link that a flow keeps to, if there is one: none waits for another one's link.
    pub waiting: BTreeMap<Option<usize>, Waiting>,
    /// When a packet of it came last, either way.
    pub last_traffic: u64,
}

impl Lane {
    pub fn new(scheduler: Box<dyn DatagramScheduler>) -> Lane {
        Lane { scheduler, waiting: BTreeMap::new(), last_traffic: 0 }
    }

    pub fn of(&mut self, kept: Option<usize>) -> &mut Waiting {
        self.waiting.entry(kept).or_default()
    }

    /// All queues of some classes.
    pub fn queues(&self, classes: Range<usize>) -> impl Iterator<Item = &VecDeque<Queued>> {
        self.waiting.values().flat_map(move |waiting| &waiting.queues[classes.clone()])
    }
}
