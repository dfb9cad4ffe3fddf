//! `ropewalk emulate`.

use std::ffi::OsString;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ropewalk_algorithms::Registries;
use ropewalk_command_line::options::Join;
use ropewalk_command_line::{Failure, output};
use ropewalk_host::clock::Clock;
use ropewalk_host::netns::{Namespace, become_root_of_own_user_namespace, kill_group};
use ropewalk_host::network::{KernelEnd, PathConfig, Side, client_v4, server_v4};
use ropewalk_host::perf::device::DEVICE_PREFIX;
use ropewalk_host::reaper::{self, Mark};
use ropewalk_host::tun::Offload;
use ropewalk_host::world::{End, PathLinks, World};
use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_settings::units;
use ropewalk_sim::Scenario;
use serde_json::json;

use crate::evidence;
use crate::options::Common;

/// How long to wait until the peer listens.
const PEER_START_LIMIT: u64 = 3_000_000_000;

/// Run any program behind emulated paths, with the kernel's Multipath TCP set up on them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The program runs in a network namespace with one interface per path, addresses 10.127.0.2, \
10.127.1.2, ...; the other side is 10.127.255.1. The engine of `ropewalk perf` may be on either side, behind TUN \
devices of its own: as a server it is 10.126.0.2, as a client its i-th path goes over the i-th emulated one. \
Everything is removed when the command ends, background processes included; the next `emulate` cleans up after one \
that was killed. SIGTERM and SIGHUP end the command, and so does SIGINT if the program doesn't exit by itself; \
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
    common: Common,
    /// A command to start first, on the other side. Its output goes to standard error, or nowhere with --quiet or --json
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
    /// Seed of the links' randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// At the end, print the links' and the kernels' counters as JSON on standard error
    #[arg(long)]
    json: bool,
    /// For transfers: when the engine's joins begin
    #[arg(long, value_enum)]
    join: Option<Join>,
    /// For transfers: the path on which connections open, as `ropewalk compare --open-on` takes it
    #[arg(long, value_name = "WORD|PATH")]
    open_on: Option<String>,
    #[command(flatten)]
    evidence: evidence::Options,
    /// Print no summary
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
    /// The program and its arguments [default: a shell]
    #[arg(last = true)]
    command: Vec<String>,
}

impl Options {
    fn asks_for_transfers(&self) -> bool {
        self.common.asks_for_transfers() || self.join.is_some() || self.open_on.is_some()
    }

    /// Without a program, and with a scheduler, a size or a direction: the arguments of `compare` that make such transfers.
    pub(crate) fn as_comparison(&self) -> Option<Vec<OsString>> {
        let common = &self.common;
        if !self.command.is_empty() || self.peer.is_some() || !self.asks_for_transfers() {
            return None;
        }
        let mut line: Vec<String> = ["ropewalk", "compare", "--world", "emulated"].map(String::from).to_vec();
        let mut say = |option: &str, value: &str| line.extend([format!("--{option}"), value.to_string()]);
        common.paths.iter().for_each(|path| say("path", path));
        common.scenario.iter().for_each(|name| say("scenario", name));
        common.schedulers.iter().for_each(|names| say("schedulers", names));
        common.size.iter().for_each(|size| say("size", size));
        common.direction.iter().for_each(|way| say("direction", way.name()));
        self.join.iter().for_each(|join| say("join", if *join == Join::Early { "early" } else { "late" }));
        self.open_on.iter().for_each(|path| say("open-on", path));
        say("seed", &self.seed.to_string());
        if self.json {
            line.push("--json".into());
        }
        Some(line.into_iter().map(OsString::from).collect())
    }
}

fn scenario_of(registries: &Registries, options: &Options) -> Result<Scenario, Failure> {
    if options.asks_for_transfers() {
        let message = "--schedulers, --size, --direction, --join and --open-on are for transfers that Ropewalk makes: here the program decides";
        return Err(Diagnostic::new(message)
            .help(
                "leave the program and `--peer` out, or the options; `ropewalk perf` has options of its own",
            )
            .into());
    }
    Ok(options.common.load(registries)?.0)
}

/// How long the peer may go on after the program has ended.
const PEER_GRACE: u64 = 300_000_000;

/// How long the program may go on after SIGINT, which it may have received too.
const INTERRUPT_GRACE: u64 = 500_000_000;

/// A child process that is killed on drop; with its process group if it leads one.
struct ChildGuard(Child, bool);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if self.1 {
            kill_group(&self.0);
        }
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the kernel's routing tables (IPv4, IPv6) have a route to an engine's TUN device. The kernel doesn't list what
/// the engine listens on. Once the route exists, packets wait in the device until the engine reads them. The device's
/// existence isn't enough: it gets an IPv6 multicast route before its address.
fn has_engine_route(v4: &str, v6: &str) -> bool {
    let is_device =
        |word: &str| word.strip_prefix(DEVICE_PREFIX).is_some_and(|number| number.parse::<u8>().is_ok());
    // The engine's prefixes: /31, its mask in column 8, little-endian; and /127, in column 2.
    let routed = |text: &str, device: usize, mask: usize, pair: &str| {
        text.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.get(device).is_some_and(|word| is_device(word)) && words.get(mask) == Some(&pair)
        })
    };
    routed(v4, 0, 7, "FEFFFFFF") || routed(v6, 9, 1, "7f")
}

/// Waits until something listens in the namespace, the peer exits, or the limit is over.
fn wait_until_listening(namespace: &Namespace, peer: &mut ChildGuard) -> Result<(), Failure> {
    let clock = Clock::start();
    while clock.now() < PEER_START_LIMIT {
        let listening = namespace.run(|| {
            let listens = |file: &str| {
                std::fs::read_to_string(file).is_ok_and(|text| {
                    // State 0A is LISTEN, in the fourth column.
                    text.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some("0A"))
                })
            };
            let text = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
            let engine = has_engine_route(
                &text("/proc/thread-self/net/route"),
                &text("/proc/thread-self/net/ipv6_route"),
            );
            Ok(engine || listens("/proc/thread-self/net/tcp") || listens("/proc/thread-self/net/tcp6"))
        });
        if listening.map_err(Failure::other)? {
            return Ok(());
        }
        if let Ok(Some(status)) = peer.0.try_wait() {
            return Err(Failure::Other(format!(
                "the peer's command ended before anything listened ({status})"
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // The peer may use UDP, or only send.
    Ok(())
}

fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    // As shells do: 128 + the signal's number.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(code.clamp(0, 255) as u8)
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<ExitCode, Failure> {
    let scenario = scenario_of(registries, options)?;
    if !scenario.background.is_empty() {
        let message =
            format!("`{}` has background traffic, which the emulator doesn't support", scenario.name);
        return Err(Diagnostic::new(message).into());
    }
    output::can_write(&options.evidence.files())?;
    let left = reaper::clean();
    if left > 0 && !options.quiet {
        anstream::eprintln!("ended {left} processes that a killed run had left behind");
    }
    let terminated = reaper::termination_flag().map_err(Failure::other)?;
    become_root_of_own_user_namespace().map_err(Failure::other)?;
    let mark = Mark::own().map_err(Failure::other)?;
    let paths: Vec<_> = scenario
        .paths
        .iter()
        .map(|path| PathConfig { name: path.name.clone(), mtu: path.mtu, backup: path.backup })
        .collect();
    let client = KernelEnd::new(Side::Client, &paths, Offload::Segmentation).map_err(Failure::other)?;
    let server = KernelEnd::new(Side::Server, &paths, Offload::Segmentation).map_err(Failure::other)?;
    client.forward_for_engines(Side::Client).map_err(Failure::other)?;
    server.forward_for_engines(Side::Server).map_err(Failure::other)?;
    let spawn = |mut command: Command| {
        command
            .env("ROPEWALK_SERVER", server_v4().to_string())
            .env("ROPEWALK_CLIENT", client_v4(0).to_string());
        mark.put(&mut command);
        command.spawn()
    };
    let client_command = match options.command.split_first() {
        Some((program, arguments)) => {
            let mut command = client.namespace.command(program);
            command.args(arguments);
            command
        }
        None => {
            let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
            let mut command = client.namespace.command(shell);
            command.env("PS1", format!("[{}] $ ", scenario.name));
            command
        }
    };
    let client_name = options.command.first().cloned().unwrap_or_else(|| "the shell".into());
    // The world owns the namespaces; keep another handle to the server's.
    let server_space =
        Namespace::from_fd(server.namespace.fd().try_clone_to_owned().map_err(Failure::other)?, "server");
    let peer_command = options.peer.as_ref().map(|line| {
        let mut command = server.namespace.command("/bin/sh");
        command.args(["-c", line]).stdin(std::process::Stdio::null());
        // Keep the peer's output apart from the program's.
        command.stdout(if options.quiet || options.json {
            std::process::Stdio::null()
        } else {
            std::process::Stdio::from(std::io::stderr())
        });
        command
    });
    let mut world = World::new(End::Kernel(client), End::Kernel(server), paths.len());
    let links: Vec<_> = scenario
        .paths
        .iter()
        .map(|path| PathLinks { up: path.up.clone(), down: path.down.clone(), bottleneck: path.bottleneck })
        .collect();
    let shared: Vec<_> =
        scenario.bottlenecks.iter().map(|shared| [shared.up.clone(), shared.down.clone()]).collect();
    world.emulate(&links, &shared, options.seed);
    let named: Vec<_> = scenario.paths.iter().map(ropewalk_lab::evidence::path).collect();
    let evidence = options.evidence.begin(Side::Client, &named, &scenario.name)?;
    if let Some(evidence) = &evidence {
        world.set_tap(evidence.tap());
    }
    let stop = world.stopper();
    // Ctrl-C reaches the program too; everything ends with it.
    let interrupted = reaper::interruption_flag().map_err(Failure::other)?;
    let failed = Arc::new(AtomicBool::new(false));
    let worker_failed = Arc::clone(&failed);
    let worker = std::thread::spawn(move || {
        ropewalk_host::clock::request_real_time();
        let ran = world.run(None);
        worker_failed.store(ran.is_err(), Ordering::Relaxed);
        (world, ran)
    });
    let clock = Clock::start();
    let outcome = (|| {
        let mut peer = match peer_command {
            Some(mut command) => {
                // A process group of its own: the shell may start further processes.
                std::os::unix::process::CommandExt::process_group(&mut command, 0);
                let mut peer = ChildGuard(
                    spawn(command).map_err(|error| Failure::Other(format!("the peer's command: {error}")))?,
                    true,
                );
                wait_until_listening(&server_space, &mut peer)?;
                Some(peer)
            }
            None => None,
        };
        let mut child = ChildGuard(
            spawn(client_command).map_err(|error| Failure::Other(format!("{client_name}: {error}")))?,
            false,
        );
        let mut interrupted_at = None;
        loop {
            if let Some(status) = child.0.try_wait().map_err(Failure::other)? {
                let until = clock.now() + PEER_GRACE;
                while let Some(ChildGuard(peer, _)) = &mut peer
                    && matches!(peer.try_wait(), Ok(None))
                    && clock.now() < until
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                return Ok(status);
            }
            if failed.load(Ordering::Relaxed) {
                return Err(Failure::Other("the emulator stopped".into()));
            }
            if interrupted.load(Ordering::Relaxed) {
                interrupted_at.get_or_insert(clock.now());
            }
            if interrupted_at.is_some_and(|at| clock.now() > at + INTERRUPT_GRACE) {
                return Err(Failure::Interrupted("the program didn't end by itself and was killed".into()));
            }
            if terminated.load(Ordering::Relaxed) {
                return Err(Failure::Other("terminated".into()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    })();
    // Kill what they left running.
    mark.end();
    let took = Duration::from_nanos(clock.now());
    stop.store(true, Ordering::Relaxed);
    let Ok((world, ran)) = worker.join() else {
        return Err(Failure::Other("the emulator's thread panicked".into()));
    };
    ran.map_err(|error| Failure::Other(format!("the emulator: {error}")))?;
    let recorded = evidence.map_or(Ok(()), evidence::Pending::finish);
    let status = outcome?;
    if !options.quiet {
        summary(&scenario, &world, took, options.json);
    }
    recorded?;
    Ok(exit_code(status))
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
        anstream::eprintln!("{line}");
        return;
    }
    anstream::eprintln!();
    for (path, [up, down]) in scenario.paths.iter().zip(&links) {
        anstream::eprintln!(
            "{:>10}: up {} ({} packets lost), down {} ({} packets lost)",
            path.name,
            units::short_bytes(up.bytes_delivered as f64),
            up.dropped(),
            units::short_bytes(down.bytes_delivered as f64),
            down.dropped(),
        );
    }
    if lost.device_losses > 0 {
        anstream::eprintln!(
            "{:>10}: interfaces were found down {} times, {} packets lost",
            "devices",
            lost.device_losses,
            lost.undeliverable,
        );
    }
    let worth = if p99 * 1e3 > ropewalk_lab::real_time::LATENESS_LIMIT as f64 {
        "; that is too late: the figures above are void"
    } else {
        ""
    };
    anstream::eprintln!(
        "{:>10}: packets left their links {p50:.0} us late at the median, {p99:.0} us at p99{worth}",
        "clock"
    );
}

#[cfg(test)]
mod tests {
    use super::has_engine_route;

    #[test]
    fn an_engine_is_there_once_its_pair_of_addresses_is_routed_and_not_when_its_device_is_up() {
        let head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";
        let wifi = "wifi\t0200007F\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n";
        let rope = "rope0\t02007E0A\t00000000\t0001\t0\t0\t0\tFEFFFFFF\t0\t0\t0\n";
        let six = |prefix: &str, length: &str| {
            format!(
                "{prefix:0<32} {length} {0} 00 {0} 00000100 00000001 00000000 00000001    rope0\n",
                "0".repeat(32)
            )
        };
        let pair = six("fd726f700065007e", "7f");
        assert!(!has_engine_route("", ""));
        assert!(!has_engine_route(&format!("{head}{wifi}"), &six("ff", "08")));
        assert!(!has_engine_route(head, &six("fe80", "40")));
        assert!(has_engine_route(&format!("{head}{wifi}{rope}"), ""));
        assert!(has_engine_route(head, &(six("ff", "08") + &pair)));
        assert!(!has_engine_route(head, &pair.replace("rope0", "ropery")));
    }
}
