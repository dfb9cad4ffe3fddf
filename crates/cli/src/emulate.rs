//! `ropewalk emulate`.

use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use ropewalk_algorithms::Registries;
use ropewalk_command_line::settings::Tables;
use ropewalk_command_line::{Failure, output};
use ropewalk_host::network::Side;
use ropewalk_host::programs::{Programs, ProgramsError, Setup};
use ropewalk_host::reaper;
use ropewalk_host::world::{End, World};
use ropewalk_lab::ask;
use ropewalk_lab::report::Origin;
use ropewalk_runner::emulated;
use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_settings::{given, units};
use ropewalk_sim::Scenario;
use serde_json::json;

use crate::options::Common;
use crate::{compare, evidence};

/// Run any program behind emulated paths, with the kernel's Multipath TCP set up on them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The program runs in a network namespace with one interface per path, addresses 10.127.0.2, \
10.127.1.2, ...; the other side is 10.127.255.1. The engine of `ropewalk perf` may be on either side, \
behind TUN \
devices of its own: as a server it is 10.126.0.2, as a client its i-th path goes over the i-th emulated one. \
Everything is removed when the command ends, background processes included; the next `emulate` cleans up \
after one \
that was killed. SIGTERM and SIGHUP end the command, and so does SIGINT if the program doesn't exit by \
itself; \
Ctrl-C goes to the program.

The second example serves the current folder with examples/nginx.conf from this project's repository.

Examples:
  ropewalk emulate --peer 'mptcpize run iperf3 -s -1' -- \\
      mptcpize run iperf3 -c 10.127.255.1 -t 5
  ropewalk emulate --scenario satellite-lte \\
      --peer 'mptcpize run nginx -p . -e stderr -c nginx.conf' -- \\
      mptcpize run curl -so copy http://10.127.255.1:8080/FILE
  ropewalk emulate \\
      --peer 'mptcpize run socat -u FILE:FILE TCP-LISTEN:9000,fork' -- \\
      mptcpize run socat -u TCP:10.127.255.1:9000 CREATE:copy
  ropewalk emulate --path 'wifi: 50 Mbit/s, 20 ms' \\
      --path 'lte: 20 Mbit/s, 60 ms' -- ping -c 5 10.127.255.1
  ropewalk emulate --pcap run.pcapng --peer 'ropewalk perf server --once' -- \\
      ropewalk perf client 10.127.255.1
  ropewalk emulate --peer 'ropewalk perf server --once' -- \\
      ropewalk perf client 10.127.255.1 --stack engine --paths 2 \\
      --scheduler blest
  ropewalk emulate --peer 'ropewalk perf server --once --stack engine' -- \\
      ropewalk perf client 10.126.0.2 --reverse
  ropewalk emulate --size '1 MiB' --schedulers blest \\
      --path 'wifi: 50 Mbit/s, 20 ms' \\
      --path 'lte: 20 Mbit/s, 60 ms'   # transfers
  ropewalk emulate                        # a shell behind Wi-Fi and LTE"
)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common<Transfers>,
    /// A command to start first, on the other side. Its output goes to standard error, or nowhere with
    /// --quiet or --json
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
    /// At the end, print the links' and the kernels' counters as JSON on standard error
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    evidence: evidence::Options,
    /// Print no summary
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
    /// The program and its arguments [default: a shell]
    #[arg(last = true)]
    command: Vec<String>,
}

/// What transfers are asked for.
#[derive(Clone, Debug)]
struct Transfers;

impl Tables for Transfers {
    const TABLES: &'static given::Tables = ask::EMULATE;
}

impl Options {
    /// Whether it says what Ropewalk sends. The seed is also that of links before programs.
    fn asks_for_transfers(&self) -> bool {
        self.common.given.options().any(|option| option != "seed")
    }
}

fn scenario_of(registries: &Registries, options: &Options) -> Result<Scenario, Failure> {
    if options.asks_for_transfers() {
        let message = "--schedulers, --size, --direction, --join and --open-on are for transfers that \
                       Ropewalk makes: here the program decides";
        return Err(Diagnostic::new(message)
            .help(
                "leave the program and `--peer` out, or the options; `ropewalk perf` has options of its own",
            )
            .into());
    }
    // Programs send what they want, datagrams too.
    Ok(options.common.load_any(registries)?.0)
}

fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    // As shells do: 128 + the signal's number.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(code.clamp(0, 255) as u8)
}

pub(crate) fn run(registries: &Registries, options: &Options, origin: &Origin) -> Result<ExitCode, Failure> {
    if options.command.is_empty() && options.peer.is_none() && options.asks_for_transfers() {
        compare::emulate(registries, &options.common, options.json, origin)?;
        return Ok(ExitCode::SUCCESS);
    }
    let scenario = scenario_of(registries, options)?;
    if !scenario.background.is_empty() {
        let message =
            format!("`{}` has background traffic, which the emulator doesn't support", scenario.name);
        return Err(Diagnostic::new(message).into());
    }
    output::can_write(&options.evidence.files())?;
    let left = reaper::clean();
    if left > 0 && !options.quiet {
        eprintln!("ended {left} processes that a killed run had left behind");
    }
    let (paths, links, shared) = emulated::network_of(&scenario);
    let setup = Setup {
        paths,
        links,
        shared,
        seed: ask::seed(&options.common.given)?,
        command: options.command.clone(),
        prompt: format!("[{}] $ ", scenario.name),
        peer: options.peer.clone(),
        peer_is_silent: options.quiet || options.json,
    };
    let mut programs = Programs::set_up(setup).map_err(failure)?;
    let named: Vec<_> = scenario.paths.iter().map(ropewalk_lab::evidence::path).collect();
    let evidence = options.evidence.begin(Side::Client, &named, &scenario.name)?;
    if let Some(evidence) = &evidence {
        programs.set_tap(evidence.tap());
    }
    let ended = programs.run().map_err(failure)?;
    let recorded = evidence.map_or(Ok(()), evidence::Pending::finish);
    let status = ended.status.map_err(failure)?;
    if !options.quiet {
        summary(&scenario, &ended.world, ended.took, options.json);
    }
    recorded?;
    Ok(exit_code(status))
}

fn failure(error: ProgramsError) -> Failure {
    match error {
        ProgramsError::Killed => Failure::Interrupted(error.to_string()),
        other => Failure::other(other),
    }
}

fn summary(scenario: &Scenario, world: &World, took: Duration, as_json: bool) {
    let late = world.lateness();
    let [p50, p99] = [0.5, 0.99].map(|q| late.value_at_quantile(q) as f64 / 1e3);
    let links: Vec<_> = (0..scenario.paths.len()).filter_map(|path| world.link_stats(path)).collect();
    let lost = world.counters();
    if as_json {
        let paths: Vec<_> = scenario
            .paths
            .iter()
            .zip(&links)
            .map(|(path, [up, down])| {
                let way = |stats: &ropewalk_link::LinkStats| {
                    json!({
                        "delivered_packets": stats.packets_delivered,
                        "delivered_bytes": stats.bytes_delivered,
                        "dropped_packets": stats.dropped(),
                    })
                };
                json!({ "path": path.name, "up": way(up), "down": way(down) })
            })
            .collect();
        let counters: Vec<_> = world
            .ends()
            .iter()
            .map(|end| match end {
                End::Kernel(end) => end.counters("MPTcpExt").unwrap_or_default().into_iter().collect(),
                End::Engine(..) => std::collections::BTreeMap::new(),
            })
            .collect();
        let line = json!({
            "scenario": scenario.name,
            "seconds": took.as_secs_f64(),
            "paths": paths,
            "lost_to_interfaces_down": { "packets": lost.undeliverable, "times_down": lost.device_losses },
            "lateness_us": { "p50": p50, "p99": p99, "max": late.max() as f64 / 1e3 },
            "void": late.value_at_quantile(0.99) > ropewalk_lab::real_time::LATENESS_LIMIT,
            "client_counters": counters.first(),
            "server_counters": counters.get(1),
        });
        eprintln!("{line}");
        return;
    }
    eprintln!();
    for (path, [up, down]) in scenario.paths.iter().zip(&links) {
        eprintln!(
            "{:>10}: up {} ({} packets lost), down {} ({} packets lost)",
            path.name,
            units::short_bytes(up.bytes_delivered as f64),
            up.dropped(),
            units::short_bytes(down.bytes_delivered as f64),
            down.dropped(),
        );
    }
    if lost.device_losses > 0 {
        eprintln!(
            "{:>10}: interfaces were found down {} times, {} packets lost",
            "devices", lost.device_losses, lost.undeliverable,
        );
    }
    let worth = if p99 * 1e3 > ropewalk_lab::real_time::LATENESS_LIMIT as f64 {
        "; that is too late: the figures above are void"
    } else {
        ""
    };
    eprintln!(
        "{:>10}: packets left their links {p50:.0} us late at the median, {p99:.0} us at p99{worth}",
        "clock"
    );
}
