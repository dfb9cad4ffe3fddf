//! `cargo bench -p ropewalk-host --bench emulator`: what the emulator adds to what it is told to do.
//!
//! - A kernel TCP flow through a link of 10, 100 and 1000 Mbit/s: its share of what the line carries besides
//!   headers.
//! - ping through a path of 8 ms: how far its round trips are from what was set.
//! - A kernel TCP flow through devices and nothing between, and through links without limit or delay: their
//!   share of veth's, in interleaved rounds.
//!
//! Arguments: `--rounds N` (default 5), `--seconds N` per flow (default 3).

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::{Clock, request_real_time};
use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::netns::Namespace;
use ropewalk_host::network::{KernelEnd, PathConfig, Side, client_address, server_address};
use ropewalk_host::tun::Offload;
use ropewalk_host::world::{End, PathLinks, World};
use ropewalk_link::LinkSpec;

const PORT: u16 = 5000;
const MILLISECOND: Span = Span::from_millis(1);
/// Payload of a full packet, with timestamps, and its IP length.
const PAYLOAD: f64 = 1448.0 / 1500.0;

type Result<T> = std::io::Result<T>;

/// Bits per second that a flow delivers between two sockets, after a second's start.
fn flow(client: socket2::Socket, server: socket2::Socket, seconds: u64) -> Result<f64> {
    let stop = AtomicBool::new(false);
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket.set_write_timeout(Some(Duration::from_secs(5)))?;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let block = vec![0; 256 << 10];
            loop {
                if stop.load(Ordering::Relaxed) || (&client).write_all(&block).is_err() {
                    break;
                }
            }
            // The reader may have gone first.
            let _ = client.shutdown(std::net::Shutdown::Both);
        });
        let mut buffer = vec![0; 256 << 10];
        let clock = Clock::start();
        let mut begin = None;
        let mut received = 0;
        let rate = loop {
            let len = (&server).read(&mut buffer)?;
            let now = clock.now();
            match begin {
                None if now > Time::ZERO + 1000 * MILLISECOND => begin = Some(now),
                None => {}
                Some(begin) => {
                    received += len as u64;
                    if now - begin > seconds * 1000 * MILLISECOND {
                        break received as f64 * 8e9 / (now - begin).as_nanos() as f64;
                    }
                }
            }
        };
        stop.store(true, Ordering::Relaxed);
        drop(server);
        Ok(rate)
    })
}

/// Two kernels and a path between them that does nothing, or what `links` say, for as long as `work` takes.
/// It gets the client's and the server's namespace.
fn emulated<T>(
    links: Option<LinkSpec>,
    work: impl FnOnce(&Namespace, &Namespace) -> Result<T>,
) -> Result<(T, World)> {
    let path = PathConfig { name: "path".into(), mtu: 1500, backup: false };
    let client = KernelEnd::new(Side::Client, std::slice::from_ref(&path), Offload::Segmentation)?;
    let server = KernelEnd::new(Side::Server, &[path], Offload::Segmentation)?;
    let space = |end: &KernelEnd| -> Result<Namespace> {
        Ok(Namespace::from_fd(end.namespace.fd().try_clone_to_owned()?, "end"))
    };
    let spaces = [space(&client)?, space(&server)?];
    let mut world = World::new(End::Kernel(client), End::Kernel(server), 1);
    if let Some(link) = links {
        world.emulate(&[PathLinks { up: link.clone(), down: link, bottleneck: None }], &[], 1);
    }
    let stop = world.stopper();
    let worker = std::thread::spawn(move || {
        request_real_time();
        world.run(None).map(|()| world)
    });
    let worked = work(&spaces[0], &spaces[1]);
    stop.store(true, Ordering::Relaxed);
    let world = worker.join().map_err(|_| std::io::Error::other("the emulator panicked"))??;
    Ok((worked?, world))
}

fn pair(
    client: &Namespace,
    server: &Namespace,
    local: Option<SocketAddr>,
    remote: SocketAddr,
) -> Result<[socket2::Socket; 2]> {
    let config = SocketConfig { multipath: false, ..SocketConfig::default() };
    let listener = kernel::listen(server, remote, &config)?;
    let socket = kernel::connect(client, local.map(|local| local.ip()), remote, &config)?;
    Ok([socket, listener.accept()?.0])
}

fn through(link: Option<LinkSpec>, seconds: u64) -> Result<(f64, World)> {
    let remote = SocketAddr::new(server_address(false), PORT);
    let local = SocketAddr::new(client_address(0, false), 0);
    emulated(link, |client, server| {
        let [client, server] = pair(client, server, Some(local), remote)?;
        flow(client, server, seconds)
    })
}

fn veth(seconds: u64) -> Result<f64> {
    let (one, two) = (Namespace::new("one")?, Namespace::new("two")?);
    let other = format!("/proc/{}/fd/{}", std::process::id(), two.fd().as_raw_fd());
    one.check("ip", &["link", "add", "v0", "type", "veth", "peer", "name", "v1"])?;
    one.check("ip", &["link", "set", "v1", "netns", &other])?;
    one.check("ip", &["address", "add", "10.0.0.1/24", "dev", "v0"])?;
    one.check("ip", &["link", "set", "v0", "up"])?;
    two.check("ip", &["address", "add", "10.0.0.2/24", "dev", "v1"])?;
    two.check("ip", &["link", "set", "v1", "up"])?;
    let [client, server] = pair(&one, &two, None, SocketAddr::from(([10, 0, 0, 2], PORT)))?;
    flow(client, server, seconds)
}

/// Median and range.
fn middle(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn late(world: &World) -> f64 {
    world.lateness().value_at_quantile(0.99) as f64 / 1e3
}

fn rates(rounds: usize, seconds: u64) -> Result<()> {
    println!(
        "Kernel TCP through an emulated link of 10 ms round trip: share of the line rate less headers\n"
    );
    println!("{:>12} {:>24} {:>14}", "Mbit/s", "share (range)", "p99 late, us");
    for megabits in [10, 100, 1000] {
        let rate = megabits * 1_000_000;
        // Two bandwidth-delay products of queue, 20 packets at least: an end that stands still for a round
        // trip sends a whole window at once afterwards. If the queue takes one such product, the window is
        // less than one after the loss (CUBIC keeps 0.7), for seconds; with two, the link is kept busy, and
        // what is measured is the emulator.
        let queue = (2 * rate / 100 / 8 / 1500).max(20) as u32;
        let mut shares = Vec::new();
        let mut lateness: f64 = 0.0;
        for _ in 0..rounds {
            let (bits, world) = through(Some(LinkSpec::plain(rate, 5 * MILLISECOND, queue)), seconds)?;
            shares.push(bits / (rate as f64 * PAYLOAD));
            lateness = lateness.max(late(&world));
        }
        let (median, low, high) = middle(&mut shares);
        println!("{megabits:>12} {:>24} {lateness:>14.0}", format!("{median:.3} ({low:.3} .. {high:.3})"));
    }
    Ok(())
}

fn pings(rounds: usize) -> Result<()> {
    // Below 10 ms, ping says hundredths of a millisecond.
    const SET: f64 = 8.0;
    println!("\nping over a path of 8 ms: difference of its round trips from that, ms\n");
    println!("{:>12} {:>12} {:>12} {:>12} {:>14}", "replies", "median", "p99", "max", "p99 late, us");
    for _ in 0..rounds {
        let link = LinkSpec::plain(u64::MAX, 4 * MILLISECOND, 1000);
        let (text, world) = emulated(Some(link), |client, _| {
            client.check("ping", &["-n", "-i", "0.005", "-c", "600", &server_address(false).to_string()])
        })?;
        let mut off: Vec<f64> = text
            .lines()
            .filter_map(|line| line.split_once("time=")?.1.split_whitespace().next()?.parse::<f64>().ok())
            .map(|time| (time - SET).abs())
            .collect();
        off.sort_by(f64::total_cmp);
        let at = |share: f64| off.get((off.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
        println!(
            "{:>12} {:>12.3} {:>12.3} {:>12.3} {:>14.0}",
            off.len(),
            at(0.5),
            at(0.99),
            off.last().copied().unwrap_or(f64::NAN),
            late(&world)
        );
    }
    Ok(())
}

fn pass_through(rounds: usize, seconds: u64) -> Result<()> {
    let names = ["veth", "devices, nothing between", "devices, links without limit or delay"];
    let mut rates = vec![Vec::new(); names.len()];
    for _ in 0..rounds {
        rates[0].push(veth(seconds)? / 1e9);
        rates[1].push(through(None, seconds)?.0 / 1e9);
        rates[2].push(through(Some(LinkSpec::plain(u64::MAX, Span::ZERO, 100_000)), seconds)?.0 / 1e9);
    }
    println!("\nKernel TCP without a limit: Gbit/s, {rounds} interleaved rounds\n");
    let mut yardstick = 0.0;
    for (name, rates) in names.iter().zip(&mut rates) {
        let (median, low, high) = middle(rates);
        if yardstick == 0.0 {
            yardstick = median;
        }
        println!(
            "{name:<40} {:>24} {:>8.2} of veth",
            format!("{median:.2} ({low:.2} .. {high:.2})"),
            median / yardstick
        );
    }
    Ok(())
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut rounds, mut seconds) = (5, 3);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number follows");
        match argument.as_str() {
            "--rounds" => rounds = number(),
            "--seconds" => seconds = number() as u64,
            _ => {}
        }
    }
    if let Err(error) = Namespace::new("probe") {
        println!("skipped: {error}");
        return;
    }
    let all =
        rates(rounds, seconds).and_then(|()| pings(rounds)).and_then(|()| pass_through(rounds, seconds));
    if let Err(error) = all {
        println!("failed: {error}");
        std::process::exit(1);
    }
}
