//! Joins whose SYN leaves with the third ACK of the connection, before the kernel's first DSS (RFC 8684 3.1):
//! what a kernel does with a SYN that comes after its keys, and with one that comes before them.

use std::sync::{Arc, Mutex};

use ropewalk_engine::{Span, Time};
use ropewalk_host::frame::Piece;
use ropewalk_host::network::Side;
use ropewalk_host::transfer::Direction;
use ropewalk_host::world::{PathLinks, Tap};
use ropewalk_link::LinkSpec;
use ropewalk_wire::{Flags, MpJoin};

use crate::harness::{Case, run};
use crate::need_kernel;

const MIB: u64 = 1 << 20;

/// When packets left the engine, or reached it, nanoseconds.
#[derive(Clone, Default, Debug)]
struct Arrivals {
    /// SYNs of joins.
    syns: Vec<u64>,
    /// Third ACKs of joins.
    thirds: Vec<u64>,
    /// The kernel's first DSS at the engine.
    dss: Option<u64>,
    /// Resets of the second path's subflow at the engine.
    resets: usize,
}

#[derive(Default)]
struct Watch(Arc<Mutex<Arrivals>>);

impl Tap for Watch {
    fn on_packet(&mut self, now: Time, up: bool, leaves: bool, piece: &Piece) {
        let Ok(segment) = piece.segment() else { return };
        let mut seen = self.0.lock().expect("no panic under the lock");
        // When the engine sends, and when the kernel's packets reach it.
        if up == leaves {
            return;
        }
        let join = segment.rare.as_ref().and_then(|rare| rare.mp_join);
        match join {
            Some(MpJoin::Syn { .. }) if up => seen.syns.push(now.as_nanos()),
            Some(MpJoin::Ack { .. }) if up => seen.thirds.push(now.as_nanos()),
            _ if !up && segment.dss.is_some() && seen.dss.is_none() => seen.dss = Some(now.as_nanos()),
            _ if !up && piece.path == 1 && segment.flags.contains(Flags::RST) => seen.resets += 1,
            _ => {}
        }
    }
}

/// A transfer over two paths with these one-way delays, in milliseconds, whose joins are early.
fn joined(delays: [u64; 2], way: Direction, allowed: &[&str]) -> Arrivals {
    let name = format!("{delays:?} ms, {way:?}");
    let links = delays.map(|delay| {
        let link = LinkSpec::plain(50_000_000, Span::from_nanos(delay * 1_000_000), 200);
        PathLinks { up: link.clone(), down: link, bottleneck: None }
    });
    let watch = Watch::default();
    let seen = Arc::clone(&watch.0);
    let mut case = Case {
        links: Some(links.to_vec()),
        tap: Some(Box::new(watch)),
        ..Case::new(Side::Client, 2, way, 2 * MIB)
    };
    case.config.path_manager.early_join = true;
    run(case).multipath_but(&name, 2, allowed);
    let seen = seen.lock().expect("no panic under the lock").clone();
    println!("{name}: {seen:?}");
    seen
}

//= test RFC 8684 3.1-10
/// The kernel has the keys by then: it answers at once. Our third ACK still waits for its first DSS.
#[test]
fn the_kernel_answers_an_early_join_that_comes_after_its_keys() {
    need_kernel!();
    for way in [Direction::Upload, Direction::Download] {
        let seen = joined([20, 40], way, &[]);
        let dss = seen.dss.expect("the kernel's data or acknowledgement");
        assert_eq!(seen.resets, 0, "{way:?}: {seen:?}");
        assert!(seen.syns[0] < dss && seen.thirds[0] > dss, "{way:?}: {seen:?}");
    }
}

/// Over a faster path the SYN overtakes the keys. The kernel knows no connection of that token yet and resets
/// it (RFC 8684 3.2); the join is opened again after its first DSS.
#[test]
fn the_kernel_refuses_a_join_that_overtakes_its_keys_and_gets_it_again() {
    need_kernel!();
    for way in [Direction::Upload, Direction::Download] {
        let seen = joined([60, 5], way, &["MPJoinNoTokenFound", "MPRstTx"]);
        let dss = seen.dss.expect("the kernel's data or acknowledgement");
        assert_eq!(seen.resets, 1, "{way:?}: {seen:?}");
        assert!(seen.syns[0] < dss && seen.syns[1..].iter().any(|at| *at >= dss), "{way:?}: {seen:?}");
    }
}
