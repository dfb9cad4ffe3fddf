//! Things that go wrong on the way: altered payload, a path that is cut and comes back, options that vanish in
//! mid-stream.

use bytes::{Bytes, BytesMut};
use ropewalk_host::frame::Piece;
use ropewalk_host::network::Side;
use ropewalk_host::transfer::Direction;
use ropewalk_host::world::{Meddler, PathLinks, Verdict};
use ropewalk_link::{Change, ChangeAction, LinkSpec};
use ropewalk_wire::Segment;

use crate::harness::{Case, run};
use crate::need_kernel;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

fn links(down: u64, up: u64) -> Vec<PathLinks> {
    let good = LinkSpec::plain(50_000_000, 5_000_000, 100);
    let mut cut = good.clone();
    cut.changes =
        vec![Change { at: down, action: ChangeAction::Down }, Change { at: up, action: ChangeAction::Up }];
    vec![
        PathLinks { up: cut.clone(), down: cut, bottleneck: None },
        PathLinks { up: good.clone(), down: good, bottleneck: None },
    ]
}

#[test]
fn a_path_is_cut_and_restored() {
    need_kernel!();
    for engine in [Side::Client, Side::Server] {
        for way in [Direction::Upload, Direction::Download] {
            let case =
                Case { links: Some(links(400 * MS, 1200 * MS)), ..Case::new(engine, 2, way, 12 * MIB) };
            let report = run(case);
            let name = format!("engine {engine:?}, {way:?}");
            report.complete(&name);
            assert!(report.kernel[0].multipath, "{name}");
        }
    }
}

/// Changes one bit of the payload of the `nth` data packet on path 0 in one direction, with a right TCP checksum.
struct Flip {
    up: bool,
    nth: u32,
}

impl Meddler for Flip {
    fn meddle(&mut self, _: u64, up: bool, packet: &Piece) -> Verdict {
        let Ok(mut segment) = packet.segment() else { return Verdict::Pass };
        if packet.path != 0 || up != self.up || segment.payload.len() < 1000 {
            return Verdict::Pass;
        }
        if self.nth > 0 {
            self.nth -= 1;
            return Verdict::Pass;
        }
        self.nth = u32::MAX;
        let mut payload = BytesMut::from(&segment.payload[..]);
        payload[500] ^= 1;
        segment.payload = payload.freeze();
        Verdict::Replace(vec![segment])
    }
}

#[test]
fn payload_altered_under_checksum_is_never_delivered() {
    need_kernel!();
    for engine in [Side::Client, Side::Server] {
        for way in [Direction::Upload, Direction::Download] {
            let up = way == Direction::Upload;
            let mut case =
                Case { meddler: Some(Box::new(Flip { up, nth: 40 })), ..Case::new(engine, 2, way, 4 * MIB) };
            case.config.checksum = true;
            case.kernel.checksum = true;
            let report = run(case);
            let name = format!("engine {engine:?}, {way:?}");
            // With a second subflow the first is closed and the bytes come again over the other.
            report.complete(&name);
            let seen = report.counter("DataCsumErr")
                + report.engine[0].stats.as_ref().map_or(0, |stats| stats.checksum_errors);
            assert!(seen >= 1, "{name}: nobody noticed; {:?}", report.mptcp());
        }
    }
}

/// Takes the MPTCP options from every packet from the `nth` data packet on.
struct Strip {
    nth: u32,
}

impl Meddler for Strip {
    fn meddle(&mut self, _: u64, _: bool, packet: &Piece) -> Verdict {
        let Ok(mut segment): Result<Segment<Bytes>, _> = packet.segment() else { return Verdict::Pass };
        if self.nth > 0 {
            self.nth -= u32::from(!segment.payload.is_empty());
            return Verdict::Pass;
        }
        segment.dss = None;
        if let Some(rare) = &mut segment.rare {
            rare.mp_capable = None;
            rare.mp_join = None;
            rare.add_addr = None;
            rare.remove_addr = None;
            rare.mp_prio = None;
            rare.mp_fail = None;
            rare.fastclose = None;
            rare.mp_tcprst = None;
        }
        Verdict::Replace(vec![segment])
    }
}

#[test]
fn options_that_vanish_in_mid_stream_never_corrupt_the_stream() {
    need_kernel!();
    for engine in [Side::Client, Side::Server] {
        for way in [Direction::Upload, Direction::Download] {
            let case = Case {
                meddler: Some(Box::new(Strip { nth: 60 })),
                subflows: 1,
                limit: 4_000 * MS,
                ..Case::new(engine, 1, way, 4 * MIB)
            };
            let report = run(case);
            // RFC 8684 3.7 allows both: going on as plain TCP, or giving up. Wrong bytes it doesn't.
            for outcome in report.engine.iter().chain(&report.kernel) {
                let error = outcome.error.clone().unwrap_or_default();
                assert!(!error.contains("wrong bytes"), "engine {engine:?}, {way:?}: {error}");
            }
        }
    }
}
