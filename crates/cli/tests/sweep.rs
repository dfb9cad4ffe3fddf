//! `ropewalk sweep` as a process: killed, out of space, with damaged files, on one thread and on four.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");
const RUNS: u64 = 480;
const DESIGN: &str = "scenario = 'wifi-lte'\nschedulers = ['minrtt', 'ecf', 'tcp:wifi']\nruns = 8\n\
    [[vary]]\nparameter = 'path.lte.rtt'\nfrom = '20 ms'\nto = '200 ms'\nsteps = 10\n\
    [[vary]]\nparameter = 'workload.size'\nvalues = ['48 KiB', '160 KiB']\n";

struct Workdir {
    folder: tempfile::TempDir,
}

impl Workdir {
    fn new() -> Self {
        let workdir = Workdir { folder: tempfile::tempdir().unwrap() };
        fs::write(workdir.file(), DESIGN).unwrap();
        workdir
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("design.toml")
    }

    fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, out: &str, jobs: u32) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("sweep").arg(self.file()).arg("--out").arg(self.out(out));
        command.args(["--json", "--jobs", &jobs.to_string()]);
        command
    }

    fn tables(&self, out: &str) -> Vec<u8> {
        fs::read(self.out(out).join("runs.csv")).unwrap()
    }
}

fn finished(output: &Output) -> serde_json::Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "quiet without a terminal");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn failed(output: &Output, code: i32, message: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.contains(message), "{errors}");
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[test]
fn threads_and_kills_change_nothing() {
    let workdir = Workdir::new();
    let whole = finished(&workdir.command("one", 1).output().unwrap());
    assert_eq!((&whole["runs"], &whole["runs_made"]), (&RUNS.into(), &RUNS.into()));
    let expected = workdir.tables("one");
    finished(&workdir.command("four", 4).output().unwrap());
    assert_eq!(workdir.tables("four"), expected);
    let journal_length = length(&workdir.out("one").join("journal"));

    // Killed again and again, each time a little further on.
    let journal = workdir.out("killed").join("journal");
    let mut kills = 0;
    for part in 1..6 {
        let mut child = workdir.command("killed", 2).stdout(Stdio::null()).spawn().unwrap();
        for _ in 0..60_000 {
            if length(&journal) >= journal_length * part / 8 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        kills += u32::from(!child.wait().unwrap().success());
    }
    assert_eq!(kills, 5);
    let rest = finished(&workdir.command("killed", 3).output().unwrap());
    let (before, made) = (rest["runs_before"].as_u64().unwrap(), rest["runs_made"].as_u64().unwrap());
    assert!(before >= RUNS / 2 && made > 0 && before + made == RUNS, "{before} {made}");
    // Each run once: a repeated one would make the journal longer.
    assert_eq!(length(&journal), journal_length);
    assert_eq!(workdir.tables("killed"), expected);

    // Once more: nothing left to do.
    let again = finished(&workdir.command("killed", 2).output().unwrap());
    assert_eq!((&again["runs_made"], &again["runs_before"]), (&0.into(), &RUNS.into()));
    assert_eq!(workdir.tables("killed"), expected);
    let manifest = fs::read_to_string(workdir.out("killed").join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["finished"], true);
    assert_eq!(manifest["sweep"]["text"], DESIGN);
    assert_eq!(manifest["command"][1], "sweep");

    // Another design in the same folder is refused.
    fs::write(workdir.file(), DESIGN.replace("runs = 8", "runs = 9")).unwrap();
    failed(&workdir.command("killed", 2).output().unwrap(), 1, "holds the runs of another sweep");
}

#[test]
fn finished_runs_survive_a_full_disk_and_damage() {
    let workdir = Workdir::new();
    fs::write(workdir.file(), DESIGN.replace("runs = 8", "runs = 2")).unwrap();
    finished(&workdir.command("whole", 2).output().unwrap());
    let expected = workdir.tables("whole");

    // A limit on the size of files acts as a full disk does, without one: 16 blocks of 1024 bytes in bash.
    let limited = Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "bash", PROGRAM, "sweep"])
        .arg(workdir.file())
        .args(["--jobs", "2", "--out"])
        .arg(workdir.out("full"))
        .output()
        .unwrap();
    failed(&limited, 2, "run the same command again to continue");
    failed(&limited, 2, "may not grow any larger");
    let rest = finished(&workdir.command("full", 2).output().unwrap());
    assert!(rest["runs_before"].as_u64().unwrap() > 0);
    assert_eq!(workdir.tables("full"), expected);

    // A record cut short, tables half written, then a flipped bit: what is whole is kept.
    let out = workdir.out("damaged");
    fs::create_dir(&out).unwrap();
    let mut journal = fs::read(workdir.out("whole").join("journal")).unwrap();
    journal.truncate(journal.len() - 7);
    let middle = journal.len() / 2;
    journal[middle] ^= 1;
    fs::write(out.join("journal"), journal).unwrap();
    fs::write(out.join("runs.csv.part"), "run,point and then nothing").unwrap();
    let output = workdir.command("damaged", 2).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("are damaged; their runs are repeated"));
    let rest: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rest["runs_made"], 2);
    assert_eq!(workdir.tables("damaged"), expected);
}

#[test]
fn folders_that_cannot_be_used_are_named() {
    let workdir = Workdir::new();
    fs::write(workdir.out("a-file"), "").unwrap();
    failed(&workdir.command("a-file/results", 1).output().unwrap(), 1, "can't make the folder");
    for (name, message) in [("journal", "is not a sweep's journal"), ("runs.csv", "no journal beside it")] {
        let out = workdir.out(name);
        fs::create_dir(&out).unwrap();
        fs::write(out.join(name), "my only copy").unwrap();
        failed(&workdir.command(name, 1).output().unwrap(), 1, message);
        assert_eq!(fs::read_to_string(out.join(name)).unwrap(), "my only copy");
    }
    fs::write(workdir.file(), DESIGN.replace("path.lte.rtt", "path.dsl.rtt")).unwrap();
    failed(&workdir.command("bad", 1).output().unwrap(), 2, "there is no `path` called `dsl`");
    assert!(!workdir.out("bad").exists());
}

#[cfg(unix)]
#[test]
fn an_interrupt_is_code_130_and_keeps_finished_runs() {
    let workdir = Workdir::new();
    let journal = workdir.out("interrupted").join("journal");
    // So many runs that they can't be finished before the signal.
    fs::write(workdir.file(), DESIGN.replace("runs = 8", "runs = 100000")).unwrap();
    let mut command = workdir.command("interrupted", 2);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..60_000 {
        if length(&journal) > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    failed(&output, 130, "run the same command again to continue");
    failed(&output, 130, "interrupted");
    assert!(length(&journal) > 0);
}

#[test]
fn a_sweep_over_paths_of_ones_own_keeps_its_files_workload() {
    let workdir = Workdir::new();
    let paths = ["--path", "wifi: 10 Mbit/s, 20 ms", "--path", "lte: 4g"];
    let mut command = Command::new(PROGRAM);
    let output = command.arg("sweep").arg(workdir.file()).args(paths).arg("--check").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
