//! HTTP for what is told of a running program: metrics, and the status page.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

/// Most connections at a time.
const MOST_CLIENTS: usize = 8;
/// How long a client may take for its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is answered.
pub(crate) type Answer = Response<Full<Bytes>>;

/// An answer of a kind.
pub(crate) fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Listens; `what` is named where that fails.
pub(crate) async fn bind(what: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| io::Error::new(error.kind(), format!("{what} at {address}: {error}")))
}

/// Whether a request names this host in a way that nobody else can choose: an address, or `localhost`. Else a
/// page of the Internet could have its own name point here and read what is answered (DNS rebinding).
pub(crate) fn is_for_this_host<T>(request: &Request<T>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let in_target = request.uri().authority().map(|authority| authority.as_str());
    host.to_str().is_ok_and(names_this_host) && in_target.is_none_or(names_this_host)
}

/// `localhost`, an IPv4 address, or an IPv6 address in brackets; perhaps with a port; nothing else.
fn names_this_host(host: &str) -> bool {
    let (is_right, rest) = match host.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((name, rest)) => (name.parse::<Ipv6Addr>().is_ok(), rest),
        None => {
            let (name, rest) = host.split_at(host.find(':').unwrap_or(host.len()));
            (name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok(), rest)
        }
    };
    let is_port =
        |port: &str| port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok();
    is_right && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

/// A connection, and whether it has asked for something.
struct Client {
    task: AbortHandle,
    has_asked: Arc<AtomicBool>,
}

/// Makes room for one more: who has asked for nothing goes first, then who has been there for longest.
fn make_room(clients: &mut Vec<Client>) {
    clients.retain(|client| !client.task.is_finished());
    if clients.len() >= MOST_CLIENTS {
        let idle = clients.iter().position(|client| !client.has_asked.load(Ordering::Relaxed));
        clients.remove(idle.unwrap_or(0)).task.abort();
    }
}

/// Answers requests, each with its client's address, until the future is dropped.
pub(crate) async fn serve<F: Future<Output = Answer> + Send + 'static>(
    listener: TcpListener,
    respond: impl Fn(Request<Incoming>, SocketAddr) -> F + Send + Sync + 'static,
) {
    let respond = Arc::new(respond);
    let mut clients = Vec::new();
    let mut tasks = JoinSet::new();
    loop {
        let Ok((socket, peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        make_room(&mut clients);
        while tasks.try_join_next().is_some() {}
        let respond = Arc::clone(&respond);
        let has_asked = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&has_asked);
        let task = tasks.spawn(async move {
            let service = service_fn(move |request| {
                asked.store(true, Ordering::Relaxed);
                let answer = respond(request, peer);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
            let serving = builder.serve_connection(TokioIo::new(socket), service);
            // A client that doesn't read isn't waited for.
            let _ = tokio::time::timeout(3 * PATIENCE, serving).await;
        });
        clients.push(Client { task, has_asked });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn a_host_is_an_address_or_localhost_and_nothing_more() {
        for host in
            ["127.0.0.1", "127.0.0.1:80", "localhost", "LocalHost:65535", "[::1]", "[::1]:80", "192.0.2.1:1"]
        {
            assert!(names_this_host(host), "{host}");
        }
        for host in [
            "",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "[::1].evil.example",
            "[::1]evil.example:80",
            "[::1",
            "::1",
            "[127.0.0.1]",
            "[localhost]",
            "localhost.evil.example",
            "localhost:",
            "localhost:80.evil.example",
            "localhost:+80",
            "127.0.0.1:65536",
            "127.0.0.1@evil.example",
            " localhost",
        ] {
            assert!(!names_this_host(host), "{host}");
        }
        let request = |uri: &str, hosts: &[&str]| {
            let empty = Request::get(uri);
            let filled = hosts.iter().fold(empty, |request, host| request.header(HOST, *host));
            is_for_this_host(&filled.body(()).unwrap())
        };
        assert!(request("/metrics", &["localhost"]) && request("http://[::1]:80/", &["[::1]:80"]));
        assert!(!request("/", &[]) && !request("/", &["localhost", "evil.example"]));
        assert!(!request("http://evil.example/", &["localhost"]));
    }

    /// More than there are places for, and each says nothing or half a request.
    #[tokio::test]
    async fn who_opens_and_says_nothing_keeps_nobody_out() {
        let listener = bind("test", ([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving =
            serve(listener, |_, _| std::future::ready(answer(StatusCode::OK, "text/plain", "fine")));
        let asking = async {
            let mut idle = Vec::new();
            for round in 0..5 {
                for _ in 0..20 {
                    let mut socket = TcpStream::connect(address).await.unwrap();
                    let _ = socket.write_all(b"GET /met").await;
                    idle.push(socket);
                }
                let mut honest = TcpStream::connect(address).await.unwrap();
                honest.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
                let mut text = String::new();
                let read = tokio::time::timeout(PATIENCE / 2, honest.read_to_string(&mut text)).await;
                assert!(read.is_ok() && text.ends_with("fine"), "{round}: {text}");
            }
        };
        tokio::select! {
            () = serving => {}
            () = asking => {}
        }
    }
}
