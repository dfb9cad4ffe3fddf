//! Nanoseconds per packet: queue, send and deliver, kept 20 packets deep, as a simulator drives a link.
//! Packets are of the size of a segment.

use divan::{Bencher, black_box, counter::ItemsCount};
use std::sync::Arc;

use ropewalk_link::{Jitter, JitterShape, Link, LinkSpec, Loss, Packet, Queue, Rate, RateTrace};
use ropewalk_time::{MILLISECOND, Span, Time};

fn main() {
    divan::main();
}

const PACKETS: u64 = 10_000;

struct Segment {
    len: u32,
    _ack: bool,
    _rest: [u64; 16],
}

impl Packet for Segment {
    fn wire_len(&self) -> u32 {
        self.len
    }

    fn is_ect(&self) -> bool {
        false
    }

    fn mark_ce(&mut self) {}

    fn duplicate(&self) -> Self {
        Segment { len: self.len, _ack: self._ack, _rest: self._rest }
    }
}

fn clean() -> LinkSpec {
    // 1500 bytes in 120 us; 10 ms: 83 packets in flight.
    LinkSpec::plain(100_000_000, 10 * MILLISECOND, 500)
}

fn jittery(shape: JitterShape, keeps_order: bool) -> LinkSpec {
    LinkSpec { jitter: Some(Jitter { spread: 2 * MILLISECOND, shape, keeps_order }), ..clean() }
}

/// Hands in two packets per 240 us, polls what is due.
fn run(bencher: Bencher<'_, '_>, link: Link<Segment>) {
    let mut link = link;
    let mut now = Time::ZERO;
    for _ in 0..20 {
        link.enqueue(now, Segment { len: 1500, _ack: true, _rest: [0; 16] });
    }
    bencher.counter(ItemsCount::new(PACKETS)).bench_local(|| {
        for id in 0..PACKETS / 2 {
            now += Span::from_micros(240);
            while link.poll_timeout().is_some_and(|due| due <= now) {
                black_box(&link.poll(now));
            }
            link.enqueue(now, Segment { len: 1500, _ack: true, _rest: [id; 16] });
            link.enqueue(now, Segment { len: 1500, _ack: true, _rest: [id; 16] });
        }
    });
}

#[divan::bench]
fn clean_link(bencher: Bencher<'_, '_>) {
    run(bencher, Link::new(clean(), 1, 0));
}

#[divan::bench]
fn loss_1_percent(bencher: Bencher<'_, '_>) {
    run(bencher, Link::new(LinkSpec { loss: Loss::Bernoulli(0.01), ..clean() }, 1, 0));
}

#[divan::bench]
fn jitter_uniform(bencher: Bencher<'_, '_>) {
    run(bencher, Link::new(jittery(JitterShape::Uniform, false), 1, 0));
}

#[divan::bench]
fn jitter_normal(bencher: Bencher<'_, '_>) {
    run(bencher, Link::new(jittery(JitterShape::Normal, false), 1, 0));
}

#[divan::bench]
fn jitter_pareto(bencher: Bencher<'_, '_>) {
    run(bencher, Link::new(jittery(JitterShape::Pareto, false), 1, 0));
}

#[divan::bench]
fn jitter_normal_in_order(bencher: Bencher<'_, '_>) {
    run(bencher, Link::new(jittery(JitterShape::Normal, true), 1, 0));
}

#[divan::bench]
fn long_fat(bencher: Bencher<'_, '_>) {
    // 25,000 packets in flight.
    run(bencher, Link::new(LinkSpec::plain(100_000_000, 3000 * MILLISECOND, 500), 1, 0));
}

#[divan::bench]
fn plain_path(bencher: Bencher<'_, '_>) {
    run(bencher, Link::stepwise(clean(), 1, 0));
}

#[divan::bench]
fn codel(bencher: Bencher<'_, '_>) {
    let queue =
        Queue::CoDel { limit: 1000, target: 5 * MILLISECOND, interval: 100 * MILLISECOND, ecn: false };
    run(bencher, Link::new(LinkSpec { queue, ..clean() }, 1, 0));
}

#[divan::bench]
fn jitter_normal_wide(bencher: Bencher<'_, '_>) {
    // A spread of 400 packets.
    let jitter = Some(Jitter { spread: 48 * MILLISECOND, shape: JitterShape::Normal, keeps_order: false });
    run(bencher, Link::new(LinkSpec { jitter, delay: 200 * MILLISECOND, ..clean() }, 1, 0));
}

#[divan::bench]
fn trace(bencher: Bencher<'_, '_>) {
    // 100 Mbit/s in bursts: 500,000 opportunities of 1500 bytes in a minute.
    let mut opportunities: Vec<u32> = (0..499_999u64).map(|i| 1 + (i * i % 59_999) as u32).collect();
    opportunities.sort_unstable();
    opportunities.push(60_000);
    let trace = RateTrace::new("bursts", opportunities);
    run(bencher, Link::new(LinkSpec { rate: Rate::Trace(Arc::new(trace)), ..clean() }, 1, 0));
}
