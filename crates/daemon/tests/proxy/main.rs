//! `ropewalkd proxy` with real parts: curl, nginx on the kernel's Multipath TCP, two uplinks.

mod datagrams;
mod direct;
mod encrypted;
mod far;
mod full;
mod inbound;
mod limits;
mod names;
mod network;
mod operation;
mod outage;
mod pair;
mod programs;
mod quic;
mod ready;
mod real;
mod recording;
mod reload;
mod stage;
mod strangers;
mod tunnel;
mod uplinks;

use ropewalk_engine::{Span, Time};
use stage::{PROXY, SERVER, Stage};

const MIB: usize = 1 << 20;

fn url(name: &str) -> String {
    format!("http://{SERVER}/{name}")
}

#[test]
fn curl_downloads_over_both_uplinks_by_socks_and_by_http() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 4 * MIB);
    let server = stage.nginx(true);
    let before = stage.van.check("ip", &["rule"]).unwrap();
    let proxy = stage.proxy(&["--verbose"]);
    for scheme in ["socks5", "socks5h", "http"] {
        let start = [stage.received(0), stage.received(1)];
        let by = format!("{scheme}://{PROXY}");
        let (code, received) = stage.curl(&["--proxytunnel", "--proxy", &by, &url("data")]);
        assert_eq!(code, 0, "{scheme}: {}", stage.log());
        assert!(received == data, "{scheme}: {} bytes", received.len());
        for (link, start) in start.into_iter().enumerate() {
            let share = (stage.received(link) - start) as f64 / data.len() as f64;
            assert!(share > 0.2, "{scheme}: uplink {link} carried {share:.2} of the bytes: {}", stage.log());
        }
    }
    // IPv6, and what can't be reached.
    let socks = format!("socks5h://{PROXY}");
    let (code, received) = stage.curl(&["--proxy", &socks, "http://[fd09::9]/data"]);
    assert!(code == 0 && received == data, "{code}, {} bytes: {}", received.len(), stage.log());
    let (code, _) = stage.curl(&["--proxy", &socks, &format!("http://{SERVER}:81/")]);
    assert_eq!(code, 97, "a refused connection is an error of the SOCKS proxy's: {}", stage.log());
    let (code, _) = stage.curl(&["--proxy", &socks, "http://no-such-name.invalid/"]);
    assert_eq!(code, 97);
    // No uplink leads to this host itself.
    for own in ["127.0.0.1", "[::1]", "0.0.0.0"] {
        let (code, _) = stage.curl(&["--max-time", "2", "--proxy", &socks, &format!("http://{own}:9/")]);
        assert_eq!(code, 97, "{own}: refused, not waited for: {}", stage.log());
    }
    drop(server);
    // A server without Multipath TCP.
    let _server = stage.nginx(false);
    let (code, received) = stage.curl(&["--proxy", &socks, &url("data")]);
    assert!(code == 0 && received == data, "{code}, {} bytes: {}", received.len(), stage.log());
    // Nothing is left behind.
    assert!(proxy.terminate().success());
    assert_eq!(stage.van.check("ip", &["rule"]).unwrap(), before);
    let left = stage.van.check("nft", &["list", "ruleset"]).unwrap();
    assert!(!left.contains("ropewalk"), "{left}");
    assert_eq!(stage.van.read_sysctl("net.ipv4.conf.up0.forwarding").unwrap(), "0");
    assert!(stage.van.check("ip", &["route", "show", "table", "5200"]).unwrap_or_default().is_empty());
}

#[test]
fn a_killed_proxy_leaves_nothing_that_the_next_doesnt_remove() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let _server = stage.nginx(true);
    drop(stage.proxy(&[]));
    assert!(stage.van.check("ip", &["rule"]).unwrap().contains("5201"), "SIGKILL gives no time to clean up");
    let users = stage.folder.path().join("users");
    std::fs::write(&users, "van:secret\n").unwrap();
    std::fs::set_permissions(&users, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let proxy = stage.proxy(&["--users", users.to_str().unwrap(), "--listen", "0.0.0.0:1080"]);
    let (code, received) = stage.curl(&["--proxy", &format!("socks5h://van:secret@{PROXY}"), &url("data")]);
    assert!(code == 0 && received == data, "{code}: {}", stage.log());
    let (code, received) =
        stage.curl(&["--proxytunnel", "--proxy", &format!("http://van:secret@{PROXY}"), &url("data")]);
    assert!(code == 0 && received == data, "{code}: {}", stage.log());
    for wrong in ["socks5h://van:public@", "socks5h://", "http://van:public@", "http://"] {
        let (code, _) = stage.curl(&["--proxytunnel", "--proxy", &format!("{wrong}{PROXY}"), &url("data")]);
        assert!([56, 97].contains(&code), "{wrong}: {code}");
    }
    assert!(proxy.terminate().success());
    assert!(!stage.van.check("ip", &["rule"]).unwrap().contains("520"));
    assert_eq!(stage.van.read_sysctl("net.ipv4.conf.up0.forwarding").unwrap(), "0");
}

const SECOND: Span = Span::from_secs(1);

/// A download during which the uplink that it was opened on is taken away by `cut`; returns the longest
/// stall, seconds.
fn interrupted(stage: &Stage, data: &[u8], cut: impl FnOnce()) -> f64 {
    let mut download = stage.download(&url("data"));
    download.read_until(|download| download.received.len() > data.len() / 4);
    let begin = download.now();
    cut();
    download.read_until(|_| false);
    assert!(
        download.received == data,
        "{} of {} bytes: {}",
        download.received.len(),
        data.len(),
        stage.log()
    );
    download.longest_gap(begin).as_secs_f64()
}

#[test]
fn the_uplink_that_a_connection_was_opened_on_is_cut_and_comes_back() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 24 * MIB);
    let _server = stage.nginx(true);
    let _proxy = stage.proxy(&["--json", "--probe", &format!("{SERVER}:80")]);
    // In silence.
    let stall = interrupted(&stage, &data, || stage.cut(0));
    assert!(stall < 1.0, "a stall of {stall:.2} s: {}", stage.log());
    stage.wait_for_state(0, "dead", 1);
    // It comes back while a download runs.
    let mut download = stage.download(&url("data"));
    download.read_until(|download| download.received.len() > data.len() / 8);
    let start = stage.received(0);
    stage.mend(0);
    let mended = download.now();
    download.read_until(|_| stage.received(0) > start + 100_000);
    let used = (download.now() - mended).as_secs_f64();
    download.read_until(|_| false);
    assert!(download.received == data && used < 2.0, "used again after {used:.2} s: {}", stage.log());
    // By the interface's going down, and its return with the routes that go with it.
    let stall = interrupted(&stage, &data, || stage::ip(&stage.van, "link set up0 down").unwrap());
    assert!(stall < 1.0, "a stall of {stall:.2} s: {}", stage.log());
    stage.wait_for_state(0, "without a route", 1);
    stage::ip(&stage.van, "link set up0 up").unwrap();
    stage::ip(&stage.van, "-6 address add fd01:0::2/64 dev up0 nodad").unwrap();
    stage::add_route(&stage.van, 0).unwrap();
    let start = stage.received(0);
    stage::wait_until("up0 is used again", || {
        stage.curl(&["--proxy", &format!("socks5h://{PROXY}"), "-r", "0-4000000", &url("data")]);
        stage.received(0) > start + 1_000_000
    });
}

/// How long links take to be left and used again:
/// `cargo test -p ropewalk --test proxy -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement of some minutes"]
fn measure_how_fast_dead_links_are_left_and_used_again() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 24 * MIB);
    let _server = stage.nginx(true);
    let _proxy = stage.proxy(&["--json", "--probe", &format!("{SERVER}:80")]);
    let (mut left, mut used) = (Vec::new(), Vec::new());
    for repeat in 0..25 {
        left.push(interrupted(&stage, &data, || stage.cut(0)));
        stage.wait_for_state(0, "dead", repeat + 1);
        let mut download = stage.download(&url("data"));
        download.read_until(|download| download.received.len() > data.len() / 8);
        let start = stage.received(0);
        stage.mend(0);
        let mended = download.now();
        download.read_until(|_| stage.received(0) > start + 100_000);
        used.push((download.now() - mended).as_secs_f64());
        download.read_until(|_| false);
        assert!(download.received == data);
    }
    for (what, times) in [("longest stall after a silent cut", &mut left), ("used again after", &mut used)] {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        println!("{what}: median {:.2} s, p95 {:.2} s, longest {:.2} s", at(0.5), at(0.95), at(1.0));
    }
}

#[test]
fn a_captive_portal_is_no_link() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 3 * MIB);
    let _server = stage.nginx(true);
    // Whoever asks over the first uplink gets the portal's page.
    let portal = "table ip portal { chain pre { type nat hook prerouting priority dstnat; iifname \"down0\" \
                  tcp dport 80 redirect to :8080; }; }";
    stage.web.check("nft", &[portal]).unwrap();
    let check = format!("http://{SERVER}/generate_204");
    let _proxy = stage.proxy(&["--json", "--captive-check", &check]);
    stage.wait_for_state(1, "up", 1);
    stage.wait_for_log("behind a captive portal");
    let start = stage.received(0);
    let (code, received) = stage.curl(&["--proxy", &format!("socks5h://{PROXY}"), &url("data")]);
    assert!(code == 0 && received == data, "{code}, {} bytes: {}", received.len(), stage.log());
    assert!(stage.received(0) - start < 100_000, "the portal's uplink was used: {}", stage.log());
    // Somebody has signed in.
    stage.web.check("nft", &["delete table ip portal"]).unwrap();
    stage.wait_for_state(0, "up", 1);
}

#[test]
fn a_captive_check_that_no_link_passes_isnt_believed() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 3 * MIB);
    let _server = stage.nginx(true);
    let _proxy = stage.proxy(&["--json", "--captive-check", &format!("http://{SERVER}/no-such-page")]);
    stage.wait_for_log("it isn't believed");
    let (carried, _) = shares(&stage, &data);
    assert!(carried.iter().all(|bytes| *bytes > 500_000.0), "{carried:?}: {}", stage.log());
    assert_eq!(stage.log().matches("it isn't believed").count(), 1);
}

#[test]
fn a_link_that_never_worked_costs_new_connections_nothing() {
    let Some(stage) = Stage::new() else { return };
    stage.serve("page", 1000);
    let _server = stage.nginx(true);
    stage.cut(0);
    let _proxy = stage.proxy(&["--json", "--verbose", "--probe", &format!("{SERVER}:80")]);
    for _ in 0..3 {
        let clock = ropewalk_host::clock::Clock::start();
        let (code, _) = stage.curl(&["--proxy", &format!("socks5h://{PROXY}"), &url("page")]);
        // A SYN in vain would be waited for, 250 ms.
        assert!(
            code == 0 && clock.now() < Time::ZERO + SECOND / 5,
            "{code}, {} ns: {}",
            clock.now(),
            stage.log()
        );
    }
    stage.wait_for_state(0, "not yet seen working", 1);
    stage.mend(0);
    stage.wait_for_state(0, "up", 1);
}

#[test]
fn requests_for_http_uris_are_forwarded() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 4 * MIB);
    stage.serve("page", 1000);
    let _server = stage.nginx(true);
    let _proxy = stage.proxy(&["--json", "--verbose"]);
    let start = [stage.received(0), stage.received(1)];
    let by = ["--proxy", &format!("http://{PROXY}")];
    let (code, received) = stage.curl(&[&by[..], &[&url("page"), &url("data")]].concat());
    assert!(code == 0 && received[1000..] == data, "{code}, {} bytes: {}", received.len(), stage.log());
    for (link, start) in start.into_iter().enumerate() {
        assert!(stage.received(link) - start > 500_000, "uplink {link}: {}", stage.log());
    }
    // The client's second request took the first one's connection.
    assert_eq!(stage.log().matches("\"open\"").count(), 1, "{}", stage.log());
    let (code, head) = stage.curl(&[&by[..], &["-I", &url("page")]].concat());
    let head = String::from_utf8_lossy(&head).to_lowercase();
    assert!(
        code == 0 && head.contains("via: 1.1 ropewalk") && head.contains("content-length: 1000"),
        "{head}"
    );
    // What the server says of a body, of a page that isn't there, and what can't be reached.
    let (_, code) = stage
        .curl(&[&by[..], &["-o", "/dev/null", "-w", "%{http_code}", "-d", "x=1", &url("page")]].concat());
    assert_eq!(code, b"405");
    for (url, expected) in [(url("no-such-page"), &b"404"[..]), (format!("http://{SERVER}:81/"), b"502")] {
        let (_, code) = stage.curl(&[&by[..], &["-o", "/dev/null", "-w", "%{http_code}", &url]].concat());
        assert_eq!(code, expected, "{url}: {}", stage.log());
    }
}

/// Downloads by SOCKS, and returns the bytes that each uplink carried for it, and the seconds.
fn shares(stage: &Stage, data: &[u8]) -> ([f64; 2], f64) {
    let start = [stage.received(0), stage.received(1)];
    let mut download = stage.download(&url("data"));
    download.read_until(|_| false);
    assert!(
        download.received == data,
        "{} of {} bytes: {}",
        download.received.len(),
        data.len(),
        stage.log()
    );
    let carried = [0, 1].map(|link| (stage.received(link) - start[link]) as f64);
    (carried, download.now().as_secs_f64())
}

#[test]
fn policies_choose_the_uplinks() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 8 * MIB);
    let all = data.len() as f64;
    let _server = stage.nginx(true);
    let usage = stage.path().join("usage.json");
    let usage = ["--json", "--usage", usage.to_str().unwrap()];
    for (vias, policy, used) in [
        (["up0,metered", "up1"], "save-metered", 1),
        (["up0", "up1"], "active-standby", 0),
        (["up0", "up1"], "load-balance 1:99", 1),
        (["up0", "up1"], "blest over up1", 1),
    ] {
        let proxy = stage.proxy_over(vias, &[&usage[..], &["--policy", policy]].concat());
        let (carried, _) = shares(&stage, &data);
        assert!(carried[1 - used] < all * 0.05, "{policy}: {carried:?} of {all}: {}", stage.log());
        assert!(proxy.terminate().success());
    }
    // A rule that begins in the middle of the connection.
    let rule =
        ["--policy", "active-standby over up0", "--rule", "port=80 size=2MiB then active-standby over up1"];
    let proxy = stage.proxy_over(["up0", "up1"], &[&usage[..], &rule].concat());
    let (carried, _) = shares(&stage, &data);
    assert!(carried[0] > 2e6 && carried[1] > 1e6, "{carried:?}: {}", stage.log());
    assert!(proxy.terminate().success());
    // A rate.
    let proxy = stage
        .proxy_over(["up0,rate=16Mbit/s", "up1"], &[&usage[..], &["--policy", "linux over up0"]].concat());
    let (_, seconds) = shares(&stage, &data);
    let rate = all * 8.0 / seconds / 1e6;
    // After a pause a second of it may pass at once.
    assert!((8.0..26.0).contains(&rate), "{rate:.1} of 16 Mbit/s, and 40 without a limit");
    assert!(proxy.terminate().success());
    // A quota, which a restart doesn't give again.
    let vias = ["up0,quota=2MB/daily", "up1"];
    let proxy = stage.proxy_over(vias, &[&usage[..], &["--policy", "active-standby"]].concat());
    let (carried, _) = shares(&stage, &data);
    // Use is counted every second: 5 MB more at 40 Mbit/s.
    assert!(carried[0] < all * 0.95 && carried[1] > 0.0, "{carried:?}: {}", stage.log());
    stage.wait_for_state(0, "over its quota", 1);
    assert!(proxy.terminate().success());
    let _proxy = stage.proxy_over(vias, &[&usage[..], &["--policy", "active-standby"]].concat());
    stage.wait_for_state(0, "over its quota", 2);
    let (carried, _) = shares(&stage, &data);
    assert!(carried[0] < all * 0.05, "{carried:?}: {}", stage.log());
}

#[test]
fn the_gateway_is_a_far_end() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 6 * MIB);
    let _server = stage.nginx(false);
    let mut gateway = stage.web.command(env!("CARGO_BIN_EXE_ropewalkd"));
    // An address of the loopback interface, whose MTU is larger than a TUN device's.
    gateway.args(["gateway", "--listen", &format!("{SERVER}:8443"), "--address", "10.1.1.1"]);
    gateway.args(["--to", "localhost:80"]);
    let log = std::fs::File::create(stage.path().join("gateway.log")).unwrap();
    gateway.stderr(log);
    let gateway = stage::Running::start(gateway);
    let said = || std::fs::read_to_string(stage.path().join("gateway.log")).unwrap_or_default();
    stage::wait_until("the gateway is set up", || {
        stage.web.check("nft", &["list", "ruleset"]).is_ok_and(|text| text.contains("ropewalk_gateway"))
    });
    let proxy = stage.proxy(&["--json"]);
    let far = &format!("http://{SERVER}:8443/data");
    let start = [stage.received(0), stage.received(1)];
    let (code, received) =
        stage.curl(&["--retry", "3", "--retry-all-errors", "--proxy", &format!("socks5h://{PROXY}"), far]);
    assert!(code == 0 && received == data, "{code}, {} bytes: {} {}", received.len(), stage.log(), said());
    for (link, start) in start.into_iter().enumerate() {
        let bytes = stage.received(link) - start;
        assert!(bytes > 1_000_000, "uplink {link} carried {bytes} bytes: {} {}", stage.log(), said());
    }
    assert!(proxy.terminate().success() && gateway.terminate().success());
}

#[test]
fn a_router_takes_connections_of_hosts_that_know_nothing_of_it() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 6 * MIB);
    let _server = stage.nginx(true);
    let lan = stage.neighbour();
    let _proxy = stage.proxy(&["--json", "--transparent", "lan0"]);
    let start = [stage.received(0), stage.received(1)];
    let output = lan.command("curl").args(["-sS", "--max-time", "30", &url("data")]).output().unwrap();
    assert!(output.stdout == data, "{} bytes: {}", output.stdout.len(), stage.log());
    for (link, start) in start.into_iter().enumerate() {
        assert!(stage.received(link) - start > 1_000_000, "uplink {link}: {}", stage.log());
    }
    // Neither the port itself nor the SOCKS port is there for others.
    for port in [1080, 1081] {
        let direct = format!("http://10.2.0.1:{port}/");
        let output = lan.command("curl").args(["-sS", "--max-time", "5", &direct]).output().unwrap();
        assert!(output.stdout.is_empty() && !output.status.success(), "port {port}");
    }
}

/// What the server's kernel has counted.
fn counted(stage: &Stage, name: &str) -> u64 {
    let counters = stage.web.run(ropewalk_host::kernel::counters).unwrap();
    counters.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
}

#[test]
fn connections_race_over_both_uplinks_and_the_loser_is_joined() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 4 * MIB);
    let _server = stage.nginx(true);
    // The SYNs that the server saw.
    let syns = |open_on| {
        let counters = ["MPTcpExtMPCapableSYNRX", "MPTcpExtMPJoinAckRx"];
        let start = counters.map(|name| counted(&stage, name));
        let proxy = stage.proxy(&["--verbose", "--open-on", open_on]);
        let (carried, _) = shares(&stage, &data);
        assert!(carried.iter().all(|bytes| *bytes > 400_000.0), "{open_on}: {carried:?}: {}", stage.log());
        assert!(proxy.terminate().success());
        let [tried, joined] = [0, 1].map(|at| counted(&stage, counters[at]) - start[at]);
        assert!(joined >= 1, "{open_on}: {}", stage.log());
        tried
    };
    assert_eq!(syns("nearest"), 1);
    // Without delays the first SYN may be answered before the second has left.
    assert!((0..8).any(|_| syns("race") == 2));
}

#[test]
fn connections_open_on_the_uplink_that_earlier_ones_found_best() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 2 * MIB);
    let _server = stage.nginx(true);
    let shape = "qdisc replace dev down0 root tbf rate 2mbit burst 16k latency 100ms";
    stage.web.check("tc", &shape.split_whitespace().collect::<Vec<_>>()).unwrap();
    let _proxy = stage.proxy(&["--json", "--verbose"]);
    for link in [0, 1] {
        shares(&stage, &data);
        let log = stage.log();
        let opened = log.lines().rfind(|line| line.contains("\"open\"")).unwrap_or_default();
        assert!(opened.contains(&format!("\"up{link}\"")), "{opened}");
    }
}

/// Runs the program; its exit code, what it printed, and what it complained of.
fn ropewalk(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_ropewalkd")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_dry_run_shows_the_set_up() {
    // The example of --help.
    let (code, shown, _) = ropewalk(&["proxy", "--via", "wlan0", "--via", "wwan0,metered", "--dry-run"]);
    assert_eq!(code, Some(0));
    for needed in
        ["# TUN device ropeproxy1", "oifname \"wwan0\" masquerade", "ip -4 rule add priority 5200 from"]
    {
        assert!(shown.contains(needed), "{needed}: {shown}");
    }
    assert!(shown.contains("# wwan0 has no address or no default route now"), "{shown}");
    let (_, json, _) = ropewalk(&["proxy", "--via", "wlan0", "--dry-run", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(value["setup"].as_array().is_some_and(|lines| lines.len() > 5), "{json}");
    assert_eq!(value["devices"][0]["interface"], "wlan0");
}

#[test]
fn mistakes_are_refused_in_words() {
    for (arguments, expected) in [
        (&["--via", "a", "--listen", "0.0.0.0:1080"][..], "name users or allowed networks"),
        (&["--via", "a", "--via", "a"], "two links have the name `a`"),
        (&["--via", "a", "--via", "a,name=b"], "two uplinks have the interface `a`: each needs a `gateway`"),
        (&["--via", "eth2:1"], "`eth2:1` is the label of an address; expected its interface, `eth2`"),
        (&["--via", "a,fast"], "unknown key `fast` in a `link`"),
        (&["--via", "a", "--users", "/nonexistent"], "/nonexistent"),
        (&["--via", "a", "--policy", "minrt"], "minrtt"),
        (&["--via", "a", "--policy", "redundant over b"], "which is no uplink"),
        (&["--via", "a", "--rule", "port=22"], "needs `policy`"),
        (&["--via", "a", "--transparent", "a"], "expected an interface that is no uplink"),
        (&["--via", "a", "--allow", "10.0.0.0/33"], "expected a network such as"),
        (&["--via", "a", "--mtu", "9"], "`mtu` must be a whole number from 576 to 65535"),
        (&["--via", "a", "--gateway-ready", "2"], "`gateway-ready` goes with `gateway`"),
        (&["--via", "a", "--captive-check", "https://example.org/"], "expected http://HOST/PATH"),
        (&["--via", "a", "--probe-budget", "much"], "--probe-budget"),
        (&["--config", "p.toml", "--open-on", "race"], "can't be used with --config"),
        (&["--config", "p.toml", "--join", "late"], "can't be used with --config"),
        (&["--via", "a", "--metrics", "10.0.0.1:99"], "metrics are for this host only"),
        (&[], "--via"),
    ] {
        let (code, _, error) = ropewalk(&[&["proxy"], arguments].concat());
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
