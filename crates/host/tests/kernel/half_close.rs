//! One side closes its sending direction first, and data goes on flowing the other way (RFC 8684 3.3.3):
//! whoever is the engine, whoever opened the connection, whoever closes first.

use std::net::Shutdown;

use ropewalk_host::network::Side;

use crate::need_kernel;
use crate::stage::{self, Order, Setup, Stage, assert_pattern};

const FIRST: u64 = 1 << 20;
const REST: u64 = 4 << 20;

#[test]
fn the_engine_closes_its_sending_side_first() {
    need_kernel!();
    for engine in [Side::Client, Side::Server] {
        let case = format!("engine {engine:?}");
        let (stage, socket) = Stage::meet(Setup::new(engine, 2));
        stage.order(Order::Send(FIRST));
        stage::receive(&socket, FIRST);
        // The kernel takes no join once a side has closed.
        stage.wait_subflows(2);
        stage.order(Order::Finish);
        stage::expect_end(&socket);
        stage::send(&socket, REST);
        stage.wait(&case, |seen| seen.received.len() as u64 == REST);
        let info = ropewalk_host::kernel::info(&socket).unwrap().expect("Multipath TCP");
        assert_eq!((info.extra_subflows, info.fallback), (1, false), "{case}");
        drop(socket);
        stage.wait(&case, |seen| seen.closed);
        assert_pattern(&stage.end(&case).received);
    }
}

#[test]
fn the_kernel_closes_its_sending_side_first() {
    need_kernel!();
    for engine in [Side::Client, Side::Server] {
        let case = format!("engine {engine:?}");
        let (stage, socket) = Stage::meet(Setup::new(engine, 2));
        stage::send(&socket, FIRST);
        stage.wait_subflows(2);
        socket.shutdown(Shutdown::Write).unwrap();
        stage.wait(&case, |seen| seen.peer_closed);
        stage.order(Order::Send(REST));
        stage.order(Order::Finish);
        stage::receive(&socket, REST);
        let info = ropewalk_host::kernel::info(&socket).unwrap().expect("Multipath TCP");
        assert_eq!((info.extra_subflows, info.fallback), (1, false), "{case}");
        stage::expect_end(&socket);
        drop(socket);
        stage.wait(&case, |seen| seen.closed);
        let seen = stage.end(&case);
        assert_eq!(seen.received.len() as u64, FIRST, "{case}");
        assert_pattern(&seen.received);
    }
}
