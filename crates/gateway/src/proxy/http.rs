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
use super::config::Access;
use super::serve::Server;
use crate::target::Target;

type Answer = Response<Full<Bytes>>;

fn answer(status: StatusCode, text: impl Into<String>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text.into() + "\n")));
    *answer.status_mut() = status;
    answer
}

/// Whether a request has a name and password that are known (RFC 7617).
fn is_authorised(access: &Access, header: Option<&HeaderValue>) -> bool {
    if access.users.is_empty() {
        return true;
    }
    let credentials = || -> Option<(String, String)> {
        let (scheme, encoded) = header?.to_str().ok()?.split_once(' ')?;
        let decoded = base64::engine::general_purpose::STANDARD.decode(encoded.trim()).ok()?;
        let text = String::from_utf8(decoded).ok()?;
        let (name, password) = text.split_once(':')?;
        scheme.eq_ignore_ascii_case("basic").then(|| (name.to_string(), password.to_string()))
    };
    credentials().is_some_and(|(name, password)| access.knows(&name, &password))
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
    if !is_authorised(&server.config().access, request.headers().get(PROXY_AUTHORIZATION)) {
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
    use super::is_authorised;
    use crate::proxy::config::Access;

    #[test]
    fn a_request_needs_a_password_where_there_are_any() {
        let access = Access { users: vec![("van".into(), "a:b".into())], allow: Vec::new() };
        let header = |text: &'static str| text.parse().unwrap();
        assert!(is_authorised(&access, Some(&header("Basic dmFuOmE6Yg=="))));
        assert!(is_authorised(&access, Some(&header("basic dmFuOmE6Yg=="))));
        for wrong in ["Basic dmFuOmE6Yw==", "Bearer dmFuOmE6Yg==", "Basic %", "Basic", "Basic dmFu"] {
            assert!(!is_authorised(&access, Some(&header(wrong))), "{wrong}");
        }
        assert!(!is_authorised(&access, None) && is_authorised(&Access::default(), None));
    }
}
