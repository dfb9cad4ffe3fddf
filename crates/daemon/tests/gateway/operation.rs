//! Starting, reloading, limits, status and the end.

use std::fs;
use std::io::{Read, Write};
use std::time::Duration;

use ropewalk_engine::Time;
use ropewalk_host::clock::Clock;
use ropewalk_host::kernel::{self, SocketConfig};

use super::stage::*;

#[test]
fn what_a_killed_gateway_leaves_is_removed_by_the_next() {
    let Some(stage) = Stage::new() else { return };
    let mut first = stage.gateway(&[]);
    let mut second = stage.server.command(ROPEWALK);
    let output = second.args(["gateway", "--listen", "10.0.0.1:80", "--to", "127.0.0.1:1"]).output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("another gateway"), "{told}");
    assert!(stage.traces().contains("ropewalk_gateway"), "the second has removed what the first uses");
    first.child.end();
    let left = stage.traces();
    assert!(left.contains("ropewalk_gateway") && left.contains("forwarding"), "{left}");
    let mut third = stage.gateway(&[]);
    third.wait_for("an earlier gateway");
    assert_eq!(third.end(), Some(0));
    assert_eq!(stage.traces(), "", "something is left");
}

#[test]
fn a_killed_gateway_resets_its_connections_and_serves_again() {
    let Some(stage) = Stage::new() else { return };
    stage.client.sysctl("net.mptcp.close_timeout", "1").unwrap();
    let backend = stage.backend();
    let mut first = stage.gateway(&[]);
    let client = stage.connect();
    (&client).write_all(b"question").unwrap();
    let (mut server, _) = backend.accept().unwrap();
    server.read_exact(&mut [0; 8]).unwrap();
    first.child.end();
    // The kernel closes its sockets: the server's connection ends at once.
    server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert!(matches!(server.read(&mut [0; 8]), Ok(0) | Err(_)));
    let second = stage.gateway(&[]);
    // The client learns of it when it sends, and gives up after its kernel's time for new subflows, 60 s if
    // nothing is said.
    let clock = Clock::start();
    while (&client).write_all(b"more").is_ok() {
        assert!(clock.now() < Time::ZERO + 10 * SECOND, "{}", second.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let next = stage.connect();
    (&next).write_all(b"question").unwrap();
    backend.accept().unwrap().0.read_exact(&mut [0; 8]).unwrap();
    drop(next);
    assert_eq!(second.end(), Some(0));
    assert_eq!(stage.traces(), "", "something is left");
}

#[test]
fn sigterm_drains_and_has_a_limit() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    for (limit, ends_by_itself) in [("20 s", true), ("0.3 s", false)] {
        let mut gateway = stage.gateway(&["--drain", limit]);
        let client = stage.connect();
        (&client).write_all(b"question").unwrap();
        let (mut socket, _) = backend.accept().unwrap();
        socket.read_exact(&mut [0; 8]).unwrap();
        gateway.signal("-TERM");
        gateway.wait_for("draining");
        if ends_by_itself {
            // The connection goes on as if nothing was.
            std::thread::sleep(Duration::from_millis(300));
            socket.write_all(b"answer").unwrap();
            drop(socket);
            let mut received = Vec::new();
            (&client).read_to_end(&mut received).unwrap();
            assert_eq!(received, b"answer");
            drop(client);
        } else {
            let error = (&client).read(&mut [0; 10]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        assert_eq!(gateway.end(), Some(0), "{limit}");
        assert_eq!(stage.traces(), "", "something is left");
    }
}

#[test]
fn sighup_changes_listeners_and_cuts_no_connection() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    file(&stage, &listener(PORT, "scheduler = 'blest'"));
    // A name relative to where it was started holds after it is confined, too.
    let mut gateway = stage.start(&["gateway", "--config", "gateway.toml", "--log", "debug"]);
    let client = stage.connect();
    (&client).write_all(b"question").unwrap();
    let (mut first, _) = backend.accept().unwrap();
    first.read_exact(&mut [0; 8]).unwrap();
    let reloaded = |gateway: &mut Gateway, text: &str, expected: &str| {
        let before = gateway.log().len();
        file(&stage, text);
        gateway.signal("-HUP");
        let clock = Clock::start();
        while !gateway.log()[before..].contains(expected) {
            assert!(clock.now() < Time::ZERO + 10 * SECOND, "no `{expected}`: {}", gateway.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    // The listener has other settings, and there is one more.
    let text = listener(PORT, "proxy-protocol = 'v1'") + &listener(81, "proxy-protocol = 'v2'");
    reloaded(&mut gateway, &text, "configuration read again");
    for (port, expected) in
        [(PORT, &b"PROXY TCP4 10.0.0.2 10.0.0.1 "[..]), (81, b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c")]
    {
        let config = SocketConfig::default();
        let second = kernel::connect(&stage.client, None, ([10, 0, 0, 1], port).into(), &config).unwrap();
        (&second).write_all(b"question").unwrap();
        let (mut socket, _) = backend.accept().unwrap();
        let mut header = vec![0; expected.len()];
        socket.read_exact(&mut header).unwrap();
        assert_eq!(header, expected, "port {port}");
    }
    // Mistakes change nothing.
    reloaded(&mut gateway, "[[listener]]\nlisten = 7\n", "gateway.toml:2:10: expected a text in quotes");
    reloaded(&mut gateway, &text.replace("10.0.1.1", "10.0.0.7"), "needs a restart");
    for change in
        ["cores = 2", "connections = 7", "half-open = 7", "memory = '1 MiB'", "metrics = '127.0.0.1:9'"]
    {
        let key = change.split(' ').next().unwrap_or_default();
        let expected = format!("`{key}` of [gateway] changed: that needs a restart");
        reloaded(&mut gateway, &format!("[gateway]\n{change}\n{text}"), &expected);
    }
    // A listener goes; the first connection goes on.
    reloaded(&mut gateway, &listener(81, ""), "configuration read again");
    let refused =
        kernel::connect(&stage.client, None, ([10, 0, 0, 1], PORT).into(), &SocketConfig::default());
    assert!(refused.is_err());
    first.write_all(b"answer").unwrap();
    drop(first);
    let mut received = Vec::new();
    (&client).read_to_end(&mut received).unwrap();
    assert_eq!(received, b"answer");
    drop(client);
    assert_eq!(gateway.end(), Some(0));
    assert_eq!(stage.traces(), "", "something is left");
}

#[test]
fn limits_reset_what_is_too_much() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    let path = file(&stage, &listener(PORT, "connections = 2\nsubflows = 0"));
    let gateway = stage.start(&["gateway", "--config", &path, "--log", "debug"]);
    let open = [stage.connect(), stage.connect()];
    let servers = [backend.accept().unwrap(), backend.accept().unwrap()];
    stage.assert_reset();
    drop((open, servers));
    // A place is free again.
    let clock = Clock::start();
    loop {
        let next = stage.try_connect();
        let _ = next.and_then(|next| (&next).write_all(b"question").map(|()| next));
        backend.set_nonblocking(true).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        if backend.accept().is_ok() {
            break;
        }
        assert!(clock.now() < Time::ZERO + 10 * SECOND, "{}", gateway.log());
    }
    assert_eq!(stage.counter("MPTcpExtMPJoinSynAckRx"), 0, "no join is allowed");
    assert_eq!(gateway.end(), Some(0));
}

/// No FIN, no RST: one client is idle, one has data under way.
#[test]
fn clients_that_vanish_are_freed() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    let path = file(&stage, &listener(PORT, "keep-alive = '1 s'\nuser-timeout = '2 s'"));
    let gateway = stage.start(&["gateway", "--config", &path, "--log", "debug"]);
    let mut servers = Vec::new();
    let clients = [(); 2].map(|()| {
        let client = stage.connect();
        (&client).write_all(b"question").unwrap();
        let (mut server, _) = backend.accept().unwrap();
        server.read_exact(&mut [0; 8]).unwrap();
        servers.push(server);
        client
    });
    // Idle connections stay open while their clients answer keep-alive probes.
    std::thread::sleep(Duration::from_millis(2500));
    (&servers[0]).write_all(b"answer").unwrap();
    (&clients[0]).read_exact(&mut [0; 6]).unwrap();
    let drop_all = "chain in { type filter hook input priority 0; policy drop; }; chain out { type filter \
                    hook output priority 0; policy drop; };";
    stage.client.check("nft", &[&format!("table inet gone {{ {drop_all} }}")]).unwrap();
    let clock = Clock::start();
    servers[1].write_all(b"nobody acknowledges this").unwrap();
    for server in &mut servers {
        server.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        let ended = server.read(&mut [0; 8]);
        let in_vain = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(
            !ended.as_ref().is_err_and(in_vain),
            "after {} ms: {}",
            clock.now().as_millis(),
            gateway.log()
        );
    }
    assert!(clock.now() < Time::ZERO + 5 * SECOND, "{} ms", clock.now().as_millis());
    drop(clients);
    assert_eq!(gateway.end(), Some(0));
}

/// Connections count with what they hold, and not with what they might.
#[test]
fn memory_is_what_connections_hold() {
    let Some(stage) = Stage::new() else { return };
    let backend = stage.backend();
    let settings = "[gateway]\nmemory = '1 MiB'\n".to_string() + &listener(PORT, "subflows = 0");
    let gateway = stage.start(&["gateway", "--config", &file(&stage, &settings), "--log", "debug", "--json"]);
    // Far more buffers than a mebibyte may grow to, and all empty.
    let connect = || {
        let client = stage.connect();
        (client, backend.accept().unwrap().0)
    };
    let mut pairs: Vec<_> = (0..16).map(|_| connect()).collect();
    std::thread::sleep(Duration::from_millis(600));
    pairs.push(connect());
    // Servers that read nothing: the gateway holds what clients sent, until their windows are full.
    for (client, _) in &pairs {
        client.set_nonblocking(true).unwrap();
        while (&*client).write(&[7; 65_536]).is_ok() {}
    }
    // They make no progress: they end, and others find room.
    let clock = Clock::start();
    while !gateway.log().contains("memory is short: connections that made no progress were reset") {
        assert!(clock.now() < Time::ZERO + 10 * SECOND, "{}", gateway.log());
        for (client, _) in &pairs {
            while (&*client).write(&[7; 65_536]).is_ok() {}
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // Until then their windows have let in little beyond the limit.
    let log = gateway.log();
    let told = log.split("\"used\":").nth(1).unwrap();
    let used: u64 = told.split(|one: char| !one.is_ascii_digit()).next().unwrap().parse().unwrap();
    assert!(used < 6 << 20, "{used} bytes: {log}");
    // Some made progress a moment later than others.
    backend.set_nonblocking(true).unwrap();
    let is_served = || {
        let client = stage.try_connect();
        std::thread::sleep(Duration::from_millis(200));
        client.is_ok() && backend.accept().is_ok()
    };
    while !is_served() {
        assert!(clock.now() < Time::ZERO + 20 * SECOND, "{}", gateway.log());
    }
    drop(pairs);
    assert_eq!(gateway.end(), Some(0));
}

/// Two dozen clients that stop reading: honest ones beside them are served, every one.
#[test]
fn clients_that_read_nothing_keep_nobody_out() {
    let Some(stage) = Stage::new() else { return };
    if lacks(&["nginx", "curl"]) {
        return;
    }
    let folder = stage.folder.path();
    fs::write(folder.join("large"), pattern(20_000_000)).unwrap();
    fs::write(folder.join("file"), pattern(100_000)).unwrap();
    let _nginx = nginx(&stage);
    let settings = "[gateway]\nmemory = '4 MiB'\n".to_string() + &listener(PORT, "subflows = 0");
    let mut gateway = stage.start(&["gateway", "--config", &file(&stage, &settings), "--log", "debug"]);
    let mut lazy = Vec::new();
    for round in 0..10 {
        for _ in 0..5 {
            let client = stage.connect();
            (&client).write_all(b"GET /large HTTP/1.0\r\n\r\n").unwrap();
            lazy.push(client);
        }
        let line = ["-sS", "--fail", "--max-time", "5", "-o", "/dev/null", "http://10.0.0.1/file"];
        let honest = stage.client.check("curl", &line);
        assert!(honest.is_ok(), "round {round}: {honest:?}: {}", gateway.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    gateway.wait_for("memory is short");
    assert!(
        !gateway.log().contains("\"refused\"") && !gateway.log().contains("new ones are reset"),
        "{}",
        gateway.log()
    );
    drop(lazy);
    assert_eq!(gateway.end(), Some(0));
}

/// What waits for a client that stops reading is bounded, and a connection that nothing is taken from ends.
#[test]
fn a_client_that_stops_reading_costs_little_and_ends() {
    let Some(stage) = Stage::new() else { return };
    if lacks(&["nginx"]) {
        return;
    }
    fs::write(stage.folder.path().join("large"), pattern(20_000_000)).unwrap();
    let _nginx = nginx(&stage);
    let socket = stage.folder.path().join("status");
    let socket = socket.to_str().unwrap();
    let settings = format!("[gateway]\nstatus = '{socket}'\nstalled = '3 s'\n") + &listener(PORT, "");
    let mut gateway = stage.start(&["gateway", "--config", &file(&stage, &settings), "--log", "debug"]);
    let client = stage.connect();
    (&client).write_all(b"GET /large HTTP/1.0\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let told = ropewalk(&["status", "--socket", socket, "--json"]);
    let state: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let waiting = state["connections"][0]["bytes_unacknowledged"].as_u64().unwrap();
    assert!((1..=100_000).contains(&waiting), "{waiting}: {state:#}");
    gateway.wait_for("took nothing of what waited for it: reset");
    drop(client);
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn status_and_metrics_tell_of_connections_and_why() {
    let Some(stage) = Stage::new() else { return };
    if lacks(&["tc", "curl"]) {
        return;
    }
    stage.shape("10mbit");
    let backend = stage.backend();
    let socket = stage.folder.path().join("status");
    let path = socket.to_str().unwrap();
    let mut more = vec!["--scheduler", "blest", "--status", path, "--metrics", "127.0.0.1:9464"];
    more.extend(["--page", "127.0.0.1:9466"]);
    let gateway = stage.gateway(&more);
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let client = stage.connect();
    let (mut server, _) = backend.accept().unwrap();
    let received = std::thread::scope(|scope| {
        let client = &client;
        let reading = scope.spawn(move || {
            let mut received = Vec::new();
            (&mut &*client).read_to_end(&mut received).unwrap();
            received.len()
        });
        let writing = scope.spawn(move || server.write_all(&pattern(4_000_000)).unwrap());
        let clock = Clock::start();
        // While data flows: two subflows, and decisions with their reasons.
        loop {
            let told = ropewalk(&["status", "--socket", path, "--json"]);
            assert!(told.status.success(), "{}", text(&told.stderr));
            let state: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
            let one = &state["connections"][0];
            let subflows = one["subflows"].as_array().map_or(0, Vec::len);
            let reasons = one["decisions"].as_array().map_or(0, Vec::len);
            if subflows == 2 && reasons > 0 {
                assert_eq!((&one["scheduler"], &one["multipath"]), (&"blest".into(), &true.into()));
                assert_eq!(
                    (&one["subflows"][1]["interface"], &one["to"]),
                    (&"eth1".into(), &"127.0.0.1:8080".into())
                );
                assert!(one["subflows"][0]["srtt_s"].as_f64() > Some(0.0), "{one}");
                assert!(one["decisions"][0]["why"].as_str().is_some_and(|why| !why.is_empty()), "{one}");
                assert_eq!(state["mib"]["MPTcpExtMPCapableSYNRX"], 1);
                break;
            }
            assert!(clock.now() < Time::ZERO + 3 * SECOND, "{state:#}");
        }
        // Of connections before the only one there is none.
        let told = ropewalk(&["status", "--socket", path, "--json", "--before", "0"]);
        let state: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        assert_eq!((&state["connections_open"], &state["connections_older"]), (&1.into(), &0.into()));
        assert_eq!(state["connections"].as_array().map(Vec::len), Some(0), "{state:#}");
        let shown = text(&ropewalk(&["status", "--socket", path]).stdout);
        assert!(shown.contains("scheduler blest") && shown.contains("eth1  10.0.1.1:80 -> 10.0."), "{shown}");
        let metrics =
            stage.server.check("curl", &["-sS", "--fail", "http://127.0.0.1:9464/metrics"]).unwrap();
        for line in [
            "ropewalk_gateway_accepted_total 1",
            "ropewalk_gateway_connections{scheduler=\"blest\"} 1",
            "ropewalk_subflows{interface=\"eth1\"} 1",
            "ropewalk_MPTcpExtMPCapableSYNRX 1",
        ] {
            assert!(metrics.lines().any(|known| known == line), "no `{line}`: {metrics}");
        }
        let name = "ropewalk_link_sent_bytes_total{interface=\"eth1\",address=\"10.0.1.1\"} ";
        let sent = metrics.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
        assert!(sent > Some(0), "{metrics}");
        let page = stage.server.check("curl", &["-sS", "--fail", "http://127.0.0.1:9466/state"]).unwrap();
        let page: serde_json::Value = serde_json::from_str(&page).unwrap();
        assert_eq!((&page["kind"], &page["paths"][0]["interface"]), (&"gateway".into(), &"eth0".into()));
        assert!(page["paths"][0]["bytes_sent"].as_u64() > Some(0), "{page:#}");
        writing.join().unwrap();
        reading.join().unwrap()
    });
    assert_eq!(received, 4_000_000);
    // The gateway has nothing but CAP_NET_ADMIN.
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.child.0.id())).unwrap();
    let bits = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map(|bits| bits.trim().to_string())
    };
    assert_eq!(bits("CapEff:").as_deref(), Some("0000000000001000"), "{status}");
    drop(client);
    assert_eq!(gateway.end(), Some(0));
    assert!(!socket.exists());
    let nobody = ropewalk(&["status", "--socket", path]);
    assert_eq!(nobody.status.code(), Some(1));
}
