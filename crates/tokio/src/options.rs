//! Settings of connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ropewalk_engine::PathId;
use ropewalk_engine::config::{
    BufferConfig, ConnectionConfig, LINUX_SEGMENT_OVERHEAD, PathManagerConfig, ReceiveTuning, SendTuning,
    TcpConfig,
};
use ropewalk_engine::{congestion, scheduler};

use crate::error::unknown_algorithm;

/// Linux's `tcp_wmem` and `tcp_rmem`: the first and the greatest size.
const SEND_BUFFER: BufferConfig = BufferConfig { initial: 16 << 10, max: 4 << 20 };
const RECEIVE_BUFFER: BufferConfig = BufferConfig { initial: 128 << 10, max: 6 << 20 };

/// The settings of a connection for which nothing else is said: Linux's, with Multipath TCP, 8 subflows at
/// most, the scheduler `linux` and CUBIC, and a receive buffer that grows promptly.
pub fn default_config() -> ConnectionConfig {
    ConnectionConfig {
        tcp: TcpConfig::default(),
        multipath: true,
        checksum: false,
        send_buffer: SEND_BUFFER,
        receive_buffer: RECEIVE_BUFFER,
        data_ack_first: false,
        subflow_windows: false,
        short_dsn: false,
        whole_segments: false,
        gather_writes: false,
        receive_tuning: ReceiveTuning::Prompt,
        send_tuning: SendTuning::OwnWindow,
        scheduler: scheduler::builtin().parse(scheduler::BASELINE).expect("it is built in"),
        congestion: congestion::builtin().parse(congestion::DEFAULT_NAME).expect("it is built in"),
        path_manager: PathManagerConfig { subflows: 8, add_addr_accepted: 8, ..PathManagerConfig::default() },
        trace_decisions: false,
        peer_segment_overhead: LINUX_SEGMENT_OVERHEAD,
        send_segment_memory: 0,
        receive_segment_memory: 0,
    }
}

/// What a listener's and a client's settings share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Common {
    config: Option<ConnectionConfig>,
    scheduler: Option<String>,
    congestion: Option<String>,
    nodelay: Option<bool>,
    multipath: Option<bool>,
}

impl Common {
    /// The settings that come of it; `default`: the network's.
    pub fn config(&self, default: &ConnectionConfig) -> io::Result<ConnectionConfig> {
        let mut config = self.config.as_ref().unwrap_or(default).clone();
        if let Some(name) = &self.scheduler {
            config.scheduler = scheduler::builtin().parse(name).map_err(unknown_algorithm)?;
        }
        if let Some(name) = &self.congestion {
            config.congestion = congestion::builtin().parse(name).map_err(unknown_algorithm)?;
        }
        if let Some(nodelay) = self.nodelay {
            config.tcp.nagle = !nodelay;
        }
        if let Some(multipath) = self.multipath {
            config.multipath = multipath;
        }
        Ok(config)
    }
}

macro_rules! common_setters {
    () => {
        /// All settings of the engine, in place of the network's.
        pub fn config(mut self, config: ConnectionConfig) -> Self {
            self.common.config = Some(config);
            self
        }

        /// The packet scheduler by its name, perhaps with parameters: `minrtt`, `blest`, `ecf:beta=0.25`...
        pub fn scheduler(mut self, name: impl Into<String>) -> Self {
            self.common.scheduler = Some(name.into());
            self
        }

        /// The congestion control by its name: `cubic`, `olia`, `lia`...
        pub fn congestion(mut self, name: impl Into<String>) -> Self {
            self.common.congestion = Some(name.into());
            self
        }

        /// Whether small segments are sent at once (the default) or by Nagle's algorithm.
        pub fn nodelay(mut self, nodelay: bool) -> Self {
            self.common.nodelay = Some(nodelay);
            self
        }

        /// Multipath TCP (the default), or plain TCP only.
        pub fn multipath(mut self, multipath: bool) -> Self {
            self.common.multipath = Some(multipath);
            self
        }
    };
}

/// Settings of a listener.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    pub(crate) common: Common,
    pub(crate) backlog: usize,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions { common: Common::default(), backlog: 4096 }
    }
}

impl ListenOptions {
    /// The network's settings.
    pub fn new() -> Self {
        Self::default()
    }

    common_setters!();

    /// Most connections that wait to be accepted (4096); what comes then is reset.
    pub fn backlog(mut self, connections: usize) -> Self {
        self.backlog = connections;
        self
    }
}

/// Settings of a connection that is opened.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    pub(crate) common: Common,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) path: Option<PathId>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) early_join: Option<bool>,
}

impl ConnectOptions {
    /// The network's settings.
    pub fn new() -> Self {
        Self::default()
    }

    common_setters!();

    /// The local address; port 0 stands for any.
    pub fn local(mut self, address: SocketAddr) -> Self {
        self.local = Some(address);
        self
    }

    /// The path of the first subflow.
    pub fn path(mut self, path: PathId) -> Self {
        self.path = Some(path);
        self
    }

    /// Whether the SYNs of joins leave with the third ACK of the connection, or after the peer's first DSS as
    /// Linux's (the default). Linux as the peer answers such a SYN, unless it overtakes the third ACK: then
    /// it is sent again after that DSS.
    pub fn early_join(mut self, early: bool) -> Self {
        self.early_join = Some(early);
        self
    }

    /// How long connecting may take. Without it SYN retransmissions decide: 127 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}
