//! Writes the seeds of all corpora (files `seed-*`): the captured packets of crates/wire/tests/captures
//! in the form that each target reads, and one segment per option. Run in this folder:
//! `cargo run --bin seeds`.

use std::fs;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use ropewalk_gateway::convert::message::{Message, TcpOption, Tlv};
use ropewalk_host::perf::protocol::{Answer, Hello, Mode, Trailer};
use ropewalk_wire::*;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut packets = Vec::new();
    let mut files: Vec<_> =
        fs::read_dir(root.join("../crates/wire/tests/captures"))?.collect::<Result<_, _>>()?;
    files.sort_by_key(fs::DirEntry::path);
    for file in files {
        let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
        for line in fs::read_to_string(file.path())?.lines() {
            packets.push(
                line.as_bytes()
                    .chunks_exact(2)
                    .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
                    .collect::<Bytes>(),
            );
        }
    }
    let corpora = root.join("corpus");
    let mut count = 0;
    let mut write = |target: &str, data: &[u8]| -> std::io::Result<()> {
        let folder = corpora.join(target);
        fs::create_dir_all(&folder)?;
        count += 1;
        fs::write(folder.join(format!("seed-{count:03}")), data)
    };

    // Packets that differ in the shape of their options, not in numbers alone.
    let mut shapes = Vec::new();
    for packet in packets {
        let Ok(segment) = parse(packet.clone(), ParseMode::Verify) else { continue };
        let shape = shape_of(&segment);
        if shapes.contains(&shape) {
            continue;
        }
        shapes.push(shape);
        let is_v4 = segment.tuple.src.is_ipv4();
        write(if is_v4 { "parse_ipv4" } else { "parse_ipv6" }, &packet)?;
        let options_start = segment.headers_len() - segment.options_len();
        let options = &packet[options_start..segment.headers_len()];
        write("tcp_options", options)?;
        write("mptcp_options", &mptcp_bodies(options))?;
        let router = if is_v4 { "10.0.1.254" } else { "fd00:1::fe" }.parse().expect("an address");
        let mut message = BytesMut::new();
        encode_icmp_too_big(router, 1400, &packet, &mut message).expect("a packet to refuse");
        write("icmp_too_big", &message)?;
        let mut large = segment.clone();
        if !large.payload.is_empty() {
            large.gso_size = 50;
        }
        let headers = virtio::encode_frame_headers(&large).expect("encoded before");
        write("virtio_frame", &[&headers[..], &large.payload[..]].concat())?;
    }

    // For the targets that build segments: one option each, then pairs, then some payload.
    for option in 0..14u16 {
        for other in [option, (option + 1) % 14] {
            let mut draw = vec![(option % 2) as u8];
            draw.extend((0..if option % 2 == 1 { 8 } else { 32 }).map(|at| at + 1));
            draw.extend((0..12).map(|at| at * 17));
            draw.extend([0x10, 0x20, 0, 0, 0, option as u8]);
            draw.extend((1u16 << option | 1 << other).to_be_bytes());
            draw.extend((0..64u8).map(|at| at.wrapping_mul(41)));
            write("round_trip", &draw)?;
            write("gso", &[&[0, 6], &draw[..]].concat())?;
        }
    }
    // What happens to a connection: data carried both ways and closed; then the same with each other
    // operation in between.
    for operation in 0..16u8 {
        for end in [0, 16] {
            let operation = operation | end | (operation % 4) << 6;
            let noise = [3, 64, 17, 9, 200, 1, 12, 130];
            let mut script = vec![operation >> 4 & 1];
            script.extend([6 | 96, 6 | 16 | 32, 0xe0, 0xf0, operation]);
            script.extend(
                &noise[..if operation & 15 > 11 { 2 + 2 * (usize::from(operation >> 5) % 4) } else { 0 }],
            );
            script.extend([0xe0, 0xf0, 7, 23, 9, 0xe0, 0xf0, 11, 27, 0xe0, 0xf0]);
            write("engine", &script)?;
        }
    }

    // The messages of `ropewalk perf`, whole and cut.
    let mut messages = Vec::new();
    for mode in [Mode::Up, Mode::Down, Mode::Both, Mode::Echo] {
        let hello = Hello {
            mode,
            flow: 1,
            flows: 3,
            milliseconds: 1000,
            bytes: 0,
            session: 77,
            echo: if mode == Mode::Echo { 64 } else { 0 },
            scheduler: "ecf(beta=0.5)".into(),
            congestion: "lia".into(),
        };
        messages.push(hello.encode());
    }
    for refusal in [None, Some("busy".to_string())] {
        messages.push(Answer { engine: refusal.is_none(), refusal }.encode());
    }
    messages.push(Trailer { received: 5, multipath: true, ..Trailer::default() }.encode().to_vec());
    for message in messages {
        write("perf_protocol", &message)?;
        write("perf_protocol", &message[..message.len() - 3])?;
    }
    // Messages of RFC 8803: each TLV, and what is refused.
    let address = |text: &str| text.parse().expect("an address and a port");
    let option = |kind, value: &[u8]| TcpOption { kind, value: value.to_vec() };
    for tlvs in [
        vec![],
        vec![Tlv::Info, Tlv::Cookie(vec![7; 16])],
        vec![Tlv::Connect { peer: address("192.0.2.1:443"), options: None }],
        vec![Tlv::Connect {
            peer: address("[2001:db8::1]:80"),
            options: Some(vec![option(30, &[]), option(34, &[1, 2, 3])]),
        }],
        vec![Tlv::Connect { peer: address("127.0.0.1:80"), options: None }],
        vec![Tlv::ExtendedHeader(vec![4, 2, 1, 1])],
        vec![Tlv::SupportedExtensions(vec![30])],
        vec![Tlv::Error { code: 97, value: vec![1] }, Tlv::Datagrams],
        vec![Tlv::Info, Tlv::Info],
    ] {
        let message = Message { tlvs }.encode();
        write("convert_message", &message)?;
        write("convert_message", &[&message[..], b"data"].concat())?;
    }
    println!("{count} seeds");
    Ok(())
}

/// What is there, with all numbers left out.
fn shape_of(segment: &Segment<Bytes>) -> String {
    let has_data = !segment.payload.is_empty();
    let text = format!(
        "{} {:?} {:?} {:?} {has_data}",
        segment.tuple.src.is_ipv4(),
        segment.flags,
        segment.dss,
        segment.rare
    );
    text.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#")
}

/// The bodies of the MPTCP options, in the form of the target `mptcp_options`.
fn mptcp_bodies(mut options: &[u8]) -> Vec<u8> {
    let mut bodies = Vec::new();
    while let [kind, tail @ ..] = options {
        let len = if *kind <= 1 { 1 } else { tail.first().map_or(options.len(), |len| usize::from(*len)) };
        let (option, rest) = options.split_at(len.clamp(1, options.len()));
        if *kind == 30 && option.len() > 2 {
            bodies.push(option.len() as u8 - 2);
            bodies.extend_from_slice(&option[2..]);
        }
        options = rest;
    }
    bodies
}
