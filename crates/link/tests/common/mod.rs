//! What the tests send, and how they drive a link as a simulator does.
#![allow(dead_code)]

use ropewalk_link::{Link, LinkSpec, Packet};
use ropewalk_time::Time;
pub use ropewalk_time::{MILLISECOND as MS, NANOSECOND, SECOND};

/// So many milliseconds after the start.
pub fn at(ms: u64) -> Time {
    Time::ZERO + ms * MS
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    pub id: u64,
    pub len: u32,
    pub ect: bool,
    pub ce: bool,
}

impl Datagram {
    pub fn new(id: u64, len: u32) -> Self {
        Datagram { id, len, ect: false, ce: false }
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

/// Hands in each packet at its time, polls exactly when the link asks, and returns all arrivals.
pub fn drive(link: &mut Link<Datagram>, sends: &[(Time, Datagram)]) -> Vec<(Time, Datagram)> {
    let mut arrivals = Vec::new();
    let mut sends = sends.iter().peekable();
    let mut before = Time::ZERO;
    loop {
        let due = link.poll_timeout().unwrap_or(Time::MAX);
        let next_send = sends.peek().map_or(Time::MAX, |send| send.0);
        if due <= next_send {
            if due == Time::MAX {
                return arrivals;
            }
            assert!(due >= before, "a deadline in the past: {due} at {before}");
            before = due;
            while let Some((arrival, packet)) = link.poll_timed(due) {
                assert_eq!(arrival, due, "delivered late");
                arrivals.push((arrival, packet));
            }
            assert!(link.poll_timeout().is_none_or(|next| next > due), "a deadline that doesn't move");
        } else if let Some((time, packet)) = sends.next() {
            before = *time;
            link.enqueue(*time, packet.clone());
        }
    }
}

/// Keeps a link busy with packets of `len` bytes from 0 to `until`, `backlog` of them at most in the queue.
pub fn saturate(spec: &LinkSpec, seed: u64, len: u32, backlog: u64, until: Time) -> Saturated {
    let mut link = Link::new(spec.clone(), seed, 0);
    let mut arrivals = Vec::new();
    let (mut now, mut id) = (Time::ZERO, 0);
    while now <= until {
        while let Some((arrival, packet)) = link.poll_timed(now) {
            arrivals.push((arrival, packet));
        }
        // A link that is down takes none of them.
        for _ in link.queued_packets(now)..=backlog {
            if link.queued_packets(now) < backlog {
                link.enqueue(now, Datagram::new(id, len));
                id += 1;
            }
        }
        let step = link.queue_delay(now).clamp(NANOSECOND, MS);
        now = (now + step).min(link.poll_timeout().unwrap_or(Time::MAX).max(now + NANOSECOND));
    }
    Saturated { link, arrivals }
}

pub struct Saturated {
    pub link: Link<Datagram>,
    pub arrivals: Vec<(Time, Datagram)>,
}
