//! Programs that would outlive the emulator that started them, and the namespaces with them: found and ended,
//! a run's own at its end, a killed run's at the beginning of the next.
//!
//! A program has a mark in its environment, which whatever it starts inherits however it detaches itself: the
//! emulator's process id, when that started, and the PID namespace in which the id is valid. Besides, the
//! kernel kills the program itself as soon as the emulator dies (`PR_SET_PDEATHSIG`); what the program had
//! started stays until the next run.
//!
//! Source: proc(5): `/proc/PID/stat`, `/proc/PID/environ`.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::libc::siginfo_t;
use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::{Pid, getppid};

/// The environment variable that bears the mark.
const VARIABLE: &str = "ROPEWALK_EMULATOR";
/// A process that forks while others are ended is found in another pass.
const PASSES: u32 = 20;
const BETWEEN_PASSES: Duration = Duration::from_millis(5);

/// The mark of an emulator's programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    pid: i32,
    /// Clock ticks since boot.
    started: u64,
    /// As `/proc/PID/ns/pid` names it.
    space: String,
}

impl Mark {
    /// This process's.
    ///
    /// # Errors
    /// If /proc can't be read.
    pub fn own() -> io::Result<Mark> {
        let pid = std::process::id() as i32;
        let started = started(pid).ok_or_else(|| io::Error::other("/proc/self/stat can't be read"))?;
        Ok(Mark { pid, started, space: space()? })
    }

    fn parse(text: &str) -> Option<Mark> {
        let mut parts = text.splitn(3, ' ');
        let (pid, started, space) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Mark { pid: pid.parse().ok()?, started: started.parse().ok()?, space: space.to_string() })
    }

    fn text(&self) -> String {
        format!("{} {} {}", self.pid, self.started, self.space)
    }

    /// Whether the emulator is under way; a number that another process has by now is not it.
    fn is_alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Marks a command. The program will be killed when the calling thread ends, and the process with it.
    pub fn put(&self, command: &mut Command) {
        command.env(VARIABLE, self.text());
        let parent = Pid::from_raw(self.pid);
        // SAFETY: between fork and exec only async-signal-safe calls are allowed: prctl and getppid are
        // system calls, and an error from a number allocates nothing.
        unsafe {
            command.pre_exec(move || {
                prctl::set_pdeathsig(Signal::SIGKILL)?;
                // It may have died before that.
                if getppid() != parent { Err(nix::errno::Errno::ESRCH.into()) } else { Ok(()) }
            });
        }
    }

    /// Ends every process that has this mark; how many those were.
    pub fn end(&self) -> usize {
        end(|mark| mark == self)
    }
}

/// Ends what emulators left that were killed; how many processes those were. To be called before this process
/// enters a user namespace of its own: from there it may not look at them.
pub fn clean() -> usize {
    let Ok(space) = space() else { return 0 };
    // Whoever lives on among them and starts another emulator is not to lose the shell from which that is
    // done.
    let home = std::env::var(VARIABLE).ok().and_then(|text| Mark::parse(&text));
    end(|mark| mark.space == space && Some(mark) != home.as_ref() && !mark.is_alive())
}

fn end(which: impl Fn(&Mark) -> bool) -> usize {
    let mut ended = std::collections::BTreeSet::new();
    for _ in 0..PASSES {
        let found: Vec<_> = marked().into_iter().filter(|(_, mark)| which(mark)).collect();
        if found.is_empty() {
            break;
        }
        for (pid, _) in found {
            // It may have ended by itself, or be another user's.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            ended.insert(pid);
        }
        std::thread::sleep(BETWEEN_PASSES);
    }
    ended.len()
}

/// Every other process with a mark that this one may look at.
fn marked() -> Vec<(i32, Mark)> {
    let own = std::process::id() as i32;
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != own)
        .filter_map(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
            let mark = environment.split(|byte| *byte == 0).find_map(|variable| {
                let text = std::str::from_utf8(variable).ok()?;
                Mark::parse(text.strip_prefix(VARIABLE)?.strip_prefix('=')?)
            })?;
            Some((pid, mark))
        })
        .collect()
}

/// When a process started, if it is there and more than a zombie.
fn started(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything. The state follows, and the start is the 22nd field of all.
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn space() -> io::Result<String> {
    Ok(std::fs::read_link("/proc/self/ns/pid")?.to_string_lossy().into_owned())
}

static TERMINATED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: c_int) {
    TERMINATED.store(true, Ordering::Relaxed);
}

/// A flag that is set when someone asks this process to end (SIGTERM, SIGHUP), so that it can end others
/// first.
///
/// # Errors
/// What the kernel refuses.
pub fn termination_flag() -> io::Result<&'static AtomicBool> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler stores to an atomic and does nothing else, which a signal handler may.
        let before = unsafe { sigaction(signal, &action) }?;
        if matches!(before.handler(), SigHandler::SigIgn) {
            // As `nohup` wants it.
            // SAFETY: no code runs when a signal is ignored.
            unsafe { sigaction(signal, &before) }?;
        }
    }
    Ok(&TERMINATED)
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_interrupt(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel hands in a valid struct, which lives until the handler returns.
    let code = unsafe { (*info).si_code };
    // Positive: from the kernel itself, which is Ctrl-C on a terminal.
    if code <= 0 {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
}

/// From now on SIGINT doesn't end this process; one that somebody sent (`kill -INT`) sets what is returned.
/// Ctrl-C on a terminal doesn't: it reaches the programs in the foreground as well, and they know what it
/// means to them.
///
/// # Errors
/// If the handler can't be set.
pub fn interruption_flag() -> io::Result<&'static AtomicBool> {
    let action = SigAction::new(SigHandler::SigAction(note_interrupt), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler reads what it is handed and stores to an atomic, which a signal handler may.
    unsafe { sigaction(Signal::SIGINT, &action) }?;
    Ok(&INTERRUPTED)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::{Mark, clean, marked};

    /// A process that starts another, which leaves it and lives on.
    fn detached(mark: &Mark) -> std::process::Child {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "setsid sleep 100 & sleep 100; true"]).stdin(Stdio::null());
        command.env(super::VARIABLE, mark.text());
        let child = command.spawn().unwrap();
        let is_there = || marked().iter().filter(|(_, other)| other == mark).count() == 3;
        assert!((0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_there()
        }));
        child
    }

    #[test]
    fn a_mark_survives_its_text() {
        let mark = Mark::own().unwrap();
        assert!(mark.is_alive());
        assert_eq!(Mark::parse(&mark.text()), Some(mark.clone()));
        assert!(!Mark { started: mark.started + 1, ..mark }.is_alive());
        assert_eq!(Mark::parse("1 x pid:[2]"), None);
    }

    #[test]
    fn a_runs_own_processes_are_ended_and_no_others() {
        // Marks that this process doesn't use otherwise, and that look alive.
        let own = Mark { space: "here".into(), ..Mark::own().unwrap() };
        let other = Mark { space: "there".into(), ..own.clone() };
        let (mut mine, mut others) = (detached(&own), detached(&other));
        assert_eq!(own.end(), 3);
        assert!(!mine.wait().unwrap().success());
        assert_eq!(marked().iter().filter(|(_, mark)| *mark == other).count(), 3);
        assert_eq!(other.end(), 3);
        others.wait().unwrap();
    }

    #[test]
    fn what_a_killed_emulator_left_is_cleaned_and_what_belongs_to_one_elsewhere_is_not() {
        let own = Mark::own().unwrap();
        let dead = Mark { started: own.started + 1, ..own.clone() };
        let elsewhere = Mark { space: "pid:[1]".into(), ..dead.clone() };
        let (mut left, mut others) = (detached(&dead), detached(&elsewhere));
        clean();
        assert!(!left.wait().unwrap().success());
        assert!(!marked().iter().any(|(_, mark)| *mark == dead));
        assert_eq!(marked().iter().filter(|(_, mark)| *mark == elsewhere).count(), 3);
        elsewhere.end();
        others.wait().unwrap();
    }
}
