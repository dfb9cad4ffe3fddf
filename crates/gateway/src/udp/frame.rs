//! A datagram on a stream: the length of what follows, then the far end's port and address, then the data.
//!
//! | bytes | what |
//! |---|---|
//! | 2 | length of what follows: 18 to 65525 |
//! | 2 | port |
//! | 16 | address; an IPv4 address as an IPv4-mapped IPv6 address |
//! | the rest | data |
//!
//! Numbers are in network byte order. Port and address are as in RFC 8803's Connect TLV.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Most bytes of data: what an IPv4 packet has room for.
pub const MOST_DATA: usize = 65_507;
/// Bytes of port and address.
const ADDRESS: usize = 18;

/// A frame that can't be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a frame of {0} bytes; expected {ADDRESS} to {most}", most = ADDRESS + MOST_DATA)]
pub struct FrameError(usize);

/// A frame's bytes; `None` if the data is too much.
pub fn encode(peer: SocketAddr, data: &[u8]) -> Option<Vec<u8>> {
    let len = u16::try_from(ADDRESS + data.len()).ok().filter(|_| data.len() <= MOST_DATA)?;
    let mut bytes = Vec::with_capacity(2 + usize::from(len));
    bytes.extend(len.to_be_bytes());
    bytes.extend(peer.port().to_be_bytes());
    let v6 = match peer.ip() {
        IpAddr::V4(v4) => Ipv4Addr::to_ipv6_mapped(&v4),
        IpAddr::V6(v6) => v6,
    };
    bytes.extend(v6.octets());
    bytes.extend(data);
    Some(bytes)
}

/// Takes the first frame from `data`; `None` if more is needed.
///
/// # Errors
/// If its length can't be.
pub fn decode(data: &mut BytesMut) -> Result<Option<(SocketAddr, Bytes)>, FrameError> {
    let Some(len) = data.first_chunk::<2>() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes(*len));
    if !(ADDRESS..=ADDRESS + MOST_DATA).contains(&len) {
        return Err(FrameError(len));
    }
    if data.len() < 2 + len {
        return Ok(None);
    }
    let mut frame = data.split_to(2 + len).freeze();
    frame.advance(2);
    let port = frame.get_u16();
    let address = IpAddr::from(frame.get_u128().to_be_bytes()).to_canonical();
    Ok(Some((SocketAddr::new(address, port), frame)))
}

/// Reads frames.
#[derive(Debug)]
pub struct Frames<R> {
    reader: R,
    data: BytesMut,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    /// From a stream's reading side.
    pub fn new(reader: R) -> Frames<R> {
        Frames { reader, data: BytesMut::new() }
    }

    /// The next datagram; `None` at the end of the stream. Cancelling it loses nothing.
    ///
    /// # Errors
    /// If the stream is lost or ends within a frame, or a frame can't be.
    pub async fn next(&mut self) -> io::Result<Option<(SocketAddr, Bytes)>> {
        loop {
            let frame = decode(&mut self.data);
            if let Some(frame) = frame.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                return Ok(Some(frame));
            }
            self.data.reserve(4096);
            if self.reader.read_buf(&mut self.data).await? == 0 {
                return match self.data.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_is_as_the_table_has_it() {
        let bytes = encode("192.0.2.1:53".parse().unwrap(), b"hi").unwrap();
        let expected = [&[0, 20, 0, 53][..], &[0; 10], &[0xff, 0xff, 192, 0, 2, 1], b"hi"].concat();
        assert_eq!(bytes, expected);
        let peer = "[2001:db8::1]:443".parse().unwrap();
        assert_eq!(encode(peer, &[0; MOST_DATA]).unwrap().len(), 2 + 18 + MOST_DATA);
        assert_eq!(encode(peer, &[0; MOST_DATA + 1]), None);
        for len in [0u16, 17, 65_526, 65_535] {
            let mut data = BytesMut::from(&len.to_be_bytes()[..]);
            assert_eq!(decode(&mut data), Err(FrameError(len.into())));
        }
    }

    proptest! {
        #[test]
        fn frames_survive_a_stream(
            sent in proptest::collection::vec(
                (any::<IpAddr>(), any::<u16>(), proptest::collection::vec(any::<u8>(), 0..300)), 0..8,
            ),
            piece in 1..64usize,
        ) {
            let sent: Vec<_> = sent
                .into_iter()
                .map(|(ip, port, data)| (SocketAddr::new(ip.to_canonical(), port), Bytes::from(data)))
                .collect();
            let stream: Vec<u8> = sent.iter().flat_map(|(peer, data)| encode(*peer, data).unwrap()).collect();
            let (mut buffer, mut received) = (BytesMut::new(), Vec::new());
            for piece in stream.chunks(piece) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = decode(&mut buffer).unwrap() {
                    received.push(frame);
                }
            }
            prop_assert!(buffer.is_empty());
            prop_assert_eq!(received, sent);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut data = BytesMut::from(&data[..]);
            while let Ok(Some(_)) = decode(&mut data) {}
        }
    }
}
