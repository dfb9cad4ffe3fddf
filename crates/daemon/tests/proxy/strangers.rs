//! Who may not use the proxy, and tries: wrong passwords, names that forge log lines, packets from uplinks.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::Clock;

use crate::stage::{Stage, ip, wait_until};
use crate::url;

const SECOND: Span = Span::from_secs(1);

/// A file that nobody else reads.
fn private(stage: &Stage, name: &str, text: &str) -> String {
    let path = stage.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    path.display().to_string()
}

#[test]
fn wrong_passwords_cost_time_and_few_lines() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 100_000);
    let _server = stage.nginx(true);
    let users = private(&stage, "users", "van:secret\n");
    let proxy = stage.proxy(&["--users", &users, "--listen", "0.0.0.0:1080"]);
    let clock = Clock::start();
    for (at, scheme) in ["socks5h", "http"].iter().cycle().take(6).enumerate() {
        let by = format!("{scheme}://van:guess{at}@10.1.0.2:1080");
        let (code, _) = stage.curl(&["--proxytunnel", "--proxy", &by, &url("data")]);
        assert_ne!(code, 0);
    }
    // 250 ms, 500 ms and a second after the first three.
    assert!(clock.now() > Time::ZERO + SECOND * 7 / 4, "{}", clock.now());
    // Others aren't concerned.
    let clock = Clock::start();
    let (code, received) = stage.curl(&["--proxy", "socks5h://van:secret@127.0.0.1:1080", &url("data")]);
    assert!(code == 0 && received == data, "{}", stage.log());
    assert!(clock.now() < Time::ZERO + SECOND, "{}", clock.now());
    // A guesser who doesn't wait: nobody hears all of it, and the log has a line a minute.
    let guesses = (0..40).map(|_| {
        stage.van.run(|| {
            let mut client = TcpStream::connect("10.1.0.2:1080")?;
            client.write_all(b"\x05\x01\x02\x01\x03van\x03bad")?;
            Ok(client)
        })
    });
    let open: Vec<TcpStream> = guesses.map(Result::unwrap).collect();
    stage.wait_for_log("refused unheard");
    drop(open);
    let log = stage.log();
    let lines = log.lines().filter(|line| line.contains("ropewalk::clients")).count();
    assert!(lines == 2 && log.contains("wrong password or token client=10.1.0.2:"), "{log}");
    assert!(!log.contains("guess") && !log.contains("secret"), "no password is logged: {log}");
    assert!(proxy.terminate().success());
}

#[test]
fn a_name_writes_no_line_of_its_own() {
    let Some(stage) = Stage::new() else { return };
    let proxy = stage.proxy(&["--log", "trace"]);
    let name = b"a\n2026-01-01T00:00:00Z  WARN forged\x1b[2J";
    for (port, request) in [
        (1u8, [&b"\x05\x01\x00\x05\x01\x00\x03"[..], &[name.len() as u8], name, &[0, 80]].concat()),
        (2, b"CONNECT a\x0bb.invalid:80 HTTP/1.1\r\n\r\n".to_vec()),
    ] {
        let mut client = stage.van.run(|| TcpStream::connect("127.0.0.1:1080")).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client.write_all(&request).unwrap();
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        assert!(!answer.is_empty(), "{port}");
    }
    stage.wait_for_log("forged");
    assert!(proxy.terminate().success());
    let log = stage.log();
    assert!(log.contains("a\\n2026-01-01T00:00:00Z  WARN forged\\u{1b}[2J"), "{log}");
    assert!(log.chars().all(|c| c == '\n' || !c.is_control()), "{log}");
}

/// From an uplink only answers reach the engine.
#[test]
fn who_knows_the_engines_address_does_not_reach_it() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 1_000_000);
    let _server = stage.nginx(true);
    let proxy = stage.proxy(&[]);
    ip(&stage.web, "route add 198.19.200.0/24 via 10.1.0.2").unwrap();
    let connect = |address: &str| {
        stage.web.command("curl").args(["-sS", "--max-time", "2", address]).output().unwrap().status.code()
    };
    // No RST: nothing has answered.
    assert_eq!(connect("http://198.19.200.2:9/"), Some(28), "{}", stage.log());
    let (code, received) = stage.curl(&["--proxy", "socks5h://127.0.0.1:1080", &url("data")]);
    assert!(code == 0 && received == data, "{}", stage.log());
    // The rule is what stands before it.
    let rules = stage.van.check("nft", &["-a", "list", "table", "inet", "ropewalk_proxy"]).unwrap();
    let handle =
        rules.lines().find(|line| line.contains("established")).and_then(|line| line.split("handle ").nth(1));
    let delete = ["delete", "rule", "inet", "ropewalk_proxy", "forward", "handle", handle.unwrap()];
    stage.van.check("nft", &delete).unwrap();
    // It is back within a second.
    wait_until("the rule is back", || {
        stage
            .van
            .check("nft", &["list", "table", "inet", "ropewalk_proxy"])
            .is_ok_and(|text| text.contains("established"))
    });
    assert!(proxy.terminate().success());
}

/// A client of the proxy that stops reading ends as well, and one address has its share of connections.
#[test]
fn clients_of_the_proxy_are_held_to_little() {
    let Some(stage) = Stage::new() else { return };
    stage.serve("data", 20_000_000);
    let _server = stage.nginx(true);
    let text = "[proxy]\nlisten = '0.0.0.0:1080'\nallow = ['10.0.0.0/8', \
                '127.0.0.0/8']\nconnections-per-address = 4\nstalled = '3 s'\n\
        [[link]]\ninterface = 'up0'\n[[link]]\ninterface = 'up1'\n";
    let path = private(&stage, "proxy.toml", text);
    let proxy = stage.start(&["--config", &path]);
    let open: Vec<TcpStream> =
        (0..8).map(|_| stage.van.run(|| TcpStream::connect("10.1.0.2:1080")).unwrap()).collect();
    stage.wait_for_log("the limit `connections-per-address`");
    drop(open);
    let mut client = stage.van.run(|| TcpStream::connect("127.0.0.1:1080")).unwrap();
    client.write_all(b"CONNECT 10.9.9.9:80 HTTP/1.1\r\n\r\nGET /data HTTP/1.0\r\n\r\n").unwrap();
    stage.wait_for_log("took nothing of what waited for it: reset");
    assert!(proxy.terminate().success());
}
