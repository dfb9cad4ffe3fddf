//! hyper on the engine: an HTTP server, and a client.
//!
//! As root, in a namespace of your own:
//!
//! ```text
//! unshare -n
//! ip link set lo up
//! cargo run -p ropewalk-tokio --example http -- serve &
//! mptcpize run curl http://10.126.0.2/            # the kernel's Multipath TCP is the client
//! cargo run -p ropewalk-tokio --example http -- get 10.126.0.2:80 /1000000
//! ```
//!
//! `/` tells what the connection is, `/N` gives N bytes. The server has 10.126.0.2 behind the device `rope0`,
//! the client 10.126.128.2 behind `rope128`; the kernel routes between them.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ropewalk_tokio::{MptcpListener, MptcpStream, Network, Path, tun};

/// Most bytes that a path may ask for.
const MOST: usize = 1 << 30;

/// A network of one path: the engine has 10.126.N.2, the kernel 10.126.N.3.
fn network(number: u8) -> io::Result<Network> {
    let name = format!("rope{number}");
    let (engine, kernel): (IpAddr, IpAddr) = ([10, 126, number, 2].into(), [10, 126, number, 3].into());
    let network = Network::builder().path(Path::tun(&name, 1, engine)?).build()?;
    tun::bring_up(&name, 1500, kernel, 31)?;
    // Between two engines of this namespace the kernel is a router.
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    Ok(network)
}

fn answer(request: &Request<Incoming>, about: &str) -> Response<Full<Bytes>> {
    let path = request.uri().path().trim_start_matches('/');
    let (status, body) = match path.parse::<usize>() {
        _ if path.is_empty() => (StatusCode::OK, Bytes::from(format!("{about}\n"))),
        Ok(len) if len <= MOST => (StatusCode::OK, Bytes::from(vec![b'r'; len])),
        _ => (StatusCode::NOT_FOUND, Bytes::from_static(b"a number of bytes is expected\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}

async fn serve() -> io::Result<()> {
    let network = network(0)?;
    let listener = MptcpListener::bind(&network, ([0, 0, 0, 0], 80).into())?;
    println!("serving http://10.126.0.2/");
    loop {
        let (stream, _) = listener.accept().await?;
        let kind =
            if stream.info().is_some_and(|info| info.multipath) { "Multipath TCP" } else { "plain TCP" };
        let about = format!("{kind} from {}", stream.peer_addr());
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let response = answer(&request, &about);
                async move { Ok::<_, Infallible>(response) }
            });
            let served = hyper::server::conn::http1::Builder::new();
            if let Err(error) = served.serve_connection(TokioIo::new(stream), service).await {
                eprintln!("{error}");
            }
        });
    }
}

async fn get(server: SocketAddr, path: &str) -> io::Result<()> {
    let network = network(128)?;
    let stream = MptcpStream::connect(&network, server).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header("host", server.to_string()).body(Empty::<Bytes>::new());
    let response = sender.send_request(request.map_err(io::Error::other)?).await.map_err(io::Error::other)?;
    let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    io::Write::write_all(&mut io::stdout(), &body)?;
    // The connection's end takes a round trip.
    drop(sender);
    connection.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
    network.drain(Duration::from_millis(100)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve"] => serve().await,
        ["get", server, path] => get(server.parse().map_err(io::Error::other)?, path).await,
        _ => Err(io::Error::other("give `serve`, or `get ADDRESS:PORT PATH`")),
    }
}
