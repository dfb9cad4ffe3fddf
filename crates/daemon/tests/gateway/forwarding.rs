//! What is carried between clients and servers.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use super::stage::*;

#[test]
fn curl_downloads_from_nginx_over_two_links() {
    let Some(stage) = Stage::new() else { return };
    if lacks(&["nginx", "curl", "mptcpize", "tc"]) {
        return;
    }
    let file = pattern(6_000_000);
    fs::write(stage.folder.path().join("file"), &file).unwrap();
    let _nginx = nginx(&stage);
    stage.shape("40mbit");
    let gateway = stage.gateway(&[]);
    // What a dry run shows is what is there.
    assert!(stage.traces().contains("ropewalk_gateway"), "{}", stage.traces());
    assert!(stage.curl("http://10.0.0.1/file") == file, "the copy differs");
    assert_eq!(stage.counter("MPTcpExtMPJoinSynAckRx"), 1, "one join, to the announced address");
    assert_eq!(stage.counter("MPTcpExtAddAddr"), 1);
    let links = [stage.received("wan0"), stage.received("wan1")];
    assert!(links.iter().all(|bytes| *bytes > 1_000_000), "{links:?}");
    // The announced address takes connections, too; and plain TCP clients, and this host itself, are served.
    assert!(stage.curl("http://10.0.1.1/file") == file, "the copy differs");
    let plain = ["-sS", "--fail", "--max-time", "20", "-o", "/dev/null", "-w", "%{size_download}"];
    for (namespace, url) in [(&stage.client, "http://10.0.0.1/file"), (&stage.server, "http://10.0.1.1/file")]
    {
        let size = namespace.check("curl", &[&plain[..], &[url]].concat()).unwrap();
        assert_eq!(size, file.len().to_string(), "{url}");
    }
    // Other ports are the kernel's as before.
    let refused = stage.client.check("curl", &["-sS", "--max-time", "5", "http://10.0.0.1:81/"]);
    assert!(
        refused.is_err_and(
            |error| error.to_string().contains("refused") || error.to_string().contains("connect")
        )
    );
    assert_eq!(gateway.end(), Some(0));
    assert_eq!(stage.traces(), "", "something is left");
}

/// As DHCP leaves a host with two uplinks: each has a default route, and the metric decides.
#[test]
fn answers_leave_by_the_interface_of_their_address_among_two_default_routes() {
    let Some(stage) = Stage::new() else { return };
    if lacks(&["nginx", "curl"]) {
        return;
    }
    for (link, metric) in [("0", "100"), ("1", "200")] {
        let (via, dev) = (format!("10.0.{link}.2"), format!("eth{link}"));
        let line = ["route", "add", "default", "via", &via, "dev", &dev, "metric", metric];
        stage.server.check("ip", &line).unwrap();
    }
    stage.client.check("ip", &["address", "add", "10.9.0.2/32", "dev", "lo"]).unwrap();
    fs::write(stage.folder.path().join("file"), pattern(1_000_000)).unwrap();
    let _nginx = nginx(&stage);
    let gateway = stage.gateway(&[]);
    for (link, url) in [("wan0", "http://10.0.0.1/file"), ("wan1", "http://10.0.1.1/file")] {
        let before = stage.received(link);
        let line = ["-sS", "--fail", "--max-time", "20", "--interface", "10.9.0.2", "-o", "/dev/null", url];
        stage.client.check("curl", &line).unwrap();
        assert!(stage.received(link) - before > 1_000_000, "answers for {url} left elsewhere");
    }
    assert_eq!(gateway.end(), Some(0));
    assert_eq!(stage.traces(), "", "something is left");
}

#[test]
fn each_scheduler_carries_downloads_from_nginx() {
    let Some(stage) = Stage::new() else { return };
    if lacks(&["nginx", "curl", "mptcpize", "tc"]) {
        return;
    }
    let content = pattern(300_000);
    fs::write(stage.folder.path().join("file"), &content).unwrap();
    let _nginx = nginx(&stage);
    stage.shape("100mbit");
    let known = ropewalk_algorithms::Registries::builtin().schedulers;
    let names = known.entries().iter().map(|entry| entry.name);
    let ports: Vec<(&str, u16)> = names.zip(8001..).collect();
    assert!(ports.len() > 20, "{} schedulers", ports.len());
    let text: String =
        ports.iter().map(|(name, port)| listener(*port, &format!("scheduler = '{name}'"))).collect();
    let gateway = stage.start(&["gateway", "--config", &file(&stage, &text), "--log", "debug"]);
    for (name, port) in ports {
        assert!(stage.curl(&format!("http://10.0.0.1:{port}/file")) == content, "{name}: the copy differs");
    }
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn a_side_that_closes_or_resets_does_so_at_the_other_end() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    let mut gateway = stage.gateway(&[]);
    let (question, answer) = (pattern(300_000), pattern(400_000));
    std::thread::scope(|scope| {
        // The client closes first, and still gets the answer.
        let serving = scope.spawn(|| {
            let (mut socket, _) = backend.accept().unwrap();
            let mut received = Vec::new();
            socket.read_to_end(&mut received).unwrap();
            socket.write_all(&answer).unwrap();
            (received, socket)
        });
        let client = stage.connect();
        (&client).write_all(&question).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        let (served, socket) = serving.join().unwrap();
        drop(socket);
        (&client).read_to_end(&mut received).unwrap();
        assert!(served == question && received == answer);
    });
    gateway.wait_for("end=\"closed\"");
    // The server resets: so does the gateway.
    let client = stage.connect();
    (&client).write_all(b"question").unwrap();
    let (socket, _) = backend.accept().unwrap();
    // Data that it hasn't read makes its close a reset.
    std::thread::sleep(Duration::from_millis(100));
    drop(socket);
    let error = (&client).read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    gateway.wait_for("end=\"the TCP connection: ");
    // The client resets: the server doesn't take what it has for all.
    let client = stage.connect();
    (&client).write_all(b"question").unwrap();
    let (mut socket, _) = backend.accept().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.write_all(b"answer").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    client.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    let mut received = Vec::new();
    let error = socket.read_to_end(&mut received).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    gateway.wait_for("end=\"the Multipath TCP connection: ");
    // Nobody listens at the server's port: the client is reset, and the gateway goes on.
    drop(backend);
    stage.assert_reset();
    gateway.wait_for("can't be reached");
    // When somebody does again, clients are served.
    let backend = stage.backend();
    let client = stage.connect();
    (&client).write_all(b"question").unwrap();
    let (mut socket, _) = backend.accept().unwrap();
    let mut received = [0; 8];
    socket.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"question");
    drop((client, socket));
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn a_slow_server_slows_its_client() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    let gateway = stage.gateway(&[]);
    let sent = pattern(60_000_000);
    let client = stage.connect();
    let written = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let written = &written;
        let (sent, client) = (&sent, &client);
        scope.spawn(move || {
            for piece in sent.chunks(100_000) {
                (&mut &*client).write_all(piece).unwrap();
                written.fetch_add(piece.len(), std::sync::atomic::Ordering::Relaxed);
            }
            client.shutdown(Shutdown::Write).unwrap();
        });
        let (mut socket, _) = backend.accept().unwrap();
        std::thread::sleep(Duration::from_millis(700));
        let first = written.load(std::sync::atomic::Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        let second = written.load(std::sync::atomic::Ordering::Relaxed);
        // Buffers of three hosts are full by now.
        assert!(first == second && second < sent.len(), "{first}, then {second} bytes were taken");
        let mut received = Vec::new();
        socket.read_to_end(&mut received).unwrap();
        assert!(received == *sent, "{} bytes arrived, or others", received.len());
    });
    assert_eq!(gateway.end(), Some(0));
}
