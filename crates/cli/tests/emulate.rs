//! `ropewalk emulate` and `ropewalk compare --world emulated` as processes: what they leave behind however
//! they end, what an ordinary user may do, and the evidence that they write.

#[path = "../../host/tests/kernel/judges.rs"]
mod judges;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use ropewalk_engine::Time;
use ropewalk_host::clock::Clock;
use ropewalk_host::netns::Namespace;

const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");
/// For what takes a moment, on the busiest of machines.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether namespaces and devices can be made here, having said why not.
fn permitted() -> bool {
    let made = Namespace::new("probe").and_then(|namespace| {
        namespace.run(|| fs::OpenOptions::new().write(true).open("/dev/net/tun").map(drop))
    });
    made.map_err(ropewalk_host::skip::skipped).is_ok()
}

/// Waits until something is so.
fn wait(what: &str, mut so: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !so() {
        assert!(
            clock.now() < Time::from_nanos(PATIENCE.as_nanos() as u64),
            "{what}: not within {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An emulator under way, as the leader of a group of its own as a shell starts it, with a program and a peer
/// that have started others which left them.
struct Running {
    emulator: Child,
    /// The namespaces of its ends, as /proc names them.
    spaces: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Running {
    fn start() -> Running {
        let folder = tempfile::tempdir().unwrap();
        let files = ["program", "peer"].map(|name| folder.path().join(name));
        let [program, peer] = files.each_ref().map(|file| {
            let file = file.display();
            // The name appears when it is whole.
            format!(
                "setsid sleep 300 & readlink /proc/self/ns/net > {file}.new; mv {file}.new {file}; sleep \
                 300; true"
            )
        });
        // `nohup`, or a shell that put the tests into the background, has signals ignored, and children
        // inherit that.
        let mut command = Command::new("env");
        command.args(["--default-signal", ROPEWALK, "emulate", "--quiet", "--peer", &peer]).process_group(0);
        command.args(["--", "sh", "-c", &program]);
        let mut emulator = command.stdin(Stdio::null()).spawn().unwrap();
        wait("both commands start", || {
            assert!(emulator.try_wait().unwrap().is_none(), "the emulator ended");
            files.iter().all(|file| file.exists())
        });
        let spaces = files.iter().map(|file| fs::read_to_string(file).unwrap().trim().to_string()).collect();
        Running { emulator, spaces, _folder: folder }
    }

    /// Sends a signal to the emulator, or to its group as Ctrl-C does, and waits for its end.
    fn end(&mut self, signal: &str, group: bool) {
        let id = self.emulator.id();
        let target = if group { format!("-{id}") } else { id.to_string() };
        let sent = Command::new("kill").args(["-s", signal, "--", &target]).status().unwrap();
        assert!(sent.success());
        wait("the emulator ends", || self.emulator.try_wait().unwrap().is_some());
    }

    /// Processes in its namespaces.
    fn inside(&self) -> Vec<String> {
        let is_there = |pid: &String| {
            fs::read_link(format!("/proc/{pid}/ns/net"))
                .is_ok_and(|space| self.spaces.iter().any(|known| Path::new(known) == space))
        };
        pids().into_iter().filter(is_there).collect()
    }

    /// Processes that hold one of its namespaces: they are in it or have it open.
    fn holders(&self) -> Vec<String> {
        let holds = |pid: &String| {
            let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
            let mut links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
            links.any(|link| self.spaces.iter().any(|known| Path::new(known) == link))
        };
        let mut all = self.inside();
        all.extend(pids().into_iter().filter(holds));
        all
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // For a test that failed.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
        for pid in self.inside() {
            let _ = Command::new("kill").args(["-9", &pid]).status();
        }
    }
}

fn pids() -> Vec<String> {
    let names =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

#[test]
fn nothing_is_left_after_an_interruption_or_a_request_to_end() {
    if !permitted() {
        return;
    }
    for (signal, group) in [("INT", true), ("INT", false), ("TERM", false), ("HUP", false)] {
        let mut running = Running::start();
        assert_eq!(running.spaces.len(), 2);
        // A shell, what it waits for and what left it, on either side; each appears in its own time.
        wait(&format!("{signal}: six programs run"), || running.inside().len() >= 6);
        running.end(signal, group);
        // Processes that were killed vanish a moment later.
        wait(&format!("{signal}: namespaces and all in them are gone"), || running.holders().is_empty());
    }
}

#[test]
fn of_a_killed_emulator_the_devices_and_programs_go_at_once_and_the_rest_with_the_next() {
    if !permitted() {
        return;
    }
    let mut running = Running::start();
    wait("six programs run", || running.inside().len() >= 6);
    let before = running.inside().len();
    running.end("KILL", false);
    // The shells are gone; what left them is not.
    wait("the programs are gone", || running.inside().len() <= before - 2);
    for pid in running.inside() {
        let devices = || fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
        wait("the devices are gone", || devices().lines().skip(2).all(|line| line.trim().starts_with("lo:")));
    }
    // What detached itself lives on, unless another emulator has started in the meantime, and holds the
    // namespaces.
    let next = Command::new(ROPEWALK).args(["emulate", "--quiet", "--", "true"]).output().unwrap();
    assert!(next.status.success(), "{}", text(&next.stderr));
    wait("the namespaces are gone", || running.holders().is_empty());
}

#[test]
fn a_killed_comparison_leaves_nothing() {
    if !permitted() {
        return;
    }
    let mut command = Command::new(ROPEWALK);
    command.args([
        "compare",
        "--world",
        "emulated",
        "--schedulers",
        "minrtt",
        "--size",
        "20 MB",
        "--runs",
        "9",
    ]);
    command.args(["--sender", "engine", "--receiver", "kernel"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut emulator = command.spawn().unwrap();
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    let mut spaces = Vec::new();
    wait("a namespace is made", || {
        assert!(emulator.try_wait().unwrap().is_none(), "the comparison ended");
        let entries = fs::read_dir(format!("/proc/{}/fd", emulator.id())).unwrap();
        let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        spaces = links
            .filter(|link| *link != own && link.to_string_lossy().starts_with("net:"))
            .map(|link| link.display().to_string())
            .collect();
        !spaces.is_empty()
    });
    let mut running = Running { emulator, spaces, _folder: tempfile::tempdir().unwrap() };
    running.end("KILL", false);
    wait("the namespaces are gone", || running.holders().is_empty());
}

/// A path's interface goes down in mid-run and comes back, or is removed. The transfer goes on over the other
/// path.
#[test]
fn an_interface_that_goes_down_ends_nothing() {
    if !permitted() {
        return;
    }
    let routes = "ip route add default dev wifi src 10.127.0.2 table 100; ip route add default dev wifi src \
                  10.127.0.2 metric 10";
    for (stack, change) in [
        ("kernel", format!("ip link set dev wifi down; sleep 0.5; ip link set dev wifi up; {routes}")),
        (
            "engine --paths 2",
            format!("ip link set dev wifi down; sleep 0.5; ip link set dev wifi up; {routes}"),
        ),
        ("engine --paths 2", "ip link delete dev wifi".to_string()),
    ] {
        let program = format!(
            "{ROPEWALK} perf client 10.127.255.1 --stack {stack} --time 3 --reverse --json & sleep 1; \
             {change}; wait $!"
        );
        let peer = format!("{ROPEWALK} perf server --once");
        let mut command = Command::new("timeout");
        command.args(["30", ROPEWALK, "emulate", "--json"]);
        command.args(["--path", "wifi: 20 Mbit/s, 5 ms", "--path", "lte: 20 Mbit/s, 10 ms"]);
        command.args(["--peer", &peer, "--", "sh", "-c", &program]).stdin(Stdio::null());
        let output = command.output().unwrap();
        let told = text(&output.stderr);
        assert!(output.status.success(), "{stack}, {change}: {told} {}", text(&output.stdout));
        let line = told.lines().find(|line| line.starts_with('{')).expect("JSON");
        let counted: serde_json::Value = serde_json::from_str(line).unwrap();
        let lost = &counted["lost_to_interfaces_down"];
        assert!(lost["times_down"].as_u64() >= Some(1) && lost["packets"].as_u64() >= Some(1), "{lost}");
        // Both paths carried data, and the other one did so to the end: 20 Mbit/s for 3 s are 7.5 MB.
        let bytes = |path: usize| counted["paths"][path]["down"]["delivered_bytes"].as_u64().unwrap_or(0);
        assert!(bytes(0) > 1_000_000 && bytes(1) > 4_500_000, "{stack}, {change}: {counted}");
    }
}

/// True, having said so, if one of these programs isn't installed.
fn lacks(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|name| {
        Command::new(name).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    });
    if let Some(name) = missing {
        ropewalk_host::skip::skipped(format!("{name} is not installed"));
    }
    missing.is_some()
}

/// Runs the examples of `emulate --help` in a folder with a file; its output, and what has become of `copy`.
fn example(peer: &str, program: &str) -> (Output, Option<Vec<u8>>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    fs::write(folder.path().join("FILE"), &sent).unwrap();
    let settings = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/nginx.conf");
    fs::copy(settings, folder.path().join("nginx.conf")).unwrap();
    let mut command = Command::new("timeout");
    command.args(["60", ROPEWALK, "emulate", "--scenario", "equal-paths", "--json", "--peer", peer, "--"]);
    command.args(program.split(' ')).current_dir(folder.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    (output, fs::read(folder.path().join("copy")).ok(), sent)
}

/// It ended well, and was Multipath TCP over both paths.
fn assert_multipath(name: &str, output: &Output) {
    let told = text(&output.stderr);
    assert!(output.status.success(), "{name}: {told}");
    let line = told.lines().find(|line| line.starts_with('{')).expect("JSON");
    let counted: serde_json::Value = serde_json::from_str(line).unwrap();
    let joins = counted["client_counters"]["MPTcpExtMPJoinSynAckRx"].as_u64().unwrap_or(0);
    assert!(
        joins >= 1 && counted["client_counters"]["MPTcpExtMPCapableFallbackSYNACK"].is_null(),
        "{name}: {told}"
    );
}

#[test]
fn iperf3_runs_as_the_help_says() {
    if !permitted() || lacks(&["iperf3", "mptcpize"]) {
        return;
    }
    let (output, _, _) = example("mptcpize run iperf3 -s -1", "mptcpize run iperf3 -c 10.127.255.1 -t 1 -J");
    assert_multipath("iperf3", &output);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["end"]["sum_received"]["bytes"].as_u64().unwrap() > 100_000, "{result}");
}

#[test]
fn curl_fetches_from_nginx_as_the_help_says() {
    if !permitted() || lacks(&["nginx", "curl", "mptcpize"]) {
        return;
    }
    let (output, copy, sent) = example(
        "mptcpize run nginx -p . -e stderr -c nginx.conf",
        "mptcpize run curl -so copy http://10.127.255.1:8080/FILE",
    );
    assert_multipath("curl", &output);
    assert!(copy.is_some_and(|copy| copy == sent), "the copy differs");
}

#[test]
fn socat_copies_a_file_as_the_help_says() {
    if !permitted() || lacks(&["socat", "mptcpize"]) {
        return;
    }
    let (output, copy, sent) = example(
        // Without `fork` its listening socket is gone after the first connection, and the kernel takes no
        // join.
        "mptcpize run socat -u FILE:FILE TCP-LISTEN:9000,fork",
        "mptcpize run socat -u TCP:10.127.255.1:9000 CREATE:copy",
    );
    assert_multipath("socat", &output);
    assert!(copy.is_some_and(|copy| copy == sent), "the copy differs");
}

/// The command as an ordinary user, in a folder of theirs; `None`, having said why, where the machine doesn't
/// allow it.
struct Ordinary {
    folder: tempfile::TempDir,
    program: PathBuf,
    is_root: bool,
    /// Commands get a `/dev/net/tun` of their own that anyone may open, as most distributions have it.
    own_tun: bool,
}

impl Ordinary {
    /// The number of a user who is nobody in particular.
    const USER: u32 = 65_534;

    fn new() -> Option<Ordinary> {
        let is_root = text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0";
        let folder = tempfile::tempdir().unwrap();
        let mut ordinary = Ordinary { folder, program: ROPEWALK.into(), is_root, own_tun: false };
        let open_tun = ["sh", "-c", ": <>/dev/net/tun"];
        if is_root {
            ordinary.own_tun = !ordinary.may(&open_tun).ok()?;
            std::os::unix::fs::chown(ordinary.folder.path(), Some(Self::USER), Some(Self::USER)).unwrap();
            // The build's folder may be closed to others, as `/root` is. What `setpriv` starts itself it
            // finds all the same, with the capabilities that it still has.
            if !ordinary.may(&["sh", "-c", "exec \"$0\" --version", ROPEWALK]).ok()? {
                ordinary.program = ordinary.folder.path().join("ropewalk");
                fs::copy(ROPEWALK, &ordinary.program).unwrap();
            }
        }
        for (needed, command) in [
            ("making a user and a network namespace", vec!["unshare", "-Urn", "true"]),
            ("opening /dev/net/tun", open_tun.to_vec()),
        ] {
            match ordinary.may(&command) {
                Ok(true) => {}
                Ok(false) => {
                    ropewalk_host::skip::skipped(format!(
                        "{needed} isn't permitted to an ordinary user here"
                    ));
                    return None;
                }
                Err(error) => {
                    ropewalk_host::skip::skipped(format!("{} can't be run: {error}", command[0]));
                    return None;
                }
            }
        }
        Some(ordinary)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(if self.own_tun { "unshare" } else { "timeout" });
        if self.own_tun {
            // In a mount namespace that ends with the command: the machine's own device stays as it is.
            let own =
                "mount -t tmpfs own /dev/net && mknod -m 666 /dev/net/tun c 10 200 && exec timeout \"$@\"";
            command.args(["--mount", "sh", "-c", own, "sh"]);
        }
        command.arg("60");
        if self.is_root {
            let user = Self::USER.to_string();
            command.args(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "--no-new-privs"]);
        }
        command.args(words).current_dir(self.folder.path());
        command
    }

    fn may(&self, words: &[&str]) -> std::io::Result<bool> {
        self.command(words).output().map(|output| output.status.success())
    }

    fn ropewalk(&self, words: &[&str]) -> Output {
        let program = self.program.to_str().unwrap();
        self.command(&[&[program], words].concat()).output().unwrap()
    }
}

#[test]
fn an_ordinary_user_emulates_and_compares() {
    let Some(user) = Ordinary::new() else { return };
    let peer = format!("{} perf server --once", user.program.display());
    let program = user.program.display().to_string();
    let words = ["emulate", "--quiet", "--scenario", "equal-paths", "--peer", &peer, "--"];
    let client = [&program, "perf", "client", "10.127.255.1", "--size", "200 kB", "--json"];
    let output = user.ropewalk(&[&words[..], &client[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let text_of = text(&output.stdout);
    let line = text_of.lines().find(|line| line.starts_with('{')).expect("JSON");
    let result: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (&result["flows"][0]["subflows"], &result["flows"][0]["multipath"]),
        (&2.into(), &true.into())
    );

    for (sender, receiver) in [("engine", "kernel"), ("kernel", "engine")] {
        let words = ["compare", "--world", "emulated", "--scenario", "equal-paths", "--size", "200 kB"];
        let more =
            ["--schedulers", "linux", "--runs", "1", "--sender", sender, "--receiver", receiver, "--json"];
        let output = user.ropewalk(&[&words[..], &more[..]].concat());
        assert!(output.status.success(), "{sender} to {receiver}: {}", text(&output.stderr));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = document["rankings"][0]["rows"].as_array().expect("rows");
        let row = |name: &str| rows.iter().find(|row| row["scheduler"] == name);
        // Beside the engine's schedulers the kernel sends, too.
        assert_eq!(row("kernel").is_some(), sender == "engine", "{document}");
        let linux = row("linux").expect("a row");
        assert!(linux["fct_s"][0].is_number(), "{document}");
        // What a kernel doesn't tell isn't 0.
        assert_eq!(linux["window_blocked_s"].is_null(), sender == "kernel");
        assert_eq!(linux["out_of_order_bytes_max"].is_null(), receiver == "kernel");
        let world = &document["world"];
        assert_eq!((&world["sender"], &world["receiver"]), (&sender.into(), &receiver.into()));
        let packets = |class: &serde_json::Value| class["packets"].as_u64().expect("a number");
        let late = world["real_time"]["lateness"].as_array().expect("classes");
        assert!(late.iter().map(packets).sum::<u64>() > 300, "{world}");
        assert_eq!(world["real_time"]["runs"].as_u64(), Some(rows.len() as u64), "{world}");
    }
    // Nothing but what was asked for is in the user's folder.
    let names: Vec<_> =
        fs::read_dir(user.folder.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(names.iter().all(|name| name == "ropewalk"), "{names:?}");
}

#[test]
fn a_kernel_where_there_is_none_and_schedulers_that_it_lacks_are_refused() {
    for (words, message) in [
        (&["--sender", "kernel"][..], "the simulated world has no kernel"),
        (&["--receiver", "kernel"], "the simulated world has no kernel"),
        (
            &["--world", "emulated", "--sender", "kernel", "--schedulers", "linux,blest"],
            "can't send by `blest`",
        ),
    ] {
        let output = Command::new(ROPEWALK).arg("compare").args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
}

#[test]
fn a_comparison_in_real_time_writes_a_capture_and_a_log_that_others_can_read() {
    if !permitted() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let policy = concat!("policy:", env!("CARGO_MANIFEST_DIR"), "/../lab/tests/policies/least-srtt.json");
    for (name, scheduler, ends, direction) in [
        ("engine-kernel", policy, ["engine", "kernel"], "upload"),
        ("kernel-engine", "linux", ["kernel", "engine"], "download"),
    ] {
        let files = ["pcapng", "qlog"].map(|end| folder.path().join(format!("{name}.{end}")));
        let [pcap, log] = files.each_ref().map(|file| file.to_str().unwrap());
        let mut command = Command::new("timeout");
        command.args([
            "60",
            ROPEWALK,
            "compare",
            "--world",
            "emulated",
            "--scenario",
            "equal-paths",
            "--json",
        ]);
        command.args([
            "--size",
            "400 kB",
            "--runs",
            "1",
            "--schedulers",
            scheduler,
            "--direction",
            direction,
        ]);
        command.args(["--sender", ends[0], "--receiver", ends[1], "--pcap", pcap, "--qlog", log]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("one more run was watched: "), "{}", text(&output.stderr));
        // The watched end is the sender: 400 kB of data leave it, in packets and super-packets.
        let count = judges::etherparse(name, &files[0]);
        assert!(count > 280, "{name}: {count} packets");
        let events = judges::qlog(name, &files[1]);
        assert!(events("transport:packet_sent") + events("transport:packet_received") > 280, "{name}");
        let is_engine = ends[0] == "engine";
        assert_eq!(events("mptcp:decision") > 10, is_engine, "{name}: {}", events("mptcp:decision"));
        let Some(opinion) = judges::tshark(name, &files[0], count) else { continue };
        assert_eq!((opinion.connections, opinion.subflows), (1, 2), "{name}");
        let judges::Opinion { sent, reasons, .. } = opinion;
        assert!(sent > 200, "{name}: {sent} data packets");
        assert!(!is_engine || reasons * 10 > sent * 9, "{name}: {reasons} reasons on {sent} data packets");
    }
}
