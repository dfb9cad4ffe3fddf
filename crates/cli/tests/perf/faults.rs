//! Faults of the machine beside a measurement: programs that are killed or stopped, addresses and disks that
//! go. Nothing is left behind, and nothing hangs.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use ropewalk_host::netns::Namespace;

use crate::processes::{ROPEWALK, Server, alone, client, errors, json, namespace, number};

const ENGINE: &str = "10.126.0.2";

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{name}");
}

fn start(namespace: &Namespace, arguments: &[&str]) -> Child {
    let mut command = namespace.command(ROPEWALK);
    command.args(["perf", "client"]).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a client")
}

/// Addresses, routes and rules of both families, without the hops' lifetimes.
fn state(namespace: &Namespace) -> String {
    let show = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        namespace.check("ip", &words).expect("ip")
    };
    ["-brief link", "-brief address", "route show table all", "-6 route show table all", "rule", "-6 rule"]
        .map(show)
        .concat()
}

#[test]
fn a_killed_engine_leaves_nothing_and_its_peer_ends() {
    let _alone = alone();
    let Some(namespace) = namespace() else { return };
    let before = state(&namespace);
    // A server, while a client receives.
    let mut server = Server::start(&namespace, &["--stack", "engine"]);
    let running = start(&namespace, &[ENGINE, "--reverse", "--time", "20"]);
    std::thread::sleep(Duration::from_millis(500));
    signal(&server.0, "-KILL");
    server.0.wait().expect("an end");
    assert_eq!(state(&namespace), before);
    signal(&running, "-INT");
    let output = running.wait_with_output().expect("an end");
    assert!([1, 130].contains(&output.status.code().unwrap_or(0)), "{}", errors(&output));

    // A client, while it sends on two paths: the server serves the next.
    let server = Server::start(&namespace, &[]);
    let engine = ["127.0.0.1", "--stack", "engine", "--paths", "2", "--time", "20"];
    let mut running = start(&namespace, &engine);
    std::thread::sleep(Duration::from_millis(500));
    assert_ne!(state(&namespace), before);
    signal(&running, "-KILL");
    running.wait().expect("an end");
    assert_eq!(state(&namespace), before);
    let output = client(&namespace, &["127.0.0.1", "--stack", "engine", "--size", "1 MB"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    drop(server);
    assert_eq!(state(&namespace), before);
}

/// For longer than several retransmission timeouts, either end's process does nothing at all.
#[test]
fn a_stopped_engine_goes_on_where_it_was() {
    let _alone = alone();
    let Some(namespace) = namespace() else { return };
    let server = Server::start(&namespace, &["--stack", "engine"]);
    for way in [&[][..], &["--reverse"]] {
        let arguments = [&[ENGINE, "--time", "4", "--interval", "0.5", "--json"], way].concat();
        let running = start(&namespace, &arguments);
        std::thread::sleep(Duration::from_millis(1000));
        signal(&server.0, "-STOP");
        std::thread::sleep(Duration::from_millis(1500));
        signal(&server.0, "-CONT");
        let output = running.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(0), "{way:?}: {}", errors(&output));
        let result = json(&output);
        let name = if way.is_empty() { "sent_bits_per_second" } else { "received_bits_per_second" };
        let rates: Vec<f64> = result["intervals"]
            .as_array()
            .expect("intervals")
            .iter()
            .map(|interval| number(&interval["flows"][0][name]) / 1e6)
            .collect();
        // Its own time goes on while it is stopped: the last second is after it.
        let last = rates.iter().rev().take(3).copied().fold(0.0, f64::max);
        let first = rates[0];
        assert!(last > first / 4.0, "{way:?}: {rates:.0?}");
    }
    // The client's process, likewise.
    let engine = ["127.0.0.1", "--stack", "engine", "--time", "3", "--json"];
    let kernel = Server::start(&namespace, &["--port", "5203"]);
    let running = start(&namespace, &[&engine[..], &["--port", "5203"]].concat());
    std::thread::sleep(Duration::from_millis(500));
    signal(&running, "-STOP");
    std::thread::sleep(Duration::from_millis(1500));
    signal(&running, "-CONT");
    let output = running.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    drop((server, kernel));
}

/// The address of one of two paths is deleted at the client, a kernel: the connection goes on over the other.
/// The queues are long enough for the window's reductions not to show.
#[test]
fn a_deleted_address_costs_its_path_and_no_more() {
    let _alone = alone();
    let Some(namespace) = namespace() else { return };
    let program = format!(
        "{ROPEWALK} perf client 10.126.0.2 --time 4 --interval 0.5 --reverse --json & sleep 1.5; ip address \
         del 10.127.1.2/32 dev lte; wait $!"
    );
    let peer = format!("{ROPEWALK} perf server --once --stack engine");
    let mut command = namespace.command("timeout");
    command.args(["30", ROPEWALK, "emulate", "--quiet"]);
    command.args(["--path", "wifi: 40 Mbit/s, 10 ms, queue 200 packets"]);
    command.args(["--path", "lte: 40 Mbit/s, 20 ms, queue 200 packets"]);
    command.args(["--peer", &peer, "--", "sh", "-c", &program]);
    let output = command.output().expect("the emulator runs");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no JSON: {text}"));
    let result: serde_json::Value = serde_json::from_str(line).expect("JSON");
    let intervals = result["intervals"].as_array().expect("intervals");
    let rates: Vec<f64> = intervals
        .iter()
        .map(|interval| number(&interval["flows"][0]["received_bits_per_second"]) / 1e6)
        .collect();
    println!("{rates:.1?}");
    assert!(rates[1] > 50.0, "both paths carry data: {rates:.1?}");
    assert!(rates[5..7].iter().all(|rate| *rate > 30.0), "the other path is full: {rates:.1?}");
}

/// A measurement whose capture doesn't fit on the disk: its result is printed, the file is left out, the
/// error names it.
#[test]
fn a_full_disk_costs_the_capture_and_nothing_else() {
    let Some(namespace) = namespace() else { return };
    let server = Server::start(&namespace, &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_str().expect("text");
    let run = |line: String| -> Output {
        let mut command = namespace.command("timeout");
        command.args(["30", "unshare", "-m", "sh", "-c", &line]);
        command.output().expect("it runs")
    };
    let disk = format!("mount -t tmpfs -o size=256k none {place} && cd {place}");
    let measure = format!("{ROPEWALK} perf client 127.0.0.1 --stack engine --size '4 MB'");
    if !run(disk.clone()).status.success() {
        ropewalk_host::skip::skipped("a small disk can't be mounted");
        return;
    }
    let output = run(format!("{disk} && {measure} --pcap run.pcapng; code=$?; ls -A; exit $code"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}{}", errors(&output));
    assert!(errors(&output).contains("run.pcapng: no space left on the disk"), "{}", errors(&output));
    assert!(text.contains("bit/s"), "the result is missing: {text}");
    let last = text.lines().last().expect("a line");
    assert!(!last.contains("run.pcapng") && !last.starts_with('.'), "left behind: {last}");

    // The other file, on another disk, is whole.
    let log = tempfile::NamedTempFile::new().expect("a file");
    let both = format!("--pcap run.pcapng --qlog {}", log.path().display());
    let output = run(format!("{disk} && {measure} {both}"));
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    let log = std::fs::read_to_string(log.path()).expect("a log");
    assert!(serde_json::from_str::<serde_json::Value>(&log).is_ok(), "{} bytes", log.len());

    // The emulator's program gets its own exit code and summary out; the emulator's says what failed.
    let emulate =
        format!("{ROPEWALK} emulate --pcap run.pcapng -- ping -q -c 3 -i 0.01 -s 1400 10.127.255.1");
    let full = format!("{disk} && head -c 250k /dev/zero > fill; {emulate}");
    let output = run(full);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("3 received"), "{}", errors(&output));
    drop(server);
}
