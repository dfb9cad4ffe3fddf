//! Reading and writing without a copy.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::task::coop::poll_proceed;

use crate::stream::{Connection, MptcpStream};

impl Connection {
    fn poll_read_pieces(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        pieces: &mut Vec<Bytes>,
    ) -> Poll<io::Result<usize>> {
        let turn = ready!(poll_proceed(cx));
        let read = self.shard().call(|state, now| {
            let mut len = 0;
            while len < most {
                match state.endpoint.read_piece(now, self.id, most - len) {
                    Ok(Some(data)) if !data.is_empty() => {
                        len += data.len();
                        pieces.push(data);
                    }
                    Ok(Some(_)) => break,
                    Ok(None) | Err(_) if len > 0 => break,
                    Ok(None) | Err(_) => return self.on_nothing(state, cx).map_ok(|()| 0),
                }
            }
            Poll::Ready(Ok(len))
        });
        if read.is_ready() {
            turn.made_progress();
        }
        read
    }
}

impl MptcpStream {
    /// Reads what has come without a copy: appends pieces of at most `most` bytes together, and returns how
    /// many bytes, 0 at the end of the stream.
    ///
    /// # Errors
    /// As reading.
    pub async fn read_pieces(&self, most: usize, pieces: &mut Vec<Bytes>) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.connection.poll_read_pieces(cx, most, pieces)).await
    }

    /// Reads what comes next without a copy, as it arrived: at most `most` bytes, empty at the end of the
    /// stream.
    ///
    /// # Errors
    /// As reading.
    pub async fn read_bytes(&self, most: usize) -> io::Result<Bytes> {
        std::future::poll_fn(|cx| {
            if most == 0 {
                return Poll::Ready(Ok(Bytes::new()));
            }
            let turn = ready!(poll_proceed(cx));
            let read = self.connection.shard().call(|state, now| {
                match state.endpoint.read_piece(now, self.connection.id, most) {
                    Ok(Some(data)) => Poll::Ready(Ok(data)),
                    Ok(None) | Err(_) => self.connection.on_nothing(state, cx).map_ok(|()| Bytes::new()),
                }
            });
            if read.is_ready() {
                turn.made_progress();
            }
            read
        })
        .await
    }

    /// Waits until data can be written, and returns how many bytes [`write_bytes`](Self::write_bytes) should
    /// get next: no more than it takes, and as many as fill super-segments. A super-segment ends where a
    /// large piece does, and a segment that spans two of them is copied.
    ///
    /// Who asks before reading from elsewhere holds nothing that the peer doesn't take.
    ///
    /// # Errors
    /// As writing.
    pub async fn space(&self) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.connection.poll_writable(cx)).await
    }

    /// Writes a prefix of `data` without a copy, and returns its length. Large pieces are best: a segment
    /// that spans two of them is copied.
    ///
    /// # Errors
    /// As writing.
    pub async fn write_bytes(&self, data: &Bytes) -> io::Result<usize> {
        std::future::poll_fn(|cx| match data.is_empty() {
            true => Poll::Ready(Ok(0)),
            false => self.connection.poll_write_with(cx, false, |_, _| data.clone()),
        })
        .await
    }
    /// As [`write_bytes`](Self::write_bytes), and if all of `data` was written, closes our side as
    /// [`close_write`](Self::close_write) does: the FIN or DATA_FIN leaves in the last segment of data.
    ///
    /// # Errors
    /// As writing.
    pub async fn write_last(&self, data: &Bytes) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.connection.poll_write_with(cx, true, |_, _| data.clone())).await
    }
}
