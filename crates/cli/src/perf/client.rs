//! `ropewalk perf client`.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use ropewalk_algorithms::{Registries, algorithm};
use ropewalk_command_line::options::{list, size};
use ropewalk_command_line::settings::{Given, Tables};
use ropewalk_command_line::{Failure, exit, interrupt, output};
use ropewalk_engine::Span;
use ropewalk_engine::congestion::{CongestionControl, DEFAULT_NAME};
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_host::network::Side;
use ropewalk_host::perf::protocol::{Hello, MOST_FLOWS, MOST_MILLISECONDS, MOST_TEXT, Mode};
use ropewalk_host::perf::{Measured, engine, sockets};
use ropewalk_lab::ask;
use ropewalk_settings::diagnostic::{Diagnostic, Source};
use ropewalk_settings::{given, units};

use super::intervals::Intervals;
use super::{StackOptions, results};
use crate::evidence;

/// Bytes of a message whose round trip is measured.
const ECHO: u32 = 64;

/// Measure against a server
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk perf client 192.0.2.7   # upload, 10 s, the kernel's Multipath TCP
  ropewalk perf client 192.0.2.7 --reverse --flows 4 --latency
  sudo ropewalk perf client 127.0.0.1 --stack engine --flows 2 \\
      --scheduler minrtt,blest --size '1 GB' --json
  sudo ropewalk perf client 127.0.0.1 --stack engine --time 1 \\
      --pcap run.pcapng --qlog run.qlog
  ropewalk emulate --scenario wifi-lte --peer 'ropewalk perf server --once' -- \\
      ropewalk perf client 10.127.255.1 --both
  ropewalk emulate --peer 'ropewalk perf server --once' -- \\
      ropewalk perf client 10.127.255.1 --stack engine --paths 2 \\
      --scheduler ropewalk --join early --open-on race

Exit code: 0 if every flow succeeded, 1 if not, 130 after Ctrl-C. What was measured until then is printed \
in any case.")]
pub(crate) struct Options {
    /// The server's name or address
    #[arg(value_name = "ADDRESS")]
    server: String,
    #[command(flatten)]
    stack: StackOptions,
    /// The server's port
    #[arg(long, default_value_t = ropewalk_host::perf::PORT)]
    port: u16,
    /// Connections at the same time; 0 with --latency: nothing but round trips
    #[arg(long, default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=i64::from(MOST_FLOWS) - 1))]
    flows: u16,
    /// How long to send: seconds, or with a unit
    #[arg(long, default_value = "10", conflicts_with = "size")]
    time: String,
    /// How much each flow sends, instead of a time
    #[arg(long)]
    size: Option<String>,
    /// Download: the server sends
    #[arg(long, conflicts_with = "both")]
    reverse: bool,
    /// Both send at the same time
    #[arg(long)]
    both: bool,
    /// Time between interim reports; `0` for no reports
    #[arg(long, default_value = "1")]
    interval: String,
    #[command(flatten)]
    given: Given<OfClient>,
    /// Also measure round trips of 64 bytes, on a connection of their own
    #[arg(long)]
    latency: bool,
    #[command(flatten)]
    evidence: evidence::Options,
    /// At the end, what the engine's endpoint counted, or what the kernel's counters rose by, by the kernel's
    /// names
    #[arg(long)]
    counters: bool,
    /// The result as one JSON value, units in the names, and nothing else
    #[arg(long)]
    json: bool,
    /// Print only errors until the end
    #[arg(long)]
    quiet: bool,
}

/// What the engine's connections are asked for.
#[derive(Clone, Debug)]
struct OfClient;

impl Tables for OfClient {
    const TABLES: &'static given::Tables = ask::PERF_CLIENT;
}

impl Options {
    /// The congestion control that is asked for.
    fn congestion(&self) -> Option<&str> {
        self.given.texts("congestion").first().map(|source| &*source.text)
    }
}

/// A time on the command line: a number of seconds, or with a unit.
fn time(option: &str, text: &str) -> Result<Span, Failure> {
    if let Ok(seconds) = text.trim().parse::<f64>()
        && (0.0..=86_400.0).contains(&seconds)
    {
        return Ok(Span::from_secs_f64(seconds));
    }
    units::duration(text).map_err(|error| {
        let source = Source::new(option, text);
        Diagnostic::new(error.message).at(&source, error.span).label(error.label).help(error.help).into()
    })
}

fn wrong(message: impl Into<String>) -> Failure {
    Diagnostic::new(message.into()).into()
}

/// The path that `--open-on` names.
fn open_on(text: &str, paths: usize) -> Result<engine::OpenOn, Failure> {
    match (text, text.parse::<usize>()) {
        ("first", _) => Ok(engine::OpenOn::Path(0)),
        ("race", _) => Ok(engine::OpenOn::Race),
        (_, Ok(number)) if (1..=paths).contains(&number) => Ok(engine::OpenOn::Path(number - 1)),
        _ => {
            let numbers = if paths == 1 { "1".into() } else { format!("1 to {paths}") };
            let message = format!("--open-on `{text}`: `first`, `race` or a path's number, {numbers}");
            Err(Diagnostic::new(message).help("--paths says how many there are").into())
        }
    }
}

/// The measurement that the options ask for, checked.
struct Plan {
    remote: SocketAddr,
    hellos: Vec<Hello>,
    schedulers: Vec<Spec<dyn Scheduler>>,
    congestion: Option<Spec<dyn CongestionControl>>,
    /// Time between interim reports, if there are any.
    interval: Option<Span>,
    open_on: engine::OpenOn,
    early_join: bool,
}

fn resolve(name: &str, port: u16) -> Result<SocketAddr, Failure> {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let found = (name, port).to_socket_addrs();
    found
        .map_err(|error| Failure::Other(format!("`{name}` has no address: {error}")))?
        .next()
        .ok_or_else(|| Failure::Other(format!("`{name}` has no address")))
}

fn plan(registries: &Registries, options: &Options) -> Result<Plan, Failure> {
    options.stack.check(&options.evidence)?;
    let early_join = ask::early_join(&options.given)?.unwrap_or_default();
    if early_join && !options.stack.is_engine() {
        return Err(wrong("--join early is the engine's: give --stack engine"));
    }
    let open_on = ask::open_on(&options.given);
    if open_on != "first" && !options.stack.is_engine() {
        return Err(wrong("--open-on is the engine's: give --stack engine"));
    }
    let open_on = self::open_on(&open_on, usize::from(options.stack.paths))?;
    if options.flows == 0 && !options.latency {
        return Err(wrong("--flows 0 measures nothing: give --latency too, or 1 to 127 flows"));
    }
    if options.flows == 0 && options.size.is_some() {
        return Err(wrong("--size is the size of each flow, and there are no flows: give --time"));
    }
    let (milliseconds, bytes) = match &options.size {
        Some(text) => match size("--size", text)? {
            0 => return Err(wrong("--size: at least one byte is needed")),
            bytes => (0, bytes),
        },
        None => {
            let milliseconds = time("--time", &options.time)?.as_millis();
            if milliseconds == 0 || milliseconds > MOST_MILLISECONDS.into() {
                let given = &options.time;
                return Err(wrong(format!("--time `{given}`: 1 ms to 24 h are allowed")));
            }
            (milliseconds as u32, 0)
        }
    };
    let mode = match (options.reverse, options.both) {
        (true, _) => Mode::Down,
        (_, true) => Mode::Both,
        _ => Mode::Up,
    };
    let texts = options.given.texts("schedulers").iter().flat_map(|source| list(&source.text));
    let texts: Vec<&str> = texts.collect();
    let schedulers =
        texts.iter().map(|text| super::scheduler(registries, text)).collect::<Result<Vec<_>, _>>()?;
    if !schedulers.is_empty() && mode == Mode::Up && !options.stack.is_engine() {
        return Err(wrong(
            "--scheduler is the engine's, and the sender here is the Linux kernel, which has its own \
             scheduler: give --stack engine, or --reverse from an engine",
        ));
    }
    let congestion = match options.congestion() {
        // The kernel checks its own names.
        Some(text) if options.stack.is_engine() => {
            Some(algorithm(&registries.congestion, "--congestion", text)?)
        }
        _ => None,
    };
    let flows = options.flows + u16::from(options.latency);
    let session = ropewalk_host::entropy::random();
    let name = |names: &[String], at: u16| match names.len() {
        0 => String::new(),
        count => names[usize::from(at) % count].clone(),
    };
    let canonical: Vec<String> = schedulers.iter().map(|spec| spec.text.clone()).collect();
    let controls: Vec<String> = options.congestion().map(String::from).into_iter().collect();
    let served = mode.sends(false);
    if let Some(policy) = canonical.iter().find(|name| served && name.starts_with("policy:")) {
        return Err(wrong(format!(
            "`{policy}` is a file here, and the server sends: give it to `ropewalk perf server --stack \
             engine --scheduler policy:FILE`"
        )));
    }
    if served && canonical.iter().chain(&controls).any(|name| name.len() > MOST_TEXT) {
        return Err(wrong(format!("a name of more than {MOST_TEXT} bytes")));
    }
    let bulk = Hello {
        mode,
        flow: 0,
        flows,
        milliseconds,
        bytes,
        session,
        echo: 0,
        scheduler: String::new(),
        congestion: String::new(),
    };
    let mut hellos: Vec<Hello> = (0..options.flows)
        .map(|flow| {
            let of = |names: &[String]| if served { name(names, flow) } else { String::new() };
            Hello { flow, scheduler: of(&canonical), congestion: of(&controls), ..bulk.clone() }
        })
        .collect();
    if options.latency {
        // With --size the end of the other flows ends it.
        let milliseconds = if bytes > 0 { MOST_MILLISECONDS } else { milliseconds };
        let flow = options.flows;
        hellos.push(Hello { mode: Mode::Echo, flow, milliseconds, bytes: 0, echo: ECHO, ..bulk });
    }
    Ok(Plan {
        remote: resolve(&options.server, options.port)?,
        hellos,
        schedulers,
        congestion,
        interval: Some(time("--interval", &options.interval)?).filter(|every| !every.is_zero()),
        open_on,
        early_join,
    })
}

pub(super) fn run(registries: &Registries, options: &Options) -> Result<ExitCode, Failure> {
    let mut plan = plan(registries, options)?;
    let stop = interrupt::flag();
    let verbose = !options.json && !options.quiet;
    let mut intervals = Intervals::new(plan.interval, &plan.hellos, verbose);
    let mut recorded = Ok(());
    let measured: Measured = if options.stack.is_engine() {
        let device = options.stack.device(plan.remote.is_ipv6(), false)?;
        if plan.remote.ip().is_loopback() {
            // A TUN device delivers nothing to loopback addresses; the kernel's address on the device works.
            let kernel = device.paths[0].kernel;
            if verbose {
                eprintln!(
                    "the engine can't reach {}; using {kernel}, which is the same host",
                    plan.remote.ip()
                );
            }
            plan.remote.set_ip(kernel);
        }
        let flows = plan
            .hellos
            .iter()
            .enumerate()
            .map(|(at, hello)| {
                let scheduler = match plan.schedulers.len() {
                    0 => algorithm(&registries.schedulers, "--scheduler", ask::USUAL_SCHEDULER)?,
                    count => plan.schedulers[at % count].clone(),
                };
                let congestion = match &plan.congestion {
                    Some(spec) => spec.clone(),
                    None => algorithm(&registries.congestion, "--congestion", DEFAULT_NAME)?,
                };
                let mut config = super::config(scheduler, congestion, &options.stack, &device, false);
                config.trace_decisions = options.evidence.any();
                config.path_manager.early_join = plan.early_join;
                Ok((hello.clone(), config))
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        let title = format!("ropewalk perf client {}", options.server);
        let evidence = options.stack.evidence(&options.evidence, &device, Side::Client, &title)?;
        let setting = engine::Setting { device, tap: evidence.as_ref().map(evidence::Pending::tap) };
        let remote = plan.remote;
        let measured = engine::client(setting, remote, flows, plan.open_on, stop.clone(), |progress| {
            intervals.look(progress)
        });
        recorded = evidence.map_or(Ok(()), evidence::Pending::finish);
        measured.map_err(Failure::other)?
    } else {
        let client = sockets::Client {
            remote: plan.remote,
            local: None,
            multipath: !options.stack.tcp,
            congestion: Some(options.congestion().unwrap_or(DEFAULT_NAME).into()),
            hellos: plan.hellos.clone(),
        };
        sockets::client(&client, stop.clone(), |progress| intervals.look(progress)).map_err(Failure::other)?
    };
    intervals.finish(&measured.flows);
    let interrupted = stop.load(Ordering::Relaxed);
    let result = results::Results {
        remote: plan.remote,
        engine: options.stack.is_engine(),
        schedulers: plan.schedulers.iter().map(|spec| spec.text.clone()).collect(),
        congestion: options.congestion().unwrap_or(DEFAULT_NAME),
        measured: &measured,
        intervals: intervals.rows(),
        counters: options.counters,
        interrupted,
    };
    output::print(&if options.json { format!("{}\n", result.json()) } else { result.text() })?;
    for error in result.errors() {
        eprintln!("error: {error}");
    }
    recorded?;
    Ok(match (interrupted, result.errors().is_empty()) {
        (true, _) => ExitCode::from(exit::INTERRUPTED),
        (_, true) => ExitCode::SUCCESS,
        (_, false) => ExitCode::FAILURE,
    })
}
