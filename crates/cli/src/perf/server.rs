//! `ropewalk perf server`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};

use ropewalk_algorithms::Registries;
use ropewalk_command_line::settings::{Given, Tables};
use ropewalk_command_line::{Failure, exit, interrupt, output};
use ropewalk_engine::registry::Registry;
use ropewalk_host::network::Side;
use ropewalk_host::perf::protocol::{Hello, Mode};
use ropewalk_host::perf::{ConnectionResult, ServerControl, ServerEvent, engine, sockets};
use ropewalk_lab::ask;
use ropewalk_lab::scenario::Experiment;
use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_settings::given;
use serde_json::{Value, json};

use super::StackOptions;
use super::text::{self, mode};
use crate::evidence;

/// Wait for clients
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk perf server
  sudo ropewalk perf server --stack engine --scheduler blest   # on 10.126.0.2
  ropewalk emulate --peer 'ropewalk perf server --once' -- \\
      ropewalk perf client 10.127.255.1
  ropewalk emulate --peer 'ropewalk perf server --once --stack engine' -- \\
      ropewalk perf client 10.126.0.2")]
pub(crate) struct Options {
    #[command(flatten)]
    stack: StackOptions,
    /// Port to listen on
    #[arg(long, default_value_t = ropewalk_host::perf::PORT)]
    port: u16,
    /// With the kernel: the address to listen on [default: every one]
    #[arg(long, value_name = "IP")]
    bind: Option<IpAddr>,
    #[command(flatten)]
    given: Given<OfServer>,
    /// Exit after one client
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    evidence: evidence::Options,
    /// At the end, what the engine's endpoint counted, or what the kernel's counters rose by
    #[arg(long)]
    counters: bool,
    /// As JSON Lines, one per flow, and one when the device of a path goes down or works again
    #[arg(long)]
    json: bool,
}

/// What the engine's connections are asked for.
#[derive(Clone, Debug)]
struct OfServer;

impl Tables for OfServer {
    const TABLES: &'static given::Tables = ask::PERF_SERVER;
}

pub(super) fn run(registries: &Registries, options: &Options) -> Result<ExitCode, Failure> {
    options.stack.check(&options.evidence)?;
    let scheduler = super::scheduler(registries, &ask::scheduler(&options.given))?;
    let congestion = ask::congestion(&options.given, &Experiment::default(), registries)?;
    let stop = interrupt::flag();
    let (events, received) = channel();
    let service = ServerControl { stop: Arc::clone(&stop), once: options.once, events };
    let json = options.json;
    let listener = std::thread::spawn(move || listen(&received, json));
    let ready = |address: SocketAddr| {
        let engine = options.stack.is_engine();
        let name = if options.stack.tcp { "TCP" } else { "Multipath TCP" };
        eprintln!("listening on {address} ({}, {name})", text::stack(engine));
    };
    let mut recorded = Ok(());
    let counters = if options.stack.is_engine() {
        if let Some(bind) = options.bind {
            let message = format!("--bind {bind}: the engine has addresses of its own; give --address");
            return Err(Diagnostic::new(message).into());
        }
        let device = options.stack.device(false, true)?;
        let mut config = super::config(scheduler, congestion, &options.stack, &device, true);
        config.trace_decisions = options.evidence.any();
        let evidence =
            options.stack.evidence(&options.evidence, &device, Side::Server, "ropewalk perf server")?;
        let resolve = resolver(registries);
        let setting = engine::Setting { device, tap: evidence.as_ref().map(evidence::Pending::tap) };
        let served = engine::server(setting, options.port, config, resolve, service, ready);
        recorded = evidence.map_or(Ok(()), evidence::Pending::finish);
        served.map_err(Failure::other)?
    } else {
        let multipath = !options.stack.tcp;
        let at = |ip| sockets::Server { address: SocketAddr::new(ip, options.port), multipath };
        // All addresses, of both families if there are both.
        let both = std::fs::exists("/proc/net/if_inet6").unwrap_or(false);
        let any = if both { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
        let served = sockets::server(&at(options.bind.unwrap_or(any)), &service, ready);
        // Dropping the sender ends the printing thread.
        drop(service);
        served.map_err(|error| {
            let hint = if error.kind() == std::io::ErrorKind::AddrInUse {
                ": another program listens there; choose another --port"
            } else {
                ""
            };
            Failure::Other(format!("{error}{hint}"))
        })?
    };
    let failed = listener.join().unwrap_or(true);
    if options.counters {
        let printed = if options.json {
            format!("{}\n", json!({ "counters": super::counters_json(&counters) }))
        } else {
            super::counters_text(&counters)
        };
        output::print(&printed)?;
    }
    recorded?;
    if stop.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(exit::INTERRUPTED));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Looks up the algorithms that a client asks for. It outlives the borrow of the registries, so it copies
/// their entries.
fn resolver(registries: &Registries) -> engine::Resolve {
    let schedulers = copy("scheduler", &registries.schedulers);
    let controls = copy("congestion control", &registries.congestion);
    Box::new(move |scheduler, congestion| {
        let scheduler = (!scheduler.is_empty()).then(|| schedulers.parse(scheduler)).transpose();
        let congestion = (!congestion.is_empty()).then(|| controls.parse(congestion)).transpose();
        Ok((scheduler?, congestion?))
    })
}

fn copy<T: ?Sized>(kind: &'static str, from: &Registry<T>) -> Registry<T> {
    let mut copy = Registry::new(kind);
    for entry in from.entries() {
        copy.add(*entry);
    }
    copy
}

/// Prints events; returns whether a flow failed.
fn listen(events: &Receiver<ServerEvent>, as_json: bool) -> bool {
    let mut failed = false;
    for event in events {
        let printed = match event {
            ServerEvent::Started(peer, hello) if !as_json => format!("{}\n", began(peer, &hello)),
            ServerEvent::Started(..) => continue,
            ServerEvent::Path { device, up } if as_json => {
                format!("{}\n", json!({ "path": device, "up": up }))
            }
            ServerEvent::Path { device, up: false } => {
                format!("{device} is down: packets on it are lost until it works again\n")
            }
            ServerEvent::Path { device, up: true } => format!("{device} works again\n"),
            ServerEvent::Finished(done) => {
                failed |= done.error.is_some();
                if as_json { format!("{}\n", ended_json(&done)) } else { format!("{}\n", ended(&done)) }
            }
        };
        // A closed output doesn't end the server.
        let _ = output::print(&printed);
    }
    failed
}

fn began(peer: SocketAddr, hello: &Hello) -> String {
    let peer = text::address(peer);
    let amount = text::amount(hello);
    let named =
        |what: &str, name: &str| if name.is_empty() { String::new() } else { format!(", {what}{name}") };
    format!(
        "[{:>3}] {peer}: {}, {amount}{}{}",
        hello.flow,
        mode(hello.mode),
        named("", &hello.scheduler),
        named("", &hello.congestion)
    )
}

fn ended(done: &ConnectionResult) -> String {
    let peer = done.peer.map_or_else(String::new, text::address);
    if let Some(error) = &done.error {
        return format!("[{:>3}] {peer}: {error}", done.flow);
    }
    let mut parts = Vec::new();
    if done.mode == Some(Mode::Echo) {
        parts.push(format!("{} of echoes", text::bytes(done.received)));
    } else {
        if done.received > 0 {
            let rate = text::rate(done.received, done.receiving);
            parts.push(format!("received {} at {rate}", text::bytes(done.received)));
        }
        if done.sent > 0 {
            parts.push(format!("sent {}, {} retransmits", text::bytes(done.sent), done.info.retransmitted));
        }
    }
    parts.push(text::spoken(done.info.multipath, done.subflows));
    format!("[{:>3}] {peer}: {}", done.flow, parts.join(", "))
}

fn ended_json(done: &ConnectionResult) -> Value {
    json!({
        "flow": done.flow,
        "peer": done.peer.map(text::address),
        "way": done.mode.map(mode),
        "received_bytes": done.received,
        "received_seconds": done.receiving.as_secs_f64(),
        "received_bits_per_second": text::bits_per_second(done.received, done.receiving),
        "sent_bytes": done.sent,
        "retransmitted_segments": done.info.retransmitted,
        "srtt_us": done.info.srtt.as_nanos() as f64 / 1e3,
        "multipath": done.info.multipath,
        "subflows": done.subflows,
        "error": done.error,
    })
}
