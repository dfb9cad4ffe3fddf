//! Small HTTP responses: hyper on the engine, and hyper on the kernel's TCP, both behind the same kind of TUN
//! device.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use ropewalk_engine::Span;
use ropewalk_host::experiment::PORT;
use ropewalk_host::netns::Namespace;
use ropewalk_host::network::{KernelEnd, PathConfig, Side, server_address};
use ropewalk_host::tun::Offload;
use ropewalk_host::world::{End, World};
use ropewalk_tokio::{MptcpListener, Network, Path, TunDevice};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::{Failed, Options, Sample, compare, cpu, ratio};

const CONNECTIONS: usize = 32;
const MEASURED: Duration = Duration::from_secs(3);
const BODY: &[u8] = &[b'r'; 128];

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
    let service = service_fn(|_request: Request<Incoming>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(BODY))))
    });
    // A client that leaves ends it.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Requests one after the other on each connection, from the client's namespace; how many were answered.
fn load(namespace: &Namespace) -> Result<u64, Failed> {
    let address = SocketAddr::new(server_address(false), PORT);
    let answered = namespace.run(|| {
        runtime()?.block_on(async {
            let mut tasks = Vec::new();
            for _ in 0..CONNECTIONS {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
                let (mut sender, connection) = handshake.await.map_err(std::io::Error::other)?;
                tokio::spawn(connection);
                tasks.push(tokio::spawn(async move {
                    let begin = Instant::now();
                    let mut answered = 0;
                    while begin.elapsed() < MEASURED {
                        let request = Request::get("/").header("host", "rope").body(Empty::<Bytes>::new());
                        let response = sender.send_request(request.map_err(std::io::Error::other)?).await;
                        let body = response.map_err(std::io::Error::other)?.into_body().collect().await;
                        if body.map_err(std::io::Error::other)?.to_bytes().len() == BODY.len() {
                            answered += 1;
                        }
                    }
                    Ok::<_, std::io::Error>(answered)
                }));
            }
            let mut answered = 0;
            for task in tasks {
                answered += task.await.map_err(std::io::Error::other)??;
            }
            Ok(answered)
        })
    })?;
    Ok(answered)
}

fn measured(namespace: &Namespace) -> Result<Sample, Failed> {
    let before = cpu();
    let begin = Instant::now();
    let answered = load(namespace)? as f64;
    Ok(Sample { rate: answered / begin.elapsed().as_secs_f64(), cost: 1e6 * (cpu() - before) / answered })
}

fn client_end() -> Result<KernelEnd, Failed> {
    let paths = [PathConfig { name: "path0".into(), mtu: 1500, backup: false }];
    Ok(KernelEnd::new(Side::Client, &paths, Offload::Segmentation)?)
}

/// hyper on the engine, behind the client's device. Packets are the engine's own: one process is server and
/// driver.
fn on_the_engine() -> Result<Sample, Failed> {
    let mut end = client_end()?;
    let tuns = std::mem::take(&mut end.tuns);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || -> Result<(), Failed> {
        runtime()?.block_on(async {
            let devices = tuns.into_iter().map(TunDevice::new).collect();
            let network =
                Network::builder().path(Path::with_queues(devices, server_address(false))).build()?;
            let listener = MptcpListener::bind(&network, SocketAddr::new(server_address(false), PORT))?;
            ready.send(())?;
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream));
                }
            });
            let _ = stopped.await;
            Ok(())
        })
    });
    is_ready.recv()?;
    let sample = measured(&end.namespace)?;
    drop(stop);
    server.join().map_err(|_| "the server panicked")??;
    Ok(sample)
}

/// hyper on the kernel's TCP in a namespace of its own; between the two devices packets are passed on as they
/// are.
fn on_the_kernel() -> Result<Sample, Failed> {
    let paths = [PathConfig { name: "path0".into(), mtu: 1500, backup: false }];
    let client = client_end()?;
    let server = KernelEnd::new(Side::Server, &paths, Offload::Segmentation)?;
    let copy = |end: &KernelEnd| -> Result<Namespace, Failed> {
        Ok(Namespace::from_fd(end.namespace.fd().try_clone_to_owned()?, "end"))
    };
    let (near, far) = (copy(&client)?, copy(&server)?);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let hyper = std::thread::spawn(move || {
        far.run(|| {
            runtime()?.block_on(async {
                let listener = TcpListener::bind(SocketAddr::new(server_address(false), PORT)).await?;
                let _ = ready.send(());
                tokio::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        let _ = stream.set_nodelay(true);
                        tokio::spawn(serve(stream));
                    }
                });
                let _ = stopped.await;
                Ok(())
            })
        })
    });
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    let mover = std::thread::spawn(move || {
        let mut world = World::new(End::Kernel(client), End::Kernel(server), 1);
        let clock = world.clock();
        while !is_over.load(Ordering::Relaxed) {
            world.run_past(clock.now() + Span::from_millis(5))?;
        }
        Ok::<_, std::io::Error>(())
    });
    is_ready.recv()?;
    let sample = measured(&near);
    over.store(true, Ordering::Relaxed);
    drop(stop);
    hyper.join().map_err(|_| "the server panicked")??;
    mover.join().map_err(|_| "the thread that moves packets panicked")??;
    sample
}

pub fn run(options: &Options) -> Result<(), Failed> {
    let samples = compare(
        options,
        ["requests/s", "us of CPU time each"],
        &[
            ("hyper on the kernel's TCP over TUN", &on_the_kernel),
            ("hyper on the engine over TUN", &on_the_engine),
        ],
    )?;
    println!(
        "the engine: {:.2} of the kernel's requests per second, {:.2} of its CPU time per request (clients \
         included)",
        ratio(&samples[1], &samples[0], |sample| sample.rate),
        ratio(&samples[1], &samples[0], |sample| sample.cost)
    );
    Ok(())
}
