//! One engine, one kernel, some paths, one transfer; and what both say afterwards.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use ropewalk_engine::config::{BufferConfig, ConnectionConfig, PathManagerConfig, TcpConfig};
use ropewalk_engine::{Span, congestion, scheduler};
use ropewalk_host::experiment::{self, Experiment, KernelParty, PORT, Party};
use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::network::{KernelEnd, PathConfig, Side, server_address};
use ropewalk_host::transfer::{Direction, Outcome, Request};
use ropewalk_host::tun::Offload;
use ropewalk_host::world::{Counters, Middlebox, PathLinks, Tap};
use ropewalk_link::LinkStats;

pub struct Case {
    /// Which end the engine is.
    pub engine: Side,
    pub paths: usize,
    /// Subflows that are expected, and waited for.
    pub subflows: usize,
    pub v6: bool,
    pub offload: Offload,
    pub request: Request,
    pub connections: usize,
    pub kernel: KernelParty,
    pub links: Option<Vec<PathLinks>>,
    /// Of the links' randomness.
    pub seed: u64,
    pub middlebox: Option<Box<dyn Middlebox>>,
    pub tap: Option<Box<dyn Tap>>,
    pub config: ConnectionConfig,
    pub limit: u64,
    pub abort_after: Option<u64>,
    pub kernel_aborts: bool,
}

/// The engine's settings: like the kernel's.
pub fn config() -> ConnectionConfig {
    ConnectionConfig {
        tcp: TcpConfig::default(),
        multipath: true,
        checksum: false,
        send_buffer: BufferConfig::fixed(4 << 20),
        receive_buffer: BufferConfig::fixed(6 << 20),
        scheduler: scheduler::builtin().parse("minrtt").expect("a scheduler"),
        congestion: congestion::builtin().parse("cubic").expect("a congestion control"),
        path_manager: PathManagerConfig { subflows: 7, add_addr_accepted: 7, ..PathManagerConfig::default() },
        trace_decisions: false,
        ..ConnectionConfig::default()
    }
}

impl Case {
    pub fn new(engine: Side, paths: usize, direction: Direction, bytes: u64) -> Case {
        Case {
            engine,
            paths,
            subflows: paths,
            v6: false,
            offload: Offload::Segmentation,
            request: Request { direction, bytes },
            connections: 1,
            kernel: KernelParty::default(),
            links: None,
            seed: 7,
            middlebox: None,
            tap: None,
            config: config(),
            limit: 20_000_000_000,
            abort_after: None,
            kernel_aborts: false,
        }
    }
}

pub struct Report {
    pub engine: Vec<Outcome>,
    pub kernel: Vec<Outcome>,
    /// The kernel's counters that aren't 0.
    pub counters: Vec<(String, u64)>,
    /// The engine's, by the same names.
    pub engine_counters: Vec<(String, u64)>,
    pub world: Counters,
    /// By path: the links' counters, up and down.
    pub links: Vec<[LinkStats; 2]>,
}

/// A counter of Multipath TCP's by its name without the prefix.
pub fn counter(counters: &[(String, u64)], name: &str) -> u64 {
    counters
        .iter()
        .find(|(known, _)| known.strip_prefix("MPTcpExt") == Some(name))
        .map_or(0, |(_, value)| *value)
}

impl Report {
    pub fn counter(&self, name: &str) -> u64 {
        counter(&self.counters, name)
    }

    /// The kernel's Multipath TCP counters, for messages.
    pub fn mptcp(&self) -> Vec<&(String, u64)> {
        self.counters.iter().filter(|(name, _)| name.starts_with("MPTcpExt")).collect()
    }

    /// Every byte arrived on both sides' word, and nothing went wrong.
    pub fn complete(&self, case: &str) {
        for outcome in self.engine.iter().chain(&self.kernel) {
            assert_eq!(outcome.error, None, "{case}: {:?} {:?}", self.mptcp(), self.engine);
        }
        assert!(!self.engine.is_empty() && !self.kernel.is_empty(), "{case}: no transfer");
        // A segment that the peer's stack finds malformed would be a bug of ours or of the emulator.
        assert_eq!((self.world.malformed, self.world.unencodable), (0, 0), "{case}");
    }

    /// Multipath TCP held to the end with so many subflows, and the kernel counted no error.
    pub fn multipath(&self, case: &str, subflows: usize) {
        self.multipath_but(case, subflows, &[]);
    }

    /// The same, but for these counters of the kernel's, whose reason the test gives.
    pub fn multipath_but(&self, case: &str, subflows: usize, allowed: &[&str]) {
        self.complete(case);
        for outcome in self.engine.iter().chain(&self.kernel) {
            assert!(outcome.multipath, "{case}: fell back: {:?}", self.mptcp());
            assert_eq!(outcome.subflows, subflows, "{case}: {:?}", self.mptcp());
        }
        assert_no_errors_but(case, &self.counters, allowed);
    }
}

/// The kernel's counters (MPTcpExt) of what must not happen in a sound connection.
pub const ERRORS: [&str; 38] = [
    "MPCapableFallbackACK",
    "MPCapableFallbackSYNACK",
    "MPCapableSYNTXDrop",
    "MPFallbackTokenInit",
    "MPJoinNoTokenFound",
    "MPJoinSynAckHMacFailure",
    "MPJoinAckHMacFailure",
    "MPJoinRejected",
    "MPJoinSynTxCreatSkErr",
    "MPJoinSynTxBindErr",
    "MPJoinSynTxConnectErr",
    "DSSNotMatching",
    "DSSCorruptionFallback",
    "DSSCorruptionReset",
    "InfiniteMapTx",
    "InfiniteMapRx",
    "DSSNoMatchTCP",
    "DataCsumErr",
    "NoDSSInWindow",
    "AddAddrDrop",
    "EchoAddTxDrop",
    "AddAddrTxDrop",
    "MismatchPortSynRx",
    "MismatchPortAckRx",
    "RmAddrDrop",
    "RmAddrTxDrop",
    "MPFailTx",
    "MPFailRx",
    "MPRstTx",
    "MPRstRx",
    "MPFastcloseTx",
    "MPFastcloseRx",
    "Blackhole",
    "MPCapableDataFallback",
    "MD5SigFallback",
    "DssFallback",
    "SimultConnectFallback",
    "FallbackFailed",
];

/// What a test allows whose senders fill narrow windows, or move from one path to another: Linux's receiver
/// drops a segment now and then that it takes to be outside its window at the connection's level, and it
/// comes again. Two kernels do it to each other as well: docs/wire.md has the command and what is known of
/// the cause.
pub const OUTSIDE_THE_WINDOW: [&str; 1] = ["NoDSSInWindow"];

/// None of the kernel's counters of what must not happen in a sound connection has risen, but for those
/// allowed.
pub fn assert_no_errors_but(case: &str, counters: &[(String, u64)], allowed: &[&str]) {
    for name in ERRORS.iter().filter(|name| !allowed.contains(name)) {
        assert_eq!(counter(counters, name), 0, "{case}: {name} in {counters:?}");
    }
}

/// Why there can be no test against a kernel here, if so.
pub fn unavailable() -> Option<String> {
    let probe = || -> std::io::Result<()> {
        let path = PathConfig { name: "probe".into(), mtu: 1500, backup: false };
        let end = KernelEnd::new(Side::Server, &[path], Offload::Segmentation)?;
        let address = SocketAddr::new(server_address(false), PORT);
        kernel::listen(&end.namespace, address, &SocketConfig::default()).map(drop)
    };
    probe().err().map(|error| error.to_string())
}

/// Says so if there can be no kernel test here.
#[macro_export]
macro_rules! need_kernel {
    () => {
        if let Some(why) = $crate::harness::unavailable() {
            ropewalk_host::skip::skipped(why);
            return;
        }
    };
}

/// True, and says so, if one of these programs isn't installed.
pub fn lacks(programs: &[&str]) -> bool {
    // Some have no option that does nothing: it is enough that they can be started.
    let missing = programs.iter().find(|name| {
        Command::new(name).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    });
    if let Some(name) = missing {
        ropewalk_host::skip::skipped(format!("{name} is not installed"));
    }
    missing.is_some()
}

pub fn run(case: Case) -> Report {
    let (engine, kernel) = (Party::Engine(Box::new(case.config)), Party::Kernel(case.kernel));
    let (client, server) = if case.engine == Side::Client { (engine, kernel) } else { (kernel, engine) };
    let report = experiment::run(Experiment {
        links: case.links,
        seed: case.seed,
        offload: case.offload,
        v6: case.v6,
        connections: case.connections,
        subflows: case.subflows,
        limit: Span::from_nanos(case.limit),
        abort_after: case.abort_after,
        kernel_aborts: case.kernel_aborts,
        middlebox: case.middlebox,
        tap: case.tap,
        ..Experiment::new(client, server, case.paths, case.request)
    })
    .expect("the experiment can be set up");
    let [client, server] = report.counters;
    let (engine, kernel, engine_counters, counters) = if case.engine == Side::Client {
        (report.client, report.server, client, server)
    } else {
        (report.server, report.client, server, client)
    };
    Report { engine, kernel, counters, engine_counters, world: report.world, links: report.links }
}
