//! One connection with a subflow over IPv4 and one over IPv6: the other family's address is announced (RFC
//! 8684 3.4.1).

use std::net::{IpAddr, SocketAddr};

use ropewalk_engine::PathId;
use ropewalk_engine::config::LocalEndpoint;
use ropewalk_host::experiment::PORT;
use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::network::{Side, client_address, client_v4, client_v6, server_address, server_v6};

use crate::need_kernel;
use crate::stage::{self, Order, Setup, Stage, assert_pattern};

const BYTES: u64 = 4 << 20;

fn endpoint(address: IpAddr, path: u16, signal: bool) -> LocalEndpoint {
    LocalEndpoint { address, port: None, path: PathId(path), id: 9, signal, subflow: !signal, backup: false }
}

fn exchange(stage: Stage, socket: &socket2::Socket, case: &str) {
    stage.order(Order::Send(BYTES));
    // A client joins when its peer has acknowledged something.
    stage.wait_subflows(2);
    stage::send(socket, BYTES);
    stage::receive(socket, BYTES);
    stage.wait(case, |seen| seen.received.len() as u64 == BYTES);
    let info = kernel::info(socket).unwrap().expect("Multipath TCP");
    assert_eq!((info.extra_subflows, info.fallback), (1, false), "{case}");
    let sockets = stage.kernel.check("ss", &["-tanH", "state", "established"]).unwrap();
    let v6 = sockets.lines().filter(|line| line.contains("fd72:")).count();
    assert_eq!((sockets.lines().count(), v6), (2, 1), "{case}: {sockets}");
    let seen = stage.end(case);
    assert!(seen.multipath, "{case}");
    assert_pattern(&seen.received);
}

#[test]
fn the_kernel_announces_its_ipv6_address_and_the_engine_joins_there() {
    need_kernel!();
    let mut setup = Setup::new(Side::Client, 2);
    setup.commands = vec![format!("mptcp endpoint add {} signal", server_v6())];
    setup.config.path_manager.endpoints = vec![endpoint(client_v6(1).into(), 1, false)];
    let (stage, socket) = Stage::meet(setup);
    exchange(stage, &socket, "the kernel announces");
}

#[test]
fn the_engine_announces_its_ipv6_address_and_the_kernel_joins_there() {
    need_kernel!();
    let mut setup = Setup::new(Side::Server, 2);
    // The kernel's own addresses would be tried at the server's first.
    setup.commands = vec!["mptcp endpoint flush".into()];
    setup.config.path_manager.endpoints = vec![endpoint(server_v6().into(), 1, true)];
    let (stage, ()) = Stage::new(setup, |_| ());
    // Of an IPv6 socket: the kernel lets no IPv4 socket have IPv6 subflows.
    let mapped = |address: IpAddr| match address {
        IpAddr::V4(address) => IpAddr::V6(address.to_ipv6_mapped()),
        v6 => v6,
    };
    let socket = kernel::connect(
        &stage.kernel,
        Some(mapped(client_v4(0).into())),
        SocketAddr::new(mapped(server_address(false)), PORT),
        &SocketConfig::default(),
    )
    .expect("a connection");
    exchange(stage, &socket, "the engine announces");
}

#[test]
fn an_ipv6_connection_gains_an_ipv4_subflow() {
    need_kernel!();
    let mut setup = Setup::new(Side::Client, 2);
    setup.local = Some(client_address(0, true));
    setup.remote = Some(server_address(true));
    setup.commands = vec![format!("mptcp endpoint add {} signal", server_address(false))];
    setup.config.path_manager.endpoints = vec![endpoint(client_v4(1).into(), 1, false)];
    let (stage, socket) = Stage::meet(setup);
    exchange(stage, &socket, "IPv6 first");
}
