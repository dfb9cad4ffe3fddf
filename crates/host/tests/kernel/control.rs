//! Control between the engine and the kernel: announced addresses (RFC 8684 3.4), FASTCLOSE (3.5), backup subflows
//! (3.3.8).

use std::net::Ipv4Addr;

use ropewalk_engine::PathId;
use ropewalk_engine::config::LocalEndpoint;
use ropewalk_host::network::{Side, client_v4};
use ropewalk_host::transfer::Direction;

use crate::harness::{Case, run};
use crate::need_kernel;

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
fn the_engine_throws_a_connection_away() {
    need_kernel!();
    for way in WAYS {
        let case = Case { abort_after: Some(MIB), ..Case::new(Side::Client, 2, way, 64 * MIB) };
        let report = run(case);
        let name = format!("{way:?}: {:?} {:?}", report.mptcp(), report.kernel);
        assert!(report.counter("MPFastcloseRx") >= 1, "{name}");
        assert!(report.kernel[0].error.is_some(), "{name}");
    }
}

#[test]
fn the_kernel_throws_a_connection_away_with_data_unread() {
    need_kernel!();
    let case = Case {
        abort_after: Some(MIB),
        kernel_aborts: true,
        ..Case::new(Side::Client, 2, Direction::Upload, 64 * MIB)
    };
    let report = run(case);
    assert!(report.counter("MPFastcloseTx") >= 1, "{:?}", report.mptcp());
    let error = report.engine[0].error.clone().unwrap_or_default();
    assert!(error.contains("FASTCLOSE"), "{error}; {:?}", report.mptcp());
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
