//! The URL of a page that tells the Internet from a captive portal.

use hyper::Uri;

use crate::target::Target;

/// A URL that can't be asked for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckUrlError {
    /// Not a URL.
    #[error("captive check `{url}`: {reason}")]
    Malformed {
        /// What was written.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Without a host, or not of plain HTTP.
    #[error("captive check `{0}`: expected http://HOST/PATH (a captive portal can't answer https)")]
    NotHttp(String),
}

/// The host and port of a URL for checks.
///
/// # Errors
/// If it can't be asked for.
pub(crate) fn check_target(url: &str) -> Result<(Uri, Target), CheckUrlError> {
    let malformed = |error: hyper::http::uri::InvalidUri| CheckUrlError::Malformed {
        url: url.into(),
        reason: error.to_string(),
    };
    let uri: Uri = url.parse().map_err(malformed)?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("http"));
    let Some(host) = host else { return Err(CheckUrlError::NotHttp(url.into())) };
    let target = Target::new(host, uri.port_u16().unwrap_or(80));
    Ok((uri, target))
}
