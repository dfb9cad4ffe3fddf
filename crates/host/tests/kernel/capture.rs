//! Whole emulated runs as captures and logs, at the engine's end and at the kernel's: tshark finds no
//! malformed packet and no expert error, etherparse reads every packet and agrees with its checksums, and the
//! engine's packets bear the scheduler's reason.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use ropewalk_engine::Span;
use ropewalk_evidence::Path;
use ropewalk_host::capture::{Capture, Files};
use ropewalk_host::network::Side;
use ropewalk_host::transfer::Direction;
use ropewalk_host::world::PathLinks;
use ropewalk_link::{LinkSpec, Loss};

use crate::harness::{Case, run};
use crate::judges::{Opinion, etherparse, qlog, tshark};
use crate::need_kernel;

struct Evidence {
    pcap: PathBuf,
    qlog: PathBuf,
}

/// Two paths, one of which loses packets now and then.
fn links() -> Vec<PathLinks> {
    let fast = LinkSpec::plain(200_000_000, Span::from_millis(2), 400);
    let lossy =
        LinkSpec { loss: Loss::Bernoulli(0.005), ..LinkSpec::plain(100_000_000, Span::from_millis(5), 400) };
    [fast, lossy].map(|link| PathLinks { up: link.clone(), down: link, bottleneck: None }).into()
}

/// Runs a case with everything written at one end.
fn record(name: &str, side: Side, mut case: Case) -> Evidence {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let evidence =
        Evidence { pcap: folder.join(format!("{name}.pcapng")), qlog: folder.join(format!("{name}.qlog")) };
    let paths: Vec<_> =
        (0..case.paths).map(|at| Path { name: format!("p{at}"), description: String::new() }).collect();
    let create = |file| BufWriter::new(File::create(file).expect("a file in the target folder"));
    let files =
        Files { pcap: Some(create(&evidence.pcap)), qlog: Some((create(&evidence.qlog), name.to_string())) };
    let capture = Capture::new(files, side, &paths).expect("a capture");
    case.tap = Some(Box::new(capture.clone()));
    case.config.trace_decisions = true;
    let subflows = case.subflows;
    run(case).multipath(name, subflows);
    capture.finish().expect("whole files");
    evidence
}

#[test]
fn tshark_and_etherparse_find_nothing_wrong_with_either_end() {
    need_kernel!();
    for (name, engine, side, way, v6) in [
        ("engine-sends", Side::Client, Side::Client, Direction::Upload, false),
        ("kernel-receives", Side::Client, Side::Server, Direction::Upload, false),
        ("kernel-sends", Side::Client, Side::Server, Direction::Download, false),
        ("engine-serves", Side::Server, Side::Server, Direction::Download, true),
    ] {
        let case = Case { links: Some(links()), v6, ..Case::new(engine, 2, way, 1 << 20) };
        let evidence = record(name, side, case);
        let count = etherparse(name, &evidence.pcap);
        assert!(count > 500, "{name}: {count} packets");
        let events = qlog(name, &evidence.qlog);
        assert!(events("transport:packet_sent") + events("transport:packet_received") > 500, "{name}");
        // Metrics are noted as they change: with few ACKs ten times a megabyte.
        for event in ["mptcp:decision", "recovery:metrics_updated"] {
            assert_eq!(events(event) > 4, engine == side, "{name}: {} times {event}", events(event));
        }
        let Some(opinion) = tshark(name, &evidence.pcap, count) else { continue };
        assert_eq!((opinion.connections, opinion.subflows), (1, 2), "{name}");
        if engine == side {
            let Opinion { sent, reasons, .. } = opinion;
            assert!(reasons * 10 > sent * 9, "{name}: {reasons} reasons on {sent} data packets");
        }
    }
}
