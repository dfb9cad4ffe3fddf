//! MP_PRIO in mid-life (RFC 8684 3.3.8), sent by either: the receiver stops sending on the subflow and goes
//! on there when it is told so. And what `ss` shows of the subflows meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk_engine::{PathId, Span};
use ropewalk_host::experiment::PORT;
use ropewalk_host::network::{Side, client_v4};
use ropewalk_host::world::PathLinks;
use ropewalk_link::LinkSpec;

use crate::harness::OUTSIDE_THE_WINDOW;
use crate::need_kernel;
use crate::stage::{self, Order, Setup, Stage, assert_pattern};

/// Enough for both paths to be needed.
const BYTES: u64 = 2 << 20;
/// What may still be under way on a path that has become a backup.
const REST: u64 = 256 << 10;

fn setup(engine: Side) -> Setup {
    let link = LinkSpec::plain(50_000_000, Span::from_millis(5), 100);
    Setup {
        links: Some(vec![PathLinks { up: link.clone(), down: link, bottleneck: None }; 2]),
        ..Setup::new(engine, 2)
    }
}

fn on_second(counters: &[AtomicU64; 4]) -> u64 {
    counters[1].load(Ordering::Relaxed)
}

#[test]
fn the_engine_makes_a_subflow_a_backup_and_back() {
    need_kernel!();
    for engine in [Side::Client, Side::Server] {
        let case = format!("engine {engine:?}");
        let (stage, socket) = Stage::meet(setup(engine));
        // A client opens further subflows when the peer has acknowledged or sent data.
        stage::send(&socket, BYTES);
        stage.wait_subflows(2);
        let mut total = BYTES;
        let mut push = |backup: bool| {
            let before = on_second(&stage.carried.kernel);
            stage::send(&socket, BYTES);
            total += BYTES;
            stage.wait(&case, |seen| seen.received.len() as u64 == total);
            let carried = on_second(&stage.carried.kernel) - before;
            if backup {
                assert!(carried <= REST, "{case}: {carried} bytes over the backup");
            } else {
                assert!(carried > REST, "{case}: only {carried} bytes over the second path");
            }
        };
        push(false);
        for (told, backup) in [(1, true), (2, false)] {
            stage.order(Order::Backup(PathId(1), backup));
            stage.wait_kernel("MP_PRIO", |stage| stage.counter("MPPrioRx") == told);
            push(backup);
        }
        let seen = stage.end_but(&case, &OUTSIDE_THE_WINDOW);
        assert!(seen.multipath, "{case}");
        seen.received.chunks(BYTES as usize).for_each(assert_pattern);
    }
}

#[test]
fn the_kernel_makes_a_subflow_a_backup_and_back() {
    need_kernel!();
    let (stage, socket) = Stage::meet(setup(Side::Server));
    // The kernel joins when its first data is acknowledged, or ours arrives.
    stage.order(Order::Send(BYTES));
    stage::receive(&socket, BYTES);
    stage.wait_subflows(2);
    let endpoints = stage.kernel.check("ip", &["mptcp", "endpoint"]).unwrap();
    let address = client_v4(1).to_string();
    let line = endpoints.lines().find(|line| line.starts_with(&address)).expect("the endpoint");
    let id = line.split_whitespace().nth(2).expect("its id");
    let push = |backup: bool| {
        let before = on_second(&stage.carried.engine);
        stage.order(Order::Send(BYTES));
        stage::receive(&socket, BYTES);
        let carried = on_second(&stage.carried.engine) - before;
        if backup {
            assert!(carried <= REST, "{carried} bytes over the backup");
        } else {
            assert!(carried > REST, "only {carried} bytes over the second path");
        }
    };
    push(false);
    for (told, word) in [(1, "backup"), (2, "nobackup")] {
        stage.kernel.check("ip", &["mptcp", "endpoint", "change", "id", id, word]).unwrap();
        stage.wait(word, |seen| {
            seen.flows.iter().any(|flow| flow.path == PathId(1) && flow.backup == (told == 1))
        });
        assert_eq!(stage.counter("MPPrioTx"), told, "{:?}", stage.counters());
        push(told == 1);
    }
    assert!(stage.end_but("the kernel's MP_PRIO", &OUTSIDE_THE_WINDOW).multipath);
}

#[test]
fn ss_shows_the_connection_and_its_subflows() {
    need_kernel!();
    for engine in [Side::Client, Side::Server] {
        let (stage, socket) = Stage::meet(Setup::new(engine, 4));
        stage.order(Order::Send(BYTES));
        stage::receive(&socket, BYTES);
        stage.wait_subflows(4);
        stage::send(&socket, BYTES);
        stage.wait("the bytes", |seen| seen.received.len() as u64 == BYTES);
        let shown = stage.kernel.check("ss", &["-ManiHO"]).unwrap();
        let connections: Vec<_> = shown.lines().filter(|line| line.starts_with("ESTAB")).collect();
        assert_eq!(connections.len(), 1, "{shown}");
        // A socket for both families writes IPv4 addresses as IPv6's.
        let shown_address = connections[0].replace("[::ffff:10.127.255.1]", "10.127.255.1");
        for expected in [&format!("10.127.255.1:{PORT}"), "subflows:3"] {
            assert!(shown_address.contains(expected), "engine {engine:?}: {expected} in {shown}");
        }
        assert!(!connections[0].contains("fallback"), "{shown}");
        let listed = stage.kernel.check("ss", &["-taniHO"]).unwrap();
        let subflows: Vec<_> = listed.lines().filter(|line| line.starts_with("ESTAB")).collect();
        assert_eq!(subflows.len(), 4, "{listed}");
        for path in 0..4 {
            let address = client_v4(path).to_string();
            let line = subflows.iter().find(|line| line.contains(&address)).expect("the path's subflow");
            assert!(line.contains("tcp-ulp-mptcp"), "engine {engine:?}: {line}");
        }
        assert_pattern(&stage.end("ss").received);
    }
}
