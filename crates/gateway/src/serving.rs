//! HTTP for what is told of a running program: metrics, and the status page.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

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

/// Answers requests until the future is dropped.
pub(crate) async fn serve<F: Future<Output = Answer> + Send + 'static>(
    listener: TcpListener,
    respond: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
) {
    let respond = Arc::new(respond);
    let places = Arc::new(Semaphore::new(MOST_CLIENTS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let respond = Arc::clone(&respond);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = respond(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
            let serving = builder.serve_connection(TokioIo::new(socket), service);
            // A client that doesn't read isn't waited for.
            let _ = tokio::time::timeout(3 * PATIENCE, serving).await;
            drop(place);
        });
    }
}
