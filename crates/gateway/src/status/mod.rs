//! The state of a running gateway or proxy, over a Unix socket: whoever connects and sends a line gets one
//! JSON value. The line says of what: `state`, `state before=NUMBER`, `recording`. The file's permissions say
//! who may (0600).

pub(crate) mod stream;

use std::future::Future;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

/// Most connections whose decisions are watched, and that one answer tells of.
const MOST_CONNECTIONS: usize = 1000;
/// Most answers at a time.
const MOST_CLIENTS: usize = 4;
/// Most bytes of what is asked.
const LONGEST_WORD: u64 = 64;
/// How long it is waited for.
const ASKED: Duration = Duration::from_millis(500);
/// Where the socket is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// Where nothing else is said. If it can't be made there, a warning says why, and the program runs
    /// without it.
    Default(PathBuf),
    /// Where the configuration says.
    Path(PathBuf),
    /// No socket.
    None,
}

impl Location {
    /// That of a proxy or gateway for which nothing is said: in the runtime directory that systemd made for
    /// it, or `otherwise`.
    pub fn default_of(otherwise: &str) -> Location {
        // systemd separates several by colons.
        let directory = std::env::var_os("RUNTIME_DIRECTORY")
            .and_then(|all| std::env::split_paths(&all).next())
            .filter(|first| first.is_absolute());
        Location::Default(match directory {
            Some(directory) => directory.join("status.sock"),
            None => otherwise.into(),
        })
    }

    /// From a configuration: a path, or `none`.
    pub fn named(path: PathBuf) -> Location {
        if path.as_os_str() == "none" { Location::None } else { Location::Path(path) }
    }

    /// The socket's path.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Location::Default(path) | Location::Path(path) => Some(path),
            Location::None => None,
        }
    }

    /// Makes the socket.
    ///
    /// # Errors
    /// As [`Server::bind`], if the path was configured.
    pub fn bind(&self) -> io::Result<Option<Server>> {
        match self {
            Location::None => Ok(None),
            Location::Path(path) => Server::bind(path).map(Some),
            Location::Default(path) => Ok(Server::bind(path)
                .inspect_err(|error| tracing::warn!(%error, "`ropewalkd status` has nothing to ask"))
                .ok()),
        }
    }
}

/// A socket of the file system; dropping it removes the file.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl Drop for Server {
    fn drop(&mut self) {
        // Another process may have a socket of the same name by now.
        if identity(&self.path).is_ok_and(|found| found == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = path.symlink_metadata()?;
    Ok((metadata.dev(), metadata.ino()))
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
        let file = identity(path).map_err(context)?;
        Ok(Server { listener, path: path.to_path_buf(), file })
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

/// Of `all` connections, in the order of their numbers, those that one answer tells of, the newest with a
/// number below `before`; and how many older ones there are.
pub(crate) fn newest<T>(all: &[T], before: Option<u64>, number: impl Fn(&T) -> u64) -> (&[T], usize) {
    let end = before.map_or(all.len(), |before| all.partition_point(|one| number(one) < before));
    let begin = end.saturating_sub(MOST_CONNECTIONS);
    (&all[begin..end], begin)
}

#[cfg(test)]
mod tests {
    use ropewalk_status::{before, state_before};

    use super::{MOST_CONNECTIONS, newest};

    #[test]
    fn every_connection_is_told_of_once_page_by_page() {
        // Numbers have gaps where connections ended.
        let all: Vec<u64> = (0..2500).map(|at| 3 * at).collect();
        let (mut told, mut asked) = (Vec::<u64>::new(), state_before(None));
        loop {
            let (page, older) = newest(&all, before(&asked), |number| *number);
            assert!(page.len() <= MOST_CONNECTIONS);
            told.extend(page.iter().rev());
            if older == 0 {
                break;
            }
            asked = state_before(page.first().copied());
        }
        told.reverse();
        assert_eq!(told, all);
    }

    #[test]
    fn a_number_between_two_connections_or_none_is_no_error() {
        let all = [2u64, 5, 9];
        assert_eq!(newest(&all, Some(6), |number| *number), (&all[..2], 0));
        assert_eq!(newest(&all, Some(0), |number| *number), (&all[..0], 0));
    }
}
