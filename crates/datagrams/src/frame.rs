//! What a carrier's datagram holds.
//!
//! | bytes | of | what |
//! |---|---|---|
//! | 1 | all | bits 0-1: kind (0 data, 1 feedback, 2 probe, 3 parity); of data, bit 2: ordered, bits 3-4: parts less one, bits 5-6: which part, bit 7: a rule holds |
//! | 4 | data, probe, parity | number on this link |
//! | 4 | data, probe, parity | when it was sent, microseconds |
//! | 4 | data | the packet's number: those that arrive twice are dropped |
//! | 1 | data, of a rule | its lane, from 1 on |
//! | 2, 4 | data, ordered | its flow, and its number in the flow |
//! | the rest | data | the packet, or a part of it |
//! | 4, 1, 2, the rest | parity | see [`Parity`] |
//! | 6 x 4, 32 | feedback | see [`Feedback`] |
//!
//! Numbers are in network byte order, and wrap.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Most bytes before a packet's.
pub const MOST_OVERHEAD: usize = 20;
/// Most lanes: where no rule holds, and for rules.
pub const MOST_LANES: usize = 16;
/// Most parts of a packet.
pub const MOST_PARTS: u8 = 4;
/// Numbers that a feedback tells of, the highest included.
pub const TOLD: u32 = 256;

/// Bytes that are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// It ends too early.
    #[error("a frame of {0} bytes is too short")]
    Short(usize),
    /// No such kind, or bits that have to be zero.
    #[error("a frame that begins with {0:#04x}")]
    Kind(u8),
    /// A part that the packet hasn't.
    #[error("part {part} of {parts}")]
    Part {
        /// Its number from 0 on.
        part: u8,
        /// How many there are.
        parts: u8,
    },
    /// A lane that can't be.
    #[error("lane {0}")]
    Lane(u8),
    /// A feedback that is longer.
    #[error("{0} bytes behind a frame")]
    Trailing(usize),
}

/// Where a packet is in a flow that is kept in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The flow.
    pub flow: u16,
    /// Its number there.
    pub number: u32,
}

/// Of several parts of a packet, which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// From 0 on.
    pub index: u8,
    /// How many there are.
    pub count: u8,
}

impl Part {
    /// A packet in one piece.
    pub const WHOLE: Part = Part { index: 0, count: 1 };
}

/// A packet, or a part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Data {
    /// Its number on the link.
    pub link_number: u32,
    /// When it was sent, microseconds of the sender's clock.
    pub sent: u32,
    /// The packet's number.
    pub number: u32,
    /// Which part.
    pub part: Part,
    /// Its lane; 0: no rule holds.
    pub lane: u8,
    /// Where it is in its flow.
    pub place: Option<Place>,
    /// Its bytes.
    pub payload: Bytes,
}

/// What has arrived on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feedback {
    /// The highest number that arrived.
    pub highest: u32,
    /// When the last one that arrived was sent, by the sender's clock.
    pub echo: u32,
    /// When it arrived, by the receiver's clock.
    pub arrived: u32,
    /// When this was sent, by the receiver's clock.
    pub now: u32,
    /// Bytes that have arrived on the link altogether.
    pub bytes: u32,
    /// The least difference of `arrived` and the time of sending since the last feedback.
    pub least_delay: u32,
    /// Bit i of these: `highest - i` has arrived.
    pub bits: [u8; TOLD as usize / 8],
}

impl Feedback {
    /// Whether the number `back` before the highest has arrived; `None`: it is too old to be told of.
    pub fn has(&self, back: u32) -> Option<bool> {
        let byte = self.bits.get(usize::try_from(back / 8).ok()?)?;
        Some(byte & (1 << (back % 8)) != 0)
    }
}

/// What makes up for one lost datagram of several: the exclusive or of their bodies, which are their bytes
/// without the number on the link and the time, and of the bodies' lengths. A probe's body is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parity {
    /// Its number on the link.
    pub link_number: u32,
    /// When it was sent.
    pub sent: u32,
    /// The number of the first.
    pub base: u32,
    /// How many they are.
    pub count: u8,
    /// Of the lengths.
    pub len: u16,
    /// Of the bodies, each filled up with zeros.
    pub body: Bytes,
}

/// Bytes before a data frame's body, but for the first.
const BEFORE_BODY: usize = 9;

/// Adds an encoded data frame to the exclusive or of bodies; returns its body's length.
pub(crate) fn add_body(sum: &mut Vec<u8>, frame: &[u8]) -> u16 {
    let Some((first, rest)) = frame.split_first() else { return 0 };
    let rest = rest.get(BEFORE_BODY - 1..).unwrap_or_default();
    let len = 1 + rest.len();
    sum.resize(sum.len().max(len), 0);
    for (sum, byte) in sum.iter_mut().zip(std::iter::once(first).chain(rest)) {
        *sum ^= byte;
    }
    len as u16
}

/// The data frame that a body belongs to, with a number and a time that say nothing.
pub(crate) fn of_body(body: &[u8]) -> Option<Data> {
    let (first, rest) = body.split_first()?;
    let mut bytes = BytesMut::with_capacity(BEFORE_BODY + rest.len());
    bytes.put_u8(*first);
    bytes.put_bytes(0, BEFORE_BODY - 1);
    bytes.put_slice(rest);
    match Frame::decode(bytes.freeze()) {
        Ok(Frame::Data(data)) => Some(data),
        _ => None,
    }
}

/// What a carrier's datagram holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// What makes up for a lost datagram.
    Parity(Parity),
    /// A packet, or a part of it.
    Data(Data),
    /// What has arrived on this link.
    Feedback(Feedback),
    /// Asks for feedback.
    Probe {
        /// Its number on the link.
        link_number: u32,
        /// When it was sent.
        sent: u32,
    },
}

impl Frame {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let room = match self {
            Frame::Data(data) => MOST_OVERHEAD + data.payload.len(),
            Frame::Parity(parity) => MOST_OVERHEAD + parity.body.len(),
            Frame::Feedback(_) | Frame::Probe { .. } => 64,
        };
        let mut bytes = BytesMut::with_capacity(room);
        match self {
            Frame::Data(data) => {
                let Part { index, count } = data.part;
                let (is_ordered, has_rule) = (u8::from(data.place.is_some()), u8::from(data.lane != 0));
                bytes.put_u8(is_ordered << 2 | (count - 1) << 3 | index << 5 | has_rule << 7);
                bytes.put_u32(data.link_number);
                bytes.put_u32(data.sent);
                bytes.put_u32(data.number);
                if data.lane != 0 {
                    bytes.put_u8(data.lane);
                }
                if let Some(Place { flow, number }) = data.place {
                    bytes.put_u16(flow);
                    bytes.put_u32(number);
                }
                bytes.put_slice(&data.payload);
            }
            Frame::Feedback(feedback) => {
                bytes.put_u8(1);
                let Feedback { highest, echo, arrived, now, bytes: all, least_delay, bits } = *feedback;
                for word in [highest, echo, arrived, now, all, least_delay] {
                    bytes.put_u32(word);
                }
                bytes.put_slice(&bits);
            }
            Frame::Parity(parity) => {
                bytes.put_u8(3);
                bytes.put_u32(parity.link_number);
                bytes.put_u32(parity.sent);
                bytes.put_u32(parity.base);
                bytes.put_u8(parity.count);
                bytes.put_u16(parity.len);
                bytes.put_slice(&parity.body);
            }
            Frame::Probe { link_number, sent } => {
                bytes.put_u8(2);
                bytes.put_u32(*link_number);
                bytes.put_u32(*sent);
            }
        }
        bytes.freeze()
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// If it isn't one of the four kinds, or has the wrong length.
    pub fn decode(mut bytes: Bytes) -> Result<Frame, FrameError> {
        let len = bytes.len();
        let short = |_| FrameError::Short(len);
        let first = bytes.try_get_u8().map_err(short)?;
        match first & 3 {
            0 => {
                let part = Part { index: first >> 5 & 3, count: (first >> 3 & 3) + 1 };
                if part.index >= part.count {
                    return Err(FrameError::Part { part: part.index, parts: part.count });
                }
                let link_number = bytes.try_get_u32().map_err(short)?;
                let sent = bytes.try_get_u32().map_err(short)?;
                let number = bytes.try_get_u32().map_err(short)?;
                let lane = match first & 0x80 {
                    0 => 0,
                    _ => match bytes.try_get_u8().map_err(short)? {
                        lane if (1..MOST_LANES).contains(&lane.into()) => lane,
                        lane => return Err(FrameError::Lane(lane)),
                    },
                };
                let place = match first & 4 {
                    0 => None,
                    _ => Some(Place {
                        flow: bytes.try_get_u16().map_err(short)?,
                        number: bytes.try_get_u32().map_err(short)?,
                    }),
                };
                Ok(Frame::Data(Data { link_number, sent, number, part, lane, place, payload: bytes }))
            }
            1 if first == 1 => {
                let mut words = [0; 6];
                for word in &mut words {
                    *word = bytes.try_get_u32().map_err(short)?;
                }
                let [highest, echo, arrived, now, all, least_delay] = words;
                let mut bits = [0; TOLD as usize / 8];
                bytes.try_copy_to_slice(&mut bits).map_err(short)?;
                match bytes.len() {
                    0 => Ok(Frame::Feedback(Feedback {
                        highest,
                        echo,
                        arrived,
                        now,
                        bytes: all,
                        least_delay,
                        bits,
                    })),
                    more => Err(FrameError::Trailing(more)),
                }
            }
            2 if first == 2 => {
                let link_number = bytes.try_get_u32().map_err(short)?;
                let sent = bytes.try_get_u32().map_err(short)?;
                match bytes.len() {
                    0 => Ok(Frame::Probe { link_number, sent }),
                    more => Err(FrameError::Trailing(more)),
                }
            }
            3 if first == 3 => {
                let link_number = bytes.try_get_u32().map_err(short)?;
                let sent = bytes.try_get_u32().map_err(short)?;
                let base = bytes.try_get_u32().map_err(short)?;
                let count = bytes.try_get_u8().map_err(short)?;
                let len = bytes.try_get_u16().map_err(short)?;
                Ok(Frame::Parity(Parity { link_number, sent, base, count, len, body: bytes }))
            }
            _ => Err(FrameError::Kind(first)),
        }
    }
}

/// What the property test and the fuzz target of frames check: any bytes are read without a panic, and what
/// is read is what is written again.
pub fn check(bytes: &[u8]) {
    if let Ok(frame) = Frame::decode(Bytes::copy_from_slice(bytes)) {
        assert_eq!(frame.encode(), bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_as_the_table_has_them() {
        let data = Data {
            link_number: 1,
            sent: 2,
            number: 3,
            part: Part { index: 1, count: 2 },
            lane: 6,
            place: Some(Place { flow: 4, number: 5 }),
            payload: Bytes::from_static(b"hi"),
        };
        let expected = [&[0xac, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 6, 0, 4, 0, 0, 0, 5][..], b"hi"].concat();
        assert_eq!(Frame::Data(data).encode(), expected);
        assert_eq!(expected.len(), MOST_OVERHEAD + 2);
        let probe = Frame::Probe { link_number: 7, sent: 8 };
        assert_eq!(probe.encode(), [2, 0, 0, 0, 7, 0, 0, 0, 8][..]);
        for (wrong, error) in [
            (&[][..], FrameError::Short(0)),
            (&[7], FrameError::Kind(7)),
            (&[0x81], FrameError::Kind(0x81)),
            (&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], FrameError::Lane(0)),
            (&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16], FrameError::Lane(16)),
            (&[0x20; 13], FrameError::Part { part: 1, parts: 1 }),
            (&[0; 12], FrameError::Short(12)),
            (&[2, 0, 0, 0, 7, 0, 0, 0, 8, 0], FrameError::Trailing(1)),
        ] {
            assert_eq!(Frame::decode(Bytes::copy_from_slice(wrong)), Err(error), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..90)) {
            check(&bytes);
        }

        #[test]
        fn each_kind_survives_a_round_trip(
            kind in 0..4u8, bytes in proptest::collection::vec(any::<u8>(), 60..90)
        ) {
            let mut bytes = bytes;
            bytes[0] = kind;
            if kind == 1 { bytes.truncate(57) }
            if kind == 2 { bytes.truncate(9) }
            prop_assert_eq!(Frame::decode(Bytes::from(bytes.clone())).unwrap().encode(), bytes);
        }
    }
}
