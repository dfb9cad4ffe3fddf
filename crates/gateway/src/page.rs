//! The status page: HTTP on a loopback address, or elsewhere for whoever has the token.
//!
//! On loopback without a token the `Host` of a request has to be an address or `localhost`: else a page of the Internet could
//! have its name point here and read what it says (DNS rebinding).

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{
    CACHE_CONTROL, HOST, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Method, Request, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use crate::serving::{self, Answer, answer};

/// Fewest characters of a token.
pub const SHORTEST_TOKEN: usize = 16;

/// Where the page is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Its address and port.
    pub address: SocketAddr,
    /// What `?token=` has to be; required beyond loopback.
    pub token: Option<String>,
}

/// Why a page isn't opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// Its token could be guessed.
    #[error("the page's token has {0} characters: {SHORTEST_TOKEN} at least are needed")]
    ShortToken(usize),
    /// Others could read it.
    #[error("a status page at {0} can be read by others: it needs a token")]
    NoToken(SocketAddr),
}

impl Page {
    /// Checks it.
    ///
    /// # Errors
    /// If others could read it, or guess the token.
    pub fn check(&self) -> Result<(), PageError> {
        match &self.token {
            Some(token) if token.len() < SHORTEST_TOKEN => Err(PageError::ShortToken(token.len())),
            None if !self.address.ip().to_canonical().is_loopback() => Err(PageError::NoToken(self.address)),
            _ => Ok(()),
        }
    }

    /// Opens the port.
    ///
    /// # Errors
    /// If it is taken, or others could read the page.
    pub async fn bind(&self) -> io::Result<TcpListener> {
        self.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        serving::bind("status page", self.address).await
    }

    /// Whether a request may be answered.
    fn admits(&self, host: Option<&str>, query: &str) -> bool {
        match &self.token {
            Some(token) => {
                let given = query.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap_or_default();
                // How long it takes doesn't depend on how much of it is right.
                Sha256::digest(given) == Sha256::digest(token)
            }
            None => host.is_some_and(is_this_host),
        }
    }
}

/// Whether a `Host` can't be a name that somebody else chose.
fn is_this_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

/// Serves the page, with what `snapshot` gives, until the future is dropped.
pub async fn serve<F: Future<Output = Value> + Send + 'static>(
    listener: TcpListener,
    page: Page,
    snapshot: impl Fn() -> F + Send + Sync + 'static,
) {
    let (page, snapshot) = (Arc::new(page), Arc::new(snapshot));
    let text = Arc::new(ropewalk_page::live_page("Status"));
    serving::serve(listener, move |request| {
        respond(Arc::clone(&page), Arc::clone(&snapshot), Arc::clone(&text), request)
    })
    .await;
}

async fn respond<F: Future<Output = Value>>(
    page: Arc<Page>,
    snapshot: Arc<impl Fn() -> F>,
    text: Arc<String>,
    request: Request<Incoming>,
) -> Answer {
    const PLAIN: &str = "text/plain; charset=utf-8";
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let mut answer = if !page.admits(host, request.uri().query().unwrap_or_default()) {
        let reason =
            if page.token.is_some() { "a token is needed: ?token=...\n" } else { "not for this name\n" };
        answer(StatusCode::FORBIDDEN, PLAIN, reason)
    } else {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/") => {
                answer(StatusCode::OK, "text/html; charset=utf-8", text.as_str().to_owned())
            }
            (&Method::GET, "/state") => {
                answer(StatusCode::OK, "application/json", snapshot().await.to_string())
            }
            (_, "/" | "/state") => answer(StatusCode::METHOD_NOT_ALLOWED, PLAIN, ""),
            _ => answer(StatusCode::NOT_FOUND, PLAIN, "there are only / and /state\n"),
        }
    };
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // The token is in the address.
        (REFERRER_POLICY, "no-referrer"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::Page;

    fn page(address: &str, token: Option<&str>) -> Page {
        Page { address: address.parse().unwrap(), token: token.map(String::from) }
    }

    #[test]
    fn nobody_else_reads_it() {
        let token = "0123456789abcdef";
        assert_eq!(page("127.0.0.1:80", None).check(), Ok(()));
        assert!(page("192.0.2.1:80", None).check().unwrap_err().to_string().contains("needs a token"));
        assert!(page("[::]:80", Some("short")).check().unwrap_err().to_string().contains("16 at least"));
        assert_eq!(page("0.0.0.0:80", Some(token)).check(), Ok(()));
        let local = page("127.0.0.1:80", None);
        for host in ["127.0.0.1:80", "localhost:80", "localhost", "[::1]:80", "192.0.2.1"] {
            assert!(local.admits(Some(host), ""), "{host}");
        }
        for host in [Some("evil.example:80"), Some("127.0.0.1.evil.example"), Some(""), None] {
            assert!(!local.admits(host, ""), "{host:?}");
        }
        let open = page("0.0.0.0:80", Some(token));
        assert!(open.admits(Some("van.example"), &format!("a=b&token={token}")));
        assert!(!open.admits(Some("127.0.0.1"), "") && !open.admits(None, &format!("token={token}0")));
    }
}
