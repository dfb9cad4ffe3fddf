//! Streams.

mod options;

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ropewalk_engine::config::LocalEndpoint;
use ropewalk_engine::endpoint::{ConnectionId, OptionError};
use ropewalk_engine::mptcp::DecisionRecord;
use ropewalk_engine::{PathId, Span, Time};
use ropewalk_wire::pool::{MAX_CONDENSED, Pool};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::poll_proceed;

use crate::backlog::Arrival;
use crate::entries::{Status, register};
use crate::error;
use crate::info::StreamInfo;
use crate::network::{Inner, Network};
use crate::options::ConnectOptions;
use crate::shard::{SUPER, Shard, State, TokioEndpoint};

/// Most bytes of a write that are copied at a time.
const MOST_COPIED: usize = 256 << 10;

/// One connection, for its stream and its halves.
#[derive(Debug)]
pub(crate) struct Connection {
    network: Arc<Inner>,
    shard: usize,
    pub id: ConnectionId,
    status: Arc<Status>,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Drop for Connection {
    /// As the kernel closes a socket: what was written is still delivered; unread data resets the connection.
    fn drop(&mut self) {
        self.shard().call(|state, now| state.release(now, self.id));
    }
}

/// A Multipath TCP connection, or a plain TCP one where the peer speaks nothing else.
///
/// Dropping it closes it as the kernel closes a socket: what was written is still delivered, and data that
/// nobody read resets the connection. It never blocks, and it leaks nothing when a task is aborted or panics.
#[derive(Debug)]
pub struct MptcpStream {
    pub(crate) connection: Arc<Connection>,
}

/// The reading half of a stream ([`MptcpStream::into_split`]).
#[derive(Debug)]
pub struct OwnedReadHalf {
    connection: Arc<Connection>,
}

/// The writing half of a stream ([`MptcpStream::into_split`]). Dropping it closes our side.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    connection: Arc<Connection>,
    is_reunited: bool,
}

/// The two halves aren't of one stream.
#[derive(Debug, thiserror::Error)]
#[error("the halves aren't of one stream")]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

/// What `fill` puts into a buffer of `len` bytes. Large writes get memory that was used before: fresh pages
/// cost more than the copy. A small one could keep a whole chunk of it for as long as the peer doesn't
/// acknowledge.
fn copy(pool: &mut Pool, len: usize, fill: impl FnOnce(&mut BytesMut)) -> Bytes {
    if len < MAX_CONDENSED {
        let mut data = BytesMut::with_capacity(len);
        fill(&mut data);
        return data.freeze();
    }
    let room = pool.room(len);
    room.clear();
    fill(room);
    room.split().freeze()
}

fn span(time: Duration) -> Span {
    Span::saturating_from(time)
}

impl Connection {
    pub fn shard(&self) -> &Shard {
        &self.network.shards[self.shard]
    }

    /// What a call on a connection that is gone returns.
    fn gone(&self) -> io::Error {
        self.status.error().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    fn poll_established(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shard().call(|state, _| {
            if let Some(error) = self.status.error() {
                return Poll::Ready(Err(error));
            }
            if self.status.is_established() {
                return Poll::Ready(Ok(()));
            }
            match state.entries.get(self.id) {
                Some(entry) => {
                    register(&mut entry.writer, cx.waker());
                    Poll::Pending
                }
                None => Poll::Ready(Err(self.gone())),
            }
        })
    }

    /// What a read that found nothing means.
    pub fn on_nothing(&self, state: &mut State, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.status.error() {
            return Poll::Ready(Err(error));
        }
        match state.entries.get(self.id) {
            Some(entry) if !self.status.is_over() => {
                register(&mut entry.reader, cx.waker());
                Poll::Pending
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let turn = ready!(poll_proceed(cx));
        let read = self.shard().call(|state, now| {
            let before = buf.filled().len();
            while buf.remaining() > 0 {
                match state.endpoint.read_piece(now, self.id, buf.remaining()) {
                    Ok(Some(data)) if !data.is_empty() => buf.put_slice(&data),
                    Ok(Some(_)) => return Poll::Ready(Ok(())),
                    Ok(None) | Err(_) if buf.filled().len() > before => break,
                    Ok(None) | Err(_) => return self.on_nothing(state, cx),
                }
            }
            Poll::Ready(Ok(()))
        });
        if read.is_ready() {
            turn.made_progress();
        }
        read
    }

    /// Writes a prefix of what `data` makes. `data` is given memory for copies, and how many bytes are taken.
    /// `is_last`: if all of it was written, our side is closed.
    pub fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        is_last: bool,
        data: impl FnOnce(&mut Pool, usize) -> Bytes,
    ) -> Poll<io::Result<usize>> {
        let turn = ready!(poll_proceed(cx));
        let written = self.shard().call(|state, now| {
            let space = ready!(self.poll_space(state, now, cx))?;
            let data = data(&mut state.copies, space);
            let len = data.len();
            let written = state.endpoint.write(now, self.id, data).map_err(|_| self.gone())?;
            if is_last && written == len {
                state.endpoint.shutdown(now, self.id);
            }
            Poll::Ready(Ok(written))
        });
        if written.is_ready() {
            turn.made_progress();
        }
        written
    }

    /// How many bytes a write should have, once there is space.
    fn poll_space(&self, state: &mut State, now: Time, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Some(error) = self.status.error() {
            return Poll::Ready(Err(error));
        }
        if state.endpoint.is_writable(self.id) || state.endpoint.want_write(now, self.id) {
            let space = state.endpoint.writable_bytes(self.id).map_err(|_| self.gone())?;
            let most = space.min(MOST_COPIED as u64);
            return Poll::Ready(Ok(state.endpoint.aligned_bytes(self.id, most, SUPER) as usize));
        }
        match state.entries.get(self.id) {
            Some(entry) => {
                register(&mut entry.writer, cx.waker());
                Poll::Pending
            }
            None => Poll::Ready(Err(self.gone())),
        }
    }

    /// As [`MptcpStream::space`].
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let turn = ready!(poll_proceed(cx));
        let space = self.shard().call(|state, now| self.poll_space(state, now, cx));
        if space.is_ready() {
            turn.made_progress();
        }
        space
    }

    fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll_write_with(cx, false, |pool, space| {
            let taken = &buf[..buf.len().min(space)];
            copy(pool, taken.len(), |room| room.extend_from_slice(taken))
        })
    }

    fn poll_write_vectored(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        if total == 0 {
            return Poll::Ready(Ok(0));
        }
        self.poll_write_with(cx, false, |pool, space| {
            let mut left = total.min(space);
            copy(pool, left, |room| {
                for buf in bufs {
                    let part = buf.len().min(left);
                    room.extend_from_slice(&buf[..part]);
                    left -= part;
                }
            })
        })
    }

    fn shutdown(&self) {
        self.shard().call(|state, now| state.endpoint.shutdown(now, self.id));
    }

    fn info(&self) -> Option<StreamInfo> {
        self.shard().call(|state, now| {
            state.endpoint.connection(self.id).map(|connection| StreamInfo::of(connection, now))
        })
    }

    fn set(
        &self,
        option: impl FnOnce(&mut TokioEndpoint, Time, ConnectionId) -> Result<(), OptionError>,
    ) -> io::Result<()> {
        self.shard().call(|state, now| option(&mut state.endpoint, now, self.id)).map_err(error::option)
    }
}

impl MptcpStream {
    pub(crate) fn new(network: Arc<Inner>, arrival: Arrival) -> MptcpStream {
        let Arrival { shard, id, status, local, peer } = arrival;
        MptcpStream { connection: Arc::new(Connection { network, shard, id, status, local, peer }) }
    }

    /// Opens a connection. Cancelling it deletes the connection.
    ///
    /// # Errors
    /// What [`CloseReason`](crate::CloseReason) says, as its kind of [`io::Error`];
    /// [`AddrNotAvailable`](io::ErrorKind::AddrNotAvailable) if no path has an address of the family.
    pub async fn connect(network: &Network, remote: SocketAddr) -> io::Result<MptcpStream> {
        MptcpStream::connect_with(network, remote, &ConnectOptions::default()).await
    }

    /// As [`connect`](Self::connect), with settings of its own.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect), [`TimedOut`](io::ErrorKind::TimedOut) after the options' timeout,
    /// and [`InvalidInput`](io::ErrorKind::InvalidInput) for an unknown algorithm.
    pub async fn connect_with(
        network: &Network,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> io::Result<MptcpStream> {
        let inner = network.inner();
        let stream = MptcpStream::new(Arc::clone(inner), inner.open(remote, options)?);
        let established = std::future::poll_fn(|cx| stream.connection.poll_established(cx));
        match options.timeout {
            None => established.await?,
            Some(timeout) => tokio::time::timeout(timeout, established).await.map_err(|_| {
                io::Error::new(io::ErrorKind::TimedOut, format!("no answer from {remote} within {timeout:?}"))
            })??,
        }
        Ok(stream)
    }

    /// Our address of its first subflow.
    pub fn local_addr(&self) -> SocketAddr {
        self.connection.local
    }

    /// The peer's address of its first subflow.
    pub fn peer_addr(&self) -> SocketAddr {
        self.connection.peer
    }

    /// The shard that it belongs to; see [`Network::shard_runtime`].
    pub fn shard(&self) -> usize {
        self.connection.shard
    }

    /// Its state and counters, and its subflows'; `None` once the connection is over and forgotten.
    pub fn info(&self) -> Option<StreamInfo> {
        self.connection.info()
    }

    /// Bytes that a read would return now. 0 also at the end of the stream, and once the connection is
    /// forgotten.
    pub fn readable_bytes(&self) -> u64 {
        self.connection.shard().lock().endpoint.readable_bytes(self.connection.id).unwrap_or(0)
    }

    /// Bytes that a write would take now. 0 also where writing fails.
    pub fn writable_bytes(&self) -> u64 {
        self.connection.shard().lock().endpoint.writable_bytes(self.connection.id).unwrap_or(0)
    }

    /// Bytes that it holds: written and not acknowledged, out of order, or not read yet.
    pub fn held_bytes(&self) -> u64 {
        self.connection.shard().lock().endpoint.held_bytes(self.connection.id)
    }

    /// Whether its data waits for the far end's application alone, which reads nothing: what the far end's
    /// window had room for is acknowledged.
    pub fn awaits_window(&self) -> bool {
        self.connection.shard().lock().endpoint.awaits_window(self.connection.id)
    }

    /// Throws the connection away (MP_FASTCLOSE), as [`abort`](Self::abort) does, for a stream that several
    /// tasks share.
    pub fn reset(&self) {
        let id = self.connection.id;
        self.connection.shard().call(|state, now| state.abort(now, id));
    }

    /// Keeps the scheduler's last decisions for [`decisions`](Self::decisions), or doesn't. Each costs an
    /// allocation or two.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn trace_decisions(&self, on: bool) -> io::Result<()> {
        self.connection.set(|endpoint, now, id| endpoint.set_trace_decisions(now, id, on))
    }

    /// Takes what the scheduler decided last, up to eight decisions.
    pub fn decisions(&self) -> Vec<DecisionRecord> {
        let id = self.connection.id;
        let take =
            |state: &mut State| state.entries.get(id).map(|entry| std::mem::take(&mut entry.decisions));
        self.connection.shard().call(|state, _| take(state)).unwrap_or_default().into()
    }

    /// Opens a subflow from `from` (`signal` and `subflow` don't count), to `remote` or else the peer's first
    /// address.
    pub fn add_path(&self, from: &LocalEndpoint, remote: Option<SocketAddr>) {
        let (id, shard) = (self.connection.id, self.connection.shard());
        let local = SocketAddr::new(from.address, from.port.unwrap_or(0));
        shard.call(|state, now| {
            state.endpoint.add_path(now, id, from.path, local, remote, from.id);
            if from.backup {
                state.endpoint.set_backup(now, id, from.path, true);
            }
        });
    }

    /// Takes a path away from the connection: its subflows are reset, REMOVE_ADDR is sent, data goes
    /// elsewhere.
    pub fn remove_path(&self, path: PathId) {
        let id = self.connection.id;
        self.connection.shard().call(|state, now| state.endpoint.remove_path(now, id, path));
    }

    /// Makes a path's subflows backups, or not, and tells the peer (MP_PRIO).
    pub fn set_backup(&self, path: PathId, backup: bool) {
        let id = self.connection.id;
        self.connection.shard().call(|state, now| state.endpoint.set_backup(now, id, path, backup));
    }

    /// Closes our side (DATA_FIN), as `shutdown` of [`tokio::io::AsyncWriteExt`] does, through a shared
    /// reference.
    pub fn close_write(&self) {
        self.connection.shutdown();
    }

    /// Throws the connection away at once (MP_FASTCLOSE): what was written may be lost.
    pub fn abort(self) {
        let id = self.connection.id;
        self.connection.shard().call(|state, now| state.abort(now, id));
    }

    /// Splits it into halves that tasks can own.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let connection = self.connection;
        (
            OwnedReadHalf { connection: Arc::clone(&connection) },
            OwnedWriteHalf { connection, is_reunited: false },
        )
    }
}

impl OwnedReadHalf {
    /// The stream again.
    ///
    /// # Errors
    /// If the halves aren't of one stream.
    pub fn reunite(self, mut write: OwnedWriteHalf) -> Result<MptcpStream, ReuniteError> {
        if !Arc::ptr_eq(&self.connection, &write.connection) {
            return Err(ReuniteError(self, write));
        }
        let connection = Arc::clone(&self.connection);
        write.is_reunited = true;
        Ok(MptcpStream { connection })
    }

    /// As [`MptcpStream::peer_addr`].
    pub fn peer_addr(&self) -> SocketAddr {
        self.connection.peer
    }

    /// As [`MptcpStream::local_addr`].
    pub fn local_addr(&self) -> SocketAddr {
        self.connection.local
    }

    /// As [`MptcpStream::info`].
    pub fn info(&self) -> Option<StreamInfo> {
        self.connection.info()
    }
}

impl OwnedWriteHalf {
    /// As [`MptcpStream::peer_addr`].
    pub fn peer_addr(&self) -> SocketAddr {
        self.connection.peer
    }

    /// As [`MptcpStream::local_addr`].
    pub fn local_addr(&self) -> SocketAddr {
        self.connection.local
    }

    /// As [`MptcpStream::info`].
    pub fn info(&self) -> Option<StreamInfo> {
        self.connection.info()
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if !self.is_reunited {
            self.connection.shutdown();
        }
    }
}

macro_rules! reads {
    ($kind:ty) => {
        impl AsyncRead for $kind {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.connection.poll_read(cx, buf)
            }
        }
    };
}

macro_rules! writes {
    ($kind:ty) => {
        impl AsyncWrite for $kind {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.connection.poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.connection.poll_write_vectored(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            /// Does nothing: what was written is on its way.
            fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            /// Closes our side (DATA_FIN); what was written is still delivered, and the peer's side stays
            /// open.
            fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.connection.shutdown();
                Poll::Ready(Ok(()))
            }
        }
    };
}

reads!(MptcpStream);
// As with std's sockets: a task can read while another writes.
reads!(&MptcpStream);
reads!(OwnedReadHalf);
writes!(MptcpStream);
writes!(&MptcpStream);
writes!(OwnedWriteHalf);
