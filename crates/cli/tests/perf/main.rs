//! `ropewalk perf` between the engine and this machine's kernel, as processes in a network namespace.

mod attacker;
mod attacks;
mod faults;
mod processes;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use ropewalk_host::netns::Namespace;
use serde_json::Value;

use processes::{ROPEWALK, Server, alone, client, errors, json, namespace, number, wait_for_interval};

#[test]
fn every_way_with_the_engine_at_either_end_and_the_counters_agree() {
    let _alone = alone();
    let Some(namespace) = namespace() else { return };
    let policy = concat!("policy:", env!("CARGO_MANIFEST_DIR"), "/../lab/tests/policies/least-srtt.json");
    for (client_stack, server_stack) in [("engine", "kernel"), ("kernel", "engine")] {
        for way in [&[][..], &["--reverse"], &["--both"]] {
            let case = format!("{client_stack} -> {server_stack} {way:?}");
            let mut of_server = vec!["--once", "--json", "--counters", "--stack", server_stack];
            if server_stack == "engine" {
                of_server.extend(["--scheduler", policy]);
            }
            let server = Server::start(&namespace, &of_server);
            let host = if server_stack == "engine" { "10.126.0.2" } else { "127.0.0.1" };
            let mut arguments =
                vec![host, "--stack", client_stack, "--flows", "2", "--latency", "--time", "0.4"];
            arguments.extend(["--interval", "0.1", "--json", "--counters"].iter().chain(way));
            if client_stack == "engine" && way.is_empty() {
                arguments.extend(["--scheduler", policy]);
            }
            let output = client(&namespace, &arguments);
            assert_eq!(output.status.code(), Some(0), "{case}: {}", errors(&output));
            let result = json(&output);
            assert_eq!(
                (&result["client_stack"], &result["server_stack"]),
                (&client_stack.into(), &server_stack.into())
            );
            let (up, down) = (way != ["--reverse"], !way.is_empty());
            for (name, expected) in [("upload", up), ("download", down)] {
                assert_eq!(result[name].is_object(), expected, "{case}: {result}");
                if expected {
                    assert!(number(&result[name]["bits_per_second"]) > 1e6, "{case}: {result}");
                    let flows = result["flows"].as_array().expect("flows");
                    let bytes: f64 = flows.iter().map(|flow| number(&flow[name]["bytes"])).sum();
                    assert_eq!((flows.len(), bytes), (2, number(&result[name]["bytes"])), "{case}: {result}");
                }
            }
            for flow in result["flows"].as_array().expect("flows") {
                assert_eq!(
                    (&flow["multipath"], &flow["error"]),
                    (&true.into(), &Value::Null),
                    "{case}: {flow}"
                );
                assert!(
                    number(&flow["connect_us"]) > 0.0 && number(&flow["client_srtt_us"]) > 0.0,
                    "{case}: {flow}"
                );
            }
            let latency = &result["latency"];
            assert!(number(&latency["round_trips"]) >= 1.0, "{case}: {latency}");
            assert!(number(&latency["rtt_min_us"]) <= number(&latency["rtt_p99_us"]), "{case}: {latency}");
            assert!(result["intervals"].as_array().is_some_and(|list| !list.is_empty()), "{case}: {result}");
            // Three connections, the same on both sides' word.
            for name in ["MPTcpExtMPCapableSYNTX", "MPTcpExtMPCapableSYNACKRX"] {
                assert_eq!(result["counters"][name], 3, "{case}: {name} in {}", result["counters"]);
            }
            assert!(number(&result["counters"]["TcpOutSegs"]) > 10.0);
            let text = server.end();
            let lines: Vec<Value> =
                text.lines().map(|line| serde_json::from_str(line).expect("JSON Lines")).collect();
            let counters = &lines.last().expect("counters")["counters"];
            for name in ["MPTcpExtMPCapableSYNRX", "MPTcpExtMPCapableACKRX"] {
                assert_eq!(counters[name], 3, "{case}: {name} in {counters}");
            }
            assert_eq!(lines.len(), 4, "{case}: {text}");
        }
    }
}

#[test]
fn a_size_and_a_scheduler_per_flow() {
    let Some(namespace) = namespace() else { return };
    let server = Server::start(&namespace, &["--once", "--stack", "engine"]);
    let options =
        ["--flows", "3", "--size", "3 MB", "--reverse", "--scheduler", "blest,ecf(beta=0.5)", "--json"];
    let output = client(&namespace, &[&["10.126.0.2"], &options[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let result = json(&output);
    let flows = result["flows"].as_array().expect("flows");
    let names: Vec<_> = flows.iter().map(|flow| flow["scheduler"].as_str().expect("a name")).collect();
    assert_eq!(names, ["blest", "ecf(beta=0.5)", "blest"]);
    assert!(flows.iter().all(|flow| flow["download"]["bytes"] == 3_000_000), "{result}");
    let text = server.end();
    assert!(text.contains("download, 3 MB, ecf(beta=0.5)"), "{text}");
}

#[test]
fn errors_have_a_message_and_an_exit_code() {
    let Some(namespace) = namespace() else { return };
    let refused = |arguments: &[&str], code: i32, expected: &str| {
        let output = client(&namespace, arguments);
        let text = errors(&output);
        assert!(
            output.status.code() == Some(code) && text.contains(expected),
            "{arguments:?}: {:?} {text}",
            output.status
        );
    };
    refused(&["127.0.0.1"], 1, "127.0.0.1:5202 refused the connection");
    refused(
        &["127.0.0.1", "--stack", "engine"],
        1,
        "refused the connection: is `ropewalk perf server` running",
    );
    refused(&["127.0.0.1", "--scheduler", "blest"], 2, "the sender here is the Linux kernel");
    refused(&["127.0.0.1", "--stack", "engine", "--scheduler", "blset"], 2, "unknown scheduler `blset`");
    refused(&["127.0.0.1", "--paths", "2"], 2, "give --stack engine too");
    refused(&["127.0.0.1", "--time", "never"], 2, "never");
    refused(&["127.0.0.1", "--flows", "0"], 2, "measures nothing");
    refused(&["127.0.0.1", "--congestion", "nonsense"], 1, "congestion control `nonsense`");

    let server = Server::start(&namespace, &[]);
    refused(&["127.0.0.1", "--reverse", "--scheduler", "blest"], 1, "the server refused: scheduler `blest`");
    refused(&["127.0.0.1", "--reverse", "--congestion", "nonsense"], 1, "congestion control `nonsense`");
    // What isn't this protocol gets an answer in words, and the server goes on.
    for (words, expected) in [(&b"GET / HTTP/1.1\r\n"[..], "GET / HT"), (b"rwpf\x09", "version 9")] {
        let answer = namespace
            .run(|| {
                let mut stream = TcpStream::connect("127.0.0.1:5202")?;
                stream.set_read_timeout(Some(Duration::from_secs(5)))?;
                stream.write_all(words)?;
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer)?;
                Ok(String::from_utf8_lossy(&answer).into_owned())
            })
            .expect("an answer");
        assert!(answer.contains(expected), "{answer}");
    }
    let output = client(&namespace, &["127.0.0.1", "--size", "1 MB"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    drop(server);

    // Another program answers.
    let listener = namespace.run(|| TcpListener::bind("127.0.0.1:5202")).expect("a listener");
    let other = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n")?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    });
    refused(&["127.0.0.1"], 1, "doesn't speak ropewalk perf's protocol (its first bytes are `SSH-2.0-`)");
    other.join().expect("no panic").expect("a client");
}

#[test]
fn a_peer_that_goes_and_an_interruption_leave_what_was_measured() {
    let Some(namespace) = namespace() else { return };
    for stack in ["kernel", "engine"] {
        // The server is killed.
        let server = Server::start(&namespace, &[]);
        let mut command = namespace.command(ROPEWALK);
        command.args(["perf", "client", "127.0.0.1", "--stack", stack, "--time", "10", "--interval", "0.1"]);
        let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a client");
        wait_for_interval(&mut running);
        drop(server);
        let output = running.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(1), "{stack}: {}", errors(&output));
        assert!(errors(&output).contains("the peer is gone"), "{stack}: {}", errors(&output));
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("bit/s"),
            "{stack}: what was measured is missing"
        );
        // The client is interrupted.
        let server = Server::start(&namespace, &["--once"]);
        let mut command = namespace.command(ROPEWALK);
        command.args(["perf", "client", "127.0.0.1", "--stack", stack, "--time", "10", "--interval", "0.1"]);
        let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a client");
        wait_for_interval(&mut running);
        let killed = std::process::Command::new("kill").args(["-INT", &running.id().to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        let output = running.wait_with_output().expect("an end");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(130), "{stack}: {}", errors(&output));
        assert!(text.contains("interrupted: until then") && text.contains("[  0] up"), "{stack}: {text}");
        let text = server.end();
        let told = ["the peer is gone", "before the end"].iter().any(|words| text.contains(words));
        assert!(told, "{stack}: {text}");
    }
}

#[test]
fn captures_and_logs_are_whole_files_with_reasons() {
    let Some(namespace) = namespace() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let files = ["run.pcapng", "run.qlog"].map(|name| folder.path().join(name));
    let [pcap, qlog] = files.each_ref().map(|file| file.to_str().expect("text"));
    let server = Server::start(&namespace, &["--once"]);
    let options = ["127.0.0.1", "--stack", "engine", "--size", "100 kB", "--scheduler", "blest", "--quiet"];
    let more = ["--pcap", pcap, "--qlog", qlog, "--flows", "3", "--counters"];
    let output = client(&namespace, &[&options[..], &more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    // The peer's last words find somebody: a capture ends with an ACK, not with RST.
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("TcpOutSegs") && !text.contains("TcpOutRsts"), "{text}");
    server.end();
    let log: Value = serde_json::from_str(&std::fs::read_to_string(&files[1]).expect("a log")).expect("JSON");
    let events = log["traces"][0]["events"].as_array().expect("events");
    assert!(events.iter().any(|event| event["name"] == "mptcp:decision"), "{events:?}");
    let bytes = std::fs::read(&files[0]).expect("a capture");
    let says = |words: &[u8]| bytes.windows(words.len()).any(|window| window == words);
    assert!(bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) && says(b"send 0.."), "{} bytes", bytes.len());

    let output = client(&namespace, &["127.0.0.1", "--pcap", pcap]);
    assert!(
        output.status.code() == Some(2) && errors(&output).contains("give --stack engine"),
        "{}",
        errors(&output)
    );
    let mut command = namespace.command(ROPEWALK);
    command.args([
        "emulate",
        "--quiet",
        "--pcap",
        pcap,
        "--qlog",
        qlog,
        "--",
        "bash",
        "-c",
        "echo hello > /dev/udp/10.127.255.1/9",
    ]);
    let output = command.output().expect("the emulator runs");
    assert!(output.status.success(), "{}", errors(&output));
    assert!(std::fs::metadata(&files[0]).is_ok_and(|file| file.len() > 100));
}

#[test]
fn the_engines_device_may_go_down_and_come_back() {
    let _alone = alone();
    let Some(namespace) = namespace() else { return };
    let ip = |line: &str| {
        namespace.check("ip", &line.split_whitespace().collect::<Vec<_>>()).expect("a device");
    };
    let server = Server::start(&namespace, &["--stack", "engine"]);
    let mut command = namespace.command("timeout");
    command.args(["20", ROPEWALK, "perf", "client", "10.126.0.2", "--reverse", "--time", "2", "--json"]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a client");
    std::thread::sleep(Duration::from_millis(700));
    ip("link set dev rope0 down");
    std::thread::sleep(Duration::from_millis(500));
    ip("link set dev rope0 up");
    let output = running.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    // A client that comes later finds the server there.
    let output = client(&namespace, &["10.126.0.2", "--size", "1 MB"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let stopped = std::process::Command::new("kill").args(["-INT", &server.0.id().to_string()]).status();
    assert!(stopped.is_ok_and(|status| status.success()));
    let text = server.end();
    assert!(text.contains("rope0 is down") && text.contains("rope0 works again"), "{text}");

    // Without any device there is nothing left to do.
    let mut server = Server::start(&namespace, &["--stack", "engine"]);
    ip("link delete dev rope0");
    let mut told = String::new();
    server.0.stderr.take().expect("piped").read_to_string(&mut told).expect("text");
    assert_eq!(server.0.wait().expect("an end").code(), Some(1), "{told}");
    assert!(told.contains("every device of the engine was removed"), "{told}");
}

/// Connections that say nothing cost little memory and no time, and don't keep clients away that speak.
#[test]
fn idle_connections_cost_little_and_keep_nobody_away() {
    let _alone = alone();
    let Some(namespace) = namespace() else { return };
    for (stack, host, few, most_kib) in [("engine", "10.126.0.2", 1000, 16), ("kernel", "127.0.0.1", 200, 48)]
    {
        let server = Server::start(&namespace, &["--stack", stack]);
        let output = client(&namespace, &[host, "--size", "1 MB"]);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let connect = |count: usize| {
            namespace
                .run(|| (0..count).map(|_| TcpStream::connect((host, 5202))).collect::<Result<Vec<_>, _>>())
                .expect("connections")
        };
        let (before, _) = server.usage();
        let idle = connect(few);
        std::thread::sleep(Duration::from_millis(500));
        let (after, ticks) = server.usage();
        std::thread::sleep(Duration::from_millis(1500));
        let spent = server.usage().1 - ticks;
        let each = after.saturating_sub(before) as f64 / few as f64;
        println!("{stack}: {each:.1} KiB per idle connection, {} % of a core for {few}", spent as f64 / 1.5);
        assert!(each < f64::from(most_kib), "{stack}: {each} KiB");
        assert!(spent < 30, "{stack}: {spent} ticks of 10 ms in 1.5 s");
        // Many more than may wait: the oldest are given up, and a client is served at once.
        let flood = connect(3000);
        let output = client(&namespace, &[host, "--size", "1 MB", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{stack}: {}", errors(&output));
        let result = json(&output);
        let connect = number(&result["flows"][0]["connect_us"]);
        assert!(connect < 1e6, "{stack}: {connect} us to connect");
        let (flooded, _) = server.usage();
        assert!(flooded < after + 64 * 1024, "{stack}: {after} KiB, then {flooded} KiB");
        drop((idle, flood));
    }
}

/// `ropewalk perf` behind emulated Wi-Fi and LTE, with options for either side; the one flow.
fn emulated(namespace: &Namespace, server: &str, client: &[&str]) -> Value {
    let server = format!("{ROPEWALK} perf server --once {server}");
    let mut command = namespace.command("timeout");
    command.args(["30", ROPEWALK, "emulate", "--quiet", "--scenario", "wifi-lte", "--peer", &server, "--"]);
    command.args([ROPEWALK, "perf", "client"]).args(client).args(["--size", "1 MB", "--json"]);
    let output = command.output().expect("the emulator runs");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no JSON: {text}"));
    let result: Value = serde_json::from_str(line).expect("JSON");
    let address = result["server"].as_str().and_then(|text| text.parse::<SocketAddr>().ok());
    assert_eq!(address.map(|address| address.port()), Some(5202));
    let flow = result["flows"][0].clone();
    assert_eq!((&flow["multipath"], &flow["subflows"]), (&true.into(), &2.into()), "{flow}");
    flow
}

#[test]
fn connections_open_on_the_path_that_is_named_or_answers_first() {
    let Some(namespace) = namespace() else { return };
    // Wi-Fi is the first path, and the nearer one.
    for (open_on, expected) in [("2", 1), ("race", 0)] {
        let engine = ["10.127.255.1", "--stack", "engine", "--paths", "2"];
        let flow = emulated(&namespace, "", &[&engine[..], &["--open-on", open_on]].concat());
        assert_eq!(flow["client_subflows"][0]["path"], expected, "{open_on}: {flow:#}");
    }
}

#[test]
fn kernel_and_engine_at_either_end_of_emulated_paths() {
    let Some(namespace) = namespace() else { return };
    let million = Value::from(1_000_000);
    let flow = emulated(&namespace, "", &["10.127.255.1", "--reverse"]);
    assert_eq!(flow["download"]["bytes"], million, "{flow}");
    let engine = ["10.127.255.1", "--stack", "engine", "--paths", "2", "--scheduler", "blest"];
    let flow = emulated(&namespace, "", &engine);
    assert_eq!(flow["upload"]["bytes"], million, "{flow}");
    let flow = emulated(&namespace, "--stack engine", &["10.126.0.2", "--reverse"]);
    assert_eq!(flow["download"]["bytes"], million, "{flow}");
    let engine = ["10.126.0.2", "--stack", "engine", "--paths", "2", "--both"];
    let flow = emulated(&namespace, "--stack engine --scheduler ecf", &engine);
    assert_eq!((&flow["upload"]["bytes"], &flow["download"]["bytes"]), (&million, &million), "{flow}");
}

/// One of two paths dies without a word while the engine sends super-segments: everything of theirs goes
/// again on the other path, which is full a second later. The emulated comparisons can't show that, as their
/// segments are single.
#[test]
fn a_path_that_dies_costs_its_share_and_no_more() {
    let _alone = alone();
    let Some(namespace) = namespace() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = folder.path().join("dying.toml");
    // The queue is long enough for the window's reductions not to show.
    let path = |name: &str, changes: &str| {
        format!(
            "[[path]]\nname = \"{name}\"\nrate = \"40 Mbit/s\"\nrtt = \"20 ms\"\nqueue = \"200 \
             packets\"\n{changes}\n"
        )
    };
    let dies = "changes = [{ at = \"2 s\", link = \"down\" }]";
    let text = format!("name = \"dying\"\nsummary = \"One dies\"\n{}{}", path("a", ""), path("b", dies));
    std::fs::write(&scenario, text).expect("a scenario");
    let peer = format!("{ROPEWALK} perf server --once");
    for scheduler in ["minrtt", "blest", "roundrobin", "otias"] {
        let mut command = namespace.command("timeout");
        command.args(["30", ROPEWALK, "emulate", "--quiet", "--scenario"]).arg(&scenario);
        command.args([
            "--peer",
            &peer,
            "--",
            ROPEWALK,
            "perf",
            "client",
            "10.127.255.1",
            "--stack",
            "engine",
        ]);
        command.args([
            "--paths",
            "2",
            "--time",
            "5",
            "--interval",
            "0.5",
            "--json",
            "--scheduler",
            scheduler,
        ]);
        let output = command.output().expect("the emulator runs");
        assert_eq!(output.status.code(), Some(0), "{scheduler}: {}", errors(&output));
        let result = json(&output);
        let intervals = result["intervals"].as_array().expect("intervals");
        let rates: Vec<(f64, f64)> = intervals
            .iter()
            .map(|interval| {
                (
                    number(&interval["start_seconds"]),
                    number(&interval["flows"][0]["sent_bits_per_second"]) / 1e6,
                )
            })
            .collect();
        println!("{scheduler}: {rates:.1?}");
        // The client began after the emulator, so that at 2 s of its own time the path is gone.
        let mean = |from: f64, to: f64| {
            let inside = rates.iter().filter(|(start, _)| (from..to).contains(start));
            let values: Vec<f64> = inside.map(|(_, rate)| *rate).collect();
            values.iter().sum::<f64>() / values.len() as f64
        };
        assert!(mean(0.5, 1.4) > 50.0, "{scheduler}: both paths carry data: {rates:?}");
        assert!(mean(3.0, 4.6) > 30.0, "{scheduler}: the other path is full a second later: {rates:?}");
    }
}
