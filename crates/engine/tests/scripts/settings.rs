//! The settings of a script: `option NAME=VALUE`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ropewalk_engine::config::{
    BufferConfig, ConnectionConfig, EndpointConfig, LocalEndpoint, PathManagerConfig, TcpConfig,
};
use ropewalk_engine::{PathId, Span, congestion, scheduler};

/// What a script sets.
#[derive(Debug)]
pub struct Settings {
    pub connection: ConnectionConfig,
    pub endpoint: EndpointConfig,
    pub listens: bool,
    /// Most segments of a super-segment.
    pub offload: u32,
    pub v6: bool,
}

pub fn switch(value: &str) -> Result<bool, String> {
    match value {
        "on" | "1" => Ok(true),
        "off" | "0" => Ok(false),
        other => Err(format!("`{other}`: on or off")),
    }
}

pub fn numeric<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{value}` is no number"))
}

pub fn nanos(value: &str) -> Result<Span, String> {
    Ok(Span::from_secs_f64(numeric::<f64>(value)?))
}

/// `id,address[,path][,signal][,subflow][,backup][,port=N]`.
fn endpoint_option(value: &str) -> Result<LocalEndpoint, String> {
    let mut parts = value.split(',');
    let mut next = || parts.next().ok_or(format!("`{value}`: id,address,..."));
    let id = numeric(next()?)?;
    let address: IpAddr = numeric(next()?)?;
    let mut found = LocalEndpoint {
        address,
        port: None,
        path: PathId(0),
        id,
        signal: false,
        subflow: false,
        backup: false,
    };
    for part in parts {
        match part {
            "signal" => found.signal = true,
            "subflow" => found.subflow = true,
            "backup" => found.backup = true,
            other => match other.split_once('=') {
                Some(("path", number)) => found.path = PathId(numeric(number)?),
                Some(("port", number)) => found.port = Some(numeric(number)?),
                _ => return Err(format!("`{other}` in an endpoint")),
            },
        }
    }
    Ok(found)
}

impl Settings {
    /// From a script's options.
    pub fn of(options: &BTreeMap<String, String>) -> Result<Settings, String> {
        let mut tcp = TcpConfig { time_wait: Span::from_secs(1), ..TcpConfig::default() };
        let mut manager =
            PathManagerConfig { subflows: 8, add_addr_accepted: 8, ..PathManagerConfig::default() };
        let mut config = ConnectionConfig {
            tcp: tcp.clone(),
            multipath: false,
            checksum: false,
            send_buffer: BufferConfig::fixed(1 << 20),
            receive_buffer: BufferConfig::fixed(1 << 20),
            scheduler: scheduler::builtin().parse("minrtt").map_err(|error| error.message)?,
            congestion: congestion::builtin().parse("reno").map_err(|error| error.message)?,
            path_manager: manager.clone(),
            trace_decisions: false,
            ..ConnectionConfig::default()
        };
        let mut endpoint = EndpointConfig::default();
        let (mut listens, mut offload, mut v6) = (true, 1, false);
        for (name, value) in options {
            match name.split('.').next().unwrap_or_default() {
                "role" => listens = value == "listen",
                "mptcp" => config.multipath = switch(value)?,
                "checksum" => config.checksum = switch(value)?,
                "ipv6" => v6 = switch(value)?,
                "ts" => tcp.timestamps = switch(value)?,
                "sack" => tcp.sack = switch(value)?,
                "wscale" => tcp.window_scaling = switch(value)?,
                "ecn" => tcp.ecn = switch(value)?,
                "nagle" => tcp.nagle = switch(value)?,
                "tlp" => tcp.recovery.tail_loss_probe = switch(value)?,
                "undo" => tcp.recovery.undo = switch(value)?,
                "idle_restart" => tcp.cwnd.idle_restart = switch(value)?,
                "initial_window" => tcp.cwnd.initial_window = numeric(value)?,
                "initial_receive_window" => tcp.initial_receive_window = numeric(value)?,
                "quick_acks" => tcp.quick_acks = numeric(value)?,
                "answer_time" => tcp.answer_time = Some(nanos(value)?),
                "delayed_ack" => tcp.delayed_ack = nanos(value)?,
                "min_rto" => tcp.rto.min = nanos(value)?,
                "max_rto" => tcp.rto.max = nanos(value)?,
                "initial_rto" => tcp.rto.initial = nanos(value)?,
                "time_wait" => tcp.time_wait = nanos(value)?,
                "syn_retries" => tcp.syn_retries = numeric(value)?,
                "retries" => tcp.retries = numeric(value)?,
                "keep_alive" => tcp.keep_alive.idle = Some(nanos(value)?),
                "keep_alive_interval" => tcp.keep_alive.interval = nanos(value)?,
                "keep_alive_probes" => tcp.keep_alive.probes = numeric(value)?,
                "hop_limit" => tcp.hop_limit = numeric(value)?,
                "black_hole_detection" => tcp.black_hole_detection = switch(value)?,
                "sndbuf" => config.send_buffer = BufferConfig::fixed(numeric(value)?),
                "rcvbuf" => config.receive_buffer = BufferConfig::fixed(numeric(value)?),
                "scheduler" => {
                    config.scheduler = scheduler::builtin().parse(value).map_err(|error| error.message)?;
                }
                "congestion" => {
                    config.congestion = congestion::builtin().parse(value).map_err(|error| error.message)?;
                }
                "subflows" => manager.subflows = numeric(value)?,
                "close_timeout" => manager.close_timeout = nanos(value)?,
                "add_addr_accepted" => manager.add_addr_accepted = numeric(value)?,
                "endpoint" => manager.endpoints.push(endpoint_option(value)?),
                "syn_cookies" => endpoint.syn_cookies = switch(value)?,
                "backlog" => endpoint.backlog = numeric(value)?,
                "mtu" => endpoint.default_mtu = numeric(value)?,
                "offload" => offload = numeric(value)?,
                other => return Err(format!("there is no option `{other}`")),
            }
        }
        config.tcp = tcp;
        config.path_manager = manager;
        Ok(Settings { connection: config, endpoint, listens, offload, v6 })
    }
}
