//! Schedulers see the application's messages and the links' rates, and withdraw data that waits in a
//! subflow's queue.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::common;

use common::{Net, PathScript, bytes};
use ropewalk_engine::mptcp::ConnectionStats;
use ropewalk_engine::registry::{Entry, Registry, Spec};
use ropewalk_engine::scheduler::{Decision, Message, Rationale, Scheduler, View, builtin};
use ropewalk_engine::{MILLISECOND, Span, SubflowId, Time};

const SECOND: Span = Span::from_millis(1000);

fn entry(
    name: &'static str,
    build: fn(&ropewalk_engine::registry::Values) -> Box<dyn Scheduler>,
) -> Entry<dyn Scheduler> {
    Entry { name, summary: "", source: "", ..Entry::of(build) }
}

/// Queues all on the first subflow; once another has joined, takes back what waits there, and goes on by
/// `minrtt`.
#[derive(Debug)]
struct Regrets {
    inner: Box<dyn Scheduler>,
    /// Again and again, and queues it again.
    forever: bool,
    regretted: bool,
}

impl Regrets {
    fn boxed(forever: bool) -> Box<dyn Scheduler> {
        let inner = builtin().parse("minrtt").expect("it is built in").build();
        Box::new(Regrets { inner, forever, regretted: false })
    }
}

impl Scheduler for Regrets {
    fn name(&self) -> &'static str {
        "regrets"
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        let first = SubflowId(0);
        let other = view.usable().any(|flow| flow.id != first && flow.available());
        if other && (self.forever || !self.regretted) && view.subflows[0].queued_bytes > 0 {
            self.regretted = true;
            return Decision::Withdraw { subflow: first };
        }
        if self.regretted && !self.forever {
            return self.inner.select(view, rationale);
        }
        if view.sendable() {
            return Decision::Queue { subflow: first, bytes: 65_000 };
        }
        Decision::Wait { until: None }
    }

    fn repeats(&self) -> bool {
        true
    }

    fn queues_ahead(&self) -> bool {
        true
    }
}

/// 1 MiB by a scheduler of this test's; both paths at 20 Mbit/s, the joined one twice as fast by its delay.
fn sent(name: &str) -> (Span, ConnectionStats, Vec<u64>) {
    let mut registry = Registry::new("scheduler");
    registry.add(entry("regrets", |_| Regrets::boxed(false))).add(entry("forever", |_| Regrets::boxed(true)));
    let own = registry.parse(name).expect("it is registered");
    let mut paths: Vec<_> = [20, 10].map(PathScript::clean).to_vec();
    for path in &mut paths {
        path.rate = Some(2_500_000);
    }
    let mut net = Net::with(|config| config.scheduler = own, "minrtt", "cubic", paths);
    net.send(bytes(3, 1 << 20));
    net.run(Time::ZERO + 60 * SECOND, |net| net.received[1].len() == 1 << 20);
    assert!(net.sent[0] == net.received[1], "{name}: {} bytes arrived", net.received[1].len());
    let stats = net.ends[0].connection(net.client).expect("it is open").stats(net.now);
    let bytes = net.bytes_by_subflow();
    (net.now.since_origin(), stats, bytes)
}

#[test]
fn what_waits_on_a_subflow_is_taken_back_and_goes_elsewhere() {
    let (took, stats, bytes) = sent("regrets");
    assert!(stats.withdrawn_bytes > 50_000, "{stats:?}");
    assert!(bytes[1] > 300_000, "the other subflow sends its share: {bytes:?}");
    assert_eq!(bytes.iter().sum::<u64>(), 1 << 20, "nothing is sent twice");
    assert!(took < SECOND / 2, "{took}: one path alone takes 420 ms, and joining two round trips");
    assert_eq!(stats.overruled.count, 0);
}

#[test]
fn a_scheduler_that_takes_data_back_for_ever_still_ends() {
    let (_, stats, bytes) = sent("forever");
    assert!(stats.withdrawn_bytes > 1 << 20, "{stats:?}");
    assert!(bytes.iter().sum::<u64>() >= 1 << 20);
}

/// What the scheduler saw last, for the test.
static SEEN: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

#[derive(Debug)]
struct Watches {
    inner: Box<dyn Scheduler>,
    rates: bool,
}

impl Scheduler for Watches {
    fn name(&self) -> &'static str {
        "watches"
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if let Some(Message { start, end, deadline }) = view.message(view.next_offset) {
            let seen = [start, end, deadline.unwrap_or_default().as_nanos()];
            SEEN.iter().zip(seen).for_each(|(cell, value)| cell.store(value, Ordering::Relaxed));
        }
        let rate = view.subflows[0].link_rate();
        assert!(self.rates || rate.is_none(), "nobody asked for it");
        SEEN[3].store(rate.unwrap_or(0), Ordering::Relaxed);
        self.inner.select(view, rationale)
    }

    fn wants_link_rate(&self) -> bool {
        self.rates
    }
}

fn watching(rates: bool) -> Spec<dyn Scheduler> {
    fn boxed(rates: bool) -> Box<dyn Scheduler> {
        let inner = builtin().parse("minrtt").expect("it is built in").build();
        Box::new(Watches { inner, rates })
    }
    let mut registry = Registry::new("scheduler");
    registry.add(entry("rates", |_| boxed(true))).add(entry("none", |_| boxed(false)));
    registry.parse(if rates { "rates" } else { "none" }).expect("it is registered")
}

#[test]
fn messages_and_rates_are_seen_by_those_who_ask() {
    let seen = || [0, 1, 2, 3].map(|index: usize| SEEN[index].load(Ordering::Relaxed));
    let mut path = PathScript::clean(10);
    path.rate = Some(1_000_000);
    let mut net = Net::with(|config| config.scheduler = watching(true), "minrtt", "cubic", vec![path]);
    net.transfer_some(1000);
    let client = net.client;
    let deadline = net.now + 50 * MILLISECOND;
    assert_eq!(net.ends[0].end_message(net.now, client, None), Ok(()));
    assert_eq!(net.ends[0].begin_message(net.now, client, 5000, Some(deadline)), Ok(()));
    net.transfer_some(5000);
    assert_eq!(seen()[..3], [1000, 6000, deadline.as_nanos()]);
    net.transfer_some(2000);
    assert_eq!(seen()[..3], [1000, 6000, deadline.as_nanos()], "no end is marked yet");
    assert_eq!(net.ends[0].end_message(net.now, client, Some(Time::from_nanos(7))), Ok(()));
    net.transfer_some(400_000);
    let rate = seen()[3];
    // Per payload byte: headers take some of it.
    assert!((900_000..=1_000_000).contains(&rate), "{rate} bytes per second");
    // A scheduler that doesn't ask takes over: what is known is forgotten.
    net.ends[0].set_algorithms(net.now, client, Some(&watching(false)), None);
    net.transfer_some(100_000);
    net.ends[0].set_algorithms(net.now, client, Some(&watching(true)), None);
    net.transfer_some(400_000);
    assert!((900_000..=1_000_000).contains(&seen()[3]), "and found again");
    net.ends[0].abort(net.now, client);
    net.pass(100);
    assert!(net.ends[0].end_message(net.now, client, None).is_err(), "it is forgotten");
}
