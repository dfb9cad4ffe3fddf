//! Networks as they are: default routes of every kind, that change while a proxy runs, links of different
//! MTU, and programs that undo the set-up. IPv4 and IPv6.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use ropewalk_engine::Time;
use ropewalk_host::clock::Clock;

use super::stage::{self, PROXY, SERVER, Stage};
use super::{MIB, SECOND, shares, url};

/// Default routes over both uplinks. `{f}`: the family, `{0}` and `{1}`: the next hops, `{id}`: a number,
/// `{n}`: a network.
const ROUTES: &[(&str, &[&str])] = &[
    ("ECMP", &["{f} route add default nexthop via {0} dev up0 weight 1 nexthop via {1} dev up1 weight 3"]),
    (
        "nexthop group",
        &[
            "{f} nexthop add id {id}1 via {0} dev up0",
            "{f} nexthop add id {id}2 via {1} dev up1",
            "nexthop add id {id}3 group {id}1/{id}2",
            "{f} route add default nhid {id}3",
        ],
    ),
    (
        "a nexthop for each",
        &[
            "{f} nexthop add id {id}1 via {0} dev up0",
            "{f} nexthop add id {id}2 via {1} dev up1",
            "{f} route add default nhid {id}1 metric 10",
            "{f} route add default nhid {id}2 metric 20",
        ],
    ),
    (
        "tables of their own",
        &[
            "{f} route add default via {0} dev up0 table 101",
            "{f} rule add from {n}0::/64 lookup 101",
            "{f} route add default via {1} dev up1 table 900",
            "{f} rule add oif up1 lookup 900",
            // Not what a rule names.
            "{f} route add default via {0}9 dev up0 table 77",
        ],
    ),
    (
        "metrics",
        &[
            "{f} route add default via {0}9 dev up0 metric 900",
            "{f} route add default via {0} dev up0 metric 9",
            "{f} route add default via {1} dev up1 metric 5000",
        ],
    ),
    (
        "on link",
        &[
            "{f} route add default via {0} dev up0 onlink",
            "{f} route add default via {1} dev up1 onlink metric 7",
        ],
    ),
];

fn words(line: &str, v6: bool) -> String {
    let all = match v6 {
        false => [
            ("{f}", "-4"),
            ("{n}0::/64", "10.1.0.0/24"),
            ("{0}", "10.1.0.1"),
            ("{1}", "10.1.1.1"),
            ("{id}", "4"),
        ],
        true => [
            ("{f}", "-6"),
            ("{n}0::/64", "fd01:0::/64"),
            ("{0}", "fd01:0::1"),
            ("{1}", "fd01:1::1"),
            ("{id}", "6"),
        ],
    };
    all.iter().fold(line.to_string(), |line, (name, value)| line.replace(name, value))
}

/// Takes all default routes and rules away, and sets these.
fn set_routes(stage: &Stage, lines: &[&str]) {
    for family in ["-4", "-6"] {
        for table in ["main", "101", "900", "77"] {
            let _ = stage::ip(&stage.van, &format!("{family} route flush default table {table}"));
            for _ in 0..2 {
                let _ = stage::ip(&stage.van, &format!("{family} rule del table {table} priority 32765"));
                let _ = stage::ip(&stage.van, &format!("{family} rule del table {table} priority 32764"));
            }
        }
    }
    let _ = stage::ip(&stage.van, "nexthop flush");
    for v6 in [false, true] {
        lines.iter().for_each(|line| stage::ip(&stage.van, &words(line, v6)).unwrap());
    }
}

#[test]
fn next_hops_are_found_in_default_routes_of_every_kind() {
    let Some(stage) = Stage::new() else { return };
    // With the second mode the kernel tells of a route by nexthop objects only their numbers.
    for (mode, (what, lines)) in ["1", "0"].iter().flat_map(|mode| ROUTES.iter().map(move |one| (mode, one)))
    {
        set_routes(&stage, lines);
        stage.van.sysctl("net.ipv4.nexthop_compat_mode", mode).unwrap();
        let line = ["proxy", "--via", "up0", "--via", "up1", "--dry-run", "--status", "none"];
        let output = stage.van.command(env!("CARGO_BIN_EXE_ropewalkd")).args(line).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        for needed in [
            "-4 route replace default via 10.1.0.1 dev up0 onlink metric 1 table 5200",
            "-4 route replace default via 10.1.1.1 dev up1 onlink metric 1 table 5201",
            "-6 route replace default via fd01::1 dev up0 onlink metric 1 table 5200",
            "-6 route replace default via fd01:1::1 dev up1 onlink metric 1 table 5201",
        ] {
            assert!(shown.contains(needed), "{what}, mode {mode}: {needed} is missing in:\n{shown}");
        }
    }
    // An IPv4 route by a next hop of IPv6 (RFC 5549), and none at all.
    set_routes(&stage, &[]);
    stage::ip(&stage.van, "-4 route add default via inet6 fd01:0::1 dev up0").unwrap();
    let line = ["proxy", "--via", "up0", "--via", "up1", "--dry-run", "--status", "none"];
    let output = stage.van.command(env!("CARGO_BIN_EXE_ropewalkd")).args(line).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.contains("-4 route replace default via inet6 fd01::1 dev up0 onlink metric 1 table 5200"),
        "{shown}"
    );
    assert!(shown.contains("# up1 has no address or no default route now"), "{shown}");
}

#[test]
fn routes_that_change_are_followed() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 4 * MIB);
    let _server = stage.nginx(true);
    let _proxy = stage.proxy(&["--json"]);
    stage.van.sysctl("net.ipv4.nexthop_compat_mode", "0").unwrap();
    for (what, lines) in ROUTES {
        set_routes(&stage, lines);
        std::thread::sleep(Duration::from_millis(300));
        let (carried, _) = shares(&stage, &data);
        assert!(carried.iter().all(|bytes| *bytes > 400_000.0), "{what}: {carried:?}: {}", stage.log());
        let start = [stage.received(0), stage.received(1)];
        let by = format!("socks5h://{PROXY}");
        let (code, received) = stage.curl(&["--proxy", &by, "http://[fd09::9]/data"]);
        assert!(code == 0 && received == data, "{what}: {code}: {}", stage.log());
        for (link, start) in start.into_iter().enumerate() {
            assert!(stage.received(link) - start > 400_000, "{what}: IPv6, uplink {link}: {}", stage.log());
        }
    }
}

#[test]
fn what_other_programs_undo_is_repaired() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let _server = stage.nginx(true);
    let proxy = stage.proxy(&["--json"]);
    let by = format!("socks5h://{PROXY}");
    for (line, said) in [
        ("nft flush ruleset", "nftables' rules"),
        ("nft flush table inet ropewalk_proxy", "nftables' rules"),
        ("sysctl -w net.ipv4.ip_forward=1", ""),
        ("sysctl -w net.ipv4.ip_forward=0", "ropeproxy0"),
        ("sysctl -w net.ipv4.conf.up1.forwarding=0", "sysctl net/ipv4/conf/up1/forwarding"),
        ("ip rule flush protocol 212", "the routing rule of ropeproxy1"),
        ("ip -6 rule flush protocol 212", "the routing rule of ropeproxy0"),
        ("ip route flush table 5200", "the routing table 5200"),
        ("ip -6 route flush table 5201", "the routing table 5201"),
        ("ip route del 198.19.200.2/31", "ropeproxy0"),
        ("ip address flush dev ropeproxy1", "ropeproxy1"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        stage.van.check(words[0], &words[1..]).unwrap();
        for url in [url("data"), "http://[fd09::9]/data".into()] {
            let clock = Clock::start();
            loop {
                let (code, received) = stage.curl(&["--max-time", "2", "--proxy", &by, &url]);
                if code == 0 && received == data {
                    break;
                }
                assert!(clock.now() < Time::ZERO + 8 * SECOND, "{line}: {url}: {}", stage.log());
            }
        }
        stage.wait_for_log(said);
    }
    assert!(proxy.terminate().success());
    assert_eq!(stage.van.read_sysctl("net.ipv4.conf.up0.forwarding").unwrap(), "0");
    assert!(!stage.van.check("ip", &["rule"]).unwrap().contains("520"));
}

#[test]
fn two_next_hops_on_one_interface_are_two_links() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 4 * MIB);
    let _server = stage.nginx(true);
    // Another router of the first network, as far as the van can tell.
    stage::ip(&stage.web, "address add 10.1.0.3/24 dev down0").unwrap();
    let vias = ["up0,gateway=10.1.0.1", "up0,name=second,gateway=10.1.0.3"];
    let socket = stage.path().join("status.sock");
    let _proxy = stage.proxy_over(vias, &["--json", "--status", socket.to_str().unwrap()]);
    let (_, _) = shares(&stage, &data);
    let told = stage
        .van
        .check(env!("CARGO_BIN_EXE_ropewalkd"), &["status", "--json", "--socket", socket.to_str().unwrap()]);
    let told: serde_json::Value = serde_json::from_str(&told.unwrap()).unwrap();
    for (link, (name, hop)) in [("up0", "10.1.0.1"), ("second", "10.1.0.3")].into_iter().enumerate() {
        let link = &told["links"][link];
        assert_eq!((&link["interface"], &link["next_hop"]), (&name.into(), &hop.into()), "{told:#}");
        assert_eq!(link["network_interface"], "up0");
        assert!(link["bytes_received"].as_u64() > Some(400_000), "{told:#}");
    }
}

/// Single packets leave both ends of an uplink, not what segmentation offload makes of several: the shaper's
/// bucket holds no more than one.
fn single_packets(stage: &Stage, link: usize) {
    for (namespace, device) in [(&stage.van, "up"), (&stage.web, "down")] {
        let shape = format!("qdisc replace dev {device}{link} root tbf rate 40mbit burst 1600 latency 60ms");
        namespace.check("tc", &shape.split_whitespace().collect::<Vec<_>>()).unwrap();
    }
}

/// An uplink whose interface takes packets of `mtu` bytes. The far side's larger ones vanish without a word.
fn narrow_interface(stage: &Stage, link: usize, mtu: u32) {
    single_packets(stage, link);
    stage::ip(&stage.van, &format!("link set dev up{link} mtu {mtu}")).unwrap();
}

/// Beyond an uplink's interface packets of more than `bytes` vanish, both ways.
fn narrow_path(stage: &Stage, link: usize, bytes: u32) {
    single_packets(stage, link);
    for (namespace, device) in [(&stage.van, "up"), (&stage.web, "down")] {
        let script = format!(
            "table netdev narrow{link} {{ chain cut {{ type filter hook ingress device {device}{link} \
             priority 0; meta length > {bytes} drop; }}; }}"
        );
        namespace.check("nft", &[&script]).unwrap();
    }
}

#[test]
fn an_interface_of_a_small_mtu_carries_downloads() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let by = format!("socks5h://{PROXY}");
    for (mtu, multipath) in [(1466, true), (1492, false), (1280, true)] {
        let _server = stage.nginx(multipath);
        narrow_interface(&stage, 0, mtu);
        let proxy = stage.start(&["--via", "up0", "--json"]);
        for url in [url("data"), "http://[fd09::9]/data".into()] {
            let clock = Clock::start();
            let (code, received) = stage.curl(&["--proxy", &by, &url]);
            let seconds = clock.now().as_secs_f64();
            assert!(
                code == 0 && received == data,
                "{mtu}: {url}: {code}, {} B: {}",
                received.len(),
                stage.log()
            );
            assert!(seconds < 2.0, "{mtu}: {url}: {seconds:.1} s");
        }
        assert!(proxy.terminate().success());
    }
    // It changes while the proxy runs.
    let _server = stage.nginx(true);
    stage::ip(&stage.van, "link set dev up0 mtu 1500").unwrap();
    let _proxy = stage.start(&["--via", "up0", "--json"]);
    stage::ip(&stage.van, "link set dev up0 mtu 1300").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let (code, received) = stage.curl(&["--max-time", "3", "--proxy", &by, &url("data")]);
    assert!(code == 0 && received == data, "{code}, {} B: {}", received.len(), stage.log());
}

#[test]
fn a_link_of_small_packets_carries_its_share_beside_a_good_one() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 8 * MIB);
    let _server = stage.nginx(true);
    narrow_interface(&stage, 0, 1280);
    let _proxy = stage.proxy(&["--json"]);
    for server in [SERVER, "[fd09::9]"] {
        assert_share(&stage, server, &data, 0, 0.3);
    }
}

/// An uplink carries at least a share of a download: of one of ten, since in a single one a busy host may
/// keep either link waiting.
fn assert_share(stage: &Stage, server: &str, data: &[u8], link: usize, least: f64) {
    let links = 0..stage.van.check("ip", &["-o", "link"]).unwrap().matches(" up").count();
    let mut seen = Vec::new();
    for _ in 0..10 {
        let start: Vec<u64> = links.clone().map(|link| stage.received(link)).collect();
        let by = format!("socks5h://{PROXY}");
        let (code, received) = stage.curl(&["--proxy", &by, &format!("http://{server}/data")]);
        assert!(code == 0 && received == data, "{server}: {code}: {}", stage.log());
        let carried: Vec<u64> = links.clone().map(|link| stage.received(link) - start[link]).collect();
        let share = carried[link] as f64 / carried.iter().sum::<u64>().max(1) as f64;
        if share > least {
            return;
        }
        seen.push(carried);
    }
    panic!("{server}, uplink {link}: {seen:?}: {}", stage.log());
}

#[test]
fn three_links_of_three_mtus_carry_their_shares() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 8 * MIB);
    let _server = stage.nginx(true);
    stage::add_uplink(&stage.van, &stage.web, 2).unwrap();
    for (link, mtu) in [(0, 1280), (1, 1466), (2, 1500)] {
        narrow_interface(&stage, link, mtu);
    }
    let _proxy = stage.start(&["--via", "up0", "--via", "up1", "--via", "up2", "--json"]);
    for server in [SERVER, "[fd09::9]"] {
        for link in 0..3 {
            assert_share(&stage, server, &data, link, 0.2);
        }
    }
}

/// A server that takes requests with `bytes` of data, one after another.
fn take_uploads(stage: &Stage, bytes: usize) {
    let listener = stage.web.run(|| TcpListener::bind((SERVER, 8081))).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let (mut taken, mut buffer) = (0, vec![0; 64 << 10]);
            // Most of it is as good as all: the head counts, too.
            while taken < bytes {
                match client.read(&mut buffer) {
                    Ok(len @ 1..) => taken += len,
                    _ => break,
                }
            }
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = std::io::copy(&mut client, &mut std::io::sink());
        }
    });
}

#[test]
fn a_path_that_drops_large_packets_is_found_and_named() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 2 * MIB);
    let _server = stage.nginx(false);
    let mut gateway = stage.web.command(env!("CARGO_BIN_EXE_ropewalkd"));
    let cookie = stage.path().join("cookie");
    let cookie = cookie.to_str().unwrap();
    stage.web.check(env!("CARGO_BIN_EXE_ropewalkd"), &["keys", "cookie", cookie]).unwrap();
    gateway.args([
        "gateway",
        "--listen",
        &format!("{SERVER}:8443"),
        "--convert",
        "10.9.9.9",
        "--status",
        "none",
    ]);
    gateway.args(["--cookie", cookie]);
    gateway.stderr(std::fs::File::create(stage.path().join("gateway.log")).unwrap());
    let _gateway = stage::Running::start(gateway);
    stage::wait_until("the gateway is set up", || {
        stage.web.check("nft", &["list", "ruleset"]).is_ok_and(|text| text.contains("ropewalk_gateway"))
    });
    narrow_path(&stage, 0, 1300);
    let socket = stage.path().join("status.sock");
    let far = format!("{SERVER}:8443");
    let _proxy = stage.start(&[
        "--via",
        "up0",
        "--json",
        "--gateway",
        &far,
        "--gateway-cookie",
        cookie,
        "--status",
        socket.to_str().unwrap(),
    ]);
    let by = format!("socks5h://{PROXY}");
    let upload = stage.path().join("up");
    std::fs::write(&upload, &data).unwrap();
    let (put, taker) = (upload.display().to_string(), format!("http://{SERVER}:8081/"));
    take_uploads(&stage, data.len());
    // Upwards the proxy finds it, downwards the gateway.
    let up = ["--proxy", &by, "--max-time", "12", "-T", &put, &taker];
    let (code, _) = stage.curl(&up);
    assert_eq!(code, 0, "{}", stage.log());
    let (code, received) = stage.curl(&["--proxy", &by, "--max-time", "12", &url("data")]);
    assert!(code == 0 && received == data, "{code}, {} B: {}", received.len(), stage.log());
    stage.wait_for_log("it carries small packets only");
    let told =
        stage.van.check(env!("CARGO_BIN_EXE_ropewalkd"), &["status", "--socket", socket.to_str().unwrap()]);
    assert!(told.as_ref().is_ok_and(|text| text.contains("carries packets of up to ")), "{told:?}");
    // What was found holds for the next connections, both ways.
    for line in [&up[..], &["--proxy", &by, "-o", "/dev/null", &url("data")]] {
        let clock = Clock::start();
        let (code, _) = stage.curl(line);
        let seconds = clock.now().as_secs_f64();
        assert!(code == 0 && seconds < 2.0, "{code} after {seconds:.1} s: {}", stage.log());
    }
}

#[test]
fn a_translator_that_loses_its_state_is_noticed_under_a_download() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 48 * MIB);
    let _server = stage.nginx(true);
    let _proxy = stage.proxy(&["--json", "--verbose"]);
    let mut download = stage.download(&url("data"));
    download.read_until(|download| download.received.len() > data.len() / 16);
    // From now on the server's packets to the subflow's port are lost, and those that come from it are of
    // nobody it knows.
    let sockets = stage.web.check("ss", &["-Htn", "src", "10.9.9.9:80", "dst", "10.1.0.2"]).unwrap();
    let port = sockets.split_whitespace().last().and_then(|peer| peer.rsplit_once(':')).unwrap().1;
    let rules = format!(
        "table ip rebound {{ chain out {{ type filter hook output priority 0; oifname \"down0\" tcp dport \
         {port} tcp flags & rst == 0 drop; }}
         chain in {{ type filter hook input priority 0; iifname \"down0\" tcp sport {port} reject with tcp \
         reset; }}; }}"
    );
    let begin = download.now();
    stage.web.check("nft", &[&rules]).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let start = stage.received(0);
    download.read_until(|_| stage.received(0) > start + 400_000);
    let used = (download.now() - begin).as_secs_f64();
    download.read_until(|_| false);
    let gap = download.longest_gap(begin).as_secs_f64();
    assert!(download.received == data && gap < 1.0, "a stall of {gap:.2} s: {}", stage.log());
    assert!(used < 4.0, "used again after {used:.1} s: {}", stage.log());
}

/// A link goes down at any moment of the start: the proxy serves over the other, and over both again later.
#[test]
fn a_link_that_goes_down_at_the_start_ends_nothing() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 100_000);
    let _server = stage.nginx(true);
    for delay in (0..220).step_by(20) {
        let proxy = std::thread::scope(|scope| {
            let cutting = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(delay));
                stage::ip(&stage.van, "link set up1 down").unwrap();
            });
            let proxy = stage.proxy(&[]);
            cutting.join().unwrap();
            proxy
        });
        let (code, received) = stage.curl(&["--proxy", &format!("socks5h://{PROXY}"), &url("data")]);
        assert!(code == 0 && received == data, "after {delay} ms: {code}: {}", stage.log());
        stage::ip(&stage.van, "link set up1 up").unwrap();
        stage::ip(&stage.van, "route add default via 10.1.1.1 dev up1 metric 101").unwrap();
        assert!(proxy.terminate().success(), "after {delay} ms: {}", stage.log());
    }
}
