//! A tunnel's datagrams in a stream, each behind its length of two bytes: what is left where UDP is blocked.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{Sender, channel};

use super::STREAM;
use super::drive::{Carrier, Event, LARGEST};

/// Datagrams that wait for the stream; beyond, they are lost. The tunnel's rate keeps them few.
const MOST_WAITING: usize = 256;
/// How many are written at once.
const BATCH: usize = 32;

/// Bytes that a stream has carried: one that carries none while something waits for it is reset some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count<'a> {
    pub written: &'a AtomicU64,
    pub read: &'a AtomicU64,
}

/// Carries both ways, until the stream ends.
///
/// # Errors
/// If it is lost, or has what is no datagram.
pub(crate) async fn carry<S>(stream: S, events: &Sender<Event>, count: Count<'_>) -> io::Result<()>
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
            count.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            bytes.clear();
        }
        Ok(())
    };
    let inward = async {
        let mut bytes = BytesMut::with_capacity(1 << 16);
        loop {
            while let Some(bytes) = take(&mut bytes)? {
                if events.send(Event::Datagram { link: STREAM, bytes }).await.is_err() {
                    return Ok(());
                }
            }
            let read = reader.read_buf(&mut bytes).await?;
            if read == 0 {
                return Ok(());
            }
            count.read.fetch_add(read as u64, Ordering::Relaxed);
        }
    };
    let _ = events.send(Event::Up { link: STREAM, carrier }).await;
    tokio::select! {
        done = outward => done,
        done = inward => done,
    }
}

fn put(bytes: &mut BytesMut, datagram: &[u8]) {
    bytes.put_u16(datagram.len() as u16);
    bytes.put_slice(datagram);
}

/// Takes the first datagram; `None` if more is needed.
fn take(bytes: &mut BytesMut) -> io::Result<Option<Bytes>> {
    let Some(len) = bytes.first_chunk::<2>() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes(*len));
    if !(1..=LARGEST).contains(&len) {
        let message = format!("a datagram of {len} bytes; expected 1 to {LARGEST}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    if bytes.len() < 2 + len {
        bytes.reserve(2 + len - bytes.len());
        return Ok(None);
    }
    // A copy: one that waits doesn't keep those beside it.
    let datagram = Bytes::copy_from_slice(&bytes[2..2 + len]);
    bytes.advance(2 + len);
    Ok(Some(datagram))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn datagrams_come_out_as_they_went_in_however_the_stream_is_cut() {
        let sent: Vec<Vec<u8>> = [1, 7, 300, LARGEST].map(|len| vec![len as u8; len]).into();
        let mut all = BytesMut::new();
        sent.iter().for_each(|one| put(&mut all, one));
        for piece in [1, 2, 3, 1000, 5000] {
            let (mut bytes, mut got) = (BytesMut::new(), Vec::new());
            for part in all.chunks(piece) {
                bytes.put_slice(part);
                while let Some(one) = take(&mut bytes).unwrap() {
                    got.push(one.to_vec());
                }
            }
            assert_eq!(got, sent, "pieces of {piece}");
        }
        for wrong in [&[0, 0][..], &[6, 0], &[0xff, 0xff, 1]] {
            assert!(take(&mut BytesMut::from(wrong)).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        /// No panic, the same however the stream is cut, no more than came, and never more memory than the
        /// largest datagram and what one read brings.
        #[test]
        fn any_bytes_are_taken_within_bounds(
            lengths in proptest::collection::vec(prop_oneof![1..=LARGEST, 0..=0xffff_usize], 0..20),
            pieces in proptest::collection::vec(1..3000_usize, 1..40),
        ) {
            let mut all = BytesMut::new();
            for len in lengths {
                all.put_u16(len as u16);
                all.put_bytes(len as u8, len.min(2 * LARGEST));
            }
            let (mut whole, mut at_once) = (all.clone(), Vec::new());
            let end = loop {
                match take(&mut whole) {
                    Ok(Some(one)) => at_once.push(one),
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            };
            let (mut bytes, mut got, mut is_wrong) = (BytesMut::new(), Vec::new(), false);
            let mut rest = &all[..];
            for piece in pieces.iter().cycle() {
                let (part, more) = rest.split_at((*piece).min(rest.len()));
                rest = more;
                bytes.put_slice(part);
                while !is_wrong {
                    match take(&mut bytes) {
                        Ok(Some(one)) => got.push(one),
                        Ok(None) => break,
                        Err(_) => is_wrong = true,
                    }
                }
                prop_assert!(is_wrong || bytes.len() < 2 + LARGEST, "{} bytes are kept", bytes.len());
                prop_assert!(is_wrong || bytes.capacity() <= 4 * (3000 + 2 + LARGEST), "{}", bytes.capacity());
                if rest.is_empty() || is_wrong {
                    break;
                }
            }
            prop_assert!(got.iter().map(|one| one.len() + 2).sum::<usize>() <= all.len());
            prop_assert_eq!((got, is_wrong), (at_once, end));
        }
    }
}
