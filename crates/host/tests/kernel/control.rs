//! Control between the engine and the kernel: addresses announced and withdrawn (RFC 8684 3.4), FASTCLOSE
//! (3.5), backup subflows (3.3.8).

use std::net::Ipv4Addr;

use ropewalk_engine::PathId;
use ropewalk_engine::config::LocalEndpoint;
use ropewalk_host::kernel;
use ropewalk_host::network::{Side, client_v4};
use ropewalk_host::transfer::Direction;
use socket2::Socket;

use crate::harness::{Case, assert_no_errors_but, counter, run};
use crate::need_kernel;
use crate::stage::{self, Order, Setup, Stage, assert_pattern};

const MIB: u64 = 1 << 20;
const WAYS: [Direction; 2] = [Direction::Upload, Direction::Download];
/// A second address of the server, behind the same paths.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 127, 254, 1);

#[test]
fn the_engine_announces_an_address_and_the_kernel_joins_there() {
    need_kernel!();
    for port in [None, Some(5001)] {
        for way in WAYS {
            let mut case = Case { subflows: 2, ..Case::new(Side::Server, 1, way, 4 * MIB) };
            case.config.path_manager.endpoints = vec![LocalEndpoint {
                address: SECOND.into(),
                port,
                path: PathId(0),
                id: 3,
                signal: true,
                subflow: false,
                backup: false,
            }];
            let name = format!("port {port:?}, {way:?}");
            let report = run(case);
            report.multipath(&name, 2);
            assert_eq!(
                (report.counter("AddAddr"), report.counter("EchoAddTx")),
                (1, 1),
                "{name}: {:?}",
                report.mptcp()
            );
            if port.is_some() {
                assert_eq!(report.counter("PortAdd"), 1, "{name}: {:?}", report.mptcp());
            }
        }
    }
}

#[test]
fn the_kernel_announces_an_address_and_the_engine_joins_there() {
    need_kernel!();
    for port in ["", " port 5001"] {
        for way in WAYS {
            let mut case = Case { subflows: 2, ..Case::new(Side::Client, 1, way, 4 * MIB) };
            case.kernel.commands = vec![
                format!("address add {SECOND}/32 dev lo"),
                format!("mptcp endpoint add {SECOND} signal{port}"),
            ];
            let name = format!("`{port}`, {way:?}");
            let report = run(case);
            report.multipath(&name, 2);
            assert_eq!(report.counter("EchoAdd"), 1, "{name}: {:?}", report.mptcp());
        }
    }
}

#[test]
fn the_engine_aborts_a_connection() {
    need_kernel!();
    for engine in [Side::Client, Side::Server] {
        for way in WAYS {
            let case = Case { abort_after: Some(MIB), ..Case::new(engine, 2, way, 64 * MIB) };
            let report = run(case);
            let name = format!("engine {engine:?}, {way:?}: {:?} {:?}", report.mptcp(), report.kernel);
            assert!(report.counter("MPFastcloseRx") >= 1, "{name}");
            assert_eq!(counter(&report.engine_counters, "MPFastcloseTx"), 1, "{name}");
            // The kernel's socket has no more to tell by then: the engine's end does, and what was counted.
            assert!(report.engine[0].multipath && report.engine[0].subflows == 2, "{name}");
            let joined = if engine == Side::Client { "MPJoinAckRx" } else { "MPJoinSynAckRx" };
            assert_eq!(report.counter(joined), 1, "{name}");
            // What the FASTCLOSE finds still open is reset by either, whoever is sooner (RFC 8684 3.5).
            assert_no_errors_but(&name, &report.counters, &["MPFastcloseRx", "MPRstRx", "MPRstTx"]);
            let error = report.kernel[0].error.as_ref().map(ToString::to_string).unwrap_or_default();
            assert!(error.contains("reset by peer") || error.contains("Broken pipe"), "{name}");
        }
    }
}

#[test]
fn the_kernel_aborts_a_connection_with_data_unread() {
    need_kernel!();
    for (engine, way) in [(Side::Client, Direction::Upload), (Side::Server, Direction::Download)] {
        let case =
            Case { abort_after: Some(MIB), kernel_aborts: true, ..Case::new(engine, 2, way, 64 * MIB) };
        let report = run(case);
        let name = format!("engine {engine:?}: {:?} {:?}", report.mptcp(), report.kernel);
        assert!(report.counter("MPFastcloseTx") >= 1, "{name}");
        assert!(counter(&report.engine_counters, "MPFastcloseRx") >= 1, "{name}");
        for outcome in report.engine.iter().chain(&report.kernel) {
            assert!(outcome.multipath && outcome.subflows == 2, "{name}");
        }
        assert_no_errors_but(&name, &report.counters, &["MPFastcloseTx", "MPRstTx"]);
        let error = report.engine[0].error.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(error.contains("FASTCLOSE"), "{error}; {name}");
    }
}

/// The number of an endpoint of the kernel's path manager.
fn endpoint_id(stage: &Stage, address: &str) -> String {
    let endpoints = stage.kernel.check("ip", &["mptcp", "endpoint"]).unwrap();
    let line = endpoints.lines().find(|line| line.starts_with(address)).expect("the endpoint");
    line.split_whitespace().nth(2).expect("its number").to_string()
}

/// After a subflow has gone with its address: data both ways over the one that is left.
fn goes_on(stage: &Stage, socket: &Socket, case: &str) {
    stage.wait_subflows(1);
    let before = stage.seen().count;
    stage.order(Order::Send(MIB));
    stage::receive(socket, MIB);
    stage::send(socket, MIB);
    stage.wait(case, |seen| seen.count == before + MIB);
    stage.wait_kernel(case, |_| kernel::info(socket).unwrap().is_some_and(|info| info.extra_subflows == 0));
    assert!(!kernel::info(socket).unwrap().expect("Multipath TCP").fallback, "{case}");
}

#[test]
fn the_kernel_withdraws_an_address() {
    need_kernel!();
    for engine in [Side::Client, Side::Server] {
        let case = format!("engine {engine:?}");
        let mut setup = Setup::new(engine, if engine == Side::Client { 1 } else { 2 });
        let address = match engine {
            // What it had announced, and the engine had joined.
            Side::Client => {
                setup.commands = vec![
                    format!("address add {SECOND}/32 dev lo"),
                    format!("mptcp endpoint add {SECOND} signal"),
                ];
                SECOND
            }
            // That of a subflow that it had opened.
            Side::Server => client_v4(1),
        };
        let (stage, socket) = Stage::meet(setup);
        stage::send(&socket, MIB);
        stage.order(Order::Send(MIB));
        stage::receive(&socket, MIB);
        stage.wait_subflows(2);
        let id = endpoint_id(&stage, &address.to_string());
        stage.kernel.check("ip", &["mptcp", "endpoint", "delete", "id", &id]).unwrap();
        stage.wait(&case, |seen| counter(&seen.counters, "RmAddr") == 1);
        goes_on(&stage, &socket, &case);
        assert_eq!(stage.counter("RmAddrTx"), 1, "{case}: {:?}", stage.counters());
        let seen = stage.end_but(&case, &["MPRstTx", "MPRstRx"]);
        assert!(seen.multipath, "{case}");
        seen.received.chunks(MIB as usize).for_each(assert_pattern);
    }
}

#[test]
fn the_engine_withdraws_an_address() {
    need_kernel!();
    let case = "the engine leaves its second path";
    let (stage, socket) = Stage::meet(Setup::new(Side::Client, 2));
    stage::send(&socket, MIB);
    stage.order(Order::Send(MIB));
    stage::receive(&socket, MIB);
    stage.wait_subflows(2);
    stage.order(Order::Leave(PathId(1)));
    stage.wait_kernel(case, |stage| stage.counter("RmAddr") == 1);
    goes_on(&stage, &socket, case);
    let seen = stage.end_but(case, &["MPRstTx", "MPRstRx"]);
    assert_eq!(counter(&seen.counters, "RmAddrTx"), 1, "{:?}", seen.counters);
    assert!(seen.multipath, "{case}");
    seen.received.chunks(MIB as usize).for_each(assert_pattern);
}

#[test]
fn a_backup_subflow_of_either_side_carries_nothing_while_the_other_lives() {
    need_kernel!();
    // The kernel opens its second subflow as a backup; the engine sends.
    let mut case = Case::new(Side::Server, 2, Direction::Download, 4 * MIB);
    case.kernel.commands = vec![
        "mptcp endpoint flush".into(),
        format!("mptcp endpoint add {} dev path1 subflow backup", client_v4(1)),
    ];
    let report = run(case);
    report.multipath("the kernel's backup", 2);
    let bytes = &report.engine[0].stats.as_ref().expect("the engine's counters").bytes_by_subflow;
    assert_eq!(bytes[1], 0, "{bytes:?}");
    // The engine does.
    let mut case = Case::new(Side::Client, 2, Direction::Upload, 4 * MIB);
    case.config.path_manager.endpoints = vec![LocalEndpoint {
        address: client_v4(1).into(),
        port: None,
        path: PathId(1),
        id: 2,
        signal: false,
        subflow: true,
        backup: true,
    }];
    let report = run(case);
    report.multipath("the engine's backup", 2);
    let bytes = &report.engine[0].stats.as_ref().expect("the engine's counters").bytes_by_subflow;
    assert_eq!(bytes[1], 0, "{bytes:?}");
}
