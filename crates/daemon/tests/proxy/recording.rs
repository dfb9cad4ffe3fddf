//! Links that are recorded and replayed: flows take as long over the recording as they took. The links are
//! the emulator's, between a proxy and a gateway.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ropewalk_algorithms::Registries;
use ropewalk_engine::{Span, congestion, scheduler};
use ropewalk_host::clock::Clock;
use ropewalk_host::netns::Namespace;
use ropewalk_host::network::{KernelEnd, PathConfig, Side};
use ropewalk_host::skip::skipped;
use ropewalk_host::tun::Offload;
use ropewalk_host::world::{End, PathLinks, World};
use ropewalk_lab::scenario;
use ropewalk_settings::diagnostic::Source;
use ropewalk_sim::{Direction, RunSpec, Scenario, Transfer, Workload};
use ropewalk_status::record::{RecordedFlow, Recording};

use crate::stage::{PROXY, Running, wait_until};

const ROPEWALKD: &str = env!("CARGO_BIN_EXE_ropewalkd");

pub fn parsed(text: &str) -> Scenario {
    let source = Source::new("scenario.toml", text);
    let loaded = scenario::parse(&source, "scenario", Path::new(""), &Registries::builtin());
    loaded.unwrap_or_else(|error| panic!("{error}\n{text}")).scenario
}

/// A client's host and a server's, with emulated links between them.
pub struct Emulated {
    pub client: Namespace,
    pub server: Namespace,
    stop: Arc<AtomicBool>,
    world: Option<std::thread::JoinHandle<World>>,
    pub folder: tempfile::TempDir,
}

/// 1.2 Mbit/s.
fn send_slowly(mut client: TcpStream, seconds: usize) -> std::io::Result<()> {
    client.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
    for _ in 0..seconds * 100 {
        std::thread::sleep(Duration::from_millis(10));
        client.write_all(&[7; 1500])?;
    }
    Ok(())
}

impl Drop for Emulated {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.world.take().map(std::thread::JoinHandle::join);
    }
}

impl Emulated {
    pub fn new(scenario: &Scenario) -> std::io::Result<Emulated> {
        let paths = scenario.paths.iter();
        let paths: Vec<_> = paths
            .map(|path| PathConfig { name: path.name.clone(), mtu: path.mtu, backup: path.backup })
            .collect();
        let client = KernelEnd::new(Side::Client, &paths, Offload::Segmentation)?;
        let server = KernelEnd::new(Side::Server, &paths, Offload::Segmentation)?;
        let copy = |end: &KernelEnd, name| {
            Ok::<_, std::io::Error>(Namespace::from_fd(
                end.namespace.fd().as_fd().try_clone_to_owned()?,
                name,
            ))
        };
        let (near, far) = (copy(&client, "client")?, copy(&server, "server")?);
        let mut world = World::new(End::Kernel(client), End::Kernel(server), paths.len());
        let links = scenario.paths.iter();
        let links: Vec<_> = links
            .map(|path| PathLinks { up: path.up.clone(), down: path.down.clone(), bottleneck: None })
            .collect();
        world.emulate(&links, &[], 1);
        let stop = world.stopper();
        let world = std::thread::spawn(move || {
            ropewalk_host::clock::request_real_time();
            world.run(None).unwrap();
            world
        });
        let folder = tempfile::tempdir()?;
        Ok(Emulated { client: near, server: far, stop, world: Some(world), folder })
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub fn daemon(&self, namespace: &Namespace, arguments: &[&str]) -> Running {
        let mut command = namespace.command(ROPEWALKD);
        let log = self.folder.path().join("log");
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        command.args(arguments).stderr(log);
        let before = self.log().matches("listening").count();
        let running = Running::start(command);
        wait_until("it listens", || self.log().matches("listening").count() > before);
        running
    }

    /// A server that sends as many bytes as a request's path says, or 1.5 kB each 10 ms for so many seconds:
    /// `/paced-3`.
    pub fn serve(&self, at: &str) {
        let listener = self.server.run(|| TcpListener::bind(at)).unwrap();
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                std::thread::spawn(move || {
                    let mut request = [0; 1024];
                    let len = client.read(&mut request).unwrap_or(0);
                    let text = String::from_utf8_lossy(&request[..len]).into_owned();
                    let path = text.split(' ').nth(1).unwrap_or_default();
                    let path = path.trim_start_matches('/');
                    let _ = match path.strip_prefix("paced-").map(str::parse::<usize>) {
                        Some(seconds) => send_slowly(client, seconds.unwrap_or(0)),
                        None => {
                            let bytes: usize = path.parse().unwrap_or(0);
                            let length = format!("Content-Length: {bytes}\r\n");
                            let head = format!("HTTP/1.1 200 OK\r\n{length}Connection: close\r\n\r\n");
                            client.write_all(&[head.as_bytes(), &vec![7; bytes]].concat())
                        }
                    };
                });
            }
        });
    }

    /// Bytes that the client received on a link.
    pub fn received(&self, link: &str) -> u64 {
        let text = self.client.check("ip", &["-s", "-j", "link", "show", "dev", link]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value[0]["stats64"]["rx"]["bytes"].as_u64().unwrap()
    }

    /// A download under way.
    pub fn download(&self, server: &str, path: &str) -> Running {
        let mut command = self.client.command("curl");
        let by = format!("socks5h://{PROXY}");
        let url = format!("http://{server}/{path}");
        command.args(["-sS", "--max-time", "60", "-o", "/dev/null", "--proxy", &by, &url]);
        command.stdout(Stdio::null());
        Running::start(command)
    }

    fn recording(&self, socket: &str) -> Recording {
        let told = self.client.check(ROPEWALKD, &["record", "--json", "--socket", socket]).unwrap();
        serde_json::from_str(&told).unwrap()
    }
}

/// Simulated runs, whose mean is compared.
const RUNS: u64 = 10;

/// The flows again over the recorded links: their mean times, seconds.
fn replayed(recording: &Recording, flows: &[&RecordedFlow], scenario: &Scenario) -> Vec<f64> {
    let begin = flows.iter().map(|flow| flow.start_s).fold(f64::INFINITY, f64::min);
    let transfer = |flow: &&RecordedFlow| Transfer {
        start: Span::from_secs_f64(flow.start_s - begin),
        bytes: flow.bytes_down,
        direction: Direction::Download,
    };
    let scenario = Scenario {
        workload: Workload::Transfers(flows.iter().map(transfer).collect()),
        limit: Span::from_secs(600),
        ..scenario.clone()
    };
    let spec = RunSpec::new(
        scenario,
        scheduler::builtin().parse(scheduler::PRODUCT_DEFAULT).unwrap(),
        congestion::builtin().parse("cubic").unwrap(),
    );
    let spec = RunSpec { start_phase: Span::from_secs_f64(recording.seconds as f64 + begin), ..spec };
    let mut times = vec![0.0; flows.len()];
    for seed in 0..RUNS {
        let result = ropewalk_sim::run(&RunSpec { seed, ..spec.clone() });
        for (time, flow) in times.iter_mut().zip(&result.flows) {
            *time += flow.fct.map_or(f64::NAN, Span::as_secs_f64) / RUNS as f64;
        }
    }
    times
}

/// By how much times may differ.
const CLOSE: f64 = 0.15;

/// Each flow by itself, but those that ran at once, among whom chance decides, together.
const APART: &[(usize, usize)] = &[(0, 1), (1, 4), (4, 5)];
/// Where packets are lost at random, chance decides for each.
const TOGETHER: &[(usize, usize)] = &[(0, 5)];

/// Links to record and replay, and which flows' times are compared as one sum.
struct Kind {
    what: &'static str,
    sums: &'static [(usize, usize)],
    paths: &'static str,
}

const KINDS: &[Kind] = &[
    Kind {
        what: "steady links",
        sums: APART,
        paths: "[[path]]\nname = 'wifi'\nrate = '12 Mbit/s'\nrtt = '30 ms'\nqueue = '100 ms'\n\
         [[path]]\nname = 'lte'\nrate = '6 Mbit/s'\nrtt = '80 ms'\nqueue = '200 ms'\n",
    },
    Kind {
        what: "a link that slows down and one that is down for 3 s",
        sums: APART,
        paths: "[[path]]\nname = 'wifi'\nrate = '12 Mbit/s'\nrtt = '30 ms'\nqueue = '100 ms'\n\
         changes = [{ at = '4 s', rate = '4 Mbit/s' }]\n\
         [[path]]\nname = 'lte'\nrate = '6 Mbit/s'\nrtt = '60 ms'\nqueue = '200 ms'\n\
         changes = [{ at = '6 s', link = 'down', for = '3 s' }]\n",
    },
    Kind {
        what: "a link that loses packets",
        sums: TOGETHER,
        paths: "[[path]]\nname = 'wifi'\nrate = '12 Mbit/s'\nrtt = '30 ms'\nqueue = '100 ms'\n\
         loss = '0.5 %'\n\
         [[path]]\nname = 'lte'\nrate = '6 Mbit/s'\nrtt = '60 ms'\nqueue = '200 ms'\n",
    },
];

/// Records these links under downloads and replays them: by how much the sums of the flows' times differ.
fn differences(Kind { what, sums, paths }: &Kind) -> Option<Vec<f64>> {
    let truth = parsed(&format!("name = 'truth'\n{paths}"));
    let emulated = Emulated::new(&truth).map_err(skipped).ok()?;
    emulated.serve("127.0.0.1:8080");
    let gateway = ["gateway", "--listen", "10.127.255.1:80", "--to", "127.0.0.1:8080", "--status", "none"];
    let _gateway = emulated.daemon(&emulated.server, &gateway);
    let socket = emulated.folder.path().join("status.sock").display().to_string();
    let usage = emulated.folder.path().join("usage").display().to_string();
    let line = ["proxy", "--via", "wifi", "--via", "lte", "--status", &socket, "--usage", &usage];
    let _proxy = emulated.daemon(&emulated.client, &line);
    let clock = Clock::start();
    let download = |bytes: usize| emulated.download("10.127.255.1", &bytes.to_string());
    // One after another, and several at once.
    assert!(download(3_000_000).wait().success(), "{what}: {}", emulated.log());
    std::thread::sleep(Duration::from_millis(500));
    let several = [3_000_000, 2_000_000, 2_000_000].map(|bytes| {
        std::thread::sleep(Duration::from_millis(300));
        download(bytes)
    });
    assert!(several.into_iter().all(|one| one.wait().success()), "{what}: {}", emulated.log());
    assert!(download(4_000_000).wait().success(), "{what}: {}", emulated.log());
    let took = clock.now().as_secs_f64();
    wait_until("the flows are recorded", || emulated.recording(&socket).flows.len() == 5);
    let recording = emulated.recording(&socket);
    let told = recording.to_scenario("recorded").unwrap();
    let flows: Vec<&RecordedFlow> = recording.flows.iter().collect();
    let replayed = replayed(&recording, &flows, &parsed(&told.text));
    println!("{what}, {took:.1} s, at least: {:?}", told.at_least);
    for (flow, replayed) in flows.iter().zip(&replayed) {
        println!("  {} B: carried in {:.2} s, replayed in {replayed:.2} s", flow.bytes_down, flow.seconds);
    }
    println!("{}", told.text);
    let carried: Vec<f64> = flows.iter().map(|flow| flow.seconds).collect();
    let sum = |times: &[f64]| times.iter().sum::<f64>();
    let found = sums.iter().map(|(from, to)| sum(&replayed[*from..*to]) / sum(&carried[*from..*to]) - 1.0);
    let found: Vec<f64> = found.collect();
    println!("{what}: {found:.3?}");
    Some(found)
}

#[test]
fn replayed_flows_take_as_long_as_they_took() {
    let worst = |found: &[f64]| found.iter().fold(0.0, |worst, one| f64::max(worst, one.abs()));
    for kind in KINDS {
        // A busy host delays packets in real time: it isn't the recording that is wrong then.
        let mut tries = Vec::new();
        while tries.len() < 5 && tries.iter().all(|found: &Vec<f64>| worst(found) >= CLOSE) {
            let Some(found) = differences(kind) else { return };
            tries.push(found);
        }
        assert!(tries.iter().any(|found| worst(found) < CLOSE), "{}: {tries:.3?}", kind.what);
    }
}
