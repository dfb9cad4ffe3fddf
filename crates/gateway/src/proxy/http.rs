//! HTTP proxying, by `hyper`: CONNECT (RFC 9110 9.3.6), and requests for `http://` URIs (absolute-form, RFC
//! 9112 3.2.2).

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use base64::Engine;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{
    self, ALLOW, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
};
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::client::{Client, HANDSHAKE};
use super::flow::ProxiedConnection;
use super::serve::Server;
use crate::convert;
use crate::per_connection::small;
use crate::target::Target;
use crate::tls::Shared;

type Answer = Response<Either<Full<Bytes>, Incoming>>;

/// A connection to a server, with the server's name, for a client's next request there.
type Kept = Arc<Mutex<Option<(String, SendRequest<Incoming>)>>>;

/// Headers that are for the next hop only (RFC 9110 7.6.1), besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// What carries bytes to a server, and counts them.
struct Counted {
    far: Box<dyn Far>,
    flow: Arc<ProxiedConnection>,
}

trait Far: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Far for T {}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.far).poll_read(cx, buf);
        self.flow.downloaded.fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.far).poll_write(cx, buf))?;
        self.flow.uploaded.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.far).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.far).poll_shutdown(cx)
    }
}

/// Opens a connection to a server, for requests.
async fn connect(server: &Arc<Server>, peer: Client, target: Target) -> io::Result<SendRequest<Incoming>> {
    let entry = server.open(peer, target).await?;
    let flow = Arc::clone(&entry.flow);
    let mut far: Box<dyn Far> = match flow.take_secure() {
        Some(secure) => Box::new(secure),
        None => Box::new(Shared(Arc::clone(&flow.stream))),
    };
    let opening = async {
        if flow.is_early {
            convert::client::Answer::default().read(&mut far).await?;
        }
        let counted = Counted { far, flow: Arc::clone(&flow) };
        hyper::client::conn::http1::handshake(TokioIo::new(counted)).await.map_err(io::Error::other)
    };
    let (sender, connection) = match opening.await {
        Ok(opened) => opened,
        Err(error) => {
            flow.stream.reset();
            server.ended(&flow, &Err(io::Error::new(error.kind(), error.to_string())));
            return Err(error);
        }
    };
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let mut stopping = server.stopping.subscribe();
        let done = tokio::select! {
            done = connection => done.map_err(io::Error::other),
            _ = stopping.wait_for(|stopping| *stopping) => {
                entry.flow.stream.reset();
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the proxy is stopping"))
            }
        };
        server.ended(&entry.flow, &done);
    });
    Ok(sender)
}

/// Has a server answer a request whose URI names it.
async fn forward(
    server: &Arc<Server>,
    peer: Client,
    kept: &Kept,
    mut request: Request<Incoming>,
) -> io::Result<Answer> {
    let uri = request.uri().clone();
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(80);
    let (to, target) = (format!("{host}:{port}"), Target::new(host, port));
    // A client's requests come one after another.
    let mut kept = kept.lock().await;
    let known = kept.take().filter(|(known, sender)| *known == to && sender.is_ready());
    let mut sender = match known {
        Some((_, sender)) => sender,
        None => connect(server, peer, target).await?,
    };
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    *request.uri_mut() = uri.path_and_query().map_or("/", PathAndQuery::as_str).parse().map_err(invalid)?;
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    remove_hop_by_hop(headers);
    let named = if uri.port_u16().is_some() { to.as_str() } else { host };
    headers.insert(header::HOST, HeaderValue::from_str(named).map_err(io::Error::other)?);
    headers.append(header::VIA, HeaderValue::from_static("1.1 ropewalk"));
    let mut response = sender.send_request(request).await.map_err(io::Error::other)?;
    remove_hop_by_hop(response.headers_mut());
    response.headers_mut().append(header::VIA, HeaderValue::from_static("1.1 ropewalk"));
    *kept = Some((to, sender));
    Ok(response.map(Either::Right))
}

fn answer(status: StatusCode, text: impl Into<String>) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(Bytes::from(text.into() + "\n"))));
    *answer.status_mut() = status;
    answer
}

/// The name and the password that a request has (RFC 7617).
fn credentials(header: Option<&HeaderValue>) -> Option<(String, String)> {
    let (scheme, encoded) = header?.to_str().ok()?.split_once(' ')?;
    let decoded = base64::engine::general_purpose::STANDARD.decode(encoded.trim()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (name, password) = text.split_once(':')?;
    scheme.eq_ignore_ascii_case("basic").then(|| (name.to_string(), password.to_string()))
}

fn status(error: &io::Error) -> StatusCode {
    match error.kind() {
        io::ErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        io::ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
        io::ErrorKind::QuotaExceeded => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    }
}

async fn respond(
    server: Arc<Server>,
    peer: Client,
    kept: Kept,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let given = credentials(request.headers().get(PROXY_AUTHORIZATION));
    if !server.knows(peer, given.as_ref().map(|(name, password)| (name.as_str(), password.as_str()))).await {
        let mut refusal =
            answer(StatusCode::PROXY_AUTHENTICATION_REQUIRED, "a name and a password are needed");
        let challenge = HeaderValue::from_static("Basic realm=\"ropewalk proxy\"");
        refusal.headers_mut().insert(PROXY_AUTHENTICATE, challenge);
        return Ok(refusal);
    }
    if request.method() != Method::CONNECT && request.uri().scheme() == Some(&Scheme::HTTP) {
        return Ok(match forward(&server, peer, &kept, request).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::debug!(client = %peer, %error, "a request isn't answered");
                answer(status(&error), error.to_string())
            }
        });
    }
    if request.method() != Method::CONNECT {
        let message = "this proxy does CONNECT, and requests for http:// URIs";
        let mut refusal = answer(StatusCode::METHOD_NOT_ALLOWED, message);
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("CONNECT"));
        return Ok(refusal);
    }
    let Some((host, port)) = request.uri().authority().and_then(|one| Some((one.host(), one.port_u16()?)))
    else {
        return Ok(answer(StatusCode::BAD_REQUEST, "CONNECT needs a host and a port"));
    };
    let target = Target::new(host, port);
    let entry = match server.open(peer, target.clone()).await {
        Ok(entry) => entry,
        Err(error) => {
            tracing::debug!(client = %peer, %target, %error, "not connected");
            return Ok(answer(status(&error), error.to_string()));
        }
    };
    tokio::spawn(small(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<TcpStream>>() else { return };
        let done = server.relay(parts.io.into_inner(), parts.read_buf, &entry.flow).await;
        server.ended(&entry.flow, &done);
    }));
    let mut accepted = Response::new(Either::Left(Full::default()));
    *accepted.status_mut() = StatusCode::OK;
    Ok(accepted)
}

/// Serves one client.
pub(super) async fn serve(server: Arc<Server>, client: TcpStream, peer: Client) -> io::Result<()> {
    let kept = Kept::default();
    let service = service_fn(move |request| respond(Arc::clone(&server), peer, Arc::clone(&kept), request));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE)
        .serve_connection(TokioIo::new(client), service)
        .with_upgrades();
    connection.await.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::credentials;

    #[test]
    fn a_request_has_a_name_and_a_password_or_none() {
        let header = |text: &'static str| text.parse().unwrap();
        let expected = Some(("van".to_string(), "a:b".to_string()));
        assert_eq!(credentials(Some(&header("Basic dmFuOmE6Yg=="))), expected);
        assert_eq!(credentials(Some(&header("basic dmFuOmE6Yg=="))), expected);
        for wrong in ["Bearer dmFuOmE6Yg==", "Basic %", "Basic", "Basic dmFu"] {
            assert_eq!(credentials(Some(&header(wrong))), None, "{wrong}");
        }
        assert_eq!(credentials(None), None);
    }
}
