//! Bulk flows: through tokio and the bare driver, over TUN and in memory.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ropewalk_engine::Span;
use ropewalk_engine::config::BufferConfig;
use ropewalk_host::clock::{Clock, request_real_time};
use ropewalk_host::experiment::{self, Experiment, KernelParty, PORT, Party};
use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::network::{KernelEnd, PathConfig, Side, client_address, server_address};
use ropewalk_host::transfer::{Direction, Request, SocketTransfer, check, pattern};
use ropewalk_host::tun::{Offload, Tun};
use ropewalk_tokio::{
    ConnectionConfig, Execution, MemoryDevice, MptcpListener, MptcpStream, Network, Path, TunDevice,
    default_config,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Handle, Runtime};
use tokio::time::Instant;

use crate::{Failed, Options, Sample, compare, cpu, ratio};

/// Bytes of a write, and of a read.
const PIECE: usize = 1 << 20;
const FLOWS: usize = 16;

/// The wire bench's settings.
pub fn config() -> ConnectionConfig {
    let mut config = default_config();
    config.tcp.time_wait = ropewalk_engine::Span::ZERO;
    config.send_buffer = BufferConfig::fixed(8 << 20);
    config.receive_buffer = BufferConfig::fixed(8 << 20);
    config.scheduler = ropewalk_engine::scheduler::builtin().parse("minrtt").expect("registered");
    config.path_manager.subflows = 2;
    config.path_manager.add_addr_accepted = 2;
    config
}

fn sample(bytes: u64, time: f64, cpu: f64) -> Sample {
    Sample { rate: bytes as f64 * 8e-9 / time, cost: cpu / (bytes as f64 * 1e-9) }
}

fn runtime() -> Result<Runtime, Failed> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// One flow of the bare driver's, as in the wire bench.
fn bare(direction: Direction, bytes: u64) -> Result<Sample, Failed> {
    let request = Request { direction, bytes };
    let experiment = Experiment {
        limit: Span::from_secs(60),
        ..Experiment::new(
            Party::Engine(Box::new(config())),
            Party::Kernel(KernelParty::default()),
            1,
            request,
        )
    };
    let report = experiment::run(experiment)?;
    if let Some(error) = report.client.iter().chain(&report.server).find_map(|outcome| outcome.error.clone())
    {
        return Err(error.into());
    }
    let time = report.completion_times(direction == Direction::Download)[0].ok_or("unfinished")?;
    let cpu: Duration = report.cpu.iter().sum();
    Ok(sample(bytes, time.as_nanos() as f64 * 1e-9, cpu.as_secs_f64()))
}

/// How an application's bytes reach the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copies {
    /// `AsyncRead` and `AsyncWrite`.
    Slices,
    /// `read_bytes` and `write_bytes`.
    Bytes,
}

/// The bytes of the pattern from a stream offset on: at most a piece, and at least one repeated many times.
fn stream() -> Bytes {
    let period = pattern().len() / 2;
    let once = pattern().slice(..period);
    once.iter().copied().cycle().take(PIECE + period).collect()
}

async fn send(stream: &mut MptcpStream, data: &Bytes, bytes: u64, copies: Copies) -> Result<(), Failed> {
    let period = (pattern().len() / 2) as u64;
    let mut sent = 0;
    while sent < bytes {
        let start = (sent % period) as usize;
        let len = (bytes - sent).min(PIECE as u64) as usize;
        let piece = data.slice(start..start + len);
        sent += match copies {
            Copies::Slices => stream.write(&piece).await?,
            Copies::Bytes => stream.write_bytes(&piece).await?,
        } as u64;
    }
    stream.shutdown().await?;
    Ok(())
}

/// Waits for the peer's end of the stream.
async fn ended(stream: &mut MptcpStream) -> Result<(), Failed> {
    match stream.read(&mut [0]).await? {
        0 => Ok(()),
        _ => Err("the peer sent something".into()),
    }
}

/// Holds what came against the pattern, as the bare driver's program does.
fn verify(pattern: &[u8], offset: u64, data: &[u8]) -> Result<(), Failed> {
    let mut at = offset;
    for piece in data.chunks(pattern.len() / 2) {
        check(pattern, at, piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

async fn receive(stream: &mut MptcpStream, copies: Copies) -> Result<u64, Failed> {
    let pattern = pattern();
    let mut buffer = if copies == Copies::Slices { vec![0; PIECE] } else { Vec::new() };
    let mut received = 0;
    loop {
        let len = match copies {
            Copies::Slices => {
                let len = stream.read(&mut buffer).await?;
                verify(&pattern, received, &buffer[..len])?;
                len
            }
            Copies::Bytes => {
                let piece = stream.read_bytes(PIECE).await?;
                verify(&pattern, received, &piece)?;
                piece.len()
            }
        };
        if len == 0 {
            return Ok(received);
        }
        received += len as u64;
    }
}

/// Flows to a kernel's sockets over one TUN device with `queues` queues.
fn over_tun(
    direction: Direction,
    bytes: u64,
    copies: Copies,
    queues: usize,
    flows: usize,
) -> Result<Sample, Failed> {
    let paths = [PathConfig { name: "path0".into(), mtu: 1500, backup: false }];
    let mut end = KernelEnd::new(Side::Server, &paths, Offload::Segmentation)?;
    let mut tuns = std::mem::take(&mut end.tuns);
    if queues > 1 {
        // The same device with more queues: it has to be made anew.
        let (name, namespace) = (tuns[0].name().to_string(), &end.namespace);
        drop(tuns);
        tuns = namespace.run(|| Tun::create_queues(&name, Offload::Segmentation, queues))?;
        let IpAddr::V4(client) = client_address(0, false) else { return Err("IPv4 is meant".into()) };
        for line in [
            format!("link set dev {name} mtu 1500 txqueuelen 10000 up"),
            format!("route add {client}/32 dev {name} src {}", server_address(false)),
        ] {
            namespace.check("ip", &line.split_whitespace().collect::<Vec<_>>())?;
        }
    }
    let listener = kernel::listen(&end.namespace, ([0, 0, 0, 0], PORT).into(), &SocketConfig::default())?;
    let before = cpu();
    let begin = Instant::now();
    let serving = std::thread::spawn(move || -> Result<(), Failed> {
        let sockets: Vec<_> = (0..flows)
            .map(|_| kernel::accept(&listener, Duration::from_secs(20)))
            .collect::<Result<_, _>>()?;
        std::thread::scope(|scope| {
            let serve = |socket| {
                let transfer = SocketTransfer { clock: Clock::start(), subflows: 1, abort_after: None };
                move || transfer.server(&socket).error
            };
            let workers: Vec<_> = sockets.into_iter().map(|socket| scope.spawn(serve(socket))).collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(None) => Ok(()),
                Ok(Some(error)) => Err(Failed::from(error)),
                Err(_) => Err("a server's thread panicked".into()),
            })
        })
    });
    let work = |execution: Execution| async move {
        let devices: Vec<TunDevice> = tuns.into_iter().map(TunDevice::new).collect();
        let path = Path::with_queues(devices, client_address(0, false));
        let network = Network::builder().path(path).config(config()).execution(execution).build()?;
        let data = stream();
        let mut tasks = Vec::new();
        for _ in 0..flows {
            let remote = SocketAddr::new(server_address(false), PORT);
            let mut stream = MptcpStream::connect(&network, remote).await?;
            let request = Request { direction, bytes: bytes / flows as u64 };
            let data = data.clone();
            let at = network.shard_runtime(stream.shard()).cloned().ok_or("no runtime")?;
            tasks.push(at.spawn(async move {
                stream.write_all(&request.encode()).await?;
                match direction {
                    Direction::Upload => {
                        send(&mut stream, &data, request.bytes, copies).await?;
                        ended(&mut stream).await?;
                    }
                    Direction::Download => {
                        let received = receive(&mut stream, copies).await?;
                        if received != request.bytes {
                            return Err(Failed::from(format!("{received} bytes came")));
                        }
                    }
                }
                Ok(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        Ok::<_, Failed>(())
    };
    // The application and its driver on one thread where there is one queue, on a thread per queue where
    // there are more.
    let execution = if queues == 1 { Execution::Tasks } else { Execution::Threads };
    runtime()?.block_on(work(execution))?;
    serving.join().map_err(|_| "the servers' thread panicked")??;
    Ok(sample(bytes, begin.elapsed().as_secs_f64(), cpu() - before))
}

/// Measures with real-time priority. Threads that are started meanwhile don't have it.
fn in_real_time(work: impl FnOnce() -> Result<Sample, Failed> + Send + 'static) -> Result<Sample, Failed> {
    let work = move || {
        request_real_time();
        work()
    };
    std::thread::spawn(work).join().map_err(|_| "a thread panicked")?
}

/// One flow over one queue with the priority that the bare driver's thread has.
fn alone(direction: Direction, bytes: u64, copies: Copies) -> Result<Sample, Failed> {
    in_real_time(move || over_tun(direction, bytes, copies, 1, 1))
}

/// One flow through tokio beside the bare driver's.
pub fn one_flow(options: &Options) -> Result<(), Failed> {
    let bytes = options.megabytes * 1_000_000;
    for (direction, arrow) in
        [(Direction::Upload, "engine -> kernel"), (Direction::Download, "kernel -> engine")]
    {
        let samples = compare(
            options,
            ["Gbit/s", "CPU s/GB"],
            &[
                (&format!("{arrow}, bare driver"), &|| bare(direction, bytes)),
                (&format!("{arrow}, tokio, AsyncRead and AsyncWrite"), &|| {
                    alone(direction, bytes, Copies::Slices)
                }),
                (&format!("{arrow}, tokio, Bytes"), &|| alone(direction, bytes, Copies::Bytes)),
            ],
        )?;
        for (at, name) in [(1, "AsyncRead and AsyncWrite"), (2, "Bytes")] {
            println!(
                "{arrow}: {name}: {:.2} of the bare driver's rate, {:.2} of its CPU time per byte",
                ratio(&samples[at], &samples[0], |sample| sample.rate),
                ratio(&samples[at], &samples[0], |sample| sample.cost)
            );
        }
    }
    Ok(())
}

/// Runtimes, each on a thread of its own that stays on a core of its own.
struct Cores {
    handles: Vec<Handle>,
    stop: Vec<tokio::sync::oneshot::Sender<()>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Cores {
    fn new(count: usize) -> Result<Cores, Failed> {
        let mut cores = Cores { handles: Vec::new(), stop: Vec::new(), threads: Vec::new() };
        for core in 0..count {
            let runtime = runtime()?;
            cores.handles.push(runtime.handle().clone());
            let (stop, stopped) = tokio::sync::oneshot::channel();
            cores.stop.push(stop);
            cores.threads.push(std::thread::spawn(move || {
                // What else runs on the cores says nothing about one core or two.
                request_real_time();
                let mut set = nix::sched::CpuSet::new();
                if set.set(core).is_ok() {
                    let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set);
                }
                let _ = runtime.block_on(stopped);
            }));
        }
        Ok(cores)
    }

    fn end(self) {
        drop(self.stop);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Flows between two networks in memory, each with a shard per core.
fn in_memory(cores: usize, bytes: u64) -> Result<Sample, Failed> {
    let places = Cores::new(cores)?;
    let [one, other] = MemoryDevice::pair(cores);
    let build = |device, host| {
        Network::builder()
            .path(Path::with_queues(device, [10, 0, 0, host].into()))
            .config(config())
            .execution(Execution::Runtimes(places.handles.clone()))
            .build()
    };
    let (server, client) = (build(one, 1)?, build(other, 2)?);
    let address: SocketAddr = ([10, 0, 0, 1], 80).into();
    let share = bytes / FLOWS as u64;
    let data = stream();
    let (time, used) = runtime()?.block_on(async {
        let listener = Arc::new(MptcpListener::bind(&server, address)?);
        let mut pairs = Vec::new();
        for _ in 0..FLOWS {
            let near = MptcpStream::connect(&client, address).await?;
            pairs.push((near, listener.accept().await?.0));
        }
        let before = cpu();
        let begin = Instant::now();
        let mut tasks = Vec::new();
        for (mut near, mut far) in pairs {
            let data = data.clone();
            let place =
                |network: &Network, stream: &MptcpStream| network.shard_runtime(stream.shard()).cloned();
            let at = place(&client, &near).ok_or("no runtime")?;
            let there = place(&server, &far).ok_or("no runtime")?;
            tasks.push(at.spawn(async move {
                send(&mut near, &data, share, Copies::Slices).await?;
                ended(&mut near).await?;
                Ok::<_, Failed>(0)
            }));
            tasks.push(there.spawn(async move { receive(&mut far, Copies::Slices).await }));
        }
        let mut received = 0;
        for task in tasks {
            received += task.await??;
        }
        if received != share * FLOWS as u64 {
            return Err(Failed::from(format!("{received} bytes came")));
        }
        Ok((begin.elapsed().as_secs_f64(), cpu() - before))
    })?;
    drop((server, client));
    places.end();
    Ok(sample(share * FLOWS as u64, time, used))
}

/// Sixteen flows on two cores beside one.
pub fn shards(options: &Options) -> Result<(), Failed> {
    let bytes = 4 * options.megabytes * 1_000_000;
    let samples = compare(
        options,
        ["Gbit/s", "CPU s/GB"],
        &[
            ("16 flows in memory, one shard on one core", &|| in_real_time(move || in_memory(1, bytes))),
            ("16 flows in memory, two shards on two cores", &|| in_real_time(move || in_memory(2, bytes))),
        ],
    )?;
    println!(
        "two cores: {:.2} times one core's rate; by CPU time per byte, with both cores to themselves, {:.2} \
         times",
        ratio(&samples[1], &samples[0], |sample| sample.rate),
        2.0 / ratio(&samples[1], &samples[0], |sample| sample.cost)
    );
    Ok(())
}

/// Sixteen flows over a device with two queues beside one flow over one.
pub fn queues(options: &Options) -> Result<(), Failed> {
    let bytes = options.megabytes * 1_000_000;
    let upload = Direction::Upload;
    let samples = compare(
        options,
        ["Gbit/s", "CPU s/GB"],
        &[
            ("1 flow over TUN, one queue", &|| over_tun(upload, bytes, Copies::Slices, 1, 1)),
            ("16 flows over TUN, one queue", &|| over_tun(upload, bytes, Copies::Slices, 1, FLOWS)),
            ("16 flows over TUN, two queues", &|| over_tun(upload, bytes, Copies::Slices, 2, FLOWS)),
        ],
    )?;
    let cores = crate::median(samples[2].iter().map(|sample| sample.rate / 8.0 * sample.cost));
    println!(
        "16 flows, two queues: {:.2} times one flow's rate, {:.2} times its CPU time per byte, {cores:.2} \
         cores used",
        ratio(&samples[2], &samples[0], |sample| sample.rate),
        ratio(&samples[2], &samples[0], |sample| sample.cost)
    );
    Ok(())
}
