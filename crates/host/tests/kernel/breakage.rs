//! Things that go wrong on the way: altered payload, a path that is cut and comes back, options that vanish
//! in mid-stream.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{MILLISECOND, Span, Time};
use ropewalk_host::frame::Piece;
use ropewalk_host::kernel;
use ropewalk_host::netns::Namespace;
use ropewalk_host::network::Side;
use ropewalk_host::transfer::{Direction, pattern};
use ropewalk_host::world::{Middlebox, PathLinks, Tap, Verdict};
use ropewalk_link::{Change, ChangeAction, LinkSpec};
use socket2::Socket;

use crate::harness::{Case, OUTSIDE_THE_WINDOW, counter, lacks, run};
use crate::need_kernel;
use crate::stage::{self, Order, Setup, Stage};

const MIB: u64 = 1 << 20;
const WAYS: [Direction; 2] = [Direction::Upload, Direction::Download];

const CUT: Time = Time::from_nanos(300_000_000);
const RESTORED: Time = Time::from_nanos(700_000_000);

fn links() -> Vec<PathLinks> {
    let good = LinkSpec::plain(50_000_000, Span::from_millis(5), 100);
    let mut cut = good.clone();
    cut.changes = vec![Change::once(CUT, ChangeAction::Down), Change::once(RESTORED, ChangeAction::Up)];
    vec![
        PathLinks { up: cut.clone(), down: cut, bottleneck: None },
        PathLinks { up: good.clone(), down: good, bottleneck: None },
    ]
}

/// Counts the payload bytes that come out of path 0 in one direction: before the cut, while it lasts, and
/// afterwards.
#[derive(Clone, Default)]
struct Watch {
    up: bool,
    bytes: Arc<[AtomicU64; 3]>,
}

impl Tap for Watch {
    fn on_packet(&mut self, now: Time, up: bool, leaves: bool, piece: &Piece) {
        if !leaves || piece.path != 0 || up != self.up {
            return;
        }
        // What was under way when the link was cut arrives, on a busy machine late.
        let part = if now < CUT + 100 * MILLISECOND { 0 } else { usize::from(now > RESTORED) + 1 };
        let len = piece.segment().map_or(0, |segment| segment.payload.len());
        self.bytes[part].fetch_add(len as u64, Ordering::Relaxed);
    }
}

#[test]
fn a_path_is_cut_and_restored() {
    need_kernel!();
    for engine in [Side::Client, Side::Server] {
        for way in WAYS {
            let watch = Watch { up: way == Direction::Upload, ..Watch::default() };
            let case = Case {
                links: Some(links()),
                tap: Some(Box::new(watch.clone())),
                ..Case::new(engine, 2, way, 20 * MIB)
            };
            let report = run(case);
            let name = format!("engine {engine:?}, {way:?}");
            report.multipath_but(&name, 2, &OUTSIDE_THE_WINDOW);
            let [before, meanwhile, after] =
                [0, 1, 2].map(|part: usize| watch.bytes[part].load(Ordering::Relaxed));
            let told = format!("{name}: {before} bytes before the cut, {meanwhile} in it, {after} after");
            assert!(before > 64 << 10 && meanwhile == 0 && after > MIB, "{told}");
            assert!(report.links[0].iter().any(|link| link.dropped_down > 0), "{told}");
        }
    }
}

/// Changes one bit of the payload of the `nth` data packet on path 0 in one direction, with a right TCP
/// checksum.
struct Flip {
    up: bool,
    nth: u32,
}

impl Middlebox for Flip {
    fn on_packet(&mut self, _: Time, up: bool, packet: &Piece) -> Verdict {
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
        for way in WAYS {
            let up = way == Direction::Upload;
            let mut case = Case {
                middlebox: Some(Box::new(Flip { up, nth: 40 })),
                ..Case::new(engine, 2, way, 4 * MIB)
            };
            case.config.checksum = true;
            case.kernel.checksum = true;
            let report = run(case);
            let name = format!("engine {engine:?}, {way:?}");
            // The subflow whose data was altered is reset with MP_FAIL, and the bytes come again over the
            // other.
            let kernel_receives = up == (engine == Side::Client);
            let (judge, other) = match kernel_receives {
                true => (&report.counters, &report.engine_counters),
                false => (&report.engine_counters, &report.counters),
            };
            let allowed: &[&str] = match kernel_receives {
                true => &["DataCsumErr", "MPFailTx", "MPRstTx"],
                false => &["MPFailRx", "MPRstRx"],
            };
            report.multipath_but(&name, 2, allowed);
            for (counters, risen) in
                [(judge, "DataCsumErr"), (judge, "MPFailTx"), (judge, "MPRstTx"), (other, "MPFailRx")]
            {
                let told = format!("{name}: {:?}; the engine: {:?}", report.mptcp(), report.engine_counters);
                assert_eq!(counter(counters, risen), 1, "{risen}: {told}");
            }
        }
    }
}

/// Takes Multipath TCP's options from every packet of the kernel's namespace from now on.
fn strip(space: &Namespace) {
    for rule in [
        "add table inet strip",
        "add chain inet strip before { type filter hook prerouting priority raw; }",
        "add rule inet strip before reset tcp option mptcp",
        "add chain inet strip out { type filter hook output priority raw; }",
        "add rule inet strip out reset tcp option mptcp",
    ] {
        space.check("nft", &[rule]).expect("nft takes the rule");
    }
}

/// Both sides have sent a mebibyte over one subflow when the options vanish.
fn vanish(engine: Side) -> (Stage, Socket) {
    let (stage, socket) = Stage::meet(Setup::new(engine, 1));
    stage.order(Order::Send(MIB));
    stage::receive(&socket, MIB);
    stage::send(&socket, MIB);
    stage.wait("the first mebibyte", |seen| seen.count == MIB);
    assert!(!kernel::info(&socket).unwrap().expect("Multipath TCP").fallback);
    strip(&stage.kernel);
    (stage, socket)
}

#[test]
fn options_that_vanish_while_the_engine_sends_leave_plain_tcp() {
    need_kernel!();
    if lacks(&["nft"]) {
        return;
    }
    for engine in [Side::Client, Side::Server] {
        let case = format!("engine {engine:?}");
        let (stage, socket) = vanish(engine);
        stage.order(Order::Send(MIB));
        stage::receive(&socket, MIB);
        stage.wait(&case, |seen| counter(&seen.counters, "DssFallback") == 1);
        assert!(kernel::info(&socket).unwrap().is_none_or(|info| info.fallback), "{case}");
        // Both know it, and go on.
        stage::send(&socket, MIB);
        stage.wait(&case, |seen| seen.count == 2 * MIB);
        assert_eq!(stage.counter("DssFallback"), 1, "{case}: {:?}", stage.counters());
        let seen = stage.end_but(&case, &["DssFallback"]);
        assert!(!seen.multipath, "{case}");
        seen.received.chunks(MIB as usize).for_each(stage::assert_pattern);
    }
}

#[test]
fn options_that_vanish_while_the_kernel_sends_end_the_connection() {
    need_kernel!();
    if lacks(&["nft"]) {
        return;
    }
    for engine in [Side::Client, Side::Server] {
        let case = format!("engine {engine:?}");
        let (stage, socket) = vanish(engine);
        // How long the kernel keeps a connection whose last subflow was reset, seconds: a minute by default.
        stage.kernel.sysctl("net.mptcp.close_timeout", "1").unwrap();
        // The kernel goes on as before and would repeat what nobody acknowledges to it at the connection's
        // level: taken for plain TCP, that would be bytes twice. The connection may be gone before all is
        // written.
        let _ = (&socket).write_all(&pattern()[..65_521]);
        stage.wait(&case, |seen| {
            seen.closed || seen.events.iter().any(|event| matches!(event, Event::Reset { .. }))
        });
        let mut rest = [0; 8];
        let read = (&socket).read(&mut rest);
        assert!(!matches!(&read, Err(error) if error.kind() == ErrorKind::WouldBlock), "{case}: {read:?}");
        let reset = stage.counters().iter().any(|(name, value)| name == "TcpEstabResets" && *value == 1);
        assert!(reset, "{case}: {:?}", stage.counters());
        let seen = stage.end(&case);
        assert!((MIB..2 * MIB).contains(&seen.count), "{case}: {} bytes", seen.count);
        seen.received.chunks(MIB as usize).for_each(stage::assert_pattern);
    }
}
