//! Hosts as they are: several default routes and next hops, addresses of bridges, packets that arrive at any
//! interface, and programs that change the network while a gateway runs. IPv4 and IPv6.

use std::time::Duration;

use ropewalk_engine::Time;
use ropewalk_host::clock::Clock;
use ropewalk_host::netns::Namespace;

use super::stage::*;

/// What a client at a distance sends from.
const FAR: [&str; 2] = ["10.9.0.2", "fd09::2"];

fn ip(namespace: &Namespace, line: &str) {
    namespace.check("ip", &line.split(' ').collect::<Vec<_>>()).unwrap();
}

/// The stage with IPv6, and a client at a distance, which is reached over both links.
fn stage() -> Option<Stage> {
    let stage = Stage::new()?;
    if lacks(&["nginx", "curl"]) {
        return None;
    }
    for link in 0..2 {
        ip(&stage.server, &format!("-6 address add fd00:{link}::1/64 dev eth{link} nodad"));
        ip(&stage.client, &format!("-6 address add fd00:{link}::2/64 dev wan{link} nodad"));
    }
    // A neighbour whose address isn't of the link's network.
    ip(&stage.client, "address add 10.99.0.2/32 dev wan0");
    ip(&stage.client, "-6 address add fd99::2/128 dev wan0 nodad");
    ip(&stage.client, "address add 10.9.0.2/32 dev lo");
    ip(&stage.client, "-6 address add fd09::2/128 dev lo nodad");
    stage.server.sysctl("net.ipv6.conf.all.keep_addr_on_down", "1").unwrap();
    std::fs::write(stage.folder.path().join("file"), pattern(300_000)).unwrap();
    Some(stage)
}

/// A gateway at all four addresses.
fn gateway(stage: &Stage) -> Gateway {
    let text = format!(
        "[gateway]\nstatus = 'none'\n[[listener]]\nlisten = '10.0.0.1:80'\naddresses = ['10.0.1.1', \
         'fd00:0::1', 'fd00:1::1']\n\
         to = '127.0.0.1:{BACKEND}'\n"
    );
    stage.start(&["gateway", "--config", &file(stage, &text)])
}

/// Downloads from `url` with a source address; whether all came.
fn download(stage: &Stage, from: &str, url: &str) -> bool {
    let line = ["-sS", "--fail", "--max-time", "5", "--interface", from, "-o", "/dev/null", url];
    stage.client.check("curl", &line).is_ok()
}

/// Answers for both addresses of a family leave by the interface of the address.
fn assert_own_interface(stage: &Stage, what: &str, v6: bool) {
    for link in 0..2 {
        let device = format!("wan{link}");
        let url =
            if v6 { format!("http://[fd00:{link}::1]/file") } else { format!("http://10.0.{link}.1/file") };
        let before = stage.received(&device);
        assert!(download(stage, FAR[usize::from(v6)], &url), "{what}: {url}");
        let carried = stage.received(&device) - before;
        assert!(carried > 300_000, "{what}: answers for {url} left elsewhere");
    }
}

/// Default routes by both links, as hosts have them.
const DEFAULT_ROUTES: &[(&str, &[&str])] = &[
    ("ECMP", &["{family} route add default nexthop via {hop0} dev eth0 nexthop via {hop1} dev eth1"]),
    (
        "a nexthop group",
        &[
            "{family} nexthop add id {id}1 via {hop0} dev eth0",
            "{family} nexthop add id {id}2 via {hop1} dev eth1",
            "nexthop add id {id}3 group {id}1/{id}2",
            "{family} route add default nhid {id}3",
        ],
    ),
    (
        "metrics",
        &[
            "{family} route add default via {hop0} dev eth0 metric 700",
            "{family} route add default via {hop1} dev eth1 metric 90",
        ],
    ),
    (
        "a table for each source",
        &[
            "{family} route add default via {hop0} dev eth0 table 101",
            "{family} route add default via {hop1} dev eth1 table 102",
            "{family} rule add from {own0} lookup 101",
            "{family} rule add from {own1} lookup 102",
        ],
    ),
    (
        "next hops of other networks, on link",
        &[
            "{family} route add default via {far} dev eth0 onlink metric 700",
            "{family} route add default via {hop1} dev eth1 onlink metric 90",
        ],
    ),
];

fn words(line: &str, v6: bool) -> String {
    let all = if v6 {
        [("{family}", "-6"), ("{hop0}", "fd00:0::2"), ("{hop1}", "fd00:1::2"), ("{far}", "fd99::2")]
    } else {
        [("{family}", "-4"), ("{hop0}", "10.0.0.2"), ("{hop1}", "10.0.1.2"), ("{far}", "10.99.0.2")]
    };
    let more = if v6 {
        [("{own0}", "fd00:0::1"), ("{own1}", "fd00:1::1"), ("{id}", "6")]
    } else {
        [("{own0}", "10.0.0.1"), ("{own1}", "10.0.1.1"), ("{id}", "4")]
    };
    all.iter().chain(&more).fold(line.to_string(), |line, (name, value)| line.replace(name, value))
}

#[test]
fn answers_leave_by_the_interface_of_their_address_whatever_the_default_routes_are() {
    for (what, lines) in DEFAULT_ROUTES {
        let Some(stage) = stage() else { return };
        let _nginx = nginx(&stage);
        for v6 in [false, true] {
            lines.iter().for_each(|line| ip(&stage.server, &words(line, v6)));
        }
        let gateway = gateway(&stage);
        for v6 in [false, true] {
            assert_own_interface(&stage, what, v6);
            // The client's own networks are reached as the kernel reaches them.
            let url = if v6 { "http://[fd00:0::1]/file" } else { "http://10.0.0.1/file" };
            assert!(download(&stage, if v6 { "fd00:1::2" } else { "10.0.1.2" }, url), "{what}: crosswise");
        }
        assert_eq!(gateway.end(), Some(0));
    }
}

#[test]
fn routes_that_change_are_followed() {
    let Some(stage) = stage() else { return };
    let _nginx = nginx(&stage);
    let gateway = gateway(&stage);
    for (what, lines) in [&DEFAULT_ROUTES[0], &DEFAULT_ROUTES[2], &DEFAULT_ROUTES[1]] {
        for v6 in [false, true] {
            lines.iter().for_each(|line| ip(&stage.server, &words(line, v6)));
        }
        std::thread::sleep(Duration::from_millis(500));
        for v6 in [false, true] {
            assert_own_interface(&stage, what, v6);
            let family = if v6 { "-6" } else { "-4" };
            while stage.server.check("ip", &[family, "route", "del", "default"]).is_ok() {}
        }
    }
    assert_eq!(gateway.end(), Some(0));
    assert_eq!(stage.traces(), "", "something is left");
}

/// Tries a download until it succeeds.
fn assert_soon(stage: &Stage, gateway: &Gateway, what: &str, from: &str, url: &str) {
    let clock = Clock::start();
    let line = ["-sS", "--fail", "--max-time", "2", "--interface", from, "-o", "/dev/null", url];
    while stage.client.check("curl", &line).is_err() {
        assert!(clock.now() < Time::ZERO + 8 * SECOND, "{what}: {url} isn't served: {}", gateway.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn packets_for_an_address_may_arrive_at_any_interface() {
    let Some(stage) = stage() else { return };
    let _nginx = nginx(&stage);
    let virtual_addresses = [("-4", "198.51.100.6/32", ""), ("-6", "fd51::6/128", " nodad")];
    for (kind, device, line) in
        [("bridge", "br9", "link add br9 type bridge"), ("TUN", "tun9", "tuntap add dev tun9 mode tun")]
    {
        ip(&stage.server, line);
        ip(&stage.server, &format!("link set {device} up"));
        for (family, address, nodad) in virtual_addresses {
            ip(&stage.server, &format!("{family} address add {address} dev {device}{nodad}"));
        }
        for line in ["-4 route replace 198.51.100.6 via 10.0.0.1", "-6 route replace fd51::6 via fd00:0::1"] {
            ip(&stage.client, line);
        }
        let text = format!(
            "[gateway]\nstatus = 'none'\n[[listener]]\nlisten = '198.51.100.6:80'\naddresses = ['fd51::6', \
             '10.0.0.1']\nto = '127.0.0.1:{BACKEND}'\n"
        );
        let gateway = stage.start(&["gateway", "--config", &file(&stage, &text)]);
        for (from, url) in [
            ("10.0.0.2", "http://198.51.100.6/file"),
            ("fd00:0::2", "http://[fd51::6]/file"),
            // The address of the other interface: by the route, packets arrive at eth1.
            ("10.0.1.2", "http://10.0.0.1/file"),
        ] {
            assert!(download(&stage, from, url), "{kind}: {url}: {}", gateway.log());
        }
        // By the other interface, and by one that is new.
        ip(&stage.client, "-4 route replace 198.51.100.6 via 10.0.1.1");
        ip(&stage.client, "-6 route replace fd51::6 via fd00:1::1");
        for (from, url) in [("10.0.1.2", "http://198.51.100.6/file"), ("fd00:1::2", "http://[fd51::6]/file")]
        {
            assert!(download(&stage, from, url), "{kind}: {url}: {}", gateway.log());
        }
        let new = third_link(&stage);
        ip(&stage.client, "-4 route replace 198.51.100.6 via 10.0.2.1");
        ip(&stage.client, "-6 route replace fd51::6 via fd00:2::1");
        assert_soon(&stage, &gateway, "a new interface", "10.0.2.2", "http://198.51.100.6/file");
        assert_soon(&stage, &gateway, "a new interface", "fd00:2::2", "http://[fd51::6]/file");
        // Nothing else is forwarded.
        let other = new;
        for (from, to) in [("wan0", "10.7.0.2"), ("wan0", "fd07::2")] {
            let line = ["-c", "1", "-W", "1", "-I", from, to];
            assert!(
                stage.client.check("ping", &line).is_err(),
                "{to} was reached through the gateway's host"
            );
        }
        assert_eq!(gateway.end(), Some(0));
        ip(&stage.server, &format!("link del {device}"));
        assert_eq!(stage.traces(), "", "{kind}: something is left");
        let forwards = stage.server.check("sh", &["-c", "cat /proc/sys/net/ipv6/conf/*/force_forwarding"]);
        assert!(forwards.is_ok_and(|text| !text.contains('1')), "{kind}");
        ip(&stage.server, "link del eth2");
        drop(other);
    }
}

#[test]
fn a_virtual_address_goes_and_comes_back_by_vrrp() {
    let Some(stage) = stage() else { return };
    if lacks(&["keepalived"]) {
        return;
    }
    let _nginx = nginx(&stage);
    // In a group IPv6 goes along with IPv4.
    let config = "global_defs { script_user root }\nvrrp_instance one {\n state MASTER\n interface eth0\n \
                  virtual_router_id 7\n priority 100\n advert_int 0.3\n version 3\n \
                  virtual_ipaddress { 10.0.0.77/32 dev eth0 }\n}\n\
                  vrrp_instance six {\n state MASTER\n interface eth0\n virtual_router_id 8\n priority 100\n \
                  advert_int 0.3\n version 3\n virtual_ipaddress { fd00:0::77/128 dev eth0 nodad }\n}\n";
    let file_of_vrrp = stage.folder.path().join("keepalived.conf");
    std::fs::write(&file_of_vrrp, config).unwrap();
    let keepalived = || {
        let pid = stage.folder.path().join("keepalived.pid").display().to_string();
        let mut command = stage.server.command("keepalived");
        command.args(["-n", "-l", "-P", "-p", &pid, "-r", &format!("{pid}.vrrp")]);
        command.args(["-f", file_of_vrrp.to_str().unwrap()]);
        command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        let running = Ended(command.spawn().unwrap());
        let clock = Clock::start();
        let has = |address: &str| {
            stage.server.check("ip", &["-o", "address"]).is_ok_and(|text| text.contains(address))
        };
        while !has("10.0.0.77/") || !has("fd00::77/") {
            assert!(clock.now() < Time::ZERO + 15 * SECOND, "no virtual address");
            std::thread::sleep(Duration::from_millis(50));
        }
        running
    };
    let mut running = keepalived();
    let text = format!(
        "[gateway]\nstatus = 'none'\n[[listener]]\nlisten = '10.0.0.77:80'\naddresses = ['fd00:0::77']\nto \
         = '127.0.0.1:{BACKEND}'\n"
    );
    let gateway = stage.start(&["gateway", "--config", &file(&stage, &text)]);
    let urls = [("10.0.0.2", "http://10.0.0.77/file"), ("fd00:0::2", "http://[fd00:0::77]/file")];
    for round in 0..2 {
        for (from, url) in urls {
            assert_soon(&stage, &gateway, "the virtual address is here", from, url);
        }
        // Another router is the master, and then this one again.
        if round == 0 {
            terminate(&mut running);
            ip(&stage.client, "neighbour flush dev wan0");
            let line = ["-sS", "--max-time", "1", urls[0].1];
            assert!(stage.client.check("curl", &line).is_err(), "it isn't here");
            running = keepalived();
        }
    }
    assert_eq!(gateway.end(), Some(0));
    terminate(&mut running);
    assert_eq!(stage.traces(), "", "something is left");
}

/// Asks a program to end, and waits for that.
fn terminate(program: &mut Ended) {
    let id = program.0.id().to_string();
    assert!(std::process::Command::new("kill").arg(id).status().unwrap().success());
    program.0.wait().unwrap();
}

/// A third link to the client, and a host behind the server that nobody is to reach.
fn third_link(stage: &Stage) -> Namespace {
    use std::os::fd::AsRawFd;
    let other = Namespace::new("other").unwrap();
    let place =
        |namespace: &Namespace| format!("/proc/{}/fd/{}", std::process::id(), namespace.fd().as_raw_fd());
    ip(&stage.server, "link add eth2 type veth peer name wan2");
    ip(&stage.server, &format!("link set wan2 netns {}", place(&stage.client)));
    ip(&stage.server, "link add eth7 type veth peer name far");
    ip(&stage.server, &format!("link set far netns {}", place(&other)));
    for (namespace, device, network, host) in [
        (&stage.server, "eth2", "0.2", 1),
        (&stage.client, "wan2", "0.2", 2),
        (&stage.server, "eth7", "7.0", 1),
        (&other, "far", "7.0", 2),
    ] {
        let six = if network == "0.2" { "fd00:2" } else { "fd07" };
        ip(namespace, &format!("address add 10.{network}.{host}/24 dev {device}"));
        ip(namespace, &format!("-6 address add {six}::{host}/64 dev {device} nodad"));
        ip(namespace, &format!("link set {device} up"));
    }
    ip(&other, "route add default via 10.7.0.1");
    ip(&other, "-6 route add default via fd07::1");
    ip(&stage.client, "-4 route replace 10.7.0.0/24 via 10.0.0.1");
    ip(&stage.client, "-6 route replace fd07::/64 via fd00:0::1");
    other
}

#[test]
fn what_other_programs_undo_is_repaired() {
    let Some(stage) = stage() else { return };
    let _nginx = nginx(&stage);
    for v6 in [false, true] {
        DEFAULT_ROUTES[0].1.iter().for_each(|line| ip(&stage.server, &words(line, v6)));
    }
    let mut gateway = gateway(&stage);
    let urls = [
        (FAR[0], "http://10.0.0.1/file"),
        (FAR[0], "http://10.0.1.1/file"),
        (FAR[1], "http://[fd00:1::1]/file"),
    ];
    for (what, line, said) in [
        ("nft flush ruleset", "nft flush ruleset", "nftables"),
        ("a table emptied", "nft flush table inet ropewalk_gateway", "nftables"),
        ("ip_forward", "sysctl -w net.ipv4.ip_forward=1", ""),
        ("ip_forward", "sysctl -w net.ipv4.ip_forward=0", "sysctl net/ipv4/conf/rope-gw0/forwarding"),
        (
            "the interface's",
            "sysctl -w net.ipv4.conf.eth1.forwarding=0",
            "sysctl net/ipv4/conf/eth1/forwarding",
        ),
        ("rules", "ip rule flush protocol 211", "the routes for answers"),
        ("rules", "ip -6 rule flush protocol 211", "the routes for answers"),
        ("our routes", "ip route flush table 7101", "the routes for answers"),
        ("the devices' routes", "ip route del 10.126.64.0/31", "the address or route of rope-gw0"),
        ("the devices' addresses", "ip address flush dev rope-gw1", "the address or route of rope-gw1"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        stage.server.check(words[0], &words[1..]).unwrap();
        for (from, url) in urls {
            assert_soon(&stage, &gateway, what, from, url);
        }
        gateway.wait_for(said);
    }
    assert_eq!(gateway.end(), Some(0));
    assert_eq!(stage.traces(), "", "something is left");
}
