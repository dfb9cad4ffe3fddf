//! The engine's configuration from a scenario's.

use ropewalk_engine::config::{
    BufferConfig, ConnectionConfig, EndpointConfig, LocalEndpoint, PathManagerConfig, SendTuning, TcpConfig,
};
use ropewalk_engine::{PathId, congestion, scheduler};

use crate::Side;
use crate::check::SpecError;
use crate::spec::{EndSpec, Mode, RunSpec, Scenario, Traffic};
use crate::topology::{background_client_address, background_paths, client_address};

/// What Linux's buffers start with, in bytes of payload: `tcp_wmem`'s second number. Receive buffers begin
/// with half of `tcp_rmem`'s, since the other half is for what a packet takes beside its payload
/// ([`crate::host::Host`]).
const SEND_INITIAL: u64 = 16 << 10;

/// What plain TCP offers at first, and opens beyond as today, unless more is said (`tcp_fixup_rcvbuf` until
/// Linux 4.19).
const PLAIN_FIRST_WINDOW: u64 = 64 << 10;

/// An endpoint of the workload: its paths are the scenario's.
pub(crate) fn workload_end(scenario: &Scenario) -> EndpointConfig {
    let connections = scenario.connections() as usize;
    EndpointConfig {
        backlog: connections.max(128) * scenario.paths.len().max(1),
        max_connections: connections.max(128) + 1,
        path_mtus: scenario.paths.iter().map(|path| path.mtu).collect(),
        ..EndpointConfig::default()
    }
}

/// An endpoint of the competing flows: its paths are those of [`background_paths`].
pub(crate) fn background_end(scenario: &Scenario) -> EndpointConfig {
    EndpointConfig {
        path_mtus: background_paths(scenario).iter().map(|(_, path)| scenario.paths[*path].mtu).collect(),
        ..EndpointConfig::default()
    }
}

fn buffer(max: u64, initial: u64, autotune: bool) -> BufferConfig {
    BufferConfig { initial: if autotune { initial.min(max) } else { max }, max }
}

fn tcp(end: &EndSpec) -> TcpConfig {
    let mut tcp = end.host.tcp();
    tcp.cwnd.initial_window = end.initial_window;
    tcp.rto.min = end.min_rto;
    tcp.ecn = end.ecn;
    // Captures of virtual time are easier to read so, and there is nothing to hide.
    tcp.timestamp_offset = Some(0);
    tcp
}

/// A buffer's bytes of payload: a host that counts what packets take in memory has less.
fn payload(bytes: u64, per_mille: u64) -> u64 {
    (u128::from(bytes) * u128::from(per_mille) / 1000) as u64
}

fn base(end: &EndSpec, spec: &RunSpec, multipath: bool) -> ConnectionConfig {
    // Plain TCP has no DSS checksums, which make the kernel keep each segment in a linear buffer, and one
    // round-trip time only.
    let send_segment_memory = if multipath || !end.checksum { end.host.send_segment_memory } else { 0 };
    let send_tuning = if multipath { end.host.send_tuning } else { SendTuning::OwnWindow };
    let send_max = match send_segment_memory {
        0 => payload(end.send_buffer, end.host.send_share()),
        _ => end.send_buffer,
    };
    let mut tcp = tcp(end);
    if !multipath && end.host.initial_receive_space <= PLAIN_FIRST_WINDOW {
        tcp.initial_receive_window = 0;
    }
    ConnectionConfig {
        tcp,
        multipath,
        checksum: end.checksum,
        send_buffer: buffer(send_max, SEND_INITIAL, end.autotune),
        send_segment_memory,
        send_tuning,
        data_ack_first: end.host.data_ack_first && multipath,
        short_dsn: end.host.short_dsn,
        subflow_windows: end.host.subflow_windows && multipath,
        whole_segments: end.host.whole_segments && multipath,
        receive_tuning: end.host.receive_tuning,
        receive_segment_memory: end.host.receive_segment_memory,
        receive_buffer: buffer(
            payload(end.receive_buffer, end.host.receive_share()),
            end.host.initial_receive_space,
            end.autotune,
        ),
        scheduler: spec.scheduler.clone(),
        congestion: end.host.congestion(&spec.congestion),
        path_manager: PathManagerConfig::default(),
        trace_decisions: false,
        peer_segment_overhead: 0,
        gather_writes: false,
    }
}

/// The workload's connections, as one side has them: what the emulated world hands to its engines too.
pub fn connection(spec: &RunSpec, side: Side) -> ConnectionConfig {
    let scenario = &spec.scenario;
    let paths = &scenario.paths;
    let multipath = spec.mode == Mode::Multipath;
    let end = match side {
        Side::Client => &scenario.client,
        Side::Server => &scenario.server,
    };
    let endpoints = match side {
        Side::Client if multipath => paths
            .iter()
            .enumerate()
            .map(|(i, path)| LocalEndpoint {
                address: client_address(i),
                port: None,
                path: PathId(i as u16),
                id: i as u8 + 1,
                signal: false,
                subflow: true,
                backup: path.backup,
            })
            .collect(),
        _ => Vec::new(),
    };
    ConnectionConfig {
        path_manager: PathManagerConfig {
            subflows: paths.len() as u8,
            endpoints,
            early_join: end.early_join,
            ..PathManagerConfig::default()
        },
        trace_decisions: spec.recording.decisions || spec.recording.segments,
        ..base(end, spec, multipath)
    }
}

/// A background source's connections, as one side has them.
///
/// # Errors
/// A congestion control or a scheduler that isn't known.
pub(crate) fn background(spec: &RunSpec, source: usize, side: Side) -> Result<ConnectionConfig, SpecError> {
    let traffic = &spec.scenario.background[source].traffic;
    let name = traffic.congestion().unwrap_or("reno");
    let congestion =
        congestion::builtin().parse(name).map_err(|error| SpecError::Congestion(error.message))?;
    // Its hosts are of the same system as the workload's.
    let end = EndSpec::of(spec.scenario.server.host.profile);
    let congestion = end.host.congestion(&congestion);
    let multipath = traffic.scheduler().is_some();
    // Plain TCP isn't scheduled by what the workload is.
    let scheduler = scheduler::builtin()
        .parse(traffic.scheduler().unwrap_or("single"))
        .map_err(|error| SpecError::Scheduler(error.message))?;
    let mut config = ConnectionConfig { congestion, scheduler, ..base(&end, spec, multipath) };
    if multipath {
        let all = background_paths(&spec.scenario).into_iter().enumerate();
        let own = all.filter(|(_, (owner, _))| side == Side::Client && *owner == source);
        let endpoints = own.zip(1..).map(|((index, (_, path)), id)| LocalEndpoint {
            address: background_client_address(index),
            port: None,
            path: PathId(index as u16),
            id,
            signal: false,
            subflow: true,
            backup: spec.scenario.paths[path].backup,
        });
        config.path_manager = PathManagerConfig {
            subflows: spec.scenario.paths.len() as u8,
            endpoints: endpoints.collect(),
            early_join: end.early_join,
            ..PathManagerConfig::default()
        };
    }
    if let Traffic::TcpFlows { receive_buffer: Some(bytes), .. } = traffic {
        config.receive_buffer = buffer(payload(*bytes, end.host.receive_share()), 0, false);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::{Span, Time, congestion, scheduler};

    use super::*;
    use crate::host::HostProfile;
    use crate::networks;
    use crate::spec::{Background, Direction};

    /// Plain TCP has no DSS checksums, which make Linux 3.14 keep each segment in a linear buffer, and one
    /// round-trip time only.
    #[test]
    fn plain_tcp_on_an_old_host_sends_without_checksums_memory() {
        let mut scenario = networks::wifi_lte();
        scenario.server = EndSpec::of(HostProfile::Linux314);
        let congestion = congestion::builtin().parse("cubic").unwrap();
        let mut spec = RunSpec::new(scenario, scheduler::builtin().parse("minrtt").unwrap(), congestion);
        let multipath = connection(&spec, Side::Server);
        assert_eq!((multipath.checksum, multipath.send_segment_memory), (true, 4352));
        assert_eq!(multipath.send_tuning, SendTuning::LongestRoundTrip);
        assert_eq!(multipath.send_buffer.max, 4 << 20);
        spec.mode = Mode::SinglePath(0);
        let plain = connection(&spec, Side::Server);
        assert_eq!((plain.multipath, plain.send_segment_memory), (false, 0));
        assert_eq!(plain.send_tuning, SendTuning::OwnWindow);
        assert_eq!(plain.send_buffer.max, (4 << 20) * 530 / 1000);
        std::sync::Arc::make_mut(&mut spec.scenario).server.checksum = false;
        let linear = connection(&spec, Side::Server);
        assert_eq!((linear.send_segment_memory, linear.send_buffer.max), (4352, 4 << 20));
    }

    #[test]
    fn plain_tcp_beside_the_workload_is_not_scheduled_as_it_is() {
        let mut scenario = networks::wifi_lte();
        let source = |traffic| Background {
            path: 0,
            direction: Direction::Download,
            traffic,
            extra_delay: Span::ZERO,
            start: Time::ZERO,
            stop: None,
        };
        let congestion = || "cubic".to_string();
        scenario.background = vec![
            source(Traffic::TcpSaturated { congestion: congestion() }),
            source(Traffic::MptcpSaturated { scheduler: "blest".into(), congestion: congestion() }),
        ];
        let cubic = congestion::builtin().parse("cubic").unwrap();
        let spec = RunSpec::new(scenario, scheduler::builtin().parse("linux").unwrap(), cubic);
        for (number, name) in ["single", "blest"].into_iter().enumerate() {
            assert_eq!(background(&spec, number, Side::Server).unwrap().scheduler.text, name);
        }
    }
}
