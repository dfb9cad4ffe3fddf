//! Transfers that must stay Multipath TCP to the end.

use std::time::Duration;

use ropewalk_engine::Span;
use ropewalk_host::clock::Clock;
use ropewalk_host::network::Side;
use ropewalk_host::transfer::{Direction, Outcome};
use ropewalk_host::tun::Offload;
use ropewalk_host::world::PathLinks;
use ropewalk_link::{Jitter, JitterShape, LinkSpec, Loss};

use crate::harness::{Case, config, run};
use crate::need_kernel;

const BOTH: [Side; 2] = [Side::Client, Side::Server];
const WAYS: [Direction; 2] = [Direction::Upload, Direction::Download];
const MIB: u64 = 1 << 20;

#[test]
fn one_two_and_four_subflows_each_way_with_the_engine_at_either_end() {
    need_kernel!();
    for engine in BOTH {
        for paths in [1, 2, 4] {
            for way in WAYS {
                let case = format!("engine {engine:?}, {paths} paths, {way:?}");
                let report = run(Case::new(engine, paths, way, 8 * MIB));
                report.multipath(&case, paths);
            }
        }
    }
}

#[test]
fn ipv6() {
    need_kernel!();
    for engine in BOTH {
        for way in WAYS {
            let case = Case { v6: true, ..Case::new(engine, 2, way, 4 * MIB) };
            run(case).multipath(&format!("IPv6, engine {engine:?}, {way:?}"), 2);
        }
    }
}

#[test]
fn checksums_asked_for_by_either() {
    need_kernel!();
    for engine in BOTH {
        for way in WAYS {
            for (ours, theirs) in [(true, false), (false, true), (true, true)] {
                let mut case = Case::new(engine, 2, way, 4 * MIB);
                case.config.checksum = ours;
                case.kernel.checksum = theirs;
                let name = format!("checksum ours {ours}, theirs {theirs}, engine {engine:?}, {way:?}");
                let report = run(case);
                report.multipath(&name, 2);
                assert!(report.kernel[0].info.expect("Multipath TCP").checksum, "{name}");
            }
        }
    }
}

#[test]
fn without_offload() {
    need_kernel!();
    for engine in BOTH {
        for way in WAYS {
            let case = Case { offload: Offload::None, ..Case::new(engine, 2, way, 4 * MIB) };
            run(case).multipath(&format!("no offload, engine {engine:?}, {way:?}"), 2);
        }
    }
}

#[test]
fn several_connections_at_once() {
    need_kernel!();
    for engine in BOTH {
        let case = Case { connections: 8, ..Case::new(engine, 2, Direction::Download, MIB) };
        let report = run(case);
        report.multipath(&format!("engine {engine:?}"), 2);
        assert_eq!((report.engine.len(), report.kernel.len()), (8, 8));
    }
}

#[test]
fn every_scheduler() {
    need_kernel!();
    for entry in ropewalk_engine::scheduler::builtin().entries() {
        for engine in BOTH {
            let mut case = Case::new(engine, 2, Direction::Upload, 2 * MIB);
            if engine == Side::Server {
                case.request.direction = Direction::Download;
            }
            case.config.scheduler =
                ropewalk_engine::scheduler::builtin().parse(entry.name).expect("registered");
            run(case).multipath(&format!("{} with the engine as {engine:?}", entry.name), 2);
        }
    }
}

fn lossy() -> Vec<PathLinks> {
    let mut link = LinkSpec::plain(200_000_000, Span::from_millis(3), 200);
    link.loss = Loss::Bernoulli(0.01);
    link.jitter =
        Some(Jitter { spread: Span::from_millis(1), shape: JitterShape::Uniform, keeps_order: false });
    vec![PathLinks { up: link.clone(), down: link, bottleneck: None }; 2]
}

#[test]
fn one_percent_loss_with_reordering() {
    need_kernel!();
    for engine in BOTH {
        for way in WAYS {
            let case = Case { links: Some(lossy()), ..Case::new(engine, 2, way, 4 * MIB) };
            run(case).multipath(&format!("loss, engine {engine:?}, {way:?}"), 2);
        }
    }
}

#[test]
fn a_handshake_in_which_packets_overtake_each_other() {
    need_kernel!();
    let mut link = LinkSpec::plain(100_000_000, Span::from_millis(5), 200);
    link.jitter =
        Some(Jitter { spread: Span::from_micros(4500), shape: JitterShape::Uniform, keeps_order: false });
    let links = vec![PathLinks { up: link.clone(), down: link, bottleneck: None }; 2];
    for seed in 1..=6 {
        for engine in BOTH {
            let case = Case {
                links: Some(links.clone()),
                seed,
                ..Case::new(engine, 2, Direction::Upload, 256 << 10)
            };
            let name = format!("overtaking, engine {engine:?}, seed {seed}");
            let report = run(case);
            report.complete(&name);
            if engine == Side::Client && report.counter("MPCapableFallbackACK") > 0 {
                // Linux takes data that overtook the third ACK for a sign of stripped options
                // (`subflow_syn_recv_sock`), whoever sends it: all bytes must arrive nevertheless.
                assert!(!report.engine[0].multipath && !report.kernel[0].multipath, "{name}");
            } else {
                report.multipath(&name, 2);
            }
        }
    }
}

#[test]
fn nobody_is_reached_and_both_sides_say_so_soon() {
    need_kernel!();
    let mut link = LinkSpec::plain(100_000_000, Span::from_millis(5), 200);
    link.loss = Loss::Bernoulli(1.0);
    for engine in BOTH {
        let links = vec![PathLinks { up: link.clone(), down: link.clone(), bottleneck: None }];
        let case =
            Case { links: Some(links), limit: 3_000_000_000, ..Case::new(engine, 1, Direction::Upload, MIB) };
        let clock = Clock::start();
        let report = run(case);
        let took = Duration::from(clock.now().since_origin());
        assert!(took < Duration::from_secs(15), "engine {engine:?}: {took:?}");
        let errors = |outcomes: &[Outcome]| -> Vec<_> {
            outcomes
                .iter()
                .map(|outcome| outcome.error.as_ref().map(ToString::to_string).unwrap_or_default())
                .collect()
        };
        let (of_engine, of_kernel) = (errors(&report.engine), errors(&report.kernel));
        let told = format!("engine {engine:?}: {of_engine:?} {of_kernel:?}");
        let expected = if engine == Side::Client { "accept: no connection came within" } else { "connect: " };
        assert!(of_kernel.len() == 1 && of_kernel[0].starts_with(expected), "{told}");
        if engine == Side::Client {
            assert!(of_engine.len() == 1 && of_engine[0].starts_with("unfinished"), "{told}");
        }
    }
}

#[test]
fn plain_tcp_peers() {
    need_kernel!();
    for engine in BOTH {
        for way in WAYS {
            // The kernel doesn't speak it.
            let mut case = Case { subflows: 1, ..Case::new(engine, 2, way, 4 * MIB) };
            case.kernel.multipath = false;
            let report = run(case);
            report.complete(&format!("plain kernel, engine {engine:?}, {way:?}"));
            assert!(!report.engine[0].multipath);
            // The engine doesn't.
            let mut case = Case { subflows: 1, ..Case::new(engine, 2, way, 4 * MIB) };
            case.config.multipath = false;
            let report = run(case);
            report.complete(&format!("plain engine, kernel as its peer, engine {engine:?}, {way:?}"));
            assert!(!report.kernel[0].multipath);
        }
    }
}

#[test]
fn congestion_controls_of_ours_against_the_kernel_as_receiver() {
    need_kernel!();
    for entry in ropewalk_engine::congestion::builtin().entries() {
        let mut settings = config();
        settings.congestion = ropewalk_engine::congestion::builtin().parse(entry.name).expect("registered");
        let case = Case { config: settings, ..Case::new(Side::Client, 2, Direction::Upload, 2 * MIB) };
        run(case).multipath(entry.name, 2);
    }
}
