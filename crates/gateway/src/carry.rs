//! Bytes between a Multipath TCP stream and a TCP socket, both ways at once: the gateway's to its server, the
//! proxy's to its client.
//!
//! A side that closes is passed on as a half-close, and a side that resets as a reset, so that nobody takes
//! the beginning of the data for all of it. Nothing is read that the other side hasn't room for, so that its
//! window closes in turn.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use ropewalk_tokio::{MptcpStream, Pool};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::memory::Pressure;
use crate::tls::Secure;

/// Most bytes that are read at a time.
const PIECE: usize = 256 << 10;
/// Most pieces that are written at a time.
const AT_ONCE: usize = 64;

thread_local! {
    /// Memory for what is read from sockets, for all connections of a thread: an idle one has none.
    static POOL: RefCell<Pool> = RefCell::new(Pool::new(PIECE));
}

/// Bytes of datagrams that a stream between proxy and gateway has carried.
#[derive(Clone, Copy, Debug)]
pub struct Carried<'a> {
    /// Read from the stream.
    pub from_stream: &'a AtomicU64,
    /// Written to the stream.
    pub to_stream: &'a AtomicU64,
}

/// What bytes are carried by: counters, and the memory there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteCounters<'a> {
    /// From the stream to the socket.
    pub from_stream: &'a AtomicU64,
    /// From the socket to the stream.
    pub to_stream: &'a AtomicU64,
    /// Whether memory is short.
    pub pressure: &'a Pressure,
}

/// So many bytes of a connection count at once, not only when memory is looked at: more than is taken of a
/// server's before a client has read anything.
const BEGINNING: u64 = 1 << 20;

impl ByteCounters<'_> {
    /// So many bytes from the socket are held by the stream now.
    fn on_taken(&self, bytes: usize) {
        // What a connection has carried long since is acknowledged.
        if self.to_stream.fetch_add(bytes as u64, Ordering::Relaxed) < BEGINNING {
            self.pressure.on_taken(bytes);
        }
    }
}

/// What a connection may hold of the data for its stream before more is read, while memory is short: those
/// that are new can't be told yet from those that will stall.
const WHILE_SHORT: u64 = 16 << 10;
/// How long it waits then, at first and at most.
const WAITS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// While memory is short, waits until most of what the stream holds is acknowledged.
async fn spare_memory(stream: &MptcpStream, pressure: &Pressure) {
    let mut wait = WAITS.0;
    while pressure.is_short() && stream.held_bytes() >= WHILE_SHORT {
        tokio::time::sleep(wait).await;
        wait = (2 * wait).min(WAITS.1);
    }
}

/// The side that was lost: it was reset, or can't be reached any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("the Multipath TCP connection: {0}")]
    Stream(io::Error),
    #[error("the TCP connection: {0}")]
    Socket(io::Error),
}

/// Carries both ways until both sides have closed, or one is lost: then the other is reset. `first` was read
/// from the socket before.
pub(crate) async fn carry(
    stream: &MptcpStream,
    socket: &mut TcpStream,
    first: Bytes,
    counters: ByteCounters<'_>,
) -> Result<(), Lost> {
    let done = {
        let (mut from_socket, mut to_socket) = socket.split();
        let outward = from_stream(stream, &mut to_socket, counters.from_stream);
        let inward = to_stream(first, &mut from_socket, stream, counters);
        tokio::try_join!(outward, inward).map(drop)
    };
    match &done {
        Ok(()) => {}
        Err(Lost::Stream(_)) => reset(socket),
        Err(Lost::Socket(_)) => stream.reset(),
    }
    done
}

/// Most bytes that are read at a time where they are encrypted: two records of TLS.
const ENCRYPTED_PIECE: usize = 32 << 10;

/// Most buffers that a thread keeps for what is read next.
const MOST_KEPT: usize = 16;

thread_local! {
    /// Buffers that no [`Room`] has now.
    static KEPT: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Data read from the TLS stream or from the socket, in one of the thread's buffers, which is given back
/// when this is dropped: an idle connection has none.
struct Room {
    buffer: Box<[u8]>,
    len: usize,
}

impl Room {
    /// Waits for data and reads it; empty at the end of the stream.
    async fn read(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Room> {
        poll_fn(|cx| {
            let kept = KEPT.with_borrow_mut(Vec::pop);
            let buffer = kept.unwrap_or_else(|| vec![0; ENCRYPTED_PIECE].into_boxed_slice());
            let mut room = Room { buffer, len: 0 };
            let mut free = ReadBuf::new(&mut room.buffer);
            ready!(Pin::new(&mut *reader).poll_read(cx, &mut free))?;
            room.len = free.filled().len();
            Poll::Ready(Ok(room))
        })
        .await
    }

    fn data(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        KEPT.with_borrow_mut(|kept| {
            if kept.len() < MOST_KEPT {
                kept.push(buffer);
            }
        });
    }
}

/// As [`carry`], encrypted: `secure` is TLS on `stream`.
pub(crate) async fn carry_encrypted(
    secure: Secure,
    stream: &MptcpStream,
    socket: &mut TcpStream,
    first: Bytes,
    counters: ByteCounters<'_>,
) -> Result<(), Lost> {
    let done = {
        let (mut from_socket, mut to_socket) = socket.split();
        let (mut from_stream, mut to_stream) = tokio::io::split(secure);
        let outward = async {
            loop {
                // The end without TLS's own sign of it is an error: somebody may have cut the data.
                let room = Room::read(&mut from_stream).await.map_err(Lost::Stream)?;
                if room.data().is_empty() {
                    let _ = to_socket.shutdown().await;
                    return Ok(());
                }
                to_socket.write_all(room.data()).await.map_err(Lost::Socket)?;
                counters.from_stream.fetch_add(room.len as u64, Ordering::Relaxed);
            }
        };
        let inward = async {
            to_stream.write_all(&first).await.map_err(Lost::Stream)?;
            counters.on_taken(first.len());
            loop {
                to_stream.flush().await.map_err(Lost::Stream)?;
                spare_memory(stream, counters.pressure).await;
                let room = Room::read(&mut from_socket).await.map_err(Lost::Socket)?;
                if room.data().is_empty() {
                    return to_stream.shutdown().await.map_err(Lost::Stream);
                }
                to_stream.write_all(room.data()).await.map_err(Lost::Stream)?;
                counters.on_taken(room.len);
            }
        };
        tokio::try_join!(outward, inward).map(drop)
    };
    match &done {
        Ok(()) => {}
        Err(Lost::Stream(_)) => {
            reset(socket);
            stream.reset();
        }
        Err(Lost::Socket(_)) => stream.reset(),
    }
    done
}

/// Has dropping the socket reset its connection.
pub(crate) fn reset(socket: &TcpStream) {
    // It fails where the connection is gone already.
    let _ = socket.set_zero_linger();
}

async fn from_stream(
    stream: &MptcpStream,
    socket: &mut WriteHalf<'_>,
    counter: &AtomicU64,
) -> Result<(), Lost> {
    let mut pieces = Vec::new();
    loop {
        let len = stream.read_pieces(PIECE, &mut pieces).await.map_err(Lost::Stream)?;
        if len == 0 {
            // The socket's peer may have closed by itself.
            let _ = socket.shutdown().await;
            return Ok(());
        }
        write_pieces(socket, &mut pieces).await.map_err(Lost::Socket)?;
        counter.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// Writes pieces, many at a time, and drops them.
async fn write_pieces(socket: &mut WriteHalf<'_>, pieces: &mut Vec<Bytes>) -> io::Result<()> {
    let mut first = 0;
    while first < pieces.len() {
        // The slices are made at each poll: between two they would stay in each connection's task.
        let writing = poll_fn(|cx| {
            let mut slices = [IoSlice::new(&[]); AT_ONCE];
            for (slice, piece) in slices.iter_mut().zip(&pieces[first..]) {
                *slice = IoSlice::new(piece);
            }
            let slices = &slices[..AT_ONCE.min(pieces.len() - first)];
            Pin::new(&mut *socket).poll_write_vectored(cx, slices)
        });
        let mut written = writing.await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while written > 0 {
            let part = written.min(pieces[first].len());
            pieces[first].advance(part);
            written -= part;
            first += usize::from(pieces[first].is_empty());
        }
    }
    pieces.clear();
    Ok(())
}

/// Most bytes that are read at first. A piece is held until its last byte is acknowledged: with clients that
/// stop reading, large ones would take more memory than is counted.
const FIRST_PIECES: u64 = 32 << 10;

/// How many bytes are read next, of at most `space`.
fn piece_of(space: usize, carried: u64, pressure: &Pressure) -> usize {
    let most = if pressure.is_short() { WHILE_SHORT } else { FIRST_PIECES.max(carried / 4) };
    space.min(most as usize)
}

/// What a socket has, at most so many bytes. Large pieces have memory that was used before: fresh pages cost
/// more than the copy. Others would keep their chunk for as long as the peer doesn't acknowledge them.
fn read_some(socket: &ReadHalf<'_>, most: usize) -> io::Result<Bytes> {
    POOL.with_borrow_mut(|pool| {
        let room = pool.room(PIECE / 4);
        room.clear();
        match socket.try_read_buf(&mut (&mut *room).limit(most))? {
            len if len < PIECE / 4 => Ok(Bytes::copy_from_slice(room)),
            _ => Ok(room.split().freeze()),
        }
    })
}

/// Whether the peer has closed after what was read from a socket. The kernel reports a reset once, to a peek
/// as well: then the next read would say that the data is complete.
fn has_ended(socket: &ReadHalf<'_>) -> io::Result<bool> {
    let socket = socket.as_ref();
    let peek = || SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]);
    match socket.try_io(Interest::READABLE, peek) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        peeked => peeked.map(|len| len == 0),
    }
}

/// `data` was read before.
async fn to_stream(
    mut data: Bytes,
    socket: &mut ReadHalf<'_>,
    stream: &MptcpStream,
    counters: ByteCounters<'_>,
) -> Result<(), Lost> {
    let mut is_last = false;
    loop {
        while !data.is_empty() {
            let written = match is_last {
                // The server's FIN is passed on in the segment that ends its answer.
                true => stream.write_last(&data).await,
                false => stream.write_bytes(&data).await,
            };
            let written = written.map_err(Lost::Stream)?;
            data.advance(written);
            counters.on_taken(written);
        }
        if is_last {
            return Ok(());
        }
        // As `readable`, which keeps ten times as much in each connection's task.
        poll_fn(|cx| socket.as_ref().poll_read_ready(cx)).await.map_err(Lost::Socket)?;
        if counters.pressure.is_short() {
            Box::pin(spare_memory(stream, counters.pressure)).await;
        }
        // No more than the stream takes: with clients that read nothing, the rest would be held here.
        let space = stream.space().await.map_err(Lost::Stream)?;
        let most = piece_of(space, counters.to_stream.load(Ordering::Relaxed), counters.pressure);
        match read_some(socket, most) {
            Ok(read) if read.is_empty() => {
                stream.close_write();
                return Ok(());
            }
            Ok(read) => {
                is_last = read.len() < most && has_ended(socket).map_err(Lost::Socket)?;
                data = read;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Lost::Socket(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_tokio::{MemoryDevice, MptcpListener, Network, Path};
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    /// Ends of a program on each side, and what is carried between: a stream and a socket.
    struct Ends {
        _networks: [Network; 2],
        far: MptcpStream,
        stream: MptcpStream,
        socket: TcpStream,
        near: TcpStream,
    }

    async fn ends() -> Ends {
        let mut hosts = [1, 2].into_iter();
        let networks = MemoryDevice::pair(1).map(|device| {
            let host = hosts.next().unwrap();
            let path = Path::with_queues(device, [10, 0, 0, host].into());
            Network::builder().path(path).build().unwrap()
        });
        let address = "10.0.0.1:80".parse().unwrap();
        let listener = MptcpListener::bind(&networks[0], address).unwrap();
        let stream = MptcpStream::connect(&networks[1], address).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        Ends { _networks: networks, far, stream, socket, near }
    }

    #[tokio::test]
    async fn closing_is_passed_on_as_closing() {
        let Ends { _networks, mut far, stream, mut socket, mut near } = ends().await;
        let (from_stream, to_stream, pressure) = <(AtomicU64, AtomicU64, Pressure)>::default();
        let counters = ByteCounters { from_stream: &from_stream, to_stream: &to_stream, pressure: &pressure };
        let carried = carry(&stream, &mut socket, Bytes::from_static(b"be"), counters);
        let programs = async {
            near.write_all(b"gin").await.unwrap();
            near.shutdown().await.unwrap();
            let mut text = String::new();
            far.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "begin");
            far.write_all(b"end").await.unwrap();
            far.shutdown().await.unwrap();
            text.clear();
            near.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "end");
        };
        let (done, ()) = tokio::join!(carried, programs);
        done.unwrap();
        assert_eq!((from_stream.into_inner(), to_stream.into_inner()), (3, 5));
    }

    /// More at once than a socket takes, and small pieces as well as large.
    #[tokio::test]
    async fn every_byte_arrives_in_order() {
        let Ends { _networks, mut far, stream, mut socket, mut near } = ends().await;
        let (from_stream, to_stream, pressure) = <(AtomicU64, AtomicU64, Pressure)>::default();
        let counters = ByteCounters { from_stream: &from_stream, to_stream: &to_stream, pressure: &pressure };
        let sent: Vec<u8> = (0..6_000_000u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        let carried = carry(&stream, &mut socket, Bytes::new(), counters);
        let programs = async {
            let (mut far_reader, mut far_writer) = tokio::io::split(&mut far);
            let (mut near_reader, mut near_writer) = near.split();
            let mut received = [Vec::new(), Vec::new()];
            let [down, up] = &mut received;
            let write = async {
                for chunk in sent.chunk_by(|_, byte| byte % 251 != 7) {
                    far_writer.write_all(chunk).await.unwrap();
                }
                far_writer.shutdown().await.unwrap();
            };
            let write_up = async {
                near_writer.write_all(&sent).await.unwrap();
                near_writer.shutdown().await.unwrap();
            };
            let read = async { near_reader.read_to_end(down).await.unwrap() };
            let read_up = async { far_reader.read_to_end(up).await.unwrap() };
            tokio::join!(write, write_up, read, read_up);
            assert!(received[0] == sent && received[1] == sent);
        };
        let (done, ()) = tokio::join!(carried, programs);
        done.unwrap();
        assert_eq!((from_stream.into_inner(), to_stream.into_inner()), (6_000_000, 6_000_000));
    }

    /// While memory is short a connection holds little, and goes on.
    #[tokio::test]
    async fn while_memory_is_short_little_is_read_at_a_time() {
        let Ends { _networks, mut far, stream, mut socket, mut near } = ends().await;
        let (from_stream, to_stream, pressure) = <(AtomicU64, AtomicU64, Pressure)>::default();
        pressure.set_short(true);
        let counters = ByteCounters { from_stream: &from_stream, to_stream: &to_stream, pressure: &pressure };
        let data = vec![7; 1 << 20];
        let programs = async {
            let watch = async {
                let mut most = 0;
                while to_stream.load(Ordering::Relaxed) < 1 << 20 {
                    most = most.max(stream.held_bytes());
                    tokio::task::yield_now().await;
                }
                most
            };
            let write = async {
                near.write_all(&data).await.unwrap();
                near.shutdown().await.unwrap();
            };
            let mut received = Vec::new();
            let read = far.read_to_end(&mut received);
            let (most, (), read) = tokio::join!(watch, write, read);
            assert_eq!(read.unwrap(), 1 << 20);
            assert!(most < 2 * WHILE_SHORT, "{most}");
            far.shutdown().await.unwrap();
        };
        let (done, ()) = tokio::join!(carry(&stream, &mut socket, Bytes::new(), counters), programs);
        done.unwrap();
    }

    /// A client reads nothing: what it doesn't take stays with the server's kernel, none of it here.
    #[tokio::test]
    async fn nothing_is_read_that_the_stream_does_not_take() {
        let Ends { _networks, far: _far, stream, mut socket, mut near } = ends().await;
        stream.set_unsent_beyond_window(Some(64 << 10)).unwrap();
        let (from_stream, to_stream, pressure) = <(AtomicU64, AtomicU64, Pressure)>::default();
        let counters = ByteCounters { from_stream: &from_stream, to_stream: &to_stream, pressure: &pressure };
        let data = vec![7; 1 << 20];
        let fill = async {
            let mut sent = 0;
            while let Ok(len) = tokio::time::timeout(Duration::from_millis(300), near.write(&data)).await {
                sent += len.unwrap();
            }
            sent
        };
        let sent = tokio::select! {
            done = carry(&stream, &mut socket, Bytes::new(), counters) => panic!("{done:?}"),
            sent = fill => sent,
        };
        near.shutdown().await.unwrap();
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() > 100_000, "{sent} bytes: too few to fill everything");
        assert_eq!(sent - rest.len(), to_stream.into_inner() as usize, "of {sent} bytes");
    }

    #[tokio::test]
    async fn a_reset_of_the_socket_is_no_end_of_the_data() {
        for is_at_once in [false, true] {
            let Ends { _networks, mut far, stream, mut socket, mut near } = ends().await;
            let (from_stream, to_stream, pressure) = <(AtomicU64, AtomicU64, Pressure)>::default();
            let counters =
                ByteCounters { from_stream: &from_stream, to_stream: &to_stream, pressure: &pressure };
            let carried = carry(&stream, &mut socket, Bytes::new(), counters);
            let programs = async {
                near.write_all(b"half").await.unwrap();
                let mut half = [0; 4];
                if !is_at_once {
                    far.read_exact(&mut half).await.unwrap();
                }
                near.set_zero_linger().unwrap();
                drop(near);
                let ended = far.read_to_end(&mut Vec::new()).await;
                assert!(ended.is_err(), "{ended:?}");
            };
            let (done, ()) = tokio::join!(carried, programs);
            assert!(matches!(done, Err(Lost::Socket(_))), "{done:?}");
        }
    }

    /// Whoever can forge segments closes the stream in the middle: without TLS's own sign of the end that is
    /// an error.
    #[tokio::test]
    async fn the_end_of_the_stream_without_that_of_tls_is_no_end_of_the_data() {
        let folder = tempfile::tempdir().unwrap();
        let pair = ["gateway", "proxy"].map(|name| crate::tls::keys::generate(folder.path(), name).unwrap());
        let acceptor = crate::tls::Acceptor::load(&pair[0][0], &[&pair[1][1]]).unwrap();
        let connector = crate::tls::Connector::load(&pair[1][0], &pair[0][1]).unwrap();
        let Ends { _networks, far, stream, mut socket, mut near } = ends().await;
        let (far, stream) = (std::sync::Arc::new(far), std::sync::Arc::new(stream));
        let handshakes = tokio::join!(
            acceptor.accept(std::sync::Arc::clone(&far)),
            connector.connect(std::sync::Arc::clone(&stream))
        );
        let (mut server, client) = (handshakes.0.unwrap(), handshakes.1.unwrap());
        let (from_stream, to_stream, pressure) = <(AtomicU64, AtomicU64, Pressure)>::default();
        let counters = ByteCounters { from_stream: &from_stream, to_stream: &to_stream, pressure: &pressure };
        let carried = async {
            let done = carry_encrypted(client, &stream, &mut socket, Bytes::new(), counters).await;
            drop(socket);
            done
        };
        let mut half = [0; 4];
        let programs = async {
            server.write_all(b"half").await.unwrap();
            server.flush().await.unwrap();
            near.read_exact(&mut half).await.unwrap();
            far.close_write();
            let ended = near.read(&mut half).await;
            assert!(ended.is_err(), "{ended:?}");
        };
        let (done, ()) = tokio::join!(carried, programs);
        assert!(
            matches!(&done, Err(Lost::Stream(error)) if error.kind() == io::ErrorKind::UnexpectedEof),
            "{done:?}"
        );
    }

    #[tokio::test]
    async fn a_reset_of_the_stream_is_no_end_of_the_data() {
        let Ends { _networks, mut far, stream, mut socket, mut near } = ends().await;
        let (from_stream, to_stream, pressure) = <(AtomicU64, AtomicU64, Pressure)>::default();
        let counters = ByteCounters { from_stream: &from_stream, to_stream: &to_stream, pressure: &pressure };
        let mut half = [0; 4];
        let carried = async {
            let done = carry(&stream, &mut socket, Bytes::new(), counters).await;
            drop(socket);
            done
        };
        let programs = async {
            far.write_all(b"half").await.unwrap();
            near.read_exact(&mut half).await.unwrap();
            far.reset();
            let ended = near.read(&mut half).await;
            assert!(ended.is_err(), "{ended:?}");
        };
        let (done, ()) = tokio::join!(carried, programs);
        assert!(matches!(done, Err(Lost::Stream(_))), "{done:?}");
    }
}
