//! The gateway that connects to servers for the proxy (RFC 8803), where one is configured.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ropewalk_tokio::MptcpStream;

use crate::convert::{Cookie, client};
use crate::tls::{Connector, Secure};

/// A gateway, and what it has to be shown.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Its address and port.
    pub address: SocketAddr,
    /// What shows that this proxy may use it.
    pub cookie: Option<Cookie>,
    /// TLS with it.
    pub tls: Option<Connector>,
}

/// What is asked of a gateway.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    Connection(SocketAddr),
    Datagrams,
}

/// Says of an error of TLS that it is one.
fn named(error: io::Error) -> io::Error {
    match error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
        true => io::Error::new(error.kind(), format!("TLS with the gateway: {error}")),
        false => error,
    }
}

impl Gateway {
    /// Has the gateway do something; the stream is reset if it doesn't. Returns the encrypted stream, with TLS.
    pub(super) async fn ask(&self, stream: &Arc<MptcpStream>, wish: Wish) -> io::Result<Option<Secure>> {
        let done = self.try_ask(stream, wish).await;
        if done.is_err() {
            stream.reset();
        }
        done
    }

    async fn try_ask(&self, stream: &Arc<MptcpStream>, wish: Wish) -> io::Result<Option<Secure>> {
        let cookie = self.cookie.as_ref();
        let Some(connector) = &self.tls else {
            let mut plain: &MptcpStream = stream;
            match wish {
                Wish::Connection(server) => client::connect(&mut plain, server, cookie).await?,
                Wish::Datagrams => client::datagrams(&mut plain, cookie).await?,
            }
            return Ok(None);
        };
        let mut secure = connector.connect(Arc::clone(stream)).await.map_err(named)?;
        // The gateway looks at the certificate after the handshake, so that its refusal comes here.
        let asked = match wish {
            Wish::Connection(server) => client::connect(&mut secure, server, cookie).await,
            Wish::Datagrams => client::datagrams(&mut secure, cookie).await,
        };
        asked.map_err(named).map(|()| Some(secure))
    }
}
