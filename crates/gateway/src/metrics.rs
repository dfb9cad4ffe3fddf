//! Metrics for Prometheus, by the names that the kernel has for them: HTTP on a loopback address, `/metrics`.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Most connections at a time.
const MOST_CLIENTS: usize = 8;

/// One kind of metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// Metrics as text (Prometheus exposition format 0.0.4).
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// Begins a metric; [`Text::value`] follows.
    pub fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = if kind == Kind::Counter { "counter" } else { "gauge" };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A value of the metric, with labels.
    pub fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// A metric without labels.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: f64) {
        self.metric(name, kind, help);
        self.value(name, &[], value);
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// Opens the port.
///
/// # Errors
/// If it isn't a loopback address, or is taken.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_loopback() {
        let message = format!("metrics at {address}: only a loopback address is allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| io::Error::new(error.kind(), format!("metrics at {address}: {error}")))
}

/// Answers `/metrics` with what `text` gives, until the future is dropped.
pub async fn serve(listener: TcpListener, text: impl Fn() -> String + Send + Sync + 'static) {
    let text = Arc::new(text);
    let places = Arc::new(Semaphore::new(MOST_CLIENTS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let text = Arc::clone(&text);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &*text);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(5)).keep_alive(false);
            let _ = builder.serve_connection(TokioIo::new(socket), service).await;
            drop(place);
        });
    }
}

fn answer(request: &Request<Incoming>, text: impl Fn() -> String) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, text()),
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        _ => (StatusCode::NOT_FOUND, "there is only /metrics\n".into()),
    };
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::{Kind, Text};

    #[test]
    fn the_text_is_as_prometheus_wants_it() {
        let mut text = Text::default();
        text.metric("a_total", Kind::Counter, "As.");
        text.value("a_total", &[("link", "e\"th\\0\n")], 3.0);
        text.single("b", Kind::Gauge, "Bs.", 0.5);
        let expected = "# HELP a_total As.\n# TYPE a_total counter\na_total{link=\"e\\\"th\\\\0\\n\"} 3\n\
            # HELP b Bs.\n# TYPE b gauge\nb 0.5\n";
        assert_eq!(text.finish(), expected);
    }
}
