//! What tells a server who the client is: the PROXY protocol, as HAProxy's `proxy-protocol.txt` has it
//! (versions 1 and 2).

use std::net::{IpAddr, SocketAddr};

/// A version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyProtocol {
    /// A line of text (section 2.1).
    V1,
    /// Binary (section 2.2).
    V2,
}

/// The signature with which version 2 begins.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

impl ProxyProtocol {
    /// What a server gets before the client's first byte.
    pub fn header(self, client: SocketAddr, local: SocketAddr) -> Vec<u8> {
        match self {
            ProxyProtocol::V1 => {
                let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
                let (from, to) = (client.ip(), local.ip());
                format!("PROXY {family} {from} {to} {} {}\r\n", client.port(), local.port()).into_bytes()
            }
            ProxyProtocol::V2 => {
                let mut header = SIGNATURE.to_vec();
                // Version 2, PROXY; then the family with STREAM.
                header.extend([0x21, if client.is_ipv4() { 0x11 } else { 0x21 }]);
                let mut addresses = Vec::new();
                for address in [client.ip(), local.ip()] {
                    match address {
                        IpAddr::V4(v4) => addresses.extend(v4.octets()),
                        IpAddr::V6(v6) => addresses.extend(v6.octets()),
                    }
                }
                addresses.extend(client.port().to_be_bytes());
                addresses.extend(local.port().to_be_bytes());
                header.extend((addresses.len() as u16).to_be_bytes());
                header.extend(addresses);
                header
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ProxyProtocol;

    #[test]
    fn headers_are_as_the_specification_has_them() {
        let (client, local) = ("192.0.2.7:50000".parse().unwrap(), "198.51.100.1:443".parse().unwrap());
        let text = ProxyProtocol::V1.header(client, local);
        assert_eq!(text, b"PROXY TCP4 192.0.2.7 198.51.100.1 50000 443\r\n");
        let binary = ProxyProtocol::V2.header(client, local);
        let expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xc6\x33\x64\x01\xc3\x50\x01\xbb";
        assert_eq!(binary, expected);
        let (client, local) = ("[2001:db8::7]:1".parse().unwrap(), "[2001:db8::1]:2".parse().unwrap());
        let text = ProxyProtocol::V1.header(client, local);
        assert_eq!(text, b"PROXY TCP6 2001:db8::7 2001:db8::1 1 2\r\n");
        let binary = ProxyProtocol::V2.header(client, local);
        assert_eq!((binary.len(), binary[13], &binary[48..]), (52, 0x21, &[0, 1, 0, 2][..]));
    }
}
