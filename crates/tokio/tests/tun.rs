//! The engine behind TUN devices in a namespace, with the kernel's sockets and programs as its peers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::netns::Namespace;
use ropewalk_host::skip::skipped;
use ropewalk_tokio::{
    ConnectOptions, ConnectionConfig, MptcpListener, MptcpStream, Network, Path, PathId, PathState,
    StreamInfo, default_config, tun,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

const PORT: u16 = 80;
const BYTES: usize = 8 << 20;

/// A namespace with paths to the engine; `None`, and it is said, where there can't be one.
fn stage(paths: u8, queues: usize) -> Option<(Namespace, Vec<Path>)> {
    let made = Namespace::new("tokio").and_then(|namespace| {
        namespace.check("ip", &["link", "set", "lo", "up"])?;
        namespace.check("ip", &["mptcp", "limits", "set", "subflows", "4", "add_addr_accepted", "4"])?;
        let paths = namespace.run(|| {
            let path = |number: u8| {
                let name = format!("rope{number}");
                let path = Path::tun(&name, queues, engine(number))?;
                tun::bring_up(&name, 1500, IpAddr::from([10, 126, number, 3]), 31)?;
                Ok(path)
            };
            (0..paths).map(path).collect::<io::Result<Vec<_>>>()
        })?;
        Ok((namespace, paths))
    });
    made.map_err(skipped).ok()
}

fn engine(path: u8) -> IpAddr {
    [10, 126, path, 2].into()
}

fn config() -> ConnectionConfig {
    let mut config = default_config();
    config.tcp.time_wait = ropewalk_engine::Span::from_millis(100);
    config
}

fn network(paths: Vec<Path>) -> Network {
    let builder = paths.into_iter().fold(Network::builder(), |builder, path| builder.path(path));
    builder.config(config()).build().unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// Serves as many connections with what they send.
async fn echo(listener: MptcpListener, connections: usize) -> Vec<StreamInfo> {
    let mut tasks = Vec::new();
    for _ in 0..connections {
        let (stream, _) = listener.accept().await.unwrap();
        tasks.push(tokio::spawn(async move {
            let (mut reader, mut writer) = stream.into_split();
            tokio::io::copy(&mut reader, &mut writer).await.unwrap();
            let info = writer.info().unwrap();
            writer.shutdown().await.unwrap();
            info
        }));
    }
    let mut infos = Vec::new();
    for task in tasks {
        infos.push(task.await.unwrap());
    }
    infos
}

/// A kernel's socket sends the pattern and wants it back.
fn kernel_client(namespace: &Namespace, remote: SocketAddr, len: usize) {
    let config = SocketConfig { connect_timeout: Some(Duration::from_secs(10)), ..SocketConfig::default() };
    let socket = kernel::connect(namespace, None, remote, &config).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let sent = pattern(len);
    let mut received = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&socket).write_all(&sent).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
        });
        (&socket).read_to_end(&mut received).unwrap();
    });
    assert!(received == sent, "{} of {len} bytes came back, or others", received.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kernels_talk_to_a_listener_over_two_paths_and_two_queues() {
    let Some((namespace, paths)) = stage(2, 2) else { return };
    let network = network(paths);
    let listener = MptcpListener::bind(&network, SocketAddr::new(IpAddr::from([0; 4]), PORT)).unwrap();
    let serving = tokio::spawn(echo(listener, 6));
    let clients = tokio::task::spawn_blocking(move || {
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| kernel_client(&namespace, SocketAddr::new(engine(0), PORT), BYTES / 2));
            }
        });
    });
    clients.await.unwrap();
    let infos = serving.await.unwrap();
    assert!(infos.iter().all(|info| info.multipath && info.stats.bytes_written == BYTES as u64 / 2));
    let mib = network.mib();
    let counter = |name: &str| mib.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value);
    assert_eq!(counter("MPTcpExtMPCapableSYNRX"), 6);
    assert!(counter("MPTcpExtMPJoinSynRx") >= 6, "joins to the announced address: {mib:?}");
    assert!(network.drain(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_connects_to_a_kernel() {
    let Some((namespace, paths)) = stage(2, 2) else { return };
    let network = network(paths);
    let listening = SocketAddr::new(IpAddr::from([0; 4]), PORT);
    let listener = kernel::listen(&namespace, listening, &SocketConfig::default()).unwrap();
    let serving = tokio::task::spawn_blocking(move || {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let socket = kernel::accept(&listener, Duration::from_secs(10)).unwrap();
                scope.spawn(move || io::copy(&mut &socket, &mut &socket).unwrap());
            }
        });
    });
    let sent = pattern(BYTES / 2);
    let mut clients = Vec::new();
    for _ in 0..4 {
        let (network, sent) = (network.clone(), sent.clone());
        clients.push(tokio::spawn(async move {
            let stream = MptcpStream::connect(&network, ([10, 126, 0, 3], PORT).into()).await.unwrap();
            let (mut reader, mut writer) = stream.into_split();
            let copy = sent.clone();
            let writing = tokio::spawn(async move {
                writer.write_all(&copy).await.unwrap();
                let info = writer.info().unwrap();
                writer.shutdown().await.unwrap();
                info
            });
            let mut received = Vec::new();
            reader.read_to_end(&mut received).await.unwrap();
            assert!(received == sent);
            assert!(writing.await.unwrap().multipath);
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    serving.await.unwrap();
    assert!(network.drain(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_with_both_families_talks_ipv6_either_way() {
    let Some((namespace, mut paths)) = stage(1, 1) else { return };
    let [ours, kernels] = [2, 3].map(|host| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 126, host]));
    namespace.run(|| tun::bring_up("rope0", 1500, kernels, 127)).unwrap();
    let path = paths.remove(0).address(ours);
    let network = network(vec![path]);
    let listener = MptcpListener::bind(&network, SocketAddr::new(ours, PORT)).unwrap();
    let serving = tokio::spawn(echo(listener, 1));
    let listening = SocketAddr::new(IpAddr::from([0_u16; 8]), PORT);
    let kernels_listener = kernel::listen(&namespace, listening, &SocketConfig::default()).unwrap();
    let blocking = tokio::task::spawn_blocking(move || {
        kernel_client(&namespace, SocketAddr::new(ours, PORT), BYTES / 4);
        let socket = kernel::accept(&kernels_listener, Duration::from_secs(10)).unwrap();
        io::copy(&mut &socket, &mut &socket).unwrap()
    });
    assert!(serving.await.unwrap()[0].multipath);
    let mut stream = MptcpStream::connect(&network, SocketAddr::new(kernels, PORT)).await.unwrap();
    assert_eq!(stream.local_addr().ip(), ours);
    let sent = pattern(100_000);
    stream.write_all(&sent).await.unwrap();
    assert!(stream.info().unwrap().multipath);
    stream.shutdown().await.unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    assert!(received == sent);
    assert_eq!(blocking.await.unwrap(), 100_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_goes_down_is_a_path_lost_and_not_the_end() {
    let Some((namespace, paths)) = stage(2, 1) else { return };
    let network = network(paths);
    let listening = SocketAddr::new(IpAddr::from([0; 4]), PORT);
    let listener = kernel::listen(&namespace, listening, &SocketConfig::default()).unwrap();
    let serving = tokio::task::spawn_blocking(move || {
        let socket = kernel::accept(&listener, Duration::from_secs(10)).unwrap();
        io::copy(&mut &socket, &mut &socket).unwrap()
    });
    let mut stream = MptcpStream::connect(&network, ([10, 126, 0, 3], PORT).into()).await.unwrap();
    let mut text = [0; 4];
    stream.write_all(b"ping").await.unwrap();
    stream.read_exact(&mut text).await.unwrap();
    let begin = Instant::now();
    while stream.info().unwrap().measured_subflows() < 2 {
        assert!(begin.elapsed().as_secs() < 10, "{:?}", stream.info());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    namespace.check("ip", &["link", "set", "rope1", "down"]).unwrap();
    for _ in 0..50 {
        stream.write_all(&[7; 20_000]).await.unwrap();
        stream.read_exact(&mut [0; 20_000]).await.unwrap();
    }
    assert_eq!(network.path_state(PathId(0)), Some(PathState::Up));
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut text).await.unwrap(), 0);
    assert_eq!(serving.await.unwrap(), 1_000_004);
    // The interface itself goes: that is noticed with the next packet for it, and it isn't polled any more.
    namespace.check("ip", &["link", "delete", "rope1"]).unwrap();
    let options = ConnectOptions::new().path(PathId(1)).timeout(Duration::from_millis(100));
    let error = MptcpStream::connect_with(&network, ([10, 126, 1, 3], PORT).into(), &options).await;
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(network.path_state(PathId(1)), Some(PathState::Removed));
    let before = network.driver_counters().polls;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(network.driver_counters().polls - before < 50, "a removed device keeps the driver busy");
}

/// A program that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an example in the namespace, and waits until it says that it is ready.
fn example(namespace: &Namespace, name: &str, arguments: &[&str]) -> Running {
    let mut command = namespace.command(example_path(name));
    let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let output = child.stdout.as_mut().map(BufReader::new);
    let running = output.map(|mut output| output.read_line(&mut line).unwrap());
    assert!(running.is_some_and(|len| len > 0), "{name} says nothing");
    Running(child)
}

/// Cargo builds examples before tests, beside their directory.
fn example_path(name: &str) -> std::path::PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} isn't built: `cargo test -p ropewalk-tokio` builds it", path.display());
    path
}

fn lacks(program: &str) -> bool {
    let is_missing =
        Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err();
    if is_missing {
        skipped(format!("{program} isn't installed"));
    }
    is_missing
}

/// A namespace without devices.
fn empty_stage() -> Option<Namespace> {
    let made = Namespace::new("tokio").and_then(|namespace| {
        namespace.check("ip", &["link", "set", "lo", "up"])?;
        namespace.check("ip", &["mptcp", "limits", "set", "subflows", "4", "add_addr_accepted", "4"])?;
        Ok(namespace)
    });
    made.map_err(skipped).ok()
}

#[test]
fn the_echo_example_answers_a_kernels_program() {
    let Some(namespace) = empty_stage() else { return };
    if lacks("socat") || lacks("mptcpize") {
        return;
    }
    let _server = example(&namespace, "echo-tun", &["2"]);
    let mut command = namespace.command("mptcpize");
    command.args(["run", "socat", "-t", "10", "-", "TCP:10.126.0.2:7"]);
    let mut client =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let sent = pattern(1 << 20);
    let mut input = client.stdin.take().unwrap();
    let copy = sent.clone();
    let writing = std::thread::spawn(move || input.write_all(&copy).unwrap());
    let output = client.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == sent, "{} bytes came back", output.stdout.len());
    let counters = namespace.run(kernel::counters).unwrap();
    let joins =
        counters.iter().find(|(name, _)| name == "MPTcpExtMPJoinSynAckRx").map_or(0, |(_, value)| *value);
    assert_eq!(joins, 1, "one join to the announced address");
}

#[test]
fn the_http_example_serves_curl_and_itself() {
    let Some(namespace) = empty_stage() else { return };
    if lacks("curl") || lacks("mptcpize") {
        return;
    }
    let _server = example(&namespace, "http", &["serve"]);
    let curl = |arguments: &[&str]| {
        let line = [&["run", "curl", "-s", "-S", "--fail", "--max-time", "20"], arguments].concat();
        namespace.check("mptcpize", &line).unwrap()
    };
    let about = curl(&["http://10.126.0.2/"]);
    assert!(about.starts_with("Multipath TCP from 10.126.0.3:"), "{about}");
    // One connection for several, the large ones too.
    let all = curl(&["http://10.126.0.2/3000000", "http://10.126.0.2/1", "http://10.126.0.2/5000000"]);
    assert_eq!((all.len(), all.matches('r').count()), (8_000_001, 8_000_001));
    let program = example_path("http").display().to_string();
    let own = namespace.check(&program, &["get", "10.126.0.2:80", "/2000000"]).unwrap();
    assert_eq!(own.len(), 2_000_000);
    let about = namespace.check(&program, &["get", "10.126.0.2:80", "/"]).unwrap();
    assert!(about.starts_with("Multipath TCP from 10.126.128.2:"), "{about}");
}
