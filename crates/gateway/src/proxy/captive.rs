//! Whether a link leads to the Internet or to a captive portal: a page that answers 204, as operating systems
//! ask for.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use ropewalk_tokio::{ConnectOptions, MptcpStream};
use tokio::time::timeout;

use super::check_url::check_target;
use super::link::Link;
use super::serve::Server;
use super::settings::Names;
use crate::target::Target;

/// How long a check may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long resolvers may take to tell the page's address over the link, before the system's is asked.
const LOOKUP: Duration = Duration::from_secs(2);

/// Whether the page answers 204 over this link; a captive portal answers something else in its place.
///
/// # Errors
/// If there is no answer.
pub(super) async fn is_internet(server: &Server, link: &Arc<Link>, url: &str) -> io::Result<bool> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {PATIENCE:?}"));
    timeout(PATIENCE, ask(server, link, url)).await.map_err(late)?
}

/// The page's addresses as they are known over the link: another network may have others.
async fn addresses(server: &Server, link: &Arc<Link>, target: &Target) -> io::Result<Vec<SocketAddr>> {
    if let Target::Name(name, port) = target
        && server.settings().names == Names::Links
    {
        let asking = server.addresses_over(name, std::slice::from_ref(link));
        if let Ok(Ok((found, _))) = timeout(LOOKUP, asking).await {
            return Ok(found.into_iter().map(|address| SocketAddr::new(address, *port)).collect());
        }
    }
    target.resolve().await
}

async fn ask(server: &Server, link: &Arc<Link>, url: &str) -> io::Result<bool> {
    let (uri, target) = check_target(url).map_err(io::Error::other)?;
    let routed = |address: &SocketAddr| link.has_route(address.is_ipv6());
    let Some(address) = addresses(server, link, &target).await?.into_iter().find(routed) else {
        return Err(io::Error::new(io::ErrorKind::NetworkUnreachable, "no route to the page over this link"));
    };
    let options = ConnectOptions::new()
        .multipath(false)
        .local(SocketAddr::new(link.address(address.is_ipv6()), 0))
        .path(link.path());
    let stream = MptcpStream::connect_with(&server.network, address, &options).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let running = tokio::spawn(connection);
    let host = uri.authority().map(ToString::to_string).unwrap_or_default();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request =
        Request::get(path).header(HOST, host).body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
    let answer = sender.send_request(request).await;
    running.abort();
    Ok(answer.map_err(io::Error::other)?.status() == StatusCode::NO_CONTENT)
}
