//! The gateway that connects to servers for the proxy (RFC 8803), where one is configured.

use std::io;
use std::net::SocketAddr;

use ropewalk_tokio::MptcpStream;

use crate::convert::{Cookie, client};

/// A gateway, and what it has to be shown.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Its address and port.
    pub address: SocketAddr,
    /// What shows that this proxy may use it.
    pub cookie: Option<Cookie>,
}

impl Gateway {
    /// Has the gateway connect to a server; the stream is reset if it doesn't.
    pub(super) async fn connect(&self, stream: &mut MptcpStream, server: SocketAddr) -> io::Result<()> {
        let done = client::connect(stream, server, self.cookie.as_ref()).await;
        if done.is_err() {
            stream.reset();
        }
        done
    }

    /// Has the gateway carry datagrams; the stream is reset if it doesn't.
    pub(super) async fn datagrams(&self, stream: &mut MptcpStream) -> io::Result<()> {
        let done = client::datagrams(stream, self.cookie.as_ref()).await;
        if done.is_err() {
            stream.reset();
        }
        done
    }
}
