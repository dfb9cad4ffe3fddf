//! TLS between the proxy and its gateway.

use std::process::Command;

use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::Clock;

use crate::datagrams::{Association, Echo};
use crate::far::{Far, gateway};
use crate::stage::{PROXY, SERVER, Stage};
use crate::url;

const MIB: usize = 1 << 20;

pub fn keys(folder: &str, more: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalkd"));
    let output = command.args(["keys", "pair", folder]).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_proxy_and_its_gateway_know_each_other_and_nobody_else() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 6 * MIB);
    let _server = stage.nginx(false);
    let folder = stage.path().join("keys").display().to_string();
    let other = stage.path().join("other").display().to_string();
    keys(&folder, &[]);
    keys(&other, &[]);
    let file = |folder: &str, name: &str| format!("{folder}/{name}");
    let (own, proxys) = (file(&folder, "gateway.key"), file(&folder, "proxy.pub"));
    let allowed = format!("{SERVER} 80");
    let far = gateway(&stage, &["--key", &own, "--proxy", &proxys, "--convert", &allowed]);
    let socks = format!("socks5h://{PROXY}");
    let url = format!("http://{SERVER}/data");
    let start =
        |more: &[&str]| stage.proxy(&[&["--json", "--verbose", "--gateway", "10.1.0.1:5124"], more].concat());
    let logs = || format!("{} {}", stage.log(), Far::log(&stage));
    // Each with the other's certificate: over both uplinks.
    let (key, certificate) = (file(&folder, "proxy.key"), file(&folder, "gateway.pub"));
    let known = ["--gateway-key", &key, "--gateway-certificate", &certificate];
    let proxy = start(&known);
    let before = [stage.received(0), stage.received(1)];
    let (code, received) = stage.curl(&["--proxy", &socks, &url]);
    assert!(code == 0 && received == data, "{code}, {} bytes: {}", received.len(), logs());
    for (link, before) in before.into_iter().enumerate() {
        assert!(stage.received(link) - before > MIB as u64, "uplink {link}: {}", logs());
    }
    // What the gateway refuses is said through TLS.
    let (code, _) = stage.curl(&["--proxy", &socks, &format!("http://{SERVER}:81/")]);
    assert!(code == 97, "{code}: {}", logs());
    stage.wait_for_log("not authorized");
    assert!(proxy.terminate().success());
    // The same with connections that are ready, TLS's handshake included, and clients that are told early.
    let proxy = start(&[&known[..], &["--gateway-ready", "1", "--gateway-early"]].concat());
    stage.wait_for_log("ready for a client");
    let (code, received) = stage.curl(&["--proxy", &socks, &url]);
    assert!(code == 0 && received == data, "{code}, {} bytes: {}", received.len(), logs());
    assert!(stage.log().contains("\"was_ready\":true"), "{}", logs());
    let (code, _) = stage.curl(&["--proxy", &socks, &format!("http://{SERVER}:81/")]);
    assert!([52, 55, 56].contains(&code), "told and then reset: {code}: {}", logs());
    assert!(proxy.terminate().success());
    // A proxy that the gateway doesn't know; a gateway that the proxy doesn't know; none of it at all.
    let (stranger, strange) = (file(&other, "proxy.key"), file(&other, "gateway.pub"));
    for (arguments, words) in [
        (&["--gateway-key", &stranger, "--gateway-certificate", &certificate][..], "AccessDenied"),
        (
            &["--gateway-key", &key, "--gateway-certificate", &strange],
            "TLS with the gateway: invalid peer certificate",
        ),
        (&[], "the gateway"),
    ] {
        let proxy = start(arguments);
        let (code, received) = stage.curl(&["--proxy", &socks, &url]);
        assert!(code == 97 && received.is_empty(), "{arguments:?}: {code}: {}", logs());
        stage.wait_for_log(words);
        // It is said without `--log debug` as well.
        let log = stage.log();
        let is_warning =
            |line: &str| line.contains("WARN") && line.contains("no connection through the gateway");
        assert!(
            log.lines().rev().find(|line| is_warning(line)).is_some_and(|line| line.contains(words)),
            "{log}"
        );
        assert!(proxy.terminate().success());
    }
    assert!(!Far::log(&stage).contains("panicked") && far.terminate().success(), "{}", Far::log(&stage));
}

#[test]
fn datagrams_are_encrypted_and_a_cut_stream_is_no_end_of_the_data() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 16 * MIB);
    let _server = stage.nginx(false);
    let folder = stage.path().join("keys").display().to_string();
    keys(&folder, &[]);
    let file = |name: &str| format!("{folder}/{name}");
    let (own, proxys) = (file("gateway.key"), file("proxy.pub"));
    let (key, certificate) = (file("proxy.key"), file("gateway.pub"));
    let (allowed, datagrams) = (format!("{SERVER} 80"), format!("{SERVER} 4433"));
    let far =
        || gateway(&stage, &["--key", &own, "--proxy", &proxys, "--convert", &allowed, "--udp", &datagrams]);
    let first = far();
    let arguments =
        ["--gateway", "10.1.0.1:5124", "--gateway-key", &key, "--gateway-certificate", &certificate];
    let proxy = stage.proxy(&[&["--json", "--verbose", "--drain", "0.5 s"], &arguments[..]].concat());
    let logs = || format!("{} {}", stage.log(), Far::log(&stage));
    // Datagrams of many sizes, through TLS.
    let echo = Echo::start(&stage, &format!("{SERVER}:4433"));
    let address = format!("{SERVER}:4433").parse().unwrap();
    let Ok(association) = Association::new(&stage) else { panic!("{}", logs()) };
    for size in [0, 1, 1200, 1500, 9000, 65_497] {
        let sent: Vec<u8> = (0..size as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        association.send(0, address, &sent);
        assert!(association.receive(address) == sent, "{size} bytes: {}", logs());
    }
    assert_eq!(echo.count(), 6);
    // The gateway is killed in the middle of a download: nothing ends as if this were all.
    let mut download = stage.download(&url("data"));
    download.read_until(|download| download.received.len() > data.len() / 4);
    drop(first);
    // The next gateway serves as the one before, as soon as the links are known to work again.
    let second = far();
    let clock = Clock::start();
    loop {
        let (code, received) = stage.curl(&["--proxy", &format!("socks5h://{PROXY}"), &url("data")]);
        if code == 0 {
            assert!(received == data, "{} bytes: {}", received.len(), logs());
            break;
        }
        assert!(clock.now() < Time::ZERO + Span::from_secs(15), "{code}: {}", logs());
    }
    // What was open learns that the gateway has forgotten it.
    let clock = Clock::start();
    download.read_until(|_| false);
    assert!(clock.now() < Time::ZERO + Span::from_secs(5), "{}", logs());
    assert!(!download.succeeded(), "cut short");
    assert!(proxy.terminate().success() && second.terminate().success());
}

/// As by a gateway that is short of memory: a segment of TLS's handshake, or the request, is answered with
/// RST.
#[test]
fn a_gateway_that_resets_a_connection_before_the_request_is_asked_again() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let _server = stage.nginx(false);
    let folder = stage.path().join("keys").display().to_string();
    keys(&folder, &[]);
    let file = |name: &str| format!("{folder}/{name}");
    let allowed = format!("{SERVER} 80");
    let line = ["--key", &file("gateway.key"), "--proxy", &file("proxy.pub"), "--convert", &allowed];
    let _far = gateway(&stage, &line);
    let (key, certificate) = (file("proxy.key"), file("gateway.pub"));
    let line = ["--json", "--verbose", "--gateway", "10.1.0.1:5124", "--gateway-key", &key];
    let _proxy = stage.proxy(&[&line[..], &["--gateway-certificate", &certificate]].concat());
    let socks = format!("socks5h://{PROXY}");
    for number in 0..3 {
        let rule =
            format!("tcp flags & psh == psh numgen inc mod 1000000 {number} counter reject with tcp reset");
        for line in [
            "add table inet short",
            "add chain inet short first { type filter hook prerouting priority -310; }",
            &format!("add rule inet short first tcp dport 5124 {rule}"),
        ] {
            stage.web.check("nft", &[line]).unwrap();
        }
        let clock = Clock::start();
        let (code, received) = stage.curl(&["--proxy", &socks, &format!("http://{SERVER}/data")]);
        let counted = stage.web.check("nft", &["list table inet short"]).unwrap();
        assert!(counted.contains("counter packets 1 "), "{counted}");
        let logs = format!("{} {}", stage.log(), Far::log(&stage));
        assert!(code == 0 && received == data, "segment {number}: {code}, {} bytes: {logs}", received.len());
        assert!(clock.now() < Time::ZERO + Span::from_secs(3), "{} ms", clock.now().as_millis());
        stage.web.check("nft", &["delete table inet short"]).unwrap();
    }
}
