//! Peers that want to cost memory, beside an honest client.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;

use crate::attacker::Attacker;
use crate::processes::{ROPEWALK, Server, alone, client, errors, json, namespace, number};

const ENGINE: &str = "10.126.0.2";
/// How many segments out of order the attacker sends, and how far apart.
const CRUMBS: u32 = 6_000;

/// Each segment beyond a gap is held, and arrives between those of a fast flow. It may hold no more memory than its own size
/// calls for, however large the buffers are that packets are read into.
#[test]
fn one_byte_segments_out_of_order_hold_little_memory() {
    let _alone = alone();
    let Some(namespace) = namespace() else { return };
    let attacker = Attacker::new(&namespace).expect("a device");
    let server = Server::start(&namespace, &["--stack", "engine"]);
    let honest = |seconds: &str| {
        let mut command = namespace.command("timeout");
        command.args(["20", ROPEWALK, "perf", "client", ENGINE, "--json", "--time", seconds]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a client")
    };
    let rate = |output: std::process::Output| {
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        number(&json(&output)["upload"]["bits_per_second"]) / 1e6
    };
    let alone = rate(honest("1").wait_with_output().expect("an end"));
    let (before, _) = server.usage();
    let open = attacker.connect(40_000, SocketAddr::new(ENGINE.parse().expect("an address"), 5202));
    let running = honest("3");
    std::thread::sleep(Duration::from_millis(500));
    let mut most = 0;
    for at in 0..CRUMBS {
        attacker.send(&open.segment(1 + 2 * at, Bytes::from_static(b"x")));
        while attacker.receive().is_some() {}
        // Spread over as many of the buffers as can be.
        std::thread::sleep(Duration::from_micros(300));
        if at % 500 == 499 {
            most = most.max(server.usage().0);
        }
    }
    let beside = rate(running.wait_with_output().expect("an end"));
    let (after, _) = server.usage();
    println!(
        "{CRUMBS} segments: {before} KiB before, {most} KiB at most, {after} KiB after; {alone:.0} Mbit/s alone, {beside:.0} beside them"
    );
    assert!(most < before + 16 * 1024 && after < before + 16 * 1024, "{before} KiB, {most} KiB, {after} KiB");
    assert!(beside > alone / 2.0, "{alone} Mbit/s, then {beside}");
    let output = client(&namespace, &[ENGINE, "--size", "1 MB"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
}
