//! A tunnel's datagrams in a stream: what is left where UDP is blocked.

use std::io;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use ropewalk_datagrams::stream::{put, take};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{Sender, channel};

use super::STREAM;
use super::drive::{Carrier, Event};
use crate::carry::Carried;

/// Datagrams that wait for the stream; beyond, they are lost. The tunnel's rate keeps them few.
const MOST_WAITING: usize = 256;
/// How many are written at once.
const BATCH: usize = 32;

/// Carries both ways, until the stream ends. A connection that carries nothing is reset after a while
/// (`stalled`): what it carries is counted. `far`: the far end's tunnel.
///
/// # Errors
/// If it is lost, or has what is no datagram.
pub(crate) async fn carry<S>(
    stream: S,
    events: &Sender<Event>,
    far: u64,
    carried: Carried<'_>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (queue, mut waiting) = channel(MOST_WAITING);
    // Its end is noticed by the queue's.
    let carrier = Carrier::Stream(queue);
    let outward = async {
        let (mut batch, mut bytes) = (Vec::with_capacity(BATCH), BytesMut::new());
        while waiting.recv_many(&mut batch, BATCH).await > 0 {
            batch.drain(..).for_each(|one| put(&mut bytes, &one));
            writer.write_all(&bytes).await?;
            writer.flush().await?;
            carried.to_stream.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            bytes.clear();
        }
        Ok(())
    };
    let inward = async {
        let mut bytes = BytesMut::with_capacity(1 << 16);
        loop {
            while let Some(bytes) = take(&mut bytes).map_err(io::Error::other)? {
                if events.send(Event::Datagram { link: STREAM, bytes }).await.is_err() {
                    return Ok(());
                }
            }
            let read = reader.read_buf(&mut bytes).await?;
            if read == 0 {
                return Ok(());
            }
            carried.from_stream.fetch_add(read as u64, Ordering::Relaxed);
        }
    };
    let _ = events.send(Event::Up { link: STREAM, carrier, far }).await;
    tokio::select! {
        done = outward => done,
        done = inward => done,
    }
}
