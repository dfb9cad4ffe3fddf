//! Options taken away on the path: the transfer must complete as plain TCP, or on the subflows that are left.

use ropewalk_host::network::Side;
use ropewalk_host::transfer::Direction;

use crate::harness::{Case, have, run};
use crate::need_kernel;

const MIB: u64 = 1 << 20;
const WAYS: [Direction; 2] = [Direction::Upload, Direction::Download];

fn rules(hook: &str, matches: &str) -> Vec<String> {
    vec![
        "add table inet strip".into(),
        format!("add chain inet strip options {{ type filter hook {hook} priority raw; }}"),
        format!("add rule inet strip options {matches} reset tcp option mptcp"),
    ]
}

/// Where the options vanish, as the kernel's namespace sees the packets, and the counter of the kernel's that rises.
fn cases(engine: Side) -> [(&'static str, Vec<String>); 3] {
    let syn = "tcp flags & (syn | ack) == syn";
    let syn_ack = "tcp flags & (syn | ack) == (syn | ack)";
    let plain = "tcp flags & (syn | ack | rst) == ack";
    let (from_client, from_server) = match engine {
        Side::Client => ("input", "output"),
        Side::Server => ("output", "input"),
    };
    let prerouting = |hook: &'static str| if hook == "input" { "prerouting" } else { hook };
    [
        ("the SYN", rules(prerouting(from_client), syn)),
        ("the SYN/ACK", rules(prerouting(from_server), syn_ack)),
        ("the third ACK and all that follows", rules(prerouting(from_client), plain)),
    ]
}

#[test]
fn options_stripped_in_the_handshake() {
    need_kernel!();
    if !have("nft") {
        println!("skipped: nft is not installed");
        return;
    }
    for engine in [Side::Client, Side::Server] {
        for way in WAYS {
            for (what, rules) in cases(engine) {
                let mut case = Case { subflows: 1, ..Case::new(engine, 2, way, MIB) };
                case.kernel.rules = rules;
                let name = format!("without options from {what}, engine {engine:?}, {way:?}");
                let report = run(case);
                report.complete(&name);
                assert!(!report.engine[0].multipath, "{name}: {:?}", report.mptcp());
                assert!(!report.kernel[0].multipath, "{name}: {:?}", report.mptcp());
            }
        }
    }
}
