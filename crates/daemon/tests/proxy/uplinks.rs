//! Uplinks through a day: addresses that are renewed, interfaces that vanish and come back, a host that is
//! suspended, a clock that is set.

use std::time::Duration;

use ropewalk_host::skip::skipped;

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

/// With one uplink all stands still while it is gone, but goes on at once when it is back: not as late as a
/// retransmission timer that has doubled meanwhile, nor never, as after a RST.
#[test]
fn a_lone_uplink_that_comes_back_carries_at_once() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 24 * MIB);
    let _server = stage.nginx(true);
    let _proxy = stage.start(&["--via", "up0", "--json", "--listen", "127.0.0.1:1080"]);
    let route = "route replace default via 10.1.0.1 dev up0 metric 100";
    let gone = Duration::from_secs(7);
    let run = |lines: &[&str]| lines.iter().for_each(|line| stage::ip(&stage.van, line).unwrap());
    type Act<'a> = &'a dyn Fn();
    let cases: [(&str, Duration, Act<'_>, Act<'_>); 4] = [
        ("silent", gone, &|| stage.cut(0), &|| stage.mend(0)),
        (
            "another address at once",
            Duration::ZERO,
            &|| run(&["-4 address flush dev up0 scope global", "address add 10.1.0.8/24 dev up0", route]),
            &|| {},
        ),
        ("down", gone, &|| run(&["link set up0 down"]), &|| run(&["link set up0 up", route])),
        ("another address", gone, &|| run(&["-4 address flush dev up0 scope global"]), &|| {
            run(&["address add 10.1.0.9/24 dev up0", route]);
        }),
    ];
    for (what, gone, cut, mend) in cases {
        let stall = interrupted(&stage, &data, || {
            cut();
            std::thread::sleep(gone);
            mend();
        });
        let late = stall - gone.as_secs_f64();
        assert!(late < 2.0, "{what}: {late:.2} s after it was back: {}", stage.log());
    }
}

/// A connection that is opened while the only uplink is dead waits for that, not for the SYN's next
/// repetition.
#[test]
fn a_connection_opened_while_the_only_uplink_is_dead_is_open_once_it_is_back() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 1000);
    let _server = stage.nginx(true);
    let _proxy =
        stage.start(&["--via", "up0", "--probe", "10.9.9.9:80", "--listen", "127.0.0.1:1080", "--json"]);
    wait_for(&stage, &data);
    stage.cut(0);
    stage.wait_for_state(0, "dead", 1);
    // SYNs go out now, and after 1 and 3 s; the next would after 7.
    let mut download = stage.download(&url("data"));
    std::thread::sleep(Duration::from_millis(4500));
    stage.mend(0);
    let mended = download.now();
    download.read_until(|_| false);
    assert!(download.received == data, "{} bytes: {}", download.received.len(), stage.log());
    let late = (download.now() - mended).as_secs_f64();
    assert!(late < 2.0, "{late:.2} s after it was back: {}", stage.log());
}

/// In a handover no uplink has a route for a moment, or only one that is silent: a connection that is opened
/// then takes the next as soon as it is there.
#[test]
fn a_connection_opened_in_a_handover_takes_the_next_uplink() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 1000);
    let _server = stage.nginx(true);
    let proxy = stage.proxy(&["--probe", "10.9.9.9:80", "--json"]);
    wait_for(&stage, &data);
    let flush = |link: usize| {
        for family in ["-4", "-6"] {
            stage::ip(&stage.van, &format!("{family} route flush default dev up{link}")).unwrap();
        }
    };
    flush(1);
    stage.wait_for_state(1, "without a route", 1);
    for is_silent in [true, false] {
        if is_silent {
            stage.cut(0);
        } else {
            flush(0);
            stage.wait_for_state(0, "without a route", 1);
        }
        let mut download = stage.download(&url("data"));
        std::thread::sleep(Duration::from_millis(1500));
        stage::add_route(&stage.van, 1).unwrap();
        let there = download.now();
        download.read_until(|_| false);
        let late = (download.now() - there).as_secs_f64();
        assert!(download.received == data && late < 1.5, "silent: {is_silent}: {late:.2} s: {}", stage.log());
        if is_silent {
            stage.mend(0);
            flush(1);
            stage.wait_for_state(1, "without a route", 2);
            stage.wait_for_state(0, "up", 1);
        }
    }
    assert!(proxy.terminate().success());
}

/// A plain TCP connection outlives an interface that is down for a moment, as a program's own does on this
/// host, though the kernel forgets then what it masquerades. With another address it ends at once.
#[test]
fn a_plain_connection_outlives_its_interfaces_moment_down() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 12 * MIB);
    let _server = stage.nginx(false);
    let _proxy = stage.start(&["--via", "up0", "--json", "--listen", "127.0.0.1:1080"]);
    let restore = "route replace default via 10.1.0.1 dev up0 metric 100";
    let stall = interrupted(&stage, &data, || {
        stage::ip(&stage.van, "link set up0 down").unwrap();
        std::thread::sleep(Duration::from_secs(1));
        ["link set up0 up", restore].iter().for_each(|line| stage::ip(&stage.van, line).unwrap());
    });
    assert!(stall < 4.0, "a stall of {stall:.2} s: {}", stage.log());
    // Its IPv4 address is away for a moment, as some DHCP clients have it, and the one in IPv6 stays.
    let stall = interrupted(&stage, &data, || {
        stage::ip(&stage.van, "-4 address flush dev up0 scope global").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        stage::ip(&stage.van, "address add 10.1.0.2/24 dev up0").unwrap();
        stage::ip(&stage.van, restore).unwrap();
    });
    assert!(stall < 4.0, "without an address: a stall of {stall:.2} s: {}", stage.log());
    let mut download = stage.download(&url("data"));
    download.read_until(|download| download.received.len() > data.len() / 4);
    let begin = download.now();
    let lines =
        ["link set up0 down", "address flush dev up0", "address add 10.1.0.9/24 dev up0", "link set up0 up"];
    lines.iter().for_each(|line| stage::ip(&stage.van, line).unwrap());
    stage::ip(&stage.van, restore).unwrap();
    download.read_until(|_| false);
    assert!(download.received.len() < data.len());
    let late = (download.now() - begin).as_secs_f64();
    assert!(late < 3.0, "it ended {late:.2} s after its address was gone: {}", stage.log());
    wait_for(&stage, &data);
}

/// An uplink has several IPv6 addresses, of which one is taken away. Connections that had it go on at once by
/// another, or end if they are plain TCP; the others aren't touched.
#[test]
fn one_of_several_addresses_is_taken_away() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 8 * MIB);
    for multipath in [true, false] {
        let _server = stage.nginx(multipath);
        let what = format!("multipath: {multipath}");
        for address in ["fd01:0::7", "fd01:0::8"] {
            stage::ip(&stage.van, &format!("-6 address replace {address}/64 dev up0 nodad")).unwrap();
        }
        let proxy = stage.start(&["--via", "up0", "--json", "--listen", "127.0.0.1:1080"]);
        for is_own in [false, true] {
            let mut download = stage.download("http://[fd09::9]/data");
            download.read_until(|download| download.received.len() > data.len() / 8);
            let sockets = stage.web.check("ss", &["-Htn", "state", "established", "sport = :80"]).unwrap();
            let own = ["fd01::2", "fd01::7", "fd01::8"]
                .into_iter()
                .find(|address| sockets.contains(&format!("[{address}]")))
                .unwrap_or_else(|| panic!("{what}: {sockets}"));
            let gone = if is_own {
                own
            } else if own == "fd01::7" {
                "fd01::8"
            } else {
                "fd01::7"
            };
            let begin = download.now();
            stage::ip(&stage.van, &format!("-6 address del {gone}/64 dev up0")).unwrap();
            download.read_until(|_| false);
            let late = (download.now() - begin).as_secs_f64();
            let stall = download.longest_gap(begin).as_secs_f64();
            if is_own && !multipath {
                assert!(download.received.len() < data.len());
                assert!(late < 3.0, "it ended {late:.2} s after its address was gone: {}", stage.log());
            } else {
                assert!(download.received == data, "{what}, own: {is_own}: {}", stage.log());
                assert!(stall < 2.0, "{what}, own: {is_own}: {stall:.2} s: {}", stage.log());
            }
        }
        assert!(proxy.terminate().success());
        stage::ip(&stage.van, "-6 address replace fd01:0::2/64 dev up0 nodad").unwrap();
        stage::ip(&stage.van, "-6 route replace default via fd01:0::1 dev up0 metric 100").unwrap();
    }
}

/// Waits until a download succeeds.
fn wait_for(stage: &Stage, data: &[u8]) {
    stage::wait_until("a download succeeds", || {
        stage.curl(&["--proxy", "socks5h://127.0.0.1:1080", &url("data")]).1 == data
    });
}

/// What udhcpc runs: `ip` with what the lease says.
const LEASE: &str = r#"#!/bin/sh
case "$1" in
deconfig) ip -4 address flush dev "$interface"; ip link set "$interface" up ;;
bound | renew)
    held=$(ip -4 -o address show dev "$interface" | grep -c " $ip/")
    [ "$held" = 1 ] || ip -4 address flush dev "$interface"
    ip address replace "$ip/$mask" dev "$interface" valid_lft "$lease" preferred_lft "$lease"
    ip route replace default via "${router%% *}" dev "$interface" metric "$METRIC" ;;
esac
echo "$1 $ip" >>"$LEASES"
"#;

/// The server of an uplink's network, which leases one address.
fn dhcp_server(stage: &Stage, link: usize, host: u8) -> stage::Running {
    let mut command = stage.web.command("dnsmasq");
    command.args(["--no-daemon", "--conf-file=/dev/null", "--user=root", "--port=0", "--bind-interfaces"]);
    command.args(["--dhcp-authoritative", "--no-ping", &format!("--interface=down{link}")]);
    command.arg(format!("--dhcp-range=10.1.{link}.{host},10.1.{link}.{host},2m"));
    let leases = stage.path().join(format!("leases{link}-{host}"));
    command.arg(format!("--dhcp-leasefile={}", leases.display()));
    command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    stage::Running::start(command)
}

#[test]
fn two_uplinks_have_their_addresses_and_routes_by_dhcp() {
    let Some(stage) = Stage::new() else { return };
    let tools = ["udhcpc", "dnsmasq"];
    if let Some(lacking) = tools.iter().find(|tool| stage.van.check("which", &[tool]).is_err()) {
        ropewalk_host::skip::skipped(format!("{lacking} isn't installed"));
        return;
    }
    let data = stage.serve("data", 12 * MIB);
    let _server = stage.nginx(true);
    let script = stage.path().join("lease");
    std::fs::write(&script, LEASE).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut servers = Vec::new();
    let mut clients = Vec::new();
    for link in 0..2 {
        let device = format!("up{link}");
        stage::ip(&stage.van, &format!("address flush dev {device}")).unwrap();
        servers.push(dhcp_server(&stage, link, 50));
        let mut command = stage.van.command("udhcpc");
        command.args(["-f", "-t", "20", "-T", "1", "-i", &device, "-s", script.to_str().unwrap()]);
        command.env("LEASES", stage.path().join(&device)).env("METRIC", format!("{}", 100 + link));
        command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        clients.push(stage::Running::start(command));
    }
    let leases =
        |link: usize| std::fs::read_to_string(stage.path().join(format!("up{link}"))).unwrap_or_default();
    let bound = |link: usize, host: u8| leases(link).contains(&format!("bound 10.1.{link}.{host}"));
    stage::wait_until("both have a lease", || (0..2).all(|link| bound(link, 50)));
    let proxy = stage.proxy(&["--json", "--probe", "10.9.9.9:80"]);
    wait_for_both(&stage, &data, "both leases are used");
    // The same address again: nothing happens to a download.
    let stall = interrupted(&stage, &data, || {
        clients[0].signal("-USR1");
        stage::wait_until("the lease is renewed", || leases(0).contains("renew"));
    });
    assert!(stall < 0.8, "renewed: a stall of {stall:.2} s: {}", stage.log());
    assert!(!stage.log().contains("address changed"), "{}", stage.log());
    // The lease is given back, and a new one has another address.
    let stall = interrupted(&stage, &data, || {
        clients[0].signal("-USR2");
        servers[0] = dhcp_server(&stage, 0, 60);
        clients[0].signal("-USR1");
    });
    assert!(stall < 1.0, "a new address: a stall of {stall:.2} s: {}", stage.log());
    stage::wait_until("there is a new lease", || bound(0, 60));
    wait_for_both(&stage, &data, "the new lease is used");
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
    let seconds = (download.now() - begin).as_nanos() as f64 / 1e9;
    assert!(download.received == data && seconds < 8.0, "{seconds:.1} s: {}", stage.log());
    assert!(proxy.terminate().success());
}

/// The time of day is set back and forward. libfaketime gives the proxy such a clock.
#[test]
fn a_clock_that_is_set_interrupts_nothing() {
    let Some(stage) = Stage::new() else { return };
    let folders = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
    let library = |folder| format!("/usr/lib/{folder}/faketime/libfaketime.so.1");
    let Some(library) = folders.map(library).into_iter().find(|file| std::path::Path::new(file).exists())
    else {
        skipped("libfaketime isn't installed");
        return;
    };
    let data = stage.serve("data", 12 * MIB);
    let _server = stage.nginx(true);
    let clock = stage.path().join("clock");
    let set = |offset: &str| {
        // Whole at any time.
        std::fs::write(clock.with_extension("new"), offset).unwrap();
        std::fs::rename(clock.with_extension("new"), &clock).unwrap();
    };
    set("+0");
    let file = format!("FAKETIME_TIMESTAMP_FILE={}", clock.display());
    // The library shares memory below /dev/shm, which is shut to the proxy: there it finds a folder that
    // isn't.
    let (mount, folder) = ("mount --bind \"$0\" /dev/shm && exec \"$@\"", stage.path().display().to_string());
    let by = ["unshare", "--mount", "sh", "-c", mount, &folder];
    let preload = format!("LD_PRELOAD={library}");
    let clock_of = ["env", &preload, &file, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"];
    let by = [&by[..], &clock_of].concat();
    let usage = stage.path().join("usage.json").display().to_string();
    let vias = ["--via", "up0,quota=20MB/daily", "--via", "up1", "--usage", &usage, "--json"];
    let proxy = stage.start_by(&by, &vias);
    for offset in ["-3d", "+40d", "-1y", "+0"] {
        let stall = interrupted(&stage, &data, || set(offset));
        assert!(stall < 1.0, "{offset}: a stall of {stall:.2} s: {}", stage.log());
    }
    // What is used up today is there again tomorrow, and not once more when the clock is set back.
    let is_spent = |line: &&str| line.contains("\"up0\"") && line.contains("\"over its quota\"");
    let spent = || stage.log().lines().filter(is_spent).count();
    for day in ["+41d", "+42d"] {
        let before = spent();
        set(day);
        wait_for_both(&stage, &data, "a new day's quota is used");
        stage::wait_until("the quota is used up", || {
            shares(&stage, &data);
            spent() > before
        });
    }
    set("+41d");
    std::thread::sleep(Duration::from_secs(2));
    let ([first, _], _) = shares(&stage, &data);
    assert!(first < MIB as f64, "{first} bytes: {}", stage.log());
    assert!(proxy.terminate().success());
}
