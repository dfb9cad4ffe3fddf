//! The examples run, and say what they are meant to.

use std::path::{Path, PathBuf};
use std::process::Command;

/// An example's program, which is built with the tests.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let folder = test.parent().and_then(Path::parent).expect("target/PROFILE/deps");
    folder.join("examples").join(name)
}

fn run(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(program(name))
        .args(arguments)
        .output()
        .expect("the example, which `--test all` alone doesn't build: add `--examples`");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn loopback_uses_both_paths() {
    let text = run("loopback", &[]);
    assert!(text.contains("client: SubflowAdded") && text.contains("1000000 bytes arrived"), "{text}");
    for path in ["path 0: ", "path 1: "] {
        let line = text.lines().find_map(|line| line.strip_prefix(path)).expect("a line for each path");
        let bytes: u64 = line.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
        assert!(bytes > 50_000, "{text}");
    }
}

#[test]
fn a_congestion_control_of_ones_own_is_known_by_its_name() {
    let text = run("own-congestion-control", &[]);
    let took = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line for each");
        line.trim_start_matches(": 5 MB in ")
            .split(' ')
            .next()
            .and_then(|ms| ms.parse().ok())
            .expect("a time")
    };
    // 5 MB at 18 and at 10 Mbit/s, with headers.
    assert!((2_200..2_700).contains(&took("steady")), "{text}");
    assert!((4_000..4_600).contains(&took("steady(rate=10)")), "{text}");
    assert!((2_000..4_000).contains(&took("cubic")), "{text}");
    assert!(text.contains("steady: 5 MB") && text.lines().count() == 3, "{text}");
}

#[test]
fn a_capture_is_one_that_others_read() {
    let file = std::env::temp_dir().join(format!("ropewalk-capture-{}.pcapng", std::process::id()));
    let name = file.to_str().expect("a plain name");
    let text = run("capture", &[name]);
    let packets: usize = text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    assert!(packets > 50, "{text}");
    let read = Command::new("tshark")
        .args([
            "-r",
            name,
            "-T",
            "fields",
            "-e",
            "tcp.stream",
            "-e",
            "tcp.option_kind",
            "-e",
            "_ws.malformed",
        ])
        .output();
    let fields = read.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let bytes = std::fs::read(&file).expect("written");
    std::fs::remove_file(&file).expect("there");
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a section header");
    match fields {
        Ok(fields) => {
            assert_eq!(fields.lines().count(), packets, "{fields}");
            assert!(fields.lines().any(|line| line.starts_with("1\t")), "a second subflow: {fields}");
            assert!(
                fields.lines().filter(|line| line.contains("30")).count() > packets / 2,
                "kind 30 is MPTCP's"
            );
            assert!(!fields.contains("Malformed"), "{fields}");
        }
        Err(error) => {
            assert!(std::env::var_os("ROPEWALK_NO_SKIP").is_none(), "tshark: {error}");
            println!("skipped: tshark: {error}");
        }
    }
}
