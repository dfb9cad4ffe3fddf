//! The matrix once more where every path loses one packet in a hundred and packets overtake each other: one,
//! two and four subflows, IPv6, checksums, announced addresses, half-close; the engine at either end, data
//! either way.

use std::net::{Ipv4Addr, Shutdown};

use ropewalk_engine::config::LocalEndpoint;
use ropewalk_engine::{PathId, Span, Time};
use ropewalk_host::kernel;
use ropewalk_host::network::Side;
use ropewalk_host::transfer::Direction;
use ropewalk_host::world::PathLinks;
use ropewalk_link::{Change, ChangeAction, Jitter, JitterShape, LinkSpec, Loss};

use crate::harness::{Case, OUTSIDE_THE_WINDOW, run};
use crate::need_kernel;
use crate::stage::{self, Order, Setup, Stage, assert_pattern};

const BOTH: [Side; 2] = [Side::Client, Side::Server];
const WAYS: [Direction; 2] = [Direction::Upload, Direction::Download];
const MIB: u64 = 1 << 20;
const MS: Span = Span::from_millis(1);
/// A second address of the server's, behind the same paths.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 127, 254, 1);

/// Paths of 20 Mbit/s. Loss begins when handshakes are over, since one that loses a packet takes longer than
/// a sender waits for its subflows; `transfers` has those. From then on the delay goes up and down, and at
/// each step down packets overtake those before.
fn links(paths: usize) -> Option<Vec<PathLinks>> {
    let mut link = LinkSpec::plain(20_000_000, 3 * MS, 200);
    let begin = Time::ZERO + 100 * MS;
    link.changes = vec![Change::once(begin, ChangeAction::Loss(Loss::Bernoulli(0.01)))];
    for step in 0..400 {
        let delay = if step % 2 == 0 { 6 * MS } else { 3 * MS };
        link.changes.push(Change::once(begin + step * 10 * MS, ChangeAction::Delay(delay)));
    }
    Some(vec![PathLinks { up: link.clone(), down: link, bottleneck: None }; paths])
}

/// Runs it; paths lost packets and Multipath TCP held nevertheless.
fn hold(name: &str, case: Case) {
    let (subflows, paths) = (case.subflows, case.paths);
    let report = run(Case { links: links(paths), ..case });
    report.multipath_but(name, subflows, &OUTSIDE_THE_WINDOW);
    let lost: u64 = report.links.iter().flatten().map(|link| link.dropped_loss).sum();
    assert!(lost > 0, "{name}: nothing was lost: {:?}", report.links);
}

#[test]
fn one_two_and_four_subflows() {
    need_kernel!();
    for engine in BOTH {
        for paths in [1, 2, 4] {
            for way in WAYS {
                let case = Case::new(engine, paths, way, (1 + paths as u64) * MIB);
                hold(&format!("engine {engine:?}, {paths} paths, {way:?}"), case);
            }
        }
    }
}

#[test]
fn ipv6_and_checksums() {
    need_kernel!();
    for engine in BOTH {
        for way in WAYS {
            hold(
                &format!("IPv6, engine {engine:?}, {way:?}"),
                Case { v6: true, ..Case::new(engine, 2, way, 2 * MIB) },
            );
            let mut case = Case::new(engine, 2, way, 2 * MIB);
            (case.config.checksum, case.kernel.checksum) = (true, true);
            hold(&format!("checksums, engine {engine:?}, {way:?}"), case);
        }
    }
}

#[test]
fn an_announced_address_is_joined() {
    need_kernel!();
    for engine in BOTH {
        for way in WAYS {
            let mut case = Case { subflows: 2, ..Case::new(engine, 1, way, MIB) };
            match engine {
                Side::Client => {
                    case.kernel.commands = vec![
                        format!("address add {SECOND}/32 dev lo"),
                        format!("mptcp endpoint add {SECOND} signal"),
                    ];
                }
                Side::Server => {
                    case.config.path_manager.endpoints = vec![LocalEndpoint {
                        address: SECOND.into(),
                        port: None,
                        path: PathId(0),
                        id: 3,
                        signal: true,
                        subflow: false,
                        backup: false,
                    }];
                }
            }
            hold(&format!("ADD_ADDR, engine {engine:?}, {way:?}"), case);
        }
    }
}

#[test]
fn either_side_closes_its_sending_side_first() {
    need_kernel!();
    for engine in BOTH {
        for engine_first in [true, false] {
            let case = format!("engine {engine:?}, closes first {engine_first}");
            let (stage, socket) = Stage::meet(Setup { links: links(2), ..Setup::new(engine, 2) });
            stage.order(Order::Send(MIB));
            stage::send(&socket, MIB);
            stage::receive(&socket, MIB);
            stage.wait_subflows(2);
            stage.wait(&case, |seen| seen.count == MIB);
            if engine_first {
                stage.order(Order::Finish);
                stage::expect_end(&socket);
                stage::send(&socket, MIB);
                stage.wait(&case, |seen| seen.count == 2 * MIB);
            } else {
                socket.shutdown(Shutdown::Write).unwrap();
                stage.wait(&case, |seen| seen.peer_closed);
                stage.order(Order::Send(MIB));
                stage.order(Order::Finish);
                stage::receive(&socket, MIB);
            }
            let info = kernel::info(&socket).unwrap().expect("Multipath TCP");
            assert_eq!((info.extra_subflows, info.fallback), (1, false), "{case}");
            if !engine_first {
                stage::expect_end(&socket);
            }
            drop(socket);
            stage.wait(&case, |seen| seen.closed);
            let seen = stage.end_but(&case, &OUTSIDE_THE_WINDOW);
            seen.received.chunks(MIB as usize).for_each(assert_pattern);
        }
    }
}

/// A Linux server that gets any other segment before those with MP_CAPABLE falls back, whoever the client is:
/// docs/wire.md. Otherwise Multipath TCP holds, with checksums as without.
#[test]
fn checksums_hold_where_the_first_packets_overtake_each_other() {
    need_kernel!();
    let mut link = LinkSpec::plain(100_000_000, 8 * MS, 1000);
    link.jitter = Some(Jitter { spread: 6 * MS, shape: JitterShape::Uniform, keeps_order: false });
    for checksum in [false, true] {
        let mut held = 0;
        for way in WAYS {
            for seed in 0..4 {
                let links = PathLinks { up: link.clone(), down: link.clone(), bottleneck: None };
                let links = Some(vec![links]);
                let mut case = Case { links, seed, ..Case::new(Side::Client, 1, way, MIB / 4) };
                (case.config.checksum, case.kernel.checksum) = (checksum, checksum);
                let report = run(case);
                let name = format!("checksums {checksum}, {way:?}, seed {seed}");
                if report.counter("MPCapableFallbackACK") > 0 {
                    report.complete(&name);
                    assert_eq!(way, Direction::Upload, "{name}: one segment can't overtake itself");
                    assert_eq!((report.counter("DataCsumErr"), report.counter("MPFailTx")), (0, 0), "{name}");
                } else {
                    report.multipath_but(&name, 1, &OUTSIDE_THE_WINDOW);
                    held += 1;
                }
            }
        }
        assert!(held >= 5, "checksums {checksum}: {held} of 8 held");
    }
}
