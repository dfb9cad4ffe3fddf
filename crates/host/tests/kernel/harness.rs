//! One engine, one kernel, some paths, one transfer; and what both say afterwards.

use std::net::SocketAddr;
use std::process::Command;

use ropewalk_engine::config::{BufferConfig, ConnectionConfig, PathManagerConfig, TcpConfig};
use ropewalk_engine::{congestion, scheduler};
use ropewalk_host::experiment::{self, Experiment, KernelParty, PORT, Party};
use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::network::{KernelEnd, PathConfig, Side, server_address};
use ropewalk_host::transfer::{Direction, Outcome, Request};
use ropewalk_host::tun::Offload;
use ropewalk_host::world::{Counters, Meddler, PathLinks, Tap};

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
    pub meddler: Option<Box<dyn Meddler>>,
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
        path_manager: PathManagerConfig { subflows: 7, add_addr_accepted: 7, endpoints: Vec::new() },
        trace_decisions: false,
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
            meddler: None,
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
    pub world: Counters,
}

impl Report {
    pub fn counter(&self, name: &str) -> u64 {
        let name = format!("MPTcpExt{name}");
        self.counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
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
        self.complete(case);
        for outcome in self.engine.iter().chain(&self.kernel) {
            assert!(outcome.multipath, "{case}: fell back: {:?}", self.mptcp());
            assert_eq!(outcome.subflows, subflows, "{case}: {:?}", self.mptcp());
        }
        assert_no_errors(case, &self.counters);
    }
}

/// The kernel's counters (MPTcpExt) of what must not happen in a sound connection. `NoDSSInWindow` isn't among them: one
/// segment in four thousand falls outside what the kernel takes for its window in some runs, which docs/wire.md tells of.
pub const ERRORS: [&str; 35] = [
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
    "DssFallback",
    "FallbackFailed",
];

/// None of the kernel's counters of what must not happen in a sound connection has risen.
pub fn assert_no_errors(case: &str, counters: &[(String, u64)]) {
    for name in ERRORS {
        let name = format!("MPTcpExt{name}");
        assert!(!counters.iter().any(|(known, _)| *known == name), "{case}: {name} in {counters:?}");
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
            println!("skipped: {why}");
            return;
        }
    };
}

pub fn have(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
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
        limit: case.limit,
        abort_after: case.abort_after,
        kernel_aborts: case.kernel_aborts,
        meddler: case.meddler,
        tap: case.tap,
        ..Experiment::new(client, server, case.paths, case.request)
    })
    .expect("the experiment can be set up");
    let [client, server] = report.counters;
    let (engine, kernel, counters) = if case.engine == Side::Client {
        (report.client, report.server, server)
    } else {
        (report.server, report.client, client)
    };
    Report { engine, kernel, counters, world: report.world }
}
