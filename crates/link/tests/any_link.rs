//! What holds for any link: every packet is accounted for, polling doesn't disturb, a run repeats itself, and
//! no link carries more than the integral of its rate.

use crate::common;

use std::sync::Arc;

use common::{Datagram, MS, NANOSECOND, SECOND, at, drive, saturate};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use ropewalk_link::{
    Change, ChangeAction, Jitter, JitterShape, Link, LinkSpec, Loss, Queue, Rate, RateTrace,
};
use ropewalk_time::{Span, Time};

/// Any below `below`.
fn spans(below: Span) -> impl Strategy<Value = Span> {
    (0..below.as_nanos()).prop_map(Span::from_nanos)
}

/// Any until `below` after the start.
fn times(below: Span) -> impl Strategy<Value = Time> {
    spans(below).prop_map(|span| Time::ZERO + span)
}

fn rate() -> impl Strategy<Value = Rate> {
    let trace = prop::collection::vec(0u32..6, 1..20).prop_map(|gaps| {
        let mut at = 0;
        let mut opportunities: Vec<u32> = gaps
            .into_iter()
            .map(|gap| {
                at += gap;
                at
            })
            .collect();
        opportunities.push(at + 1);
        Rate::Trace(Arc::new(RateTrace::new("t", opportunities)))
    });
    prop_oneof![
        4 => (100_000u64..50_000_000).prop_map(Rate::Constant),
        1 => Just(Rate::Constant(0)),
        3 => trace,
    ]
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        (0.0..0.5f64).prop_map(Loss::Bernoulli),
        (0.0..1.0f64, 0.0..1.0f64).prop_map(|(to_bad, to_good)| {
            Loss::GilbertElliott { to_bad, to_good, loss_good: 0.0, loss_bad: 1.0 }
        }),
    ]
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let action = prop_oneof![
        rate().prop_map(ChangeAction::Rate),
        (0u64..50).prop_map(|ms| ChangeAction::Delay(ms * MS)),
        loss().prop_map(ChangeAction::Loss),
        Just(ChangeAction::Down),
        Just(ChangeAction::Up),
        Just(ChangeAction::Up),
    ];
    let at = prop_oneof![(0u64..200).prop_map(at), times(200 * MS)];
    prop::collection::vec((at, action).prop_map(|(at, action)| Change::once(at, action)), 0..8)
}

fn queue() -> impl Strategy<Value = Queue> {
    prop_oneof![
        (0u32..20, prop::option::of(0u32..20))
            .prop_map(|(limit, ecn_threshold)| Queue::Packets { limit, ecn_threshold }),
        (0u64..20_000, prop::option::of(0u64..20_000))
            .prop_map(|(limit, ecn_threshold)| Queue::Bytes { limit, ecn_threshold }),
        (0u32..200, 0u64..10, 1u64..50, any::<bool>()).prop_map(|(limit, target, interval, ecn)| {
            Queue::CoDel { limit, target: target * MS, interval: interval * MS, ecn }
        }),
    ]
}

fn spec() -> impl Strategy<Value = LinkSpec> {
    let shape = prop::sample::select(vec![JitterShape::Uniform, JitterShape::Normal, JitterShape::Pareto]);
    let jitter = prop::option::of(
        (spans(20 * MS), shape, any::<bool>()).prop_map(|(spread, shape, keeps_order)| Jitter {
            spread,
            shape,
            keeps_order,
        }),
    );
    let duplicate = prop_oneof![3 => Just(0.0), 1 => 0.0..=1.0f64];
    (rate(), spans(50 * MS), jitter, loss(), queue(), duplicate, 0u32..60, changes()).prop_map(
        |(rate, delay, jitter, loss, queue, duplicate, overhead, changes)| LinkSpec {
            rate,
            delay,
            jitter,
            loss,
            queue,
            duplicate,
            overhead,
            limit_counts_transit: false,
            changes,
        },
    )
}

fn traffic() -> impl Strategy<Value = Vec<(Time, Datagram)>> {
    let gap = prop_oneof![2 => Just(Span::ZERO), 2 => (0u64..10).prop_map(|ms| ms * MS), 3 => spans(3 * MS)];
    let len = prop_oneof![3 => Just(1500u32), 1 => Just(40), 1 => 0u32..9000];
    prop::collection::vec((gap, len, any::<bool>()), 1..150).prop_map(|packets| {
        let mut now = Time::ZERO;
        let packet = |(id, (gap, len, ect)): (usize, (Span, u32, bool))| {
            now += gap;
            (now, Datagram { id: id as u64, len, ect, ce: false })
        };
        packets.into_iter().enumerate().map(packet).collect()
    })
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn every_packet_is_accounted_for(spec in spec(), sends in traffic(), seed: u64) {
        let mut link = Link::new(spec.clone(), seed, 0);
        let arrivals = drive(&mut link, &sends);
        let stats = *link.stats();
        prop_assert_eq!(stats.packets_in, sends.len() as u64);
        prop_assert_eq!(stats.packets_delivered, arrivals.len() as u64);
        prop_assert_eq!(stats.bytes_delivered, arrivals.iter().map(|a| u64::from(a.1.len)).sum::<u64>());
        prop_assert_eq!(link.in_flight(), 0);
        // What is still inside waits for a rate that never comes.
        let last = arrivals.iter().map(|arrival| arrival.0).max().unwrap_or(Time::ZERO);
        let end = last.max(sends[sends.len() - 1].0) + SECOND;
        prop_assert_eq!(stats.inside(), link.queued_packets(end));
        prop_assert!(stats.inside() == 0 || link.queue_delay(end) == Span::MAX);
        for (arrival, packet) in &arrivals {
            prop_assert!(*arrival >= sends[packet.id as usize].0 + spec.min_delay());
            prop_assert!(!packet.ce || packet.ect);
        }
        prop_assert!(arrivals.iter().filter(|a| a.1.ce).count() as u64 <= stats.marked + stats.duplicated);
        if spec.jitter.is_some_and(|jitter| jitter.keeps_order) {
            prop_assert!(arrivals.windows(2).all(|pair| pair[0].1.id <= pair[1].1.id));
        }
    }

    /// A poll too many, a look at the queue, or a poll too late changes no arrival.
    #[test]
    fn polling_does_not_disturb(
        spec in spec(),
        sends in traffic(),
        seed: u64,
        polls in prop::collection::vec(spans(4 * MS), 150),
    ) {
        let mut reference = Link::new(spec.clone(), seed, 3);
        let expected = drive(&mut reference, &sends);
        let (mut link, mut lazy) = (Link::new(spec.clone(), seed, 3), Link::new(spec, seed, 3));
        let (mut arrivals, mut before) = (Vec::new(), Time::ZERO);
        for ((time, packet), poll) in sends.into_iter().zip(polls) {
            let between = (before + poll).min(time);
            link.queue_delay(between);
            link.queued_bytes(between);
            arrivals.extend(std::iter::from_fn(|| link.poll_timed(between)));
            link.enqueue(time, packet.clone());
            lazy.enqueue(time, packet);
            before = time;
        }
        arrivals.extend(std::iter::from_fn(|| link.poll_timed(Time::MAX - NANOSECOND)));
        let late: Vec<_> = std::iter::from_fn(|| lazy.poll_timed(Time::MAX - NANOSECOND)).collect();
        prop_assert_eq!(&arrivals, &expected);
        prop_assert_eq!(&late, &expected);
        prop_assert_eq!(link.stats(), reference.stats());
        prop_assert_eq!(lazy.stats(), reference.stats());
    }

    #[test]
    fn the_same_seed_repeats_a_run(spec in spec(), sends in traffic(), seed: u64) {
        let run = || {
            let mut link = Link::new(spec.clone(), seed, 1);
            (drive(&mut link, &sends), *link.stats())
        };
        prop_assert_eq!(run(), run());
    }
}

proptest! {
    #![proptest_config(config(200))]

    /// A link that is always busy carries the integral of its rate, less what changes cut across.
    #[test]
    fn a_busy_link_carries_its_integral(rate in rate(), changes in changes(), len in 100u32..1500) {
        let mut spec = LinkSpec { rate, changes, ..LinkSpec::plain(1, Span::ZERO, 1000) };
        // Neither losses nor delays: arrivals are departures.
        let is_random = |action: &_| matches!(action, ChangeAction::Delay(_) | ChangeAction::Loss(_));
        spec.changes.retain(|change| !is_random(&change.action));
        let until = at(250);
        let mut run = saturate(&spec, 0, len, 300, until);
        run.arrivals.extend(std::iter::from_fn(|| run.link.poll_timed(until)));
        let carried = run.arrivals.iter().filter(|a| a.0 <= until).count() as u64 * u64::from(len);
        let capacity = spec.capacity_integral(Time::ZERO, until);
        // A change of rate lets the packet being sent end at the old one; one of the link loses it, and what
        // the source had not refilled when it came up. Opportunities at the very start of a trace are in
        // doubt.
        let slack = u64::from(len) * (spec.changes.len() as u64 + 1) + 20 * 1500 * spec.changes.len() as u64;
        prop_assert!(carried <= capacity + slack, "{} {}", carried, capacity);
        let refill = 50_000_000 / 8 / 1000 * spec.changes.len() as u64;
        // Meanwhile that packet ends at the old rate, as slow as any, and the new one, as fast as any, isn't
        // used.
        let constant = |rate: &Rate| if let Rate::Constant(rate) = rate { Some(*rate) } else { None };
        let later = spec.changes.iter().filter_map(|change| match &change.action {
            ChangeAction::Rate(rate) => constant(rate),
            _ => None,
        });
        let rates: Vec<u64> = constant(&spec.rate).into_iter().chain(later).collect();
        let slowest = rates.iter().min().map_or(0, |rate| u64::from(len) * 8 * 1_000_000_000 / rate.max(&1));
        let refill = refill + slowest.min(until.as_nanos()) / 1000 * 50 / 8 * spec.changes.len() as u64;
        prop_assert!(carried + slack + refill >= capacity, "{} {}", carried, capacity);
    }
}
