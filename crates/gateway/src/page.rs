//! The status page: HTTP on a loopback address, or elsewhere for whoever has the token.
//!
//! On loopback without a token the `Host` of a request has to be an address or `localhost`. Wrong tokens cost
//! time.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use hyper::{Method, Request, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use crate::guesses::Guesses;
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
    async fn admits<T>(&self, request: &Request<T>, client: SocketAddr, guesses: &Guesses) -> bool {
        let Some(token) = &self.token else { return serving::is_for_this_host(request) };
        let query = request.uri().query().unwrap_or_default();
        let Some(given) = query.split('&').find_map(|pair| pair.strip_prefix("token=")) else { return false };
        // How long it takes doesn't depend on how much of it is right.
        let is_right = || Sha256::digest(given) == Sha256::digest(token);
        guesses.check(client, "the page's token", is_right).await
    }
}

/// Serves the page, with what `snapshot` gives, until the future is dropped.
pub async fn serve<F: Future<Output = Value> + Send + 'static>(
    listener: TcpListener,
    page: Page,
    snapshot: impl Fn() -> F + Send + Sync + 'static,
) {
    let (page, snapshot) = (Arc::new(page), Arc::new(snapshot));
    let text = Arc::new(ropewalk_page::live_page("Status"));
    let guesses = Arc::new(Guesses::default());
    serving::serve(listener, move |request, client| {
        let (page, guesses) = (Arc::clone(&page), Arc::clone(&guesses));
        let (snapshot, text) = (Arc::clone(&snapshot), Arc::clone(&text));
        async move {
            let is_admitted = page.admits(&request, client, &guesses).await;
            respond(page.token.is_some(), is_admitted, &*snapshot, &text, request).await
        }
    })
    .await;
}

async fn respond<F: Future<Output = Value>>(
    needs_token: bool,
    is_admitted: bool,
    snapshot: &impl Fn() -> F,
    text: &str,
    request: Request<Incoming>,
) -> Answer {
    const PLAIN: &str = "text/plain; charset=utf-8";
    let mut answer = if !is_admitted {
        let reason = if needs_token { "a token is needed: ?token=...\n" } else { "not for this name\n" };
        answer(StatusCode::FORBIDDEN, PLAIN, reason)
    } else {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/") => answer(StatusCode::OK, "text/html; charset=utf-8", text.to_owned()),
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
    use hyper::Request;

    use super::Page;
    use crate::guesses::Guesses;

    fn page(address: &str, token: Option<&str>) -> Page {
        Page { address: address.parse().unwrap(), token: token.map(String::from) }
    }

    #[tokio::test]
    async fn nobody_else_reads_it() {
        let token = "0123456789abcdef";
        assert_eq!(page("127.0.0.1:80", None).check(), Ok(()));
        assert!(page("192.0.2.1:80", None).check().unwrap_err().to_string().contains("needs a token"));
        assert!(page("[::]:80", Some("short")).check().unwrap_err().to_string().contains("16 at least"));
        assert_eq!(page("0.0.0.0:80", Some(token)).check(), Ok(()));
        let guesses = Guesses::default();
        let ask = async |page: &Page, client: &str, host: &str, query: &str| {
            let request = Request::get(format!("/{query}")).header("host", host).body(()).unwrap();
            page.admits(&request, client.parse().unwrap(), &guesses).await
        };
        let local = page("127.0.0.1:80", None);
        assert!(ask(&local, "127.0.0.1:5", "[::1]:80", "").await);
        assert!(!ask(&local, "127.0.0.1:5", "[::1].evil.example", "").await);
        let (open, right) = (page("0.0.0.0:80", Some(token)), format!("?a=b&token={token}"));
        assert!(ask(&open, "192.0.2.1:5", "van.example", &right).await);
        assert!(!ask(&open, "192.0.2.1:5", "127.0.0.1", "").await);
        let begin = tokio::time::Instant::now();
        for at in 0..5 {
            assert!(!ask(&open, "192.0.2.1:5", "127.0.0.1", &format!("?token={token}{at}")).await);
        }
        assert!(begin.elapsed() > std::time::Duration::from_millis(700), "{:?}", begin.elapsed());
        assert!(ask(&open, "192.0.2.2:5", "van.example", &right).await, "others aren't concerned");
    }
}
