//! Convert messages (RFC 8803, section 6): a fixed header of four bytes, then TLVs. Lengths are in words of
//! 32 bits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The version of the protocol (section 6.1).
pub const VERSION: u8 = 1;
/// What the header has after version and length (section 6.1): 8803.
pub const MAGIC: u16 = 0x2263;
/// Bytes of the fixed header, and the unit of lengths.
pub const WORD: usize = 4;
/// Most bytes of a message.
pub const LARGEST: usize = 255 * WORD;
/// The type of the TLV with which a Ropewalk proxy asks for datagrams instead of a connection: of the range
/// for private use.
pub const DATAGRAMS: u8 = 192;
/// The same for a tunnel's datagrams, whole packets of IP inside.
pub const TUNNEL: u8 = 193;

/// A TCP option that a client wants in the SYN to the server (section 6.2.5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpOption {
    /// Its kind.
    pub kind: u8,
    /// Its value; empty: the converter makes one.
    pub value: Vec<u8>,
}

/// A TLV (section 6.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tlv {
    /// Asks which TCP options the converter supports.
    Info,
    /// Asks for a connection.
    Connect {
        /// The server.
        peer: SocketAddr,
        /// Options for its SYN; `None` in a Base Connect TLV.
        options: Option<Vec<TcpOption>>,
    },
    /// The options of the server's SYN/ACK.
    ExtendedHeader(Vec<u8>),
    /// The kinds of options that the converter supports.
    SupportedExtensions(Vec<u8>),
    /// What shows that the client may use the converter. A multiple of four bytes.
    Cookie(Vec<u8>),
    /// Why a request isn't met.
    Error {
        /// One of [`code`]'s.
        code: u8,
        /// What belongs to it.
        value: Vec<u8>,
    },
    /// Asks for datagrams ([`DATAGRAMS`]).
    Datagrams,
    /// Asks for a tunnel ([`TUNNEL`]).
    Tunnel,
}

/// Error codes (section 6.2.8).
pub mod code {
    /// The version isn't supported.
    pub const UNSUPPORTED_VERSION: u8 = 0;
    /// The message can't be understood.
    pub const MALFORMED_MESSAGE: u8 = 1;
    /// A TLV isn't known, or not expected.
    pub const UNSUPPORTED_MESSAGE: u8 = 2;
    /// A cookie against forged addresses is needed; it follows.
    pub const MISSING_COOKIE: u8 = 3;
    /// The client may not do this.
    pub const NOT_AUTHORIZED: u8 = 32;
    /// A TCP option isn't supported.
    pub const UNSUPPORTED_TCP_OPTION: u8 = 33;
    /// The converter has too much to do.
    pub const RESOURCE_EXCEEDED: u8 = 64;
    /// The converter's network has failed.
    pub const NETWORK_FAILURE: u8 = 65;
    /// The server has reset the connection.
    pub const CONNECTION_RESET: u8 = 96;
    /// The server can't be reached.
    pub const DESTINATION_UNREACHABLE: u8 = 97;

    /// A code in words.
    pub fn name(code: u8) -> &'static str {
        match code {
            UNSUPPORTED_VERSION => "unsupported version",
            MALFORMED_MESSAGE => "malformed message",
            UNSUPPORTED_MESSAGE => "unsupported message",
            MISSING_COOKIE => "missing cookie",
            NOT_AUTHORIZED => "not authorized",
            UNSUPPORTED_TCP_OPTION => "unsupported TCP option",
            RESOURCE_EXCEEDED => "resources exceeded",
            NETWORK_FAILURE => "network failure",
            CONNECTION_RESET => "the server reset the connection",
            DESTINATION_UNREACHABLE => "the server can't be reached",
            _ => "an error of an unknown code",
        }
    }
}

/// What is wrong with bytes that should be a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// A version other than 1.
    #[error("version {0} of the Convert Protocol; expected {VERSION}")]
    Version(u8),
    /// Not a Convert message at all.
    #[error("the message begins with {0:#06x} after its length; expected {MAGIC:#06x}")]
    Magic(u16),
    /// A length that can't be.
    #[error("a TLV's length doesn't fit the message")]
    Length,
    /// A TLV twice.
    #[error("two TLVs of type {0}")]
    Repeated(u8),
    /// An address that no connection can be opened to.
    #[error("{0} can't be connected to: loopback, multicast, broadcast or port 0")]
    Address(SocketAddr),
    /// TCP options that don't end where they should.
    #[error("the TCP options of a Connect TLV are cut off")]
    Options,
    /// A TLV of an unknown type.
    #[error("a TLV of the unknown type {0}")]
    Unknown(u8),
}

impl ParseError {
    /// The error message for who sent it. `received`: what was received, to echo.
    pub fn answer(self, received: &[u8]) -> Message {
        //= RFC 8803 6.2.8-b the version that is supported
        //= RFC 8803 6.2.8-c the echo is shifted by one byte: the value begins in the last byte of its word
        let (code, value) = match self {
            ParseError::Version(_) => (code::UNSUPPORTED_VERSION, vec![VERSION]),
            ParseError::Unknown(_) => (code::UNSUPPORTED_MESSAGE, echo(received)),
            _ => (code::MALFORMED_MESSAGE, echo(received)),
        };
        Message::error(code, value)
    }
}

/// As much of a message as fits an Error TLV's value, which begins one byte before a word.
fn echo(received: &[u8]) -> Vec<u8> {
    let most = LARGEST - 2 * WORD;
    let mut value = vec![0];
    value.extend_from_slice(&received[..received.len().min(most)]);
    value
}

/// Whether a connection to it can be asked for (section 6.2.5): no multicast, broadcast or loopback address.
//= RFC 8803 6.2.5-b
pub fn is_connectable(peer: SocketAddr) -> bool {
    let is_broadcast = matches!(peer.ip(), IpAddr::V4(v4) if v4.is_broadcast());
    let ip = peer.ip();
    peer.port() != 0 && !ip.is_multicast() && !ip.is_loopback() && !ip.is_unspecified() && !is_broadcast
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// Its TLVs.
    pub tlvs: Vec<Tlv>,
}

impl Message {
    /// A message with an Error TLV.
    pub fn error(code: u8, value: Vec<u8>) -> Message {
        Message { tlvs: vec![Tlv::Error { code, value }] }
    }

    /// Its bytes. TLVs that don't fit 1020 bytes are left out.
    pub fn encode(&self) -> Vec<u8> {
        //= RFC 8803 6.1-b
        let mut bytes = vec![VERSION, 0];
        bytes.extend(MAGIC.to_be_bytes());
        for tlv in &self.tlvs {
            let one = tlv.encode();
            if bytes.len() + one.len() <= LARGEST {
                bytes.extend(one);
            }
        }
        bytes[1] = (bytes.len() / WORD) as u8;
        bytes
    }

    /// The length of the message that begins with these four bytes.
    ///
    /// # Errors
    /// If it is no message of this version.
    pub fn len_of(header: [u8; WORD]) -> Result<usize, ParseError> {
        let magic = u16::from_be_bytes([header[2], header[3]]);
        if magic != MAGIC {
            return Err(ParseError::Magic(magic));
        }
        //= RFC 8803 6.2.8-b
        if header[0] != VERSION {
            return Err(ParseError::Version(header[0]));
        }
        //= RFC 8803 6.1-c a length of zero is invalid
        if header[1] == 0 {
            return Err(ParseError::Length);
        }
        Ok(usize::from(header[1]) * WORD)
    }

    /// Parses the message that `data` begins with, and returns its length too; `None` if more is needed.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(data: &[u8]) -> Result<Option<(Message, usize)>, ParseError> {
        let Some(header) = data.first_chunk::<WORD>() else { return Ok(None) };
        let len = Message::len_of(*header)?;
        let Some(mut rest) = data.get(WORD..len) else { return Ok(None) };
        let mut message = Message::default();
        let mut seen = Vec::new();
        while let [kind, words, ..] = *rest {
            let len = usize::from(words) * WORD;
            let Some(tlv) = rest.get(..len).filter(|tlv| !tlv.is_empty()) else {
                return Err(ParseError::Length);
            };
            //= RFC 8803 6.2.1-b
            if seen.contains(&kind) {
                return Err(ParseError::Repeated(kind));
            }
            seen.push(kind);
            message.tlvs.push(Tlv::parse(kind, &tlv[2..])?);
            rest = &rest[len..];
        }
        Ok(Some((message, len)))
    }
}

impl Tlv {
    fn kind(&self) -> u8 {
        match self {
            Tlv::Info => 1,
            Tlv::Connect { .. } => 10,
            Tlv::ExtendedHeader(_) => 20,
            Tlv::SupportedExtensions(_) => 21,
            Tlv::Cookie(_) => 22,
            Tlv::Error { .. } => 30,
            Tlv::Datagrams => DATAGRAMS,
            Tlv::Tunnel => TUNNEL,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind(), 0];
        match self {
            Tlv::Info | Tlv::Datagrams | Tlv::Tunnel => bytes.extend([0, 0]),
            Tlv::Connect { peer, options } => {
                bytes.extend(peer.port().to_be_bytes());
                bytes.extend(as_v6(peer.ip()).octets());
                for option in options.iter().flatten() {
                    bytes.extend([option.kind, option.value.len() as u8 + 2]);
                    bytes.extend(&option.value);
                }
                // No option at all is an Extended Connect TLV all the same: with padding alone.
                if options.as_ref().is_some_and(Vec::is_empty) {
                    bytes.extend([0; WORD]);
                }
            }
            //= RFC 8803 6.2.6-b
            Tlv::ExtendedHeader(data) | Tlv::SupportedExtensions(data) | Tlv::Cookie(data) => {
                bytes.extend([0, 0]);
                bytes.extend(data);
            }
            Tlv::Error { code, value } => {
                bytes.push(*code);
                bytes.extend(value);
            }
        }
        //= RFC 8803 6.2.1-a padded with zeros
        bytes.resize(bytes.len().next_multiple_of(WORD), 0);
        bytes[1] = (bytes.len() / WORD) as u8;
        bytes
    }

    /// `body`: at least the two bytes after the length.
    fn parse(kind: u8, body: &[u8]) -> Result<Tlv, ParseError> {
        let (head, data) = body.split_at(2);
        let is_one_word = data.is_empty();
        match kind {
            1 if is_one_word => Ok(Tlv::Info),
            DATAGRAMS if is_one_word => Ok(Tlv::Datagrams),
            TUNNEL if is_one_word => Ok(Tlv::Tunnel),
            1 | DATAGRAMS | TUNNEL => Err(ParseError::Length),
            10 => {
                let address = data.first_chunk::<16>().ok_or(ParseError::Length)?;
                let port = u16::from_be_bytes([head[0], head[1]]);
                let peer = SocketAddr::new(IpAddr::from(*address).to_canonical(), port);
                if !is_connectable(peer) {
                    return Err(ParseError::Address(peer));
                }
                let options = &data[16..];
                let options = (!options.is_empty()).then(|| tcp_options(options)).transpose()?;
                Ok(Tlv::Connect { peer, options })
            }
            20 => Ok(Tlv::ExtendedHeader(data.to_vec())),
            21 => {
                let len = data.iter().rposition(|kind| *kind != 0).map_or(0, |last| last + 1);
                Ok(Tlv::SupportedExtensions(data[..len].to_vec()))
            }
            22 => Ok(Tlv::Cookie(data.to_vec())),
            30 => Ok(Tlv::Error { code: head[0], value: body[1..].to_vec() }),
            //= RFC 8803 6.2.2-a type 0 is reserved
            _ => Err(ParseError::Unknown(kind)),
        }
    }
}

//= RFC 8803 6.2.5-a
fn as_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => Ipv4Addr::to_ipv6_mapped(&v4),
        IpAddr::V6(v6) => v6,
    }
}

/// The options of a Connect TLV, without the padding.
fn tcp_options(mut data: &[u8]) -> Result<Vec<TcpOption>, ParseError> {
    let mut options = Vec::new();
    while let [kind, ..] = *data {
        // End of the list and no-operation have no length. They may not be here, and are ignored if they are.
        if kind < 2 {
            data = &data[1..];
            continue;
        }
        let len = data.get(1).map_or(0, |len| usize::from(*len));
        let value = data.get(2..len.max(2)).filter(|_| len >= 2).ok_or(ParseError::Options)?;
        options.push(TcpOption { kind, value: value.to_vec() });
        data = &data[len..];
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(bytes: &[u8]) -> Message {
        let (message, len) = Message::parse(bytes).unwrap().unwrap();
        assert_eq!(len, bytes.len());
        message
    }

    /// The figures of sections 6.1 and 6.2, with values.
    //= test RFC 8803 6.1-a 6.1-b 6.2.1-a 6.2.5-a 6.2.6-b 6.2.4-a
    #[test]
    fn messages_are_as_the_figures_have_them() {
        let connect_v4 = [
            &[1, 6, 0x22, 0x63][..], // Figure 10: version, 6 words, magic number
            &[10, 5, 0x01, 0xbb],    // Figure 14: Connect, 5 words, port 443
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1], // IPv4-mapped
        ]
        .concat();
        let peer = "192.0.2.1:443".parse().unwrap();
        let message = Message { tlvs: vec![Tlv::Connect { peer, options: None }] };
        assert_eq!((message.encode(), parsed(&connect_v4)), (connect_v4, message));

        let v6 = "2001:db8::7".parse::<Ipv6Addr>().unwrap();
        let extended = [
            &[1, 10, 0x22, 0x63, 10, 6, 0, 80][..],
            &v6.octets(),
            &[30, 2, 34, 2], // Multipath TCP and Fast Open, both without a value: a multiple of 4
            &[22, 3, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], // Cookie
        ]
        .concat();
        let option = |kind| TcpOption { kind, value: Vec::new() };
        let connect = Tlv::Connect {
            peer: SocketAddr::new(v6.into(), 80),
            options: Some(vec![option(30), option(34)]),
        };
        let message = Message { tlvs: vec![connect, Tlv::Cookie((1..=8).collect())] };
        assert_eq!((message.encode(), parsed(&extended)), (extended, message));

        let answers: [(&[u8], Vec<Tlv>); 7] = [
            (&[1, 1, 0x22, 0x63], vec![]),
            (&[1, 2, 0x22, 0x63, 1, 1, 0, 0], vec![Tlv::Info]),
            (&[1, 3, 0x22, 0x63, 21, 2, 0, 0, 30, 0, 0, 0], vec![Tlv::SupportedExtensions(vec![30])]),
            (&[1, 3, 0x22, 0x63, 20, 2, 0, 0, 4, 2, 1, 1], vec![Tlv::ExtendedHeader(vec![4, 2, 1, 1])]),
            (&[1, 2, 0x22, 0x63, 30, 1, 96, 0], vec![Tlv::Error { code: 96, value: vec![0] }]),
            (&[1, 2, 0x22, 0x63, 192, 1, 0, 0], vec![Tlv::Datagrams]),
            (&[1, 2, 0x22, 0x63, 193, 1, 0, 0], vec![Tlv::Tunnel]),
        ];
        for (bytes, tlvs) in answers {
            let message = Message { tlvs };
            assert_eq!((parsed(bytes), message.encode()), (message, bytes.to_vec()));
        }
        // What the sender should have set to zero is ignored.
        assert_eq!(parsed(&[1, 2, 0x22, 0x63, 20, 1, 7, 7]).tlvs, [Tlv::ExtendedHeader(vec![])]);
    }

    //= test RFC 8803 6.1-c 6.2.1-b 6.2.2-a 6.2.5-b 6.2.8-b 6.2.8-c
    #[test]
    fn what_is_no_message_is_refused() {
        let connect = |ip: &str, port: u16| {
            let peer = SocketAddr::new(ip.parse().unwrap(), port);
            Message { tlvs: vec![Tlv::Connect { peer, options: None }] }.encode()
        };
        let invalid = |ip, port| {
            let found = Message::parse(&connect(ip, port));
            assert!(matches!(found, Err(ParseError::Address(_))), "{ip} {port}: {found:?}");
        };
        for ip in ["127.0.0.1", "::1", "224.0.0.1", "ff02::1", "255.255.255.255", "0.0.0.0", "::"] {
            invalid(ip, 80);
        }
        invalid("192.0.2.1", 0);
        let rows: [(&[u8], ParseError, u8); 10] = [
            (&[2, 1, 0x22, 0x63], ParseError::Version(2), 0),
            (b"GET / HTTP/1.1", ParseError::Magic(0x5420), 1),
            (&[1, 0, 0x22, 0x63], ParseError::Length, 1),
            (&[1, 2, 0x22, 0x63, 1, 0, 0, 0], ParseError::Length, 1),
            (&[1, 2, 0x22, 0x63, 1, 2, 0, 0], ParseError::Length, 1),
            (&[1, 2, 0x22, 0x63, 10, 1, 0, 80], ParseError::Length, 1),
            (&[1, 3, 0x22, 0x63, 1, 2, 0, 0, 0, 0, 0, 0], ParseError::Length, 1),
            (&[1, 3, 0x22, 0x63, 1, 1, 0, 0, 1, 1, 0, 0], ParseError::Repeated(1), 1),
            (&[1, 2, 0x22, 0x63, 0, 1, 0, 0], ParseError::Unknown(0), 2),
            (&[1, 2, 0x22, 0x63, 42, 1, 0, 0], ParseError::Unknown(42), 2),
        ];
        for (bytes, expected, code) in rows {
            assert_eq!(Message::parse(bytes), Err(expected), "{bytes:?}");
            let Message { tlvs } = expected.answer(bytes);
            let [Tlv::Error { code: found, value }] = &tlvs[..] else { panic!("{tlvs:?}") };
            assert_eq!(*found, code);
            match code {
                0 => assert_eq!(value, &[VERSION]),
                _ => assert_eq!((value[0], &value[1..]), (0, bytes)),
            }
        }
        let cut = [&connect("192.0.2.1", 80)[..], &[30, 9, 0, 0]].concat();
        let cut = [&[1, 7, 0x22, 0x63, 10, 6][..], &cut[6..]].concat();
        assert_eq!(Message::parse(&cut), Err(ParseError::Options));
        // The largest message is echoed as far as there is room.
        let large = ParseError::Length.answer(&[7; LARGEST]).encode();
        assert_eq!((large.len(), large[1]), (LARGEST, 255));
    }

    fn tlv() -> impl Strategy<Value = Tlv> {
        let words = || proptest::collection::vec(any::<[u8; 4]>(), 0..8).prop_map(|words| words.concat());
        let option = (2..=255u8, proptest::collection::vec(any::<u8>(), 0..6))
            .prop_map(|(kind, value)| TcpOption { kind, value });
        let options = proptest::option::of(proptest::collection::vec(option, 1..4));
        let peer = (any::<IpAddr>(), 1..=u16::MAX)
            .prop_map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port))
            .prop_filter("an address to connect to", |peer| is_connectable(*peer));
        prop_oneof![
            Just(Tlv::Info),
            Just(Tlv::Datagrams),
            Just(Tlv::Tunnel),
            (peer, options).prop_map(|(peer, options)| Tlv::Connect { peer, options }),
            words().prop_map(Tlv::ExtendedHeader),
            proptest::collection::vec(1..=255u8, 0..9).prop_map(Tlv::SupportedExtensions),
            words().prop_map(Tlv::Cookie),
            (any::<u8>(), any::<u8>(), words())
                .prop_map(|(code, first, rest)| Tlv::Error { code, value: [vec![first], rest].concat() }),
        ]
    }

    proptest! {
        #[test]
        fn messages_survive_a_round_trip(tlv in tlv(), cut in 0..1024usize) {
            let message = Message { tlvs: vec![tlv] };
            let bytes = message.encode();
            let whole = Message::parse(&bytes);
            prop_assert_eq!(whole, Ok(Some((message, bytes.len()))));
            // Of a part nothing is said.
            let part = &bytes[..cut.min(bytes.len() - 1)];
            prop_assert_eq!(Message::parse(part), Ok(None));
        }

        #[test]
        fn any_bytes_are_parsed_without_a_panic(data in proptest::collection::vec(any::<u8>(), 0..1100)) {
            let mut data = data;
            if let [version, _, magic @ ..] = &mut data[..] && magic.len() > 2 {
                *version = VERSION;
                magic[..2].copy_from_slice(&MAGIC.to_be_bytes());
            }
            if let Ok(Some((message, _))) = Message::parse(&data) {
                let again = message.encode();
                prop_assert_eq!(Message::parse(&again), Ok(Some((message, again.len()))));
            }
        }
    }
}
