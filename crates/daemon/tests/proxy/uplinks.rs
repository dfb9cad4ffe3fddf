//! Uplinks through a day: addresses that are renewed, interfaces that vanish and come back, a host that is
//! suspended.

use std::time::Duration;

use crate::stage::{self, Stage};
use crate::{MIB, interrupted, shares, url};

/// Waits until a download uses both uplinks.
fn wait_for_both(stage: &Stage, data: &[u8], what: &str) {
    stage::wait_until(what, || shares(stage, data).0.iter().all(|bytes| *bytes > data.len() as f64 / 5.0));
}

#[test]
fn uplinks_are_renewed_vanish_and_come_back() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 12 * MIB);
    let _server = stage.nginx(true);
    let config = stage.path().join("proxy.toml");
    let write = |name: &str| {
        let links = format!("[[link]]\ninterface = '{name}'\n[[link]]\ninterface = 'up1'\n");
        std::fs::write(&config, format!("[proxy]\nprobe = '10.9.9.9:80'\n{links}")).unwrap();
    };
    write("up0");
    let proxy = stage.start(&["--config", config.to_str().unwrap(), "--json"]);
    // The lease of the first uplink is another one: its address goes, and the default route with it.
    let stall = interrupted(&stage, &data, || {
        for line in [
            "-4 address flush dev up0 scope global",
            "address add 10.1.0.7/24 dev up0",
            "route add default via 10.1.0.1 dev up0 metric 100",
        ] {
            stage::ip(&stage.van, line).unwrap();
        }
    });
    assert!(stall < 1.0, "a new address: a stall of {stall:.2} s: {}", stage.log());
    wait_for_both(&stage, &data, "the renewed address is used");
    // The modem is unplugged, and plugged in again.
    let stall = interrupted(&stage, &data, || stage::ip(&stage.van, "link del up0").unwrap());
    assert!(stall < 1.0, "unplugged: a stall of {stall:.2} s: {}", stage.log());
    stage::add_uplink(&stage.van, &stage.web, 0).unwrap();
    wait_for_both(&stage, &data, "the interface that came back is used");
    // It comes back with another name: the file says so.
    for line in [
        "link set up0 down",
        "link set up0 name modem0",
        "link set modem0 up",
        "route add default via 10.1.0.1 dev modem0 metric 100",
    ] {
        stage::ip(&stage.van, line).unwrap();
    }
    write("modem0");
    proxy.signal("-HUP");
    stage.wait_for_log("configuration read again");
    let sent = || stage.van.check("ip", &["-s", "-j", "link", "show", "dev", "modem0"]).unwrap();
    let bytes = || {
        let value: serde_json::Value = serde_json::from_str(&sent()).unwrap();
        value[0]["stats64"]["rx"]["bytes"].as_u64().unwrap()
    };
    let start = bytes();
    stage::wait_until("the new name is used", || {
        stage.curl(&["--proxy", "socks5h://127.0.0.1:1080", "-o", "/dev/null", &url("data")]);
        bytes() > start + data.len() as u64 / 5
    });
    assert!(proxy.terminate().success());
}

#[test]
fn a_download_goes_on_after_the_host_was_suspended() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 12 * MIB);
    let _server = stage.nginx(true);
    let proxy = stage.proxy(&["--json"]);
    let mut download = stage.download(&url("data"));
    download.read_until(|download| download.received.len() > data.len() / 4);
    proxy.signal("-STOP");
    std::thread::sleep(Duration::from_secs(5));
    let begin = download.now();
    proxy.signal("-CONT");
    download.read_until(|_| false);
    let seconds = (download.now() - begin) as f64 / 1e9;
    assert!(download.received == data && seconds < 8.0, "{seconds:.1} s: {}", stage.log());
    assert!(proxy.terminate().success());
}
