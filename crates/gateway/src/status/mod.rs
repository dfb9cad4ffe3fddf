//! The state of a running gateway or proxy, over a Unix socket: whoever connects and sends a line gets one JSON value. The line
//! says of what: `state`, `recording`. The file's permissions say who may (0600).

pub mod gateway;
pub mod proxy;
mod stream;

use std::future::Future;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

/// Where they are looked for if nothing else is said.
pub const DEFAULTS: [&str; 4] = [
    "/run/ropewalk/proxy.sock",
    "/run/ropewalk/gateway.sock",
    "/run/ropewalk-proxy/status.sock",
    "/run/ropewalk-gateway/status.sock",
];
/// Most answers at a time.
const MOST_CLIENTS: usize = 4;
/// Most bytes of what is asked.
const LONGEST_WORD: u64 = 64;
/// How long it is waited for.
const ASKED: Duration = Duration::from_millis(500);
/// Most bytes of an answer.
const LARGEST: u64 = 64 << 20;

/// A socket of the file system; dropping it removes the file.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Server {
    /// Makes the socket. One that a killed process left is replaced.
    ///
    /// # Errors
    /// If somebody listens there, or the file can't be made.
    pub fn bind(path: &Path) -> io::Result<Server> {
        let context = |error: io::Error| {
            io::Error::new(error.kind(), format!("status socket {}: {error}", path.display()))
        };
        if UnixStream::connect(path).is_ok() {
            return Err(context(io::Error::new(io::ErrorKind::AddrInUse, "another process has it")));
        }
        let is_socket =
            |metadata: std::fs::Metadata| std::os::unix::fs::FileTypeExt::is_socket(&metadata.file_type());
        if path.symlink_metadata().is_ok_and(is_socket) {
            std::fs::remove_file(path).map_err(context)?;
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(context)?;
        socket.bind(&SockAddr::unix(path).map_err(context)?).map_err(context)?;
        // Nobody can connect before it listens.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(context)?;
        socket.listen(16).map_err(context)?;
        socket.set_nonblocking(true).map_err(context)?;
        let listener = UnixListener::from_std(socket.into()).map_err(context)?;
        Ok(Server { listener, path: path.to_path_buf() })
    }

    /// Answers with what `snapshot` gives for a word, until the future is dropped.
    pub async fn serve<F: Future<Output = Value> + Send + 'static>(
        self,
        snapshot: impl Fn(String) -> F + Send + Sync + 'static,
    ) {
        let snapshot = Arc::new(snapshot);
        let places = Arc::new(Semaphore::new(MOST_CLIENTS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let Ok((mut client, _)) = self.listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let snapshot = Arc::clone(&snapshot);
            tokio::spawn(async move {
                let mut word = String::new();
                let mut line = BufReader::new((&mut client).take(LONGEST_WORD));
                // Who says nothing gets the state.
                let _ = tokio::time::timeout(ASKED, line.read_line(&mut word)).await;
                let text = format!("{}\n", snapshot(word.trim().to_string()).await);
                // A client that doesn't read isn't waited for.
                let _ = tokio::time::timeout(Duration::from_secs(5), client.write_all(text.as_bytes())).await;
                drop(place);
            });
        }
    }
}

/// Asks a running gateway or proxy: for its `state`, or its `recording`.
///
/// # Errors
/// If nobody listens there, or the answer is no JSON.
pub fn ask(path: &Path, word: &str) -> io::Result<Value> {
    let context = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut stream = UnixStream::connect(path).map_err(context)?;
    stream.write_all(format!("{word}\n").as_bytes()).map_err(context)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut text = String::new();
    stream.take(LARGEST).read_to_string(&mut text).map_err(context)?;
    serde_json::from_str(&text).map_err(|error| context(io::Error::new(io::ErrorKind::InvalidData, error)))
}
