//! How fast the simulator is: data segments simulated per second of wall time, on one core, both ends and all
//! links included. A counted segment is a full packet of new data with its own place in the queue, loss and
//! jitter draws, timestamps, DSS and RACK state, and one ACK per two.
//!
//! `cargo bench -p ropewalk-sim --bench speed [-- NAME]`

use std::process::{Command, ExitCode};

use ropewalk_engine::{Span, Time, congestion, scheduler};
use ropewalk_link::{Jitter, JitterShape, Loss};
use ropewalk_sim::{EndSpec, RunSpec, Scenario, Workload, World, networks};

const SECOND: Span = Span::from_secs(1);

/// The question that every simulator is asked: two paths of 100 Mbit/s, 10 ms, 500 packets, bulk download.
fn clean(duration: Span) -> Scenario {
    let mut scenario = networks::over(vec![
        networks::path("left", 100_000_000, Span::from_millis(10), 500),
        networks::path("right", 100_000_000, Span::from_millis(10), 500),
    ]);
    scenario.workload = Workload::Bulk { duration };
    scenario.client = EndSpec { send_buffer: 16 << 20, receive_buffer: 16 << 20, ..EndSpec::default() };
    scenario.server = scenario.client.clone();
    scenario
}

fn lossy(duration: Span) -> Scenario {
    let mut scenario = clean(duration);
    for path in &mut scenario.paths {
        path.down.loss = Loss::Bernoulli(0.01);
    }
    scenario
}

fn reordering(duration: Span) -> Scenario {
    let mut scenario = clean(duration);
    for path in &mut scenario.paths {
        let jitter = Jitter { spread: Span::from_millis(3), shape: JitterShape::Normal, keeps_order: false };
        path.down.jitter = Some(jitter);
    }
    scenario
}

fn long_fat(duration: Span) -> Scenario {
    let mut scenario =
        networks::over(vec![networks::path("long", 1_000_000_000, Span::from_millis(150), 25_000)]);
    scenario.workload = Workload::Bulk { duration };
    scenario.client = EndSpec { send_buffer: 128 << 20, receive_buffer: 128 << 20, ..EndSpec::default() };
    scenario.server = scenario.client.clone();
    scenario
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Many at once, each long enough for its handshake not to be most of it: `ROPEWALK_BENCH_KIB` each. Their
/// slow starts overflow the queues, so that a seventh is sent again.
fn many(count: u32) -> Scenario {
    let mut scenario = clean(Span::ZERO);
    scenario.workload = Workload::Flows { count, bytes: number("ROPEWALK_BENCH_KIB", 256) << 10 };
    for path in &mut scenario.paths {
        path.down = ropewalk_link::LinkSpec::plain(10_000_000_000, Span::from_millis(10), 200_000);
        path.up = path.down.clone();
    }
    scenario
}

/// As much as possible on so many connections for four seconds (`ROPEWALK_BENCH_CROWD_MS`), each with a tenth
/// of what the one of the clean case has: of the rate, of the queue, of the buffers.
fn crowd(count: u32) -> Scenario {
    let mut scenario = clean(Span::ZERO);
    scenario.workload = Workload::Flows { count, bytes: 1 << 40 };
    scenario.limit = Span::from_millis(number("ROPEWALK_BENCH_CROWD_MS", 4000));
    for end in [&mut scenario.client, &mut scenario.server] {
        (end.send_buffer, end.receive_buffer) = (end.send_buffer / 10, end.receive_buffer / 10);
    }
    for path in &mut scenario.paths {
        path.down =
            ropewalk_link::LinkSpec::plain(10_000_000 * u64::from(count), Span::from_millis(10), 50 * count);
        path.up = path.down.clone();
    }
    scenario
}

fn spec(scenario: Scenario, schedulers: &str, control: &str) -> RunSpec {
    let scheduler = scheduler::builtin().parse(schedulers).expect("a scheduler");
    let congestion = congestion::builtin().parse(control).expect("a congestion control");
    RunSpec::new(scenario, scheduler, congestion)
}

/// How long the timed runs are, in virtual seconds: `ROPEWALK_BENCH_SECONDS`, for counting instructions in a
/// short one.
fn seconds() -> u64 {
    number("ROPEWALK_BENCH_SECONDS", 60)
}

/// Many small runs one after the other, as comparisons and sweeps make them: 2 KiB over two paths.
fn small_runs(count: u32) {
    let mut scenario = clean(Span::ZERO);
    scenario.workload = Workload::Flow { bytes: 2048 };
    let spec = spec(scenario, "minrtt", "lia");
    #[allow(clippy::disallowed_methods, reason = "a benchmark is about wall time")]
    let start = std::time::Instant::now();
    let events: u64 = (0..count).map(|_| ropewalk_sim::run(&spec).events).sum();
    let wall = start.elapsed().as_secs_f64();
    let (count, events) = (f64::from(count), events as f64);
    println!(
        "small runs: {:>6.0} runs/s {:>6.1} us each {:>6.1} events each",
        count / wall,
        wall * 1e6 / count,
        events / count
    );
}

/// Resident memory of this process in bytes, where the system says.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

fn measure(name: &str, spec: &RunSpec) {
    #[allow(clippy::disallowed_methods, reason = "a benchmark is about wall time")]
    let start = std::time::Instant::now();
    let mut world = match World::new(spec) {
        Ok(world) => world,
        Err(reason) => return println!("{name}: {reason}"),
    };
    if std::env::var_os("ROPEWALK_BENCH_STEP_BY_STEP").is_some() {
        world.step_by_step();
    }
    world.run_until(Time::MAX);
    let wall = start.elapsed().as_secs_f64();
    let result = world.into_result();
    println!(
        "{name:24} {:>9.0} segments/s {:>6.0} ns each {:>10} segments {:>10} events {:>8.1} Mbit/s {:>7} \
         retransmitted {:>4} timeouts  {:?}",
        result.totals.data_segments as f64 / wall,
        wall * 1e9 / result.totals.data_segments.max(1) as f64,
        result.totals.data_segments,
        result.events,
        result.delivered_bytes as f64 * 8e3 / result.duration.as_nanos().max(1) as f64,
        result.totals.retransmissions,
        result.totals.timeouts,
        result.outcome,
    );
}

/// What a connection of two subflows keeps at both ends together when it has nothing to do: after it carried
/// 64 KiB, with everything acknowledged. What the tables and queues of the endpoints grew to is in it.
mod idle {
    use std::collections::VecDeque;
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::sync::Arc;

    use ropewalk_engine::config::{
        BufferConfig, ConnectionConfig, LocalEndpoint, PathManagerConfig, TcpConfig,
    };
    use ropewalk_engine::endpoint::{Endpoint, EndpointConfig};
    use ropewalk_engine::mptcp::Event;
    use ropewalk_engine::{Entropy, PathId, Span, Time, congestion, scheduler};
    use ropewalk_wire::{Segment, SyntheticPayload};

    struct Counting(u64);

    impl Entropy for Counting {
        fn next_u64(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.0 ^ (self.0 >> 29)
        }
    }

    fn config(second: Option<IpAddr>) -> Arc<ConnectionConfig> {
        let endpoints = second.map(|address| LocalEndpoint {
            address,
            port: None,
            path: PathId(1),
            id: 1,
            signal: false,
            subflow: true,
            backup: false,
        });
        let buffer = BufferConfig { initial: 64 << 10, max: 4 << 20 };
        Arc::new(ConnectionConfig {
            tcp: TcpConfig::default(),
            multipath: true,
            checksum: false,
            send_buffer: buffer,
            receive_buffer: buffer,
            scheduler: scheduler::builtin().parse("minrtt").expect("a scheduler"),
            congestion: congestion::builtin().parse("lia").expect("a congestion control"),
            path_manager: PathManagerConfig {
                subflows: 1,
                endpoints: endpoints.into_iter().collect(),
                ..PathManagerConfig::default()
            },
            trace_decisions: false,
            ..ConnectionConfig::default()
        })
    }

    type Ends = [Endpoint<SyntheticPayload, Counting>; 2];

    /// Carries segments both ways until neither end has any; returns how many bytes the server read.
    fn exchange(ends: &mut Ends, now: &mut Time) -> u64 {
        let mut wire: VecDeque<(usize, PathId, Segment<SyntheticPayload>)> = VecDeque::new();
        let mut read = 0;
        loop {
            for (from, end) in ends.iter_mut().enumerate() {
                while let Some((path, segment)) = end.poll_transmit(*now, 1) {
                    wire.push_back((1 - from, path, segment));
                }
                while let Some((id, event)) = end.poll_event() {
                    if matches!(event, Event::Readable) {
                        while let Ok(Some(piece)) = end.read(*now, id, usize::MAX) {
                            read += u64::from(piece.0);
                        }
                    }
                }
            }
            if wire.is_empty() {
                return read;
            }
            *now += Span::from_millis(1);
            for (to, path, segment) in wire.drain(..) {
                ends[to].on_segment(*now, path, segment);
            }
        }
    }

    /// Bytes of resident memory per connection, both ends.
    pub(super) fn memory(count: u32) -> Option<u64> {
        const BYTES: u32 = 64 << 10;
        let address = |side: u8, path: u8| IpAddr::V4(Ipv4Addr::new(10, side, path, 1));
        let server = SocketAddr::new(address(2, 0), 80);
        let (near, far) = (config(Some(address(1, 1))), config(None));
        let before = super::resident()?;
        let settings = EndpointConfig { backlog: count as usize, ..EndpointConfig::default() };
        let mut ends = [Endpoint::new(settings.clone(), Counting(1)), Endpoint::new(settings, Counting(2))];
        ends[1].listen(server, far);
        let mut now = Time::from_nanos(1_000_000);
        let ids: Vec<_> = (0..count)
            .map(|_| {
                let local = SocketAddr::new(address(1, 0), 0);
                let id =
                    ends[0].connect(now, PathId(0), local, server, Arc::clone(&near)).expect("a free port");
                exchange(&mut ends, &mut now);
                id
            })
            .collect();
        let mut read = 0;
        for id in &ids {
            let taken = ends[0].write(now, *id, SyntheticPayload(BYTES)).expect("an open connection");
            assert_eq!(taken, BYTES as usize);
            read += exchange(&mut ends, &mut now);
        }
        assert_eq!(read, u64::from(count) * u64::from(BYTES), "everything arrived");
        let both = |id| {
            ends[0]
                .connection(id)
                .is_some_and(|c| c.subflow_metrics().iter().filter(|f| f.usable()).count() == 2)
        };
        assert!(ids.iter().all(|id| both(*id)), "two subflows each");
        Some(super::resident()?.saturating_sub(before) / u64::from(count))
    }
}

fn memory(count: u32) {
    match idle::memory(count) {
        Some(each) => {
            println!("memory {count} idle connections of two subflows: {each} bytes each, both ends together")
        }
        None => println!("memory: this system doesn't tell"),
    }
}

fn main() -> ExitCode {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    type Case = (&'static str, fn() -> RunSpec);
    let cases: [Case; 6] = [
        ("clean", || spec(clean(seconds() * SECOND), "minrtt", "lia")),
        ("loss 1 %", || spec(lossy(seconds() * SECOND), "minrtt", "lia")),
        ("reordering jitter", || spec(reordering(seconds() * SECOND), "minrtt", "lia")),
        ("1 Gbit/s x 300 ms", || spec(long_fat(seconds() * SECOND), "minrtt", "lia")),
        ("10000 connections", || spec(crowd(10_000), "minrtt", "lia")),
        ("10000 x 256 KiB", || spec(many(10_000), "minrtt", "lia")),
    ];
    for (name, case) in cases {
        if wanted.as_ref().is_none_or(|wanted| name.contains(wanted.as_str())) {
            measure(name, &case());
        }
    }
    if wanted.as_ref().is_none_or(|wanted| "small runs".contains(wanted.as_str())) {
        small_runs(number("ROPEWALK_BENCH_RUNS", 20_000) as u32);
    }
    match wanted {
        Some(wanted) if "memory".contains(wanted.as_str()) => memory(10_000),
        Some(_) => {}
        // In a process of its own: what the cases have freed would be used again, and not be counted.
        None => {
            let child = std::env::current_exe().and_then(|own| Command::new(own).arg("memory").status());
            if !child.is_ok_and(|status| status.success()) {
                println!("memory: its process failed");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
