//! `cargo bench -p ropewalk-host --bench wire`: how fast the engine talks to this machine's kernel over a TUN
//! device with segmentation offload, beside the kernel's own Multipath TCP over the same kind of device and
//! kernel TCP over veth.
//!
//! Rounds are interleaved, so that a busy minute falls on all alike. Printed: the median over rounds with the
//! range, its share of the two yardsticks, and the CPU seconds of this process (both ends and the kernel's
//! part) per 10^9 bytes. Then a thousand connections at once to the kernel, three times, each time in a
//! process of its own so that its memory is nobody else's. The exit code is 1 if anything failed, or wasn't
//! Multipath TCP. Arguments: `--rounds N` (default 5), `--megabytes N` (default 512).

use std::net::SocketAddr;
use std::time::Duration;

use ropewalk_engine::config::{BufferConfig, ConnectionConfig, PathManagerConfig, TcpConfig};
use ropewalk_engine::{Span, Time, congestion, scheduler};
use ropewalk_host::clock::Clock;
use ropewalk_host::experiment::{self, Experiment, KernelParty, PORT, Party};
use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::netns::Namespace;
use ropewalk_host::transfer::{Direction, Request, SocketTransfer};

/// Gigabits per second, and CPU seconds per 10^9 bytes.
type Sample = (f64, f64);

fn engine() -> Party {
    Party::Engine(Box::new(ConnectionConfig {
        tcp: TcpConfig { time_wait: Span::ZERO, ..TcpConfig::default() },
        multipath: true,
        checksum: false,
        send_buffer: BufferConfig::fixed(8 << 20),
        receive_buffer: BufferConfig::fixed(8 << 20),
        scheduler: scheduler::builtin().parse("minrtt").expect("registered"),
        congestion: congestion::builtin().parse("cubic").expect("registered"),
        path_manager: PathManagerConfig { subflows: 2, add_addr_accepted: 2, ..PathManagerConfig::default() },
        trace_decisions: false,
        ..ConnectionConfig::default()
    }))
}

fn kernel_party() -> Party {
    Party::Kernel(KernelParty::default())
}

fn over_tun(client: Party, server: Party, direction: Direction, bytes: u64) -> Result<Sample, String> {
    let request = Request { direction, bytes };
    let limit = 60_000_000_000;
    let report = experiment::run(Experiment {
        limit: Span::from_nanos(limit),
        ..Experiment::new(client, server, 1, request)
    })
    .map_err(|error| error.to_string())?;
    if let Some(error) = report.client.iter().chain(&report.server).find_map(|outcome| outcome.error.clone())
    {
        return Err(error.to_string());
    }
    let time = report.completion_times(direction == Direction::Download)[0].ok_or("unfinished")?;
    let cpu: Duration = report.cpu.iter().sum();
    Ok((bytes as f64 * 8.0 / time.as_nanos() as f64, cpu.as_secs_f64() / (bytes as f64 / 1e9)))
}

fn over_veth(bytes: u64) -> Result<Sample, String> {
    let run = || -> std::io::Result<Sample> {
        let (one, two) = (Namespace::new("one")?, Namespace::new("two")?);
        let other = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&two.fd()));
        one.check("ip", &["link", "add", "v0", "type", "veth", "peer", "name", "v1"])?;
        one.check("ip", &["link", "set", "v1", "netns", &other])?;
        one.check("ip", &["address", "add", "10.0.0.1/24", "dev", "v0"])?;
        one.check("ip", &["link", "set", "v0", "up"])?;
        two.check("ip", &["address", "add", "10.0.0.2/24", "dev", "v1"])?;
        two.check("ip", &["link", "set", "v1", "up"])?;
        let config = SocketConfig { multipath: false, ..SocketConfig::default() };
        let address = SocketAddr::new([10, 0, 0, 2].into(), PORT);
        let listener = kernel::listen(&two, address, &config)?;
        let before = experiment::cpu();
        let transfer = SocketTransfer { clock: Clock::start(), subflows: 1, abort_after: None };
        let server =
            std::thread::spawn(move || listener.accept().map(|(socket, _)| transfer.server(&socket)));
        let client = kernel::connect(&one, None, address, &config)?;
        let request = Request { direction: Direction::Upload, bytes };
        let outcome = transfer.client(&client, request, Time::ZERO);
        let server = server.join().map_err(|_| std::io::Error::other("the server panicked"))??;
        if let Some(error) = outcome.error.or(server.error) {
            return Err(std::io::Error::other(error));
        }
        let after = experiment::cpu();
        let cpu: Duration = (0..2).map(|at| after[at].saturating_sub(before[at])).sum();
        let time = server.finished.unwrap_or(Time::from_nanos(1));
        Ok((bytes as f64 * 8.0 / time.as_nanos() as f64, cpu.as_secs_f64() / (bytes as f64 / 1e9)))
    };
    run().map_err(|error| error.to_string())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut rounds, mut megabytes) = (5, 512);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number follows");
        match argument.as_str() {
            "--rounds" => rounds = number(),
            "--megabytes" => megabytes = number(),
            ONE_OF_MANY => {
                one_of_many();
                return;
            }
            _ => {}
        }
    }
    if let Err(error) = Namespace::new("probe") {
        println!("skipped: {error}");
        return;
    }
    let bytes = megabytes as u64 * 1_000_000;
    type Way = fn(u64) -> Result<Sample, String>;
    let ways: [(&str, Way); 5] = [
        ("kernel TCP over veth", over_veth),
        ("kernel MPTCP over the TUN pair", |n| {
            over_tun(kernel_party(), kernel_party(), Direction::Upload, n)
        }),
        ("engine -> kernel over TUN", |n| over_tun(engine(), kernel_party(), Direction::Upload, n)),
        ("kernel -> engine over TUN", |n| over_tun(engine(), kernel_party(), Direction::Download, n)),
        ("engine -> engine, no device", |n| over_tun(engine(), engine(), Direction::Upload, n)),
    ];
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); ways.len()];
    let mut sound = true;
    for round in 0..rounds {
        for (at, (name, way)) in ways.iter().enumerate() {
            match way(bytes) {
                Ok(sample) => samples[at].push(sample),
                Err(error) => {
                    sound = false;
                    println!("round {round}: {name}: {error}");
                }
            }
        }
    }
    let medians: Vec<f64> =
        samples
            .iter()
            .map(|all| {
                if all.is_empty() {
                    f64::NAN
                } else {
                    median(&mut all.iter().map(|s| s.0).collect::<Vec<_>>())
                }
            })
            .collect();
    println!("{megabytes} MB, {rounds} interleaved rounds; Gbit/s of payload, median (range)\n");
    println!("{:<32} {:>22} {:>9} {:>9} {:>11}", "", "Gbit/s", "of veth", "of MPTCP", "CPU s/GB");
    for (at, (name, _)) in ways.iter().enumerate() {
        let mut rates: Vec<f64> = samples[at].iter().map(|sample| sample.0).collect();
        if rates.is_empty() {
            println!("{name:<32} failed");
            continue;
        }
        let rate = median(&mut rates);
        let cpu = median(&mut samples[at].iter().map(|sample| sample.1).collect::<Vec<_>>());
        let range = format!("{rate:.2} ({:.2} .. {:.2})", rates[0], rates[rates.len() - 1]);
        println!("{name:<32} {range:>22} {:>9.2} {:>9.2} {cpu:>11.2}", rate / medians[0], rate / medians[1]);
    }
    sound &= many();
    if !sound {
        std::process::exit(1);
    }
}

/// The argument with which this program runs itself for one round of a thousand connections.
const ONE_OF_MANY: &str = "--one-of-many";
const COUNT: usize = 1000;
const BYTES: u64 = 256 << 10;

/// A line of /proc/self/status in KiB.
fn memory(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// A thousand connections at once to the kernel, in this process. Prints how many failed, how many were plain
/// TCP on either side, Jain's index over their rates, and KiB of memory per connection.
fn one_of_many() {
    let before = memory("VmRSS:");
    let request = Request { direction: Direction::Upload, bytes: BYTES };
    let experiment = Experiment {
        connections: COUNT,
        limit: Span::from_secs(60),
        ..Experiment::new(engine(), kernel_party(), 1, request)
    };
    let report = experiment::run(experiment).unwrap_or_else(|error| {
        eprintln!("{COUNT} connections: {error}");
        std::process::exit(1);
    });
    let ends = || report.client.iter().chain(&report.server);
    for error in ends().filter_map(|outcome| outcome.error.as_ref()).take(3) {
        eprintln!("{error}");
    }
    let missing = 2 * COUNT - ends().count();
    let failed = missing + ends().filter(|outcome| outcome.error.is_some()).count();
    let plain = ends().filter(|outcome| outcome.error.is_none() && !outcome.multipath).count();
    // Each connection's own start and end, as the client saw them.
    let rates: Vec<f64> = report
        .client
        .iter()
        .filter_map(|outcome| {
            outcome
                .finished
                .map(|end| 1e9 / ((end - outcome.started).max(Span::from_nanos(1))).as_nanos() as f64)
        })
        .collect();
    let (sum, squares) =
        rates.iter().fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
    let index = sum * sum / (rates.len() as f64 * squares);
    // The most at any time: while all were open.
    let peak = memory("VmHWM:").saturating_sub(before) as f64 / COUNT as f64;
    println!("{failed} {plain} {index} {peak}");
}

/// A thousand connections at once to the kernel, three times. False if something failed.
fn many() -> bool {
    let mut sound = true;
    let mut results: [Vec<f64>; 2] = Default::default();
    for round in 0..3 {
        let program = std::env::current_exe().expect("this program has a name");
        let output = std::process::Command::new(program).arg(ONE_OF_MANY).output().expect("it runs itself");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [failed, plain, index, peak] if failed == 0.0 && plain == 0.0 => {
                results[0].push(index);
                results[1].push(peak);
            }
            _ => {
                sound = false;
                let errors = String::from_utf8_lossy(&output.stderr);
                println!(
                    "\nround {round} of {COUNT} connections: failed ends, plain TCP, index, KiB: \
                     {text}{errors}"
                );
            }
        }
    }
    if results[0].is_empty() {
        return false;
    }
    let [index, peak] = results.each_mut().map(|values| {
        let middle = median(values);
        (middle, values[0], values[values.len() - 1])
    });
    println!(
        "\n{COUNT} connections at once, {} KiB each, engine -> kernel, {} of 3 rounds without a failure or \
         a fallback: Jain's index {:.3} ({:.3} .. {:.3}), at most {:.0} ({:.0} .. {:.0}) KiB of memory per \
         connection (both ends' threads)",
        BYTES >> 10,
        results[0].len(),
        index.0,
        index.1,
        index.2,
        peak.0,
        peak.1,
        peak.2
    );
    sound
}
