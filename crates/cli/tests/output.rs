//! Where output goes: what stands at a file's place stays what it is, and two outputs never share a place.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// As little as can be compared.
const SHORT: &[&str] = &["compare", "--schedulers", "minrtt", "--size", "16 KiB", "--runs", "1"];

fn ropewalk(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .current_dir(folder)
        .args(SHORT)
        .args(arguments)
        .output()
        .unwrap()
}

fn good(folder: &Path, arguments: &[&str]) {
    let output = ropewalk(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Code 2, all of `expected` in the message.
fn refused(folder: &Path, arguments: &[&str], expected: &[&str]) {
    let output = ropewalk(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
    for part in expected {
        assert!(errors.contains(part), "{arguments:?}: no `{part}` in\n{errors}");
    }
}

fn shell(folder: &Path, line: &str) -> Output {
    let line = format!("{line}\n");
    let program = env!("CARGO_BIN_EXE_ropewalk");
    let mut command = Command::new("sh");
    command.current_dir(folder).args(["-c", &line, "sh", program]).args(SHORT);
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn symbolic_links_go_on_pointing_where_they_point() {
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| here.path().join(name);
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/old.csv"), "old\n").unwrap();
    fs::set_permissions(at("folder/old.csv"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("folder/old.csv", at("link.csv")).unwrap();
    symlink("link.csv", at("second.csv")).unwrap();
    good(here.path(), &["--csv", "second.csv"]);
    assert!(fs::read_to_string(at("folder/old.csv")).unwrap().starts_with("scenario,"));
    assert_eq!(fs::metadata(at("folder/old.csv")).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(at("link.csv").is_symlink() && at("second.csv").is_symlink());
    // One that points at nothing yet.
    symlink("folder/new.csv", at("dangling.csv")).unwrap();
    good(here.path(), &["--csv", "dangling.csv"]);
    assert!(at("dangling.csv").is_symlink() && at("folder/new.csv").is_file());
    symlink("nowhere/new.csv", at("lost.csv")).unwrap();
    refused(here.path(), &["--csv", "lost.csv"], &["can't write `lost.csv`: there is no folder `nowhere`"]);
}

#[test]
fn pipes_are_written_to() {
    let here = tempfile::tempdir().unwrap();
    let fifo = here.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = Command::new("head").args(["-c", "9"]).arg(&fifo).stdout(Stdio::piped()).spawn().unwrap();
    good(here.path(), &["--csv", "fifo"]);
    assert_eq!(reader.wait_with_output().unwrap().stdout, b"scenario,");
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
}

#[cfg(target_os = "linux")]
#[test]
fn a_number_of_an_open_file_is_a_place_too() {
    let here = tempfile::tempdir().unwrap();
    // As `--csv >(wc -l)` has it.
    let piped =
        shell(here.path(), r#"program=$1; shift; "$program" "$@" --csv /dev/fd/3 3>&1 >/dev/null | wc -l"#);
    let errors = String::from_utf8_lossy(&piped.stderr);
    // A heading; `minrtt`, `linux` and plain TCP on two paths.
    assert_eq!(String::from_utf8_lossy(&piped.stdout).trim(), "5", "{errors}");
    // Standard output that goes to a file: neither writes over the other.
    let both = shell(here.path(), r#"program=$1; shift; "$program" "$@" --csv /dev/stdout >both.txt"#);
    let text = fs::read_to_string(here.path().join("both.txt")).unwrap();
    let errors = String::from_utf8_lossy(&both.stderr);
    assert!(text.starts_with("scenario,") && text.contains("wifi-lte: "), "{errors}\n{text}");
}

#[test]
fn where_no_file_can_be_made_the_reason_is_said() {
    let here = tempfile::tempdir().unwrap();
    refused(here.path(), &["--csv", "none/x.csv"], &["can't write `none/x.csv`: there is no folder `none`"]);
    fs::write(here.path().join("file"), "").unwrap();
    refused(here.path(), &["--csv", "file/x.csv"], &["can't write `file/x.csv`: `file` is not a folder"]);
    #[cfg(target_os = "linux")]
    refused(
        here.path(),
        &["--csv", "/proc/x.csv"],
        &["can't write `/proc/x.csv`: can't create a file there"],
    );
}

#[test]
fn two_outputs_are_never_one_file() {
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| here.path().join(name);
    let both = "it is the file of both --csv and --report";
    refused(here.path(), &["--csv", "out", "--report", "out"], &[both]);
    refused(here.path(), &["--csv", "out", "--report", "./out"], &[both]);
    fs::write(at("there"), "").unwrap();
    symlink("there", at("link")).unwrap();
    refused(here.path(), &["--csv", "there", "--report", "link"], &[both]);
    symlink("not-yet", at("dangling")).unwrap();
    refused(here.path(), &["--csv", "not-yet", "--report", "dangling"], &[both]);
    assert!(!at("out").exists() && !at("not-yet").exists());
    let explain = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .current_dir(here.path())
        .args(["explain", "--pcap", "run", "--qlog", "run"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&explain.stderr);
    assert!(explain.status.code() == Some(2) && errors.contains("both --pcap and --qlog"), "{errors}");
    good(here.path(), &["--csv", "one", "--report", "two"]);
}
