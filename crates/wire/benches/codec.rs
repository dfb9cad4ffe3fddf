//! Cost of the codec per packet and per byte: `cargo bench -p ropewalk-wire`.

use bytes::{Bytes, BytesMut};
use divan::Bencher;
use divan::counter::BytesCount;
use ropewalk_wire::*;

fn main() {
    divan::main();
}

/// A data segment as a stream carries it: timestamps, DSS with mapping and data ACK.
fn data(len: usize) -> Segment<Bytes> {
    let tuple = FourTuple::new("10.0.0.1:40000".parse().unwrap(), "10.0.1.2:443".parse().unwrap());
    let mut segment = Segment::new(tuple, Seq(1), Seq(2), Flags::ACK.with(Flags::PSH));
    segment.timestamps = Some(Timestamps { value: 3, echo: 4 });
    let mapping = DssMapping { dsn: 5, ssn: 6, len: len as u16, checksum: None, dsn_is_64: true };
    segment.dss = Some(Dss { data_ack: Some(7), ack_is_64: false, mapping: Some(mapping), data_fin: false });
    segment.payload = Bytes::from(vec![0xa5; len]);
    segment.gso_size = if len > 1424 { 1424 } else { 0 };
    segment
}

/// A pure ACK, one packet, the largest super-packet.
const LENGTHS: [usize; 3] = [0, 1424, 64_080];

#[divan::bench(args = LENGTHS)]
fn checksum_only(bencher: Bencher<'_, '_>, len: usize) {
    let payload = data(len).payload;
    bencher.counter(BytesCount::new(len)).bench(|| payload.ones_complement_sum());
}

#[divan::bench(args = LENGTHS)]
fn encode_with_checksum(bencher: Bencher<'_, '_>, len: usize) {
    let segment = data(len);
    let mut out = BytesMut::with_capacity(70_000);
    bencher.counter(BytesCount::new(len)).bench_local(|| {
        out.clear();
        encode_into(&segment, ChecksumMode::Full, &mut out)
    });
}

/// For a device with offload: virtio and packet headers, the payload is written from where it is.
#[divan::bench(args = LENGTHS)]
fn encode_frame_headers(bencher: Bencher<'_, '_>, len: usize) {
    let segment = data(len);
    bencher.counter(BytesCount::new(len)).bench(|| virtio::encode_frame_headers(&segment));
}

#[divan::bench(args = LENGTHS)]
fn parse_and_verify(bencher: Bencher<'_, '_>, len: usize) {
    parse_with(bencher, len, ParseMode::Verify);
}

#[divan::bench(args = LENGTHS)]
fn parse_and_trust(bencher: Bencher<'_, '_>, len: usize) {
    parse_with(bencher, len, ParseMode::Trust);
}

fn parse_with(bencher: Bencher<'_, '_>, len: usize, mode: ParseMode) {
    let mut out = BytesMut::new();
    encode_into(&data(len), ChecksumMode::Full, &mut out).expect("valid");
    let packet = out.freeze();
    bencher.counter(BytesCount::new(len)).bench(|| parse(packet.clone(), mode));
}

#[divan::bench]
fn split_a_super_segment(bencher: Bencher<'_, '_>) {
    let segment = data(64_080);
    bencher
        .counter(BytesCount::new(64_080usize))
        .bench(|| gso::split(segment.clone()).map(|packet| packet.payload.len()).sum::<usize>());
}

#[divan::bench]
fn merge_a_super_segment(bencher: Bencher<'_, '_>) {
    let packets: Vec<_> = gso::split(data(64_080)).collect();
    let mut merger = gso::Merger::new();
    bencher.counter(BytesCount::new(64_080usize)).bench_local(|| {
        for packet in &packets {
            assert!(merger.push(packet.clone()).is_none());
        }
        merger.finish()
    });
}

#[divan::bench]
fn cut_a_super_segment_into_packets(bencher: Bencher<'_, '_>) {
    let segment = data(64_080);
    let (mut out, mut ends) = (BytesMut::with_capacity(70_000), Vec::new());
    bencher.counter(BytesCount::new(64_080usize)).bench_local(|| {
        out.clear();
        ends.clear();
        encode_packets(&segment, &mut out, &mut ends)
    });
}

#[divan::bench]
fn coalesce_packets_into_a_super_segment(bencher: Bencher<'_, '_>) {
    let (mut out, mut ends) = (BytesMut::new(), Vec::new());
    encode_packets(&data(64_080), &mut out, &mut ends).expect("valid");
    let packets = out.freeze();
    let mut coalescer = Coalescer::new();
    bencher.counter(BytesCount::new(64_080usize)).bench_local(|| {
        let mut start = 0;
        for &end in &ends {
            coalescer.push(&packets, start..end, |_| panic!("it isn't finished")).expect("valid");
            start = end;
        }
        coalescer.finish(drop);
    });
}
