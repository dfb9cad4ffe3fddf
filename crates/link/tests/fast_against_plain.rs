//! The fast path gives what the plain one gives: the same packets at the same times, the same drops and
//! counters, for any link both can serve and any traffic.

use crate::common;

use common::{Datagram, drive};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use ropewalk_link::{Jitter, JitterShape, Link, LinkSpec, Loss, Queue, Rate};
use ropewalk_time::{NANOSECOND, Span, Time};

fn rate() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1_000u64..2_000_000_000,
        // Rates at which 1500 bytes take a fraction of nanoseconds, or hardly any time.
        2 => prop::sample::select(vec![1, 3, 7_000_000_000, 12_000_000_000_001, u64::MAX - 1]),
        1 => Just(u64::MAX),
    ]
}

/// Any below so many nanoseconds.
fn spans(below: u64) -> impl Strategy<Value = Span> {
    (0..below).prop_map(Span::from_nanos)
}

fn jitter() -> impl Strategy<Value = Option<Jitter>> {
    let shape = prop::sample::select(vec![JitterShape::Uniform, JitterShape::Normal, JitterShape::Pareto]);
    prop::option::of(
        (spans(20_000_000), shape, any::<bool>()).prop_map(|(spread, shape, keeps_order)| Jitter {
            spread,
            shape,
            keeps_order,
        }),
    )
}

fn loss() -> impl Strategy<Value = Loss> {
    let p = 0.0..=1.0f64;
    prop_oneof![
        Just(Loss::None),
        p.clone().prop_map(Loss::Bernoulli),
        (p.clone(), p.clone(), p.clone(), p).prop_map(|(to_bad, to_good, loss_good, loss_bad)| {
            Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad }
        }),
    ]
}

fn queue() -> impl Strategy<Value = Queue> {
    prop_oneof![
        (0u32..20, prop::option::of(0u32..20))
            .prop_map(|(limit, ecn_threshold)| Queue::Packets { limit, ecn_threshold }),
        (0u64..20_000, prop::option::of(0u64..20_000))
            .prop_map(|(limit, ecn_threshold)| Queue::Bytes { limit, ecn_threshold }),
    ]
}

fn spec() -> impl Strategy<Value = LinkSpec> {
    let duplicate = prop_oneof![3 => Just(0.0), 1 => 0.0..=1.0f64];
    let overhead = prop_oneof![Just(0u32), Just(38), 0u32..200];
    (rate(), spans(50_000_000), jitter(), loss(), queue(), duplicate, overhead, any::<bool>()).prop_map(
        |(rate, delay, jitter, loss, queue, duplicate, overhead, limit_counts_transit)| LinkSpec {
            rate: Rate::Constant(rate),
            delay,
            jitter,
            loss,
            queue,
            duplicate,
            overhead,
            limit_counts_transit,
            changes: Vec::new(),
        },
    )
}

/// Packets with the gap before each, as a share of the time one of 1500 bytes takes at the link's rate, so
/// that links are idle, just busy and overloaded by turns; some gaps are that time exactly.
fn traffic() -> impl Strategy<Value = Vec<(f64, u32, bool)>> {
    let gap = prop_oneof![3 => Just(0.0), 2 => Just(1.0), 3 => 0.0..2.0f64, 1 => 0.0..30.0f64];
    let len = prop_oneof![3 => Just(1500u32), 1 => Just(40), 1 => 0u32..65_536];
    prop::collection::vec((gap, len, any::<bool>()), 1..200)
}

fn sends(spec: &LinkSpec, traffic: &[(f64, u32, bool)]) -> Vec<(Time, Datagram)> {
    let Rate::Constant(rate) = spec.rate else { return Vec::new() };
    let unit = 12e12 / rate as f64;
    let mut now = Time::ZERO;
    let packet = |(id, &(gap, len, ect)): (usize, &(f64, u32, bool))| {
        now += Span::from_nanos((gap * unit) as u64);
        (now, Datagram { id: id as u64, len, ect, ce: false })
    };
    traffic.iter().enumerate().map(packet).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn both_paths_agree(spec in spec(), traffic in traffic(), seed: u64, stream: u64) {
        let sends = sends(&spec, &traffic);
        let mut fast = Link::new(spec.clone(), seed, stream);
        let mut plain = Link::stepwise(spec, seed, stream);
        prop_assert_eq!(drive(&mut fast, &sends), drive(&mut plain, &sends));
        prop_assert_eq!(fast.stats(), plain.stats());
        prop_assert_eq!(fast.stats().inside(), 0);
    }

    /// Also in what they say of the queue at any moment, and whenever they are polled.
    #[test]
    fn both_show_the_same_queue(spec in spec(), traffic in traffic(), seed: u64, pause in 1u64..4_000_000) {
        let sends = sends(&spec, &traffic);
        let mut fast = Link::new(spec.clone(), seed, 0);
        let mut plain = Link::stepwise(spec, seed, 0);
        let mut looked_at = Time::ZERO;
        for (now, packet) in sends {
            let now = now.max(looked_at);
            looked_at = now + Span::from_nanos(pause);
            fast.enqueue(now, packet.clone());
            plain.enqueue(now, packet);
            for now in [now, looked_at] {
                prop_assert_eq!(fast.queued_packets(now), plain.queued_packets(now));
                prop_assert_eq!(fast.queued_bytes(now), plain.queued_bytes(now));
                // Each rounds up what is left of the packet being sent and of those behind it.
                prop_assert!(fast.queue_delay(now).abs_diff(plain.queue_delay(now)) <= NANOSECOND);
            }
            if pause % 3 == 0 {
                prop_assert_eq!(fast.poll_timed(looked_at), plain.poll_timed(looked_at));
            }
        }
        loop {
            let (a, b) = (fast.poll_timed(Time::MAX - NANOSECOND), plain.poll_timed(Time::MAX - NANOSECOND));
            prop_assert_eq!(&a, &b);
            if a.is_none() {
                break;
            }
        }
        prop_assert_eq!(fast.stats(), plain.stats());
    }
}
