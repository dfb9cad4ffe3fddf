//! Connections to the gateway that are ready for clients, and clients that are told early that they are
//! connected.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use ropewalk_host::clock::Clock;

use crate::far::Far;
use crate::stage::{PROXY, SERVER, Stage, ip, wait_until};

const MIB: usize = 1 << 20;

fn times(log: &str, words: &str) -> usize {
    log.matches(words).count()
}

#[test]
fn a_client_takes_a_connection_that_is_ready() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 2 * MIB);
    let _server = stage.nginx(false);
    let destinations = [&*format!("{SERVER} 80")];
    let far = Far::start(&stage, &destinations, &[]);
    let gateway = ["--gateway", "10.1.0.1:5124", "--gateway-cookie", &far.cookie, "--gateway-ready", "2"];
    let proxy = stage.proxy(&[&gateway[..], &["--verbose"]].concat());
    let (socks, url) = (format!("socks5h://{PROXY}"), format!("http://{SERVER}/data"));
    let logs = || format!("{} {}", stage.log(), Far::log(&stage));
    let download = || {
        let (code, received) = stage.curl(&["--proxy", &socks, &url]);
        assert!(code == 0 && received == data, "{code}, {} bytes: {}", received.len(), logs());
    };
    // Both links carry data also on a connection that was ready.
    for count in 1..=4 {
        wait_until("two are ready", || stage.log().matches("ready for a client").count() > count);
        let before = [stage.received(0), stage.received(1)];
        download();
        assert_eq!(times(&stage.log(), "was_ready=true"), count, "{}", logs());
        for (link, before) in before.into_iter().enumerate() {
            assert!(stage.received(link) - before > MIB as u64 / 4, "uplink {link}: {}", logs());
        }
    }
    // A client's code point is kept: connections that are ready have none.
    let mark = "table ip marks { chain out { type filter hook output priority mangle; tcp dport 1080 ip \
                dscp set ef; }; }";
    let seen = "table ip seen { chain in { type filter hook prerouting priority -400; tcp dport 5124 ip \
                dscp ef counter; }; }";
    stage.van.check("nft", &[mark]).unwrap();
    stage.web.check("nft", &[seen]).unwrap();
    download();
    assert_eq!((times(&stage.log(), "was_ready=true"), times(&stage.log(), "was_ready=false")), (4, 1));
    let counted = stage.web.check("nft", &["list table ip seen"]).unwrap();
    assert!(!counted.contains("packets 0 "), "{counted}");
    stage.van.check("nft", &["delete table ip marks"]).unwrap();
    // A gateway that was killed has forgotten them.
    far.gateway.signal("-KILL");
    let _ = far.gateway.wait();
    let far = Far::start(&stage, &destinations, &[]);
    download();
    assert!(proxy.terminate().success() && far.gateway.terminate().success(), "{}", logs());
}

/// The lone uplink has another address, and those that were ready had the old one.
#[test]
fn a_client_waits_for_no_connection_whose_address_is_gone() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 100_000);
    let _server = stage.nginx(false);
    let far = Far::start(&stage, &[&format!("{SERVER} 80")], &[]);
    let gateway = ["--gateway", "10.1.0.1:5124", "--gateway-cookie", &far.cookie, "--gateway-ready", "2"];
    let proxy = stage.start(&[&["--via", "up0", "--listen", PROXY, "--verbose"], &gateway[..]].concat());
    let logs = || format!("{} {}", stage.log(), Far::log(&stage));
    let (socks, url) = (format!("socks5h://{PROXY}"), format!("http://{SERVER}/data"));
    let download = || {
        let clock = Clock::start();
        let (code, received) = stage.curl(&["--proxy", &socks, &url]);
        assert!(code == 0 && received == data, "{code}, {} bytes: {}", received.len(), logs());
        let took = clock.now().as_secs_f64();
        assert!(took < 2.0, "{took:.2} s: {}", logs());
    };
    let (ready, changed) = ("ready for a client", "its address changed");
    for last in [7, 8] {
        let before = times(&stage.log(), ready);
        download();
        wait_until("two are ready", || times(&stage.log(), ready) > before);
        let before = times(&stage.log(), changed);
        for line in [
            "-4 address flush dev up0 scope global",
            &format!("address add 10.1.0.{last}/24 dev up0"),
            "route replace default via 10.1.0.1 dev up0 metric 100",
        ] {
            ip(&stage.van, line).unwrap();
        }
        wait_until("the new address is seen", || times(&stage.log(), changed) > before);
        download();
    }
    assert!(proxy.terminate().success() && far.gateway.terminate().success(), "{}", logs());
}

#[test]
fn a_client_is_told_early_and_reset_where_the_server_refuses() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 2 * MIB);
    let _server = stage.nginx(false);
    let far = Far::start(&stage, &[&format!("{SERVER} 80-81")], &[]);
    let gateway = ["--gateway", "10.1.0.1:5124", "--gateway-cookie", &far.cookie];
    let early = ["--gateway-ready", "1", "--gateway-early", "--verbose"];
    let proxy = stage.proxy(&[&gateway[..], &early].concat());
    let logs = || format!("{} {}", stage.log(), Far::log(&stage));
    for scheme in ["socks5h", "http"] {
        let through = format!("{scheme}://{PROXY}");
        let tunnel = ["--proxy", &through, "--proxytunnel"];
        let (code, received) = stage.curl(&[&tunnel[..], &[&format!("http://{SERVER}/data")]].concat());
        assert!(code == 0 && received == data, "{scheme}: {code}, {} bytes: {}", received.len(), logs());
        // No server listens on port 81: the client is told that it is connected, and then reset.
        let (code, _) = stage.curl(&[&tunnel[..], &[&format!("http://{SERVER}:81/")]].concat());
        assert!(code == 56 || code == 55, "{scheme}: {code}: {}", logs());
    }
    stage.wait_for_log("the server reset the connection");
    assert!(!stage.log().contains("panicked"), "{}", logs());
    assert!(proxy.terminate().success() && far.gateway.terminate().success(), "{}", logs());
}

#[test]
fn a_gateway_that_was_killed_is_used_again() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 2 * MIB);
    let _server = stage.nginx(false);
    let destinations = [&*format!("{SERVER} 80")];
    let far = Far::start(&stage, &destinations, &[]);
    let proxy = stage.proxy(&["--verbose", "--gateway", "10.1.0.1:5124", "--gateway-cookie", &far.cookie]);
    let (socks, url) = (format!("socks5h://{PROXY}"), format!("http://{SERVER}/data"));
    let logs = || format!("{} {}", stage.log(), Far::log(&stage));
    let download = || {
        let (code, received) = stage.curl(&["--proxy", &socks, &url]);
        assert!(code == 0 && received == data, "{code}, {} bytes: {}", received.len(), logs());
    };
    download();
    far.gateway.signal("-KILL");
    let _ = far.gateway.wait();
    let far = Far::start(&stage, &destinations, &[]);
    download();
    assert!(proxy.terminate().success() && far.gateway.terminate().success(), "{}", logs());
}

/// A connection that is ready is asked first, then one of its own: both together take no longer than
/// `connect-timeout`.
#[test]
fn a_silent_gateway_costs_one_connect_timeout() {
    let Some(stage) = Stage::new() else { return };
    // The kernel completes the handshakes, and nobody answers.
    let address: SocketAddr = "10.1.0.1:5124".parse().unwrap();
    let _silent = stage.web.run(|| TcpListener::bind(address)).unwrap();
    let (cookie, config) = (stage.path().join("cookie"), stage.path().join("proxy.toml"));
    let mut keys = Command::new(env!("CARGO_BIN_EXE_ropewalkd"));
    assert!(keys.args(["keys", "cookie"]).arg(&cookie).status().unwrap().success());
    let text = "[proxy]\ngateway = [\"10.1.0.1:5124\"]\ngateway-cookie = \"cookie\"\ngateway-ready = 1\n\
                connect-timeout = \"4 s\"\nstatus = \"none\"\nusage = \"usage.json\"\n\
                [[link]]\ninterface = \"up0\"\n[[link]]\ninterface = \"up1\"\n";
    std::fs::write(&config, text).unwrap();
    let proxy = stage.start(&["--config", config.to_str().unwrap(), "--verbose"]);
    wait_until("one is ready", || stage.log().contains("ready for a client"));
    let clock = Clock::start();
    let (code, _) = stage.curl(&["--proxy", &format!("socks5h://{PROXY}"), &format!("http://{SERVER}/")]);
    let took = clock.now().as_secs_f64();
    assert!(code == 97 && (3.5..5.5).contains(&took), "{code} after {took:.1} s: {}", stage.log());
    assert!(proxy.terminate().success());
}
