//! Links against what can be worked out by hand: throughput, delay, order, drops, changes.

use crate::common;

use std::sync::Arc;

use common::{Datagram, MS, NANOSECOND, at, drive, saturate};
use ropewalk_link::{
    Change, ChangeAction, Jitter, JitterShape, Link, LinkSpec, Loss, Queue, Rate, RateTrace,
};
use ropewalk_time::{Span, Time};

fn plain() -> LinkSpec {
    LinkSpec::plain(12_000_000, 20 * MS, 100)
}

/// `n` packets of 1500 bytes, one every `gap`.
fn paced(n: u64, gap: Span) -> Vec<(Time, Datagram)> {
    (0..n).map(|id| (Time::ZERO + id * gap, Datagram::new(id, 1500))).collect()
}

fn changing(changes: &[(u64, ChangeAction)]) -> LinkSpec {
    let changes = changes.iter().map(|(ms, action)| Change::once(at(*ms), action.clone()));
    LinkSpec { changes: changes.collect(), ..plain() }
}

fn times_and_ids(arrivals: &[(Time, Datagram)]) -> Vec<(Time, u64)> {
    arrivals.iter().map(|(arrival, packet)| (*arrival, packet.id)).collect()
}

#[test]
fn a_lone_packet_takes_its_transmission_and_the_delay() {
    for (rate, len, overhead, expected) in [
        (12_000_000, 1500, 0, MS),
        (12_000_000, 1462, 38, MS),
        (1_000_000_000, 1500, 0, Span::from_micros(12)),
        (7_000_000_000, 1500, 0, Span::from_nanos(1715)),
        (u64::MAX, 1500, 38, Span::ZERO),
    ] {
        let spec = LinkSpec { overhead, ..LinkSpec::plain(rate, 20 * MS, 10) };
        let mut link = Link::new(spec, 0, 0);
        let arrivals = drive(&mut link, &[(at(5), Datagram::new(0, len))]);
        assert_eq!(times_and_ids(&arrivals), [(at(25) + expected, 0)]);
    }
}

#[test]
fn a_saturated_link_carries_its_rate_exactly() {
    for (rate, len, packets_per_second) in [
        (12_000_000, 1500, 1000),
        (100_000_000, 1250, 10_000),
        (7_000_000, 1000, 875),
        (1_000_001, 1, 125_000),
    ] {
        let spec = LinkSpec::plain(rate, Span::ZERO, 50);
        let run = saturate(&spec, 0, len, 20, at(1000));
        let carried = run.arrivals.iter().filter(|(arrival, _)| *arrival <= at(1000)).count();
        assert_eq!(carried, packets_per_second, "{rate}");
    }
}

#[test]
fn the_queue_limit_leaves_out_the_packet_being_sent() {
    for queue in [
        Queue::Packets { limit: 3, ecn_threshold: None },
        Queue::Bytes { limit: 4500, ecn_threshold: None },
        Queue::CoDel { limit: 3, target: 5 * MS, interval: 100 * MS, ecn: false },
    ] {
        let mut link = Link::new(LinkSpec { queue, ..plain() }, 0, 0);
        let sends: Vec<_> = (0..10).map(|id| (Time::ZERO, Datagram::new(id, 1500))).collect();
        let arrivals = drive(&mut link, &sends);
        assert_eq!(times_and_ids(&arrivals), [(at(21), 0), (at(22), 1), (at(23), 2), (at(24), 3)]);
        let stats = link.stats();
        assert_eq!((stats.dropped_queue, stats.packets_delivered), (6, 4));
        assert_eq!((stats.max_queue_packets, stats.max_queue_bytes), (3, 4500));
        // Waits of 1, 2 and 3 ms; four transmissions.
        assert_eq!((stats.sojourn, stats.busy), (6 * MS, 4 * MS));
    }
}

#[test]
fn a_packet_that_comes_as_another_leaves_finds_the_link_free() {
    let spec = LinkSpec { queue: Queue::Packets { limit: 0, ecn_threshold: None }, ..plain() };
    let mut link = Link::new(spec, 0, 0);
    let sends = [at(0), at(1) - NANOSECOND, at(1), at(2)];
    let sends: Vec<_> =
        sends.into_iter().zip(0..).map(|(time, id)| (time, Datagram::new(id, 1500))).collect();
    let arrivals = drive(&mut link, &sends);
    assert_eq!(arrivals.iter().map(|a| a.1.id).collect::<Vec<_>>(), [0, 2, 3]);
}

#[test]
fn capable_packets_are_marked_from_the_threshold_on() {
    for queue in [
        Queue::Packets { limit: 100, ecn_threshold: Some(2) },
        Queue::Bytes { limit: 150_000, ecn_threshold: Some(3000) },
    ] {
        let mut link = Link::new(LinkSpec { queue, ..plain() }, 0, 0);
        let packet = |id| Datagram { ect: id != 4, ..Datagram::new(id, 1500) };
        let sends: Vec<_> = (0..6).map(|id| (Time::ZERO, packet(id))).collect();
        // 0 is being sent, 1 and 2 find 0 and 1 in the queue.
        let marked: Vec<_> =
            drive(&mut link, &sends).into_iter().filter(|(_, p)| p.ce).map(|(_, p)| p.id).collect();
        assert_eq!(marked, [3, 5]);
        assert_eq!(link.stats().marked, 2);
    }
}

#[test]
fn lost_packets_use_capacity() {
    let spec = LinkSpec { loss: Loss::Bernoulli(0.5), ..plain() };
    let sends: Vec<_> = (0..50).map(|id| (Time::ZERO, Datagram::new(id, 1500))).collect();
    let mut link = Link::new(spec, 3, 0);
    let arrivals = drive(&mut link, &sends);
    assert!((10..40).contains(&arrivals.len()));
    assert!(arrivals.iter().all(|(arrival, packet)| *arrival == at(21 + packet.id)));
    assert_eq!(link.stats().dropped_loss, 50 - arrivals.len() as u64);
    assert_eq!(link.stats().busy, 50 * MS);
}

#[test]
fn jitter_does_not_change_which_packets_are_lost() {
    let spec = LinkSpec { loss: Loss::Bernoulli(0.1), ..plain() };
    let jitter = Some(Jitter { spread: 5 * MS, shape: JitterShape::Normal, keeps_order: false });
    let lost = |spec: &LinkSpec| {
        let mut ids: Vec<_> =
            drive(&mut Link::new(spec.clone(), 8, 1), &paced(500, MS)).iter().map(|a| a.1.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(lost(&spec), lost(&LinkSpec { jitter, duplicate: 0.0, ..spec.clone() }));
}

#[test]
fn jitter_varies_the_delay_by_its_distribution() {
    for shape in [JitterShape::Uniform, JitterShape::Normal, JitterShape::Pareto] {
        let jitter = Some(Jitter { spread: 4 * MS, shape, keeps_order: false });
        let spec = LinkSpec { jitter, delay: 50 * MS, ..plain() };
        let n = 40_000;
        let arrivals = drive(&mut Link::new(spec, 2, 5), &paced(n, MS));
        let offsets: Vec<f64> = arrivals
            .iter()
            .map(|(arrival, packet)| (*arrival - at(packet.id)).as_secs_f64() * 1e3 - 51.0)
            .collect();
        let mean = offsets.iter().sum::<f64>() / n as f64;
        let deviation = (offsets.iter().map(|o| (o - mean) * (o - mean)).sum::<f64>() / n as f64).sqrt();
        let expected = if shape == JitterShape::Uniform { 4.0 / 3f64.sqrt() } else { 4.0 };
        assert!(
            mean.abs() < 0.1 && (deviation / expected - 1.0).abs() < 0.03,
            "{shape:?} {mean} {deviation}"
        );
        let overtaken = arrivals.windows(2).filter(|pair| pair[0].1.id > pair[1].1.id).count();
        assert!(overtaken > n as usize / 5, "{shape:?} {overtaken}");
    }
}

#[test]
fn order_keeping_jitter_keeps_order() {
    for shape in [JitterShape::Uniform, JitterShape::Normal, JitterShape::Pareto] {
        let jitter = Some(Jitter { spread: 4 * MS, shape, keeps_order: true });
        let spec = LinkSpec { jitter, duplicate: 0.1, ..plain() };
        let arrivals = drive(&mut Link::new(spec, 2, 5), &paced(5000, MS));
        assert!(arrivals.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1.id <= pair[1].1.id));
        assert!(arrivals.iter().any(|(arrival, packet)| *arrival > at(23 + packet.id)));
    }
}

#[test]
fn copies_follow_their_packets_and_take_no_capacity() {
    let mut link = Link::new(LinkSpec { duplicate: 0.3, ..plain() }, 6, 0);
    let arrivals = drive(&mut link, &paced(10_000, MS));
    let copies = arrivals.len() - 10_000;
    // Standard deviation 46.
    assert!(copies.abs_diff(3000) < 200, "{copies}");
    assert_eq!(link.stats().duplicated, copies as u64);
    assert!(arrivals.iter().all(|(arrival, packet)| *arrival == at(21 + packet.id)));
}

#[test]
fn a_trace_sends_when_it_says() {
    let trace = RateTrace::parse("t", "1\n1\n3\n10").unwrap();
    let spec = LinkSpec { rate: Rate::Trace(Arc::new(trace)), delay: 100 * MS, ..plain() };
    let sends: Vec<_> =
        (0..8).map(|id| (Time::ZERO, Datagram::new(id, if id < 2 { 500 } else { 1500 }))).collect();
    let arrivals = drive(&mut Link::new(spec, 0, 0), &sends);
    // Two small packets and a third of the next share the first opportunity.
    let expected = [(101, 0), (101, 1), (101, 2), (103, 3), (110, 4), (111, 5), (111, 6), (113, 7)];
    assert_eq!(times_and_ids(&arrivals), expected.map(|(ms, id)| (at(ms), id)));
}

#[test]
fn a_trace_wastes_what_nobody_uses() {
    let trace = RateTrace::parse("t", "1\n2\n3\n4").unwrap();
    let spec = LinkSpec { rate: Rate::Trace(Arc::new(trace)), delay: Span::ZERO, ..plain() };
    let sends = [
        (at(0), 100),
        (at(1), 100),
        (at(1) + NANOSECOND, 100),
        (at(5) - NANOSECOND, 2000),
        (at(5) - NANOSECOND, 1),
    ];
    let sends = sends.map(|(time, len)| (time, Datagram::new(len.into(), len)));
    let arrivals = drive(&mut Link::new(spec, 0, 0), &sends);
    // What comes with an opportunity is too late for it; what is left of one serves the packet behind.
    assert_eq!(arrivals.iter().map(|a| a.0.as_millis()).collect::<Vec<_>>(), [1, 2, 2, 6, 6]);
}

#[test]
fn a_saturated_trace_carries_all_its_opportunities() {
    // 6 Mbit/s in bursts: 5000 opportunities of 1500 bytes in 10 s.
    let mut opportunities: Vec<u32> = (0..4999).map(|i| 1 + i * i % 9_999).collect();
    opportunities.sort_unstable();
    opportunities.push(10_000);
    let trace = RateTrace::new("bursts", opportunities);
    let spec = LinkSpec {
        rate: Rate::Trace(Arc::new(trace)),
        delay: Span::ZERO,
        ..LinkSpec::plain(1, Span::ZERO, 1000)
    };
    // Three periods, packets that don't fit opportunities.
    let run = saturate(&spec, 0, 1400, 500, at(30_000));
    let carried = run.arrivals.iter().filter(|(arrival, _)| *arrival <= at(30_000)).count() as u64 * 1400;
    let capacity = spec.capacity_integral(Time::ZERO, at(30_000));
    assert!(capacity - carried < 1400, "{carried} {capacity}");
    assert!((capacity as f64 / 22_500_000.0 - 1.0).abs() < 0.001, "{capacity}");
}

#[test]
fn codel_keeps_a_standing_queue_near_its_target() {
    // An additive-increase source over 20 ms each way at 12 Mbit/s: halves once a round trip when it sees
    // loss.
    let run = |queue| {
        let mut forward: Link<Datagram> = Link::new(LinkSpec { queue, ..plain() }, 0, 0);
        let (mut window, mut next, mut expected, mut recover) = (10.0f64, 0u64, 0u64, 0u64);
        let (mut in_flight, mut acks) = (0i64, std::collections::VecDeque::new());
        let (mut waits, mut delivered) = (Span::ZERO, 0u64);
        for tick in 0..300_000u64 {
            let now = Time::ZERO + tick * MS / 10;
            while let Some((arrival, packet)) = forward.poll_timed(now) {
                acks.push_back((arrival + 20 * MS, packet.id));
            }
            while let Some(&(time, id)) = acks.front()
                && time <= now
            {
                acks.pop_front();
                in_flight -= 1 + (id - expected) as i64;
                if id > expected && id >= recover {
                    window = (window / 2.0).max(2.0);
                    recover = next;
                }
                expected = id + 1;
                window += 1.0 / window;
            }
            while in_flight < window as i64 {
                if now > at(10_000) {
                    waits += forward.queue_delay(now);
                    delivered += 1;
                }
                forward.enqueue(now, Datagram::new(next, 1500));
                next += 1;
                in_flight += 1;
            }
        }
        (waits.as_secs_f64() * 1e3 / delivered as f64, forward.stats().busy.as_secs_f64() / 30.0)
    };
    let (tail_wait, _) = run(Queue::Packets { limit: 100, ecn_threshold: None });
    let (wait, busy) = run(Queue::CoDel { limit: 100, target: 5 * MS, interval: 100 * MS, ecn: false });
    assert!(tail_wait > 40.0, "{tail_wait} ms");
    assert!((1.0..12.0).contains(&wait), "{wait} ms");
    // One flow that halves empties a queue this short now and then.
    assert!(busy > 0.8, "{busy}");
}

#[test]
fn a_new_rate_holds_for_packets_that_start_later() {
    let spec = changing(&[(2, ChangeAction::Rate(Rate::Constant(120_000_000)))]);
    let sends: Vec<_> = (0..5).map(|id| (Time::ZERO + MS / 2, Datagram::new(id, 1500))).collect();
    let arrivals = drive(&mut Link::new(spec, 0, 0), &sends);
    // 0 and 1 at 1 ms each; 1 is being sent at 2 ms and ends at 2.5.
    let expected = [215, 225, 226, 227, 228].map(|tenths| Time::ZERO + tenths * MS / 10);
    assert_eq!(arrivals.iter().map(|a| a.0).collect::<Vec<_>>(), expected);
}

#[test]
fn a_rate_of_nothing_holds_the_queue() {
    let spec = changing(&[
        (0, ChangeAction::Rate(Rate::Constant(0))),
        (50, ChangeAction::Rate(Rate::Constant(12_000_000))),
    ]);
    let mut link = Link::new(spec, 0, 0);
    link.enqueue(at(0), Datagram::new(0, 1500));
    assert_eq!((link.poll_timeout(), link.queue_delay(at(1))), (Some(at(50)), Span::MAX));
    let arrivals = drive(&mut link, &[(at(1), Datagram::new(1, 1500))]);
    assert_eq!(times_and_ids(&arrivals), [(at(71), 0), (at(72), 1)]);
    let mut never = Link::new(LinkSpec { rate: Rate::Constant(0), ..plain() }, 0, 0);
    assert_eq!(drive(&mut never, &paced(300, MS)), []);
    assert_eq!(never.stats().dropped_queue, 200);
}

#[test]
fn a_shorter_delay_lets_packets_overtake() {
    let spec = changing(&[(2, ChangeAction::Delay(5 * MS))]);
    let arrivals = drive(&mut Link::new(spec, 0, 0), &paced(4, MS));
    assert_eq!(times_and_ids(&arrivals), [(8, 2), (9, 3), (21, 0), (22, 1)].map(|(ms, id)| (at(ms), id)));
}

#[test]
fn a_new_loss_model_holds_from_then_on() {
    let spec =
        changing(&[(10, ChangeAction::Loss(Loss::Bernoulli(1.0))), (20, ChangeAction::Loss(Loss::None))]);
    let arrivals = drive(&mut Link::new(spec, 0, 0), &paced(30, MS));
    let ids: Vec<u64> = arrivals.iter().map(|a| a.1.id).collect();
    assert_eq!(ids, (0..10).chain(20..30).collect::<Vec<_>>());
}

#[test]
fn down_loses_the_queue_and_what_is_being_sent_but_not_what_is_under_way() {
    let spec = changing(&[(3, ChangeAction::Down), (30, ChangeAction::Up)]);
    let mut sends: Vec<_> = (0..10).map(|id| (Time::ZERO + MS / 2, Datagram::new(id, 1500))).collect();
    sends.push((at(10), Datagram::new(10, 1500)));
    sends.push((at(30), Datagram::new(11, 1500)));
    let mut link = Link::new(spec, 0, 0);
    let arrivals = drive(&mut link, &sends);
    assert_eq!(
        times_and_ids(&arrivals),
        [(215, 0), (225, 1), (510, 11)].map(|(t, id)| (Time::ZERO + t * MS / 10, id))
    );
    assert_eq!(link.stats().dropped_down, 9);
    assert_eq!(link.stats().busy, 2 * MS + MS / 2 + MS);
    assert_eq!(link.stats().inside(), 0);
}

#[test]
fn a_packet_whose_last_bit_leaves_as_the_link_goes_down_arrives() {
    let spec = changing(&[(1, ChangeAction::Down)]);
    let arrivals = drive(&mut Link::new(spec, 0, 0), &paced(2, Span::ZERO));
    assert_eq!(times_and_ids(&arrivals), [(at(21), 0)]);
}

#[test]
fn changes_may_come_in_any_order() {
    let mut spec = changing(&[(3, ChangeAction::Down), (30, ChangeAction::Up)]);
    let sorted = drive(&mut Link::new(spec.clone(), 0, 0), &paced(60, MS));
    spec.changes.reverse();
    assert_eq!(drive(&mut Link::new(spec, 0, 0), &paced(60, MS)), sorted);
}

#[test]
fn nothing_is_due_when_nothing_is_inside() {
    let spec = changing(&[(3, ChangeAction::Down), (30_000, ChangeAction::Up)]);
    let mut link = Link::new(spec, 0, 0);
    assert_eq!(link.poll_timeout(), None);
    link.enqueue(at(5), Datagram::new(0, 1500));
    assert_eq!(link.poll_timeout(), None);
}

/// netem's `limit`: of packets every millisecond over a fast link with a delay of 20 ms, as many are under
/// way as it says, and the rest is dropped; a queue's own limit never fills.
#[test]
fn a_limit_may_count_what_is_in_transit() {
    for (counts, dropped) in [(false, 0), (true, 50)] {
        let spec = LinkSpec { limit_counts_transit: counts, ..LinkSpec::plain(1_000_000_000, 20 * MS, 10) };
        for stepwise in [false, true] {
            let make = if stepwise { Link::stepwise } else { Link::new };
            let mut link = make(spec.clone(), 0, 0);
            for ms in 0..100 {
                link.enqueue(at(ms), Datagram::new(ms, 1500));
            }
            assert_eq!(link.stats().dropped_queue, dropped, "{counts} {stepwise}");
        }
    }
}
