//! Control options that nobody repeats, and that get lost: REMOVE_ADDR (RFC 8684 3.4.2), MP_PRIO (3.3.8),
//! MP_FASTCLOSE (3.5). Sent by the engine and by the kernel: data goes on, and what each keeps of the other
//! ends.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{PathId, Span, Time};
use ropewalk_host::frame::Piece;
use ropewalk_host::kernel;
use ropewalk_host::network::{Side, client_v4};
use ropewalk_host::transfer::pattern;
use ropewalk_host::world::{Middlebox, PathLinks, Verdict};
use ropewalk_link::LinkSpec;
use ropewalk_wire::RareOptions;

use crate::harness::OUTSIDE_THE_WINDOW;
use crate::need_kernel;
use crate::stage::{self, Order, Setup, Stage, assert_pattern};

const MIB: u64 = 1 << 20;
/// What may still be under way on a path that has become a backup.
const REST: u64 = 256 << 10;

/// What a path loses.
#[derive(Clone, Default)]
struct Switch {
    /// Packets with the option.
    option: Arc<AtomicBool>,
    /// All packets of path 1.
    path: Arc<AtomicBool>,
    /// How many packets with the option were lost.
    lost: Arc<AtomicU64>,
}

impl Switch {
    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

struct Lose {
    has: fn(&RareOptions) -> bool,
    switch: Switch,
}

impl Middlebox for Lose {
    fn on_packet(&mut self, _: Time, _: bool, packet: &Piece) -> Verdict {
        let Ok(segment) = packet.segment() else { return Verdict::Pass };
        if self.switch.option.load(Ordering::Relaxed) && segment.rare.as_deref().is_some_and(self.has) {
            self.switch.lost.fetch_add(1, Ordering::Relaxed);
            return Verdict::Drop;
        }
        if packet.path == 1 && self.switch.path.load(Ordering::Relaxed) {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }
}

/// A connection with two subflows that have carried data, and what loses packets with an option.
fn meet(setup: Setup, has: fn(&RareOptions) -> bool) -> (Stage, socket2::Socket, Switch) {
    let switch = Switch::default();
    let middlebox = Lose { has, switch: switch.clone() };
    let (stage, socket) = Stage::meet(Setup { middlebox: Some(Box::new(middlebox)), ..setup });
    stage::send(&socket, MIB);
    stage.order(Order::Send(MIB));
    stage::receive(&socket, MIB);
    stage.wait_subflows(2);
    stage.wait("the first mebibyte", |seen| seen.count == MIB);
    (stage, socket, switch)
}

/// The number of the kernel's endpoint that has the second path's address.
fn endpoint(stage: &Stage) -> String {
    let endpoints = stage.kernel.check("ip", &["mptcp", "endpoint"]).unwrap();
    let address = client_v4(1).to_string();
    let line = endpoints.lines().find(|line| line.starts_with(&address)).expect("the endpoint");
    line.split_whitespace().nth(2).expect("its number").to_string()
}

/// The address of the second path is withdrawn. With a path that is dead at that time, the RST of its subflow
/// is lost as well: what comes on the subflow later is answered with RST.
#[test]
fn a_lost_remove_addr_leaves_no_subflow_behind() {
    need_kernel!();
    for (engine, from_engine) in [(Side::Client, true), (Side::Server, false)] {
        for dead in [false, true] {
            let case = format!("engine {engine:?}, path dead: {dead}");
            let setup = Setup::new(engine, 2);
            let (stage, socket, switch) = meet(setup, |rare| rare.remove_addr.is_some());
            switch.option.store(true, Ordering::Relaxed);
            switch.path.store(dead, Ordering::Relaxed);
            if from_engine {
                stage.order(Order::Leave(PathId(1)));
            } else {
                stage.kernel.check("ip", &["mptcp", "endpoint", "delete", "id", &endpoint(&stage)]).unwrap();
            }
            stage.wait(&case, |_| switch.lost() >= 1);
            stage.order(Order::Send(MIB));
            stage::receive(&socket, MIB);
            stage::send(&socket, MIB);
            stage.wait(&case, |seen| seen.count == 2 * MIB);
            switch.path.store(false, Ordering::Relaxed);
            stage.wait_subflows(1);
            let alone = || kernel::info(&socket).unwrap().is_some_and(|info| info.extra_subflows == 0);
            stage.wait_kernel(&case, |_| alone());
            assert_eq!(stage.counter("RmAddr"), 0, "{case}: {:?}", stage.counters());
            assert!(!kernel::info(&socket).unwrap().expect("Multipath TCP").fallback, "{case}");
            let allowed = ["MPRstTx", "MPRstRx", OUTSIDE_THE_WINDOW[0]];
            let seen = stage.end_but(&case, &allowed);
            assert!(seen.multipath, "{case}");
            seen.received.chunks(MIB as usize).for_each(assert_pattern);
        }
    }
}

/// The peer goes on as before, and hears the next one.
#[test]
fn a_lost_mp_prio_changes_nothing() {
    need_kernel!();
    for from_engine in [true, false] {
        let case = format!("from the engine: {from_engine}");
        let link = LinkSpec::plain(50_000_000, Span::from_millis(5), 100);
        let links = Some(vec![PathLinks { up: link.clone(), down: link, bottleneck: None }; 2]);
        let setup = Setup { links, ..Setup::new(Side::Server, 2) };
        let (stage, socket, switch) = meet(setup, |rare| rare.mp_prio.is_some());
        let mut received = MIB;
        let id = endpoint(&stage);
        let tell = |word| {
            if from_engine {
                stage.order(Order::Backup(PathId(1), word == "backup"));
            } else {
                stage.kernel.check("ip", &["mptcp", "endpoint", "change", "id", &id, word]).unwrap();
            }
        };
        // What the second path carries of two mebibytes to the one that was told.
        let mut second = || {
            let sent = if from_engine { &stage.carried.kernel } else { &stage.carried.engine };
            let before = sent[1].load(Ordering::Relaxed);
            for _ in 0..2 {
                if from_engine {
                    stage::send(&socket, MIB);
                    received += MIB;
                    stage.wait(&case, |seen| seen.count == received);
                } else {
                    stage.order(Order::Send(MIB));
                    stage::receive(&socket, MIB);
                }
            }
            sent[1].load(Ordering::Relaxed) - before
        };
        switch.option.store(true, Ordering::Relaxed);
        tell("backup");
        stage.wait(&case, |_| switch.lost() >= 1);
        let unheard = second();
        assert!(unheard > REST, "{case}: {unheard} bytes over the second path");
        switch.option.store(false, Ordering::Relaxed);
        tell("nobackup");
        tell("backup");
        if from_engine {
            stage.wait_kernel(&case, |stage| stage.counter("MPPrioRx") >= 1);
        } else {
            stage.wait(&case, |seen| seen.flows.iter().any(|flow| flow.path == PathId(1) && flow.backup));
        }
        // MP_PRIO is heard, but data that was scheduled before may still be under way.
        second();
        let heard = second();
        assert!(heard <= REST, "{case}: {heard} bytes over the backup");
        assert!(stage.end_but(&case, &OUTSIDE_THE_WINDOW).multipath, "{case}");
    }
}

/// The subflows of the one that hears nothing end as soon as it sends: its segments are answered with RST. A
/// minute later by default the connection does (`net.mptcp.close_timeout`).
#[test]
fn a_lost_fastclose_ends_the_connection_all_the_same() {
    need_kernel!();
    for (engine, from_engine) in
        [(Side::Client, true), (Side::Server, true), (Side::Client, false), (Side::Server, false)]
    {
        let case = format!("engine {engine:?}, from the engine: {from_engine}");
        let mut setup = Setup::new(engine, 2);
        setup.config.path_manager.close_timeout = Span::from_secs(1);
        let (stage, socket, switch) = meet(setup, |rare| rare.mp_fastclose.is_some());
        stage.kernel.sysctl("net.mptcp.close_timeout", "1").unwrap();
        switch.option.store(true, Ordering::Relaxed);
        if from_engine {
            stage.order(Order::Abort);
            stage.wait(&case, |_| switch.lost() >= 1);
            let mut socket = &socket;
            // The first may still be taken: it is what is answered with RST.
            stage.wait_kernel(&case, |_| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                (&mut &*socket).write_all(&pattern()[..1000]).is_err()
            });
            let read = socket.read(&mut [0; 8]);
            assert!(
                !matches!(&read, Err(error) if error.kind() == ErrorKind::WouldBlock),
                "{case}: {read:?}"
            );
            assert_eq!(stage.counter("MPFastcloseRx"), 0, "{case}");
        } else {
            // With data unread a closed socket sends MP_FASTCLOSE.
            stage.order(Order::Send(64 * MIB));
            let mut some = [0; 1000];
            (&socket).read_exact(&mut some).unwrap();
            drop(socket);
            stage.wait(&case, |_| switch.lost() >= 1);
            stage.wait(&case, |seen| {
                seen.closed || seen.events.iter().any(|event| matches!(event, Event::Reset { .. }))
            });
        }
        let left = || stage.kernel.check("ss", &["-tnHO", "state", "established"]).unwrap();
        stage.wait_kernel(&case, |_| left().is_empty());
        // An engine that is the client tries its subflows again: the kernel knows the connection no more.
        let allowed = [
            "MPFastcloseTx",
            "MPRstTx",
            "MPRstRx",
            "MPJoinNoTokenFound",
            "MPJoinRejected",
            OUTSIDE_THE_WINDOW[0],
        ];
        stage.end_but(&case, &allowed);
    }
}
