//! Control between a client of the kernel's and the gateway that a middlebox loses, forges or alters, and a
//! client that moves to another address.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ropewalk_wire::{Flags, MpJoin, RareOptions, Segment};
use socket2::SockRef;

use super::path::*;
use super::stage::*;

/// What nobody has announced.
const OTHER: [&str; 2] = ["10.98.0.4", "fd98::4"];
/// A gateway that gives a client up soon.
const SILENT: &str = "keep-alive = '1 s'";

/// Loses each segment with an option, and counts them.
fn lose(path: &Path, has: fn(&RareOptions) -> bool) -> Arc<AtomicUsize> {
    let lost = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lost);
    path.set(Box::new(move |_, _, segment| {
        if segment.rare.as_deref().is_some_and(has) {
            counted.fetch_add(1, Ordering::Relaxed);
            return vec![];
        }
        vec![segment]
    }));
    lost
}

#[test]
fn an_announcement_with_a_changed_bit_is_ignored() {
    let Some(path) = Path::new() else { return };
    let (gateway, backend) = (path.gateway(""), path.backend());
    add_addresses(&path);
    let ids = FURTHER.map(|address| endpoint(&path, address, "signal"));
    let mut heard = path.mib("MPTcpExtAddAddr");
    for address in gateways() {
        // The address id, an octet of the address, each octet of the HMAC, and none.
        for change in 0..11 {
            let seen = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&seen);
            path.set(Box::new(move |way, _, mut segment| {
                if way == Way::Up
                    && let Some(add) = segment.rare.as_mut().and_then(|rare| rare.add_addr.as_mut())
                    && !add.echo
                {
                    counted.fetch_add(1, Ordering::Relaxed);
                    match change {
                        8 => add.address_id ^= 0x10,
                        9 => add.address = OTHER[usize::from(add.address.is_ipv6())].parse().unwrap(),
                        10 => {}
                        octet => add.hmac = add.hmac.map(|hmac| hmac ^ (1 << (8 * octet))),
                    }
                }
                vec![segment]
            }));
            let (client, server) = open(&path, &backend, address);
            wait("an announcement", || seen.load(Ordering::Relaxed) > 0);
            exchange(&client, &server);
            let now = path.mib("MPTcpExtAddAddr");
            if change < 10 {
                assert_eq!(now, heard, "{address}, change {change}: {}", gateway.log());
            } else {
                assert!(now > heard, "{address}: the honest one is heard: {}", gateway.log());
                heard = now;
            }
        }
    }
    ids.iter().for_each(|id| delete_endpoint(&path, id));
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn an_honest_join_gets_through_forged_ones() {
    let Some(path) = Path::new() else { return };
    let (gateway, backend) = (path.gateway(""), path.backend());
    add_addresses(&path);
    let ids = FURTHER.map(|address| endpoint(&path, address, "subflow"));
    let mut before = 0;
    for address in gateways() {
        // Before its SYN come others with its token, and before its third ACK theirs, from one who hasn't the
        // keys.
        let forged = 1000..1100;
        let mut third_acks = Vec::new();
        path.set(Box::new(move |way, _, segment| {
            if way == Way::Down {
                if !forged.contains(&segment.tuple.dst_port) {
                    return vec![segment];
                }
                if segment.flags.contains(Flags::SYN) {
                    let next = segment.seq.plus(1);
                    let mut ack = Segment::new(segment.tuple.reversed(), segment.ack, next, Flags::ACK);
                    ack.rare_mut().mp_join = Some(MpJoin::Ack { hmac: [0x55; 20] });
                    third_acks.push(ack);
                }
                return vec![];
            }
            let mut all = std::mem::take(&mut third_acks);
            if matches!(segment.rare.as_deref().and_then(|rare| rare.mp_join), Some(MpJoin::Syn { .. })) {
                all.extend(forged.clone().map(|port| {
                    let mut syn = segment.clone();
                    syn.tuple.src_port = port;
                    syn
                }));
            }
            all.push(segment);
            all
        }));
        let (client, server) = open(&path, &backend, address);
        wait("the honest join", || further_subflows(&client) == 1);
        exchange(&client, &server);
        let refused = path.mib("MPTcpExtMPJoinAckHMacFailure");
        assert!(refused > before, "{address}: {}", gateway.log());
        before = refused;
        path.set(pass());
    }
    ids.iter().for_each(|id| delete_endpoint(&path, id));
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn a_forged_reset_needs_the_exact_number() {
    let Some(path) = Path::new() else { return };
    let (gateway, backend, data) = (path.gateway(""), path.backend(), pattern(100_000));
    for address in gateways() {
        for (flags, delta) in
            [(Flags::RST, 1), (Flags::RST, u32::MAX), (Flags::RST, 1000), (Flags::SYN, 0), (Flags::RST, 0)]
        {
            let mut data_segments = 0;
            path.set(Box::new(move |way, _, segment| {
                let len = segment.payload.len() as u32;
                data_segments += u32::from(way == Way::Up && len > 0);
                if way == Way::Down || len == 0 || data_segments != 5 {
                    return vec![segment];
                }
                let number = segment.seq.plus(len).plus(delta);
                let forged = Segment::new(segment.tuple, number, segment.ack, flags);
                vec![segment, forged]
            }));
            let echoed = path.echo(&backend, address, &data, if delta == 0 { SHORT } else { LONG });
            let case = format!("{address}, {flags:?}, {delta}: {}", gateway.log());
            if flags == Flags::RST && delta == 0 {
                assert!(echoed.is_err(), "it is the peer's own number: {case}");
            } else {
                assert!(echoed.unwrap() == data, "{case}");
            }
        }
    }
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn lost_mp_prio_and_remove_addr_leave_data_whole() {
    let Some(path) = Path::new() else { return };
    let (gateway, backend) = (path.gateway(""), path.backend());
    add_addresses(&path);
    for (address, further) in gateways().into_iter().zip(FURTHER) {
        path.set(pass());
        let id = endpoint(&path, further, "subflow");
        let (client, server) = open(&path, &backend, address);
        wait("a second subflow", || further_subflows(&client) == 1);
        // Once, twice, three times.
        let lost = lose(&path, |rare| rare.mp_prio.is_some());
        for (times, word) in [(1, "backup"), (2, "nobackup"), (3, "backup")] {
            path.client.check("ip", &["mptcp", "endpoint", "change", "id", &id, word]).unwrap();
            wait("MP_PRIO", || lost.load(Ordering::Relaxed) >= times);
            exchange(&client, &server);
        }
        let lost = lose(&path, |rare| rare.remove_addr.is_some());
        delete_endpoint(&path, &id);
        wait("REMOVE_ADDR", || lost.load(Ordering::Relaxed) >= 1);
        exchange(&client, &server);
        wait("the subflow's end", || further_subflows(&client) == 0);
        exchange(&client, &server);
    }
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn a_lost_fastclose_frees_the_connection_all_the_same() {
    let Some(path) = Path::new() else { return };
    let (gateway, backend) = (path.gateway(SILENT), path.backend());
    for address in gateways() {
        path.set(pass());
        // The client throws its connection away, with data unread.
        let (client, mut server) = open(&path, &backend, address);
        let lost = lose(&path, |rare| rare.mp_fastclose.is_some());
        server.write_all(&pattern(1000)).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        drop(client);
        wait("the client's FASTCLOSE", || lost.load(Ordering::Relaxed) >= 1);
        // The server is told so: by a reset, or when it writes.
        wait("the server's connection ends", || server.write_all(b"more").is_err());
        // The server resets its connection, and the gateway throws the client's away.
        path.set(pass());
        let (mut client, server) = open(&path, &backend, address);
        let lost = lose(&path, |rare| rare.mp_fastclose.is_some());
        SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
        drop(server);
        wait("the gateway's FASTCLOSE", || lost.load(Ordering::Relaxed) >= 1);
        wait("the client's connection ends", || client.write_all(b"more").is_err());
        wait("nothing is left", || path.connections() == 0);
    }
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn a_probe_is_no_lost_connection() {
    let Some(path) = Path::new() else { return };
    let (gateway, backend) = (path.gateway(""), path.backend());
    path.set(pass());
    let reset = |client: socket2::Socket| {
        client.set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        wait("nothing is left", || path.connections() == 0);
    };
    for address in gateways() {
        let client = path.connect(address, LONG).unwrap();
        let (_server, _) = backend.accept().unwrap();
        reset(client);
    }
    let counts = || ["connections_accepted", "connections_client_lost"].map(|name| path.count(name));
    assert_eq!(counts(), [2, 0], "{}", gateway.log());
    let (client, _server) = open(&path, &backend, gateways()[0]);
    reset(client);
    assert_eq!(counts(), [3, 1], "{}", gateway.log());
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn a_client_that_moves_to_another_address_goes_on() {
    let Some(path) = Path::new() else { return };
    let (gateway, backend) = (path.gateway(""), path.backend());
    add_addresses(&path);
    for (address, further) in gateways().into_iter().zip(FURTHER) {
        path.set(pass());
        let (client, server) = open(&path, &backend, address);
        let id = endpoint(&path, further, "subflow");
        wait("a second subflow", || further_subflows(&client) == 1);
        // The old address is gone: nothing from it or for it passes any more.
        let kept: std::net::IpAddr = further.parse().unwrap();
        path.set(Box::new(move |way, _, segment| {
            let client = if way == Way::Up { segment.tuple.src } else { segment.tuple.dst };
            if client == kept { vec![segment] } else { vec![] }
        }));
        for _ in 0..3 {
            exchange(&client, &server);
        }
        delete_endpoint(&path, &id);
        drop((client, server));
    }
    path.set(pass());
    assert_eq!(gateway.end(), Some(0));
}
