//! The proxy in operation: its file, signals, what it tells of itself.

use crate::stage::{self, PROXY, Stage};
use crate::{MIB, ropewalk, url};

/// Writes the proxy's file; its path.
fn file(stage: &Stage, text: &str) -> String {
    let path = stage.path().join("proxy.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

const LINKS: &str = "[[link]]\ninterface = 'up0'\n[[link]]\ninterface = 'up1'\n";

#[test]
fn sighup_changes_policies_and_cuts_no_connection() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 24 * MIB);
    let _server = stage.nginx(true);
    let usage = stage.path().join("usage.json");
    let general = format!("[proxy]\nusage = '{}'\ndrain = '20 s'\n", usage.display());
    let text = |policy: &str| format!("{general}policy = '{policy}'\n{LINKS}");
    let path = file(&stage, &text("linux over up0"));
    let proxy = stage.start(&["--config", &path, "--json", "--verbose"]);
    let reload = |text: &str, expected: &str| {
        let before = stage.log().len();
        file(&stage, text);
        proxy.signal("-HUP");
        stage::wait_until(expected, || stage.log()[before..].contains(expected));
    };
    let mut download = stage.download(&url("data"));
    download.read_until(|download| download.received.len() > data.len() / 8);
    let start = [stage.received(0), stage.received(1)];
    assert!(start[1] < 200_000, "{start:?}");
    // Mistakes change nothing, nor what needs a restart.
    reload(&text("fastets"), "proxy.toml:4:10: ");
    reload(
        &text("linux").replace("drain", "connections = 7\ndrain"),
        "connections changed: that needs a restart",
    );
    // The connection goes over to the other link, and ends after SIGTERM as if nothing was.
    reload(&text("linux over up1"), "configuration read again");
    download.read_until(|_| stage.received(1) > start[1] + 2_000_000);
    proxy.signal("-TERM");
    stage::wait_until("it drains", || stage.log().contains("draining"));
    stage::wait_until("nobody is accepted", || {
        let (code, _) = stage.curl(&["--proxy", &format!("socks5h://{PROXY}"), &url("data")]);
        // curl couldn't connect.
        code == 7
    });
    download.read_until(|_| false);
    assert!(
        download.received == data,
        "{} of {} bytes: {}",
        download.received.len(),
        data.len(),
        stage.log()
    );
    assert!(proxy.wait().success());
    let left = stage.van.check("nft", &["list", "ruleset"]).unwrap();
    assert!(!left.contains("ropewalk"), "{left}");
}

#[test]
fn links_are_added_and_taken_away_by_sighup() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 24 * MIB);
    let _server = stage.nginx(true);
    let (one, other) = ("[[link]]\ninterface = 'up0'\n", "[[link]]\ninterface = 'up1'\n");
    let usage = format!("[proxy]\nusage = '{}'\n", stage.path().join("usage.json").display());
    let path = file(&stage, &format!("{usage}{one}"));
    let proxy = stage.start(&["--config", &path, "--json"]);
    let reload = |links: &str, expected: &str| {
        let before = stage.log().len();
        file(&stage, &format!("{usage}{links}"));
        proxy.signal("-HUP");
        stage::wait_until(expected, || stage.log()[before..].contains(expected));
    };
    let mut download = stage.download(&url("data"));
    download.read_until(|download| download.received.len() > data.len() / 16);
    assert!(stage.received(1) < 100_000);
    // A modem is plugged in; the download goes on over both. It comes first, and one that isn't there yet
    // last.
    let absent = "[[link]]\ninterface = 'up7'\n";
    let begin = download.now();
    reload(&format!("{other}{one}{absent}"), "configuration read again");
    let start = stage.received(1);
    download.read_until(|_| stage.received(1) > start + 2_000_000);
    // It can't go on over the first, which is taken away.
    reload(other, "configuration read again");
    let start = stage.received(0);
    download.read_until(|_| false);
    let gap = download.longest_gap(begin).as_secs_f64();
    assert!(download.received == data && gap < 1.0, "a stall of {gap:.2} s: {}", stage.log());
    assert!(stage.received(0) < start + 200_000, "{}", stage.log());
    let devices = stage.van.check("ip", &["link"]).unwrap();
    assert!(!devices.contains("ropeproxy0") && devices.contains("ropeproxy1"), "{devices}");
    // It comes back under another name, and everything is gone at the end.
    reload(&format!("{other}{}", one.replace("'up0'", "'up0'\nname = 'again'")), "configuration read again");
    let start = [stage.received(0), stage.received(1)];
    let (code, received) = stage.curl(&["--proxy", &format!("socks5h://{PROXY}"), &url("data")]);
    assert!(code == 0 && received == data, "{code}: {}", stage.log());
    for (link, start) in start.into_iter().enumerate() {
        assert!(stage.received(link) - start > 4_000_000, "uplink {link}: {}", stage.log());
    }
    assert!(proxy.terminate().success());
    assert!(!stage.van.check("ip", &["rule"]).unwrap().contains("520"), "{}", stage.log());
    assert!(!stage.log().contains("couldn't be undone"), "{}", stage.log());
}

#[test]
fn draining_has_a_limit_and_privileges_are_few() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 24 * MIB);
    let _server = stage.nginx(true);
    let path = file(&stage, &format!("[proxy]\ndrain = '0.3 s'\n{LINKS}"));
    let proxy = stage.start(&["--config", &path, "--json", "--verbose"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.0.id())).unwrap();
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:")).map(str::trim);
    assert_eq!(bits, Some("0000000000001000"), "only CAP_NET_ADMIN: {status}");
    // Landlock needs the one, and seccomp tells of itself.
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "no {line}: {status}");
    }
    let mut download = stage.download(&url("data"));
    download.read_until(|download| download.received.len() > data.len() / 8);
    assert!(proxy.terminate().success());
    download.read_until(|_| false);
    assert!(download.received.len() < data.len(), "{}", stage.log());
    stage.wait_for_log("\"reset\"");
}

#[test]
fn a_file_is_checked_without_root() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    let check = |text: &str| {
        std::fs::write(&path, text).unwrap();
        ropewalk(&["proxy", "--check", "--config", path.to_str().unwrap()])
    };
    let rule = "[[rule]]\nport = ['22']\npolicy = 'redundant'\n";
    let lo = "[[link]]\ninterface = 'lo'\n";
    let (code, told, _) = check(&format!("{lo}{rule}"));
    assert_eq!((code, told.as_str()), (Some(0), "1 link, 1 rule: nothing is wrong\n"));
    // What the host lacks now.
    let (code, _, told) = check("[[link]]\ninterface = 'eht0'\n");
    assert!(code == Some(1) && told.contains("there is no interface `eht0` now"), "{told}");
    let (code, _, told) =
        check(&format!("[proxy]\nlisten = '192.0.2.77:1080'\nallow = ['10.0.0.0/8']\n{lo}"));
    assert!(code == Some(1) && told.contains("192.0.2.77, where programs"), "{told}");
    let (code, _, told) = check(&LINKS.replace("interface = 'up1'", "interfase = 'up1'"));
    assert_eq!(code, Some(2));
    assert!(told.contains("p.toml:4:1") && told.contains("did you mean `interface`?"), "{told}");
    let (_, schema, _) = ropewalk(&["proxy", "--schema"]);
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    assert_eq!(schema["properties"]["link"]["items"]["required"], serde_json::json!(["interface"]));
}

#[test]
fn the_dscp_of_a_client_chooses_the_links() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 4 * MIB);
    let _server = stage.nginx(true);
    let rule = ["--policy", "linux over up0", "--rule", "dscp=ef then linux over up1"];
    let _proxy = stage.proxy(&[&["--json"][..], &rule].concat());
    for (mark, used) in [("cs0", 0), ("ef", 1)] {
        let rules = format!(
            "table ip marks {{ chain out {{ type filter hook output priority mangle; tcp dport 1080 ip dscp \
             set {mark}; }}; }}"
        );
        stage.van.check("nft", &[&rules]).unwrap();
        let start = [stage.received(0), stage.received(1)];
        let (code, received) = stage.curl(&["--proxy", &format!("socks5h://{PROXY}"), &url("data")]);
        assert!(code == 0 && received == data, "{code}: {}", stage.log());
        let carried = [0, 1].map(|link| stage.received(link) - start[link]);
        assert!(carried[used] > 4_000_000 && carried[1 - used] < 400_000, "{mark}: {carried:?}");
        stage.van.check("nft", &["delete", "table", "ip", "marks"]).unwrap();
    }
}

#[test]
fn status_metrics_and_page_tell_of_links_connections_and_why() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 16 * MIB);
    let _server = stage.nginx(true);
    let socket = stage.path().join("status");
    let (socket, usage) = (socket.to_str().unwrap(), stage.path().join("usage.json"));
    let tells = ["--status", socket, "--metrics", "127.0.0.1:9465", "--page", "127.0.0.1:9466"];
    let policy = ["--policy", "save-metered", "--usage", usage.to_str().unwrap()];
    let proxy = stage.proxy_over(["up0", "up1,metered,quota=5GB/daily"], &[&tells[..], &policy].concat());
    let mut download = stage.download(&url("data"));
    download.read_until(|download| download.received.len() > data.len() / 4);
    let (code, told, error) = ropewalk(&["status", "--socket", socket, "--json"]);
    assert_eq!(code, Some(0), "{error}");
    let state: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&state["kind"], &state["connections_open"]), (&"proxy".into(), &1.into()));
    assert_eq!(state["links"][0]["state"], "up");
    assert!(state["links"][0]["bytes_received"].as_u64() > Some(MIB as u64), "{state:#}");
    assert_eq!(state["links"][1]["quota"]["bytes"], 5_000_000_000u64);
    let one = &state["connections"][0];
    assert_eq!((&one["policy"], &one["opened_on"]), (&"save-metered".into(), &"up0".into()));
    assert_eq!(
        (&one["links"][1]["role"], &one["subflows"][0]["interface"]),
        (&"stands by".into(), &"up0".into())
    );
    assert_eq!(one["links"][1]["why"], "its price is 1, and a cheaper link works");
    assert_eq!(state["mib"]["MPTcpExtMPCapableSYNTX"], 1);
    let (_, shown, _) = ropewalk(&["status", "--socket", socket]);
    for needed in [
        "  up0 is up: ",
        "price 1, quota: ",
        "    up1: stands by, its price is 1",
        "  policy save-metered (no rule",
    ] {
        assert!(shown.contains(needed), "no `{needed}`: {shown}");
    }
    let get = |url: &str, more: &[&str]| {
        let line = [&["-sS", "--max-time", "5", "-w", "%{http_code}"][..], more, &[url]].concat();
        stage.van.check("curl", &line).unwrap()
    };
    let metrics = get("http://127.0.0.1:9465/metrics", &[]);
    for line in [
        "ropewalk_proxy_opened_total 1",
        "ropewalk_proxy_connections{scheduler=\"minrtt\"} 1",
        "ropewalk_link_up{interface=\"up1\"} 1",
        "ropewalk_link_quota_bytes{interface=\"up1\"} 5000000000",
        "ropewalk_subflows{interface=\"up0\"} 1",
        "ropewalk_MPTcpExtMPCapableSYNTX 1",
    ] {
        assert!(metrics.lines().any(|known| known == line), "no `{line}`: {metrics}");
    }
    let page = get("http://127.0.0.1:9466/", &[]);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("200"), "{page}");
    assert!(get("http://127.0.0.1:9466/state", &[]).starts_with("{\"age_s\""));
    // A name that somebody has point here.
    for page in ["http://127.0.0.1:9466/state", "http://127.0.0.1:9465/metrics"] {
        for name in ["Host: evil.example", "Host: [::1].evil.example"] {
            assert!(get(page, &["-H", name]).ends_with("403"), "{page} for {name}");
        }
    }
    download.read_until(|_| false);
    assert!(download.received == data && proxy.terminate().success(), "{}", stage.log());
    assert!(!std::path::Path::new(socket).exists());
    let (code, _, error) = ropewalk(&["status", "--socket", socket]);
    assert!(code == Some(1) && error.contains(socket), "{error}");
}

#[test]
fn plain_tcp_is_told_as_what_it_is_and_connections_are_logged_if_asked() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 16 * MIB);
    let _server = stage.nginx(false);
    let socket = stage.path().join("status");
    let socket = socket.to_str().unwrap();
    let proxy = stage.proxy(&["--status", socket]);
    let mut download = stage.download(&url("data"));
    download.read_until(|download| download.received.len() > data.len() / 4);
    let (_, told, error) = ropewalk(&["status", "--socket", socket, "--json"]);
    let state: serde_json::Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{error}"));
    let one = &state["connections"][0];
    assert_eq!(one["multipath"], false);
    let opened_on = one["opened_on"].as_str().unwrap();
    for link in one["links"].as_array().unwrap() {
        let expected = match link["interface"] == opened_on {
            true => ("active", "the connection is plain TCP, and was opened on this link"),
            false => ("not used", "the far end has no Multipath TCP"),
        };
        assert_eq!((&link["role"], &link["why"]), (&expected.0.into(), &expected.1.into()), "{one:#}");
    }
    download.read_until(|_| false);
    assert!(proxy.terminate().success());
    let log = stage.log();
    assert!(log.contains("listening") && log.contains("draining") && !log.contains("closed"), "{log}");
}

#[test]
fn the_last_minutes_are_a_scenario() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 12 * MIB);
    let _server = stage.nginx(true);
    let socket = stage.path().join("status");
    let socket = socket.to_str().unwrap();
    let proxy = stage.proxy(&["--status", socket, "--probe", "10.9.9.9:80"]);
    let (code, _, error) = ropewalk(&["record", "--socket", socket]);
    assert!(
        code == Some(1) && error.contains("the recording has") || error.contains("no link has"),
        "{error}"
    );
    let by = format!("socks5h://{PROXY}");
    for _ in 0..2 {
        let (code, received) = stage.curl(&["--proxy", &by, &url("data")]);
        assert!(code == 0 && received == data, "{code}: {}", stage.log());
    }
    // What the flows did is noted when they end.
    let file = stage.path().join("van.toml");
    let file = file.to_str().unwrap();
    let (code, _, error) = ropewalk(&["record", "--socket", socket, "--output", file]);
    assert_eq!(code, Some(0), "{error}");
    let text = std::fs::read_to_string(file).unwrap();
    // Each link carries 40 Mbit/s.
    let rates: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("rate = \"")?.strip_suffix(" Mbit/s\"")?.parse().ok())
        .collect();
    assert!(
        text.contains("name = \"up1\"") && rates.iter().any(|rate| (20.0..60.0).contains(rate)),
        "{text}"
    );
    let (_, recording, _) = ropewalk(&["record", "--socket", socket, "--json"]);
    assert!(proxy.terminate().success());
    let recording: serde_json::Value = serde_json::from_str(&recording).unwrap();
    let flows = recording["flows"].as_array().unwrap();
    assert!(
        flows.len() == 2 && flows.iter().all(|flow| flow["bytes_down"].as_u64() >= Some(12 << 20)),
        "{flows:?}"
    );
}

#[test]
fn the_files_of_the_packages_are_right() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/openwrt/files");
    let (code, told, error) = ropewalk(&["proxy", "--check", "--config", &format!("{folder}/proxy.toml")]);
    let is_right = told == "2 links, 0 rules: nothing is wrong\n" || error.contains("there is no interface");
    assert!(code < Some(2) && is_right, "{code:?}: {told}{error}");
    let script = format!("{folder}/ropewalk-proxy.init");
    let checked = std::process::Command::new("sh").args(["-n", &script]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn systemd_is_told_of_readiness_life_and_end() {
    let Some(stage) = Stage::new() else { return };
    let path = stage.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(15))).unwrap();
    let mut command = stage.van.command(env!("CARGO_BIN_EXE_ropewalkd"));
    command.args(["proxy", "--via", "up0"]).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000");
    let proxy = stage::Running::start(command);
    let next = || {
        let mut buffer = [0; 100];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).trim().to_string()
    };
    let first: Vec<String> = (0..4).map(|_| next()).collect();
    assert_eq!(first.iter().filter(|told| *told == "READY=1").count(), 1, "{first:?}");
    assert_eq!(first.iter().filter(|told| *told == "WATCHDOG=1").count(), 3, "{first:?}");
    assert!(proxy.terminate().success());
    while next() != "STOPPING=1" {}
}

/// Runs the program in the file system of another process.
fn beside(process: &stage::Running, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = std::process::Command::new("nsenter");
    command.args(["--mount", "--target", &process.0.id().to_string(), env!("CARGO_BIN_EXE_ropewalkd")]);
    let output = command.args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn status_and_record_find_proxy_and_gateway_by_themselves() {
    let Some(stage) = Stage::new() else { return };
    // A /run of their own: other tests have proxies on this host.
    let shell = |line: &str| {
        let mut command = stage.web.command("unshare");
        command.args(["--mount", "sh", "-c", &format!("mount -t tmpfs none /run && exec {line}")]);
        stage::Running::start(command)
    };
    let program = env!("CARGO_BIN_EXE_ropewalkd");
    let gateway = shell(&format!("{program} gateway --listen 10.1.0.1:80 --to 127.0.0.1:8080"));
    stage::wait_until("the gateway tells its state", || {
        beside(&gateway, &["status", "--json"]).1.contains("\"kind\":\"gateway\"")
    });
    let (code, _, told) = beside(&gateway, &["record"]);
    assert!(code == Some(1) && told.contains("only a proxy records"), "{told}");
    let mut command = stage.van.command("nsenter");
    command.args(["--mount", "--target", &gateway.0.id().to_string(), program]);
    command.args(["proxy", "--via", "up0", "--via", "up1", "--usage", "/run/usage.json"]);
    let proxy = stage::Running::start(command);
    stage::wait_until("both tell their state", || {
        let told = beside(&gateway, &["status"]).1;
        told.contains("proxy at 127.0.0.1:1080") && told.contains("10.1.0.1 on down0, ports 80")
    });
    let (code, told, error) = beside(&gateway, &["record", "--json"]);
    assert!(code == Some(0) && told.contains("\"up1\""), "{told} {error}");
    // What a killed one leaves isn't asked, and the next one takes its place.
    drop(proxy);
    let (code, told, error) = beside(&gateway, &["status"]);
    assert!(code == Some(0) && told.contains("ports 80") && !told.contains("proxy at"), "{told} {error}");
    assert!(gateway.terminate().success());
}

#[test]
fn the_limit_of_connections_counts_both_ports_together() {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    let Some(stage) = Stage::new() else { return };
    let server = stage.web.run(|| TcpListener::bind("10.9.9.9:80")).unwrap();
    let lan = stage.neighbour();
    // Probes go elsewhere: the server is to see clients only.
    let probe = ["--probe", "10.1.0.1:9"];
    let _proxy = stage.start(
        &[&["--via", "up0", "--connections", "2", "--transparent", "lan0", "--verbose"], &probe[..]].concat(),
    );
    let patience = Some(std::time::Duration::from_millis(400));
    let by_socks = || -> std::io::Result<TcpStream> {
        let mut client = stage.van.run(|| TcpStream::connect(PROXY))?;
        client.set_read_timeout(patience)?;
        client.write_all(&[5, 1, 0, 5, 1, 0, 1, 10, 9, 9, 9, 0, 80])?;
        client.read_exact(&mut [0; 12])?;
        Ok(client)
    };
    let transparent = || lan.run(|| TcpStream::connect("10.9.9.9:80"));
    let first = by_socks().unwrap();
    let mut second = transparent().unwrap();
    let accepted = [server.accept().unwrap(), server.accept().unwrap()];
    second.write_all(b"x").unwrap();
    // The third waits, whichever way it comes.
    assert!(by_socks().is_err(), "{}", stage.log());
    let _third = transparent().unwrap();
    server.set_nonblocking(true).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(server.accept().is_err(), "{}", stage.log());
    // It is served when another has ended.
    drop((first, second, accepted));
    stage::wait_until("there is room again", || server.accept().is_ok());
}

/// In a terminal of 80 columns: examples are whole commands, to be copied.
#[test]
fn examples_in_help_fit_80_columns() {
    for command in ["gateway", "keys cookie", "keys pair", "proxy", "status", "record"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_ropewalkd"))
            .args(command.split(' '))
            .arg("--help")
            .env("COLUMNS", "80")
            .output()
            .unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
        let examples: Vec<&str> = examples.take_while(|line| !line.is_empty()).collect();
        assert!(!examples.is_empty(), "{command}");
        for line in examples {
            assert!(line.starts_with("  "), "{command}: `{line}` was wrapped");
        }
    }
}
