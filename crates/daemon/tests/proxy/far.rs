//! The proxy with a gateway that connects to servers for it.

use ropewalk_host::clock::Clock;

use crate::encrypted::keys;
use crate::stage::{self, PROXY, Running, SERVER, Stage};

const MIB: usize = 1 << 20;

/// A running gateway in the server's namespace, which listens on both uplinks.
pub struct Far {
    pub gateway: Running,
    pub cookie: String,
}

/// `ropewalkd gateway` in the server's namespace.
pub fn gateway(stage: &Stage, arguments: &[&str]) -> Running {
    let always = ["--listen", "10.1.0.1:5124", "--address", "10.1.1.1", "--log", "debug"];
    started(stage, &[&always[..], arguments].concat())
}

/// The same with nothing said but this.
pub fn started(stage: &Stage, arguments: &[&str]) -> Running {
    let mut gateway = stage.web.command(env!("CARGO_BIN_EXE_ropewalkd"));
    gateway.arg("gateway").args(arguments);
    let log = std::fs::File::create(stage.path().join("gateway.log")).unwrap();
    gateway.stderr(log);
    let gateway = Running::start(gateway);
    stage::wait_until("the gateway listens", || Far::log(stage).contains("listening"));
    gateway
}

impl Far {
    pub fn start(stage: &Stage, destinations: &[&str], more: &[&str]) -> Far {
        let cookie = stage.path().join("cookie").display().to_string();
        if !std::path::Path::new(&cookie).exists() {
            let mut keys = std::process::Command::new(env!("CARGO_BIN_EXE_ropewalkd"));
            assert!(keys.args(["keys", "cookie", &cookie]).status().unwrap().success());
        }
        let mut arguments = vec!["--cookie", &cookie];
        arguments.extend(destinations.iter().flat_map(|one| ["--convert", one]));
        arguments.extend(more);
        let gateway = gateway(stage, &arguments);
        Far { gateway, cookie }
    }

    pub fn log(stage: &Stage) -> String {
        std::fs::read_to_string(stage.path().join("gateway.log")).unwrap_or_default()
    }
}

//= test RFC 8803 6.2.8-a
#[test]
fn a_gateway_connects_to_servers_for_the_proxy() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 6 * MIB);
    // A server without Multipath TCP, and not the gateway's own address in the eyes of the list: it is named
    // alone.
    let _server = stage.nginx(false);
    let far = Far::start(&stage, &[&format!("{SERVER} 80"), "fd09::9 80"], &[]);
    let proxy =
        stage.proxy(&["--json", "--verbose", "--gateway", "10.1.0.1:5124", "--gateway-cookie", &far.cookie]);
    let socks = format!("socks5h://{PROXY}");
    for server in [SERVER, "[fd09::9]"] {
        let start = [stage.received(0), stage.received(1)];
        let (code, received) = stage.curl(&["--proxy", &socks, &format!("http://{server}/data")]);
        let logs = || format!("{} {}", stage.log(), Far::log(&stage));
        assert!(code == 0 && received == data, "{server}: {code}, {} bytes: {}", received.len(), logs());
        // Both uplinks, though the server knows nothing of it; IPv6 over IPv4 as well.
        for (link, start) in start.into_iter().enumerate() {
            let bytes = stage.received(link) - start;
            assert!(bytes > MIB as u64, "{server}: uplink {link} carried {bytes} bytes: {}", logs());
        }
    }
    // What the gateway refuses is an error of the proxy's, and says why.
    for (url, why) in [
        (format!("http://{SERVER}:81/"), "not authorized"),
        ("http://10.1.0.1:80/".into(), "not authorized"),
        ("http://127.0.0.1:80/".into(), "no address that a gateway connects to"),
    ] {
        let (code, _) = stage.curl(&["--proxy", &socks, &url]);
        assert!(code == 97, "{url}: {code}: {}", stage.log());
        stage.wait_for_log(why);
    }
    drop(_server);
    let (code, _) = stage.curl(&["--proxy", &socks, &format!("http://{SERVER}/data")]);
    assert!(code == 97, "{code}: {}", stage.log());
    stage.wait_for_log("the server reset the connection");
    assert!(proxy.terminate().success() && far.gateway.terminate().success());
}

#[test]
fn either_uplink_is_cut_under_a_download_from_a_gateway() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 24 * MIB);
    let _server = stage.nginx(false);
    let far = Far::start(&stage, &[&format!("{SERVER} 80")], &[]);
    // Connections open on the first uplink.
    let gateway = ["--gateway", "10.1.0.1:5124", "--gateway-cookie", &far.cookie, "--open-on", "nearest"];
    let proxy = stage.proxy(&[&["--json", "--verbose"], &gateway[..]].concat());
    for link in [0, 1] {
        let stall = crate::interrupted(&stage, &data, || stage.cut(link));
        assert!(stall < 1.0, "uplink {link}: a stall of {stall:.2} s: {} {}", stage.log(), Far::log(&stage));
        stage.wait_for_state(link, "dead", 1);
        stage.mend(link);
        stage::wait_until("the uplink is used again", || {
            stage
                .log()
                .lines()
                .rfind(|line| line.contains(&format!("\"up{link}\"")) && line.contains("link changed"))
                .is_some_and(|line| line.contains("\"up\""))
        });
    }
    assert!(proxy.terminate().success() && far.gateway.terminate().success());
}

/// The only uplink is away while connections are opened through the gateway: in each state of their opening
/// they wait for it, and go on once it is back.
fn opened_while_the_only_uplink_goes(with_keys: bool, away: impl Fn(&Stage), back: impl Fn(&Stage)) {
    let Some(stage) = Stage::new() else { return };
    stage.serve("data", 100_000);
    let _server = stage.nginx(false);
    let server = format!("{SERVER} 80");
    let file = |name: &str| stage.path().join("keys").join(name).display().to_string();
    let (far, known) = match with_keys {
        true => {
            keys(&stage.path().join("keys").display().to_string(), &[]);
            let (own, proxys) = (file("gateway.key"), file("proxy.pub"));
            let far = gateway(&stage, &["--key", &own, "--proxy", &proxys, "--convert", &server]);
            let known = ["--gateway-key", &file("proxy.key"), "--gateway-certificate", &file("gateway.pub")];
            (far, known.map(String::from).to_vec())
        }
        false => {
            let Far { gateway, cookie } = Far::start(&stage, &[&server], &[]);
            (gateway, vec!["--gateway-cookie".into(), cookie])
        }
    };
    let line = ["--json", "--verbose", "--via", "up0", "--listen", PROXY, "--gateway", "10.1.0.1:5124"];
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let proxy = stage.start(&[&line[..], &known].concat());
    let curl = || {
        let mut command = stage.van.command("curl");
        command.args([
            "-sS",
            "-o",
            "/dev/null",
            "-w",
            "%{time_total}",
            "--proxy",
            &format!("socks5h://{PROXY}"),
        ]);
        command.arg(crate::url("data")).stdout(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let downloads: Vec<_> = (0..24)
        .map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            curl()
        })
        .collect();
    away(&stage);
    let gone = std::time::Duration::from_secs(12);
    std::thread::sleep(gone);
    back(&stage);
    for download in downloads {
        let done = download.wait_with_output().unwrap();
        let took: f64 = String::from_utf8_lossy(&done.stdout).parse().unwrap_or(f64::NAN);
        let logs = || format!("{} {}", stage.log(), Far::log(&stage));
        // Who comes when no link has a route is told so, after three seconds.
        let is_told = done.status.code() == Some(97) && took < 5.0;
        let has_gone_on = done.status.success() && took < gone.as_secs_f64() + 4.0;
        assert!(has_gone_on || with_keys && is_told, "{took} s: {}", logs());
    }
    assert!(proxy.terminate().success() && far.terminate().success());
}

#[test]
fn connections_that_are_being_opened_outlive_the_only_uplinks_silence() {
    opened_while_the_only_uplink_goes(false, |stage| stage.cut(0), |stage| stage.mend(0));
}

#[test]
fn connections_that_are_being_opened_outlive_an_uplink_that_is_down() {
    let down = |stage: &Stage| stage::ip(&stage.van, "link set up0 down").unwrap();
    opened_while_the_only_uplink_goes(true, down, |stage| {
        stage::ip(&stage.van, "link set up0 up").unwrap();
        stage::ip(&stage.van, "-6 address replace fd01:0::2/64 dev up0 nodad").unwrap();
        stage::add_route(&stage.van, 0).unwrap();
    });
}

/// A gateway that is killed while it connects to a server, and comes back, knows nothing of the request: it
/// is asked again before the client gives up.
#[test]
fn a_gateway_that_is_restarted_during_a_request_is_asked_again() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 1000);
    let _server = stage.nginx(false);
    let server = format!("{SERVER} 80");
    let far = Far::start(&stage, &[&server], &[]);
    let gateway = ["--gateway", "10.1.0.1:5124", "--gateway-cookie", &far.cookie];
    let proxy = stage.proxy(&[&["--json", "--verbose"], &gateway[..]].concat());
    let drop_syns =
        "table ip away { chain away { type filter hook input priority 0; iif lo tcp dport 80 drop; }; }";
    stage.web.check("nft", &[drop_syns]).unwrap();
    let mut download = stage.download(&crate::url("data"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    far.gateway.signal("-KILL");
    far.gateway.wait();
    stage.web.check("nft", &["delete table ip away"]).unwrap();
    let again = Far::start(&stage, &[&server], &[]);
    let restarted = download.now();
    download.read_until(|_| false);
    let late = (download.now() - restarted).as_secs_f64();
    assert!(download.received == data && late < 5.0, "{late:.1} s: {} {}", stage.log(), Far::log(&stage));
    assert!(proxy.terminate().success() && again.gateway.terminate().success());
}

#[test]
fn the_first_gateway_that_works_is_used_and_rules_lead_past_it() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let _server = stage.nginx(false);
    let far = Far::start(&stage, &[&format!("{SERVER} 80")], &[]);
    // Nobody answers at the first address. Port 8080 isn't in the gateway's list.
    let gateways = ["--gateway", "10.1.0.99:5124", "--gateway", "10.1.0.1:5124"];
    let rule = ["--gateway-cookie", &far.cookie, "--rule", "port=8080 then direct over up1"];
    let proxy = stage.proxy(&[&["--json", "--verbose"], &gateways[..], &rule].concat());
    let socks = format!("socks5h://{PROXY}");
    let download = |limit: &str| {
        let (code, received) =
            stage.curl(&["--max-time", limit, "--proxy", &socks, &format!("http://{SERVER}/data")]);
        assert!(
            code == 0 && received == data,
            "{code}, {} B: {} {}",
            received.len(),
            stage.log(),
            Far::log(&stage)
        );
    };
    download("5");
    let start = [stage.received(0), stage.received(1)];
    download("2");
    for (link, start) in start.into_iter().enumerate() {
        assert!(stage.received(link) - start > 100_000, "uplink {link}: {}", stage.log());
    }
    let portal = format!("http://{SERVER}:8080/");
    let (code, _) = stage.curl(&["--fail", "--max-time", "2", "--proxy", &socks, &portal]);
    assert!(code == 0, "{code}: {}", stage.log());
    assert!(proxy.terminate().success() && far.gateway.terminate().success());
    // Without one, connections go to their servers where that is wanted.
    let gone = [&gateways[..2], &["--gateway-cookie", &far.cookie]].concat();
    let proxy = stage.proxy(&[&["--json", "--verbose", "--gateway-fallback", "direct"], &gone[..]].concat());
    download("5");
    download("2");
    assert!(proxy.terminate().success());
    let _proxy = stage.proxy(&[&["--json", "--connect-timeout", "1 s"], &gone[..]].concat());
    let (code, _) = stage.curl(&["--proxy", &socks, &format!("http://{SERVER}/data")]);
    assert_eq!(code, 97, "{}", stage.log());
}

/// The first gateway has IPv6 alone, and no uplink has.
#[test]
fn a_gateway_of_a_family_without_an_uplink_is_passed_over() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let _server = stage.nginx(false);
    for device in ["up0", "up1"] {
        crate::stage::ip(&stage.van, &format!("-6 address flush dev {device}")).unwrap();
    }
    let far = Far::start(&stage, &[&format!("{SERVER} 80")], &[]);
    let cookie = ["--gateway-cookie", &far.cookie, "--json", "--verbose"];
    let v6 = ["--gateway", "[fd09::77]:5124"];
    for ways in [
        &[&v6[..], &["--gateway", "10.1.0.1:5124"]].concat(),
        &[&v6[..], &["--gateway-fallback", "direct"]].concat(),
    ] {
        let proxy = stage.proxy(&[&cookie[..], ways].concat());
        for _ in 0..2 {
            let url = format!("http://{SERVER}/data");
            let (code, received) =
                stage.curl(&["--max-time", "4", "--proxy", &format!("socks5h://{PROXY}"), &url]);
            assert!(code == 0 && received == data, "{ways:?}: {code}: {}", stage.log());
        }
        assert!(proxy.terminate().success());
    }
}

#[test]
fn a_link_that_is_cut_right_after_the_handshake_is_left_for_another() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", MIB);
    let _server = stage.nginx(false);
    let far = Far::start(&stage, &[&format!("{SERVER} 80")], &[]);
    let gateway = ["--gateway", "10.1.0.1:5124", "--gateway-cookie", &far.cookie, "--open-on", "nearest"];
    let proxy = stage.proxy(&[&["--json", "--verbose"], &gateway[..]].concat());
    let socks = format!("socks5h://{PROXY}");
    let url = format!("http://{SERVER}/data");
    // SYN and SYN/ACK pass: the cut comes after them, for each connection. Probes are answered, so that
    // nothing else tells that the link is dead.
    let script = "table netdev late { chain late { type filter hook ingress device down0 priority 0; \
                  tcp flags & syn != syn drop; }; }";
    stage.web.check("nft", &[script]).unwrap();
    stage.van.check("nft", &[&script.replace("down0", "up0")]).unwrap();
    for turn in 0..5 {
        let clock = Clock::start();
        let (code, received) = stage.curl(&["--proxy", &socks, &url]);
        let took = clock.now().as_secs_f64();
        assert!(
            code == 0 && received == data && took < 4.0,
            "{turn}: {code}, {} bytes, {took:.1} s: {} {}",
            received.len(),
            stage.log(),
            Far::log(&stage)
        );
    }
    assert!(proxy.terminate().success() && far.gateway.terminate().success());
}
