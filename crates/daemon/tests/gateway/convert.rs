//! RFC 8803: clients that name their servers, on plain sockets of the kernel.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::time::Duration;

use ropewalk_gateway::convert::message::{Message, Tlv, code};
use ropewalk_host::kernel::{self, SocketConfig};

use super::stage::*;

const CONVERT: u16 = 5124;

impl Stage {
    /// A gateway for clients that name their servers, and the cookie.
    fn converter(&self, destinations: &[&str], more: &[&str]) -> (Gateway, Vec<u8>) {
        let file = self.folder.path().join("cookie");
        let path = file.to_str().unwrap();
        let made = ropewalk(&["keys", "cookie", path]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        let listen = format!("10.0.0.1:{CONVERT}");
        let mut line =
            vec!["gateway", "--listen", &listen, "--address", "10.0.1.1", "--cookie", path, "--log", "debug"];
        line.extend(destinations.iter().flat_map(|one| ["--convert", one]));
        line.extend(more);
        let gateway = self.start(&line);
        let cookie = ropewalk_gateway::convert::Cookie::load(&file).unwrap();
        (gateway, cookie.bytes().to_vec())
    }

    /// A socket of the client's kernel, connected to the gateway.
    fn ask(&self, message: &[u8], multipath: bool) -> socket2::Socket {
        let patience = Some(Duration::from_secs(10));
        let config = SocketConfig { connect_timeout: patience, multipath, ..SocketConfig::default() };
        let socket = kernel::connect(&self.client, None, ([10, 0, 0, 1], CONVERT).into(), &config).unwrap();
        socket.set_read_timeout(patience).unwrap();
        (&socket).write_all(message).unwrap();
        socket
    }

    /// The answer to a message: its TLVs.
    fn answer(&self, message: &[u8]) -> Vec<Tlv> {
        let mut socket = &self.ask(message, false);
        let mut header = [0; 4];
        socket.read_exact(&mut header).unwrap();
        let mut all = vec![0; Message::len_of(header).unwrap()];
        all[..4].copy_from_slice(&header);
        socket.read_exact(&mut all[4..]).unwrap();
        Message::parse(&all).unwrap().unwrap().0.tlvs
    }
}

fn connect(peer: &str, cookie: &[u8]) -> Vec<u8> {
    let peer: SocketAddr = peer.parse().unwrap();
    let tlvs = vec![Tlv::Connect { peer, options: None }, Tlv::Cookie(cookie.to_vec())];
    Message { tlvs }.encode()
}

//= test RFC 8803 6.1-a 6.2.5-c
#[test]
fn a_plain_socket_gets_a_connection_to_the_server_that_it_names() {
    let Some(stage) = Stage::new() else { return };
    // The server is on the client's side of the network: the gateway connects there.
    let server = stage.client.run(|| TcpListener::bind("10.0.1.2:8080")).unwrap();
    let (gateway, cookie) = stage.converter(&["10.0.1.0/24 8080"], &[]);
    let (question, answer) = (pattern(300_000), pattern(400_000));
    for multipath in [true, false] {
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                let (mut socket, _) = server.accept().unwrap();
                let mut received = Vec::new();
                socket.read_to_end(&mut received).unwrap();
                socket.write_all(&answer).unwrap();
                received
            });
            // Data follows the message at once, without waiting for the answer.
            let first = [&connect("10.0.1.2:8080", &cookie)[..], b"at once"].concat();
            let mut client = &stage.ask(&first, multipath);
            client.write_all(&question).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut received = Vec::new();
            client.read_to_end(&mut received).unwrap();
            assert!(serving.join().unwrap() == [&b"at once"[..], &question].concat());
            assert_eq!(&received[..4], [1, 1, 0x22, 0x63]);
            assert!(received[4..] == answer, "{} bytes", received.len());
        });
    }
    assert_eq!(gateway.end(), Some(0));
    assert_eq!(stage.traces(), "", "something is left");
}

//= test RFC 8803 9.2-a 7.5-a 6.2.4-b 6.2.5-d 6.2.6-a 6.2.7-a 6.2.7-b 6.2.7-c
//= test RFC 8803 6.2.8-e 6.2.8-f 6.2.8-i 6.2.8-j 7.1-a 7.2-a 7.3-a 7.7-a
#[test]
fn who_asks_for_what_is_not_allowed_is_told_so() {
    let Some(stage) = Stage::new() else { return };
    let (mut gateway, cookie) = stage.converter(&["10.0.0.0/16 8080", "10.9.0.0/16"], &[]);
    let error = |code: u8, value: u8| vec![Tlv::Error { code, value: vec![value] }];
    let not_authorized = error(code::NOT_AUTHORIZED, 0);
    let asked = |message: &[u8]| stage.answer(message);
    // No cookie, a wrong one.
    let peer = "10.0.1.2:8080".parse().unwrap();
    let bare = Message { tlvs: vec![Tlv::Connect { peer, options: None }] }.encode();
    assert_eq!(asked(&bare), not_authorized);
    assert_eq!(asked(&connect("10.0.1.2:8080", &[7; 32])), not_authorized);
    gateway.wait_for("a wrong cookie");
    // Without a cookie nobody learns what is in the list.
    assert_eq!(asked(&Message { tlvs: vec![Tlv::Info] }.encode()), not_authorized);
    // A port and a network that aren't listed; the gateway's own address.
    for peer in ["10.0.1.2:22", "10.7.0.1:8080", "10.0.0.1:8080", "[2001:db8::1]:8080"] {
        assert_eq!(asked(&connect(peer, &cookie)), not_authorized, "{peer}");
    }
    gateway.wait_for("isn't in the list");
    // Its own loopback: malformed, as the RFC has it.
    let found = asked(&connect("127.0.0.1:8080", &cookie));
    assert!(matches!(&found[..], [Tlv::Error { code: code::MALFORMED_MESSAGE, .. }]), "{found:?}");
    // Nobody listens; no route.
    assert_eq!(asked(&connect("10.0.1.2:8080", &cookie)), error(code::CONNECTION_RESET, 0));
    assert_eq!(asked(&connect("10.9.0.1:80", &cookie)), error(code::DESTINATION_UNREACHABLE, 0));
    // What is supported.
    let info = Message { tlvs: vec![Tlv::Info, Tlv::Cookie(cookie.clone())] }.encode();
    assert_eq!(asked(&info), [Tlv::SupportedExtensions(vec![30])]);
    // TCP options: some are ignored, some supported, some not.
    let server = stage.client.run(|| TcpListener::bind("10.0.1.2:8080")).unwrap();
    let with = |kinds: &[u8]| {
        use ropewalk_gateway::convert::message::TcpOption;
        let options = kinds.iter().map(|kind| TcpOption { kind: *kind, value: vec![] }).collect();
        let tlvs = vec![Tlv::Cookie(cookie.clone()), Tlv::Connect { peer, options: Some(options) }];
        Message { tlvs }.encode()
    };
    assert_eq!(asked(&with(&[2, 3, 5])), [Tlv::ExtendedHeader(vec![])]);
    assert_eq!(asked(&with(&[30, 2])), [Tlv::ExtendedHeader(vec![])]);
    drop(server);
    let unsupported = Tlv::Error { code: code::UNSUPPORTED_TCP_OPTION, value: vec![29, 34, 0, 0, 0] };
    assert_eq!(asked(&with(&[2, 29, 34])), [unsupported]);
    // No message at all.
    let found = asked(b"GET / HTTP/1.1\r\n\r\n");
    assert!(matches!(&found[..], [Tlv::Error { code: code::MALFORMED_MESSAGE, .. }]), "{found:?}");
    let found = asked(&[2, 1, 0x22, 0x63]);
    assert_eq!(found, error(code::UNSUPPORTED_VERSION, 1));
    assert_eq!(gateway.end(), Some(0));
}
