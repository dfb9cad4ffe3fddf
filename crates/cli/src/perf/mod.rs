//! `ropewalk perf`.

mod client;
mod intervals;
mod results;
mod server;
mod text;

use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ropewalk_algorithms::Registries;
use ropewalk_command_line::{Failure, output};
use ropewalk_engine::Span;
use ropewalk_engine::config::{BufferConfig, ConnectionConfig, PathManagerConfig, TcpConfig};
use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_host::capture::Path;
use ropewalk_host::network::Side as HostSide;
use ropewalk_host::perf::device::{Device, EnginePath, MOST_PATHS};
use ropewalk_settings::diagnostic::{Diagnostic, Source};
use serde_json::{Map, Value};

use crate::evidence;
use crate::options::{Stack, Switch};

/// Buffers of the engine's connections: what 1 Gbit/s at 60 ms needs.
const BUFFER: u64 = 8 << 20;
/// TIME-WAIT, so that a retransmitted FIN is answered with an ACK and not with RST. Short, as no port is used
/// twice.
const TIME_WAIT: Span = Span::from_millis(100);

/// Throughput and latency between two endpoints, each the engine or the Linux kernel
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk perf server &
  ropewalk perf client 127.0.0.1 --time 2
  ropewalk emulate --peer 'ropewalk perf server --once' -- \\
      ropewalk perf client 10.127.255.1 --stack engine --paths 2")]
pub(crate) struct Options {
    #[command(subcommand)]
    side: Side,
}

#[derive(Debug, Subcommand)]
enum Side {
    /// Wait for clients
    Server(server::Options),
    /// Measure against a server
    Client(client::Options),
}

/// Which stack, and how it is reached.
#[derive(Debug, Args)]
struct StackOptions {
    /// Whose Multipath TCP this end speaks: the Linux kernel's sockets, or the engine behind a TUN device of
    /// its own
    #[arg(long, default_value_t = Stack::Kernel, value_enum)]
    stack: Stack,
    /// Plain TCP instead of Multipath TCP
    #[arg(long)]
    tcp: bool,
    /// The engine's own address on its TUN device, given once per path; the kernel's side of the device
    /// differs in the last bit [default: 10.126.N.2]
    #[arg(long = "address", value_name = "IP")]
    addresses: Vec<IpAddr>,
    /// Whether the engine tries smaller segments after repeated timeouts, in case a path drops large ones
    /// silently
    #[arg(long, default_value_t = Switch::On, value_enum)]
    mtu_probing: Switch,
    /// How many TUN devices the engine gets, if no addresses are given
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=MOST_PATHS as i64))]
    paths: u8,
}

impl StackOptions {
    fn is_engine(&self) -> bool {
        self.stack == Stack::Engine
    }

    fn check(&self, evidence: &evidence::Options) -> Result<(), Failure> {
        if !self.is_engine() && evidence.any() {
            let message = "--pcap and --qlog show the engine's end: give --stack engine, or see `ropewalk \
                           emulate --pcap`";
            return Err(Diagnostic::new(message).into());
        }
        output::can_write(&evidence.files())?;
        if !self.is_engine() && (!self.addresses.is_empty() || self.paths != 1) {
            let message = "--address and --paths are about the engine's TUN devices: give --stack engine too";
            return Err(Diagnostic::new(message).into());
        }
        if self.addresses.len() > MOST_PATHS {
            let found = self.addresses.len();
            return Err(
                Diagnostic::new(format!("{found} addresses: at most {MOST_PATHS} are allowed")).into()
            );
        }
        Ok(())
    }

    /// Begins the capture files of the engine's end.
    fn evidence(
        &self,
        options: &evidence::Options,
        device: &Device,
        side: HostSide,
        title: &str,
    ) -> Result<Option<evidence::Pending>, Failure> {
        let path = |path: &EnginePath| Path {
            name: path.name.clone(),
            description: format!("engine {}, kernel {}", path.engine, path.kernel),
        };
        let paths: Vec<_> = device.paths.iter().map(path).collect();
        options.begin(side, &paths, title)
    }

    fn device(&self, v6: bool, server: bool) -> Result<Device, Failure> {
        Device::open(&self.addresses, usize::from(self.paths), v6, server).map_err(Failure::other)
    }
}

/// A scheduler given on the command line.
fn scheduler(registries: &Registries, text: &str) -> Result<Spec<dyn Scheduler>, Failure> {
    registries.scheduler_on_wire(text).map_err(|error| {
        let source = Source::new("--scheduler", text);
        let shown = Diagnostic::new(error.message.clone()).at(&source, error.span.0..error.span.1);
        shown.label("here").into()
    })
}

/// The engine's settings for one connection.
fn config(
    scheduler: Spec<dyn Scheduler>,
    congestion: Spec<dyn CongestionControl>,
    stack: &StackOptions,
    device: &Device,
    server: bool,
) -> ConnectionConfig {
    ConnectionConfig {
        tcp: TcpConfig {
            time_wait: TIME_WAIT,
            black_hole_detection: stack.mtu_probing == Switch::On,
            ..TcpConfig::default()
        },
        multipath: !stack.tcp,
        checksum: false,
        send_buffer: BufferConfig::fixed(BUFFER),
        receive_buffer: BufferConfig::fixed(BUFFER),
        scheduler,
        congestion,
        path_manager: PathManagerConfig {
            subflows: MOST_PATHS as u8,
            add_addr_accepted: MOST_PATHS as u8,
            endpoints: ropewalk_host::perf::engine::endpoints(&device.paths, server),
            ..PathManagerConfig::default()
        },
        trace_decisions: false,
        ..ConnectionConfig::default()
    }
}

/// Counters that aren't 0, as `nstat` prints them; and as a JSON object.
fn counters_text(counters: &[(String, u64)]) -> String {
    let risen = counters.iter().filter(|(_, value)| *value > 0);
    risen.map(|(name, value)| format!("{name:<32} {value}\n")).collect()
}

fn counters_json(counters: &[(String, u64)]) -> Value {
    let risen = counters.iter().filter(|(_, value)| *value > 0);
    Value::Object(risen.map(|(name, value)| (name.clone(), Value::from(*value))).collect::<Map<_, _>>())
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<ExitCode, Failure> {
    match &options.side {
        Side::Server(options) => server::run(registries, options),
        Side::Client(options) => client::run(registries, options),
    }
}
