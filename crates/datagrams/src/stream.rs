//! A tunnel's datagrams in a stream, each behind its length of two bytes in network byte order.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The largest datagram, bytes.
pub const LARGEST: usize = 1500;

/// A length that no datagram has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a datagram of {0} bytes; expected 1 to {LARGEST}")]
pub struct LengthError(pub usize);

/// Writes a datagram, of at most [`LARGEST`] bytes.
pub fn put(bytes: &mut BytesMut, datagram: &[u8]) {
    bytes.put_u16(datagram.len() as u16);
    bytes.put_slice(datagram);
}

/// Takes the first datagram; `None` if more is needed.
///
/// # Errors
/// If its length is 0 or too large: where the next one begins isn't known then.
pub fn take(bytes: &mut BytesMut) -> Result<Option<Bytes>, LengthError> {
    let Some(len) = bytes.first_chunk::<2>() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes(*len));
    if !(1..=LARGEST).contains(&len) {
        return Err(LengthError(len));
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
                let is_bounded = bytes.capacity() <= 4 * (3000 + 2 + LARGEST);
                prop_assert!(is_wrong || is_bounded, "{}", bytes.capacity());
                if rest.is_empty() || is_wrong {
                    break;
                }
            }
            prop_assert!(got.iter().map(|one| one.len() + 2).sum::<usize>() <= all.len());
            prop_assert_eq!((got, is_wrong), (at_once, end));
        }
    }
}
