//! SOCKS5's UDP ASSOCIATE, through a gateway.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::far::Far;
use crate::stage::{PROXY, SERVER, Stage, wait_until};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

/// An association of a program in the van, or what the proxy answered instead.
pub struct Association {
    control: TcpStream,
    socket: UdpSocket,
}

impl Association {
    pub fn new(stage: &Stage) -> Result<Association, u8> {
        let mut control = stage.van.run(|| TcpStream::connect(PROXY)).unwrap();
        control.set_read_timeout(PATIENCE).unwrap();
        control.write_all(&[5, 1, 0]).unwrap();
        control.read_exact(&mut [0; 2]).unwrap();
        control.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        let mut answer = [0; 10];
        control.read_exact(&mut answer).unwrap();
        if answer[1] != 0 {
            return Err(answer[1]);
        }
        let port = u16::from_be_bytes([answer[8], answer[9]]);
        assert_eq!(answer[4..8], [127, 0, 0, 1]);
        let socket = stage.van.run(|| UdpSocket::bind("127.0.0.1:0")).unwrap();
        socket.connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(PATIENCE).unwrap();
        Ok(Association { control, socket })
    }

    pub fn send(&self, fragment: u8, to: SocketAddr, data: &[u8]) {
        let SocketAddr::V4(v4) = to else { panic!("{to}") };
        let header = [&[0, 0, fragment, 1][..], &v4.ip().octets(), &to.port().to_be_bytes()].concat();
        self.socket.send(&[&header, data].concat()).unwrap();
    }

    /// Whether something comes from there within half a second.
    pub fn answers(&self, from: SocketAddr) -> bool {
        self.socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let SocketAddr::V4(v4) = from else { panic!("{from}") };
        let header = [&[0, 0, 0, 1][..], &v4.ip().octets(), &from.port().to_be_bytes()].concat();
        let mut buffer = [0; 2000];
        self.socket.recv(&mut buffer).is_ok_and(|len| buffer[..len].starts_with(&header))
    }

    /// The data of the next datagram, which comes from `from`.
    pub fn receive(&self, from: SocketAddr) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 16];
        let len = self.socket.recv(&mut buffer).unwrap();
        let SocketAddr::V4(v4) = from else { panic!("{from}") };
        let header = [&[0, 0, 0, 1][..], &v4.ip().octets(), &from.port().to_be_bytes()].concat();
        assert_eq!(buffer[..10], header);
        buffer[10..len].to_vec()
    }
}

/// A server that sends back what it gets, and counts it.
pub struct Echo {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Echo {
    pub fn start(stage: &Stage, address: &str) -> Echo {
        let socket = stage.web.run(|| UdpSocket::bind(address)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut buffer, mut count) = (vec![0; 1 << 16], 0);
            while !stopped.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
                count += 1;
                socket.send_to(&buffer[..len], from).unwrap();
            }
            count
        });
        Echo { stop, thread }
    }

    pub fn count(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn datagrams_go_through_the_gateway_and_come_back() {
    let Some(stage) = Stage::new() else { return };
    let far = Far::start(&stage, &[&format!("{SERVER} 80")], &["--udp", &format!("{SERVER} 53,4433")]);
    let gateway = ["--gateway", "10.1.0.1:5124", "--gateway-cookie", &far.cookie];
    let proxy = stage.proxy(&[&["--json", "--verbose"], &gateway[..]].concat());
    let logs = || format!("{} {}", stage.log(), Far::log(&stage));
    let address = |port: u16| -> SocketAddr { format!("{SERVER}:{port}").parse().unwrap() };
    let Ok(one) = Association::new(&stage) else { panic!("{}", logs()) };
    // A DNS server: the query's id, then an answer of one address.
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x01\0\x01";
    let dns = Echo::start(&stage, &format!("{SERVER}:53"));
    one.send(0, address(53), query);
    assert_eq!(one.receive(address(53)), query, "{}", logs());
    // A fragment is dropped, and so is what isn't in the gateway's list: what comes after them is answered
    // first.
    let denied = Echo::start(&stage, &format!("{SERVER}:54"));
    one.send(1, address(53), b"a fragment");
    one.send(0, address(54), b"not listed");
    one.send(0, "10.1.0.1:53".parse().unwrap(), b"the gateway itself");
    one.send(0, address(53), b"whole");
    assert_eq!(one.receive(address(53)), b"whole");
    // Sizes up to what a datagram with the header has room for; then as many as a page of QUIC needs.
    let quic = Echo::start(&stage, &format!("{SERVER}:4433"));
    for size in [0, 1, 1200, 1500, 9000, 65_000, 65_497] {
        let data: Vec<u8> = (0..size as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        one.send(0, address(4433), &data);
        assert!(one.receive(address(4433)) == data, "{size} bytes: {}", logs());
    }
    for round in 0..100u8 {
        for at in 0..10 {
            one.send(0, address(4433), &[[round, at].as_slice(), &[7; 1198]].concat());
        }
        for at in 0..10 {
            assert_eq!(one.receive(address(4433))[..2], [round, at]);
        }
    }
    // Another program's datagrams have another stream. It ends with the connection by which it was asked for.
    let Ok(two) = Association::new(&stage) else { panic!("{}", logs()) };
    two.send(0, address(53), b"two");
    assert_eq!(two.receive(address(53)), b"two");
    drop(two.control);
    wait_until("the association has ended", || stage.log().contains("\"message\":\"closed\""));
    one.send(0, address(53), b"still there");
    assert_eq!(one.receive(address(53)), b"still there");
    drop(one.control);
    assert!(proxy.terminate().success() && far.gateway.terminate().success());
    assert_eq!((dns.count(), denied.count(), quic.count()), (4, 0, 1007));
}

#[test]
fn datagrams_need_a_gateway_that_has_a_list_for_them() {
    let Some(stage) = Stage::new() else { return };
    let proxy = stage.proxy(&["--json", "--verbose"]);
    assert_eq!(Association::new(&stage).err(), Some(7), "command not supported: {}", stage.log());
    assert!(proxy.terminate().success());
    let far = Far::start(&stage, &[&format!("{SERVER} 80")], &[]);
    let gateway = ["--gateway", "10.1.0.1:5124", "--gateway-cookie", &far.cookie];
    let proxy = stage.proxy(&[&["--json", "--verbose"], &gateway[..]].concat());
    assert_eq!(Association::new(&stage).err(), Some(2), "not allowed: {}", stage.log());
    assert!(proxy.terminate().success() && far.gateway.terminate().success());
}
