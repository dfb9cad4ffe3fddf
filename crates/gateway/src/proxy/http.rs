//! HTTP CONNECT (RFC 9110 9.3.6), by `hyper`.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use base64::Engine;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::client::{Client, HANDSHAKE};
use super::serve::Server;
use crate::target::Target;

type Answer = Response<Full<Bytes>>;

fn answer(status: StatusCode, text: impl Into<String>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text.into() + "\n")));
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
    request: Request<hyper::body::Incoming>,
) -> Result<Answer, Infallible> {
    let given = credentials(request.headers().get(PROXY_AUTHORIZATION));
    if !server.knows(peer, given.as_ref().map(|(name, password)| (name.as_str(), password.as_str()))).await {
        let mut refusal =
            answer(StatusCode::PROXY_AUTHENTICATION_REQUIRED, "a name and a password are needed");
        let challenge = HeaderValue::from_static("Basic realm=\"ropewalk proxy\"");
        refusal.headers_mut().insert(PROXY_AUTHENTICATE, challenge);
        return Ok(refusal);
    }
    if request.method() != Method::CONNECT {
        let mut refusal = answer(StatusCode::METHOD_NOT_ALLOWED, "this proxy does CONNECT only");
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
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<TcpStream>>() else { return };
        let done = server.relay(parts.io.into_inner(), parts.read_buf, &entry.flow).await;
        server.ended(&entry.flow, &done);
    });
    let mut accepted = Response::new(Full::default());
    *accepted.status_mut() = StatusCode::OK;
    Ok(accepted)
}

/// Serves one client.
pub(super) async fn serve(server: Arc<Server>, client: TcpStream, peer: Client) -> io::Result<()> {
    let service = service_fn(move |request| respond(Arc::clone(&server), peer, request));
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
