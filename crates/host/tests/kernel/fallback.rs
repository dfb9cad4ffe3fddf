//! Options taken away on the path: the transfer must complete as plain TCP, or on the subflows that are left.

use ropewalk_host::network::Side;
use ropewalk_host::transfer::Direction;

use crate::harness::{Case, assert_no_errors_but, counter, lacks, run};
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

/// Where the options vanish, as the kernel's namespace sees the packets.
struct Strip {
    what: &'static str,
    rules: Vec<String>,
    /// The counters that must rise: the kernel's, and the engine's by the same names. Who was never asked for
    /// Multipath TCP has nothing to count.
    kernel: Option<&'static str>,
    engine: Option<&'static str>,
}

fn cases(engine: Side) -> [Strip; 3] {
    let syn = "tcp flags & (syn | ack) == syn";
    let syn_ack = "tcp flags & (syn | ack) == (syn | ack)";
    let plain = "tcp flags & (syn | ack | rst) == ack";
    // (kernel, engine) at the SYN, at the SYN/ACK, at the third ACK.
    let (from_client, from_server, counters) = match engine {
        Side::Client => (
            "prerouting",
            "output",
            [
                (None, Some("MPCapableFallbackSYNACK")),
                (Some("MPCapableFallbackACK"), Some("MPCapableFallbackSYNACK")),
                (Some("MPCapableFallbackACK"), Some("DssFallback")),
            ],
        ),
        Side::Server => (
            "output",
            "prerouting",
            [
                (Some("MPCapableFallbackSYNACK"), None),
                (Some("MPCapableFallbackSYNACK"), Some("MPCapableFallbackACK")),
                (Some("MPCapableDataFallback"), Some("MPCapableFallbackACK")),
            ],
        ),
    };
    let strip = |at: usize, what, hook, matches| Strip {
        what,
        rules: rules(hook, matches),
        kernel: counters[at].0,
        engine: counters[at].1,
    };
    [
        strip(0, "the SYN", from_client, syn),
        strip(1, "the SYN/ACK", from_server, syn_ack),
        strip(2, "the third ACK and all that follows", from_client, plain),
    ]
}

#[test]
fn options_stripped_in_the_handshake() {
    need_kernel!();
    if lacks(&["nft"]) {
        return;
    }
    for engine in [Side::Client, Side::Server] {
        for way in WAYS {
            for strip in cases(engine) {
                let mut case = Case { subflows: 1, ..Case::new(engine, 2, way, MIB) };
                case.kernel.rules = strip.rules;
                let name = format!("without options from {}, engine {engine:?}, {way:?}", strip.what);
                let report = run(case);
                report.complete(&name);
                let told = format!("{name}: {:?}; the engine: {:?}", report.mptcp(), report.engine_counters);
                assert!(!report.engine[0].multipath && !report.kernel[0].multipath, "{told}");
                for (side, risen, counters) in [
                    ("the kernel's", strip.kernel, &report.counters),
                    ("the engine's", strip.engine, &report.engine_counters),
                ] {
                    match risen {
                        Some(risen) => assert_eq!(counter(counters, risen), 1, "{side} {risen}; {told}"),
                        None => assert_eq!(counter(counters, "MPCapableSYNRX"), 0, "{side}; {told}"),
                    }
                    assert_no_errors_but(&told, counters, risen.as_slice());
                }
            }
        }
    }
}
